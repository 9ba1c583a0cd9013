"""What the other heads add while one is measured: saturated ones from signs alone, then predicted from what
is known of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array, expit

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
    """Every other head adds σ(aᵀW_k b)·(a·v_k), with the W_k known by now; a better meter needs no new
    queries.

    W: the others' matrices, K arrays (d, columns). V: (K, d). points: (n, columns). probed: so many points
    come along many directions.
    """

    def __init__(self, a: Array, W: list[Array], V: Array, points: Array, probed: int) -> None:
        self._a, self._W, self._V, self._points = a, W, V, points
        self._probed = (
            np.stack([matrix @ points[:probed].T for matrix in W], axis=2)
            if W
            else np.empty((len(a), probed, 0))
        )
        self._scores = (
            np.stack([points @ (a @ matrix) for matrix in W], axis=1) if W else np.empty((len(points), 0))
        )

    def __call__(self, directions: Array, steps: Array, points: slice) -> tuple[Array, Array]:
        readouts, scores = self._V @ self._a, self._scores[points]
        stepped = expit(scores + steps[:, :, None] * self._forms(directions, points))
        stepped *= readouts + steps[:, :, None] * (directions.T @ self._V.T)[:, None]
        return np.asarray(expit(scores) @ readouts), np.asarray(stepped.sum(axis=2))

    def _forms(self, directions: Array, points: slice) -> Array:
        """directionᵀ W_k b for all (direction, point, head); the order of the products is the cheaper one."""
        k, n = directions.shape[1], len(self._points[points])
        if points.stop <= self._probed.shape[1]:
            return np.asarray(
                (directions.T @ self._probed[:, points].reshape(len(directions), -1)).reshape(
                    k, n, len(self._W)
                )
            )
        return (
            np.stack([(directions.T @ matrix) @ self._points[points].T for matrix in self._W], axis=2)
            if self._W
            else np.empty((k, n, 0))
        )
