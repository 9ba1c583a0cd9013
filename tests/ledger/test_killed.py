"""A killed run goes on where it was: same bits, and at most the batch in flight is asked again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unsoftmax.ledger import read_statement

DRIVER = Path(__file__).with_name("killed_runs.py")


def drive(ledger: Path, mode: str, k: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(ledger), mode, str(k)], capture_output=True, text=True, check=True
    )
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    facts = drive(tmp_path_factory.mktemp("plain") / "run.ledger", "in-flight", 10**6)
    assert facts["runs"] == 1
    assert facts["seen"] == facts["bill"]
    return facts


@pytest.mark.parametrize("mode", ["in-flight", "in-write"])
@pytest.mark.parametrize("k", [3, 10, 40])
def test_killed_after_every_kth_batch(tmp_path: Path, undisturbed: dict[str, Any], mode: str, k: int) -> None:
    facts = drive(tmp_path / "run.ledger", mode, k)
    assert facts["runs"] > 1
    assert facts["status"] == "EXACT"
    assert facts["model"] == undisturbed["model"]
    # one query more when all that was left to ask could not show that the target is still the same one
    assert 0 <= facts["bill"] - undisturbed["bill"] <= 1
    assert facts["seen"] <= undisturbed["seen"] + 1 + (facts["runs"] - 1) * facts["largest"]
    statement = read_statement(tmp_path / "run.ledger")
    assert statement.queries == facts["bill"]
    assert facts["seen"] == statement.queries + statement.lost  # every query the target saw is accounted for
    assert statement.runs == facts["runs"]
