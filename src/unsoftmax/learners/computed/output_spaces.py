"""Values V_h of every head from vector answers: differences of plateaus show each head's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.known_values import refuse_few_outputs
from unsoftmax.learners.computed.plateau_line import PlateauLine, find_switches, saturating_scale
from unsoftmax.learners.computed.two_row_queries import Baseline, TwoRowQueries, random_basis
from unsoftmax.outcomes import Unresolved

__all__ = ["read_values"]

_END = 1.56  # just below π/2: tan θ is 93 at the ends, where every score is saturated
_TRIES = 6  # a cap: each try adds a line, and two heads that switch together on one differ on another
# heads on one line, and radians of its narrowest plateau, that need no second line: of two or three, hardly
# any pair switches within one step of the scan, and a single one may be two that cancel
_SURE, _WIDE = (2, 3), 0.15
_PAIRS = 4  # of moderate rows, that tell one head from several
# roundings by which outputs of one head may miss its direction; those of two miss it by thousands
_ACROSS = 30.0
_SPARE = 3  # directions beyond the largest rank, to see that it was reached
_CHUNK = 4  # directions asked at a time
# smallest singular value of all heads' output spaces side by side, from which they take the sum of the values
# apart, at most, and over the errors of these spaces; nearer spaces, as those of heads with nearly equal
# values, multiply errors by its inverse, and a start is off by a hundredth then
_APART, _OVER_ERRORS = 0.03, 100.0
# noises: values nearer than this, as plateaus tell them, leave no start for the scores (at 1e-4, W is off by
# a fifth to all of its size)
_EQUAL = 300.0
_MOST_EQUAL = 1e-3  # of the values: coarse arithmetic has noise in all of them
_MISSED = 0.02  # of the values: what the heads of a line may leave unexplained
_STRAY = 4.0  # median changes: a direction that changes a plateau's jump by more has made a head switch
# of the first row, in units of the narrowest plateau's angle: far for precision, then near
_MOVES = (0.2, 0.06, 0.02)
# the same in units of the first row: near ones switch no head, and errors are the noise over this
_FARTHEST, _FARTHEST_COARSE = 0.03, 0.3


class _Unreadable(Exception):
    """These plateaus do not explain the steps; with shorter moves they may."""


class _HeadMissing(_Unreadable):
    """Only another line may show all heads."""


@dataclass(frozen=True)
class _Plateaus:
    line: PlateauLine
    middles: Array
    noise: float
    gap: float

    @property
    def heads(self) -> int:
        return len(self.middles) - 1

    def jumps(self, directions: Array) -> tuple[Array, Array]:
        """(directions as sent, on the first plateau; jumps (n, H, m) between neighbouring plateaus)."""
        n = len(directions)
        sent, levels = self.line.ask(np.repeat(self.middles, n), np.tile(directions, (len(self.middles), 1)))
        shaped = levels.reshape(len(self.middles), n, -1)
        return sent[:n], np.diff(shaped, axis=0).transpose(1, 0, 2)


def read_values(
    queries: TwoRowQueries, baseline: Baseline, rng: np.random.Generator, limit: float = np.inf
) -> Array:
    """V (H, d, m). One head is known from single rows alone. Raises TooFewOutputs where more heads switch
    than the outputs tell apart.
    """
    scale = saturating_scale(queries, baseline, rng, limit, count=6)
    farthest = _FARTHEST_COARSE if baseline.coarse else _FARTHEST
    lines: list[_Plateaus] = []
    reasons: list[str] = []
    for _ in range(_TRIES):
        lines.append(_scan(queries, baseline, scale, rng))
        while len(lines) < (1 if lines[0].heads in _SURE and lines[0].gap > _WIDE else 2):
            lines.append(_scan(queries, baseline, scale, rng))
        lines.sort(key=lambda line: (-line.heads, -line.gap))
        chosen = lines.pop(0)
        if chosen.heads < 1:
            raise Unresolved("no head switches along any line of asking rows: all scores are constant")
        if chosen.heads == 1:
            if _looks_like_one_head(queries, baseline, rng, limit):
                refuse_few_outputs(1, baseline.v_sum.shape[1])
                return baseline.v_sum[None]
            reasons.append("a line shows one head only, and answers to moderate rows show more")
            continue
        refuse_few_outputs(chosen.heads, baseline.v_sum.shape[1])
        for part in _MOVES:
            try:
                values = _values(chosen, baseline, min(farthest, part * chosen.gap), rng)
                _refuse_equal(values, baseline)
                return values
            except _HeadMissing as reason:
                reasons.append(str(reason))
                break
            except _Unreadable as reason:
                reasons.append(str(reason))
    raise Unresolved(
        "the plateaus of saturated scores do not add up to the values of single heads, as when two heads "
        f"have nearly equal or opposite values ({'; '.join(dict.fromkeys(reasons))})"
    )


def _refuse_equal(values: Array, baseline: Baseline) -> None:
    """Raises Unresolved where two heads have equal or opposite values: their weights do not show apart."""
    H, sizes = len(values), np.linalg.norm(values, axis=(1, 2))
    for h, k in combinations(range(H), 2):
        apart = min(float(np.linalg.norm(values[h] - sign * values[k])) for sign in (1.0, -1.0))
        if apart < min(_EQUAL * baseline.noise, _MOST_EQUAL) * float(max(sizes[h], sizes[k])):
            raise Unresolved(
                f"heads {h + 1} and {k + 1} of {H} have nearly equal or opposite values (up to "
                f"{apart / sizes[h]:.0e}), so no answer shows what each attends to"
            )


def _scan(queries: TwoRowQueries, baseline: Baseline, scale: float, rng: np.random.Generator) -> _Plateaus:
    line = PlateauLine.random(queries, baseline, scale, rng)
    noise = line.noise(rng, count=3)
    tolerance = max(12.0 * noise, 8.0 * baseline.noise * baseline.largest)
    found = find_switches(line, tolerance, points=12)
    edges = np.concatenate([[-_END], np.ravel(found), [_END]])
    widths = edges[1::2] - edges[::2]
    return _Plateaus(line, (edges[1::2] + edges[::2]) / 2, noise, float(widths.min()))


def _looks_like_one_head(
    queries: TwoRowQueries, baseline: Baseline, rng: np.random.Generator, limit: float
) -> bool:
    """With one head all outputs of [a + b; b] move by the same share of aᵀV, whatever its scores."""
    size = min(1.0, limit / (4.0 * float(np.sqrt(queries.width))))
    a, last = size * rng.standard_normal((2, _PAIRS, queries.width))
    last = queries.rounded(last)
    first = queries.rounded(a + last)
    moved = queries.ask(first, last) - baseline.c - last @ baseline.v_sum
    whole = (first - last) @ baseline.v_sum
    share = (moved * whole).sum(axis=1) / np.maximum((whole**2).sum(axis=1), 1e-300)
    across = np.linalg.norm(moved - share[:, None] * whole, axis=1)
    rounding = baseline.noise * (
        np.linalg.norm(whole, axis=1) + np.linalg.norm(last @ baseline.v_sum, axis=1)
    )
    return bool((across < _ACROSS * (rounding + baseline.noise * float(np.linalg.norm(baseline.c)))).all())


def _values(plateaus: _Plateaus, baseline: Baseline, length: float, rng: np.random.Generator) -> Array:
    """Moves a on all plateaus until no head shows a new output direction; V_h then follows from Σ V_h."""
    line, d = plateaus.line, len(plateaus.line.a)
    outputs = baseline.v_sum.shape[1]
    basis = random_basis(rng, d)
    rows, jumps = plateaus.jumps(line.a[None])
    _signed(jumps, rows, baseline)  # two heads that switch together show here, before the dear part
    used, near = 0, False
    while used < d:
        count = min(d - used, _CHUNK)
        sent, new = plateaus.jumps(line.a + length * basis[used : used + count])
        used += count
        rows, jumps = np.concatenate([rows, sent]), np.concatenate([jumps, new])
        kept = _steady(jumps)
        _refuse_switched(kept, len(kept) - 1 if near else 0.6 * len(kept))
        if near:
            continue
        ranks = _ranks(rows[kept], jumps[kept], plateaus.noise)
        if not baseline.coarse and max(ranks) + _SPARE <= kept.sum() - 1 and sum(ranks) <= outputs:
            parts = _signed(jumps[kept], rows[kept], baseline)
            spaces = _output_spaces(parts, ranks)
            size = length * float(np.median(np.linalg.norm(parts, axis=2)))
            least = min(_APART, _OVER_ERRORS * plateaus.noise / size)
            _refuse_missing(spaces, baseline)
            if np.linalg.norm(np.concatenate(spaces), -2) > least:
                return _checked(_from_outputs(spaces, baseline), parts, rows[kept], plateaus.noise)
            near = True  # all rows are needed
            _refuse_switched(kept, len(kept) - 1)
    _refuse_switched(kept, d)
    parts = _signed(jumps[kept], rows[kept], baseline)
    return _checked(_by_rows(parts, rows[kept], baseline), parts, rows[kept], plateaus.noise)


def _refuse_switched(kept: NDArray[np.bool_], least: float) -> None:
    """Raises _Unreadable where fewer rows than these are steady."""
    if kept.sum() < least:
        raise _Unreadable("heads switch while the first row moves")


def _steady(jumps: Array) -> NDArray[np.bool_]:
    """Rows at which every head is where it was at the first row."""
    changes = np.linalg.norm(jumps - jumps[0], axis=2)
    usual = np.median(changes[1:], axis=0)
    return np.asarray((changes <= _STRAY * usual).all(axis=1))


def _ranks(rows: Array, jumps: Array, noise: float) -> list[int]:
    """The rank of every head's jumps, beyond what noise alone would show."""
    limit = 4.0 * noise * (np.sqrt(len(rows)) + 1.0)
    return [int((np.linalg.svd(jumps[:, h], compute_uv=False) > limit).sum()) for h in range(jumps.shape[1])]


