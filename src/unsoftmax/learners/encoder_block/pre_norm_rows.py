"""Pre-norm blocks, one row at a time: the value path A, the constant c and both eps, and the network's input
set at will.

A single row x is answered with C·y + network(second(y)), y = x + A·first(x) + c, A = Σ_h V_h; C is the
identity, or a linear readout such as a classifier. Where rows are huge, both norms only see directions: there
C is measured first, then A, then c from how answers approach their limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.norm_eps import norm_eps
from unsoftmax.learners.encoder_block.pre_norm_path import pre_norm_path
from unsoftmax.learners.encoder_block.state import BlockShape
from unsoftmax.outcomes import Unresolved

__all__ = ["PreNormRows", "centre_row", "least_misfit", "read_far_rows", "read_readout", "read_rows"]

_Rows = TypeVar("_Rows")

_HUGE = (1e7, 2e7)  # what else is answered changes by 1e-7 between them: 1e-14 of the readout
_RAYS = 4  # rays are so many that the answers along them are twice the k unknowns, four at least
_ATTEMPTS = 12  # a cap: rays that meet a kink are drawn again
_EPS_RAYS = 6  # two for an eps that is a power of ten, four more where it is not
_NARROW_EPS_FLOOR = 1e-6  # the constant is known to 1e-9 there, and y is as small as √eps
_EPS_FLOOR = 1e-10  # error of the network's answers where y is as small as √eps
_INVISIBLE = 3e-9  # a smaller eps is lost in the rounding of answers to far rows
_SIZES = np.array([3.0, 5.0, 9.0, 16.0, 30.0, 60.0])
_LIMIT_SIZE = 2000.0  # of the norm: constants are 1/2000 of such rows
_TANGENT = 2e-3  # radians, central: 4e-6 of bending; answers to rows of 2000 round by 1e-13 / 0.002
_TANGENT_ROUNDS = 3  # afterwards c moves by less than 1e-6, and so do they
_STARTS = 80  # each finds a tenth to a half of the rows that are left
# of entries, log-uniform: the stream may fold at rows of any size up to what attention adds. Of 60 rows of a
# decoder with biases, 40 starts up to 1 found 53, and as many up to 10 all
_SMALLEST_START, _LARGEST_START = 1e-3, 10.0
_SOLVED = 1e-12  # relative: three digits above float64 rounding
# of answers of size one: rounding leaves 1e-12 to 5e-12, and the constant is off by a hundred times as much
_MISFIT = 2e-11
_GOOD_MISFIT, _GOOD_ATTEMPTS = 1e-8, 3  # a kink between the sizes of a ray leaves more


@dataclass(frozen=True)
class PreNormRows:
    """What single rows tell. path: (d, k), A on seen coordinates. constant: (d,), without mean where norms
    are centred. readout: (m, d), C; None for the identity."""

    shape: BlockShape
    path: Array
    constant: Array
    eps: float
    second_eps: float
    readout: Array | None = None

    def normed(self, rows: Array) -> tuple[Array, Array]:
        """(seen coordinates of the first norm, the size it divides by)."""
        seen = rows @ self.shape.basis
        size = np.sqrt((seen**2).sum(axis=-1, keepdims=True) / self.shape.width + self.eps)
        return seen / size, size

    def stream(self, rows: Array) -> Array:
        """y of single rows."""
        return np.asarray(rows + self.normed(rows)[0] @ self.path.T + self.constant)

    def passed(self, rows: Array) -> Array:
        """What of y is answered beside the network."""
        y = self.stream(rows)
        return y if self.readout is None else np.asarray(y @ self.readout.T)

    def rows_of(self, y: Array, starts: Array) -> tuple[Array, Array]:
        """Rows x with stream(x) = y, by Newton's method with halved steps; and how far each is off."""
        x = starts.copy()
        basis, d = self.shape.basis, self.shape.width
        rest = y - self.stream(x)
        off = np.abs(rest).max(axis=1)
        for _ in range(80):
            todo = np.flatnonzero(off > 4e-16 * d * (1.0 + np.abs(y).max(axis=1)))
            if not len(todo):
                break
            seen, size = self.normed(x[todo])
            shrink = (np.eye(len(basis.T)) - seen[:, :, None] * seen[:, None] / d) / size[:, :, None]
            jacobian = np.eye(d) + self.path @ shrink @ basis.T
            step = np.linalg.solve(jacobian, rest[todo][..., None])[..., 0]
            length, done = np.ones(len(todo)), np.zeros(len(todo), dtype=bool)
            for _ in range(14):
                trial = x[todo] + length[:, None] * step
                left = y[todo] - self.stream(trial)
                new = np.abs(left).max(axis=1)
                better = (new < off[todo] * (1.0 - 0.1 * length)) & ~done
                x[todo[better]], rest[todo[better]], off[todo[better]] = (
                    trial[better],
                    left[better],
                    new[better],
                )
                done |= better
                length = np.where(done, length, 0.4 * length)
                if done.all():
                    break
            if not done.any():
                break
        return x, off

    def all_rows_of(self, y: Array, near: Array, rng: np.random.Generator) -> Array:
        """Rows with stream(x) = y, from one row nearby, else from random ones of many sizes: where A has
        negative eigenvalues the stream folds, and a path from one row does not lead everywhere."""
        x, off = self.rows_of(y, np.repeat(near[None], len(y), axis=0))
        for _ in range(_STARTS):
            todo = np.flatnonzero(off > _SOLVED * (1.0 + np.abs(y).max(axis=1)))
            if not len(todo):
                return x
            sizes = np.exp(rng.uniform(np.log(_SMALLEST_START), np.log(_LARGEST_START), (len(todo), 1)))
            there, left = self.rows_of(y[todo], sizes * rng.standard_normal((len(todo), y.shape[1])))
            better = left < off[todo]
            x[todo[better]], off[todo[better]] = there[better], left[better]
        raise Unresolved("for some inputs of the network no row was found that leads there")

    def far_rows(self, y: Array) -> Array:
        """Rows of large y: the first norm sees nearly y's own direction."""
        return self.rows_of(y, y - self.constant - self.normed(y)[0] @ self.path.T)[0]


