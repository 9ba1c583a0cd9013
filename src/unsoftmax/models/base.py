"""What every model offers: a call on batches, its number of parameters, canonical form, distance, and a
file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from unsoftmax.arrays import EPS, Array, largest
from unsoftmax.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["Model", "WithConstant", "as_batch", "check_finite", "relative", "softmax"]

# of the last digit of a sum: its own rounding, that of its largest term, and of the learnt term's
_UNITS = 8.0
# of the last digit of scores times values, which are sums over the width
_SCORE_UNITS = 32.0
# of the last digit of terms that a learner told from differences of their sums; 300 were seen, for folds
# beside a constant of 1e9
_LEARNT_UNITS = 512.0


class Model:
    """Base of all models. Subclasses are immutable; `tensors` and `from_tensors` define the file."""

    family: ClassVar[str]
    stored_as: ClassVar[str] = ""  # the name in files, where a family has several models
    # relative error of the parameters up to which a float64 recovery counts as exact
    exact_at: float = 1e-9

    @property
    def width(self) -> int:
        """Number of columns of a sequence."""
        raise NotImplementedError  # pragma: no cover - abstract

    @property
    def outputs(self) -> int | None:
        """None for one number per query, m for vectors."""
        raise NotImplementedError  # pragma: no cover - abstract

    @property
    def parameters(self) -> int:
        """Degrees of freedom of the function: what an optimal learner has to pay."""
        raise NotImplementedError  # pragma: no cover - abstract

    @property
    def ranks(self) -> list[int]:
        """Rank of W, one entry per head."""
        raise NotImplementedError  # pragma: no cover - abstract

    @property
    def certified_rows(self) -> int:
        """How many rows a certificate of single rows compares: of nearly as many as of sequences."""
        return 162

    def __call__(self, batch: Array, /) -> Array:
        raise NotImplementedError  # pragma: no cover - abstract

    def sensitivity(self, batch: Array) -> Array:
        """For each sequence, the size against which an error of the answer is relative: what the answer could
        show, times score sizes. Constants show nothing and do not count."""
        raise NotImplementedError  # pragma: no cover - abstract

    def rounding(
        self, batch: Array, predictions: Array | None = None, sensitivity: Array | None = None
    ) -> Array:
        """For each sequence, how far an answer may be off because float64 numbers of this size are rounded.

        A sum loses what is below the last digits of its largest term; two ways to compute it differ by a few
        units there. predictions, sensitivity: those of the batch, where they are known already.
        """
        values = self(batch) if predictions is None else predictions
        scale = self.sensitivity(batch) if sensitivity is None else sensitivity
        answers = largest(np.asarray(values))
        return np.asarray(
            EPS * (_UNITS * answers + _SCORE_UNITS * scale + _LEARNT_UNITS * self.cancelling(batch))
        )

    def cancelling(self, batch: Array) -> Array | float:
        """For each sequence, the sum of the sizes of terms that may cancel in the answer; 0 where none do."""
        return 0.0

    def score_strength(self) -> float:
        """Typical score of two unit rows in random directions."""
        raise NotImplementedError  # pragma: no cover - abstract

    def canonical(self) -> Self:
        """The one representative of all parameters with this function."""
        raise NotImplementedError  # pragma: no cover - abstract

    def distance(self, other: Self) -> float:
        """Largest relative difference of the parameters, up to the symmetries of the family."""
        raise NotImplementedError  # pragma: no cover - abstract

    def tensors(self) -> dict[str, Array]:
        """The arrays of the file."""
        raise NotImplementedError  # pragma: no cover - abstract

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        """The model of a file's arrays."""
        raise NotImplementedError  # pragma: no cover - abstract

    @classmethod
    def check_shapes(cls, shapes: dict[str, tuple[int, ...]]) -> None:
        """Refuses a file by the shapes in its header, before any array is read."""
        from unsoftmax.models.files.shapes import check_shapes

        check_shapes(shapes, cls.family)

    def save(self, path: str | Path) -> Path:
        """Writes a .safetensors file that `unsoftmax.load` reads."""
        from unsoftmax.models.files.storage import save

        return save(self, path)

    def save_npz(self, path: str | Path) -> Path:
        """Writes the arrays as a numpy archive."""
        from unsoftmax.models.conversions.exports import save_npz

        return save_npz(self, path)

    def save_onnx(self, path: str | Path, *, external_data: bool = False) -> Path:
        """Writes a float64 ONNX model (batch, length, d) -> answers; with `external_data` its weights go into
        a second file."""
        from unsoftmax.models.conversions.exports import save_onnx

        return save_onnx(self, path, external_data=external_data)

    def to_torch(self, *, dtype: torch.dtype | str = "float64") -> nn.Module:
        """An nn.Module (B, N, d) -> answers that computes the same, in `dtype`: "float64", "float32",
        "bfloat16", "float16", or torch's own name of one of them."""
        from unsoftmax.models.conversions.exports import to_torch

        return to_torch(self, dtype=dtype)

    def _same_family(self, other: Any) -> None:
        if type(other) is not type(self):
            raise UsageError(
                f"a distance needs two models of one family, not {type(self).__name__} and "
                f"{type(other).__name__}"
            )
        if other.width != self.width or other.outputs != self.outputs:
            raise UsageError(
                f"a distance needs equal shapes, not width {self.width} and {other.width} (outputs "
                f"{self.outputs} and {other.outputs})"
            )


class WithConstant(Model):
    """A model whose answers are a constant and what rows add to it."""

    _c: Array

    @property
    def c(self) -> float | Array:
        """The constant: a number, or one a component for vector answers."""
        return float(self._c) if self._c.ndim == 0 else self._c


def check_finite(**parts: Array | None) -> None:
    """Refuses parameters that are not numbers, by name."""
    for name, part in parts.items():
        if part is not None and not np.isfinite(part).all():
            raise UsageError(f"{name} holds NaN or infinity")


def relative(difference: float, scale: float) -> float:
    """The difference against the scale; absolute where the scale is zero."""
    return difference / scale if scale > 0 else difference


def as_batch(batch: object, width: int) -> Array:
    """The batch as float64 (B, N, width), or a `UsageError`."""
    array = np.asarray(batch, dtype=np.float64)
    if array.ndim != 3:
        raise UsageError(f"a batch must be (B, N, {width}), not {array.shape}; one sequence is batch[None]")
    if array.shape[2] != width:
        raise UsageError(
            f"width {width} but the sequences have {array.shape[2]} columns; pass sequences with {width} "
            "columns"
        )
    if array.shape[1] < 1:
        raise UsageError("a sequence needs at least one row")
    return array


def softmax(scores: Array) -> Array:
    """Softmax over the last axis, for finite scores of any size."""
    weights: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
