"""Several heads over one column: close, faint or with opposite readouts, and inside limits on rows."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax import MultiHead, SingleHead

CASES: dict[str, tuple[list[tuple[float, float, float]], float | None]] = {
    # (W, w0, v) of every head; the longest row that may be sent
    "close, opposite readouts": ([(1.31, 0.0, -1.1), (1.36, 0.0, 0.3)], None),
    "a faint head close to another": ([(1.5, 0.0, 2.2), (-1.2, 0.0, -0.6), (-1.0, 0.0, 0.05)], 10.0),
    "readouts that nearly cancel": ([(-1.1, -2.0, -0.381), (-0.7, 1.0, 0.382)], 100.0),
    "weak beside strong": ([(0.8, 0.0, 0.7), (0.03, 0.0, -1.1)], None),
    "three with query biases": ([(0.5, -0.1, 0.9), (-1.3, 1.9, -0.3), (1.4, 1.5, 0.2)], 10.0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("skip", [None, 0.5])
def test_heads_over_one_column_are_told_apart(name: str, skip: float | None) -> None:
    parts, bound = CASES[name]
    heads = [SingleHead([[W]], [v], None if not any(p[1] for p in parts) else [w0]) for W, w0, v in parts]
    hidden = MultiHead(heads, 0.25, None if skip is None else np.array([skip]))
    result = unsoftmax.recover(lambda X: hidden(X), width=1, input_bound=bound, seed=3)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, MultiHead)
    assert len(result.model.heads) == len(parts)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= result.error_bound < 1e-6
    assert result.queries.total < 1500


def test_what_is_no_sum_of_heads_over_one_column_is_not_recovered() -> None:
    hidden = MultiHead([SingleHead([[1.2]], [0.7]), SingleHead([[-0.6]], [0.4])])

    def bent(X: np.ndarray) -> np.ndarray:
        return np.asarray(hidden(X) + 1e-7 * np.tanh(X[:, :, 0].mean(axis=1)))

    assert not unsoftmax.recover(bent, width=1).status.recovered
