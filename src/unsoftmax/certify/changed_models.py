"""Models whose parameters are off by a relative error, and how far that moves answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from unsoftmax.arrays import EPS, Array, largest, rms
from unsoftmax.errors import UsageError
from unsoftmax.models import Model

__all__ = ["Deviations", "changed", "group_name", "groups", "has_size", "scaled", "usual_chances"]

_MODELS = 4  # drawn in random directions
_SEQUENCES = 8  # compared, those that deviate most
_STEP = 1e-6  # relative change of the parameters: small beside every score, far above rounding
# the products of two normal numbers in the sequences of a certificate, and the largest of four random models,
# vary by so much
_CHANCE = 4.0
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

    def see(self, batch: Array, unexplained: Array, ratios: Array, length: str) -> None:
        """unexplained: the deviations beyond rounding. ratios: the same against what a sequence could show.
        length: the class of lengths to which this batch belongs."""
        needed = np.zeros(len(batch))
        seen = np.flatnonzero(ratios > 0.0)
        if len(seen):
            needed[seen] = unexplained[seen] / self._moved(batch[seen])
        self._by_length.setdefault(length, []).append(needed)
        self._worst += zip(ratios[seen].tolist(), needed[seen].tolist(), strict=True)
        self._worst = sorted(self._worst)[-_SEQUENCES:]

    @property
    def worst(self) -> float:
        """What the sequence needs that needs most, of the few that deviate most against what they could
        show."""
        return _STEP * max((needed for _, needed in self._worst), default=0.0)

    @property
    def usual(self) -> dict[str, float]:
        """What the sequences of each class of lengths need, root mean square. A tenth of them is left out: an
        error that lies in a single column moves a few far, but not so many."""
        needed = {length: np.sort(np.concatenate(parts)) for length, parts in self._by_length.items()}
        return {
            length: _STEP * rms(each[: int(np.ceil(_MOST * len(each)))]) for length, each in needed.items()
        }

    def _moved(self, batch: Array) -> Array:
        """How far models that are off by a step, in random directions, move these answers."""
        value = self.model(batch)
        moved = np.max([largest(other(batch) - value) for other in self._others], axis=0)
        return np.asarray(moved + 8.0 * EPS * largest(value) + _TINY)

    @cached_property
    def _others(self) -> list[Model]:
        rng = np.random.default_rng(0)  # nothing is asked
        return [changed(self.model, list(groups(self.model)), _STEP, rng) for _ in range(_MODELS)]


def groups(model: Model) -> Iterator[list[str]]:
    """Names of arrays, those of one matrix together; what is no parameter, or empty, is left out."""
    tensors = model.tensors()
    groups: dict[str, list[str]] = {}
    for name, part in tensors.items():
        last = name.split(".")[-1]
        if part.size and last not in ("clip", "eps", "residual") and (part.any() or last in ("w0", "c")):
            groups.setdefault(name.removesuffix(".left").removesuffix(".right"), []).append(name)
    yield from groups.values()


def group_name(group: list[str]) -> str:
    """What a group is called: the array's name, or that of the matrix whose factors it holds."""
    return group[0].removesuffix(".left").removesuffix(".right")


def changed(model: Model, groups: list[list[str]], size: float, rng: np.random.Generator) -> Model:
    """The model with these groups off by the relative error `size`, in a random direction."""
    tensors = model.tensors()
    changed = dict(tensors)
    for group in groups:
        for name in group:
            error = rng.standard_normal(tensors[name].shape)
            norm = float(np.linalg.norm(error))
            changed[name] = tensors[name] + error * (
                size * _size(tensors, name) / np.sqrt(len(group)) / max(norm, 1e-300)
            )
    try:
        return type(model).from_tensors(changed)
    except UsageError:  # no such model; it tells nothing
        return model


def has_size(model: Model, group: list[str]) -> bool:
    """Whether the group is as large as what its errors are measured against: a constant or a query bias may
    be smaller, or zero."""
    tensors = model.tensors()
    return all(float(np.linalg.norm(tensors[name])) >= 0.5 * _size(tensors, name) > 0.0 for name in group)


def scaled(model: Model, group: list[str], factor: float) -> Model:
    """The model with this group larger or smaller by a factor."""
    tensors = model.tensors()
    return type(model).from_tensors(tensors | {group[0]: factor * tensors[group[0]]})


def _size(tensors: dict[str, Array], name: str) -> float:
    """The size against which an array's error is relative: its own; for a query bias at least that of the
    matrix, for a network's linear part at least that of its neurons, for the bias of a norm or of neurons at
    least that of the gain or of their weights; for a constant that of the readout, because the answer to a
    row of zeros shows it, however large it is."""
    own = float(np.linalg.norm(tensors[name]))
    prefix, last = name[: -len(name.split(".")[-1])], name.split(".")[-1]
    if last == "w0":
        left, right = (tensors.get(prefix + part) for part in ("W.left", "W.right"))
        W = tensors[prefix + "W"] if left is None or right is None else left @ right.T
        return max(own, float(np.linalg.norm(W)))
    beside = {"bias": "gain", "b": "A"}.get(last, "")
    if prefix + beside in tensors:
        return max(own, float(np.linalg.norm(tensors[prefix + beside])))
    if last == "c":
        readouts = [
            part for other, part in tensors.items() if other.split(".")[-1] in ("v", "u", "U", "down")
        ]
        return max((float(np.linalg.norm(part)) for part in readouts), default=own)
    if last == "linear":
        neurons = [float(np.linalg.norm(tensors.get(prefix + name, np.zeros(1)))) for name in ("A", "u")]
        return max(own, neurons[0] * neurons[1])
    return own