def _signed(jumps: Array, rows: Array, baseline: Baseline) -> Array:
    """V_hᵀa for every row: heads that leave at their step have the opposite sign, and all sum to V̄ᵀa."""
    flat = jumps.transpose(1, 0, 2).reshape(jumps.shape[1], -1)
    wanted = (rows @ baseline.v_sum).ravel()
    found = np.linalg.lstsq(flat.T, wanted, rcond=None)[0]
    if np.abs(np.abs(found) - 1.0).max() > 0.3:
        raise _Unreadable("the steps do not sum to the value of a single row")
    return np.asarray(jumps * np.sign(found)[None, :, None])


def _checked(values: Array, parts: Array, rows: Array, noise: float) -> Array:
    """The values, if they give back what was measured: a head that has switched unseen does not."""
    for h, value in enumerate(values):
        missed = np.linalg.norm(rows @ value - parts[:, h], axis=1)
        size = np.linalg.norm(parts[:, h], axis=1)
        if (missed > max(_MISSED * float(np.median(size)), 30.0 * noise)).any():
            raise _Unreadable("a head switches while the first row moves")
    return values


def _output_spaces(parts: Array, ranks: list[int]) -> list[Array]:
    """Orthonormal rows T_h that span the outputs of every head."""
    return [np.linalg.svd(parts[:, h], full_matrices=False)[2][:rank] for h, rank in enumerate(ranks)]


