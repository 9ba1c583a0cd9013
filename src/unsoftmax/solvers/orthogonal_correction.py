"""An estimate of W, made better by measuring only what is orthogonal to it: all but its scale."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["BesideMeter", "refine"]


class BesideMeter(Protocol):
    """A meter that measures the part of Wb beside a direction with extra sensitivity."""

    def measure_beside(
        self, avoid: Array, b: Array, length: float, only: Array | None = None
    ) -> tuple[Array, float]:
        """The part of Wb orthogonal to `avoid`, and the length of its error; `only`: along this direction
        alone."""


def refine(meter: BesideMeter, W: Array, error: float, rng: np.random.Generator) -> Array:
    """W plus everything of its error but the part along W itself, when that error is about `error`
    (Frobenius).

    For every b of a random basis, the part of the error beside Wb is measured. What is along Wb is a factor
    for each b; sums of two b's tell those factors against each other, and leave one for all: the scale.
    Queries: d(d-1) + 2(d-1).
    """
    d = len(W)
    B = np.linalg.qr(rng.standard_normal((d, d)))[0]
    images = W @ B
    sizes = np.linalg.norm(images, axis=0)
    length = error / np.sqrt(d)
    E = np.column_stack([meter.measure_beside(images[:, j], B[:, j], length)[0] for j in range(d)])
    factors = np.zeros(d)
    for j in range(1, d):
        mix = B[:, 0] / sizes[0] + B[:, j] / sizes[j]
        mix /= np.linalg.norm(mix)
        image = W @ mix
        beside = images[:, j] - image * (image @ images[:, j]) / (image @ image)
        beside /= np.linalg.norm(beside)
        seen = float(beside @ meter.measure_beside(image, mix, length, beside)[0])
        first, other = float(B[:, 0] @ mix), float(B[:, j] @ mix)
        known = first * float(beside @ E[:, 0]) + other * float(beside @ E[:, j])
        factors[j] = (seen - known) / (other * float(beside @ images[:, j]) / sizes[j])
    correction = (E + images * (factors / sizes)) @ B.T
    correction -= W * (np.sum(correction * W) / np.sum(W * W))
    return np.asarray(W + correction)
