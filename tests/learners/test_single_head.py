from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases import heads
from unsoftmax import SingleHead, Size, Status

SIZES = [1, 2, 5, 16, 48, 96]


@pytest.mark.parametrize("kind", sorted(heads.ALL))
@pytest.mark.parametrize("d", SIZES)
def test_one_head_is_recovered_at_the_price_of_its_parameters(kind: str, d: int) -> None:
    for seed in range(3 if d < 48 else 1):
        head = heads.make(kind, d, seed)
        result = unsoftmax.recover(lambda X, head=head: head(X), width=d, seed=seed)
        assert result.status is Status.EXACT, result.reason
        found = result.unwrap()
        assert isinstance(found, SingleHead)
        assert head.distance(found) <= 1e-9
        assert result.error_bound is not None
        assert head.distance(found) <= result.error_bound <= 1e-9
        assert found.rank == head.rank
        assert result.claim.queries.holds(result.queries.learning, Size.of(result.unwrap()))
        if d >= 48:
            assert result.queries.learning <= 1.02 * head.parameters + 32


@pytest.mark.parametrize(
    ("d", "r", "decades", "v"),
    [
        (64, 7, 0, "random"),
        (64, 7, 0, "orthogonal"),
        (64, 7, 0, "inside"),
        (64, 64, 5, "random"),
        (200, 13, 0, "random"),
        (200, 13, 5, "orthogonal"),
        (384, 32, 0, "random"),
        (384, 32, 5, "random"),
    ],
)
def test_low_rank_costs_less_and_needs_no_announcement(d: int, r: int, decades: float, v: str) -> None:
    head = heads.low_rank(d, r, seed=1, decades=decades, v=v)
    result = unsoftmax.recover(lambda X: head(X), width=d, seed=3)
    assert result.status is Status.EXACT, result.reason
    assert head.distance(result.unwrap()) <= 1e-9  # type: ignore[arg-type]
    assert result.unwrap().ranks == [r]
    assert result.queries.learning <= 1.02 * head.parameters + 32


def test_the_error_bound_covers_over_many_heads() -> None:
    ratios = []
    for seed in range(30):
        kind = sorted(heads.ALL)[seed % len(heads.ALL)]
        head = heads.make(kind, 2 + seed % 9, seed)
        result = unsoftmax.recover(head, seed=seed)
        assert result.error_bound is not None
        ratios.append(head.distance(result.unwrap()) / result.error_bound)  # type: ignore[arg-type]
    assert max(ratios) <= 1.0
    assert np.median(ratios) > 0.01


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("c", [0.0, 2.5])
def test_silent_readout_is_not_identifiable(d: int, c: float) -> None:
    head = SingleHead(np.eye(d), np.zeros(d), np.ones(d), c)
    result = unsoftmax.recover(head)
    assert result.status is Status.NOT_IDENTIFIABLE
    assert "W" in result.reason
    assert "cannot be seen" in result.reason
    assert result.model is None
    with pytest.raises(unsoftmax.NotRecovered, match="NOT_IDENTIFIABLE"):
        result.unwrap()


def test_the_same_seed_gives_the_same_bits_and_another_one_the_same_head() -> None:
    head = unsoftmax.random_single_head(20, 5, seed=3, biases=True)
    first, second, third = (unsoftmax.recover(head, seed=seed) for seed in (1, 1, 2))
    X = np.random.default_rng(0).standard_normal((4, 3, 20))
    assert np.array_equal(first.unwrap()(X), second.unwrap()(X))
    assert first.queries == second.queries
    assert first.unwrap().distance(third.unwrap()) < 1e-11


def test_target_and_learner_with_one_seed_do_not_conspire() -> None:
    for seed in range(5):
        assert unsoftmax.recover(f"demo:single-head?d=8&r=2&seed={seed}", seed=seed).status is Status.EXACT


def test_the_learner_never_sees_the_weights() -> None:
    target = "demo:single-head?d=12&r=3&seed=5"
    with unsoftmax.SeparateProcess(target) as oracle:
        result = unsoftmax.recover(oracle)
    assert result.status is Status.EXACT
    truth = unsoftmax.random_single_head(12, 3, seed=5)
    assert truth.distance(result.unwrap()) < 1e-12  # type: ignore[arg-type]


def test_too_short_rows_are_said_to_be_too_short() -> None:
    result = unsoftmax.recover(unsoftmax.random_single_head(8, seed=0), input_bound=1e-7)
    assert not result.status.recovered
    assert result.model is None


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_extreme_scales(scale: float) -> None:
    W, v = np.random.default_rng(0).standard_normal((6, 6)), np.random.default_rng(1).standard_normal(6)
    for head in (SingleHead(scale * W, v), SingleHead(W, scale * v), SingleHead(scale * W, v / scale)):
        assert unsoftmax.recover(head).status is Status.EXACT
