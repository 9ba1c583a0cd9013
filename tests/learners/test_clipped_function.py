"""A box whose answers stop at a limit: whatever the status, a recovered model answers like the box, at the
limit too."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax


@pytest.mark.parametrize("limit", [0.3, 2.0, 50.0])
@pytest.mark.parametrize("d", [3, 12])
def test_the_recovered_function_stops_where_the_box_does(limit: float, d: int) -> None:
    hidden = unsoftmax.random_single_head(d, seed=1)
    result = unsoftmax.recover(lambda X: np.clip(hidden(X), -limit, limit), width=d, seed=1)
    assert result.status.recovered
    X = 2 * np.random.default_rng(0).standard_normal((200, 3, d))
    np.testing.assert_allclose(result.unwrap()(X), np.clip(hidden(X), -limit, limit), atol=1e-9 * limit)
