"""How wrong can the parameters of several heads be? Each head is heard alone on fresh rows, where the others are saturated."""

from __future__ import annotations

import numpy as np

from unsoftmax.ledger import VERIFICATION, Ledger
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.oracles import Array

__all__ = ["multi_head_error_bound"]

_PROBES = 12
_POOL = 256
_FACTOR = 6.0  # 12 probes whose root mean square is 6 times below its expectation: about 1e-5 even for errors of rank one
_QUIET = 14.0  # score beyond which another head's error reaches the answer less than a millionth
_BASE = 2.0**16
_FLOOR = 16 * float(np.finfo(float).eps)


def multi_head_error_bound(ledger: Ledger, model: MultiHead, rng: np.random.Generator) -> float | None:
    """A bound on the relative error of every head's W, w0 and v, from about 13 fresh queries a head; None when a head cannot be heard alone.

    For random a and a random b at which head h has a moderate score and all others are saturated, the answer's deviation through the
    sigmoid's slope is aᵀE_h b, whose mean square measures |E_h|. The answers' own rounding is in it, so it is in the bound.
    """
    heads = [head for head in model.heads if head.matrix.norm() > 0 or (head.w0 is not None and head.w0.any())]
    biased = any(head.w0 is not None for head in heads)
    matrices = [np.column_stack([head.W, np.zeros(head.width) if head.w0 is None else head.w0]) if biased else head.W for head in heads]
    batches, slopes, sizes = [], [], []
    for h in range(len(heads)):
        found = _probes(ledger, matrices, heads, h, biased, rng)
        if found is None:
            return None
        batches.append(found[0])
        slopes.append(found[1])
        sizes.append(found[2])
    plain = _saturated(ledger, matrices, model.width, biased, rng) if heads else None
    if heads and plain is None:
        return None
    worst = 0.0
    with ledger.phase(VERIFICATION):
        for h, (batch, slope, size) in enumerate(zip(batches, slopes, sizes, strict=True)):
            forms = (ledger.ask(batch) - model(batch)) / slope / size
            worst = max(worst, _rms(forms) * np.sqrt(matrices[h].size) / float(np.linalg.norm(matrices[h])))
        quietest = min(float(np.linalg.norm(head.v)) for head in model.heads)
        rows = _BASE * _units(rng, model.width)[:, None] if ledger.input_bound is None else ledger.input_bound * _units(rng, model.width)[:, None]
        alone = (ledger.ask(rows) - model(rows)) / np.linalg.norm(rows[:, 0], axis=1)
        values = _rms(alone)
        if plain is not None:
            batch, length = plain
            values = max(values, _rms((ledger.ask(batch) - model(batch)) / length))
        silent = np.zeros((1, 1, model.width))
        constant = float(np.abs(ledger.ask(silent) - model(silent)).max()) / max(quietest, float(np.max(np.abs(model.c))))
    return float(_FACTOR * max(worst, values * np.sqrt(model.width) / quietest) + constant) + _FLOOR


def _probes(
    ledger: Ledger, matrices: list[Array], heads: list[SingleHead], h: int, biased: bool, rng: np.random.Generator
) -> tuple[Array, Array, Array] | None:
    """Sequences in which only head h has a moderate score, the answer's slope in that score, and |a||b|."""
    d, n = matrices[h].shape
    bound = ledger.input_bound
    rows_a, rows_b, slopes, sizes = [], [], [], []
    for _ in range(_PROBES):
        a = rng.standard_normal(d)
        direction = heads[h].v / np.linalg.norm(heads[h].v)
        if abs(a @ direction) < 0.5:
            a += (0.5 if a @ direction >= 0 else -0.5) * direction
        a *= (_BASE if bound is None else bound / 8) / np.linalg.norm(a)
        R = np.array([matrix.T @ a for matrix in matrices])
        lengths = np.linalg.norm(R, axis=1)
        if lengths[h] == 0.0:
            return None
        score = rng.choice([-1.0, 1.0]) * rng.uniform(0.5, 2.0)
        free = rng.standard_normal((_POOL, n))
        free -= np.outer(free @ R[h], R[h]) / lengths[h] ** 2
        free /= np.linalg.norm(free, axis=1)[:, None]
        along = score * R[h] / lengths[h] ** 2
        others = [k for k in range(len(R)) if k != h and lengths[k] > 0]
        reach = np.full(_POOL, 4.0 / lengths[h])
        if others:
            seen = np.abs(free @ R[others].T)
            reach = np.maximum(reach, ((_QUIET + np.abs(R[others] @ along)) / np.where(seen > 0, seen, np.nan)).max(axis=1))
        b = along + free * reach[:, None]
        if biased:
            b = b[np.abs(b[:, -1]) > 0.02 * np.linalg.norm(b, axis=1) / np.sqrt(n)]
        size = np.linalg.norm(b, axis=1)
        if len(b) == 0 or not np.isfinite(size).any():
            return None
        best = b[int(np.nanargmin(size))]
        kappa = best[-1] if biased else 1.0
        asking = best[:-1] / kappa if biased else best
        rows_a.append(kappa * a)
        rows_b.append(asking)
        sizes.append(float(np.linalg.norm(a) * np.linalg.norm(best)))
        slopes.append(kappa * float(a @ heads[h].v) / (2.0 + 2.0 * np.cosh(score)))
    batch = np.stack([np.array(rows_a) + np.array(rows_b), np.array(rows_b)], axis=1)
    if bound is not None and np.linalg.norm(batch, axis=2).max() > bound:
        return None
    return batch, np.array(slopes), np.array(sizes)


def _saturated(ledger: Ledger, matrices: list[Array], d: int, biased: bool, rng: np.random.Generator) -> tuple[Array, Array] | None:
    """Sequences in which every head is on or off, half of them at random, and the size of their first row."""
    n = matrices[0].shape[1]
    bound = ledger.input_bound
    firsts, lasts, lengths = [], [], []
    for a in _units(rng, d) * (_BASE if bound is None else bound / 8):
        R = np.array([matrix.T @ a for matrix in matrices])
        free = rng.standard_normal((_POOL, n))
        free /= np.linalg.norm(free, axis=1)[:, None]
        seen = np.abs(free @ R.T).min(axis=1)
        if biased:
            seen = np.minimum(seen, np.abs(free[:, -1]) * seen.max())
        best = int(seen.argmax())
        if seen[best] == 0.0:
            return None
        b = free[best] * 40.0 / seen[best]
        kappa = b[-1] if biased else 1.0
        firsts.append(kappa * a)
        lasts.append(b[:-1] / kappa if biased else b)
        lengths.append(abs(kappa) * float(np.linalg.norm(a)))
    batch = np.stack([np.array(firsts) + np.array(lasts), np.array(lasts)], axis=1)
    if bound is not None and np.linalg.norm(batch, axis=2).max() > bound:
        return None
    return batch, np.array(lengths)


def _units(rng: np.random.Generator, width: int) -> Array:
    rows = rng.standard_normal((_PROBES, width))
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
