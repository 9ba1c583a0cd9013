"""Smooth neurons on a sphere without derivatives: too many random neurons are fitted, then pruned.

With half as many neurons again as there are, a fit from a random start arrives at the rounding of the answers
(with just as many it does not). At such an end the true neurons are among those found, because translates and
dilations of one activation are independent; the others can be removed one by one at no loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models.parts import GELU, GELU_TANH, SILU, SOFTPLUS, TANH, Activation
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.joint_refinement import RefinementOptions, refine

__all__ = ["ACTIVATIONS", "expanded_network", "oriented", "points_needed", "pruned"]

ACTIVATIONS = (GELU, SILU, GELU_TANH, TANH, SOFTPLUS)
_SIZES = (24, 48, 96, 160)  # neurons that are tried; a fit needs about half as many again as there are
_SURPLUS = 3.0  # answers over unknowns: with 1.6 fits stopped at ten times the rounding, with 3 they arrived
_STARTS = 2
_STEEPNESS = 0.6  # |w| times |u|/√k of a start: activations bend at arguments of about one
_BIAS = 0.3
_EXPAND = RefinementOptions(
    iterations=60, damping=1e-2, least_damping=1e-8, improvement=1e-2, dense_limit=5200
)
# times the rounding that fits of right networks leave; wrong activations and missing neurons leave thousands
_ARRIVED = 30.0
_WORSE = 3.0  # times the residual before: what removing a neuron that is needed makes of it, at least


def points_needed(neurons: int, width: int, outputs: int) -> int:
    """Answers that fix so many neurons."""
    return int(_SURPLUS * neurons * (width + 1 + outputs) / outputs) + 4 * neurons


def expanded_network(
    points: Array,
    values: Array,
    explained: float,
    rng: np.random.Generator,
    activations: Sequence[Activation] = ACTIVATIONS,
) -> tuple[NetworkFit, Array]:
    """A fit that leaves no more than `explained`, with more neurons than there are. Sizes grow as far as the
    points allow."""
    k, m = points.shape[1], values.shape[1]
    size = float(np.median(np.linalg.norm(points, axis=1))) / np.sqrt(k)
    left: dict[str, float] = {}
    for neurons in _SIZES:
        if points_needed(neurons, k, m) > len(points):
            break
        for activation in activations:
            fit = NetworkFit(activation, points, values, skip=False)
            for _ in range(_STARTS):
                w = rng.standard_normal((neurons, k))
                w *= _STEEPNESS / size / np.linalg.norm(w, axis=1, keepdims=True)
                start = np.column_stack([w, _BIAS * rng.standard_normal(neurons)])
                found = refine(fit, start, _EXPAND)
                left[activation.name] = min(found.rms[-1], left.get(activation.name, np.inf))
                if found.rms[-1] <= explained:
                    return fit, found.state
    name = min(left, key=lambda each: left[each])
    raise Unresolved(
        f"up to {neurons} neurons of any known activation leave {left[name]:.1g} of the network's values "
        f"({name}), where rounding explains {explained:.1g}"
    )


def pruned(fit: NetworkFit, inner: Array, explained: float) -> Array:
    """Without the neurons that are not needed: the one that tells least goes first, all others are fitted
    again, until what is left grows."""
    while len(inner) > 1:
        features = fit.features(inner)
        gram = features.T @ features
        inverse = np.linalg.inv(gram + 1e-14 * np.trace(gram) * np.eye(len(gram)))
        weights = fit.weights(inner)[: len(inner)]
        cost = (weights**2).sum(axis=1) / np.diag(inverse)[: len(inner)]
        found = refine(fit, np.delete(inner, int(cost.argmin()), axis=0), _EXPAND)
        before = rms(fit.residual(inner))
        if found.rms[-1] > (explained if before <= explained else _WORSE * before):
            break
        inner = found.state
    return inner


def oriented(fit: NetworkFit, inner: Array) -> tuple[Array, Array, Array]:
    """(inner, outer (m, J + 1), linear (m, k)) with neurons reflected where that explains the linear part
    beside them; what is left of it is small."""
    J, weights = len(inner), fit.weights(inner)
    outer, linear, constant = weights[:J], weights[J:-1], weights[-1]  # (J, m), (k, m), (m,)
    reflection = fit.activation.reflection
    if reflection.slope == 0.0:
        return inner, np.vstack([outer, constant[None]]).T, linear.T
    columns = reflection.slope * np.einsum("ji,jm->imj", inner[:, :-1], outer).reshape(-1, J)
    flips = (np.linalg.lstsq(columns, linear.ravel(), rcond=1e-8)[0] > 0.5).astype(np.float64)
    linear = linear - (columns @ flips).reshape(linear.shape)
    constant = constant - (flips * (reflection.slope * inner[:, -1] + reflection.constant)) @ outer
    return inner * (1.0 - 2.0 * flips)[:, None], np.vstack([outer, constant[None]]).T, linear.T
