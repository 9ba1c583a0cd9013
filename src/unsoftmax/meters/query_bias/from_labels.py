"""z = Wb + w0 from labels alone: [b - a; b] with a·v = 2 b·v is labelled by the sign of aᵀz, whatever else a
is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, complement
from unsoftmax.meters.one_head.labels import Labeller
from unsoftmax.meters.one_head.sign_change import rows_facing
from unsoftmax.meters.probes.asking import in_parts
from unsoftmax.meters.probes.bisection import Bisection
from unsoftmax.meters.probes.ladder import climb
from unsoftmax.outcomes import Unresolved

__all__ = ["LabelVectors"]

_STEEPEST = float(np.arctan(30.0))  # of a against v: beyond, a·v hardly steers the length of a
_BITS = 28  # of an angle; about 20 of them survive the solution for z
_OCTAVES = 24.0  # how many times longer or shorter than b the part along z may be
_AT = 0.25  # score at which the length of z is read
_LADDER = 120  # looks, in steps of 2: more than float64 has binades on either side of one
_TOO_MANY, _TOO_FEW = 0.6, 0.2  # parts of scores beyond ±1 at which rows are too long, and too short
_PAIRS = 16  # the part of them beyond ±1 has then a standard deviation of at most 0.13


class LabelVectors:
    """Measures z at asking rows to about 20 bits: its direction from signs, its length from one score. v has
    length one.

    >>> from unsoftmax import Labels, Ledger, SingleHead, as_oracle
    >>> head = SingleHead(np.eye(3), np.array([0.6, 0.8, 0.0]), np.array([0.5, 1.0, 1.0]))
    >>> vectors = LabelVectors(Labeller(Ledger(Labels(as_oracle(head)))), head.v, np.random.default_rng(0))
    >>> b = np.array([[1.0, 1.0, 1.0]])
    >>> bool(np.abs(vectors.measure(b) - (b @ head.W.T + head.w0)).max() < 1e-5)
    True
    """

    def __init__(
        self, labeller: Labeller, v: Array, rng: np.random.Generator, bound: float | None = None
    ) -> None:
        self._labeller = labeller
        self._v = v
        self._rng = rng
        self._bound = np.inf if bound is None else bound * (1.0 - 1e-9)

    def usual_length(self) -> float:
        """A length of asking rows at which a fair part of scores lies beyond ±1, within the bound."""
        d = len(self._v)
        longest = 0.9 * self._bound / (1.0 + 2.0 * np.tan(_STEEPEST) / np.sqrt(d))

        def look(length: float) -> float:
            B, P = (np.sqrt(d) * rows_facing(self._v, _PAIRS, self._rng) for _ in range(2))
            B *= length / np.sqrt(d)
            sides = [
                self._labels(B, (B @ self._v)[:, None] * (1.0 + np.exp(side)) * P) for side in (1.0, -1.0)
            ]
            beyond = float(np.mean(sides[0] | ~sides[1]))
            return 0.5 if beyond > _TOO_MANY else 2.0 if beyond < _TOO_FEW else 1.0

        return climb(look, 1.0, longest, tries=_LADDER, until_turn=True)

    def measure(self, B: Array) -> Array:
        """z at the rows of B (n, d), all of which see v; d bisections a row."""
        towards = self._directions(B)
        return np.asarray(towards * self._lengths(B, towards)[:, None])

    def _directions(self, B: Array) -> Array:
        """Unit vectors along z: for every g across v, the angle at which v cos + g sin has score zero."""
        n, d = B.shape
        basis = complement(self._v)
        G = basis @ np.linalg.qr(self._rng.standard_normal((d - 1, d - 1)))[0]
        rows = np.repeat(np.arange(n), d - 1)
        across = np.tile(G.T, (n, 1))
        angles, signs, found = self._zero_angles(B[rows], across)
        strongest = np.abs(angles + np.where(found, 0.0, np.inf)).reshape(n, d - 1).argmin(axis=1)
        if not found.reshape(n, d - 1).any(axis=1).all():
            raise _all_along_v()
        missing = np.flatnonzero(~found)
        # index of the direction with the largest score, for every row
        lead = rows * (d - 1) + strongest[rows]
        if len(missing):  # hardly any score: together with the strongest one they have
            across[missing] = (across[missing] + across[lead[missing]]) / np.sqrt(2.0)
            angles[missing], signs[missing], found[missing] = self._zero_angles(
                B[rows[missing]], across[missing]
            )
        if not found.all():
            raise _all_along_v()
        equations = np.cos(angles)[:, None] * self._v + np.sin(angles)[:, None] * across
        towards = np.linalg.svd(equations.reshape(n, d - 1, d))[2][:, -1]
        steepest = (
            np.cos(_STEEPEST) * self._v + np.sin(_STEEPEST) * across[np.arange(n) * (d - 1) + strongest]
        )
        right = np.sign(np.einsum("nd,nd->n", steepest, towards)) == signs[np.arange(n) * (d - 1) + strongest]
        return np.asarray(np.where(right, 1.0, -1.0)[:, None] * towards)

    def _zero_angles(self, B: Array, across: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The angles, the signs of the scores at the steepest one, and where there is such an angle at
        all."""

        def positive(angles: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
            asked = B[which] @ self._v
            P = self._v + np.tan(angles)[:, None] * across[which]
            return np.asarray(self._labels(B[which], 2.0 * asked[:, None] * P) == (asked > 0.0))

        everyone = np.arange(len(B))
        last, first = (positive(np.full(len(B), sign * _STEEPEST), everyone) for sign in (1.0, -1.0))
        angles = Bisection(_BITS).locate(
            lambda points, which: positive(points, which) == first[which], len(B), _STEEPEST
        )[0]
        return angles, np.where(last, 1.0, -1.0), last != first

    def _lengths(self, B: Array, towards: Array) -> Array:
        """|z|: how long the part of a along z must be for a certain score, beside a carrier without one."""
        carriers = self._v - towards * (towards @ self._v)[:, None]
        p_v = carriers @ self._v
        asked = B @ self._v
        usual = np.linalg.norm(B, axis=1)

        def rows(octaves: Array, which: NDArray[np.intp]) -> tuple[Array, NDArray[np.bool_]]:
            part = usual[which] * 2.0**octaves
            sent = (1.0 + np.exp(_AT)) * asked[which]
            A = ((sent - part * (towards[which] @ self._v)) / p_v[which])[:, None] * carriers[which] + part[
                :, None
            ] * towards[which]
            return A, np.linalg.norm(A, axis=1) <= self._bound - usual[which]

        def short(octaves: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
            A, fits = rows(octaves, which)
            answers = np.zeros(len(which), dtype=bool)
            if fits.any():
                answers[fits] = ~self._labels(B[which[fits]], A[fits])
            return answers

        octaves = Bisection(_BITS + 4).locate(short, len(B), _OCTAVES)[0]
        everyone = np.arange(len(B))
        if float(np.abs(octaves).max()) > 0.99 * _OCTAVES or not rows(octaves + 1e-3, everyone)[1].all():
            raise Unresolved(
                "labels do not show how large the scores of an asking row are; longer rows (input_bound) "
                "would help"
            )
        return np.asarray(_AT / (usual * 2.0**octaves))

    def _labels(self, B: Array, A: Array) -> NDArray[np.bool_]:
        """Whether aᵀz is above log(a·v/b·v - 1), for every pair; b·v may have either sign."""
        signs = np.sign(B @ self._v) > 0.0

        def ask(part: slice) -> NDArray[np.bool_]:
            return self._labeller(np.stack([B[part] - A[part], B[part]], axis=1))

        return np.asarray(in_parts(ask, len(B), self._labeller.ledger.batch_size(2)) == signs)


def _all_along_v() -> Unresolved:
    return Unresolved(
        "labels show no direction across v with a score at an asking row; another seed or longer rows may "
        "help"
    )
