"""A ledger written by `python` is replayed under `python -O`: no query hides in an assertion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys, json, unsoftmax
head = unsoftmax.random_single_head(4, seed=2, biases=sys.argv[2].endswith("biased"))
oracle = unsoftmax.as_oracle(head)
kind = sys.argv[2].split("-")[0]
wrapped = {
    "exact": lambda: oracle,
    "tolerance": lambda: unsoftmax.WithinTolerance(oracle, 1e-3, 1),
    "labels": lambda: unsoftmax.Labels(oracle),
    "bfloat16": lambda: unsoftmax.LowPrecision(oracle, "bfloat16"),
}[kind]()
result = unsoftmax.recover(wrapped, ledger=sys.argv[1], input_bound=1e3)
print(json.dumps([str(result.status), result.queries.total, result.reason]))
"""


@pytest.mark.parametrize("kind", ["exact", "tolerance", "labels", "bfloat16", "tolerance-biased"])
def test_replay_without_assertions(tmp_path: Path, kind: str) -> None:
    ends = []
    for flags in ([], ["-O"], []):
        done = subprocess.run(
            [sys.executable, *flags, "-c", RUN, str(tmp_path / "run.ledger"), kind],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        ends.append(json.loads(done.stdout))
    assert ends[0][0] in ("EXACT", "WITHIN_BOUND")
    assert [end[0] for end in ends] == [ends[0][0]] * 3
    # every later run pays for one confirmation of the target at most
    assert all(0 <= end[1] - ends[0][1] <= 64 for end in ends)
