"""Value path and constant of a decoder without rotary positions, from single rows and copies of one.

h = y + M(y/|y|), y = s + A·norm(s) + c, s a row with its position. Of h the direction is seen, n. Copies of
one row s get equal weights. So with N the derivative of n by h and G that of h by y, the derivative of n by a
single row is N·G·(1 + A·J), J that of the norm; three quarters of N·G·A·J is that by three copies beside it.
G·y = y + w/|y|²·eps, because M sees a direction.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows
from unsoftmax.learners.encoder_block.state import BlockShape
from unsoftmax.meters.language_model.differences import jacobian
from unsoftmax.meters.language_model.last_stream import LastStream
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models.parts import GELU

__all__ = ["COPIES", "read_plain_rows"]

COPIES = 4  # rows of a prompt of copies, the last one included
_PATH_ROWS, _PATH_SIZE = 4, 3.0  # one row determines the path, the others average; norms of _FIRST_SIZE
_STEP = 4e-3  # of a row's size: what differences leave out, and rounding over the step, are below 1e-9
_RAYS = 3  # where there are k answers one ray determines the k unknowns; the others average
# sizes of y on every ray: two tell c from w, which falls with the square; beyond, lengths are known worse
_RAY_SIZES = (2.0, 5.0)
_FIRST_SIZE = 3.0  # of the norm: a first constant, which the sizes of _RAY_SIZES refine


def read_plain_rows(stream: LastStream, positions: Array, rng: np.random.Generator) -> PreNormRows:
    """positions (COPIES, k): of the first rows. A is good to 1e-8, c to 1e-6; about 72·k queries.

    Both eps are those of the final norm, as in every configuration of `transformers`; fits correct them.
    """
    k = stream.state.width
    shape = BlockShape(True, False, GELU, k)  # the activation is not used here
    rows = PreNormRows(shape, np.zeros((k, k)), np.zeros(k), stream.eps, stream.eps)
    rows = replace(rows, path=_value_path(stream, rows, positions, rng))
    v = unit_rows(rng, _PATH_ROWS, k)
    rows = _constant(stream, rows, positions[0], v, (_FIRST_SIZE,))
    return _constant(stream, rows, positions[0], v[:_RAYS], _RAY_SIZES)


def _norm_slopes(rows: PreNormRows, s: Array) -> Array:
    """J (k, k) at s."""
    k = len(s)
    square = float((s * s).mean()) + rows.eps
    return np.asarray((np.eye(k) - np.outer(s, s) / (k * square)) / np.sqrt(square))


def _alone(stream: LastStream, position: Array, s: Array) -> Array:
    """Derivative of the state of a single row."""
    step = _STEP * float(np.sqrt((s * s).mean()))
    return jacobian(lambda z: stream.state((z - position)[:, None]), s, step)


def _value_path(stream: LastStream, rows: PreNormRows, positions: Array, rng: np.random.Generator) -> Array:
    k = stream.state.width
    normal, right = np.zeros((k * k, k * k)), np.zeros((k, k))
    for b in _PATH_SIZE * unit_rows(rng, _PATH_ROWS, k):

        def beside(z: Array, b: Array = b) -> Array:
            last = np.broadcast_to(b, (len(z), 1, k))
            return stream.state(
                np.concatenate([np.repeat(z[:, None], COPIES - 1, axis=1), last], axis=1) - positions
            )

        copies = jacobian(beside, b, _STEP * _PATH_SIZE) * COPIES / (COPIES - 1)
        seen = _alone(stream, positions[0], b) - copies  # N·G
        slopes = _norm_slopes(rows, b)
        normal += np.kron(seen.T @ seen, slopes @ slopes.T)
        right += seen.T @ copies @ slopes.T
    return np.asarray(np.linalg.solve(normal, right.ravel()).reshape(k, k))


def _constant(
    stream: LastStream, rows: PreNormRows, position: Array, rays: Array, sizes: tuple[float, ...]
) -> PreNormRows:
    """c corrected, from N·G·y = N·(y + w/|y|²) at y = size·ray; w is solved for where a ray has several
    sizes, and so is the factor that the final eps leaves open in all lengths."""
    k = stream.state.width
    columns = k + 1 + (len(rays) * k if len(sizes) > 1 else 0)
    designs, rights = [], []
    for number, ray in enumerate(rays):
        for size in sizes:
            y = size * ray
            s = rows.far_rows(y[None])[0]
            slopes = np.eye(k) + rows.path @ _norm_slopes(rows, s)
            through = _alone(stream, position, s) @ np.linalg.inv(slopes)  # N·G
            seen = stream.state((s - position)[None, None])[0]
            short = 1.0 - float((seen * seen).mean())
            final = (np.eye(k) - np.outer(seen, seen) / k) * np.sqrt(short / stream.eps)  # N
            design = np.zeros((k, columns))
            design[:, :k], design[:, k] = through - final, -final @ y
            if len(sizes) > 1:
                design[:, k + 1 + number * k :][:, :k] = -final / size**2
            designs.append(size**2 * design)
            rights.append(size**2 * (final @ y - through @ y))
    found = np.linalg.lstsq(np.concatenate(designs), np.concatenate(rights), rcond=1e-12)[0]
    return replace(rows, constant=rows.constant + found[:k])
