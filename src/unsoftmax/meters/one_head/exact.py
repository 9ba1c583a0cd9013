"""Two-row queries on one head: y = c + b·v + σ(aᵀ(Wb + w0))·(a·v), inverted for the score."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array, logit, norm
from unsoftmax.meters.base import Answers, Meter
from unsoftmax.meters.one_head.ranged_probes import (
    LARGEST_SCORE,
    SIGMOID_TEST,
    UNREADABLE,
    RangedProbes,
    TwoRowAnswers,
    two_rows,
)
from unsoftmax.meters.probes.balanced_basis import carrier_for
from unsoftmax.meters.probes.balanced_probes import AxisProbes, BalancedProbes, direction_that_sees
from unsoftmax.meters.probes.ladder import climb
from unsoftmax.meters.probes.sizes import choose_scales
from unsoftmax.outcomes import OutsideClass

__all__ = ["SIGMOID_TEST", "SigmoidMeter", "two_rows"]

_LARGEST_PRODUCT = 2.0**60  # of the sizes of a and b: a score that does not show there counts as zero
_TRIES = 24  # a search over 2^±60 in steps of 2^8 to 2^20
_ENOUGH_COLUMNS = 8  # at rank r they tell the typical score to about 25 %/√r; no later one is looked at
_FAINT = 0.02  # a score from which on its size is known to a few percent at least


class SigmoidMeter(Meter):
    """Exact value queries on a single head whose readout v, constant c and query bias w0 are known.

    `project` balances its probes, finds the range of scores by itself and asks saturated probes again,
    smaller.

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
        self._size = float(np.linalg.norm(v))
        self._average = self._size / np.sqrt(len(v))  # root mean square of x·v over unit vectors x
        self._bias = 0.0 if w0 is None else float(np.linalg.norm(w0)) / np.sqrt(len(v))
        self._answers = TwoRowAnswers(ledger, v, c)
        self._axes = AxisProbes(v)
        self._whole = RangedProbes(self._answers, self._axes, span_all=True)
        self._cached: tuple[Array, bool, RangedProbes, Array | None] | None = None
        self._typical: float | None = None
        self._squares, self._columns = 0.0, 0

    @property
    def width(self) -> int:
        return len(self._v)

    def resolution(self) -> float:
        """See `Meter.resolution`."""
        gamma, beta = self.sizes()
        constant = abs(self._c) / self._average
        own = (1.0 + (beta + constant) / gamma) / gamma
        from_bias = (1.0 + constant * self._bias) * self._bias  # w0 has an error of its own
        return float(8.0 * EPS * (own + from_bias) / beta)

    def typical_score(self) -> float:
        """Typical |aᵀWb| of unit vectors, found with a few queries when first called; 0 when W is zero as far
        as rounding tells."""
        if self._typical is None:
            self._typical = self._find_typical()
        return self._typical

    def sizes(self) -> tuple[float, float]:
        """Sizes (of a, of b) at which this head is measured best; may ask, as `typical_score` does."""
        return choose_scales(
            self.typical_score(),
            bias=self._bias,
            constant=abs(self._c),
            readout=self._average,
            bound=self._ledger.input_bound,
        )

    def query_bias(self) -> Array | None:
        """w0 from two-row queries whose asking row is zero: one look when there is none, d queries when there
        is."""
        typical = self._find_typical(of_bias=True)
        if typical == 0.0:
            return None
        probes = RangedProbes(self._answers, self._axes, span_all=True)
        forms, ratios = probes.measure(np.zeros((1, self.width)), typical)
        return np.asarray(self._axes.coordinates(forms, ratios)[0])

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        probes, carrier = (self._whole, None) if basis is None else self._probes_for(basis, rest_is_zero)
        beta = self.sizes()[1]
        asking = beta * B.T
        forms, ratios = self._W_part(probes, asking)
        if carrier is not None and not rest_is_zero:
            alone = RangedProbes(self._answers, BalancedProbes(self._v, carrier[:, None]))
            forms = forms - self._W_part(alone, asking)[0]
        return probes.probes.coordinates(forms, ratios).T / beta

    def _W_part(self, ranged: RangedProbes, asking: Array) -> tuple[Array, Array]:
        """Forms a_iᵀ W x of every probe with every asking row x, shape (n, k), and the ratios at which they
        were asked."""
        probes = ranged.probes
        length = norm(asking[0])
        typical = self.typical_score()
        if ranged.span_all:  # all of W b lies in the probes' span
            typical = typical * np.sqrt(self.width / probes.count)
        forms, ratios = ranged.measure(asking, length * typical + self._bias, well_known=self._columns > 0)
        if self._w0 is not None:
            forms = forms - probes.forms_of(self._w0, ratios)
        if ranged is self._whole and self._columns < _ENOUGH_COLUMNS:
            self._learn_typical(np.sum(probes.coordinates(forms, ratios) ** 2, axis=1) / length**2)
        return forms, ratios

    def _learn_typical(self, squares: Array) -> None:
        """Whole columns tell the typical score better than the one pair that it was first taken from."""
        self._squares += float(np.sum(squares))
        self._columns += len(squares)
        if self._columns in (1, 2, 4, _ENOUGH_COLUMNS):  # soon, then well: sizes stay the same otherwise
            self._typical = float(np.sqrt(self._squares / self._columns / self.width)) or self._typical

    def _probes_for(self, basis: Array, rest_is_zero: bool) -> tuple[RangedProbes, Array | None]:
        """Balanced probes of a subspace, and what was added to each of them."""
        if self._cached is not None and self._cached[0] is basis and self._cached[1] == rest_is_zero:
            return self._cached[2:]
        carrier = carrier_for(self._v, basis, rest_is_zero=rest_is_zero)
        if carrier is not None and not rest_is_zero:
            carrier = carrier / np.sqrt(self.width)  # then its own score is no larger than a probe's
        probes = BalancedProbes(self._v, basis, carrier)
        ranged = RangedProbes(self._answers, probes, span_all=rest_is_zero)
        self._cached = (basis, rest_is_zero, ranged, carrier)
        return ranged, carrier

    def _find_typical(self, *, of_bias: bool = False) -> float:
        """Size of |aᵀWb| (or |aᵀw0|) from one random pair asked at growing or shrinking sizes."""
        bound = self._ledger.input_bound
        a = direction_that_sees(self._v, self._rng)
        b = self._rng.standard_normal(self.width)
        b /= np.linalg.norm(b)
        offset = 0.0 if self._w0 is None else float(a @ self._w0)
        largest, typical = _LARGEST_PRODUCT, np.nan

        def look(product: float) -> float:
            nonlocal largest, typical
            gamma, beta = _split(product, offset, bound, of_bias)
            asking = (0.0 if of_bias else beta) * b
            signal = gamma * float(a @ self._v)
            answer = float(self._ledger.ask(np.stack([gamma * a + asking, asking])[None])[0])
            weight = (answer - self._c - float(asking @ self._v)) / signal
            self._answers.check(weight, signal, asking)
            score = float(logit(weight))
            part = abs(score - gamma * offset)
            rounding = 1e3 * EPS * (1.0 + (abs(self._c) / self._size + (0.0 if of_bias else beta)) / gamma)
            reached = gamma if of_bias else gamma * beta
            if not abs(score) < UNREADABLE:
                largest = product / 2.0**8
                return 2.0**-8
            if abs(score) > LARGEST_SCORE:
                return 1.0 / abs(score)
            stopped = reached < 0.9 * product  # by the bound
            at_most = stopped or product >= largest * (1.0 - 1e-12)
            if part >= _FAINT or (part > rounding and (stopped or product >= _LARGEST_PRODUCT)):
                typical = part / reached
            elif part <= rounding and (rounding > 0.01 or at_most):
                typical = 0.0
            else:
                return min(1.0 / part if part > rounding else 2.0**20, largest / product)
            return 1.0

        climb(look, 1.0, tries=_TRIES)
        if np.isnan(typical):
            raise OutsideClass(
                SIGMOID_TEST,
                "no size of the two rows gives a score between 0.02 and 5; a softmax passes through all of "
                "them",
            )
        return typical


def _split(product: float, offset: float, bound: float | None, of_bias: bool) -> tuple[float, float]:
    """Sizes of a and b with the given product: a 64 times b, but no larger than the query bias or the bound
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
