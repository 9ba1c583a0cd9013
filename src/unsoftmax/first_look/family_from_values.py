"""Which family is it, where answers are values, exact or with errors: do single rows bend, is there a query
bias, does one softmax share the rows?"""

from __future__ import annotations

from functools import partial

import numpy as np

from unsoftmax.answers import Computed, Constant, Seen, Subject
from unsoftmax.answers.bends import PLACES, Bends, bends
from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.first_look.asking import FirstLookAsker

__all__ = ["family_from_values"]

_ENOUGH = 12  # points: each says that two heads would have been told at least every second time
_MODERATE = 4  # points of a pair whose scores can be read well ...
_FAINTLY = 3.0  # times the answers' own errors: below it a score may be chance
_PLAINLY = 100.0  # ... that is, so much better than needed
_PAIRS = 40  # tried until some scores are moderate
_SCORES = np.array([1.0, 0.3, 3.0, 0.1, 10.0, 0.03, 30.0, 0.01])  # sizes in turn, against the usual one
_MODERATE_SCORE = 1.0  # twice the row then weighs 0.88, which is read well
_SHORTER = 0.3  # of the size, where scores saturate: they are then a tenth
_TELLING = 0.1  # weights known less well say nothing
_FACTORS = np.array([1.0, 2.0, -1.0])  # of one row: a softmax answers all three from one score
# of usual rows: tanh over a layer as torch makes it bends there by ten times what float32 hides
_LONGER = 3.0
_STEP = 0.1  # of a row, between which bends are compared
_TINY = np.array([1e-6, 1e-12, 1e-24, 1e-48])  # of usual rows
_PRECISE = 1e-6  # deviations that even a computation in float32 hardly shows


def family_from_values(look: FirstLookAsker) -> Family:
    """Adds the findings on single rows, query bias and family; the family that learning should begin with."""
    if look.longest == 1:
        look.add(Subject.FAMILY, lambda: (Family.RELU_NETWORK, "the target takes single rows only"))
        return Family.RELU_NETWORK
    if look.add(Subject.SINGLE_ROWS, lambda: _single_rows(look)) == Seen.CURVED:
        look.add(Subject.FAMILY, lambda: _network_on_top(look))
        return _bent(look)
    bias = look.add(Subject.QUERY_BIAS, lambda: _query_bias(look))
    found = look.add(Subject.FAMILY, lambda: _heads(look, bias == Seen.PRESENT))
    return Family.MULTI_HEAD if found == Family.MULTI_HEAD else Family.SINGLE_HEAD


def _single_rows(look: FirstLookAsker) -> tuple[str, str]:
    """On a line, or along a curve?"""
    clipped = look.limits is not None
    origin = look.origin()
    size = look.signal_size()
    sizes = size * np.array([1.0, 10.0, 3.0] if look.exact or clipped else [1.0, 1.0, 1.0])
    for size in np.minimum(sizes if look.exact else np.tile(sizes, 2), look.far):
        (x,) = look.rows(1, float(size))
        half, whole, back = answers = look.ledger.ask(np.stack([0.5 * x, x, -x])[:, None])
        if not look.within_limits(answers):
            continue
        bend = max(
            float(np.max(np.abs(whole - 2.0 * half + origin))),
            float(np.max(np.abs(whole + back - 2.0 * origin))),
        )
        if bend > 2.0 * look.allowed(np.concatenate([answers, origin[None]]), float(size)):
            return Seen.CURVED, f"answers bend by {bend:.3g} along a ray of norm {size:.3g}"
    shortest, longest = f"{min(sizes):.3g}", f"{max(sizes):.3g}"
    norms = shortest if shortest == longest else f"{shortest} to {longest}"
    return "affine", f"answers to x/2, x, -x and 0 lie on a line, along rays of norm {norms}"


def _bent(look: FirstLookAsker) -> Family:
    """Attention and a network: whole blocks are known from vectors only."""
    return Family.TRANSFORMER if look.ledger.outputs is None else Family.ENCODER_BLOCK


