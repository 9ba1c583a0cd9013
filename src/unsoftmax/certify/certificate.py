"""Is the model right? Fresh sequences of several lengths, sizes and shapes, never those it was learnt
from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.answers import Computed
from unsoftmax.arrays import Array, largest, longest_rows
from unsoftmax.certify.changed_models import Deviations
from unsoftmax.certify.own_rounding import OwnRounding, in_own_rounding
from unsoftmax.certify.sample import OwnSequences, Sample, draw_sample, length_class
from unsoftmax.ledger import VERIFICATION, Asker, Exchange, median_answers
from unsoftmax.models import Model, MultiHead, SingleHead
from unsoftmax.oracles.domain import Ball, Space

__all__ = ["AnswersOff", "Certificate", "certify"]

# the chance that a box passes which deviates on the stated fraction is one in ten thousand
_CONFIDENCE = 0.9999
# of the answers: more than this is wrong, however sharply the model says that they depend on its parameters
_GROSS = 1e-3
_REPEATED = 8  # early queries that are asked again


@dataclass(frozen=True)
class Certificate:
    """What fresh queries showed.

    max_error: largest |answer - prediction|. max_relative_error: the part of it that neither rounding nor the
    answers' own errors explain, against what each sequence could show at most (longest row times |v|, times
    one plus the size of the scores; constants do not count). allowed: what it may be. n_queries: fresh
    queries compared. failed: the name of the kind of sequence that deviated most, when it was too much.
    With `confidence`, less than `fraction` of sequences drawn like these deviate by more than `allowed`: a
    box that does on more passes with a probability of at most 1 - confidence.
    lengths, sizes, distribution: how they were drawn. resolution: the smallest relative deviation that
    answers with errors could have shown, where that is known. faintest_head, closest_heads: how large a
    further head, and how far apart two heads given as one, would have shown. parameters_off: the relative
    error of the parameters that usually moves answers as far as the worst of these; usually_off: as most of
    those of each class of lengths; scores_off: that of what single rows do not show, beyond what they do.
    tolerance: by how much any answer may be off by itself, a constant included, which no deviation counts.
    arithmetic: the format that every step inside rounds to, and own_rounding: how many times the measured
    rounding half of the sequences of a length are off by at most; both empty where steps do not round. It
    says nothing of
    sequences unlike these: no deviation found is not equality; caveat names what is known to escape them.
    """

    passed: bool
    max_error: float
    max_relative_error: float
    allowed: float
    n_queries: int
    confidence: float
    fraction: float
    lengths: tuple[int, ...]
    sizes: tuple[float, ...]
    by_kind: dict[str, float]
    failed: str | None = None
    caveat: str = ""
    distribution: str = ""
    resolution: float = 0.0
    faintest_head: float | None = None
    closest_heads: float | None = None
    parameters_off: float = 0.0
    usually_off: dict[str, float] = field(default_factory=dict)
    scores_off: float = 0.0
    tolerance: float = 0.0
    arithmetic: str = ""
    own_rounding: float | None = None

    @property
    def statement(self) -> str:
        """The certificate in one sentence."""
        if not self.passed:
            return (
                f"the model deviates on fresh queries: {self.max_relative_error:.2g} relative, allowed "
                f"{self.allowed:.1g}, worst on '{self.failed}'" + (f"; {self.caveat}" if self.caveat else "")
            )
        return (
            f"{self.n_queries} fresh sequences of {_in_words(self.lengths)} rows deviate by at most "
            f"{self.max_error:.2g} ({self._relative}): with {self.in_percent} confidence fewer than "
            f"{self.fraction:.1%} of sequences drawn like these deviate by more than {self.allowed:.1g} "
            f"relative{self._beyond}"
            + self._beside_rounding
            + self._unseen
            + (f"; {self.caveat}" if self.caveat else "")
        )

    @property
    def in_percent(self) -> str:
        """The confidence in words: '99.99%'."""
        return f"{100.0 * self.confidence:.6g}%"

    @property
    def _beyond(self) -> str:
        return f", beyond the {self.tolerance:.1g} by which any answer may be off" if self.tolerance else ""

    @property
    def _beside_rounding(self) -> str:
        if self.own_rounding is None:
            return ""
        return "; " + in_own_rounding(self.own_rounding, self.arithmetic, self.n_queries)

    @property
    def _unseen(self) -> str:
        text = ""
        if self.faintest_head is not None and self.closest_heads is not None:
            text = (
                f"; a further head would have shown if it had at least {self.faintest_head:.1g} of the size "
                f"of these, and two heads given as one if they were at least {self.closest_heads:.1g} apart, "
                "relative to W"
            )
        if self.resolution <= self.allowed:
            return text
        least = f"{self.resolution:.1g} relative"
        return f"{text}; a function that deviates by less than {least} would not have shown"

    @property
    def _relative(self) -> str:
        seen = self.max_relative_error
        return f"{seen:.1g} relative" if seen > 0.0 else "no more than rounding and errors of answers explain"


# of what the shortest ordinary row shows: rows of zeros show nothing, and their answer is rounded where the
# target adds up constants that cancel
_LEAST = 1e-6


@dataclass(frozen=True)
class AnswersOff:
    """How far answers are off by themselves: at most by `tolerance`, or, where values become something else,
    by the `deviation` of answers from what values become; `repeats` answers are asked for their median.
    resolution: what the answers could show at best. beside_constant: how far a stored number as large as the
    model's constant may be off, which `deviation` does not count. arithmetic: where every step inside
    rounds."""

    tolerance: float = 0.0
    deviation: Callable[[Array, Array], Array] | None = None
    repeats: int = 1
    resolution: float = 0.0
    beside_constant: float = 0.0
    arithmetic: Computed | None = None


def certify(
    asker: Asker,
    model: Model,
    rng: np.random.Generator,
    *,
    allowed: float | None = None,
    answers_off: AnswersOff | None = None,
    caveat: str = "",
    own: OwnSequences | None = None,
) -> Certificate:
    """Compares the model with fresh answers and bills them to verification.

    answers_off: how far answers are off by themselves (None: not at all). own: sequences of the user's that
    are compared as well.
    """
    off = AnswersOff() if answers_off is None else answers_off
    allowed = model.exact_at if allowed is None else allowed
    sample = draw_sample(model, _domain(asker), rng, max_length=asker.max_length, own=own)
    ordinary = np.full((1, 1, asker.width), sample.sizes[0] / np.sqrt(asker.width))
    least = _LEAST * float(model.sensitivity(ordinary)[0])
    ruler = _Ruler(model, allowed, off.tolerance, off.deviation, least)
    errors: list[Array] = []
    ratios: list[Array] = []
    hidden: list[Array] = []
    deviations = Deviations(model)
    rounding = None if off.arithmetic is None else OwnRounding(model, off.arithmetic)
    with asker.phase(VERIFICATION):
        for batch in sample.batches:
            answers = asker.ask(batch) if off.repeats == 1 else median_answers(asker, batch, off.repeats)
            error, unexplained, ratio, unseen = ruler.measure(batch, answers)
            errors.append(error)
            if rounding is not None:
                rounding.see(batch, answers, length_class(batch.shape[1]))
            deviations.see(batch, unexplained, ratio, length_class(batch.shape[1]))
            ratios.append(ratio)
            if batch.shape[1] > 1 and off.deviation is None:
                hidden.append(unseen / np.maximum(longest_rows(batch), 1e-300))
        repeated = _repeats(asker, model, off.tolerance) if off.repeats == 1 else None
    all_errors, all_ratios = np.concatenate(errors), np.concatenate(ratios)
    by_kind = _by_kind(sample, all_ratios)
    if repeated is not None:
        by_kind["early queries asked again"] = repeated
    worst = {kind: ratio for kind, ratio in by_kind.items() if ratio > allowed}
    n = len(all_errors)
    return Certificate(
        passed=not worst,
        max_error=float(all_errors.max()),
        max_relative_error=max(by_kind.values()),
        allowed=allowed,
        n_queries=n,
        confidence=_CONFIDENCE,
        fraction=float(1.0 - (1.0 - _CONFIDENCE) ** (1.0 / sample.independent)),
        lengths=sample.lengths,
        sizes=tuple(float(f"{size:.3g}") for size in sample.sizes),
        by_kind=by_kind,
        failed=max(worst, key=lambda kind: worst[kind]) if worst else None,
        caveat=caveat,
        distribution=sample.distribution,
        resolution=off.resolution,
        parameters_off=deviations.worst,
        usually_off=deviations.usual,
        scores_off=deviations.hidden_alone,
        tolerance=max(off.tolerance, off.beside_constant if off.beside_constant > allowed * least else 0.0),
        arithmetic="" if rounding is None else str(rounding.arithmetic.format),
        own_rounding=None if rounding is None else rounding.times,
        **_heads_unseen(model, hidden),
    )


def _domain(asker: Asker) -> Space:
    """All rows that may be sent."""
    return Space(asker.width) if asker.input_bound is None else Ball(asker.width, asker.input_bound)


@dataclass(frozen=True)
class _Ruler:
    """How far answers are from the model, beyond what the answers' own errors and rounding explain, against
    what the sequence could show.

    least: what any sequence shows. Neither a constant nor cancelling parts of a model excuse a deviation;
    they only add to what rounding explains.
    """

    model: Model
    allowed: float
    tolerance: float
    deviation: Callable[[Array, Array], Array] | None
    least: float

    def measure(self, batch: Array, answers: Array) -> tuple[Array, Array, Array, Array]:
        """|answer - prediction| of every sequence, the same beyond what is explained, that relative to what
        could show, and the largest deviation that passes."""
        predictions = self.model(batch)
        off = answers - predictions if self.deviation is None else self.deviation(answers, predictions)
        error = largest(off)
        scale = np.maximum(self.model.sensitivity(batch), self.least) + self._by_bias(batch)
        unexplained = error - self.tolerance - self.model.rounding(batch, predictions, scale)
        if self.deviation is None and self.tolerance > 0.0 and self.allowed > 0.0:
            # whatever the scores: nothing explains an error as large as the answers themselves
            reach = max(float(np.abs(answers).max()), float(np.abs(predictions).max()))
            scale = np.minimum(scale, max(_GROSS / self.allowed, 100.0) * reach)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(unexplained <= 0.0, 0.0, unexplained / scale)
        unseen = np.maximum(error - unexplained, 0.0) + self.allowed * scale
        # what cannot be computed is not agreement
        return error, unexplained, np.where(np.isnan(ratio), np.inf, ratio), unseen

    def _by_bias(self, batch: Array) -> Array | float:
        """Behind short floats and labels a query bias is only known to a part of W's size: what that moves on
        long rows, whatever the asking row."""
        if self.deviation is None or not isinstance(self.model, SingleHead) or self.model.w0 is None:
            return 0.0
        longest = longest_rows(batch)
        return np.asarray(longest**2 * float(np.linalg.norm(self.model.v)) * self.model.matrix.norm())


def _heads_unseen(model: Model, hidden: list[Array]) -> dict[str, float]:
    """The size of a further head, and the distance of two heads given as one, from which half of the
    sequences show them. hidden: the largest deviations that pass, against the longest row of the sequence.

    A further head adds about a quarter of its readout times the longest row. Two heads given as one differ
    from it in the second order of their distance only: by an eighth of its square.
    """
    heads = (
        [model]
        if isinstance(model, SingleHead)
        else list(model.heads)
        if isinstance(model, MultiHead)
        else []
    )
    size = sum(float(np.linalg.norm(head.v)) for head in heads)
    if not size or not hidden:
        return {}
    usual = float(np.median(np.concatenate(hidden))) / size
    return {"faintest_head": 4.0 * usual, "closest_heads": float(np.sqrt(32.0 * usual))}


def _by_kind(sample: Sample, ratios: Array) -> dict[str, float]:
    """The largest ratio of every class of lengths and of every shape."""
    by_kind: dict[str, float] = {}
    for names in (sample.shapes_of, sample.lengths_of):
        for name, ratio in zip(names, ratios.tolist(), strict=True):
            by_kind[name] = max(by_kind.get(name, 0.0), ratio)
    return by_kind


def _in_words(lengths: tuple[int, ...]) -> str:
    """'1 to 17, 33 and 64' for (1, 2, ..., 17, 33, 64)."""
    runs: list[list[int]] = []
    for length in lengths:
        if runs and length == runs[-1][-1] + 1:
            runs[-1].append(length)
        else:
            runs.append([length])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _to_repeat(early: Sequence[Exchange], model: Model) -> list[Exchange]:
    """The first of them, and of the others those on which the model bends most: single rows, and rows so long
    that the scores are saturated, say nothing of W."""
    half = _REPEATED // 2
    bends = {place: _bend(model, early[place][0]) for place in range(half, len(early))}
    bent = sorted(bends, key=lambda place: -bends[place])[:half]
    return [early[place] for place in sorted([*range(min(len(early), half)), *bent], reverse=True)]


def _bend(model: Model, sequence: Array) -> float:
    """How far the model is from affine between no rows, these and twice these, against what they show."""
    values = model(np.multiply.outer(np.arange(3.0), sequence))
    off = float(np.max(np.abs(values[0] - 2.0 * values[1] + values[2])))
    return off / max(float(model.sensitivity(sequence[None])[0]), 1e-300)


def _repeats(asker: Asker, model: Model, tolerance: float) -> float | None:
    """Largest change of early answers, relative to what they could show; asked in another order than at
    first."""
    worst: float | None = None
    for sequence, before in _to_repeat(asker.early_queries, model):
        now = asker.ask(sequence[None])[0]
        shows = model.sensitivity(sequence[None])
        explained = 2.0 * tolerance + float(model.rounding(sequence[None], sensitivity=shows)[0])
        scale = float(shows[0])
        change = max(float(np.max(np.abs(now - before))) - explained, 0.0)
        worst = max(worst or 0.0, change / scale if scale > 0 else change)
    return worst
