"""Models whose parameters are off by a relative error, and how far that moves answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from unsoftmax.arrays import EPS, Array, largest, rms
from unsoftmax.errors import UsageError
from unsoftmax.models import Model
from unsoftmax.models.parameter_groups import ParameterGroup, Role, parameter_groups

__all__ = ["Deviations", "changed", "drawn_change", "scaled", "usual_chances", "warmer"]

_MODELS = 4  # drawn in random directions
_SEQUENCES = 8  # compared, those that deviate most
_STEP = 1e-6  # relative change of the parameters: small beside every score, far above rounding
# the products of two normal numbers in the sequences of a certificate, and the largest of four random models,
# vary by so much
_CHANCE = 4.0
# relative change of what single rows do not show: scores of 1e-9 move answers further than rounding does
_LARGER_STEP = 1e-3
_MOST = 0.9  # of the sequences of a class: one in ten has unit rows, along single columns
_TINY = float(np.finfo(float).tiny)


def usual_chances(model: Model) -> tuple[float, float]:
    """How many times further than a random one an error of the same size may move most of these sequences,
    and a few of them: one that lies in a single column moves unit rows √d times as far."""
    return _CHANCE, float(_CHANCE * np.sqrt(model.width))


class Deviations:
    """The relative errors of all parameters that would usually move answers as far as fresh ones deviate.

    What rounding of a large constant explains is not in the deviations, so neither a constant nor long rows
    whose scores are saturated excuse any.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._worst: list[tuple[float, float]] = []
        self._by_length: dict[str, list[Array]] = {}
        self._alone = 0.0  # what single rows need at most
        self._beyond_alone: dict[str, list[tuple[Array, Array]]] = {}

    def see(self, batch: Array, unexplained: Array, ratios: Array, length: str) -> None:
        """unexplained: the deviations beyond rounding. ratios: the same against what a sequence could show.
        length: the class of lengths to which this batch belongs."""
        needed = np.zeros(len(batch))
        seen = np.flatnonzero(ratios > 0.0)
        if len(seen):
            moved = self._moved(batch[seen], self._others, _STEP)
            needed[seen] = _STEP * unexplained[seen] / moved
            if batch.shape[1] == 1:
                self._alone = max(self._alone, float(needed.max()))
            else:
                excused = usual_chances(self.model)[1] * self._alone * moved / _STEP
                left = np.zeros(len(batch))
                left[seen] = np.maximum(unexplained[seen] - excused, 0.0)
                self._see_beyond_alone(batch, left, length)
        self._by_length.setdefault(length, []).append(needed)
        self._worst += zip(ratios[seen].tolist(), needed[seen].tolist(), strict=True)
        self._worst = sorted(self._worst)[-_SEQUENCES:]

    @property
    def worst(self) -> float:
        """What the sequence needs that needs most, of the few that deviate most against what they could
        show."""
        return max((needed for _, needed in self._worst), default=0.0)

    @property
    def usual(self) -> dict[str, float]:
        """What the sequences of each class of lengths need, root mean square. A tenth of them is left out: an
        error that lies in a single column moves a few far, but not so many."""
        needed = {length: np.sort(np.concatenate(parts)) for length, parts in self._by_length.items()}
        return {length: rms(each[: int(np.ceil(_MOST * len(each)))]) for length, each in needed.items()}

    @property
    def hidden_alone(self) -> float:
        """The relative error of what single rows do not show (scores, and how heads share their readout) that
        the class of lengths needs that needs most. What single rows do show is known from them: it does not
        excuse what sequences deviate whose scores are faint."""
        needed = (
            _needed_together(parts, sum(map(len, self._by_length[length])))
            for length, parts in self._beyond_alone.items()
        )
        return max(needed, default=0.0)

    def _see_beyond_alone(self, batch: Array, left: Array, length: str) -> None:
        """left: what the error that single rows show leaves unexplained."""
        if not left.any() or not self._hidden:
            return
        size = np.maximum(self.model.sensitivity(batch), _TINY)
        moved = self._moved(batch, self._hidden, _LARGER_STEP)
        self._beyond_alone.setdefault(length, []).append((left / size, moved / size))

    def _moved(self, batch: Array, others: list[Model], step: float) -> Array:
        """How far models that are off by a step, in random directions, move these answers; no less than
        rounding."""
        value = self.model(batch)
        moved = np.max([largest(other(batch) - value) for other in others], axis=0)
        return np.asarray(moved + 8.0 * EPS * largest(value) + _TINY)

    @cached_property
    def _others(self) -> list[Model]:
        rng = np.random.default_rng(0)  # nothing is asked
        groups = parameter_groups(self.model)
        return [changed(self.model, groups, _STEP, rng) for _ in range(_MODELS)]

    @cached_property
    def _hidden(self) -> list[Model]:
        rng = np.random.default_rng(0)  # nothing is asked
        groups = [group for group in parameter_groups(self.model) if group.in_scores]
        return [_changed_unseen_alone(self.model, groups, rng) for _ in range(_MODELS)] if groups else []


