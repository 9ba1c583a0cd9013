"""Progress counts verification, and is never more than all."""

from __future__ import annotations

import pytest
import torch

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


@pytest.mark.parametrize(
    "target",
    [
        "demo:multi-head?d=6&heads=2",
        "demo:multi-head?d=16&heads=4",
        torch.float64,
        torch.float32,
        "demo:tokens?V=40&r=2&heads=2",
    ],
    ids=["two heads", "four heads", "vectors", "a fit behind float32", "tokens in two heads"],
)
def test_a_total_is_told_before_heads_and_ranks_are_known(target: str | torch.dtype) -> None:
    torch.manual_seed(0)
    if isinstance(target, torch.dtype):
        layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=target)
    seen: list[unsoftmax.Progress] = []
    result = unsoftmax.recover(target if isinstance(target, str) else layer, progress=seen.append)
    assert result.status.recovered
    told = [(now.paid, now.expected) for now in seen if now.expected is not None]
    assert told[0][0] <= 0.2 * result.queries.total
    assert all(0.4 <= expected / result.queries.total <= 2.5 for _, expected in told)
    assert told[-1] == (result.queries.total, result.queries.total)
