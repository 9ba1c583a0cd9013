"""Two-row queries on one head: y = c + b·v + σ(aᵀ(Wb + w0))·(a·v), inverted for the score."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array, logit, rms
from unsoftmax.meters.base import Answers
from unsoftmax.meters.probes.balanced_probes import (
    AxisProbes,
    BalancedProbes,
    Indices,
    Probes,
    audible_direction,
)
from unsoftmax.meters.probes.sizes import TARGET_SCORE, choose_scales
from unsoftmax.outcomes import OutsideClass

__all__ = ["SIGMOID_TEST", "SigmoidMeter", "logit", "two_rows"]

SIGMOID_TEST = "two-row answers follow a sigmoid"

_LARGEST_SCORE = 5.5  # beyond, the inverse sigmoid loses more than two digits: ask again, smaller
_LARGEST_PRODUCT = 2.0**60
_LOUD = 8.0  # how much louder than the average a row's probe may be made
_TRIES = 24
_PILOT = 8


class SigmoidMeter:
    """Exact value queries on a single head whose readout v, constant c and query bias w0 are known.

    `project` balances its probes, finds the range of scores by itself and asks saturated probes again,
    smaller. `forms` asks the given pairs as they are, as the paper does.

    >>> from unsoftmax import Ledger, SingleHead
    >>> from unsoftmax.oracles import FunctionOracle
    >>> head = SingleHead(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2))
    >>> meter = SigmoidMeter(Ledger(FunctionOracle(head), width=2), head.v, rng=np.random.default_rng(0))
    >>> np.round(meter.project(None, np.eye(2)), 9)
    array([[1., 2.],
           [3., 4.]])
    """

    def __init__(
        self,
        ledger: Answers,
        v: Array,
        c: float = 0.0,
        w0: Array | None = None,
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._ledger = ledger
        self._v = v
        self._c = c
        self._w0 = w0
        self._rng = rng if rng is not None else np.random.default_rng(0)
        self._loudness = float(np.linalg.norm(v)) / np.sqrt(len(v))
        self._whole = AxisProbes(v)
        self._cached: tuple[Array, bool, BalancedProbes] | None = None
        self._strength: float | None = None
        self._squares, self._columns = 0.0, 0

    @property
    def width(self) -> int:
        return len(self._v)

    @property
    def resolution(self) -> float:
        gamma, beta = self.scales
        constant, bias = abs(self._c) / self._loudness, self._bias_strength()
        own = (1.0 + (beta + constant) / gamma) / gamma
        from_bias = (1.0 + constant * bias) * bias  # w0 was measured with an error, and is subtracted
        return float(8.0 * EPS * (own + from_bias) / beta)

    @property
    def strength(self) -> float:
        """Typical |aᵀWb| of unit vectors, found with a few queries when first needed; 0 when nothing is
        there."""
        if self._strength is None:
            self._strength = self._find_strength()
        return self._strength

    def forms(self, A: Array, B: Array) -> Array:
        """logit of the recovered weight for each pair (a, b), literally; saturated pairs come back as NaN or
        infinity."""
        answers = self._ledger.ask(two_rows(A, B))
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = logit((answers - self._c - B @ self._v) / (A @ self._v))
        return scores if self._w0 is None else scores - A @ self._w0

    def query_bias(self) -> Array | None:
        """w0 from two-row queries whose asking row is zero: one look when there is none, d queries when there
        is."""
        strength = self._find_strength(of_bias=True)
        if strength == 0.0:
            return None
        forms, ratios = self._ranged(self._whole, np.zeros((1, self.width)), strength)
        self._whole.strengths = None
        return np.asarray(self._whole.coordinates(forms, ratios)[0])

    def project(self, basis: Array | None, B: Array, *, rest_is_silent: bool = False) -> Array:
        probes = self._probes_for(basis, rest_is_silent)
        beta = self.scales[1]
        asking = beta * B.T
        forms, ratios = self._W_part(probes, asking)
        if isinstance(probes, BalancedProbes) and probes.carrier is not None and not rest_is_silent:
            forms = forms - self._W_part(BalancedProbes(self._v, probes.carrier[:, None]), asking)[0]
        return probes.coordinates(forms, ratios).T / beta

    def _W_part(self, probes: Probes, asking: Array) -> tuple[Array, Array]:
        """Forms a_iᵀ W x of every probe with every asking row x, shape (n, k), and the ratios at which they
        were asked."""
        length = float(np.linalg.norm(asking[0]))
        forms, ratios = self._ranged(probes, asking, length * self._usual(probes) + self._bias_strength())
        if self._w0 is not None:
            forms = forms - probes.forms_of(self._w0, ratios)
        if probes is self._whole:
            self._learn_strength(np.sum(probes.coordinates(forms, ratios) ** 2, axis=1) / length**2)
        return forms, ratios

    def _usual(self, probes: Probes) -> float:
        """Typical |aᵀWb| of a probe: that of any unit vectors, but more when all of W b is known to lie in
        the probes' span."""
        return self.strength * np.sqrt(self.width / probes.count) if probes.hears_all else self.strength

    def _learn_strength(self, squares: Array) -> None:
        """Whole columns tell the strength better than the one pair that it was first taken from."""
        self._squares += float(np.sum(squares))
        self._columns += len(squares)
        if self._columns in (1, 2, 4, 8):  # soon, then well: sizes stay the same otherwise
            self._strength = float(np.sqrt(self._squares / self._columns / self.width)) or self._strength

    def _ranged(self, probes: Probes, asking: Array, usual: float) -> tuple[Array, Array]:
        """Forms a_iᵀ(W x + w0), each call refining the sizes of the next; of one column, or on new probes, a
        few tell about the others."""
        if probes.strengths is not None and len(asking) > 1:
            forms, ratios = self._functionals(probes, asking, range(probes.count))
            probes.strengths = _mixed(probes.strengths, forms, 0.2)
            return forms, ratios
        new = probes.strengths is None
        parts = [self._column(probes, asking[:1], usual)]
        start, stop = 1, 2
        while start < len(asking):  # a few columns first, then more: each teaches the sizes of the next
            parts.append(self._functionals(probes, asking[start:stop], range(probes.count)))
            assert probes.strengths is not None
            probes.strengths = _mixed(probes.strengths, parts[-1][0], 0.5 if new else 0.2)
            start, stop = stop, 2 * stop
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _column(self, probes: Probes, asking: Array, usual: float) -> tuple[Array, Array]:
        """One column: the first few probes tell how loud it is, so that not all of them saturate when it is
        louder than any before."""
        k, pilot = probes.count, min(_PILOT, probes.count)
        new = probes.strengths is None
        strengths = np.full(k, usual) if probes.strengths is None else probes.strengths
        probes.strengths = strengths
        parts = [self._functionals(probes, asking, range(pilot))]
        heard, expected = rms(parts[0][0]), rms(strengths[:pilot])
        if new:
            probes.strengths = np.full(k, heard or usual)
        elif heard > 2.0 * expected > 0.0:
            probes.strengths = strengths * (heard / expected)
        parts.append(self._functionals(probes, asking, range(pilot, k)))
        forms, ratios = (np.concatenate([part[i] for part in parts], axis=1) for i in range(2))
        if new:
            strengths = np.full(k, rms(forms) or usual)
            if (
                probes.hears_all and self._columns
            ):  # then the usual is known well, and one column alone may be far from it
                strengths = np.maximum(strengths, usual)
        probes.strengths = _mixed(strengths, forms, 0.5 if new else 0.2)
        return forms, ratios

    def _functionals(self, probes: Probes, asking: Array, chosen: range) -> tuple[Array, Array]:
        """Forms of the chosen probes with every asking row, and their ratios, each asked at a size that does
        not saturate."""
        n, k = len(asking), len(chosen)
        forms, ratios = np.empty((n, k)), np.empty((n, k))
        if n == 0 or k == 0:
            return forms, ratios
        assert probes.strengths is not None
        strengths = probes.strengths[chosen.start : chosen.stop]
        average = float(np.sqrt(np.mean(strengths**2)))
        largest = self._largest_gamma(probes, asking)
        share = min(TARGET_SCORE / average if average > 0.0 else _LARGEST_PRODUCT, largest)
        gamma = np.minimum(
            TARGET_SCORE / np.maximum(strengths, average / _LOUD)
            if average > 0.0
            else np.full(k, _LARGEST_PRODUCT),
            largest,
        )
        size = self._ledger.batch_size(2)
        for j in range(0, n, size):
            block = slice(j, min(j + size, n))
            rows = asking[block]
            step = max(1, size // len(rows))
            for i in range(
                0, k, step
            ):  # the same rows with other probes: most of the next batch stands already
                part = slice(i, min(i + step, k))
                which = np.arange(chosen.start + i, chosen.start + part.stop)
                probes.begin(int(which[0]), gamma[part])
                forms[block, part], ratios[block, part] = self._grid(probes, which, gamma[part], share, rows)
        return forms, ratios

    def _grid(
        self, probes: Probes, which: Indices, gamma: Array, share: float, asking: Array
    ) -> tuple[Array, Array]:
        """Every probe begun with and every asking row, in one batch; then the saturated ones again until none
        is left.

        The forms (n, k), and the ratios, one row for all where none was asked again.
        """
        n, k = len(asking), len(which)
        answers = self._ledger.ask(probes.batch(asking, share)).reshape(n, k)
        base = self._c + asking @ self._v
        weights = (answers - base[:, None]) / probes.readouts(which, gamma, np.full(k, share))
        scores = logit(weights)
        forms = scores / gamma
        ratios = share / gamma
        if np.abs(scores).max() <= _LARGEST_SCORE:  # not so when one is no number
            return forms, ratios
        ratios = np.tile(ratios, (n, 1))
        j, i = np.nonzero(~(np.abs(scores) <= _LARGEST_SCORE))
        forms[j, i], ratios[j, i] = self._again(
            probes, which[i], gamma[i], np.full(len(i), share), asking[j], weights[j, i]
        )
        return forms, ratios

    def _again(
        self, probes: Probes, which: Indices, gamma: Array, shares: Array, asking: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Saturated probes, asked again at smaller and smaller sizes: all of a batch together, each as often
        as it needs."""
        forms = np.empty(len(which))
        base = self._c + asking @ self._v
        left = np.arange(len(which))
        for _ in range(_TRIES):
            for i, signal in zip(left, probes.readouts(which[left], gamma[left], shares[left]), strict=True):
                self._plausible(float(weights[i]), float(signal), asking[i])
            scores = np.abs(logit(weights[left]))
            smaller = np.where(scores < 25.0, TARGET_SCORE / scores, 2.0**-6)
            gamma[left] *= smaller
            shares[left] *= smaller
            rows = probes.rows(which[left], gamma[left], shares[left])
            answers = self._ledger.ask(two_rows(rows, asking[left]))
            weights[left] = (answers - base[left]) / probes.readouts(which[left], gamma[left], shares[left])
            scores = logit(weights[left])
            read = np.abs(scores) <= _LARGEST_SCORE
            forms[left[read]] = scores[read] / gamma[left[read]]
            left = left[~read]
            if not len(left):
                return forms, shares / gamma
        raise OutsideClass(
            SIGMOID_TEST,
            f"the first row's weight stays at {weights[left[0]]:.3g} however small the row is made; a "
            "softmax would share it evenly",
        )

    def _plausible(self, weight: float, signal: float, asking: Array) -> None:
        """A weight outside [0, 1] by more than rounding is no attention weight."""
        slack = 1e-7 + 1e4 * EPS * (
            abs(self._c) + float(np.linalg.norm(asking)) * self._loudness * np.sqrt(self.width)
        ) / abs(signal)
        if not -slack <= weight <= 1.0 + slack:
            raise OutsideClass(
                SIGMOID_TEST,
                f"the first row's weight would be {weight:.6g}, and a weight lies between 0 and 1",
            )

    def _probes_for(self, basis: Array | None, rest_is_silent: bool) -> Probes:
        if basis is None:
            return self._whole
        if self._cached is not None and self._cached[0] is basis and self._cached[1] == rest_is_silent:
            return self._cached[2]
        seen = basis.T @ self._v
        size = float(np.linalg.norm(self._v))
        unseen = self._v - basis @ seen
        carrier: Array | None = None
        if rest_is_silent:
            length = float(np.linalg.norm(unseen))
            carrier = unseen / length if length > 1e-3 * size else None
        elif float(np.linalg.norm(seen)) / np.sqrt(len(seen)) < 0.05 * self._loudness:
            carrier = self._v / (
                size * np.sqrt(self.width)
            )  # heard as well as other probes, and no louder in W
        probes = BalancedProbes(self._v, basis, carrier, hears_all=rest_is_silent)
        self._cached = (basis, rest_is_silent, probes)
        return probes

    def _bias_strength(self) -> float:
        return 0.0 if self._w0 is None else float(np.linalg.norm(self._w0)) / np.sqrt(self.width)

    @property
    def scales(self) -> tuple[float, float]:
        """Sizes (of a, of b) at which this head is measured best."""
        return choose_scales(
            self.strength,
            bias=self._bias_strength(),
            constant=abs(self._c),
            loudness=self._loudness,
            bound=self._ledger.input_bound,
        )

    def _largest_gamma(self, probes: Probes, asking: Array) -> float:
        """Keeps rows within the input bound."""
        if self._ledger.input_bound is None:
            return np.inf
        longest = float(np.sqrt(np.einsum("nd,nd->n", asking, asking).max()))
        return max(self._ledger.input_bound - longest, 0.0) / probes.longest

    def _find_strength(self, *, of_bias: bool = False) -> float:
        """Size of |aᵀWb| (or |aᵀw0|) from one random pair asked at growing or shrinking sizes."""
        bound = self._ledger.input_bound
        size = float(np.linalg.norm(self._v))
        a = audible_direction(self._v, self._rng)
        b = self._rng.standard_normal(self.width)
        b /= np.linalg.norm(b)
        offset = 0.0 if self._w0 is None else float(a @ self._w0)
        product, largest = 1.0, _LARGEST_PRODUCT
        for _ in range(_TRIES):
            gamma, beta = _split(product, offset, bound, of_bias)
            asking = (0.0 if of_bias else beta) * b
            signal = gamma * float(a @ self._v)
            answer = float(self._ledger.ask(np.stack([gamma * a + asking, asking])[None])[0])
            weight = (answer - self._c - float(asking @ self._v)) / signal
            self._plausible(weight, signal, asking)
            score = float(logit(weight))
            part = abs(score - gamma * offset)
            rounding = 1e3 * EPS * (1.0 + (abs(self._c) / size + (0.0 if of_bias else beta)) / gamma)
            reached = gamma if of_bias else gamma * beta
            if not abs(score) < 25.0:
                product = largest = product / 2.0**8
            elif abs(score) > _LARGEST_SCORE:
                product *= 1.0 / abs(score)
            elif part >= 0.02 or (part > rounding and reached < 0.9 * product):
                return part / reached
            elif part > rounding:
                product = min(product / part, largest)
            elif rounding > 0.01 or product >= largest or reached < 0.9 * product:
                return 0.0
            else:
                product = min(product * 2.0**20, largest)
        raise OutsideClass(
            SIGMOID_TEST,
            "no size of the two rows gives a score between 0.02 and 5; a softmax passes through all of them",
        )


def two_rows(A: Array, B: Array) -> Array:
    """The sequences [a+b; b], one for each pair of rows."""
    return np.stack([A + B, B], axis=1)


def _mixed(strengths: Array, forms: Array, weight: float) -> Array:
    """Strengths that have heard these forms (n, k) as well."""
    return np.asarray(np.sqrt((1.0 - weight) * strengths**2 + weight * np.mean(forms**2, axis=0)))


def _split(product: float, offset: float, bound: float | None, of_bias: bool) -> tuple[float, float]:
    """Sizes of a and b with the given product: a 64 times b, but no louder than the query bias or the bound
    allows."""
    gamma = product if of_bias else 8.0 * np.sqrt(product)
    if not of_bias and offset != 0.0:
        gamma = min(gamma, 1.0 / abs(offset))
    beta = product / gamma
    if bound is not None and (of_bias or gamma + beta > bound):
        if of_bias:
            return min(gamma, bound), 0.0
        gamma = min(gamma, bound / 2)
        beta = min(product / gamma, bound - gamma)
    return gamma, beta
