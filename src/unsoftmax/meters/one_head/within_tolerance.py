"""Answers off by up to tau: a as long as allowed, b short, so that the signal a·v dwarfs tau while the score
stays near one."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array, complement, rms
from unsoftmax.ledger import Ledger
from unsoftmax.meters.base import forms_by_projection
from unsoftmax.meters.probes.mirrored_rows import odd_rows, score_interval
from unsoftmax.outcomes import Unresolved

__all__ = ["MeasuredReadout", "ToleranceMeter", "simplex"]

# root mean square of a probe's score: where an error of the answer moves the score least against its size
_SCORE = 0.9
_LARGEST_SCORE = 2.2  # beyond, the share is too flat: ask again with a shorter b
_LOUD, _MIXED = (
    0.05,
    0.6,
)  # smallest part of a that is not carrier, when the carrier is silent and when it is not
_ROUNDS = 12
_PILOTS = 6
_MANY = 12  # probes of a column from which some of them are pilots
_SPREAD = 3.0  # a direction chosen at random meets an error vector within three standard deviations

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class MeasuredReadout:
    """v read with rows of norm R in a random orthonormal basis: x·v is off by about tau/R for every unit x.

    relative: what an answer may be off by besides tau, as a part of its size; only meters that say so take it
    into account.
    """

    v: Array
    c: float
    tau: float
    bound: float
    sharp: float | None = (
        None  # largest error of x·v for a unit x, where v is known better than one reading tells
    )
    relative: float = 0.0

    @property
    def norm(self) -> float:
        """Length of v."""
        return float(np.linalg.norm(self.v))


class ToleranceMeter:
    """Measures aᵀWb and how far off it can be, when every answer may be off by `readout.tau`; no row is
    longer than `readout.bound`.

    A probe is a = R(c·p + s·g): the carrier p is loud (p·v near |v|) and carries the signal, g is what is
    measured. The g's are a simplex, so their sum removes what all probes have in common and their mean
    measures pᵀWb.

    >>> from unsoftmax import SingleHead, WithinTolerance, as_oracle
    >>> head = SingleHead(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.6, 0.8]))
    >>> ledger = Ledger(WithinTolerance(as_oracle(head), 0.05))
    >>> meter = ToleranceMeter(ledger, MeasuredReadout(head.v, 0.0, 0.05, 1e4), np.random.default_rng(0))
    >>> W, error = meter.measure(None, np.eye(2))
    >>> bool((np.linalg.norm(W - head.W, axis=0) <= error).all() and error.max() < 1e-3)
    True
    """

    def __init__(
        self, ledger: Ledger, readout: MeasuredReadout, rng: np.random.Generator, *, repeats: int = 1
    ) -> None:
        self._ledger = ledger
        self._rng = rng
        self._repeats = repeats
        self._v = readout.v
        self._c = readout.c
        self._size = readout.norm
        self._bound = readout.bound * (1.0 - 1e-9)
        self.tau = (
            readout.tau + 8.0 * EPS * np.sqrt(len(readout.v)) * self._bound * self._size
        )  # and the oracle's own arithmetic
        self._sharp = readout.sharp
        self._v_error = self.tau / self._bound if readout.sharp is None else readout.sharp
        self._loudest = readout.v / self._size
        self._heard = self._loudness(self._loudest[None])[0]
        self._typical: float | None = None
        self._row: Array | None = None
        self._null: Array | None = None  # a direction z with vᵀWb = 0 for every b orthogonal to it

    @property
    def width(self) -> int:
        return len(self._v)

    @property
    def facing(self) -> Array | None:
        return None

    def resolution(self) -> float:
        """What one probe leaves open of aᵀWb, for unit a and b of this head."""
        return float(2.5 * self.tau / (self._bound * self._size) * self.typical_score())

    def typical_score(self) -> float:
        """Root mean square of |gᵀWb| over unit vectors, found with a few queries when first called."""
        if self._typical is None:
            self._typical = self._find_typical()
        return self._typical

    def beside(self, direction: Array) -> ToleranceMeter:
        """The same meter for b's orthogonal to a unit vector z, when vᵀWb = 0 for all of them: the carrier
        then adds nothing to a score."""
        other = copy(self)
        other._null = direction
        return other

    def forms(self, A: Array, B: Array) -> Array:
        """aᵀWb for each pair, each from its own carrier and two probes."""
        return forms_by_projection(self, A, B)

    def project(self, basis: Array | None, B: Array, *, rest_is_silent: bool = False) -> Array:
        return self.measure(basis, B, rest_is_silent=rest_is_silent)[0]

    def measure(
        self, basis: Array | None, B: Array, *, rest_is_silent: bool = False, length: float | None = None
    ) -> tuple[Array, Array]:
        """basisᵀWB and, for every column, the largest possible length of its error. See
        `BoundedMeter.measure`."""
        d = self.width
        carrier, inside, silent = self._carrier(basis, B, rest_is_silent)
        rest = complement(carrier) if inside is None else inside
        usual = None if length is None else max(length / np.sqrt(rest.shape[1] + 1), self.typical_score() / 8)
        heard = basis is None and not silent and B.shape[1] == 1
        if heard:
            usual = self._strength_beside(B)
        carried, values, carried_error, errors = self._columns(
            carrier, rest, B, _LOUD if silent else _MIXED, usual
        )
        whole = rest @ values + np.outer(carrier, carried)
        if heard and d > 2:
            return self._aligned(B, whole, np.hypot(carried_error, errors))
        return (whole if basis is None else basis.T @ whole), np.hypot(carried_error, errors)

    def _aligned(self, b: Array, first: Array, error: Array) -> tuple[Array, Array]:
        """A column that the carrier is not silent for, again with a carrier orthogonal to its first
        estimate."""
        column = first[:, 0]
        length = float(np.linalg.norm(column))
        if length > 0.0:
            towards = column / length
            carrier = self._loudest - towards * (towards @ self._loudest)
            loudness = float(np.linalg.norm(carrier))
            if loudness > 0.2 and length > 2.0 * error[0]:
                carrier /= loudness
                rest = complement(carrier)
                usual = length / np.sqrt(self.width)
                carried, values, carried_error, errors = self._columns(carrier, rest, b, 0.25, usual)
                again = np.hypot(carried_error, errors)
                if again[0] < error[0]:
                    return rest @ values + np.outer(carrier, carried), again
        return first, error

    def _strength_beside(self, b: Array) -> float:
        """How strong to expect the probes of a column that the carrier is heard in."""
        carried = 0.0 if self._row is None else float(np.abs(self._row @ b).max())
        return float(max(self.typical_score(), carried * np.sqrt(1.0 - _MIXED**2) / _MIXED))

    def measure_beside(
        self, avoid: Array, b: Array, length: float, only: Array | None = None
    ) -> tuple[Array, float]:
        """The part of Wb that is orthogonal to `avoid`, expected to be of a small `length`, and the length of
        its error.

        With a carrier orthogonal to `avoid` too, b may be as long as a: that is how an estimate of W is
        refined. `only`: this direction alone.
        """
        towards = avoid / np.linalg.norm(avoid)
        taken = towards[:, None] if only is None else np.column_stack([towards, only])
        carrier = self._loudest
        for _ in range(2):  # once is not enough where hardly anything of it is left
            carrier = carrier - taken @ (taken.T @ carrier)
            carrier = carrier / np.linalg.norm(carrier)
        rest = complement(np.column_stack([carrier, towards])) if only is None else only[:, None]
        usual = length / np.sqrt(self.width)
        carried, values, carried_error, errors = self._columns(carrier, rest, b[:, None], _MIXED, usual)
        return rest @ values[:, 0] + (0.0 if only is not None else carrier * carried[0]), float(
            np.hypot(carried_error[0], errors[0])
        )

    def carrier_row(self) -> tuple[Array, float]:
        """z = Wᵀu for u = v/|v|, and the length of its error: one query a coordinate, with a = R·u."""
        basis = np.linalg.qr(self._rng.standard_normal((self.width, self.width)))[0].T
        carried, _, errors, _ = self._columns(self._loudest, np.empty((self.width, 0)), basis.T, 0.0)
        self._row = basis.T @ carried
        return self._row, float(np.linalg.norm(errors))

    def _carrier(
        self, basis: Array | None, B: Array, rest_is_silent: bool
    ) -> tuple[Array, Array | None, bool]:
        """A loud direction p, the directions beside it that are asked for, and whether pᵀWB is known to
        vanish."""
        quiet = self._null is not None and bool(np.abs(self._null @ B).max() < 1e-9)
        if basis is None:
            return self._loudest, None, quiet
        outside = self._loudest - basis @ (basis.T @ self._loudest)
        length = float(np.linalg.norm(outside))
        if quiet or (rest_is_silent and length < 0.2) or not rest_is_silent:
            within = (
                np.linalg.qr(np.column_stack([self._loudest, basis]))[0][:, 1:]
                if length > 1e-9
                else _beside(basis, self._loudest)
            )
            return self._loudest, _beside(within, self._loudest), quiet
        return outside / length, basis, True

    def _columns(
        self, p: Array, N: Array, B: Array, least: float, usual: float | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """pᵀWB (n,), NᵀWB (k, n), and the largest error of each: a number a column, a length a column."""
        n, k = B.shape[1], N.shape[1]
        G = simplex(k, self._rng) if k else np.zeros((1, 0))
        heard = self._heard if p is self._loudest else self._loudness(p[None])[0]
        strength = usual
        if strength is None:
            inflated = np.sqrt(self.width / max(k, 1)) if 0 < k < self.width - 1 else 1.0
            strength = self.typical_score() * inflated
        first = n if n <= 2 or usual is not None else 1 if k else min(_PILOTS, n)
        parts = []
        for block in (slice(0, first), slice(first, n)):
            if block.start == block.stop:
                continue
            part = self._grid(p, heard, G @ N.T, B[:, block].T, strength, least)
            parts.append(part)
            seen = (part[0] - part[0].mean(axis=1, keepdims=True)) / part[2] if k else part[0]
            if first < n and block.start == 0 and float(np.abs(seen).max()) > 0.0:
                strength = max(rms(seen), strength / (8.0 if k else 1.5))
        forms, errors = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
        scale = np.concatenate([np.full(len(x), s) for x, _, s in parts])
        c = np.sqrt(1.0 - scale**2)
        carried, carried_error = forms.mean(axis=1) / c, errors.mean(axis=1) / c
        if k == 0:
            return carried, np.empty((0, n)), carried_error, np.zeros(n)
        values = (forms @ G).T * (k / (k + 1)) / scale
        return carried, values, carried_error, np.sqrt((errors**2).sum(axis=1) * k / (k + 1)) / scale

    def _grid(
        self, p: Array, heard: float, G: Array, B: Array, strength: float, least: float
    ) -> tuple[Array, Array, float]:
        """(c·p + s·g)ᵀWb for every g and b, their errors, and s; saturated probes again with a shorter b."""
        n, k = len(B), len(G)
        product = _SCORE / (self._bound * max(strength, 1e-300))
        s = float(np.clip(np.sqrt(product / self._bound), least, _MIXED)) if least > 0.0 else 0.0
        longest = self._bound / 3
        beta = np.full((n, k), min(product / max(s, 1e-300) if s else product, longest))
        directions = np.sqrt(1.0 - s * s) * p + s * G
        heard_of = np.sqrt(1.0 - s * s) * heard + s * (G @ self._v)
        heard_error = (np.sqrt(1.0 - s * s) + _SPREAD * s) * self._v_error
        asked_of, asked_error = (self._loudness(B), 1.0) if k >= 8 else (B @ self._v, _SPREAD)
        forms, errors = np.zeros((n, k)), np.full((n, k), np.inf)
        todo = np.ones((n, k), dtype=bool)
        pilots = min(_PILOTS, k // 4)
        if k >= _MANY:  # the first few probes of a column say how long its b should be for the others
            todo[:, pilots:] = False
        for round_ in range(_ROUNDS):
            j, i = np.nonzero(todo)
            if not len(j):
                break
            b, a = beta[j, i], self._bound - beta[j, i]
            answers = self._ask(directions, B, i, j, a, b)
            signal_error = self.tau + asked_error * b * self._v_error
            t, dt = score_interval(
                answers - self._c - b * asked_of[j], signal_error, a * heard_of[i], a * heard_error
            )
            error = dt / (a * b)
            better = error < errors[j, i]
            forms[j[better], i[better]], errors[j[better], i[better]] = (t / (a * b))[better], error[better]
            saturated = (np.abs(t) > _LARGEST_SCORE) | ~np.isfinite(dt)
            todo = np.zeros((n, k), dtype=bool)
            todo[j[saturated], i[saturated]] = True
            known = (np.abs(t) < 4.0) & np.isfinite(dt)
            beta[j, i] *= np.where(saturated, np.where(known, 1.0 / np.maximum(np.abs(t), 1.0), 0.12), 1.0)
            if round_ == 0 and k >= _MANY:
                loud = np.sqrt(
                    (_SCORE**2 + (np.minimum(np.abs(t), 4.0) ** 2).reshape(n, pilots).sum(axis=1))
                    / (pilots + 1)
                )
                beta[:, pilots:] = np.minimum(beta[:, pilots:] * (_SCORE / loud)[:, None], longest)
                todo[:, pilots:] = True
        if not np.isfinite(errors).all():
            needed = 40.0 * self.tau / self._size
            longer = f"rows of norm {needed:.2g} or more, or a smaller tolerance, would help"
            hint = (
                longer
                if needed > self._bound
                else "a smaller tolerance would help, if this is one head at all: "
                "no asking row made its scores moderate"
            )
            raise Unresolved(
                f"answers off by {self.tau:.2g} leave nothing of scores asked with rows of norm "
                f"{self._bound:.3g}; {hint}"
            )
        return forms, errors, s

    def _ask(self, directions: Array, B: Array, i: Indices, j: Indices, a: Array, b: Array) -> Array:
        size = self._ledger.batch_size(3)
        answers = []
        for start in range(0, len(i), size):
            part = slice(start, start + size)
            batch = odd_rows(a[part, None] * directions[i[part]], b[part, None] * B[j[part]])
            answers.append(np.mean([self._ledger.ask(batch) for _ in range(self._repeats)], axis=0))
        return np.concatenate(answers)

    def _loudness(self, rows: Array) -> Array:
        """x·v for unit rows x, from one query each of nearly the longest norm; off by at most tau/R."""
        if self._sharp is not None:
            return rows @ self._v
        sizes = self._bound * (1.0 - 1e-3 * self._rng.random(len(rows)))
        answers = np.mean(
            [self._ledger.ask((sizes[:, None] * rows)[:, None]) for _ in range(self._repeats)], axis=0
        )
        return np.asarray((answers - self._c) / sizes)

    def _find_typical(self) -> float:
        """Root mean square of a few random forms, at a size where they are neither faint nor saturated."""
        guess = 1.0
        count = max(1, min(4, self.width - 1))
        for _ in range(60):
            B = np.linalg.qr(self._rng.standard_normal((self.width, count)))[0].T
            beside = complement(self._loudest)[:, :count].T if self.width > 1 else np.zeros((1, 1))
            beta = min(2.0 * _SCORE / (self._bound * guess), self._bound / 3)
            a = self._bound - beta
            G = 0.8 * self._loudest + 0.6 * beside
            answers = self._ask(
                G, B, np.arange(len(B)), np.arange(len(B)), np.full(len(B), a), np.full(len(B), beta)
            )
            t, dt = score_interval(
                answers - self._c - beta * (B @ self._v),
                np.full(len(B), 2.0 * self.tau),
                a * (G @ self._v),
                np.full(len(B), 4.0 * self.tau),
            )
            largest = float(np.abs(t).max())
            if largest > 2.5 or not np.isfinite(dt).all():
                guess *= 3.0 if largest < 4.0 else 16.0
            elif largest < 0.35 and beta < 0.33 * self._bound:
                guess /= float(np.clip(1.2 / max(largest, 1e-9), 1.5, 16.0))
            else:
                return max(rms(t), 0.2) / (a * beta)
        return guess


def simplex(k: int, rng: np.random.Generator) -> Array:
    """k+1 unit vectors in k dimensions whose sum is zero, turned at random.

    >>> G = simplex(3, np.random.default_rng(0))
    >>> bool(np.allclose(G.sum(axis=0), 0) and np.allclose(G @ G.T - np.eye(4) * 4 / 3, -1 / 3))
    True
    """
    corners = np.linalg.svd(np.eye(k + 1) - 1.0 / (k + 1))[0][:, :k] * np.sqrt((k + 1) / k)
    return np.asarray(corners @ np.linalg.qr(rng.standard_normal((k, k)))[0])


def _beside(basis: Array, p: Array) -> Array:
    """An orthonormal basis of the part of span(basis, p) that is orthogonal to p."""
    left, values, _ = np.linalg.svd(basis - np.outer(p, p @ basis), full_matrices=False)
    return np.asarray(left[:, values > 1e-9])
