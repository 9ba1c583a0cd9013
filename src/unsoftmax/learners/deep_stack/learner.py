"""The learner of pre-norm stacks of networks behind single rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unsoftmax.answers import Computed
from unsoftmax.arrays import EPS, Array, shortened
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat, smallest_format
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.deep_stack.find import find_stack
from unsoftmax.learners.deep_stack.stack_state import StackState
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.ledger import Asker
from unsoftmax.meters.deep.last_norm import LastNorm, StreamAnswers, read_last_norm
from unsoftmax.meters.deep.sphere_curvature import curvature_queries
from unsoftmax.models.language_model.parts import FeedForward, Network
from unsoftmax.models.parts import LayerNorm, RMSNorm
from unsoftmax.models.residual_stack import ResidualStack, StackLayer
from unsoftmax.outcomes import OutsideClass, Test, Unresolved, UnresolvedByAny

__all__ = ["DeepStackLearner", "whole_stack"]

ROW_TEST = Test("the last row alone is answered, with as many numbers", frozenset())
_OTHER_ROWS = 1e-12  # of an answer: what rows before the last one may change
_OTHER_ROWS_ROUNDED = 1e-5  # the same where steps round: other rows may change the order of sums


def _queries(size: Size) -> int:
    d, J = size.width, max(size.neurons, 1)
    return curvature_queries(4.2 * J + 2, d) + 40 * J * (J + 2 * d) // d + 400 * d + 6000


_CLAIM = Claim(
    title="A deep pre-norm stack of networks: depth collapses at large scale",
    source="this library; docs/depth.md",
    assumptions=(
        Assumption("rows of any size may be sent", "two sizes of huge rows are answered alike"),
        Assumption("sublayers see normed rows and add to a stream", "huge rows arrive as they are"),
        Assumption("answers are exact up to rounding", "readings at neighbouring scales agree"),
        Assumption("one known activation, smooth or ReLU", "second derivatives, or kinks, fit one"),
        Assumption("all neurons fit beside each other", "second derivatives do not fill all forms"),
    ),
    queries=QueryCount("12 q⁴/(d - q) + 40 J(J + 2d)/d + 400 d + 6000, q² = 4.2 J", "upper", _queries),
    recovers="depth, widths, activation, all weights and biases, eps, the final norm",
    symmetry="order of neurons; a factor between up and down of gated ones; gains folded in",
)


@dataclass(frozen=True)
class DeepStackLearner:
    """Recovers h <- h + f_l(norm(h)), l = 1..L, from the last stream of single rows.

    Claim: exact in float64, up to its own rounding in float32. Queries: about 3,200 for L=2, d=16, 12 GELU
    neurons a layer; second differences set the price. Assumes: see `claim`. Recovers: L, the neurons of every
    layer, its activation, eps of all norms and the final norm; plain networks (GELU, SiLU, tanh, softplus,
    ReLU) with biases, gated ones (SwiGLU, GEGLU) with or without a linear path before each. Fails when: rows
    cannot be long, layers have different activations, or L·m exceeds about 0.15·d² gated or 0.3·d² smooth
    plain neurons (all UNRESOLVED).
    """

    family: ClassVar[Family] = Family.NETWORK
    claim: ClassVar[Claim] = _CLAIM

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        rng = rng.spawn(1)[0]  # later learners draw what they would have drawn without this one
        held = known.answers.format if isinstance(known.answers, Computed) else None
        _refuse_coarse(asker, held)
        answers = _RowAnswers(asker, held)
        if asker.outputs != asker.width:
            raise OutsideClass(ROW_TEST, f"{asker.outputs} numbers for rows of {asker.width} columns")
        with asker.phase("final norm"):
            answers.check_alone(rng)
            bound = np.inf if asker.input_bound is None else asker.input_bound
            last = read_last_norm(answers, asker.width, rng, bound)
        stream = StreamAnswers(answers, last, asker.width, held)
        try:
            return self._whole(asker, stream, rng, bound)
        except (OutsideClass, Unresolved) as stop:
            # no other network answers long rows by their direction alone
            ends = isinstance(stop, Unresolved) and last.norm is not None
            kept = UnresolvedByAny(stop.reason) if ends else stop
            raise kept.with_parts({"final-norm": _part(last)}) from None

    def _whole(self, asker: Asker, stream: StreamAnswers, rng: np.random.Generator, bound: float) -> Learned:
        last = stream.last
        if last.centred and last.norm is None:
            raise Unresolved(
                "norms without mean before a stream that is answered with its mean are not learned"
            )
        with asker.phase("stack"):
            found = find_stack(stream, rng, normed=last.norm is not None, bound=bound)
        if not found.believed:
            raise Unresolved(
                f"the joint fit of all layers leaves {found.fresh:.2g} of fresh answers, which are exact to "
                f"{found.allowed:.1g}; another seed may start it elsewhere"
            )

        def whole(state: StackState) -> ResidualStack:
            return whole_stack(state, stream, last)

        note = ""
        if stream.held is not None:
            note = f"computed in {stream.held}: the error bound holds with 99 % confidence"
        return Learned(whole(found.state), self.claim, error_bound=found.error(whole), note=note)


def _refuse_coarse(asker: Asker, held: FloatFormat | None) -> None:
    """Ends where numbers have too few digits for second derivatives, as far as answers until now show it."""
    seen = [np.ravel(answer) for _, answer in asker.early_queries]
    used = held or (smallest_format(np.concatenate(seen)) if seen else None)
    if used not in (None, FloatFormat.FLOAT32):
        raise Unresolved(
            f"a deep stack that answers in {used} is not recovered; ask the same stack in float32 or float64 "
            "(torch: module.double())"
        )


def _part(last: LastNorm) -> RecoveredPart[LastNorm]:
    """What follows the last layer, which is certain even where the layers are not."""
    certificate = PartCertificate(last.misfit, 2, 1.0)
    bound = 4.0 * max(last.misfit, EPS)
    return RecoveredPart("final-norm", last, bound, "eps of the norm", certificate)


@dataclass(frozen=True)
class _RowAnswers:
    """Rows (B, d) as sequences of one row, in batches."""

    asker: Asker
    held: FloatFormat | None

    def __call__(self, rows: Array, /) -> Array:
        rows = rows if self.held is None else self.held.store(rows)
        size = self.asker.batch_size(1)
        parts = [self.asker.ask(rows[i : i + size, None]) for i in range(0, len(rows), size)]
        return np.concatenate(parts)

    def check_alone(self, rng: np.random.Generator) -> None:
        """Refuses targets whose other rows matter."""
        if self.asker.max_length == 1:
            return
        rows = shortened(rng.standard_normal((1, 2, self.asker.width)), self.asker.input_bound)
        alone, beside = self.asker.ask(rows[:, 1:]), self.asker.ask(rows)
        off = float(np.abs(alone - beside).max() / max(np.abs(alone).max(), 1e-300))
        if not off <= (_OTHER_ROWS if self.held is None else _OTHER_ROWS_ROUNDED):
            raise OutsideClass(ROW_TEST, f"a row before the last one changes {off:.2g} of the answer")


def whole_stack(state: StackState, stream: StreamAnswers, last: LastNorm) -> ResidualStack:
    """The model of all columns: LayerNorms and the gain and bias of the final norm are put back."""
    found = state.stack()
    d, k = stream.columns, stream.width
    kind = LayerNorm if last.centred else RMSNorm
    read = np.sqrt(k / d) * stream.basis  # (d, k): what LayerNorm shows of n, as the smaller norm shows it
    eps = iter([norm.eps * k / d for norm in found.norms])
    layers = []
    for layer in found.layers:
        path = None if layer.path is None else stream.basis @ layer.path @ read.T
        first = None if path is None else kind(np.ones(d), None, next(eps))
        norm = kind(np.ones(d), None, next(eps))
        layers.append(StackLayer(norm, _lifted(layer.network, stream.basis, read), first, path))
    final = None
    if last.norm is not None:
        final = kind(last.norm.gain, last.norm.bias, next(eps))
    return ResidualStack(layers, final, last.scale)


def _lifted(network: Network, basis: Array, read: Array) -> Network:
    if isinstance(network, FeedForward):
        return replace(
            network,
            inner=network.inner @ read.T,
            outer=basis @ network.outer,
            outer_bias=basis @ network.outer_bias,
        )
    return replace(network, gate=network.gate @ read.T, up=network.up @ read.T, down=basis @ network.down)
