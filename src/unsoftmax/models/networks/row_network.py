"""What networks of single rows share: the constant, the sizes, what they take for a batch, and their file."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import WithConstant, check_finite
from unsoftmax.models.parts.activations import ACTIVATIONS, Activation

__all__ = ["RowNetwork", "as_constant", "leading_sign"]

_ACTIVATION = "activation."  # what the tensor of a file begins with that names the activation


class RowNetwork(WithConstant):
    """A network of rows (n, d): a first layer (J, d), a last one (J,) or (J, m), and a constant.

    layers: names of the first layers, all (J, d), and of the last one; a file holds all of them.
    """

    layers: ClassVar[tuple[str, ...]]
    activation: Activation

    @classmethod
    def _shapes(cls, J: int, d: int, answer: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The shapes of all tensors, those that may be missing included."""
        raise NotImplementedError  # pragma: no cover - abstract

    @classmethod
    def _file(cls) -> str:
        return f"a {cls.stored_as or cls.family} file"

    def _check_parts(self, **parts: Array) -> None:
        """Refuses parts that do not fit the layers or hold no numbers."""
        first, last = (parts[name] for name in (self.layers[0], self.layers[-1]))
        if first.ndim != 2 or first.shape[1] < 1:
            raise UsageError(f"{self.layers[0]} must be (J, d), one row a unit, not {first.shape}")
        J, d = first.shape
        if last.ndim not in (1, 2) or len(last) != J:
            raise UsageError(
                f"{self.layers[-1]} must be ({J},) or ({J}, m) to fit {self.layers[0]} {first.shape}, not "
                f"{last.shape}"
            )
        for name, shape in self._shapes(J, d, last.shape[1:]).items():
            if name in parts and parts[name].shape != shape:
                raise UsageError(f"{name} must be {shape} to fit the layers, not {parts[name].shape}")
        check_finite(**parts)

    @classmethod
    def check_shapes(cls, shapes: dict[str, tuple[int, ...]]) -> None:
        """Refuses shapes that do not fit together, before any array is read."""
        first, last = (shapes.get(name, ()) for name in (cls.layers[0], cls.layers[-1]))
        if not set(cls.layers) <= set(shapes) or len(first) != 2 or len(last) not in (1, 2):
            inner = ", ".join(f"{name} (J, d)" for name in cls.layers[:-1])
            raise ModelFileError(f"{cls._file()} holds {inner} and {cls.layers[-1]} (J,) or (J, m)")
        expected = cls._shapes(*first, last[1:])
        for name, shape in shapes.items():
            wanted = (0,) if name.startswith(_ACTIVATION) else expected.get(name)
            if wanted is None:
                raise ModelFileError(f"{cls._file()} has no tensor {name!r}")
            if shape != wanted:
                raise ModelFileError(
                    f"tensor {name!r} has shape {shape}; to fit the others it must be {wanted}"
                )

    @classmethod
    def _activation_of(cls, tensors: dict[str, Array]) -> Activation:
        """The activation that a file names; refuses a file with other tensors than a network has."""
        cls.check_shapes({name: part.shape for name, part in tensors.items()})
        names = [name.removeprefix(_ACTIVATION) for name in tensors if name.startswith(_ACTIVATION)]
        if len(names) != 1 or names[0] not in ACTIVATIONS:
            raise ModelFileError(f"{cls._file()} holds the name of one activation, not {names}")
        return ACTIVATIONS[names[0]]

    def _activation_tensor(self) -> dict[str, Array]:
        return {f"{_ACTIVATION}{self.activation.name}": np.zeros(0)}

    @property
    def _first(self) -> Array:
        """The first layer, one row a unit."""
        return np.asarray(getattr(self, self.layers[0]))

    @property
    def _last(self) -> Array:
        """The last layer, one row a unit."""
        return np.asarray(getattr(self, self.layers[-1]))

    @property
    def width(self) -> int:
        return int(self._first.shape[1])

    @property
    def outputs(self) -> int | None:
        return None if self._last.ndim == 1 else int(self._last.shape[1])

    @property
    def ranks(self) -> list[int]:
        return []

    def _rows(self, batch: Array) -> Array:
        """The rows of (n, d), or of one-row sequences (n, 1, d)."""
        X = np.asarray(batch, dtype=np.float64)
        if X.ndim == 3 and X.shape[1] == 1:
            X = X[:, 0]
        if X.ndim != 2 or X.shape[1] != self.width:
            d = self.width
            raise UsageError(
                f"a network of width {d} takes (n, {d}) or one-row sequences (n, 1, {d}), not {X.shape}"
            )
        return X


def as_constant(c: object, answer: tuple[int, ...]) -> Array:
    """The constant of an answer of this shape; a number stands for all of its entries."""
    constant = np.array(c, dtype=np.float64)
    return np.broadcast_to(constant, answer).copy() if constant.shape == () else constant


def leading_sign(rows: Array) -> Array:
    """The sign of every row's largest entry; 1 where all are zero.

    >>> leading_sign(np.array([[1.0, -2.0], [3.0, 0.0]]))
    array([-1.,  1.])
    """
    if not len(rows):
        return np.ones(0)
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(largest < 0, -1.0, 1.0)
