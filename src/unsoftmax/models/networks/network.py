"""A two-layer network with any activation: g(x) = Uᵀφ(A x + b) + L x + c."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.networks.row_network import RowNetwork, as_constant, leading_sign
from unsoftmax.models.parts.activations import RELU, Activation

__all__ = ["CanonicalNeurons", "Network"]

_SAME = 1e-12  # neurons whose (a, b) differ by less, relative to their size, are one
_FLAT = 1e-7  # a linear part this small beside what the neurons add is rounding
_LEFT = 1e-3  # what reflections may leave of a linear part that was measured, and not computed
_STRAIGHT = 1e-15  # of what a neuron adds: a bend that float64 does not show
_BENDS = 2.0  # |z| up to which smooth activations bend by tenths
_NONE = 1e-14  # a neuron whose weights are this small beside the largest is not a neuron but rounding


@dataclass(frozen=True)
class CanonicalNeurons:
    """What the function determines: neurons up to order and reflection, and what is affine beside their even
    or odd parts.

    φ(z) = core(z) + slope·z + constant with an even or odd core, so a reflected neuron has the same core up
    to its sign, and the affine part below does not depend on the choice. For ReLU every row of `inner` has
    unit length in its first d columns.

    inner: (J, d + 1), the rows [a_j, b_j]. outer: (J, m). affine: (d + 1, m), the linear part and then the
    constant.
    """

    inner: Array
    outer: Array
    affine: Array
    sign: int


class Network(RowNetwork):
    """A (J, d), U (J,) or (J, m), biases b (J,), output bias c and, where there is a skip connection, a
    linear part (d,) or (d, m).

    Neurons may be permuted and reflected without changing the function; `canonical` and `distance` know that.

    >>> from unsoftmax.models.parts import TANH
    >>> network = Network([[1.0, 0.0], [0.0, 2.0]], [1.0, 3.0], activation=TANH)
    >>> flipped = Network([[0.0, -2.0], [1.0, 0.0]], [-3.0, 1.0], activation=TANH)
    >>> network.distance(flipped)
    0.0
    """

    family: ClassVar[str] = "network"
    exact_at: float = 1e-8
    layers: ClassVar[tuple[str, ...]] = ("A", "U")

    def __init__(
        self,
        A: object,
        U: object,
        b: object = None,
        c: object = 0.0,
        linear: object = None,
        *,
        activation: Activation = RELU,
    ) -> None:
        self.A: Array = np.array(A, dtype=np.float64)
        self.U: Array = np.array(U, dtype=np.float64)
        self.b: Array = np.zeros(len(self.A)) if b is None else np.array(b, dtype=np.float64)
        self.linear: Array | None = None if linear is None else np.array(linear, dtype=np.float64)
        self._c = as_constant(c, self.U.shape[1:])
        self.activation = activation
        self._check_parts(**self._parts())

    @classmethod
    def _shapes(cls, J: int, d: int, answer: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return {"A": (J, d), "U": (J, *answer), "b": (J,), "c": answer, "linear": (d, *answer)}

    def _parts(self) -> dict[str, Array]:
        parts = {"A": self.A, "U": self.U, "b": self.b, "c": self._c}
        return parts if self.linear is None else parts | {"linear": self.linear}

    @property
    def neurons(self) -> int:
        """Number of rows of A."""
        return len(self.A)

    @property
    def parameters(self) -> int:
        """d + 1 + m numbers per neuron, one fewer for ReLU, whose scale is free; m of the constant, d·m of a
        linear part."""
        m = self.outputs or 1
        each = self.width + 1 + m - (0 if self.activation.smooth else 1)
        return self.neurons * each + m * (1 + (0 if self.linear is None else self.width))

    def hidden(self, rows: Array) -> Array:
        """A x + b of every row (..., d)."""
        return np.asarray(rows @ self.A.T + self.b)

    def __call__(self, batch: Array, /) -> Array:
        """g of the rows of (n, d), or of one-row sequences (n, 1, d)."""
        X = self._rows(batch)
        answer = self.activation(self.hidden(X)) @ self.U + self._c
        return np.asarray(answer if self.linear is None else answer + X @ self.linear)

    def jacobian(self, rows: Array) -> Array:
        """(n, m, d): derivatives of the outputs by the entries of each row."""
        X = self._rows(rows)
        slopes = self.activation.first(self.hidden(X))
        found = np.einsum(
            "nj,jm,jd->nmd", slopes, self.U.reshape(self.neurons, self.outputs or 1), self.A, optimize=True
        )
        return np.asarray(found if self.linear is None else found + self.linear.reshape(self.width, -1).T)

    def after(self, matrix: Array, shift: Array) -> Self:
        """The network of x ↦ g(matrix·x + shift)."""
        linear = None if self.linear is None else matrix.T @ self.linear
        c = self._c if self.linear is None else self._c + shift @ self.linear
        return type(self)(
            self.A @ matrix, self.U, self.b + self.A @ shift, c, linear, activation=self.activation
        )

    def followed(self, matrix: Array) -> Self:
        """The network of x ↦ matrix·g(x), for vector answers."""
        linear = None if self.linear is None else self.linear @ matrix.T
        return type(self)(
            self.A, self.U @ matrix.T, self.b, self._c @ matrix.T, linear, activation=self.activation
        )

    def shifted(self, constant: Array | float) -> Self:
        """The same network with `constant` added to its answers."""
        return type(self)(self.A, self.U, self.b, self._c + constant, self.linear, activation=self.activation)

    def bends(self, radius: float) -> Array:
        """(J,) how far each neuron is from an affine function on the ball of this radius, over what it would
        add as one; infinite for those with their bend inside."""
        reach = radius * np.linalg.norm(self.A, axis=1)
        margin = np.abs(self.b) - reach
        far = margin >= (_BENDS if self.activation.smooth else 0.0)
        bends = self.activation.bend(np.maximum(margin, _BENDS)) / np.maximum(reach, _NONE)
        return np.where(far, bends, np.inf)

    def within(self, radius: float, bend: float = _STRAIGHT) -> Self:
        """The same function on the ball of this radius, but for neurons that bend so little there, which
        become affine: a ReLU neuron does not bend if its kink lies outside."""
        far = self.bends(radius) <= bend
        if not far.any():
            return self
        slopes = np.round(self.activation.first(self.b[far]))
        passed = slopes[:, None] * self.U[far].reshape(len(slopes), -1)
        linear = np.zeros((self.width, *self.U.shape[1:])) if self.linear is None else self.linear
        return type(self)(
            self.A[~far],
            self.U[~far],
            self.b[~far],
            self._c + self.activation(self.b[far]) @ self.U[far],
            linear + (self.A[far].T @ passed).reshape(linear.shape),
            activation=self.activation,
        )

    def without_linear(self, left: float = _LEFT) -> Self | None:
        """The same function without a linear part, some neurons reflected; None where none such is found.

        Least squares says which neurons to reflect, when there are at most as many as entries of the linear
        part. left: what reflections may leave of it, relative to what the neurons add.
        """
        if self.linear is None:
            return self
        slope, outer = self.activation.reflection.slope, self.U.reshape(self.neurons, self.outputs or 1)
        linear = self.linear.reshape(self.width, self.outputs or 1)
        scale = float(np.abs(self.A.T @ np.abs(outer)).max(initial=0.0))
        flips = np.zeros(self.neurons)
        if float(np.abs(linear).max()) > _FLAT * scale:
            if slope == 0.0 or self.neurons > linear.size:
                return None
            # φ(z) = φ(-z) - slope·z, so that reflecting neuron j takes slope·u_j a_j out of the linear part
            design = np.einsum("jk,jm->kmj", slope * self.A, outer).reshape(linear.size, self.neurons)
            found, _, rank, _ = np.linalg.lstsq(design, linear.ravel(), rcond=1e-10)
            flips = (found > 0.5).astype(np.float64)
            if rank < self.neurons or float(np.abs(linear.ravel() - design @ flips).max()) > left * scale:
                return None
        turn = 1.0 - 2.0 * flips
        c = self._c - (slope * flips * self.b) @ self.U
        return type(self)(self.A * turn[:, None], self.U, self.b * turn, c, activation=self.activation)

    def sensitivity(self, batch: Array) -> Array:
        """Sum of what all neurons, the linear part and the constant add at most."""
        X = self._rows(batch)
        reach = np.abs(X) @ np.abs(self.A).T + np.abs(self.b)
        size = np.linalg.norm(self.U.reshape(self.neurons, self.outputs or 1), axis=1)
        found = reach @ size + np.max(np.abs(self._c), initial=0.0)
        if self.linear is not None:
            found = found + np.linalg.norm(X, axis=1) * np.linalg.norm(self.linear)
        return np.asarray(found)

    def score_strength(self) -> float:
        """There are no scores; what is asked for is the size of rows at which the neurons bend."""
        steep = float(np.median(np.linalg.norm(self.A, axis=1))) if self.neurons else 1.0
        return steep**2 / self.width

    @cached_property
    def neurons_seen(self) -> CanonicalNeurons:
        """The neurons as the function determines them: equal ones merged, those without effect left out."""
        m, reflection = self.outputs or 1, self.activation.reflection
        inner = np.column_stack([self.A, self.b])
        outer = self.U.reshape(self.neurons, m)
        linear = np.zeros((self.width, m)) if self.linear is None else self.linear.reshape(self.width, m)
        affine = np.vstack([linear, self._c.reshape(1, m)])
        affine = affine - 0.5 * reflection.slope * inner.T @ outer
        affine[-1] += 0.5 * reflection.constant * outer.sum(axis=0)
        return _merged(inner, outer, affine, self.activation)

    def canonical(self) -> Self:
        """Neurons with positive largest entry of a_j, the steepest first; what their reflection adds stands
        in the linear part."""
        seen, reflection = self.neurons_seen, self.activation.reflection
        inner, outer = seen.inner, seen.outer
        if len(inner):
            flip = leading_sign(inner[:, :-1])
            inner, outer = inner * flip[:, None], outer * np.where(flip < 0, float(seen.sign), 1.0)[:, None]
            order = np.lexsort((inner[:, 0], -np.round(np.linalg.norm(outer, axis=1), 9)))
            inner, outer = inner[order], outer[order]
        affine = seen.affine + 0.5 * reflection.slope * inner.T @ outer
        affine[-1] -= 0.5 * reflection.constant * outer.sum(axis=0)
        answer = self.U.shape[1:]
        return type(self)(
            inner[:, :-1],
            outer.reshape(len(inner), *answer),
            inner[:, -1],
            affine[-1].reshape(answer),
            affine[:-1].reshape(self.width, *answer),
            activation=self.activation,
        )

    def distance(self, other: Self) -> float:
        """Largest relative difference over neurons matched best, and of the affine part; at least 1 when
        numbers differ."""
        from unsoftmax.models.networks.neuron_distance import neuron_distance

        self._same_family(other)
        if self.activation.name != other.activation.name and (self.neurons or other.neurons):
            return 1.0
        return neuron_distance(self.neurons_seen, other.neurons_seen)

    def tensors(self) -> dict[str, Array]:
        return self._parts() | self._activation_tensor()

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        activation = cls._activation_of(tensors)
        b, c, linear = tensors.get("b"), tensors.get("c", 0.0), tensors.get("linear")
        return cls(tensors["A"], tensors["U"], b, c, linear, activation=activation)

    def __repr__(self) -> str:
        skip = "" if self.linear is None else ", linear part"
        return f"Network(width={self.width}, neurons={self.neurons}, {self.activation.name}{skip})"


def _merged(inner: Array, outer: Array, affine: Array, activation: Activation) -> CanonicalNeurons:
    """Equal and reflected neurons become one; a neuron with a = 0 is a constant; one without weight is
    dropped."""
    sign = activation.reflection.sign
    flat = ~inner[:, :-1].any(axis=1)
    if flat.any():
        core = activation(inner[flat, -1]) + 0.5 * activation.reflection.slope * inner[flat, -1]
        affine[-1] += (core - 0.5 * activation.reflection.constant) @ outer[flat]
        inner, outer = inner[~flat], outer[~flat]
    if not activation.smooth:
        steep = np.linalg.norm(inner[:, :-1], axis=1)
        inner, outer = inner / steep[:, None], outer * steep[:, None]
    sizes = np.linalg.norm(inner, axis=1)
    kept: list[int] = []
    outer = outer.copy()
    for j in range(len(inner)):
        for k in kept:
            near = _SAME * max(sizes[j], sizes[k])
            same = np.linalg.norm(inner[j] - inner[k]) <= near
            if same or np.linalg.norm(inner[j] + inner[k]) <= near:
                outer[k] += outer[j] if same else sign * outer[j]
                break
        else:
            kept.append(j)
    inner, outer = inner[kept], outer[kept]
    strength = np.linalg.norm(outer, axis=1)
    there = strength > _NONE * np.max(strength, initial=0.0)
    return CanonicalNeurons(inner[there], outer[there], affine, sign)
