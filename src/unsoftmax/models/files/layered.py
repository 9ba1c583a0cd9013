"""Models of numbered layers and their files; names of tensors say the kinds of norms and activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import Model

__all__ = ["LayeredModel"]


class LayeredModel(Model):
    """A model whose file holds tensors `layers.0.…`, `layers.1.…` and a few more."""

    @classmethod
    def _layer_from(cls, left: dict[str, Array], name: str) -> Any:
        """Takes the layer `name` out of named arrays."""
        raise NotImplementedError  # pragma: no cover - abstract

    @classmethod
    def _model_from(cls, layers: list[Any], left: dict[str, Array]) -> Self:
        """Takes the rest out of named arrays, and builds the model."""
        raise NotImplementedError  # pragma: no cover - abstract

    @classmethod
    def _check_widths(cls, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuses tensors that disagree on the width."""
        raise NotImplementedError  # pragma: no cover - abstract

    @classmethod
    def check_shapes(cls, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuses tensors that disagree on the width, or layers that do not count up from 0; the rest is
        checked when the model is built."""
        cls._check_widths(shapes)
        numbers = {name.split(".")[1] for name in shapes if name.startswith("layers.")}
        if numbers != {str(number) for number in range(len(numbers))}:
            raise ModelFileError(
                f"a {cls.family} file has layers {', '.join(sorted(numbers))}; they must count up from 0"
            )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array]) -> Self:
        """The model of named arrays; a `ModelFileError` when some are missing, strange or left over."""
        left = {name: np.asarray(part) for name, part in tensors.items()}
        try:
            depth = 1 + max(
                (int(name.split(".")[1]) for name in left if name.startswith("layers.")), default=-1
            )
            layers = [cls._layer_from(left, f"layers.{number}.") for number in range(depth)]
            model = cls._model_from(layers, left)
        except (KeyError, ValueError, IndexError) as error:
            raise ModelFileError(f"a {cls.family} file lacks or garbles the tensor {error}") from error
        except ModelFileError:
            raise
        except UsageError as error:
            raise ModelFileError(str(error)) from error
        if left:
            raise ModelFileError(f"a {cls.family} file has no tensor {min(left)!r}")
        return model
