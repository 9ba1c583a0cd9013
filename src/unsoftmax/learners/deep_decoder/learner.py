"""A whole decoder of several layers from log-probabilities: one-row part, heads, then all together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.deep_decoder.decoder_fit import DecoderFit, DecoderState
from unsoftmax.learners.deep_decoder.parallel_heads import learn_parallel_heads
from unsoftmax.learners.deep_stack.find import find_stack
from unsoftmax.learners.deep_stack.joint import FoundStack
from unsoftmax.learners.deep_stack.stack_state import StackState
from unsoftmax.learners.language_model.one_layer import LanguageModelFindings
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.learners.language_model.unembedding import Unembedding
from unsoftmax.meters.deep.collapsed_attention import CollapsedAttention
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.prompts import Prompts
from unsoftmax.meters.language_model.zero_rows import check_window
from unsoftmax.models import LanguageModel, ResidualStack
from unsoftmax.models.language_model import Attention, DecoderLayer, GatedNetwork, Rotary
from unsoftmax.models.language_model.distance import attention_distance
from unsoftmax.models.parts import RMSNorm
from unsoftmax.outcomes import Status, Stop, Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["learn_deep_decoder", "may_be_deeper"]

# misfit of the unembedding relative to the logits: float64 leaves 1e-15, float32 1e-7, shorter formats 1e-3
_ROUNDED, _FLOAT32 = 1e-11, 2e-6
_TERMS = 6  # of the polynomial in s behind heads
_PRECISE = 1e-9  # rms misfit of fresh states up to which a part is taken as found
_SAFETY = 20.0  # the step's own error, and that of the fresh answers
_LENGTHS = (2, 3, 5, 16)  # long ones show planes that turn slowly
_ROW_SIZE = 2.0  # times e^±1: entries from 0.7 to 5.4, around and above those of unit rows
_SPARE = 2.0  # answers over unknowns
_OPTIONS = RefinementOptions(
    iterations=30, damping=1e-8, least_damping=1e-12, improvement=0.05, dense_limit=9000, repeat=0.1
)
_ONE_STEP = RefinementOptions(iterations=1, damping=1e-12, improvement=0.0, dense_limit=9000)


@dataclass(frozen=True)
class _States:
    """States of single rows. held: the short format in which the target computes."""

    state: HiddenState
    held: FloatFormat | None = None

    @property
    def width(self) -> int:
        return self.state.prompts.width

    def __call__(self, rows: Array, /) -> Array:
        return self.state((rows if self.held is None else self.held.store(rows))[:, None])


def may_be_deeper(first: LanguageModelFindings) -> bool:
    """Whether a decoder that is not of one layer answers in float32 or better, with an unembedding that shows
    all of a hidden state."""
    part = first.parts.get("unembedding")
    if first.model is not None or part is None or "value-path" in first.parts:
        return False
    known = part.value
    seen = isinstance(known, Unembedding) and isinstance(known.norm, RMSNorm)
    return seen and part.certificate.relative < _FLOAT32 and first.status is Status.OUTSIDE_CLASS


def learn_deep_decoder(
    prompts: Prompts, first: LanguageModelFindings, rng: np.random.Generator
) -> LanguageModelFindings:
    """All that can be told of a decoder of several layers, of which `first` knows the unembedding.

    However it ends, what was certified before is in the findings.
    """
    found = dict(first.parts)
    unembedding = found["unembedding"]
    matrix = unembedding.value
    assert isinstance(matrix, Unembedding)
    state = HiddenState(prompts, matrix.matrix)
    held = None if unembedding.certificate.relative < _ROUNDED else FloatFormat.FLOAT32
    try:
        with prompts.phase("layers of single rows"):
            stack = find_stack(_States(state, held), rng, normed=True)
        if not stack.believed:
            raise Unresolved(f"the joint fit of all layers leaves {stack.fresh:.2g} of fresh states")
        found["layers"] = _layers_part(stack)
        with prompts.phase("heads"):
            check_window(state, rng.spawn(1)[0])
        if held is not None:
            raise Unresolved(f"heads of several layers are not learned from answers in {held}")
        model, bound = _with_heads(prompts, state, matrix, stack.state, rng)
    except Stop as stop:
        return LanguageModelFindings(found, None, stop.status, stop.reason)
    bound = max(bound, found["layers"].error_bound, unembedding.error_bound)
    return LanguageModelFindings(found, model, Status.EXACT, "", bound)


def _layers_part(stack: FoundStack) -> RecoveredPart[ResidualStack]:
    value = stack.state.stack()
    error = stack.error()
    gauge = "order of neurons; one factor between up and down of each; gains of norms are folded in"
    return RecoveredPart("layers", value, error, gauge, PartCertificate(stack.fresh, 16, 1.0))


def _with_heads(
    prompts: Prompts,
    state: HiddenState,
    unembedding: Unembedding,
    stack: StackState,
    rng: np.random.Generator,
) -> tuple[LanguageModel, float]:
    """The whole model, and a bound on the error of its heads."""
    paths = [layer.path for layer in stack.layers]
    networks = [layer.network for layer in stack.layers]
    if any(path is None for path in paths) or not all(isinstance(n, GatedNetwork) for n in networks):
        raise Unresolved("no layer has a path that heads could share out")

    def together(n: Array) -> Array:
        return np.asarray(sum(network(n) for network in networks))

    with prompts.phase("heads"):
        scales = CollapsedLayer.measured(_States(state), rng, terms=_TERMS).scales
        outputs = CollapsedAttention(state, together, scales)
        start = learn_parallel_heads(outputs, np.array(paths), rng)
    eps = iter(stack.eps.tolist())
    ones = np.ones(stack.width)
    layers = []
    for attention, network in zip(start.attentions, networks, strict=True):
        first = RMSNorm(ones, None, next(eps))
        layers.append(DecoderLayer(first, attention, RMSNorm(ones, None, next(eps)), network))
    final = RMSNorm(ones, None, next(eps))
    begin = DecoderState(tuple(start.attentions), float(np.log(start.theta)))
    with prompts.phase("fit of heads"):
        fits = [_fit(state, tuple(layers), final, len(begin.flat), rng) for _ in range(2)]
    refined = refine(fits[0], begin, _OPTIONS)
    fresh = float(np.sqrt(np.mean(fits[1].residual(refined.state) ** 2)))
    if fresh > _PRECISE:
        raise Unresolved(
            f"the joint fit of all heads leaves {fresh:.2g} of fresh states; another seed may help"
        )
    again = refine(fits[1], refined.state, _ONE_STEP).state
    bound = max(
        attention_distance(*(_canonical(each) for each in pair), rotary=True)
        for pair in zip(refined.state.attentions, again.attentions, strict=True)
    )
    whole = [
        DecoderLayer(layer.attention_norm, part, layer.network_norm, layer.network)
        for layer, part in zip(layers, refined.state.attentions, strict=True)
    ]
    rotary = Rotary(float(np.exp(refined.state.log_theta)))
    return LanguageModel(whole, final, unembedding.matrix, rotary), _SAFETY * max(bound, fresh, EPS)


def _fit(
    state: HiddenState,
    layers: tuple[DecoderLayer, ...],
    final: RMSNorm,
    unknowns: int,
    rng: np.random.Generator,
) -> DecoderFit:
    d = final.width
    count = int(_SPARE * unknowns / d / len(_LENGTHS)) + 4
    prompts = [
        _ROW_SIZE
        * np.exp(rng.uniform(-1.0, 1.0, (count, length, 1)))
        * rng.standard_normal((count, length, d))
        for length in _LENGTHS
    ]
    return DecoderFit(layers, final.eps, prompts, np.concatenate([state(rows) for rows in prompts]))


def _canonical(part: Attention) -> Attention:
    """The same heads with their gauges fixed."""
    norm = RMSNorm(np.ones(part.width), None, 0.0)
    network = GatedNetwork(np.ones((1, part.width)), np.ones((1, part.width)), np.ones((part.width, 1)))
    layer = DecoderLayer(norm, part, norm, network)
    vocabulary = np.eye(2, part.width)
    return LanguageModel([layer], norm, vocabulary, Rotary()).canonical().layers[0].attention
