"""Several heads over token ids: counted, told apart, and fitted jointly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.learners.test_tokens import recovered, unsoftmax_size, worst_error
from unsoftmax import Status, TokenHeads
from unsoftmax.meters.tokens import CopyPatterns
from unsoftmax.solvers.tokens.sums_of_sigmoids import fit_free_weights, fit_known_weights
from unsoftmax.solvers.tokens.token_answers import FlatSequences
from unsoftmax.solvers.tokens.token_refinement import TokenFit, refine_tokens


@pytest.mark.parametrize(("heads", "seed"), [(2, 0), (2, 1), (3, 0)])
def test_several_heads_are_recovered_exactly(heads: int, seed: int) -> None:
    model = unsoftmax.random_token_heads(60, 3, heads=heads, seed=seed)
    result = recovered(model, 60, seed=seed)
    assert result.status is Status.EXACT, result.reason
    assert result.model.ranks == [3] * heads
    assert [each.value for each in result.findings] == ["exact"]
    assert worst_error(model, result.model) <= 1e-9
    assert model.distance(result.model) <= result.error_bound
    assert "heads" in result.claim.title
    assert result.claim.queries.holds(result.queries.learning, unsoftmax_size(result.model))


def test_heads_of_different_ranks_and_sizes() -> None:
    first, second = (unsoftmax.random_token_heads(60, r, seed=r).heads[0] for r in (2, 4))
    model = TokenHeads([first, unsoftmax.TokenHead(second.keys, second.queries, 0.1 * second.values)])
    result = recovered(model, 60)
    assert result.status is Status.EXACT, result.reason
    assert sorted(result.model.ranks) == [2, 4]
    assert model.distance(result.model) <= result.error_bound


def test_vector_answers_of_several_heads() -> None:
    model = unsoftmax.random_token_heads(50, 2, heads=2, outputs=5, seed=3)
    result = recovered(model, 50, outputs=5)
    assert result.status is Status.EXACT, result.reason
    assert result.model.outputs == 5
    assert model.distance(result.model) < 1e-9


@pytest.mark.parametrize("heads", [2, 3])
def test_sums_of_sigmoids(heads: int) -> None:
    rng = np.random.default_rng(heads)
    scores, weights = rng.standard_normal((2, 40, heads))
    ratios = CopyPatterns.even(2 * heads + 1, 64).ratios
    found = np.einsum("pqh,ph->pq", 1.0 / (1.0 + np.exp(-scores[:, None]) / ratios[:, None]), weights)
    free = fit_free_weights(ratios, found, weights.sum(axis=1), heads, 1e-14, rng)
    solved = free.rms <= 1e-14
    assert solved.mean() > 0.9
    order = free.scores[solved].argsort(axis=1), scores[solved].argsort(axis=1)
    off = np.take_along_axis(free.scores[solved], order[0], 1) - np.take_along_axis(
        scores[solved], order[1], 1
    )
    bars = np.take_along_axis(free.errors[solved], order[0], 1)
    assert (np.abs(off) <= 30.0 * bars + 1e-12).all()
    known = fit_known_weights(ratios, found, weights, np.full(40, 1e-14), rng)
    assert (known.rms <= 1e-14).mean() > 0.9


@pytest.mark.parametrize("longest", [None, 5])
def test_the_joint_refinement_of_heads_with_and_without_positions(longest: Any) -> None:
    model = unsoftmax.random_token_heads(12, 2, heads=2, seed=1, longest=longest)
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 12, (80, length)) for length in (1, 2, 3, 5)]
    answers = np.concatenate([model(ids) for ids in batches])
    fit = TokenFit(FlatSequences.of(batches, positions=longest is not None), answers, 1e-13)
    linear = fit.linearise(model.heads)
    step = rng.standard_normal(linear.unknowns)
    there, back = (fit.residual(fit.moved(model.heads, sign * 1e-6 * step)) for sign in (1.0, -1.0))
    slope = (there - back) / 2e-6
    np.testing.assert_allclose(linear.forward(step), slope, atol=1e-6 * np.abs(slope).max())
    damping = np.full(linear.unknowns, 1e-3 * linear.diagonal().max())
    solved = linear.preconditioner(damping)(step)
    np.testing.assert_allclose(linear.normal() @ solved + damping * solved, step, atol=1e-7)
    found = refine_tokens(fit, fit.moved(model.heads, 0.02 * step))
    assert found.rms[-1] < 1.0
    fresh = rng.integers(0, 12, (50, 3))
    assert np.abs(TokenHeads(found.state)(fresh) - model(fresh)).max() < 1e-10
