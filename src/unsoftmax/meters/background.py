"""What the other heads add while one is measured: saturated ones from signs alone, then predicted from what is known of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import expit

from unsoftmax.oracles import Array

__all__ = ["Background", "PredictedBackground", "SaturatedBackground"]


class Background(Protocol):
    """The others' part of the response at a + step·direction, for a meter's points."""

    def __call__(self, directions: Array, steps: Array, points: slice) -> tuple[Array, Array]:
        """(n,) at the base row and (k, n) at the stepped rows."""


class SaturatedBackground:
    """Every other head is on or off for good: it adds a·v_k or nothing.

    a: the base row. V: the others' readouts (K, d). on: (K, n), which are on at which point.
    """

    def __init__(self, a: Array, V: Array, on: Array) -> None:
        self._a, self._V = a, V
        self._on = on.astype(np.float64)

    def __call__(self, directions: Array, steps: Array, points: slice) -> tuple[Array, Array]:
        on = self._on[:, points]
        if not on.any():
            return np.zeros(on.shape[1]), np.zeros(steps.shape)
        base = (self._V @ self._a) @ on
        return base, base + steps * ((directions.T @ self._V.T) @ on)


class PredictedBackground:
    """Every other head adds σ(aᵀW_k b)·(a·v_k), with the W_k known by now; a better meter needs no new queries.

    W: the others' matrices, K arrays (d, n). V: (K, d). points: (n, columns).
    """

    def __init__(self, a: Array, W: list[Array], V: Array, points: Array) -> None:
        self._a, self._V = a, V
        self._Wb = np.stack([matrix @ points.T for matrix in W]) if W else np.empty((0, len(a), len(points)))

    def __call__(self, directions: Array, steps: Array, points: slice) -> tuple[Array, Array]:
        Wb = self._Wb[:, :, points]
        voices = self._V @ self._a
        scores = np.einsum("d,kdn->kn", self._a, Wb)
        base = voices @ expit(scores)
        stepped = np.zeros(steps.shape)
        for k in range(len(Wb)):
            moved = scores[k] + steps * (directions.T @ Wb[k])
            stepped += expit(moved) * (voices[k] + steps * (directions.T @ self._V[k])[:, None])
        return np.asarray(base), stepped