def read_rows(
    asks: AsksSequences, shape: BlockShape, readout: Array | None, rng: np.random.Generator
) -> PreNormRows:
    """Path, constant and both eps; about 40 d queries. readout: (m, d), None for the identity."""
    rows, floor = _far_rows(asks, shape, readout, rng)
    return _second_eps(asks, rows, floor, rng)


def read_far_rows(asks: AsksSequences, shape: BlockShape, rng: np.random.Generator) -> PreNormRows:
    """Path, constant and first eps, which need nothing of the second norm's eps."""
    return _far_rows(asks, shape, None, rng)[0]


def _far_rows(
    asks: AsksSequences, shape: BlockShape, readout: Array | None, rng: np.random.Generator
) -> tuple[PreNormRows, float]:
    """Those, and how well the network's answers are known then."""
    path, eps = pre_norm_path(asks, shape, readout, rng)
    rows = PreNormRows(shape, path, np.zeros(shape.width), 1e-5 if eps is None else eps, 1e-5, readout)
    return _constant(asks, rows, eps is None, rng), _EPS_FLOOR if eps is None else _NARROW_EPS_FLOOR


def read_readout(asks: AsksSequences, width: int) -> Array:
    """C (m, d): huge rows of two sizes have the same direction, and all else that is answered stays as it
    is."""
    near, far = asks(np.concatenate([size * np.eye(width) for size in _HUGE])[:, None]).reshape(2, width, -1)
    return np.asarray((far - near).T / (_HUGE[1] - _HUGE[0]))


def _constant(
    asks: AsksSequences, rows: PreNormRows, free_eps: bool, rng: np.random.Generator
) -> PreNormRows:
    """c and eps from rays y = τ·v: answers less y approach a limit, with c's error as the part that falls
    like 1/τ."""
    return least_misfit(
        lambda: _constant_from_rays(asks, rows, free_eps, rng), _MISFIT, "pre-norm", allowed=1e-3
    )


def least_misfit(
    attempt: Callable[[], tuple[_Rows, float]], enough: float, kind: str, *, allowed: float
) -> _Rows:
    """The best of some attempts on fresh rays; one whose misfit is small enough ends them, and after a few
    attempts one without a kink."""
    best: tuple[float, _Rows] | None = None
    for number in range(_ATTEMPTS):
        found, misfit = attempt()
        if best is None or misfit < best[0]:
            best = (misfit, found)
        if best[0] < (enough if number + 1 < _GOOD_ATTEMPTS else max(enough, _GOOD_MISFIT)):
            return best[1]
    assert best is not None
    if best[0] > allowed:
        raise Unresolved(
            f"answers to rows far out do not approach a limit as those of one {kind} layer do; a second "
            "layer, or attention without a norm beside a network with one, would explain that"
        )
    return best[1]