def _refuse_missing(spaces: list[Array], baseline: Baseline) -> None:
    """Raises _HeadMissing where single rows show outputs that no head of this line has: one of them switches
    beyond its ends, or together with another that takes most of it away."""
    outputs = np.linalg.svd(np.concatenate(spaces), full_matrices=False)[2]
    beyond = baseline.v_sum - baseline.v_sum @ outputs.T @ outputs
    if np.linalg.norm(beyond) > _MISSED * np.linalg.norm(baseline.v_sum):
        raise _HeadMissing("single rows show outputs that no step of the line shows")


def _from_outputs(spaces: list[Array], baseline: Baseline) -> Array:
    """Output spaces T_h side by side take Σ V_h apart."""
    inverse = np.linalg.pinv(np.concatenate(spaces))  # (m, Σ ranks)
    found, start = [], 0
    for space in spaces:
        found.append(baseline.v_sum @ inverse[:, start : start + len(space)] @ space)
        start += len(space)
    return np.array(found)


def _by_rows(parts: Array, rows: Array, baseline: Baseline) -> Array:
    """All rows were moved along: V_h by least squares, and what is missing of the sum shared evenly."""
    count, heads, outputs = parts.shape
    found = np.linalg.lstsq(rows, parts.reshape(count, -1), rcond=None)[0]
    values = found.reshape(-1, heads, outputs).swapaxes(0, 1)
    return np.asarray(values + (baseline.v_sum - values.sum(axis=0)) / len(values))
