"""What probably stands in the way where a fit of heads leaves more than their rounding."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["likely_obstacle"]

# relative distance of two heads' values from equal or opposite: at 1e-2 one layer in four is not recovered
_NEAR = 0.1
_STRONG = 5.0  # usual score of Gaussian rows, at which the second largest weight is e^-5 of the largest


def likely_obstacle(matrices: Array, values: Array) -> str:
    """matrices [W w0] (H, d, d+1); values (H, d) or (H, d, m). Empty where nothing stands out.

    >>> likely_obstacle(np.zeros((2, 3, 4)), np.array([[1.0, 0.0, 0.0], [-1.0, 0.01, 0.0]]))
    ' (heads 1 and 2 have values up to 1e-02 of their size from equal or opposite)'
    >>> likely_obstacle(np.full((1, 3, 4), 4.0), np.ones((1, 3)))
    ' (scores of Gaussian rows are about 12: nearly all weights are 0 or 1)'
    >>> likely_obstacle(np.ones((1, 3, 4)), np.ones((1, 3)))
    ''
    """
    found = []
    flat = values.reshape(len(values), -1)
    sizes = np.linalg.norm(flat, axis=1)
    for h, k in combinations(range(len(flat)), 2):
        apart = min(float(np.linalg.norm(flat[h] - sign * flat[k])) for sign in (1.0, -1.0))
        if apart < _NEAR * float(max(sizes[h], sizes[k])):
            near = f"up to {apart / max(sizes[h], sizes[k]):.0e} of their size from equal or opposite"
            found.append(f"heads {h + 1} and {k + 1} have values {near}")
    strongest = float(np.linalg.norm(matrices[:, :, :-1], axis=(1, 2)).max())
    if strongest > _STRONG:
        found.append(f"scores of Gaussian rows are about {strongest:.2g}: nearly all weights are 0 or 1")
    return f" ({'; '.join(found)})" if found else ""
