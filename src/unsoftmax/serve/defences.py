"""The switches of a served model that make answers worse on purpose."""

from __future__ import annotations

from unsoftmax.errors import UsageError
from unsoftmax.oracles import BoundedInputs, Labels, Noisy, Oracle, Rounded

__all__ = ["defended"]


def defended(
    oracle: Oracle,
    *,
    decimals: int | None = None,
    noise: float | None = None,
    labels: bool = False,
    norm_bound: float | None = None,
    seed: int = 0,
) -> Oracle:
    """The oracle behind the chosen defences: inputs bounded first, then noise, then rounding or labels.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> import numpy as np
    >>> defended(FunctionOracle(lambda X: X[:, -1, 0]), decimals=1)(np.array([[[0.26]]]))
    array([0.3])
    """
    if labels and decimals is not None:
        raise UsageError("labels are not rounded; choose one of the two")
    if norm_bound is not None:
        oracle = BoundedInputs(oracle, norm_bound)
    if noise is not None:
        oracle = Noisy(oracle, noise, seed)
    if decimals is not None:
        oracle = Rounded(oracle, decimals)
    return Labels(oracle) if labels else oracle
