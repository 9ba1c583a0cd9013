"""The middle of a post-norm block: r(u) = P·g1∘u + network(u), found inside the ball, and what the last norm
makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.last_norm import LastNorm
from unsoftmax.learners.encoder_block.linear_part import column_gains, oriented_neurons
from unsoftmax.learners.relu_ball.find import find_relu_network
from unsoftmax.learners.smooth_network.asks import FunctionAsks
from unsoftmax.learners.smooth_network.find import find_network
from unsoftmax.models import Network
from unsoftmax.models.parts import Activation
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["Middle", "find_middle"]

SKIP_TEST = Test("the linear part beside the neurons is a gain of every column")

_BALL = 0.98  # of the radius of the first norm's output: how far out its inside is asked
_NOISE = 1e-11  # of r: rounding of answers over 1 - |n|²/d, which is about 1e-5 far out
# changes of slope that do not count, over the steepest: the last norm's sphere is known to 1e-12
_BENT = 1e-6
_LEFT = 1e-3  # of the linear part, which gains, reflections and neurons that are always on must explain
_EXACT = 1e-6  # of the linear part: what the right parts leave of it is 1e-8, because it is known so well


@dataclass(frozen=True)
class Middle:
    """gain: (d,). inner (J, k + 1), outer (k, J + 1): the network's layers. norm: the last norm, whose eps is
    one."""

    activation: Activation
    gain: Array
    inner: Array
    outer: Array
    norm: LastNorm

    def stream(self, u: Array) -> tuple[Array, Array]:
        """r (n, k), and its derivatives (n, k, k)."""
        basis = self.norm.basis
        skip = basis.T @ (self.gain[:, None] * basis)
        hidden = u @ self.inner[:, :-1].T + self.inner[:, -1]
        r = u @ skip + self.activation(hidden) @ self.outer[:, :-1].T + self.outer[:, -1]
        slopes = (self.outer[:, :-1] * self.activation.first(hidden)[:, None]) @ self.inner[:, :-1]
        return r, skip + slopes


def find_middle(
    answer: Callable[[Array], Array], norm: LastNorm, kinked: bool, radius: float, rng: np.random.Generator
) -> Middle:
    """From answers to points u inside the ball."""
    k = norm.basis.shape[1]
    asks = FunctionAsks(lambda u: norm.stream(answer(u)), k, k, _BALL * radius)
    if not kinked:
        return _oriented(find_network(asks, rng).network, norm, radius)
    probe = asks(0.9 * radius / np.sqrt(k) * np.sign(rng.standard_normal((8, k))))
    scale = float(np.abs(probe).max())
    unit = FunctionAsks(lambda u: asks(u) / scale, k, k, asks.radius)
    found = find_relu_network(unit, _NOISE, rng, faint=_BENT / radius).network
    return _oriented(found.followed(scale * np.eye(k)), norm, radius)


def _oriented(network: Network, norm: LastNorm, radius: float) -> Middle:
    """Reflections, gains and neurons that are on everywhere, which together explain the linear part."""
    basis, J = norm.basis, network.neurons
    d, k = basis.shape
    if d + (J if network.activation.reflection.slope else 0) > k * k:
        raise Unresolved(f"{J} neurons are too many to be oriented by a linear part of {k} by {k} numbers")
    linear = np.zeros((k, k)) if network.linear is None else network.linear
    weights = np.vstack([network.U, linear, np.asarray(network.c)[None]])
    inner = np.column_stack([network.A, network.b])
    found = oriented_neurons(network.activation, inner, weights, column_gains(basis), radius, _EXACT)
    if found.off > _LEFT:
        raise OutsideClass(
            SKIP_TEST, f"gains and neurons that are on everywhere leave {found.off:.2g} of the linear part"
        )
    return Middle(network.activation, found.gain, found.inner, found.outer, norm)
