"""Back from folds to a plain network Σ u_k relu(a_k·x + b_k) + c without a linear part, with the fewest
neurons found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.networks.canonical_network import CanonicalNetwork
from unsoftmax.models.networks.lattice import signed_combination
from unsoftmax.models.networks.relu_network import ReluNetwork

__all__ = ["PlainNetwork", "plain_network"]

Method = Literal["least squares", "search", "lattice reduction", "two extra neurons"]
_SEARCHED = 18  # free signs of the exhaustive search: 2^18 candidates, checked together
_AGREES = 1e-6  # of the weights: signs that fit leave the errors of recovered weights, others a whole weight


@dataclass(frozen=True)
class PlainNetwork:
    """The network, and how the orientation of its neurons was found."""

    network: ReluNetwork
    method: Method

    @property
    def neurons(self) -> int:
        """Number of neurons."""
        return self.network.neurons


def plain_network(network: ReluNetwork) -> PlainNetwork:
    """A network of the same function without a linear part.

    A fold s|z| is a neuron 2s relu(z) or 2s relu(-z) with a linear rest of ∓s z, so J neurons suffice exactly
    when Σ ±s_j n_j = l for some signs. They come from least squares when the normals are independent, from a
    search while at most 18 signs are free, else from lattice reduction; where no signs are found, relu(z) -
    relu(-z) = z carries the linear rest with two neurons more.

    >>> folded = ReluNetwork([[1.0, 0.0], [1.0, 1.0]], [1.0, -2.0]).canonical()
    >>> plain = plain_network(folded)
    >>> plain.neurons, plain.method, plain.network.linear is None, folded.distance(plain.network) < 1e-12
    (2, 'least squares', True, True)
    """
    folds = network.folds
    found = _orientation(folds)
    if found is not None:
        turn, method = found
        return PlainNetwork(_oriented(folds, turn), method)
    turn = np.ones(folds.count)
    rest = folds.linear - folds.signs @ folds.normals
    base = _oriented(folds, turn)
    A = np.vstack([base.A, rest, -rest])
    b = None if base.b is None else np.concatenate([base.b, [0.0, 0.0]])
    return PlainNetwork(ReluNetwork(A, np.concatenate([base.u, [1.0, -1.0]]), b, base.c), "two extra neurons")


def _oriented(folds: CanonicalNetwork, turn: Array) -> ReluNetwork:
    """Neuron j looks along turn_j·n_j; its linear rest is turn_j s_j n_j, and all of them add up to l."""
    biased = folds.biased
    return ReluNetwork(
        folds.normals * turn[:, None],
        2.0 * folds.signs,
        folds.offsets * turn if biased else None,
        folds.constant - float((folds.signs * turn) @ folds.offsets) if biased else 0.0,
    )


def _orientation(folds: CanonicalNetwork) -> tuple[Array, Method] | None:
    vectors = folds.signs[:, None] * folds.normals
    limit = _AGREES * (float(np.linalg.norm(folds.normals)) + float(np.linalg.norm(folds.linear)))
    J = folds.count
    if J == 0:
        return (np.ones(0), "least squares") if float(np.linalg.norm(folds.linear)) == 0.0 else None
    pivots, rank = _independent_rows(vectors)
    free = [j for j in range(J) if j not in set(pivots)]
    if rank == J:
        real = np.linalg.lstsq(vectors.T, folds.linear, rcond=None)[0]
        turn = np.where(real < 0, -1.0, 1.0)
        return (turn, "least squares") if _fits(vectors, turn, folds.linear, limit) else None
    if len(free) <= _SEARCHED:
        found = _search(vectors, folds.linear, pivots, free)
        return (found, "search") if found is not None and _fits(vectors, found, folds.linear, limit) else None
    reduced = signed_combination(vectors, folds.linear)
    return (
        (reduced, "lattice reduction")
        if reduced is not None and _fits(vectors, reduced, folds.linear, limit)
        else None
    )


def _fits(vectors: Array, turn: Array, linear: Array, limit: float) -> bool:
    return float(np.linalg.norm(turn @ vectors - linear)) <= limit


def _independent_rows(vectors: Array) -> tuple[list[int], int]:
    """A well-conditioned choice of rank-many rows, by pivoted orthogonalisation."""
    from scipy.linalg import qr

    triangle, order = qr(vectors.T / np.linalg.norm(vectors, axis=1), mode="r", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > 1e-9 * diagonal[0]).sum())
    return [int(j) for j in order[:rank]], rank


def _search(vectors: Array, linear: Array, pivots: list[int], free: list[int]) -> Array | None:
    """All signs of the free rows; the pivot rows' coefficients follow, and must be ±1."""
    inverse = np.linalg.pinv(vectors[pivots].T)
    start, step = inverse @ linear, inverse @ vectors[free].T
    best: tuple[float, Array] | None = None
    bits = np.arange(2 ** len(free))
    for block in np.array_split(bits, max(1, len(bits) // 4096)):
        signs = 1.0 - 2.0 * ((block[:, None] >> np.arange(len(free))) & 1)
        rest = start - signs @ step.T
        misfit = np.abs(np.abs(rest) - 1.0).max(axis=1)
        i = int(misfit.argmin())
        if best is None or misfit[i] < best[0]:
            turn = np.empty(len(vectors))
            turn[free], turn[pivots] = signs[i], np.where(rest[i] < 0, -1.0, 1.0)
            best = (float(misfit[i]), turn)
    assert best is not None
    return best[1] if best[0] < 1e-3 else None
