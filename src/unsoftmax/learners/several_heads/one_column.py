"""Heads over rows of one column: all parameters at once.

One column has no circle of asking rows on which heads could be held apart, but then a head is two or three
numbers. Pairs of rows of many sizes, with copies, are asked once, and the fewest heads that explain them all
are fitted. Readouts are eliminated: with them among the unknowns, fits of close heads do not settle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, Ids, expit
from unsoftmax.learners.several_heads.attempt import Restart
from unsoftmax.learners.several_heads.isolate import Heads
from unsoftmax.meters.several_heads.copied_rows import PATTERNS, SHIFTS
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.solvers.least_squares.many_small_fits import fit_many

__all__ = ["heads_of_one_column"]

_SIZES = 2.0 ** np.arange(-40.0, 41.0)  # of rows that are tried: 24 decades
_EVEN = 0.02  # of the most that scores move answers: a score of a tenth does; shorter rows tell nothing more
_SHORTER, _LONGER = 1.0, 4.0  # octaves around the first size that shows scores: those of weak heads as well
_PAIRS = 96  # for each unknown of a head
_COPIED: NDArray[np.intp] = np.array([0, 1, 3, 5, 12, 14, 16])  # patterns from 1/6 to 6
_LONGEST = max(sum(PATTERNS[k]) for k in _COPIED)
_MOST_HEADS = 5  # whose sigmoids over one number are told apart
# scores of random starts, for rows of the first size, in octaves
_WEAKEST, _STRONGEST = -10.0, 5.0
_CANDIDATES, _FITTED = 320, 24  # random starts that are looked at, and the best of them, which are fitted
_STEPS, _MORE_STEPS, _PROMISING = 40, 400, 4  # of all starts, and of the few that are best then
_EXPLAINED = 32.0  # roundings of an answer, root mean square: right fits left 0.5 to 2
_DEAD = 1e300  # residual of parameters that give no number


@dataclass(frozen=True, eq=False)
class _Sums:
    """Σ_h v_h σ(k_h·z + L) for pairs z (n, columns) with the best v_h; unknown: all k_h."""

    z: Array
    shifts: Array
    answers: Array
    weights: Array
    heads: int = 1

    def linearised(self, unknowns: Array, which: Ids) -> tuple[Array, Array]:
        """Weighted residuals and their slopes (Kaufman's, without the turn of v); all problems are one."""
        with np.errstate(all="ignore"):
            shares, basis, v, residuals = self._projected(unknowns)
            slopes = (shares * (1.0 - shares) * v[:, None, :] * self.weights[:, None])[..., None]
            jacobian = (slopes * self.z[:, None, :]).reshape(len(unknowns), len(self.z), -1)
            jacobian = jacobian - basis @ (basis.transpose(0, 2, 1) @ jacobian)
        return np.nan_to_num(residuals, nan=_DEAD), np.nan_to_num(jacobian)

    def readouts(self, unknowns: Array) -> Array:
        """The best v_h (H,) of one set of unknowns."""
        return np.asarray(self._projected(unknowns[None])[2][0])

    def _projected(self, unknowns: Array) -> tuple[Array, Array, Array, Array]:
        rates = unknowns.reshape(len(unknowns), self.heads, -1)
        shares = expit(np.einsum("qc,phc->pqh", self.z, rates) + self.shifts[:, None])
        seen, found = shares * self.weights[:, None], self.answers * self.weights
        sizes = np.linalg.norm(seen, axis=1, keepdims=True)
        basis, triangle = np.linalg.qr(seen / sizes)
        along = np.einsum("pqh,q->ph", basis, found)
        # a copy of a head would divide by zero; its huge readout makes the start worthless, as it should
        v = np.linalg.solve(triangle + 1e-300 * np.eye(self.heads), along[..., None])[..., 0] / sizes[:, 0]
        return shares, basis, v, np.einsum("pqh,ph->pq", basis, along) - found


def heads_of_one_column(respond: Responses, rng: np.random.Generator) -> Heads:
    """All heads of a model whose rows have one column, or a `Restart`."""
    respond.begin()
    limit = respond.ledger.max_length
    if limit is not None and limit < _LONGEST:
        raise Restart(f"copies need sequences of {_LONGEST} rows, and the target takes {limit}")
    with respond.ledger.phase("copies"):
        sums, scale = _ask(respond, _first_size(respond), rng)
    found, left = np.empty((0, respond.columns)), np.inf
    for heads in range(1, _MOST_HEADS + 1):
        found, left = _best_fit(sums, _starts(replace(sums, heads=heads), found, rng))
        if left <= _EXPLAINED:
            found = _fewest(sums, found)
            v = replace(sums, heads=len(found)).readouts(found)
            return Heads(list(found[:, None] / scale), v[:, None], [None] * len(found), np.zeros(1))
    raise Restart(f"{_MOST_HEADS} heads over one column leave {left:.1g} times the rounding of answers")


def _starts(sums: _Sums, fewer: Array, rng: np.random.Generator) -> Array:
    """Random rates (starts, H, columns) that explain most. Half of them keep those of the best fit with one
    head less."""
    shape = 2 * _CANDIDATES, sums.heads, sums.z.shape[1]
    rates = rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.uniform(_WEAKEST, _STRONGEST, shape)
    rates[:_CANDIDATES, : len(fewer)] = fewer
    size = np.linalg.norm(sums.linearised(rates, _alike(rates))[0], axis=1)
    halves = np.split(np.arange(len(rates)), 2)
    best = np.concatenate([half[np.argsort(size[half])[:_FITTED]] for half in halves])
    return np.asarray(rates[best])


def _best_fit(sums: _Sums, starts: Array) -> tuple[Array, float]:
    """The rates (H, columns) that explain most, and the root mean square of what they leave."""
    heads, columns = starts.shape[1:]
    flat = starts.reshape(len(starts), -1)
    sums = replace(sums, heads=heads)
    fits = fit_many(sums, flat, _alike(flat), good=1.0, iterations=_STEPS)
    if fits.rms.min() > _EXPLAINED:
        flat = fits.unknowns[np.argsort(fits.rms)[:_PROMISING]]
        fits = fit_many(sums, flat, _alike(flat), good=1.0, iterations=_MORE_STEPS)
    place = int(np.argmin(fits.rms))
    return fits.unknowns[place].reshape(heads, columns), float(fits.rms[place])


def _fewest(sums: _Sums, found: Array) -> Array:
    """The same without heads that are not needed: a fit that missed one may have found it as two."""
    while len(found) > 1:
        others = np.stack([np.delete(found, h, axis=0) for h in range(len(found))])
        fewer, left = _best_fit(sums, others)
        if left > _EXPLAINED:
            break
        found = fewer
    return found


def _alike(starts: Array) -> Ids:
    """All starts belong to one problem."""
    return np.zeros(len(starts), dtype=np.int64)


def _first_size(respond: Responses) -> float:
    """The shortest opposite rows whose answers show scores."""
    bound = respond.ledger.input_bound
    sizes = _SIZES if bound is None else bound * _SIZES[_SIZES <= 1.0]
    answers = respond(-2.0 * sizes[:, None], _asking(respond, sizes)) / (-2.0 * sizes)
    moved = np.abs(answers - respond.v[0] / 2.0)
    return float(sizes[np.flatnonzero(moved >= _EVEN * moved.max())[0]])


def _ask(respond: Responses, size: float, rng: np.random.Generator) -> tuple[_Sums, Array]:
    """Random pairs around this size, and the sizes in which their coordinates are counted."""
    n, bound = _PAIRS * (respond.columns + 1), respond.ledger.input_bound
    longest = size * 2.0**_LONGER if bound is None else min(size * 2.0**_LONGER, bound)
    shortest = min(size, longest / 2.0) * 2.0**-_SHORTER
    rows = np.exp(rng.uniform(np.log(shortest), np.log(longest), (2, n)))
    first, x = rows * rng.choice([-1.0, 1.0], (2, n))
    a, B, pattern, answers = first - x, _asking(respond, x), rng.choice(_COPIED, n), np.empty(n)
    for k in np.unique(pattern):
        members = pattern == k
        answers[members] = respond(a[members, None], B[members], first=PATTERNS[k][0], last=PATTERNS[k][1])
    scale = np.array([size * size, size * respond.unit])[: respond.columns]
    weights = np.abs(a) / respond.blur(a[:, None], B)
    return _Sums(a[:, None] * B / scale, SHIFTS[pattern], answers / a, weights), scale


def _asking(respond: Responses, x: Array) -> Array:
    """Rows x as they ask, with the coordinate of a query bias where there is one."""
    return np.column_stack([x, np.full(len(x), respond.unit)]) if respond.biased else x[:, None]
