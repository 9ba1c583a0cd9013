"""What single rows show of a target that computes in float32: a ReLU network, checked on fresh rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.asking import local_rounding, stored_sequences, usual_size
from unsoftmax.learners.computed_network.find import FittedNetwork, find_network
from unsoftmax.ledger import Asker
from unsoftmax.models import Network, ReluNetwork
from unsoftmax.models.networks.canonical_network import CanonicalNetwork
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, Spread

__all__ = ["EXPLAINED", "OneRowNetwork", "learn_one_row", "refuse_what_no_fit_reaches"]

_LOOKED = 64  # rows at which rounding is measured
_FRESH = 256  # a deviation on 2 % of rows is met with 99 %: 1 - 0.98^256
# fresh deviations over the rounding, of which nearby rows share a part: right networks left 0.9 to 1.8, the
# most where rows are short
EXPLAINED = 3.0
# of the unit of the format: the last step alone rounds by so much; rows whose sums are exact show less
_LAST_STEP = 0.25
_DENSE = RefinementOptions(dense_limit=6000)


@dataclass(frozen=True)
class OneRowNetwork:
    """model: the canonical form. rounding: of answers to rows of size one."""

    model: ReluNetwork
    fitted: FittedNetwork
    rounding: float

    def draws(self, count: int, rng: np.random.Generator) -> Iterator[ReluNetwork]:
        """Networks as far off as the covariance of the fit says."""
        fit, inner = self.fitted.fit, self.fitted.inner
        spread = Spread.of(fit, inner, gauge=len(inner), options=_DENSE)
        for step in spread.draw(count, rng):
            yield _folded(fit.network(fit.moved(inner, step)), bool(inner[:, -1].any()))


def learn_one_row(asker: Asker, held: FloatFormat, rng: np.random.Generator) -> OneRowNetwork:
    """Raises Unresolved where rows are bounded, or neurons do not explain the answers to fresh rows."""
    refuse_what_no_fit_reaches(asker, held)
    sequences = stored_sequences(asker, held)

    def ask(points: Array) -> Array:
        return sequences(points[:, None]).reshape(-1, 1)

    def rounding(points: Array, answers: Array) -> float:
        some = points[:_LOOKED, None]
        seen = local_rounding(sequences, some, np.ones(len(some)), held, rng)
        return max(seen, _LAST_STEP * held.unit * rms(answers))

    with asker.phase("network"):
        found = find_network(ask, asker.width, rounding, rng)
    with asker.phase("fresh rows"):
        points = held.store(rng.standard_normal((_FRESH, asker.width)))
        answers = ask(points)
        noise = rounding(points, answers)
        fresh = usual_size(answers - found.fit.network(found.inner)(points)) / noise
    if max(fresh, found.left) > EXPLAINED:
        raise Unresolved(
            f"{len(found.inner)} neurons leave {max(fresh, found.left):.2g} times the rounding of the answers"
        )
    model = _folded(found.fit.network(found.inner), bool(found.inner[:, -1].any()))
    return OneRowNetwork(model, found, noise)


def refuse_what_no_fit_reaches(asker: Asker, held: FloatFormat) -> None:
    """Raises Unresolved behind arithmetic coarser than float32, vectors, and rows that are bounded.

    The same search with every constant in float16 recovered 8 of 12 networks of widths 3 to 6, two of them
    with bounds above 1, and one more with a bound that its error passed; in bfloat16 it met no kink in 12.
    """
    if held is not FloatFormat.FLOAT32:
        raise Unresolved(
            f"the target rounds to {held}, its answers or steps inside, which hides the kinks of a network; "
            "ReLU networks and Transformers are recovered from float32 or finer arithmetic, so ask a float32 "
            "copy of the target"
        )
    if asker.outputs is not None or asker.input_bound is not None:
        raise Unresolved(
            "networks that compute in float32 are recovered from one number per row, and rows of any size; "
            "ask a float64 copy of the target"
        )


def _folded(network: Network, biased: bool) -> ReluNetwork:
    """The canonical form, without biases and constant where there are none. network: with one output."""
    network = network.followed(np.ones(1))
    linear = np.zeros(network.width) if network.linear is None else network.linear
    b, c = (network.b, float(np.asarray(network.c))) if biased else (0.0 * network.b, 0.0)
    return ReluNetwork.from_folds(CanonicalNetwork.of_neurons(network.A, b, network.U, linear, c))
