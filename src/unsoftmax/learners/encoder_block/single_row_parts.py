"""Parts of a block whose heads are not recovered: what single rows, and copies of rows, tell alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.refine_block import parameter_error, refine_block
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors, mean_free_basis
from unsoftmax.learners.encoder_block.value_path import PathAsks, has_skip, value_path
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.models import EncoderBlock
from unsoftmax.outcomes import Unresolved

__all__ = ["block_part", "one_row_parts", "path_parts", "with_one_head"]

_FITS = 1e-9  # largest residual of single rows, over the size of answers
_FRESH = 64  # single rows, or sequences, of the certificate
_PART_LENGTHS = (2, 3, 5, 16)  # lengths from the shortest with a score to one that the fit did not see
_SLOPES, _STEP = 8, 1e-4  # rows and step of slopes: scores move them by the step's square
_COPIES_AGREE = 1e-5  # relative: far above rounding, far below what another weighting of rows would show
_SAFETY = 20.0  # of the difference of two paths from different rows, each off by about as much
_BEST = 1e-9  # of a path from differences of answers
_WORST = 1e-4  # two paths that differ by more tell nothing
_GAUGE = "the sum over all heads; what each of them adds is not separated"


def with_one_head(state: BlockState) -> BlockState:
    """One head that stands for all of them, without scores: single rows see no more."""
    H, r, p = state.values.shape
    path = np.einsum("mhr,hrp->mp", state.outputs[:, :-1].reshape(-1, H, r), state.values)
    queries, keys, values, outputs = head_factors(path[None], np.zeros((1, p, p + 1)), min(path.shape))
    outputs = np.column_stack([outputs, state.outputs[:, -1]])
    return replace(state, queries=queries, keys=keys, values=values, outputs=outputs)


def one_row_parts(
    asks: AsksSequences, shape: BlockShape, state: BlockState, rng: np.random.Generator
) -> Mapping[str, RecoveredPart[Any]]:
    """Everything but the heads, fitted to single rows and held against fresh ones; empty where that fails.

    state: with one head that stands for all of them.
    """
    state, off = refine_block(asks, shape, state, rng, lengths=(1,))
    if off > _FITS:
        return {}
    bound, _ = parameter_error(asks, shape, state, rng, lengths=(1,))
    model = state.model(shape)
    rows = rng.standard_normal((_FRESH, 1, shape.width)) * np.exp(rng.uniform(-1.5, 1.5, (_FRESH, 1, 1)))
    answers = asks(rows)
    scale = float(np.abs(answers).max())
    error = float(np.abs(model(rows) - answers).max())
    if error > _FITS * scale or _copies_off(asks, model, rng) > _COPIES_AGREE:
        return {}
    return _parts_of(model.canonical(), max(bound, EPS), PartCertificate(error, _FRESH, scale))


def block_part(
    asks: AsksSequences, model: EncoderBlock, bound: float, gauge: str, rng: np.random.Generator
) -> Mapping[str, RecoveredPart[Any]]:
    """A whole block that is not all of the target, held against fresh sequences; empty where it fails there.
    gauge: what it leaves open."""
    error, scale = 0.0, 0.0
    for length in _PART_LENGTHS:
        rows = rng.standard_normal((_FRESH // len(_PART_LENGTHS), length, model.width))
        answers = asks(rows)
        error = max(error, float(np.abs(model(rows) - answers).max()))
        scale = max(scale, float(np.abs(answers).max()))
    if error > _FITS * scale:
        return {}
    return {"block": RecoveredPart("block", model, bound, gauge, PartCertificate(error, _FRESH, scale))}


def _copies_off(asks: AsksSequences, model: EncoderBlock, rng: np.random.Generator) -> float:
    """How far the slopes of three copies of a row beside it, where every row gets a quarter of the weight,
    are from those of the model: what the asking row adds by itself shows alone, but not here."""
    b, along = rng.standard_normal((2, _SLOPES, model.width))
    moved = [
        np.concatenate([np.repeat((b + sign * _STEP * along)[:, None], 3, axis=1), b[:, None]], axis=1)
        for sign in (1.0, -1.0)
    ]
    slopes = [answer(moved[0]) - answer(moved[1]) for answer in (asks, model)]
    return float(np.abs(slopes[0] - slopes[1]).max() / np.abs(slopes[0]).max())


def _parts_of(
    model: EncoderBlock, bound: float, certificate: PartCertificate
) -> dict[str, RecoveredPart[Any]]:
    network = (
        "order and reflection of neurons; the gain and bias of the norm before it are in its first layer"
    )
    found = {
        "value-path": (np.asarray(model.attention.v), _GAUGE),
        "network": (
            model.network,
            network if model.second is not None else "order and reflection of neurons",
        ),
    }
    if model.second is not None and model.readout is not None:
        found["readout"] = (model.readout, "none")
    return {
        name: RecoveredPart(name, value, bound, gauge, certificate) for name, (value, gauge) in found.items()
    }


def path_parts(asks: AsksSequences, width: int, rng: np.random.Generator) -> Mapping[str, RecoveredPart[Any]]:
    """The value path through anything that follows the attention, without the mean of its outputs, which a
    LayerNorm hides; empty where derivatives do not agree on one."""
    if not has_skip(asks, width, rng):  # the Jacobian of what follows is read beside the attention
        return {}
    basis = mean_free_basis(width)
    try:
        first, second = (value_path(asks, basis, rng) for _ in range(2))
    except Unresolved:
        return {}
    apart = float(np.linalg.norm(first - second) / np.linalg.norm(first))
    if not apart < _WORST:
        return {}
    alone, copies = PathAsks(asks)(rng, width)
    off = float(np.abs((alone - copies) @ basis @ first - copies).max())
    certificate = PartCertificate(off, 8 * width, float(np.abs(copies).max()))
    value: Array = np.asarray((basis @ (0.5 * (first + second))).T)
    gauge = f"{_GAUGE}; without the mean of its outputs, which a LayerNorm hides"
    part = RecoveredPart("value-path", value, max(_SAFETY * apart, _BEST), gauge, certificate)
    return {"value-path": part}
