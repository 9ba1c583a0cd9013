"""A ledger written by `python` is replayed under `python -O`: no query hides in an assertion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUN = """
import sys, json, unsoftmax
told = {}
for kind in ("exact", "tolerance", "labels", "bfloat16", "tolerance-biased"):
    head = unsoftmax.random_single_head(4, seed=2, biases=kind.endswith("biased"))
    oracle = unsoftmax.as_oracle(head)
    wrapped = {
        "exact": lambda: oracle,
        "tolerance": lambda: unsoftmax.WithinTolerance(oracle, 1e-3, 1),
        "labels": lambda: unsoftmax.Labels(oracle),
        "bfloat16": lambda: unsoftmax.LowPrecision(oracle, "bfloat16"),
    }[kind.split("-")[0]]()
    result = unsoftmax.recover(wrapped, ledger=f"{sys.argv[1]}/{kind}.ledger", input_bound=1e3)
    told[kind] = [str(result.status), result.queries.total]
print(json.dumps(told))
"""


def test_replay_without_assertions(tmp_path: Path) -> None:
    runs = []
    for flags in ([], ["-O"]):
        done = subprocess.run(
            [sys.executable, *flags, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    assert len(runs[0]) == 5
    for kind, (status, queries) in runs[0].items():
        assert status in ("EXACT", "WITHIN_BOUND"), kind
        assert [run[kind][0] for run in runs] == [status] * 2
        # every later run pays for one confirmation of the target at most
        assert all(0 <= run[kind][1] - queries <= 64 for run in runs)
