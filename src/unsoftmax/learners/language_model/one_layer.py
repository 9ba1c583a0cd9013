"""The whole of a one-layer decoder of Llama's shape, stage by stage, with a part for everything that was
certified on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.families import Family
from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.learners.language_model.attention_fit import DENSE, AttentionFit
from unsoftmax.learners.language_model.attention_pass import AttentionState, Prompted
from unsoftmax.learners.language_model.gated_network import learn_gated_network
from unsoftmax.learners.language_model.heads import learn_heads
from unsoftmax.learners.language_model.one_row_fit import OneRowFit, OneRowState, states_of_rows
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.learners.language_model.plain_layer import PlainLayer
from unsoftmax.learners.language_model.slow_planes import settle_slow_planes
from unsoftmax.learners.language_model.stages import LayerStages
from unsoftmax.learners.language_model.unembedding import Unembedding, UnembeddingLearner
from unsoftmax.meters.language_model.attention_outputs import AttentionOutputs
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.network_values import NetworkValues
from unsoftmax.meters.language_model.precision import measure_precision, rows_are_rounded
from unsoftmax.meters.language_model.prompts import Prompts, in_float32
from unsoftmax.meters.language_model.value_path import COPIED_ROWS, ValuePath, measure_value_path
from unsoftmax.meters.language_model.zero_rows import check_biases, check_window
from unsoftmax.models.language_model import Attention, DecoderLayer, LanguageModel, Rotary
from unsoftmax.models.language_model.distance import attention_distance, network_distance, relative
from unsoftmax.models.parts import RMSNorm
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Status, Stop, Test, Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, likely_errors, refine

__all__ = ["LanguageModelFindings", "learn_language_model"]

_ONE_LAYER = frozenset({Family.LANGUAGE_MODEL})
_DEPTH_TEST = Test("one layer of attention and a network", _ONE_LAYER)

_ROUNDED = 1e-11  # misfit of the unembedding relative to the logits; float64 leaves 1e-15, float32 1e-7
_WORST_CONDITION = 1e8  # of the unembedding: beyond, half of the digits of a hidden state are lost
# misfit of the size of the value path: two layers leave more than 1e-2, one layer 1e-9 in float64 and, in
# float32, 1e-4 to 3e-3
_VALUE_PATH, _SHORT_VALUE_PATH = 1e-3, 1e-2
_SHORTEST = 5e-6  # noise of a state that the steps of all stages are tried with; float32 has 2e-7 to 1e-6
# answers over unknowns in a fit. A fit to noise predicts fresh answers worse than it fits its own: with n
# times as many answers as unknowns by 1/√(n - 1) of the noise, which is all of it at 2, and a third where
# two fits of 6 are joined
_SPARE, _SHORT_SPARE = 2.0, 6.0
# of the rows of a fit, which vary by e in both directions: attention and network write about as much as that
_ROW_SIZE = 2.0
_PROMPT_SIZES = 0.1, 3.0  # of rows of prompts: beside small ones what attention adds is most of the state
# starts of the network: a wrong one ends at a tenth of a state or more, and the next one may be right
_STARTS = 2
# rms misfit of a state that only the right activation of gates leaves after the first fit, and the same in
# units of the measured noise: GELU and its tanh form differ by 1e-4 of a state
_RIGHT, _RIGHT_NOISE = 1e-6, 10.0
_EPS_OF_NORMS = (1e-20, 1.0)  # a fit that runs away leaves them, and its rows must stay finite
_ALIKE = 1e-2  # relative difference of the turns of neighbouring planes below which they mix freely
_SMALL_ROWS = 6  # every sixth row of a fit is small enough to show eps
_LENGTHS = (2, 3, 6, 24)  # 2 rows show a score, 3 the next distance, 24 the slow planes of rotary positions
_FRESH_LENGTHS = (2, 4, 9, 30)  # 4, 9 and 30 rows are lengths that the fit did not see
_FRESH = 16  # prompts a length; each answer holds d - 1 numbers, so that 16 see every direction
_FITTED = 1e-9  # largest misfit of a fresh state that counts as recovered; float64 leaves 1e-13
# the same in units of the measured noise: where a row nearly cancels what attention adds, rounding is ten
# times larger
_FITTED_NOISE = 100.0
_SAFETY = 4.0  # of the difference of two fits to different prompts, as a bound on the error of either
# tilts of all states, and their size over the rounding: with a base of 1e7 tilts of the rounding's own size
# told a third of the error of one model of four, and in usual models bounds stay far below 1e-10
_TILTS, _TILT = 3, 4.0
# size T of the last row over the norm of the value path, for attention outputs: eps of the norm adds eps/T,
# rounding T², and
# at this eps both are below 1e-8
_NEAR, _USUAL_EPS = 6.0, 1e-6
_SHORT_NEAR = 1.5  # the same where rounding counts more than eps: the least at which the output is found

# a start may have to follow a bent valley for a while: eight steps lowered the misfit by a third or more, and
# one by a fifth, before it fell to rounding
_FIRST = RefinementOptions(
    dense_limit=DENSE,
    iterations=30,
    damping=1e-6,
    least_damping=1e-14,
    improvement=0.05,
    inner_iterations=300,
    inner_tolerance=1e-6,
)
_LAST = RefinementOptions(
    dense_limit=DENSE,
    iterations=8,
    damping=1e-12,
    least_damping=1e-14,
    improvement=0.5,
    inner_iterations=2000,
    inner_tolerance=1e-7,
)
# steps need no more digits than answers have
_SHORT_ROWS = replace(_LAST, inner_iterations=400, inner_tolerance=1e-4)
# planes that hardly turn change the residual by little, and count: a fit that stops before they are where
# its answers put them differs too little from another one, and their difference is the bound
_SHORT_HEADS = replace(_SHORT_ROWS, iterations=60, improvement=1e-5)
# of planes that a first fit to float64 left mixed: damping hides how little they turn
_SETTLING = replace(_FIRST, iterations=12, damping=1e-10)
# the first steps of heads come from starts that are a few per cent off: short ones, solved roughly
_SHORT_SETTLING = replace(
    _SHORT_ROWS, iterations=12, damping=1e-4, least_damping=1e-5, inner_iterations=150, inner_tolerance=1e-3
)


@dataclass(frozen=True)
class LanguageModelFindings:
    """parts: by name. model: the whole, or None; status and reason then say why not."""

    parts: Mapping[str, RecoveredPart[object]] = field(default_factory=dict)
    model: LanguageModel | None = None
    status: Status = Status.UNRESOLVED
    reason: str = ""
    error_bound: float | None = None


def learn_language_model(prompts: Prompts, rng: np.random.Generator) -> LanguageModelFindings:
    """All that can be told of a decoder that takes rows and answers with log-probabilities.

    However it ends, what was certified before is in the findings.
    """
    parts: dict[str, RecoveredPart[object]] = {}
    try:
        found = UnembeddingLearner().learn_part(prompts, rng)
        parts["unembedding"] = found
        layer = _layer_of(prompts, found, rng, parts)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # of steps that fits take back
            model, bound = layer.learn()
    except Stop as stop:
        return LanguageModelFindings(parts, None, stop.status, stop.reason)
    except NonFiniteAnswers as fault:  # the same prompts would end every further run
        return LanguageModelFindings(parts, None, Status.UNRESOLVED, str(fault))
    status = Status.WITHIN_BOUND if layer.precision.short else Status.EXACT
    return LanguageModelFindings(parts, model, status, "", bound)


def _layer_of(
    prompts: Prompts,
    found: RecoveredPart[Unembedding],
    rng: np.random.Generator,
    parts: dict[str, RecoveredPart[object]],
) -> _OneLayer | PlainLayer:
    """Llama's shape behind an RMSNorm, GPT-2's behind a LayerNorm."""
    if isinstance(found.value.norm, RMSNorm):
        return _OneLayer(prompts, found, rng, parts)
    return PlainLayer(prompts, found, rng, parts)


class _OneLayer(LayerStages):
    """The stages after the unembedding."""

    @property
    def _spare(self) -> float:
        return _SHORT_SPARE if self.precision.short else _SPARE

    def learn(self) -> tuple[LanguageModel, float]:
        state = HiddenState(self.prompts, self.unembedding.matrix)
        if state.conditioning > _WORST_CONDITION:
            raise NotIdentifiable(
                f"the unembedding of {len(self.unembedding.matrix)} tokens has no full rank "
                f"{self.unembedding.width}, so hidden states are seen in part only"
            )
        with self.prompts.phase("precision"):
            rounded = rows_are_rounded(self.prompts, self.rng)
        if rounded or self.first.certificate.relative > _ROUNDED:
            self._measure(state)
        with self.prompts.phase("precision"):
            check_biases(state)
        rows, rows_bound = self._one_row(state)
        attention, theta, heads_bound = self._heads(state, rows, rows_bound)
        eps = np.exp(rows.log_eps)
        ones = np.ones(len(rows.value_path))
        layer = DecoderLayer(
            RMSNorm(ones, None, float(eps[0])), attention, RMSNorm(ones, None, float(eps[1])), rows.network
        )
        model = LanguageModel(
            [layer], RMSNorm(ones, None, float(eps[2])), self.unembedding.matrix, Rotary(theta)
        )
        return model, max(rows_bound, heads_bound, self.first.error_bound)

    def _measure(self, state: HiddenState) -> None:
        with self.prompts.phase("precision"):
            self.precision = measure_precision(state, self.rng)
        if self.precision.noise > _SHORTEST:
            raise Unresolved(
                f"hidden states carry errors of {self.precision.noise:.1g}; the stages after the unembedding "
                f"need {_SHORTEST:.0g}, which float32 gives and shorter arithmetic does not"
            )

    def _one_row(self, state: HiddenState) -> tuple[OneRowState, float]:
        """Value path, network and eps, from prompts that show no scores."""
        with self.prompts.phase("value path"):
            path = measure_value_path(state, self.rng, self.precision)
        if path.misfit > (_SHORT_VALUE_PATH if self.precision.short else _VALUE_PATH):
            with self.prompts.phase("value path"):
                check_window(state, self.rng, COPIED_ROWS)
            raise OutsideClass(
                _DEPTH_TEST,
                f"the size of the value path is {path.misfit:.2g} off between prompts that must agree; is "
                "the model deeper?",
            )
        thin, last = (int(self._spare / _SPARE), _SHORT_ROWS) if self.precision.short else (1, _LAST)
        fits: list[OneRowFit] = []
        halves: list[OneRowState] = []
        for _ in range(_STARTS):
            starts = self._network_starts(state, path)
            if not fits:
                with self.prompts.phase("fit of network and value path"):
                    fits = [self._row_fit(state, starts[0]) for _ in range(2)]
            rough = self._best_start(fits[0], fits[0].thinned(thin), starts)
            halves = [refine(fit, rough, last).state for fit in fits]
            if rms(fits[0].residual(halves[0])) < self._allowed:
                break
        found = halves[0]
        if self.precision.short:
            found = refine(OneRowFit.joined(fits), found, last).state
        certificate = self._judge_rows(state, found)
        bounds = {
            "value-path": relative(halves[0].value_path, halves[1].value_path),
            "network": network_distance(*(each.network for each in halves)),
            "eps": float(np.abs(halves[0].log_eps - halves[1].log_eps).max()),
        }
        bounds = {name: self._bound(difference) for name, difference in bounds.items()}
        gauge = "order of neurons; one factor between up and down of each; gains of norms are folded in"
        self.keep(
            "value-path",
            found.value_path,
            bounds["value-path"],
            "none; the gain of the first norm is folded in",
            certificate,
        )
        self.keep("network", found.network, bounds["network"], gauge, certificate)
        self.keep("eps", np.exp(found.log_eps), bounds["eps"], "none", certificate)
        return found, max(bounds.values())

    def _network_starts(self, state: HiddenState, path: ValuePath) -> list[OneRowState]:
        """One for every activation of gates, the likeliest first."""
        with self.prompts.phase("network"):
            values = NetworkValues(state, path.matrix, path.first_eps)
            found = learn_gated_network(values, self.prompts.width, self.rng, self.precision)
        log_eps = np.log([path.first_eps, path.first_eps, path.last_eps])
        return [OneRowState(path.matrix, n.gate, n.up, n.down, log_eps, n.activation) for n, _ in found]

    def _best_start(self, fit: OneRowFit, thinned: OneRowFit, starts: list[OneRowState]) -> OneRowState:
        """The first start that a fit brings as near as only the right activation comes, or the nearest of
        all."""
        found = []
        for start in starts:
            rough = refine(thinned, start, _FIRST).state
            found.append((rough, rms(fit.residual(rough))))
            if found[-1][1] <= max(_RIGHT, _RIGHT_NOISE * self.precision.noise):
                break
        return min(found, key=lambda pair: pair[1])[0]

    def _row_fit(self, state: HiddenState, start: OneRowState) -> OneRowFit:
        rows = self._rows(
            int(self._spare * start.unknowns / (self.prompts.width - 1)) + 8, float(np.exp(start.log_eps[0]))
        )
        return OneRowFit(rows, state(rows[:, None, :]))

    def _rows(self, count: int, eps: float) -> Array:
        """Rows of the sizes that attention and network see, and some small enough to show eps."""
        sizes = _ROW_SIZE * np.exp(self.rng.uniform(-1.0, 1.0, count))
        small = count // _SMALL_ROWS
        smallest = 0.01 * float(np.clip(eps, *_EPS_OF_NORMS))
        sizes[:small] = np.exp(self.rng.uniform(np.log(smallest), 1.0, small))
        return in_float32(sizes[:, None] * self.rng.standard_normal((count, self.prompts.width)))

    def _judge_rows(self, state: HiddenState, found: OneRowState) -> PartCertificate:
        fresh = self._rows(2 * _FRESH, float(np.exp(found.log_eps[0])))
        with self.prompts.phase("verification"):
            seen = state(fresh[:, None, :])
        return self._certified(
            np.abs(states_of_rows(found, fresh) - seen),
            "value path and network",
            "the answers may be rounded, or the model is not a layer of RMSNorm, attention and SwiGLU",
        )

    def _heads(
        self, state: HiddenState, rows: OneRowState, rows_bound: float
    ) -> tuple[Attention, float, float]:
        eps = np.exp(rows.log_eps)
        network = rows.network
        near = (
            (_SHORT_NEAR if self.precision.short else _NEAR)
            * max(float(np.linalg.norm(rows.value_path, 2)), 1.0)
            * max(1.0, float(eps[0]) / _USUAL_EPS) ** (1 / 3)
        )
        outputs = AttentionOutputs(state, network, float(eps[0]), float(eps[1]), near)
        with self.prompts.phase("heads"):
            check_window(state, self.rng.spawn(1)[0])
            start = learn_heads(outputs, rows.value_path, self.rng, self.precision)
        turns = Rotary(start.theta).frequencies(start.attention.head_width)
        if len(turns) > 1 and abs(turns[1] / turns[0] - 1.0) < _ALIKE:
            raise NotIdentifiable(
                f"the rotary base is {start.theta:.3g}, so all planes of a head turn alike, and nothing "
                "tells them apart"
            )
        after = AfterAttention(network, float(eps[1]), float(eps[2]))
        first = AttentionState(start.attention, float(np.log(start.theta)))
        with self.prompts.phase("fit of heads"):
            fits = [self._heads_fit(state, first, after, float(eps[0])) for _ in range(2)]
        rough, settling, last = first, _SHORT_SETTLING, _SHORT_HEADS
        if not self.precision.short:
            rough, settling, last = refine(fits[0], first, _FIRST).state, _SETTLING, _LAST
        if rms(fits[0].residual(rough)) > _FITTED:  # rounded scores, or a large base, leave slow planes mixed
            rough = settle_slow_planes(fits[0], rough, settling)
        halves = [refine(fit, rough, last).state for fit in fits]
        found = halves[0]
        if self.precision.short:
            found = refine(AttentionFit.joined(fits), found, last).state
        certificate = self._judge_heads(state, found, after, float(eps[0]))
        one, others = halves[0], [halves[1]]
        if not self.precision.short:
            others += [self._tilted(fits[0], one, last) for _ in range(_TILTS)]
        difference = max(
            max(attention_distance(one.attention, other.attention, rotary=True) for other in others),
            max(abs(one.log_theta - other.log_theta) for other in others),
        )
        bound = self._bound(difference) + rows_bound  # both fits take the rest of the layer as known
        gauge = (
            "order of heads and groups; values and outputs of a group up to an invertible matrix; queries "
            "and keys of a group up to one complex factor a rotary plane"
        )
        self.keep("heads", found.attention, bound, gauge, certificate)
        self.keep("rotary-base", float(np.exp(found.log_theta)), bound, "none", certificate)
        return found.attention, float(np.exp(found.log_theta)), bound

    def _tilted(self, fit: AttentionFit, at: AttentionState, options: RefinementOptions) -> AttentionState:
        """Where heads go when all states are tilted, as errors of the unembedding and of the rest of the
        layer tilt them: both fits share these, and planes that hardly turn enlarge them."""
        size = _TILT * max(self.first.certificate.relative, rms(fit.residual(at)))
        tilt = size * self.rng.standard_normal((self.prompts.width,) * 2)
        tilted = [replace(part, seen=part.seen + part.seen @ tilt) for part in fit.data]
        steps = likely_errors(AttentionFit(tilted, fit.after), at, self.rng, options, draws=0)
        return at.moved(steps[0])

    def _heads_fit(
        self, state: HiddenState, start: AttentionState, after: AfterAttention, eps: float
    ) -> AttentionFit:
        count = int(self._spare * start.unknowns / (self.prompts.width - 1) / len(_LENGTHS)) + 4
        return AttentionFit([self._prompted(state, count, length, eps) for length in _LENGTHS], after)

    def _prompted(self, state: HiddenState, count: int, length: int, eps: float) -> Prompted:
        least, most = np.log(_PROMPT_SIZES)
        sizes = np.exp(self.rng.uniform(float(least), float(most), (count, 1, 1)))
        rows = in_float32(sizes * self.rng.standard_normal((count, length, self.prompts.width)))
        normed = rows / np.sqrt((rows * rows).mean(axis=2, keepdims=True) + eps)
        return Prompted(normed, rows[:, -1], state(rows))

    def _judge_heads(
        self, state: HiddenState, found: AttentionState, after: AfterAttention, eps: float
    ) -> PartCertificate:
        with self.prompts.phase("verification"):
            fresh = [self._prompted(state, _FRESH, length, eps) for length in _FRESH_LENGTHS]
        return self._certified(
            np.abs(AttentionFit(fresh, after).residual(found)),
            "heads",
            "the rest of the layer is certified, so scores may be no products of rotated queries and keys, "
            "as where these are normed; or another seed may find them",
        )

    def _certified(self, errors: Array, what: str, otherwise: str) -> PartCertificate:
        """The certificate of states, whose size is one; `Unresolved` when fresh prompts are not predicted.
        otherwise: what may explain that."""
        worst, allowed = float(errors.max()), self._allowed
        if not worst <= allowed:
            raise Unresolved(
                f"the fit of {what} is {worst:.2g} off on fresh prompts, where {allowed:.2g} is allowed; "
                f"{otherwise}"
            )
        return PartCertificate(worst, errors.size // self.prompts.width, 1.0)

    @property
    def _allowed(self) -> float:
        """Largest misfit of a state that counts as recovered."""
        return max(_FITTED, _FITTED_NOISE * self.precision.noise)

    def _bound(self, difference: float) -> float:
        """A bound from the difference of two fits and the error of the unembedding, which both share."""
        return _SAFETY * max(difference, EPS) + self.first.certificate.relative
