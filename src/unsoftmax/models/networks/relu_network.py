"""A two-layer ReLU network: g(x) = Σ_k u_k relu(a_k·x + b_k) + linear·x + c."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import Model, check_finite
from unsoftmax.models.networks.canonical_distance import fold_distance
from unsoftmax.models.networks.canonical_network import CanonicalNetwork

__all__ = ["ReluNetwork", "rows_to_certify"]

_STRATUM, _MOST = 18, 72  # rows: three of each size; with those that the learner compares 256 at most


def rows_to_certify(parameters: int, *, biased: bool) -> int:
    """How many fresh rows a certificate of such a network compares. With biases those of small networks, and
    a hundredth of the price of large ones: at d = 32, m = 64 more would cost 1.15 m(d + 2) in all. Without
    biases there is room for all of them."""
    if not biased:
        return _MOST
    rows = min(float(_MOST), max(_STRATUM, 90.0 - parameters / 32.0, parameters / 100.0))
    return _STRATUM * int(rows // _STRATUM)


class ReluNetwork(Model):
    """A (m, d), u (m,), biases b (m,), an output bias c and, where a network has a skip connection, a linear
    part (d,).

    Different parameters may be one function; `folds` is what the function determines, and `distance` compares
    that.

    >>> network = ReluNetwork([[1.0, 0.0], [0.0, -1.0]], [1.0, 2.0])
    >>> network(np.array([[3.0, -4.0], [-3.0, 4.0]]))
    array([11.,  0.])
    >>> network.distance(ReluNetwork([[2.0, 0.0], [0.0, -4.0]], [0.5, 0.5]))
    0.0
    """

    family: ClassVar[str] = "relu-network"
    exact_at: float = 1e-7

    def __init__(
        self, A: object, u: object, b: object = None, c: object = 0.0, linear: object = None
    ) -> None:
        self.A: Array = np.array(A, dtype=np.float64)
        self.u: Array = np.array(u, dtype=np.float64)
        if self.A.ndim != 2 or self.A.shape[1] < 1:
            raise UsageError(f"A must be (m, d), one row a neuron, not {self.A.shape}")
        m, d = self.A.shape
        self.b: Array | None = None if b is None else np.array(b, dtype=np.float64)
        self.linear: Array | None = None if linear is None else np.array(linear, dtype=np.float64)
        constant = np.array(c, dtype=np.float64)
        for name, part, shape in (
            ("u", self.u, (m,)),
            ("b", self.b, (m,)),
            ("linear", self.linear, (d,)),
            ("c", constant, ()),
        ):
            if part is not None and part.shape != shape:
                raise UsageError(f"{name} must be {shape} to fit A {self.A.shape}, not {part.shape}")
        check_finite(A=self.A, u=self.u, b=self.b, linear=self.linear, c=constant)
        self.c = float(constant)

    @classmethod
    def from_folds(cls, folds: CanonicalNetwork) -> Self:
        """One neuron a fold, the rest in the linear part: s|z| = 2s relu(z) - s z."""
        biased = folds.biased
        return cls(
            folds.normals,
            2.0 * folds.signs,
            folds.offsets if biased else None,
            folds.constant - float(folds.signs @ folds.offsets) if biased else 0.0,
            folds.linear - folds.signs @ folds.normals,
        )

    @property
    def width(self) -> int:
        return int(self.A.shape[1])

    @property
    def neurons(self) -> int:
        """Number of rows of A, folded or not."""
        return len(self.u)

    @property
    def outputs(self) -> int | None:
        return None

    @property
    def ranks(self) -> list[int]:
        return []

    @cached_property
    def folds(self) -> CanonicalNetwork:
        """What the function determines: its folds, and its affine part."""
        b = np.zeros(self.neurons) if self.b is None else self.b
        return CanonicalNetwork.of_neurons(self.A, b, self.u, self.linear, self.c).tidy()

    @property
    def parameters(self) -> int:
        """Numbers in the canonical form: a fold has d (a bias one more), and so has the affine part."""
        return (self.folds.count + 1) * (self.width + int(self.folds.biased))

    @property
    def certified_rows(self) -> int:
        """Fewer, because the learner has compared 34 to 200 rows that look for bumps."""
        return rows_to_certify(self.parameters, biased=self.folds.biased)

    def __call__(self, batch: Array, /) -> Array:
        """g of the rows of (n, d), or of one-row sequences (n, 1, d)."""
        X = np.asarray(batch, dtype=np.float64)
        if X.ndim == 3 and X.shape[1] == 1:
            X = X[:, 0]
        if X.ndim != 2 or X.shape[1] != self.width:
            raise UsageError(
                f"a network of width {self.width} takes (n, {self.width}) or one-row sequences (n, 1, "
                f"{self.width}), not {X.shape}"
            )
        hidden = X @ self.A.T if self.b is None else X @ self.A.T + self.b
        answer = np.maximum(hidden, 0.0) @ self.u + self.c
        return np.asarray(answer if self.linear is None else answer + X @ self.linear)

    def sensitivity(self, batch: Array) -> Array:
        X = np.asarray(batch, dtype=np.float64).reshape(-1, self.width)
        return self.folds.spread(np.linalg.norm(X, axis=1))

    def cancelling(self, batch: Array) -> Array:
        X = np.asarray(batch, dtype=np.float64)
        return self.folds.magnitude(X.reshape(-1, self.width))

    def score_strength(self) -> float:
        """There are no scores; what is asked for is the size of rows at which something happens."""
        return float(1.0 / (self.folds.reach**2 * self.width))

    def canonical(self) -> Self:
        return type(self).from_folds(self.folds)

    def distance(self, other: Self) -> float:
        """Difference of the canonical forms, all parameters together, relative to those of self; folds
        without partner count whole.

        CanonicalNetwork on hyperplanes that nearly coincide may be given as one, see `fold_distance`.
        """
        self._same_family(other)
        return fold_distance(self.folds, other.folds)

    def tensors(self) -> dict[str, Array]:
        parts: dict[str, Array] = {"A": self.A, "u": self.u, "c": np.array(self.c)}
        if self.b is not None:
            parts["b"] = self.b
        if self.linear is not None:
            parts["linear"] = self.linear
        return parts

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        if strange := set(tensors) - {"A", "u", "b", "c", "linear"}:
            raise ModelFileError(f"a relu-network file has no tensor {sorted(strange)[0]!r}")
        if not {"A", "u"} <= set(tensors):
            raise ModelFileError("a relu-network file holds A and u")
        return cls(tensors["A"], tensors["u"], tensors.get("b"), tensors.get("c", 0.0), tensors.get("linear"))

    def __repr__(self) -> str:
        extras = [
            name
            for name, there in (("biases", self.b is not None), ("linear part", self.linear is not None))
            if there
        ]
        return (
            f"ReluNetwork(width={self.width}, "
            f"neurons={self.neurons}{', ' + ', '.join(extras) if extras else ''})"
        )
