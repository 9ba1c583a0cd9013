"""Appendix C: orthogonal subspaces, known and hidden."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.multi_heads import orthogonal_subspaces
from unsoftmax import MultiHead, Size, Status, UsageError, appendix_c, random_multi_head


def _bases(hidden: MultiHead) -> list[np.ndarray]:
    return [np.asarray(head.matrix.svd()[2][:, : head.rank]) for head in hidden.heads]


@pytest.mark.parametrize("seed", range(3))
def test_known_subspaces_cost_exactly_what_proposition_c2_says(seed: int) -> None:
    hidden = orthogonal_subspaces(9, seed)
    learner = appendix_c(_bases(hidden))
    result = unsoftmax.recover(lambda X: hidden(X), width=9, learner=learner)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, MultiHead)
    assert hidden.distance(result.model) < 1e-7
    assert result.queries.learning == 3 * (3 + 9) == learner.claim.queries(Size(9))


@pytest.mark.parametrize("seed", range(3))
def test_hidden_subspaces_are_found(seed: int) -> None:
    hidden = orthogonal_subspaces(9, seed)
    result = unsoftmax.recover(lambda X: hidden(X), width=9, learner=appendix_c())
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, MultiHead)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= result.error_bound < 0.1
    assert appendix_c().claim.queries.holds(result.queries.learning, Size(9))


def test_heads_outside_the_assumption_are_no_success() -> None:
    hidden = random_multi_head(8, 2, 3, seed=1)
    for learner in (appendix_c(), appendix_c([np.eye(8)[:, :4], np.eye(8)[:, 4:]])):
        assert not unsoftmax.recover(lambda X: hidden(X), width=8, learner=learner).status.recovered


def test_bases_are_checked() -> None:
    with pytest.raises(UsageError, match="orthonormal"):
        appendix_c([np.ones((4, 2))])
    with pytest.raises(UsageError, match="list of bases"):
        appendix_c([])
