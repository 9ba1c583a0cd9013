"""A gated two-layer network, as SwiGLU and GEGLU: g(x) = Dᵀ(φ(G x + g) ∘ (U x + u)) + c."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import linear_sum_assignment
from unsoftmax.models.networks.row_network import RowNetwork, as_constant, leading_sign
from unsoftmax.models.parts.activations import SILU, Activation

__all__ = ["GatedNetwork"]


class GatedNetwork(RowNetwork):
    """gate (J, d), up (J, d), down (J,) or (J, m); biases of gate (J,), up (J,) and output.

    A unit's up row and its bias may be scaled if its down row is scaled back. Units may be permuted. With an
    odd activation the gate's sign may change with the down row's. `canonical` and `distance` know all three.

    >>> network = GatedNetwork([[1.0, 0.0]], [[0.0, 1.0]], [2.0])
    >>> network.distance(GatedNetwork([[1.0, 0.0]], [[0.0, -4.0]], [-0.5]))
    0.0
    """

    family: ClassVar[str] = "network"
    stored_as: ClassVar[str] = "gated-network"
    exact_at: float = 1e-8
    layers: ClassVar[tuple[str, ...]] = ("gate", "up", "down")

    def __init__(
        self,
        gate: object,
        up: object,
        down: object,
        gate_bias: object = None,
        up_bias: object = None,
        c: object = 0.0,
        *,
        activation: Activation = SILU,
    ) -> None:
        self.gate: Array = np.array(gate, dtype=np.float64)
        self.up: Array = np.array(up, dtype=np.float64)
        self.down: Array = np.array(down, dtype=np.float64)
        J = len(self.gate)
        self.gate_bias: Array = np.zeros(J) if gate_bias is None else np.array(gate_bias, dtype=np.float64)
        self.up_bias: Array = np.zeros(J) if up_bias is None else np.array(up_bias, dtype=np.float64)
        self._c = as_constant(c, self.down.shape[1:])
        self.activation = activation
        self._check_parts(**self._parts())

    @classmethod
    def _shapes(cls, J: int, d: int, answer: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        rows = {"gate": (J, d), "up": (J, d), "down": (J, *answer)}
        return rows | {"gate_bias": (J,), "up_bias": (J,), "c": answer}

    def _parts(self) -> dict[str, Array]:
        names = (*self.layers, "gate_bias", "up_bias")
        return {name: getattr(self, name) for name in names} | {"c": self._c}

    @property
    def units(self) -> int:
        """Number of rows of the gate."""
        return len(self.gate)

    @property
    def parameters(self) -> int:
        """2(d + 1) + m numbers a unit, less the free scale; m of the constant."""
        m = self.outputs or 1
        return self.units * (2 * self.width + 1 + m) + m

    def __call__(self, batch: Array, /) -> Array:
        """The answers to rows (n, d), or to one-row sequences (n, 1, d)."""
        X = self._rows(batch)
        gates = self.activation(X @ self.gate.T + self.gate_bias)
        return np.asarray((gates * (X @ self.up.T + self.up_bias)) @ self.down + self._c)

    def after(self, matrix: Array, shift: Array) -> Self:
        """The network of x ↦ g(matrix·x + shift)."""
        biases = self.gate_bias + self.gate @ shift, self.up_bias + self.up @ shift
        return type(self)(
            self.gate @ matrix, self.up @ matrix, self.down, *biases, self._c, activation=self.activation
        )

    def followed(self, matrix: Array) -> Self:
        """The network of x ↦ matrix·g(x), for vector answers."""
        return self._with(self.down @ matrix.T, self._c @ matrix.T)

    def shifted(self, constant: Array | float) -> Self:
        """The same network with `constant` added to its answers."""
        return self._with(self.down, self._c + constant)

    def _with(self, down: Array, c: Array) -> Self:
        return type(self)(
            self.gate, self.up, down, self.gate_bias, self.up_bias, c, activation=self.activation
        )

    def jacobian(self, rows: Array) -> Array:
        """(n, m, d): derivatives of the outputs by the entries of each row."""
        X = self._rows(rows)
        z, lift = X @ self.gate.T + self.gate_bias, X @ self.up.T + self.up_bias
        down = self.down.reshape(self.units, -1)
        by_gate = np.einsum("nj,jm,jd->nmd", self.activation.first(z) * lift, down, self.gate, optimize=True)
        return np.asarray(
            by_gate + np.einsum("nj,jm,jd->nmd", self.activation(z), down, self.up, optimize=True)
        )

    def sensitivity(self, batch: Array) -> Array:
        """Sum of what all units and the constant add at most."""
        X = np.abs(self._rows(batch))
        reach = (X @ np.abs(self.gate).T + np.abs(self.gate_bias) + 1.0) * (
            X @ np.abs(self.up).T + np.abs(self.up_bias)
        )
        return np.asarray(
            reach @ np.linalg.norm(self.down.reshape(self.units, -1), axis=1)
            + np.abs(self._c).max(initial=0.0)
        )

    def score_strength(self) -> float:
        """There are no scores; what is asked for is the size of rows at which the gates bend."""
        return float(np.median(np.linalg.norm(self.gate, axis=1))) ** 2 / self.width

    def canonical(self) -> Self:
        """Up rows of unit length with a positive largest entry, gates likewise where their sign is free;
        heaviest unit first."""
        inner, outer, down = self._normalised()
        order = np.argsort(-np.round(np.linalg.norm(down, axis=1), 9), kind="stable")
        inner, outer, down = inner[order], outer[order], down[order]
        return type(self)(
            inner[:, :-1],
            outer[:, :-1],
            down.reshape(self.down.shape),
            inner[:, -1],
            outer[:, -1],
            self._c,
            activation=self.activation,
        )

    def _normalised(self) -> tuple[Array, Array, Array]:
        """([gate, bias], [up, bias], down (J, m)) with the free scale and signs fixed."""
        inner = np.column_stack([self.gate, self.gate_bias])
        outer = np.column_stack([self.up, self.up_bias])
        down = self.down.reshape(self.units, -1)
        size = np.linalg.norm(outer, axis=1)
        size = np.where(size > 0, size, 1.0) * leading_sign(outer)
        outer, down = outer / size[:, None], down * size[:, None]
        if self.activation.reflection.sign < 0 and self.activation.reflection.constant == 0.0:
            flip = leading_sign(inner)
            inner, down = inner * flip[:, None], down * flip[:, None]
        return inner, outer, down

    def distance(self, other: Self) -> float:
        """Largest relative difference over units matched best, and of the constant; at least 1 when numbers
        differ."""
        self._same_family(other)
        if self.activation.name != other.activation.name or self.units != other.units:
            return 1.0
        mine, theirs = self._normalised(), other._normalised()
        heavy = np.linalg.norm(mine[2], axis=1)
        heavy = np.maximum(heavy, 1e-3 * heavy.max(initial=0.0))
        sizes = (np.linalg.norm(mine[0], axis=1), np.ones(self.units), heavy)
        costs = np.zeros((self.units, self.units))
        for first, second, size in zip(mine, theirs, sizes, strict=True):
            gap = np.linalg.norm(first[:, None] - second[None], axis=-1) / np.maximum(size, 1e-300)[:, None]
            costs = np.maximum(costs, gap)
        whole = float(np.linalg.norm(self._c)) + float(np.linalg.norm(mine[2]))
        constant = float(np.linalg.norm(self._c - other._c))
        matched = float(costs[linear_sum_assignment(costs)].max(initial=0.0))
        return max(matched, constant / whole if whole > 0 else constant)

    def tensors(self) -> dict[str, Array]:
        return self._parts() | self._activation_tensor()

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        activation = cls._activation_of(tensors)
        biases = tensors.get("gate_bias"), tensors.get("up_bias")
        gate, up, down = (tensors[name] for name in cls.layers)
        return cls(gate, up, down, *biases, tensors.get("c", 0.0), activation=activation)

    def __repr__(self) -> str:
        return f"GatedNetwork(width={self.width}, units={self.units}, {self.activation.name})"
