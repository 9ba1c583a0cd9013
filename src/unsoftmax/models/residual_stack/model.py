"""A pre-norm stack of networks: x <- x + path·norm(x), x <- x + network(norm(x)), layer after layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.late_scipy import linear_sum_assignment
from unsoftmax.models.base import as_batch
from unsoftmax.models.files.layered import LayeredModel
from unsoftmax.models.language_model.canonical import (
    all_layer_norms,
    canonical_network,
    fold_norm,
    without_mean,
)
from unsoftmax.models.language_model.distance import network_distance, relative
from unsoftmax.models.language_model.files import network_from, network_tensors, norm_from, norm_tensors
from unsoftmax.models.language_model.parts import FeedForward, GatedNetwork, Network
from unsoftmax.models.networks.row_network import leading_sign
from unsoftmax.models.parts import RELU, LayerNorm, Norm

__all__ = ["ResidualStack", "StackLayer"]

_FLOOR = 1e-3  # of an answer: what a row that the stack hardly changes is measured against


@dataclass(frozen=True, eq=False)
class StackLayer:
    """x <- x + path·path_norm(x), where there is a path, then x <- x + network(network_norm(x)).

    path: (d, d), what attention does to a row that attends to itself alone.
    """

    network_norm: Norm
    network: Network
    path_norm: Norm | None = None
    path: Array | None = None

    def __post_init__(self) -> None:
        d = self.network_norm.width
        if (self.path is None) != (self.path_norm is None):
            raise UsageError("a path needs its norm, and a norm of a path needs the path")
        if self.path is not None:
            object.__setattr__(self, "path", np.array(self.path, dtype=np.float64))
            assert self.path is not None
            if self.path.shape != (d, d) or not np.isfinite(self.path).all():
                raise UsageError(f"path must be a finite ({d}, {d}), not {self.path.shape}")
        read = self.network.gate if isinstance(self.network, GatedNetwork) else self.network.inner
        if read.shape[1] != d:
            raise UsageError(f"the network reads {read.shape[1]} columns, its norm has {d}")

    @property
    def norms(self) -> list[Norm]:
        """In the order in which they are applied."""
        return [self.network_norm] if self.path_norm is None else [self.path_norm, self.network_norm]

    def __call__(self, x: Array) -> Array:
        if self.path is not None and self.path_norm is not None:
            x = x + self.path_norm(x) @ self.path.T
        return np.asarray(x + self.network(self.network_norm(x)))


class ResidualStack(LayeredModel):
    """`StackLayer`s one after the other; a sequence is answered by its last row alone.

    final_norm: None where the stream itself is the answer. scale: a factor of the answer then.

    >>> from unsoftmax.models.residual_stack import random_residual_stack
    >>> stack = random_residual_stack(6, 4, layers=3, seed=1)
    >>> stack(np.ones((2, 1, 6))).shape, stack.distance(stack)
    ((2, 6), 0.0)
    """

    family: ClassVar[str] = "residual-stack"
    exact_at: float = 1e-8

    def __init__(
        self, layers: Sequence[StackLayer], final_norm: Norm | None = None, scale: float = 1.0
    ) -> None:
        self.layers = tuple(layers)
        self.final_norm = final_norm
        self.scale = float(scale)
        if not self.layers:
            raise UsageError("a stack has at least one layer")
        if not (np.isfinite(self.scale) and self.scale != 0.0):
            raise UsageError(f"scale must be a finite number other than 0, not {scale!r}")
        widths = {norm.width for norm in self.norms}
        if len(widths) != 1:
            raise UsageError(f"norms of widths {sorted(widths)} do not fit together")

    @property
    def norms(self) -> list[Norm]:
        """All norms in the order in which they are applied."""
        last = [] if self.final_norm is None else [self.final_norm]
        return [norm for layer in self.layers for norm in layer.norms] + last

    @property
    def width(self) -> int:
        return self.layers[0].network_norm.width

    @property
    def outputs(self) -> int:
        """As many as columns."""
        return self.width

    @property
    def neurons(self) -> list[int]:
        """Hidden units of every layer."""
        return [layer.network.neurons for layer in self.layers]

    @property
    def ranks(self) -> list[int]:
        return []

    @cached_property
    def parameters(self) -> int:
        """Degrees of freedom of the function; eps of the norms are not counted."""
        d = self.width
        lost = 1 if isinstance(self.layers[0].network_norm, LayerNorm) else 0
        count = 0 if self.final_norm is None else d + (0 if self.final_norm.bias is None else d)
        for layer in self.layers:
            m = layer.network.neurons
            gated = isinstance(layer.network, GatedNetwork)
            count += m * (2 * (d - lost) + d - 1) if gated else m * (2 * d - lost + 1) + d
            count += 0 if layer.path is None else d * (d - lost)
        return count

    def __call__(self, batch: Array, /) -> Array:
        x = as_batch(batch, self.width)[:, -1]
        for layer in self.layers:
            x = layer(x)
        return np.asarray(self.scale * x if self.final_norm is None else self.final_norm(x))

    def sensitivity(self, batch: Array) -> Array:
        """What the layers change of an answer; a thousandth of the answer where they change less."""
        x = as_batch(batch, self.width)[:, -1]
        empty = self.scale * x if self.final_norm is None else self.final_norm(x)
        answers = self(batch)
        changed = np.abs(answers - empty).max(axis=1)
        return np.asarray(np.maximum(changed, _FLOOR * np.abs(answers).max(axis=1)))

    def score_strength(self) -> float:
        """Rows of norm √d are of the size that the norms make."""
        return 1.0 / self.width

    def canonical(self) -> ResidualStack:
        """Norms of gain one and without bias before every sublayer, neurons in order, gauges fixed."""
        lost = self.final_norm is not None and all_layer_norms(self.norms)
        return ResidualStack(
            [_canonical_layer(layer, lost) for layer in self.layers], self.final_norm, self.scale
        )

    def distance(self, other: Self) -> float:
        """Largest relative difference of any part, up to the symmetries; infinite when shapes differ.

        eps of the first norm counts relative to itself. Later streams have about the size that the sublayers
        write, so there it counts relative to one.
        """
        self._same_family(other)
        one, two = self.canonical(), other.canonical()
        if [type(norm) for norm in one.norms] != [type(norm) for norm in two.norms]:
            return float("inf")
        pairs = list(zip(one.layers, two.layers, strict=True))
        if any(_shape(a) != _shape(b) for a, b in pairs):
            return float("inf")
        eps = np.array([[a.eps, b.eps] for a, b in zip(one.norms, two.norms, strict=True)])
        parts = [abs(one.scale / two.scale - 1.0), float(np.abs(eps[1:, 0] - eps[1:, 1]).max(initial=0.0))]
        parts.append(relative(eps[0, :1], eps[0, 1:]))
        for a, b in pairs:
            parts += [_network_distance(a.network, b.network), relative(a.path, b.path)]
        if one.final_norm is not None and two.final_norm is not None:
            parts.append(relative(one.final_norm.gain, two.final_norm.gain))
            parts.append(relative(one.final_norm.bias, two.final_norm.bias))
        return max(parts)

    def tensors(self) -> dict[str, Array]:
        last = self.final_norm
        out = {"scale": np.array(self.scale)} if last is None else norm_tensors("final_norm", last)
        for number, layer in enumerate(self.layers):
            name = f"layers.{number}."
            out |= norm_tensors(f"{name}network_norm", layer.network_norm)
            out |= network_tensors(name, layer.network)
            if layer.path is not None and layer.path_norm is not None:
                out |= norm_tensors(f"{name}path_norm", layer.path_norm) | {f"{name}path": layer.path}
        return out

    @classmethod
    def _check_widths(cls, shapes: Mapping[str, tuple[int, ...]]) -> None:
        widths = {shape for name, shape in shapes.items() if name.endswith(".gain")}
        if len(widths) > 1:
            raise ModelFileError(f"norms of shapes {', '.join(map(str, sorted(widths)))} do not fit together")

    @classmethod
    def _layer_from(cls, left: dict[str, Array], name: str) -> StackLayer:
        path = left.pop(f"{name}path", None)
        norm = None if path is None else norm_from(left, f"{name}path_norm")
        return StackLayer(norm_from(left, f"{name}network_norm"), network_from(left, name), norm, path)

    @classmethod
    def _model_from(cls, layers: list[StackLayer], left: dict[str, Array]) -> Self:
        final = norm_from(left, "final_norm") if any(n.startswith("final_norm.") for n in left) else None
        return cls(layers, final, float(left.pop("scale", 1.0)))

    def __repr__(self) -> str:
        return f"ResidualStack(width={self.width}, neurons={self.neurons})"


def _network_distance(one: Network, two: Network) -> float:
    """As for decoders; biases count relative to the weights beside them, because they may be zero."""
    if not isinstance(one, FeedForward) or not isinstance(two, FeedForward):
        return network_distance(one, two)
    read = [np.column_stack([each.inner, each.inner_bias]) for each in (one, two)]
    wrote = [np.column_stack([each.outer, each.outer_bias]) for each in (one, two)]
    square = ((read[0][:, None] - read[1][None]) ** 2).sum(axis=2)
    order = linear_sum_assignment(square)[1]
    columns = np.append(order, len(order))
    return max(relative(read[0], read[1][order]), relative(wrote[0], wrote[1][:, columns]))


def _shape(layer: StackLayer) -> tuple[type, str, int, bool]:
    network = layer.network
    return type(network), network.activation.name, network.neurons, layer.path is None


def _canonical_layer(layer: StackLayer, mean_lost: bool) -> StackLayer:
    norm, network = canonical_network(layer.network_norm, layer.network, mean_lost=mean_lost)
    if isinstance(network, FeedForward) and network.activation.reflection.sign < 0:
        network = _one_sign(network)
    if isinstance(network, FeedForward) and network.activation is RELU:
        network = _unit_arguments(network)
    if layer.path is None or layer.path_norm is None:
        return StackLayer(norm, network)
    path, shift = fold_norm(layer.path_norm, layer.path, None)
    if shift is not None:
        raise UsageError("the norm of a path has a bias; add it to the network's output bias")
    plain = type(layer.path_norm)(np.ones(layer.path_norm.width), None, layer.path_norm.eps)
    return StackLayer(norm, network, plain, without_mean(path) if mean_lost else path)


def _unit_arguments(network: FeedForward) -> FeedForward:
    """ReLU: a positive factor of an argument is one of what is written; weights and bias have norm one."""
    sizes = np.linalg.norm(np.column_stack([network.inner, network.inner_bias]), axis=1)
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    return replace(
        network,
        inner=network.inner / sizes[:, None],
        inner_bias=network.inner_bias / sizes,
        outer=network.outer * sizes,
    )


def _one_sign(network: FeedForward) -> FeedForward:
    """Odd activations: the largest entry of every inner row is positive; constants go to the output bias."""
    sign = leading_sign(network.inner)
    constant = network.activation.reflection.constant * (sign < 0.0)
    return replace(
        network,
        inner=sign[:, None] * network.inner,
        inner_bias=sign * network.inner_bias,
        outer=network.outer * sign,
        outer_bias=network.outer_bias + network.outer @ constant,
    )
