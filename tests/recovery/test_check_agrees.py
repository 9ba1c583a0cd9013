"""What `check` calls recoverable is recovered, and what it does not ends as it says. All kinds, more seeds:
`python -m benchmarks.check`."""

from __future__ import annotations

import pytest
from benchmarks.check import KINDS, judge

BLOCKS = {"pre-norm encoder block", "post-norm encoder block"}
SLOW = BLOCKS | {"language model", "labels", "a layer in float32", "noisy", "short sequences, float32"}
QUICK = [name for name in KINDS if name not in SLOW]


@pytest.mark.parametrize("kind", QUICK)
def test_check_says_what_recover_does(kind: str) -> None:
    judged = judge(KINDS[kind](11), 11)
    assert judged.right, judged


def test_there_are_twenty_kinds() -> None:
    assert len(KINDS) >= 20


@pytest.mark.parametrize("seed", [34, 37, 62])
def test_faint_curves_are_told_from_kinks(seed: int) -> None:
    """tanh over a float32 layer bends by little more than it rounds."""
    judged = judge(KINDS["torch, tanh on top in float32"](seed), seed)
    assert judged.right, judged
    assert judged.ended == "OUTSIDE_CLASS"