def _constant_from_rays(
    asks: AsksSequences, rows: PreNormRows, free_eps: bool, rng: np.random.Generator
) -> tuple[PreNormRows, float]:
    shape, d = rows.shape, rows.shape.width
    basis, k = shape.basis, shape.basis.shape[1]
    m = d if rows.readout is None else len(rows.readout)
    count = max(_RAYS, int(np.ceil(_RAYS * k / (2 * m))))
    rays = rng.standard_normal((count, k))
    rays *= np.sqrt(d) / np.linalg.norm(rays, axis=1, keepdims=True)
    misfit, tangents = np.inf, np.empty(0)
    for round_ in range(14):
        if round_ < _TANGENT_ROUNDS:
            tangents = _tangents(asks, rows, rays)  # (R, m, k): derivatives of the network on the sphere
        sizes = _SIZES if round_ > 1 else _SIZES * (30.0 if round_ == 0 else 4.0)
        y = (sizes[:, None, None] * rays @ basis.T).reshape(-1, d)
        x = rows.far_rows(y)
        answers = (asks(x[:, None]) - rows.passed(x)).reshape(len(sizes), count, m)
        variance = ((x @ basis) ** 2).sum(axis=1).reshape(len(sizes), count) / d
        columns = k + 1 + 2 * count * m
        design = np.zeros((len(sizes), count, m, columns))
        design[..., :k] = tangents[None] / sizes[:, None, None, None]
        if free_eps:
            drift = -0.5 * rays @ rows.path.T @ basis  # how y moves with eps, times the variance of x
            moves = np.einsum("rmk,rk->rm", tangents, drift)
            design[..., k] = moves[None] / (sizes[:, None] * variance)[..., None]
        eye = np.eye(m)
        for r in range(count):
            start = k + 1 + 2 * r * m
            design[:, r, :, start : start + m] = eye
            design[:, r, :, start + m : start + 2 * m] = eye / sizes[:, None, None] ** 2
        flat, right = design.reshape(-1, columns), answers.reshape(-1)
        weight = np.repeat(1.0 / np.sqrt(1.0 + sizes), count * m)
        scale = np.linalg.norm(flat * weight[:, None], axis=0) + 1e-300
        solved = np.linalg.lstsq(flat * weight[:, None] / scale, right * weight, rcond=1e-13)[0] / scale
        misfit = float(np.abs(flat @ solved - right).max())
        eps = rows.eps
        if free_eps and round_ > 1:
            eps = float(np.clip(eps + solved[k], 0.1 * eps, 10.0 * eps))
        moved = basis @ solved[:k]
        rows = replace(rows, constant=rows.constant + moved, eps=eps)
        if round_ > 3 and float(np.abs(moved).max()) < 1e-12 * np.sqrt(d):
            break
    return rows, misfit


def _tangents(asks: AsksSequences, rows: PreNormRows, rays: Array) -> Array:
    """(R, m, k): how the network's answer changes along the sphere, at the end of each ray."""
    d, basis = rows.shape.width, rows.shape.basis
    found = []
    for v in rays:
        across = np.linalg.svd(v[None])[2][1:]
        turned = np.concatenate(
            [np.cos(_TANGENT) * v + s * np.sin(_TANGENT) * np.sqrt(d) * across for s in (1.0, -1.0)]
        )
        x = rows.far_rows(_LIMIT_SIZE * turned @ basis.T)
        answers = (asks(x[:, None]) - rows.passed(x)).reshape(2, len(across), -1)
        slopes = (answers[0] - answers[1]) / (2.0 * np.sin(_TANGENT) * np.sqrt(d))
        found.append(slopes.T @ across)
    return np.array(found)


def _second_eps(
    asks: AsksSequences, rows: PreNormRows, floor: float, rng: np.random.Generator
) -> PreNormRows:
    """The second eps from rays through y = 0; and the first one, where far rows could not tell it."""
    shape, d = rows.shape, rows.shape.width
    rays = rng.standard_normal((_EPS_RAYS, shape.basis.shape[1]))
    rays *= np.sqrt(d) / np.linalg.norm(rays, axis=1, keepdims=True)
    centre = centre_row(rows, rng)

    def network(seen: Array) -> Array:
        y = seen @ shape.basis.T
        x = rows.all_rows_of(y, centre, rng)
        return asks(x[:, None]) - rows.passed(x)

    scale = float(np.abs(network(rays)).max())
    eps = norm_eps(
        lambda seen: np.column_stack([network(seen), np.full(len(seen), scale)]), rays, floor=floor
    )
    first = 10.0 ** np.round(np.log10(rows.eps))
    eps1 = first if abs(rows.eps / first - 1.0) < 0.02 else rows.eps
    if rows.eps < _INVISIBLE:  # far rows cannot tell it; norms of one block usually share it
        eps1 = eps
    return replace(rows, eps=float(eps1), second_eps=eps)


def centre_row(rows: PreNormRows, rng: np.random.Generator) -> Array:
    """A row whose y is zero, where the second norm sees every direction at once."""
    d = rows.shape.width
    for size in (0.0, *np.geomspace(1e-3, 3.0, 10)):
        starts = size * rng.standard_normal((8, d)) - (rows.constant if size == 0.0 else 0.0)
        x, off = rows.rows_of(np.zeros((8, d)), starts)
        if off.min() < 1e-12:
            return np.asarray(x[off.argmin()])
    raise Unresolved("no row was found whose residual stream is zero")
