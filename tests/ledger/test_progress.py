"""Progress counts verification, and is never more than all."""

from __future__ import annotations

import pytest

import unsoftmax

HEAD = unsoftmax.as_oracle("demo:single-head?d=5")
TARGETS: dict[str, object] = {
    "one head": "demo:single-head?d=8",
    "low rank, biases": "demo:single-head?d=16&r=3&biases=1",
    "several heads": "demo:multi-head?d=6&heads=2",
    "transformer": "demo:transformer?d=4&m=4",
    "rounded": unsoftmax.Rounded(HEAD, 2),
    "float32": unsoftmax.LowPrecision(HEAD, "float32"),
    "tokens": "demo:tokens?V=12&r=2",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_is_paid_never_passes_what_is_expected(target: object) -> None:
    seen: list[unsoftmax.Progress] = []
    result = unsoftmax.recover(target, progress=seen.append)
    assert result.status.recovered
    assert seen[-1].paid == result.queries.total
    for now in seen:
        assert now.expected is None or now.paid <= now.expected


def test_verification_is_counted_before_it_begins() -> None:
    seen: list[unsoftmax.Progress] = []
    result = unsoftmax.recover("demo:single-head?d=16&r=16", progress=seen.append)
    scores = [now.expected for now in seen if now.phase == "scores" and now.expected is not None]
    assert abs(scores[-1] - result.queries.total) < 0.1 * result.queries.total