def _needed_together(parts: list[tuple[Array, Array]], n: int) -> float:
    """What the sequences of a class need together, without the tenth that deviates most: some of them are
    saturated, where scores move nothing. parts: the batches in which any deviates; n: all sequences of the
    class."""
    deviations, moved = (np.concatenate(each) for each in zip(*parts, strict=True))
    kept = np.argsort(deviations)[: max(0, len(deviations) - n + int(np.ceil(_MOST * n)))]
    return _LARGER_STEP * rms(deviations[kept]) / rms(moved[kept]) if len(kept) else 0.0


def _changed_unseen_alone(model: Model, scores: list[ParameterGroup], rng: np.random.Generator) -> Model:
    """The model with its scores off by a step, and its heads' readouts so that their sum stays."""
    tensors = model.tensors()
    readouts = [group for group in parameter_groups(model) if group.role is Role.VALUES]
    wrong = [group.off(tensors, _LARGER_STEP, rng) for group in readouts]
    off = {name: array - tensors[name] for each in wrong for name, array in each.items()}
    mean = sum(off.values()) / len(off) if len({each.shape for each in off.values()}) == 1 else None
    arrays = {} if mean is None else {name: tensors[name] + each - mean for name, each in off.items()}
    for group in scores:
        arrays |= group.off(tensors, _LARGER_STEP, rng)
    return type(model).from_tensors(tensors | arrays)


def changed(model: Model, groups: list[ParameterGroup], size: float, rng: np.random.Generator) -> Model:
    """The model with these groups off by the relative error `size`, in a random direction."""
    return _with_arrays(model, _off(model, groups, size, rng))


def drawn_change(
    model: Model, groups: list[ParameterGroup], size: float, rng: np.random.Generator
) -> Callable[[], Model]:
    """The same, drawn now and made into a model at every call: until then only what differs is held."""
    return partial(_with_arrays, model, _off(model, groups, size, rng))


def _off(
    model: Model, groups: list[ParameterGroup], size: float, rng: np.random.Generator
) -> dict[str, Array]:
    """The arrays of these groups, off by the relative error `size`."""
    tensors = model.tensors()
    arrays: dict[str, Array] = {}
    for group in groups:
        arrays |= group.off(tensors, size, rng)
    return arrays


def _with_arrays(model: Model, arrays: dict[str, Array]) -> Model:
    """The model with these arrays in place of its own."""
    try:
        return type(model).from_tensors(model.tensors() | arrays)
    except UsageError:  # no such model; it tells nothing
        return model


def scaled(model: Model, group: ParameterGroup, factor: float) -> Model:
    """The model with this group larger or smaller by a factor."""
    tensors = model.tensors()
    return type(model).from_tensors(tensors | group.scaled(tensors, factor))


def warmer(model: Model, group: ParameterGroup, factor: float) -> Model:
    """The model with the scores of this group at another temperature."""
    tensors = model.tensors()
    return type(model).from_tensors(tensors | group.warmer(tensors, factor))