def _network_on_top(look: FirstLookAsker) -> tuple[str, str]:
    """A ReLU network over one softmax bends at kinks alone; a block behind vectors may bend everywhere."""
    if look.exact or look.ledger.outputs is not None:
        return _bent(look), "answers to single rows curve, as with a network on top of attention"
    usual = look.near * np.sqrt(look.ledger.width)
    seen = Bends(0, 0, 0)
    for size in np.minimum([look.near, usual, _LONGER * usual], look.far):
        seen += bends(
            lambda rows: look.ledger.ask(rows[:, None]),
            look.rows(PLACES, size),
            _STEP,
            partial(_noise, look, 2.0 * size),
        )
        if seen.smoothly:
            text = f"answers to single rows of norm {size:.3g} curve everywhere"
            return Seen.NONE, f"{text}; those of a ReLU network bend only at kinks"
    return _bent(look), "answers to single rows bend in places, as with a ReLU network on top"


def _noise(look: FirstLookAsker, longest: float, answers: Array) -> float:
    """Of a second difference, of answers to rows of that norm."""
    return 2.0 * look.allowed(answers, longest)


def _query_bias(look: FirstLookAsker) -> tuple[str, str]:
    """[a; 0]: without a query bias both rows weigh the same, whatever the heads."""
    for size in np.minimum(look.signal_size() * np.array([1.0, 8.0, 0.2]), look.far):
        a = look.rows(1, float(size))[0]
        origin = look.origin()
        alone, mixed = look.ask(a[None])[0], look.ask(np.stack([a, np.zeros_like(a)]))[0]
        if not look.within_limits(alone):
            continue
        gap = float(np.max(np.abs(mixed - 0.5 * (alone + origin))))
        if gap > 2.0 * look.allowed(np.stack([alone, mixed, origin]), float(size)):
            return (
                Seen.PRESENT,
                f"when the asking row was zero, a row of norm {size:.3g} did not get half of the weight: the "
                f"answer is {gap:.3g} off the mean",
            )
    if isinstance(look.answers, Constant):
        return Seen.UNKNOWN, "no row moves the answer: a query bias leaves no trace"
    return Seen.NONE, "when the asking row was zero, all rows got equal weight"


def _heads(look: FirstLookAsker, biased: bool) -> tuple[str, str]:
    """A row a, 2a and -a beside an asking row weigh σ(t), σ(2t) and σ(-t) in one head, for one t; several
    heads weigh otherwise.

    Moderate scores tell most. Where errors or a query bias leave only saturated ones, every head picks a row
    of its own: the weight of a row, 0 or 1 for one head, is between, or beyond, for every second pair of rows
    when there are several. Opposite rows have opposite scores, so that their weights add up to one under any
    heads.
    """
    if isinstance(look.answers, Constant):
        return Seen.UNKNOWN, "no row moves the answer: whatever is there leaves no trace"
    if look.found(Subject.ORDER) == Seen.MATTERS and not isinstance(look.inner, Computed):
        return Seen.NONE, look.evidence(Subject.ORDER)
    if look.exact:
        uneven = ""
        for tiny in look.near * _TINY:  # the tiniest that tells counts: strong scores share evenly only there
            weights, error = _weights(look, look.rows(1, tiny)[0], look.rows(1, tiny)[0])
            if not error <= _TELLING / 10:
                break
            uneven = (
                "a row before the last one moves no answer, so only the last row is read"
                if np.abs(weights).max() <= _TELLING
                else f"a row of norm {tiny:.0e} weighs {weights[0]:.4g} beside another: any softmax would "
                "share nearly evenly there"
            )
            if np.abs(weights - 0.5).max() <= _TELLING:
                uneven = ""
                break
        if uneven:
            return Seen.NONE, uneven
    points = moderate = saturated = 0
    widest = 0.0
    sizes = _Sizes(look, biased)
    for _ in range(_PAIRS):
        a_size, b_size = sizes.next()
        weights, error = _weights(look, look.rows(1, a_size)[0], look.rows(1, b_size)[0])
        sizes.saw(float(weights[0]), error)
        if not error <= _TELLING:
            continue
        if _off_one_softmax(weights) > 2.0 * error:
            shown = ", ".join(f"{weight:.4g}" for weight in weights)
            if abs(weights[0] + weights[-1] - 1.0) > 2.0 * error:
                return (
                    Seen.NONE,
                    f"a row, twice the row and its negative weigh {shown}: under any heads the first and the "
                    "last add up to one",
                )
            return (
                Family.MULTI_HEAD,
                f"a row, twice the row and its negative weigh {shown}: no single softmax does that (errors "
                f"explain {error:.1g})",
            )
        spread = float(np.abs(weights - 0.5).max())
        told = 64.0 * _TELLING * spread**3 / error  # several heads bend the scores by about so many errors
        if told < _FAINTLY:
            continue
        readable = bool(((weights > 0.02) & (weights < 0.98)).all())
        moderate, saturated = moderate + readable, saturated + (not readable)
        points += _MODERATE if readable and told > _PLAINLY else 1
        widest = max(widest, error)
        if points >= _ENOUGH:
            pairs = f"{moderate} pairs of rows with moderate scores and {saturated} with saturated ones"
            return (
                Family.SINGLE_HEAD,
                "the weights of rows, their doubles and their negatives fit one softmax to within "
                f"{widest:.1g}, for {pairs}",
            )
    if look.exact:
        return (
            Family.SINGLE_HEAD,
            "nothing contradicts one head, but too few pairs of rows had informative scores",
        )
    return (
        Seen.UNKNOWN,
        "these answers carry errors and tell little at this price; one head is tried, and the certificate "
        "decides",
    )


