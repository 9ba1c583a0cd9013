"""Rough low-rank fits of measurements a_kᵀ W b_k that may be wrong a little: least squares with a price on
the nuclear norm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["shrunk_starts"]

_STEPS = 40  # a price: a rough fit is enough, descents go on from it
_HALVINGS = 12  # prices, down to 1/4096 of the one at which nothing is left


def shrunk_starts(A: Array, B: Array, t: Array, rank: int) -> Iterator[tuple[Array, Array]]:
    """Factors of the given rank, from a falling price: first where the rank is just reached, then where it is
    passed, then at the end.

    Unlike moments Σ t_k a_k b_kᵀ they need no a's and b's that are independent of each other.

    >>> rng = np.random.default_rng(0)
    >>> W, A, B = np.outer(np.arange(6), np.ones(6)), rng.standard_normal((30, 6)), rng.standard_normal((30,
    ...     6))
    >>> L, R = list(shrunk_starts(A, B, np.einsum("kd,kd->k", A @ W, B), 1))[-1]
    >>> bool(np.linalg.norm(L @ R.T - W) < 0.2 * np.linalg.norm(W))
    True
    """
    d = A.shape[1]
    steepest = float(np.linalg.eigvalsh((A @ A.T) * (B @ B.T))[-1]) if len(t) else 0.0
    if steepest <= 0.0 or rank == 0:
        return
    W = before = np.zeros((d, d))
    price = float(np.linalg.norm((A * t[:, None]).T @ B, 2))
    wanted = [rank, 2 * rank + 1]
    for halving in range(_HALVINGS):
        price *= 0.5
        momentum = 1.0
        for _ in range(_STEPS):
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = W + (momentum - 1.0) / following * (W - before)
            miss = np.einsum("kd,kd->k", A @ ahead, B) - t
            left, values, right = np.linalg.svd(ahead - (A * miss[:, None]).T @ B / steepest)
            values = np.maximum(values - price / steepest, 0.0)
            before, W, momentum = W, (left * values) @ right, following
        reached = int(np.count_nonzero(values > 1e-3 * values[0])) if values[0] > 0.0 else 0
        if halving == _HALVINGS - 1 or (wanted and reached >= wanted[0]):
            wanted = wanted[1:]
            root = np.sqrt(values[:rank])
            yield left[:, :rank] * root, right[:rank].T * root
