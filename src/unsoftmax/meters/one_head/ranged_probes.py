"""Probes of one head, each asked at a size at which its score neither saturates nor drowns in rounding."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array, expit, logit, rms
from unsoftmax.families import Family
from unsoftmax.meters.base import Answers
from unsoftmax.meters.probes.balanced_probes import Indices, Probes
from unsoftmax.meters.probes.sizes import TARGET_SCORE
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["LARGEST_SCORE", "SIGMOID_TEST", "UNREADABLE", "RangedProbes", "TwoRowAnswers", "two_rows"]

SIGMOID_TEST = Test("two-row answers follow a sigmoid", frozenset({Family.SINGLE_HEAD}))

LARGEST_SCORE = 5.5  # dσ/dt = 0.004 there: the inverse sigmoid loses more than two digits beyond
_LEAST_WEIGHT = float(expit(-LARGEST_SCORE))
UNREADABLE = 25.0  # 1 - σ(25) = 1e-11: such a score is an order of magnitude at best
_LARGEST_SIZE = 2.0**60  # of a probe without any score until now
_LARGEST_RATIO = 8.0  # a probe whose scores were small may be sent so many times longer than the average
_TRIES = 24  # shrinking by 2^-6 each, sizes fall by 2^-144: any finite score is then readable
_PILOT = 8  # their root mean square is then known to about 25 %


def two_rows(A: Array, B: Array) -> Array:
    """The sequences [a+b; b], one for each pair of rows."""
    return np.stack([A + B, B], axis=1)


class TwoRowAnswers:
    """y = c + b·v + σ(t)·(a·v), read for the weight σ(t) of the first row of [a+b; b]."""

    def __init__(self, asker: Answers, v: Array, c: float) -> None:
        self.asker = asker
        self.v = v
        self.c = c
        self._norm = float(np.linalg.norm(v))

    def constant_part(self, asking: Array) -> Array:
        """c + b·v for asking rows (n, d)."""
        return np.asarray(self.c + asking @ self.v)

    def check(self, weight: float, signal: float, asking: Array) -> None:
        """Refuses a weight outside [0, 1] by more than rounding: it is not an attention weight."""
        slack = 1e-7 + 1e4 * EPS * (abs(self.c) + float(np.linalg.norm(asking)) * self._norm) / abs(signal)
        if not -slack <= weight <= 1.0 + slack:
            raise OutsideClass(
                SIGMOID_TEST,
                f"the first row's weight would be {weight:.6g}, and a weight lies between 0 and 1",
            )


class RangedProbes:
    """Measures forms a_iᵀ(W x + w0) of a set of probes; the scores seen so far choose the sizes of the next.

    span_all: whether Wᵀ vanishes on everything that the probes do not span.
    """

    def __init__(self, answers: TwoRowAnswers, probes: Probes, *, span_all: bool = False) -> None:
        self.probes = probes
        self.span_all = span_all
        self._answers = answers
        self._scores: Array | None = None  # running root mean square of every probe's forms

    def measure(self, asking: Array, typical: float, *, well_known: bool = False) -> tuple[Array, Array]:
        """Forms (n, k) of every probe with the asking rows (n, d), and the ratios at which they were asked.

        typical: size of a form to expect of new probes; well_known: that it comes from many columns. Of one
        asking row, or on new probes, a few tell about the others.
        """
        everyone = range(self.probes.count)
        if self._scores is not None and len(asking) > 1:
            forms, ratios = self._functionals(self._scores, asking, everyone)
            self._scores = _mixed(self._scores, forms, 0.2)
            return forms, ratios
        weight = 0.5 if self._scores is None else 0.2
        first, scores = self._column(asking[:1], typical, well_known=well_known)
        parts = [first]
        start, stop = 1, 2
        while start < len(asking):  # a few columns first, then more: each tells the sizes of the next
            parts.append(self._functionals(scores, asking[start:stop], everyone))
            scores = _mixed(scores, parts[-1][0], weight)
            start, stop = stop, 2 * stop
        self._scores = scores
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _column(
        self, asking: Array, typical: float, *, well_known: bool
    ) -> tuple[tuple[Array, Array], Array]:
        """One column, and the running scores after it. The first few probes tell how large its scores are, so
        that not all of them saturate when they are larger than any before."""
        k, pilot = self.probes.count, min(_PILOT, self.probes.count)
        before = self._scores
        scores = np.full(k, typical) if before is None else before
        forms, ratios = self._functionals(scores, asking, range(pilot))
        if pilot < k:
            seen, expected = rms(forms), rms(scores[:pilot])
            rest = scores
            if before is None:
                rest = np.full(k, seen or typical)
            elif seen > 2.0 * expected > 0.0:
                rest = scores * (seen / expected)
            parts = (forms, ratios), self._functionals(rest, asking, range(pilot, k))
            forms, ratios = (np.concatenate(both, axis=1) for both in zip(*parts, strict=True))
        if before is None:
            scores = np.full(k, rms(forms) or typical)
            if self.span_all and well_known:  # one column alone may be far from it
                scores = np.maximum(scores, typical)
        return (forms, ratios), _mixed(scores, forms, 0.5 if before is None else 0.2)

    def _functionals(self, scores: Array, asking: Array, chosen: range) -> tuple[Array, Array]:
        """Forms of the chosen probes with every asking row, and their ratios, each asked at a size that does
        not saturate when forms are about as large as `scores`."""
        n, k = len(asking), len(chosen)
        if n == 0 or k == 0:
            return np.empty((n, k)), np.empty((n, k))
        which = np.arange(chosen.start, chosen.stop)
        gamma, share = self._sizes(scores[chosen.start : chosen.stop], asking)
        signals = self.probes.readouts(which, gamma, np.full(k, share))
        base = self._answers.constant_part(asking)[:, None]
        weights, ratios = np.empty((n, k)), np.empty((n, k))
        ratios[:] = share / gamma
        again: list[tuple[Indices, Indices, Array]] = []
        size = self._answers.asker.batch_size(2)
        for j in range(0, n, size):
            block = slice(j, min(j + size, n))
            rows = asking[block]
            step = max(1, size // len(rows))
            for i in range(0, k, step):  # the same rows with other probes: most of the next batch is written
                part = slice(i, min(i + step, k))
                self.probes.begin(int(which[i]), gamma[part])
                answers = self._answers.asker.ask(self.probes.batch(rows, share)).reshape(len(rows), -1)
                seen = (answers - base[block]) / signals[part]
                weights[block, part] = seen
                if seen.min() > _LEAST_WEIGHT and seen.max() < 1.0 - _LEAST_WEIGHT:
                    continue  # not so when one is not a number
                at, of = np.nonzero(~(np.abs(logit(seen)) <= LARGEST_SCORE))
                at, of = at + block.start, of + part.start
                found, ratios[at, of] = self._again(
                    which[of], gamma[of], np.full(len(of), share), asking[at], weights[at, of]
                )
                again.append((at, of, found))
        forms = logit(weights) / gamma
        for at, of, found in again:
            forms[at, of] = found
        return forms, ratios

    def _sizes(self, scores: Array, asking: Array) -> tuple[Array, float]:
        """A size for every probe, and the share that all have in common."""
        average = rms(scores)
        largest = self._largest_gamma(asking)
        if average <= 0.0:
            return np.full(len(scores), min(_LARGEST_SIZE, largest)), min(_LARGEST_SIZE, largest)
        gamma = np.minimum(TARGET_SCORE / np.maximum(scores, average / _LARGEST_RATIO), largest)
        return gamma, min(TARGET_SCORE / average, largest)

    def _largest_gamma(self, asking: Array) -> float:
        """Keeps rows within the input bound."""
        bound = self._answers.asker.input_bound
        if bound is None:
            return np.inf
        longest = float(np.sqrt(np.einsum("nd,nd->n", asking, asking).max()))
        return max(bound - longest, 0.0) / self.probes.longest

    def _again(
        self, which: Indices, gamma: Array, shares: Array, asking: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Forms and ratios of saturated probes, asked at smaller and smaller sizes: all of a batch together,
        each as often as it needs."""
        probes, answers = self.probes, self._answers
        forms = np.empty(len(which))
        base = answers.constant_part(asking)
        left = np.arange(len(which))
        for _ in range(_TRIES):
            for i, signal in zip(left, probes.readouts(which[left], gamma[left], shares[left]), strict=True):
                answers.check(float(weights[i]), float(signal), asking[i])
            scores = np.abs(logit(weights[left]))
            smaller = np.where(scores < UNREADABLE, TARGET_SCORE / scores, 2.0**-6)
            gamma[left] *= smaller
            shares[left] *= smaller
            rows = probes.rows(which[left], gamma[left], shares[left])
            told = answers.asker.ask(two_rows(rows, asking[left]))
            weights[left] = (told - base[left]) / probes.readouts(which[left], gamma[left], shares[left])
            scores = logit(weights[left])
            read = np.abs(scores) <= LARGEST_SCORE
            forms[left[read]] = scores[read] / gamma[left[read]]
            left = left[~read]
            if not len(left):
                return forms, shares / gamma
        raise OutsideClass(
            SIGMOID_TEST,
            f"the first row's weight stays at {weights[left[0]]:.3g} however small the row is made; a "
            "softmax would share it evenly",
        )


def _mixed(scores: Array, forms: Array, weight: float) -> Array:
    """Running scores that take these forms (n, k) into account."""
    squares = np.square(forms).sum(axis=0) / len(forms)
    return np.asarray(np.sqrt((1.0 - weight) * np.square(scores) + weight * squares))