class _Sizes:
    """Sizes of a row and of the asking row. Where answers are exact, equal ones that lead to moderate scores;
    else long rows in turn, so that the signal stands out of the errors."""

    def __init__(self, look: FirstLookAsker, biased: bool) -> None:
        self._moderate: float | None = None
        self._turn = 0
        if look.exact or look.limits is not None:
            self._longest = look.far / 3 if look.exact else 0.5 * look.near
            self._listed = [(size, size) for size in np.minimum(look.near * _SCORES, self._longest)]
            self._moderate = self._listed[0][0] if look.exact else None
        else:
            far = look.far / 3
            self._listed = [(far, min((1.0 if biased else 1.0 / far) * score, far)) for score in _SCORES]
            self._listed += [(far, min(size, far)) for size in (1.0, 10.0, 100.0, 1e3, far, far)]

    def next(self) -> tuple[float, float]:
        """The sizes of the next pair of rows."""
        if self._moderate is not None:
            return self._moderate, self._moderate
        self._turn += 1
        return self._listed[(self._turn - 1) % len(self._listed)]

    def saw(self, weight: float, error: float) -> None:
        """The score goes with the square of the size: a weight that is not saturated says which size is
        moderate."""
        if self._moderate is None:
            return
        if not (error <= _TELLING and 0.02 < weight < 0.98):
            factor = _SHORTER
        else:
            score = abs(float(np.log(weight / (1.0 - weight))))
            factor = float(np.clip(np.sqrt(_MODERATE_SCORE / max(score, 1e-9)), 0.5, 30.0))
        self._moderate = min(self._moderate * factor, self._longest)


def _weights(look: FirstLookAsker, a: Array, b: Array) -> tuple[Array, float]:
    """Weights of a, 2a and -a beside the asking row b, as one head would have them, and how far errors of
    answers may put them off."""
    origin, base, signal = (
        float(np.ravel(answer)[0]) for answer in (look.origin(), *look.ask(b[None], a[None]))
    )
    mixed = look.ledger.ask(np.stack([np.stack([k * a + b, b]) for k in _FACTORS])).reshape(
        len(_FACTORS), -1
    )[:, 0]
    moved = signal - origin
    if moved == 0.0 or not look.within_limits(np.append(mixed, [signal, base])):
        return np.full(len(_FACTORS), 0.5), np.inf
    weights = (mixed - base) / (_FACTORS * moved)
    longest = float(2.0 * np.linalg.norm(a) + np.linalg.norm(b))
    error = 2.0 * look.allowed(np.append(mixed, [signal, base]), longest) / abs(moved)
    return weights, max(error, _PRECISE) if look.exact else error


def _off_one_softmax(weights: Array) -> float:
    """How far the weights are, at least, from those of any one score: of those that each of them shows, and
    of saturated ones."""
    inside = np.clip(weights, 1e-15, 1.0 - 1e-15)
    scores = np.append(np.log(inside / (1.0 - inside)) / _FACTORS, [-1e3, 1e3])
    expected = 0.5 + 0.5 * np.tanh(0.5 * np.outer(_FACTORS, scores))
    return float(np.abs(weights[:, None] - expected).max(axis=0).min())
