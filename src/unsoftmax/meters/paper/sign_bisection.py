"""Labels of [λb - (c/λ)a; λb], bisected in log λ: the answer changes sign at λ² = σ(-c·aᵀWb) c (a·v)/(b·v)
(Theorem B.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, logit
from unsoftmax.meters.base import Answers
from unsoftmax.meters.probes.bisection import halve

__all__ = ["SignBisection"]


class SignBisection:
    """Reads aᵀWb from labels (above 1/2: positive), `steps` queries per pair. v: the readout up to a factor.

    c: a size at which every score c·aᵀWb lies between -1 and 1. reach: half the length of the interval of log
    λ in which the sign must change.

    >>> from unsoftmax import Labels, Ledger, SingleHead, as_oracle
    >>> head = SingleHead(np.array([[0.5, 0.2], [0.1, 0.4]]), np.array([0.6, 0.8]))
    >>> meter = SignBisection(Ledger(Labels(as_oracle(head))), head.v, 1.0, reach=1.0, steps=40)
    >>> np.round(meter.forms(np.eye(2), np.eye(2)), 9)
    array([0.5, 0.4])
    """

    def __init__(self, asker: Answers, v: Array, c: float, *, reach: float, steps: int) -> None:
        self._asker = asker
        self._v = v
        self._c = c
        self._reach = reach
        self._steps = steps
        self._top = 1.0 / (1.0 + np.exp(-1.0))  # σ(1): no weight lies outside 1 - σ(1), σ(1)

    @property
    def width(self) -> int:
        return len(self._v)

    def forms(self, A: Array, B: Array) -> Array:
        c, top = self._c, self._top
        signs = [np.where(rows @ self._v < 0.0, -1.0, 1.0) for rows in (A, B)]
        seen = [np.maximum(np.abs(rows @ self._v), 1e-12) for rows in (A, B)]
        A, B = (sign[:, None] * rows for sign, rows in zip(signs, (A, B), strict=True))
        middle = 0.5 * np.log(c * seen[0] / seen[1]) + 0.25 * np.log(top * (1.0 - top))

        def positive(log_lam: Array) -> NDArray[np.bool_]:
            lam = np.exp(log_lam)[:, None]
            labels = np.empty(len(A), dtype=bool)
            step = self._asker.batch_size(2)
            for start in range(0, len(A), step):
                part = slice(start, start + step)
                b = lam[part] * B[part]
                labels[part] = self._asker.ask(np.stack([b - c / lam[part] * A[part], b], axis=1)) > 0.5
            return labels

        low, high = halve(positive, middle - self._reach, middle + self._reach, self._steps)
        weight = np.clip(np.exp(low + high) * seen[1] / (c * seen[0]), 1.0 - top, top)
        return np.asarray(-logit(weight) / c * signs[0] * signs[1])
