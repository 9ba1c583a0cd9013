"""A matrix of unknown rank on given right points: columns one by one, each begun with a few coordinates that
show whether it is new.

A generator asks and is sent measurements, so that many matrices can be solved side by side in common batches.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["Request", "explore", "reassemble"]

_LEAD = 3  # coordinates beyond the number of columns that make a rank test
_REPAIRS = 2  # columns that may be asked in full to know the span better
_WORST_GAIN = 60.0  # how much worse than a well spread set of columns it may be known
_ALWAYS = 48  # up to here every column is tested, then every eighth, because a test costs k³


@dataclass(frozen=True)
class Request:
    """directionsᵀ W P[:, points], the base direction always included as the first row of what comes back.

    first: the place of the first direction in the basis `left`; 0 when the directions lie in the span that
    was found. sizes: how large the entries of each direction's row were on the points before, once that is
    known.
    """

    directions: Array
    points: slice
    first: int = 0
    sizes: Array | None = None


def explore(left: Array, n: int, tolerance: float) -> Generator[Request, Array, None]:
    """Asks what is needed to know W on n points: full columns until one adds nothing, then only their span.

    left: orthonormal (d, d), its first column the base direction, which every answer includes. Sends back are
    (k + 1, columns).
    """
    d = left.shape[0]
    columns: list[Array] = []
    while len(columns) < n:
        k = len(columns)
        lead = k + _LEAD
        point = slice(k, k + 1)
        if k == 0 or lead >= d or (k > _ALWAYS and k % 8):
            columns.append((yield Request(left[:, 1:], point, 1))[:, 0])
            continue
        start = (yield Request(left[:, 1:lead], point, 1))[:, 0]
        if _nothing_new([column[:lead] for column in columns], start, tolerance):
            C = left @ np.column_stack(columns)
            directions = _inside(_span(C, tolerance), left[:, 0])
            answer = yield Request(
                directions, slice(k, n), sizes=np.sqrt(np.mean((directions.T @ C) ** 2, axis=1))
            )
            for _ in range(_REPAIRS):
                missed = _badly_spanned(C, _along(left[:, 0], directions, _span(C, tolerance), answer))
                if missed is None:
                    return
                C = np.column_stack(
                    [C, left @ (yield Request(left[:, 1:], slice(k + missed, k + missed + 1), 1))[:, 0]]
                )
            return
        rest = yield Request(left[:, lead:], point, lead)
        columns.append(np.concatenate([start, rest[1:, 0]]))


def reassemble(
    left: Array, requests: list[Request], answers: list[Array], tolerance: float
) -> tuple[Array, int | None]:
    """(C, rank): C (d, n) = W on all points, from everything that `explore` asked; rank None when all columns
    were full."""
    d = left.shape[0]
    full: dict[int, Array] = {}
    inside: tuple[Request, Array] | None = None
    for request, answer in zip(requests, answers, strict=True):
        k = request.points.start
        if request.first == 0:
            inside = (request, answer)
        else:
            full[k] = answer[:, 0] if request.first == 1 else np.concatenate([full[k], answer[1:, 0]])
    found = [k for k in sorted(full) if len(full[k]) == d]
    C = left @ np.column_stack([full[k] for k in found])
    if inside is None:
        return C, None
    span = _span(C, tolerance)
    request, answer = inside
    rest = span @ _along(left[:, 0], request.directions, span, answer)
    known = C[:, [k < request.points.start for k in found]]
    return np.column_stack([span @ (span.T @ known), rest]), span.shape[1]


def _along(base: Array, directions: Array, span: Array, answer: Array) -> Array:
    """Coefficients in the span of columns that were measured along the base direction and some others."""
    return np.asarray(np.linalg.lstsq(np.vstack([base, directions.T]) @ span, answer, rcond=None)[0])


def _badly_spanned(C: Array, coefficients: Array) -> int | None:
    """The column most worth knowing in full: a direction of the span that the full columns hardly show, and
    others do.

    What is known of such a direction is as wrong as it is faint in C, so it spoils all columns that have more
    of it.
    """
    values = np.linalg.svd(C / np.linalg.norm(C, axis=0), compute_uv=False)[: len(coefficients)]
    shares = np.abs(coefficients) / np.linalg.norm(coefficients, axis=0)
    gain = np.sqrt(np.mean(shares**2, axis=1)) / values
    worst = int(gain.argmax())
    return int(shares[worst].argmax()) if gain[worst] > _WORST_GAIN / np.sqrt(C.shape[1]) else None


def _nothing_new(columns: list[Array], column: Array, tolerance: float) -> bool:
    parts = np.column_stack([*columns, column])
    sizes = np.linalg.norm(parts, axis=0)
    if sizes[-1] == 0.0:
        return True
    values = np.linalg.svd(parts / np.where(sizes > 0, sizes, 1.0), compute_uv=False)
    return bool(values[-1] < tolerance * values[0])


def _span(columns: Array, tolerance: float) -> Array:
    left, values, _ = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), full_matrices=False)
    return np.asarray(left[:, values > tolerance * values[0]])


def _inside(span: Array, base: Array) -> Array:
    """Directions that complete the base direction's part to the whole span."""
    seen = span.T @ base
    r = span.shape[1]
    if r == 1:
        return np.empty((len(base), 0))
    turn = np.linalg.svd(seen[None])[2]  # rows: the seen part first, then its complement
    return np.asfortranarray(span @ turn[1:].T)
