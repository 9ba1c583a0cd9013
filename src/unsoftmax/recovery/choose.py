"""Which learner next? One choice for recover, plan, audit and defend, from what is known of the target.

A learner is imported where it is chosen: all of them take longer to import than one takes to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

from unsoftmax.answers import Answers, Subject, kinds
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners import Known, Learner
from unsoftmax.learners.one_head.checks import REPEAT_TEST
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.outcomes import OutsideClass, Stop, Unresolved

__all__ = ["AUTO", "LEARNERS", "Choice", "choose", "family_named", "learner_for_answers", "learner_named"]

AUTO = "auto"
_MAY_STOP_GROWING = (Family.TRANSFORMER, Family.RELU_NETWORK, Family.NETWORK)
_BITS = 48  # of every score, from true labels: four fewer than float64 has
_BITS_FLIPPED = 24  # from flipped labels, of which each bit costs several


def _theorem_4_1(probes: Literal["gaussian", "structured"]) -> Learner:
    from unsoftmax.learners.paper.theorem_4_1 import theorem_4_1

    return theorem_4_1(probes)


LEARNERS: dict[str, Callable[[], Learner]] = {  # those that need no fact about the target
    "theorem-4.1": lambda: _theorem_4_1("gaussian"),
    "theorem-4.1-structured": lambda: _theorem_4_1("structured"),
}


def learner_named(learner: Learner | str | None) -> Learner | None:
    """The learner itself, or the one of a name.

    >>> learner_named("theorem-4.1").claim.queries.formula
    'd + d^2'
    """
    if not isinstance(learner, str):
        return learner
    if learner not in LEARNERS:
        names = ", ".join(LEARNERS)
        raise UsageError(
            f"there is no learner {learner!r} by that name; choose from {names}, or pass a learner object "
            "such as unsoftmax.theorem_5_1(rank, C)"
        )
    return LEARNERS[learner]()


@dataclass(frozen=True)
class Choice:
    """A learner to try. after: how the one before it must have ended."""

    learner: Learner
    after: tuple[type[Stop], ...] = (OutsideClass,)


def family_named(name: str) -> Family | None:
    """The family that a user asks for; None for 'auto'.

    >>> family_named("multi-head"), family_named("auto")
    (<Family.MULTI_HEAD: 'multi-head'>, None)
    """
    if name == AUTO:
        return None
    if name not in list(Family):
        raise UsageError(f"there is no family {name!r}; choose one of {', '.join((AUTO, *Family))}")
    return Family(name)


def choose(known: Known, wanted: Family | None) -> Iterator[Choice]:
    """Learners in the order in which to try them; those that a failed test rules out are left out.

    wanted: the family that the user asks for; None to find out.

    >>> [type(choice.learner).__name__ for choice in choose(Known(), None)]
    ['SingleHeadLearner', 'MultiHeadLearner', 'TransformerLearner']
    """
    inside = (
        known.answers.inner if isinstance(known.answers, kinds.Clipped) and known.bends else known.answers
    )
    if isinstance(inside, kinds.Computed) and (known.bends or wanted is Family.ENCODER_BLOCK):
        yield from _for_computed(inside, known, wanted)  # limits are flat pieces of a function that bends
        return
    if isinstance(known.answers, kinds.Computed) and wanted in (None, Family.SINGLE_HEAD, Family.MULTI_HEAD):
        yield Choice(learner_for_answers(known.answers))
        return
    if known.outputs is not None:
        yield from _for_vectors(known, wanted)
        return
    match known.answers:
        case None | kinds.Exact() | kinds.Constant():
            yield from _for_exact(known, wanted)
        case kinds.Unsteady():
            raise OutsideClass(REPEAT_TEST, _evidence(known))
        case kinds.Stored(FloatFormat.FLOAT32) if wanted in (None, Family.MULTI_HEAD):
            # several heads know by themselves how well float32 answers tell
            if wanted is None:
                yield Choice(learner_for_answers(known.answers))
            yield Choice(_learner_of(Family.MULTI_HEAD))
        case kinds.Clipped(inner=kinds.Exact() | kinds.Constant()) if wanted in (None, *_MAY_STOP_GROWING):
            # exact answers that stop growing are a clipped head, a ReLU network with flat pieces, or a sum of
            # activations that saturate
            if wanted is None and known.max_length != 1:
                yield Choice(learner_for_answers(known.answers))
            usual = Family.RELU_NETWORK if known.max_length == 1 else Family.TRANSFORMER
            yield Choice(_learner_of(wanted or usual), (OutsideClass, Unresolved))
        case _ if wanted not in (None, Family.SINGLE_HEAD):
            raise Unresolved(
                f"answers carry errors ({known.answers.name}), and the family '{wanted}' is only recovered "
                "from exact ones; ask a target without them"
            )
        case _:
            yield Choice(learner_for_answers(known.answers))


def _for_computed(answers: kinds.Computed, known: Known, wanted: Family | None) -> Iterator[Choice]:
    """Functions that bend, whose steps round."""
    if known.outputs is None and (known.max_length == 1 or wanted is Family.RELU_NETWORK):
        from unsoftmax.learners.computed_network.learner import ComputedNetworkLearner

        yield Choice(ComputedNetworkLearner(answers.format))
        return
    if known.outputs is None and wanted in (None, Family.TRANSFORMER):
        from unsoftmax.learners.computed_transformer.learner import ComputedTransformerLearner

        yield Choice(ComputedTransformerLearner(answers.format))
        return
    if known.outputs is None or wanted not in (None, Family.ENCODER_BLOCK, Family.NETWORK):
        raise Unresolved(
            f"the target is {answers.name}, and single rows are not answered affinely; of such targets ReLU "
            "networks, one-layer Transformers, and encoder blocks and deep stacks that answer with one "
            "row, are recovered. Float64 arithmetic would help"
        )
    if wanted is not Family.ENCODER_BLOCK:
        from unsoftmax.learners.deep_stack.learner import DeepStackLearner

        yield Choice(DeepStackLearner())  # a few queries say whether it is one
        if wanted is Family.NETWORK or known.max_length == 1:
            return
    from unsoftmax.learners.computed_block.learner import ComputedBlockLearner

    yield Choice(ComputedBlockLearner(answers.format))


def _for_vectors(known: Known, wanted: Family | None) -> Iterator[Choice]:
    """Heads first; then a stack whose rows do not see each other, and a whole block, whose single rows are
    not answered affinely."""
    from unsoftmax.learners.deep_stack.learner import DeepStackLearner
    from unsoftmax.learners.encoder_block.learner import EncoderBlockLearner
    from unsoftmax.learners.relu_network.vector_learner import VectorReluLearner
    from unsoftmax.learners.smooth_network.learner import GatedNetworkLearner, SmoothNetworkLearner
    from unsoftmax.learners.vector_answers import VectorOutputsLearner

    if known.max_length == 1 or wanted is Family.NETWORK:
        yield Choice(VectorReluLearner())  # a few queries say whether it is one
        yield Choice(DeepStackLearner())  # and here
        yield Choice(SmoothNetworkLearner(), (OutsideClass, Unresolved))
        yield Choice(GatedNetworkLearner(), (OutsideClass, Unresolved))
        return
    if wanted is not Family.ENCODER_BLOCK:
        yield Choice(VectorOutputsLearner())
    if wanted is None:
        yield Choice(DeepStackLearner())
    if wanted in (None, Family.ENCODER_BLOCK):
        yield Choice(EncoderBlockLearner())


def _for_exact(known: Known, wanted: Family | None) -> Iterator[Choice]:
    if wanted is not None:
        yield Choice(_learner_of(wanted))
        return
    if known.max_length == 1:  # single rows only: there is no attention to see
        yield Choice(_learner_of(Family.RELU_NETWORK))
        return
    order = [Family.SINGLE_HEAD, Family.MULTI_HEAD, Family.TRANSFORMER]
    if known.bends:
        order = [Family.TRANSFORMER, Family.SINGLE_HEAD, Family.MULTI_HEAD]
    elif known.look is not None and known.look.guess is Family.MULTI_HEAD:
        order.remove(Family.SINGLE_HEAD)
    yield from (Choice(_learner_of(family)) for family in order if not known.rules_out(family))


def _learner_of(family: Family) -> Learner:
    match family:
        case Family.SINGLE_HEAD:
            return SingleHeadLearner()
        case Family.MULTI_HEAD:
            from unsoftmax.learners.several_heads import MultiHeadLearner

            return MultiHeadLearner()
        case Family.TRANSFORMER:
            from unsoftmax.learners.transformer import TransformerLearner

            return TransformerLearner()
        case Family.RELU_NETWORK:
            from unsoftmax.learners.relu_network.learner import ReluNetworkLearner

            return ReluNetworkLearner()
        case Family.NETWORK:
            from unsoftmax.learners.smooth_network.learner import SmoothNetworkLearner

            return SmoothNetworkLearner()
        case Family.ENCODER_BLOCK:
            from unsoftmax.learners.encoder_block.learner import EncoderBlockLearner

            return EncoderBlockLearner()
        case _:
            raise UsageError(f"the family '{family}' is not recovered from rows and numbers")


def learner_for_answers(answers: Answers) -> Learner:
    """The learner of one head for a kind of answers.

    >>> learner_for_answers(kinds.Rounded(2))
    RoundedLearner(decimals=2)
    """
    match answers:
        case kinds.Exact() | kinds.Constant():
            return SingleHeadLearner()
        case kinds.Clipped(bounds, inner):
            from unsoftmax.learners.one_head.clipped import ClippedLearner

            return ClippedLearner(bounds, learner_for_answers(inner))
        case kinds.Noisy(sigma):
            from unsoftmax.learners.one_head.noisy import NoiseLearner

            return NoiseLearner(sigma)
        case kinds.Rounded(decimals):
            from unsoftmax.learners.one_head.rounded import RoundedLearner

            return RoundedLearner(decimals)
        case kinds.Labels(flip, middle):
            from unsoftmax.learners.one_head.labels import LabelLearner

            return LabelLearner(_BITS_FLIPPED if flip else _BITS, flip, middle)
        case kinds.Stored(short):
            from unsoftmax.learners.one_head.low_precision import LowPrecisionLearner

            return LowPrecisionLearner(short)
        case kinds.Computed(short):
            from unsoftmax.learners.computed.learner import ComputedHeadsLearner

            return ComputedHeadsLearner(short)
        case kinds.Within(tau):
            from unsoftmax.learners.one_head.within_tolerance import ToleranceLearner

            return ToleranceLearner(tau)
        case kinds.Unsteady():
            raise OutsideClass(REPEAT_TEST, "answers change as time goes on")
        case _:
            assert_never(answers)


def _evidence(known: Known) -> str:
    return next((finding.evidence for finding in known.findings if finding.subject == Subject.ANSWERS), "")
