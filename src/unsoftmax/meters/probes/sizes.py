"""How large to ask: the sizes of a and b at which a score is neither saturated nor lost in rounding."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

__all__ = ["TARGET_SCORE", "choose_scales"]

TARGET_SCORE = 1.0  # typical |score| of a probe; the sigmoid is inverted well from about 0.1 to 5


@lru_cache(maxsize=64)  # every projection of a recovery asks again, most with the same numbers
def choose_scales(
    typical_score: float,
    *,
    bias: float = 0.0,
    constant: float = 0.0,
    readout: float = 1.0,
    bound: float | None = None,
) -> tuple[float, float]:
    """Sizes (gamma of a, beta of b) that measure aᵀWb best, when |aᵀWb| is about `typical_score` for unit
    vectors.

    A score gamma·(beta·typical_score + bias) should be about one, while the answer's rounding, which is
    relative to constant + (beta + gamma)·readout, should be small against gamma·readout, with `readout` the
    typical product of a unit vector with v. Only the product of the sizes is fixed by the first, so a is
    taken large and b small; a query bias stops that, because it does not shrink with b. Among equally good
    choices the most moderate one wins. `bound` limits gamma + beta.

    >>> gamma, beta = choose_scales(1.0)
    >>> round(gamma * beta, 6), gamma > 8 * beta
    (1.0, True)
    """
    if typical_score <= 0.0:
        typical_score = 2.0**-60
    centre = np.log2(TARGET_SCORE / typical_score) / 2
    beta = 2.0 ** (centre + np.arange(-60, 61) / 2)
    if bound is not None:
        beta = np.append(beta[beta < bound / 2], bound / 2)
    gamma = TARGET_SCORE / (beta * typical_score + bias)
    if bound is not None:
        gamma = np.minimum(gamma, bound - beta)
    noise = (1.0 + (beta + constant / readout) / gamma) / (gamma * beta)
    good = np.flatnonzero(noise <= 1.1 * noise.min())
    best = good[np.argmin((gamma + beta)[good])]
    return float(gamma[best]), float(beta[best])
