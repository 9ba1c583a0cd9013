"""A one-layer Transformer: f(X) = g(Σ_i α_i x_i + residual·x_N), α = softmax_i(x_iᵀ(W x_N + w0)), g a
two-layer ReLU network."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import Array, longest_rows
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import Model, as_batch, softmax
from unsoftmax.models.matrices import MATRIX_TENSORS, Matrix, matrix_of_tensors, tensors_of_matrix
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.single_head import SingleHead

__all__ = ["Transformer"]


class Transformer(Model):
    """Attention with scores from W (and a query bias w0), then a `ReluNetwork`. The value map is merged into
    the network.

    residual: the factor of the skip connection around attention (0: none, 1: the usual one).

    >>> network = ReluNetwork([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
    >>> model = Transformer(np.zeros((2, 2)), network)
    >>> model(np.array([[[1.0, 0.0], [3.0, 2.0]]]))
    array([1.])
    """

    family: ClassVar[str] = "transformer"
    exact_at: float = 1e-7

    def __init__(self, W: object, network: ReluNetwork, w0: object = None, residual: float = 0.0) -> None:
        if not isinstance(network, ReluNetwork):
            raise UsageError(f"the network of a Transformer is a ReluNetwork, not {type(network).__name__}")
        self._attention = SingleHead(W, np.zeros(network.width), w0)
        self.network = network
        if not network.neurons:  # one head, beside a skip connection at most
            self.exact_at = SingleHead.exact_at
        self.residual = float(residual)
        if not np.isfinite(self.residual) or self.residual <= -1.0:
            raise UsageError(
                f"residual must be a finite number above -1, not {residual!r}; 0 is none, 1 the usual skip "
                "connection"
            )

    @property
    def matrix(self) -> Matrix:
        """W as it is held, dense or factors."""
        return self._attention.matrix

    @property
    def W(self) -> Array:
        """The dense (d, d) array."""
        return self._attention.W

    @property
    def w0(self) -> Array | None:
        """The query bias, if there is one."""
        return self._attention.w0

    @property
    def width(self) -> int:
        return self._attention.width

    @property
    def outputs(self) -> int | None:
        return None

    @property
    def rank(self) -> int:
        """Numerical rank of W."""
        return self._attention.rank

    @property
    def ranks(self) -> list[int]:
        return [self.rank]

    @property
    def parameters(self) -> int:
        skip = int(self.residual not in (0.0, 1.0))
        return self._attention.score_parameters + self.network.parameters + skip

    @cached_property
    def one_row(self) -> ReluNetwork:
        """The network that one-row sequences show: f([x]) = g((1 + residual) x)."""
        return ReluNetwork.from_folds(self.network.folds.scaled(1.0 + self.residual))

    def scores(self, batch: Array) -> Array:
        """Scores x_iᵀ(W x_N + w0), shape (B, N)."""
        return self._attention.scores(batch)

    def mixed(self, batch: Array) -> Array:
        """What the network gets: Σ α_i x_i + residual·x_N, shape (B, d)."""
        X = as_batch(batch, self.width)
        rows = np.einsum("bn,bnd->bd", softmax(self.scores(X)), X)
        return np.asarray(rows + self.residual * X[:, -1] if self.residual else rows)

    def __call__(self, batch: Array, /) -> Array:
        return self.network(self.mixed(batch))

    def sensitivity(self, batch: Array) -> Array:
        X = as_batch(batch, self.width)
        longest = longest_rows(X)
        against = self.matrix.apply(X[:, -1]) + (0.0 if self.w0 is None else self.w0)
        visible = self.network.folds.spread((1.0 + abs(self.residual)) * longest)
        return np.asarray(visible * (1.0 + longest * np.linalg.norm(against, axis=1)))

    def cancelling(self, batch: Array) -> Array:
        return self.network.folds.magnitude(self.mixed(batch))

    def score_strength(self) -> float:
        return self._attention.score_strength()

    def canonical(self) -> Self:
        """Canonical W and network; W and w0 are zero when the network is constant, because they are then
        invisible."""
        network = self.network.canonical()
        if network.folds.count == 0 and not network.folds.linear.any():
            return type(self)(np.zeros((self.width, self.width)), network)
        shown = SingleHead(self.matrix, np.ones(self.width), self.w0).canonical()
        return type(self)(shown.matrix, network, shown.w0, self.residual)

    def distance(self, other: Self) -> float:
        """Largest of the relative differences of W, w0 (against W), the residual and the network."""
        self._same_family(other)
        mine, theirs = self.canonical(), other.canonical()
        return max(
            mine._attention.score_distance(theirs._attention),
            abs(mine.residual - theirs.residual),
            mine.network.distance(theirs.network),
        )

    def tensors(self) -> dict[str, Array]:
        parts = {f"network.{name}": part for name, part in self.network.tensors().items()}
        parts |= {"residual": np.array(self.residual)} | tensors_of_matrix(self.matrix)
        if self.w0 is not None:
            parts["w0"] = self.w0
        return parts

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        network = ReluNetwork.from_tensors(
            {
                name.removeprefix("network."): part
                for name, part in tensors.items()
                if name.startswith("network.")
            }
        )
        own = {name: part for name, part in tensors.items() if not name.startswith("network.")}
        if strange := set(own) - MATRIX_TENSORS - {"w0", "residual"}:
            raise ModelFileError(f"a transformer file has no tensor {sorted(strange)[0]!r}")
        W = matrix_of_tensors(own, "transformer")
        return cls(W, network, own.get("w0"), float(own.get("residual", np.zeros(()))))

    def __repr__(self) -> str:
        extras = [f"residual={self.residual:g}"] if self.residual else []
        extras += ["query bias"] if self.w0 is not None else []
        return (
            f"Transformer(width={self.width}, "
            f"network={self.network!r}{', ' + ', '.join(extras) if extras else ''})"
        )
