"""Groups of parameters: the arrays of a model's file that are one thing, what that is to the model, and the
size against which its errors are relative. The names of arrays are read here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.base import Model

__all__ = ["ParameterGroup", "Role", "parameter_groups"]


class Role(Enum):
    """What a group is to the model."""

    WEIGHTS = auto()
    QUERY_BIAS = auto()
    VALUES = auto()  # what a head reads of a row
    OUTER = auto()  # what a network makes of its neurons
    LINEAR = auto()  # what a network adds beside its neurons
    BIAS = auto()  # of a norm, or of neurons
    CONSTANT = auto()


_ROLES = {
    "w0": Role.QUERY_BIAS,
    "v": Role.VALUES,
    "u": Role.OUTER,
    "U": Role.OUTER,
    "down": Role.OUTER,
    "linear": Role.LINEAR,
    "bias": Role.BIAS,
    "b": Role.BIAS,
    "c": Role.CONSTANT,
}
_SETTINGS = ("clip", "eps", "residual")  # arrays that are not parameters
_BESIDE = {"bias": "gain", "b": "A"}  # what stands beside a bias
_IN_SCORES = ("W", "w0")
_MAY_VANISH = (Role.QUERY_BIAS, Role.CONSTANT)


@dataclass(frozen=True, eq=False)
class ParameterGroup:
    """name: for people. sizes: of each array, by its name in the file, what its errors are relative to.
    scores: where the group is a part of scores with a query bias, the arrays that grow with a temperature."""

    name: str
    role: Role
    sizes: Mapping[str, float]
    scores: tuple[str, ...] = ()

    def off(self, tensors: Mapping[str, Array], error: float, rng: np.random.Generator) -> dict[str, Array]:
        """The arrays with this relative error, in a random direction."""
        arrays = {}
        for name, size in self.sizes.items():
            wrong = rng.standard_normal(tensors[name].shape)
            norm = max(float(np.linalg.norm(wrong)), 1e-300)
            arrays[name] = tensors[name] + wrong * (error * size / np.sqrt(len(self.sizes)) / norm)
        return arrays

    def scaled(self, tensors: Mapping[str, Array], factor: float) -> dict[str, Array]:
        """The arrays of the group larger or smaller by a factor: of two factors of a matrix the first."""
        first = next(iter(self.sizes))
        return {first: factor * tensors[first]}

    def warmer(self, tensors: Mapping[str, Array], factor: float) -> dict[str, Array]:
        """The scores of the group at another temperature: their matrix and their query bias grow together,
        which moves little where both are large and cancel. Nothing for groups that belong to no such pair."""
        return {name: factor * tensors[name] for name in self.scores}

    @property
    def in_scores(self) -> bool:
        """Whether the group moves nothing but scores, as W and a query bias: single rows do not show it."""
        return all(
            _last(name.removesuffix(".left").removesuffix(".right")) in _IN_SCORES for name in self.sizes
        )

    def full(self, tensors: Mapping[str, Array]) -> bool:
        """Whether the group is as large as what its errors are relative to: a constant or a query bias may be
        smaller, or zero."""
        return all(_norm(tensors[name]) >= 0.5 * size > 0.0 for name, size in self.sizes.items())


def parameter_groups(model: Model) -> list[ParameterGroup]:
    """All groups; the factors of one matrix are together, and what is empty is left out.

    >>> import unsoftmax
    >>> [group.name for group in parameter_groups(unsoftmax.random_single_head(4, 2, seed=0))]
    ['v', 'c', 'W']
    """
    tensors = model.tensors()
    arrays: dict[str, list[str]] = {}
    for name in _parameters(tensors):
        arrays.setdefault(name.removesuffix(".left").removesuffix(".right"), []).append(name)
    return [
        ParameterGroup(
            name, _role(name), {each: _size(tensors, each) for each in names}, _scores(tensors, name)
        )
        for name, names in arrays.items()
    ]


def _parameters(tensors: Mapping[str, Array]) -> Iterator[str]:
    for name, part in tensors.items():
        if part.size and _last(name) not in _SETTINGS and (part.any() or _role(name) in _MAY_VANISH):
            yield name


def _scores(tensors: Mapping[str, Array], name: str) -> tuple[str, ...]:
    """The matrix of scores, or its first factor, and its query bias, where this group is one of them."""
    prefix = name[: -len(_last(name))]
    if _last(name) not in _IN_SCORES or prefix + "w0" not in tensors:
        return ()
    return tuple(prefix + part for part in ("W", "W.left", "w0") if prefix + part in tensors)


def _last(name: str) -> str:
    return name.split(".")[-1]


def _role(name: str) -> Role:
    return _ROLES.get(_last(name), Role.WEIGHTS)


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array))


def _size(tensors: Mapping[str, Array], name: str) -> float:
    """An array's own size; for a query bias at least that of the matrix, for a network's linear part at least
    that of its neurons, for the bias of a norm or of neurons at least that of the gain or of their weights;
    for a constant that of the readout, because the answer to a row of zeros shows it, however large it is."""
    own, prefix = _norm(tensors[name]), name[: -len(_last(name))]
    match _role(name):
        case Role.QUERY_BIAS:
            left, right = (tensors.get(prefix + part) for part in ("W.left", "W.right"))
            return max(own, _norm(tensors[prefix + "W"] if left is None or right is None else left @ right.T))
        case Role.BIAS:
            beside = tensors.get(prefix + _BESIDE[_last(name)])
            return own if beside is None else max(own, _norm(beside))
        case Role.CONSTANT:
            readouts = (part for other, part in tensors.items() if _role(other) in (Role.VALUES, Role.OUTER))
            return max((_norm(part) for part in readouts), default=own)
        case Role.LINEAR:
            inner, outer = (tensors.get(prefix + part, np.zeros(1)) for part in ("A", "u"))
            return max(own, _norm(inner) * _norm(outer))
        case _:
            return own
