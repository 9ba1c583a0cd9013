"""Two-row queries on one head: y = c + b·v + σ(aᵀ(Wb + w0))·(a·v), inverted for the score."""

from __future__ import annotations

import numpy as np

from unsoftmax.meters.base import Answers
from unsoftmax.meters.probes import BalancedProbes, audible_direction
from unsoftmax.meters.ranging import TARGET_SCORE, choose_scales
from unsoftmax.oracles import Array
from unsoftmax.outcomes import OutsideClass

__all__ = ["SIGMOID_TEST", "SigmoidMeter", "logit", "two_rows"]

SIGMOID_TEST = "two-row answers follow a sigmoid"

_EPS = float(np.finfo(float).eps)
_LARGEST_SCORE = 5.5  # beyond, the inverse sigmoid loses more than two digits: ask again, smaller
_LARGEST_PRODUCT = 2.0**60
_LOUD = 8.0  # how much louder than the average a row's probe may be made
_TRIES = 24


class SigmoidMeter:
    """Exact value queries on a single head whose readout v, constant c and query bias w0 are known.

    `project` balances its probes, finds the range of scores by itself and asks saturated probes again, smaller.
    `forms` asks the given pairs as they are, as the paper does.

    >>> from unsoftmax import Ledger, SingleHead
    >>> from unsoftmax.oracles import FunctionOracle
    >>> head = SingleHead(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2))
    >>> meter = SigmoidMeter(Ledger(FunctionOracle(head), width=2), head.v, rng=np.random.default_rng(0))
    >>> np.round(meter.project(None, np.eye(2)), 9)
    array([[1., 2.],
           [3., 4.]])
    """

    def __init__(self, ledger: Answers, v: Array, c: float = 0.0, w0: Array | None = None, *, rng: np.random.Generator | None = None) -> None:
        self._ledger = ledger
        self._v = v
        self._c = c
        self._w0 = w0
        self._rng = rng if rng is not None else np.random.default_rng(0)
        self._loudness = float(np.linalg.norm(v)) / np.sqrt(len(v))
        self._whole = BalancedProbes(v)
        self._cached: tuple[Array, bool, BalancedProbes] | None = None
        self._strength: float | None = None
        self._typical: float | None = None  # the same from a whole column, known better

    @property
    def width(self) -> int:
        return len(self._v)

    @property
    def resolution(self) -> float:
        gamma, beta = self.scales
        constant, bias = abs(self._c) / self._loudness, self._bias_strength()
        own = (1.0 + (beta + constant) / gamma) / gamma
        from_bias = (1.0 + constant * bias) * bias  # w0 was measured with an error, and is subtracted
        return float(8.0 * _EPS * (own + from_bias) / beta)

    @property
    def strength(self) -> float:
        """Typical |aᵀWb| of unit vectors, found with a few queries when first needed; 0 when nothing is there."""
        if self._strength is None:
            self._strength = self._find_strength()
        return self._strength

    def forms(self, A: Array, B: Array) -> Array:
        """logit of the recovered weight for each pair (a, b), literally; saturated pairs come back as NaN or infinity."""
        answers = self._ledger.ask(two_rows(A, B))
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = logit((answers - self._c - B @ self._v) / (A @ self._v))
        return scores if self._w0 is None else scores - A @ self._w0

    def query_bias(self) -> Array | None:
        """w0 from two-row queries whose asking row is zero: one look when there is none, d queries when there is."""
        strength = self._find_strength(of_bias=True)
        if strength == 0.0:
            return None
        forms = self._ranged(self._whole, np.zeros((1, self.width)), strength)
        self._whole.strengths = None
        return np.asarray(self._whole.coordinates(forms)[0])

    def project(self, basis: Array | None, B: Array, *, rest_is_silent: bool = False) -> Array:
        probes = self._probes_for(basis, rest_is_silent)
        beta = self.scales[1]
        asking = beta * B.T
        carried: Array | float = 0.0
        if probes.carrier is not None and not rest_is_silent:
            alone = BalancedProbes(self._v, probes.carrier[:, None])
            carried = self._W_part(alone, asking)
        return probes.coordinates(self._W_part(probes, asking) - carried).T / beta

    def _W_part(self, probes: BalancedProbes, asking: Array) -> Array:
        """a_iᵀ W x for every probe and every asking row x, shape (n, k)."""
        length = float(np.linalg.norm(asking[0]))
        typical = self._typical if self._typical is not None else self.strength
        forms = self._ranged(probes, asking, length * typical + self._bias_strength())
        if self._w0 is not None:
            forms = forms - probes.forms_of(self._w0)
        if probes is self._whole:
            self._typical = _rms(forms[0]) / length
        return forms

    def _ranged(self, probes: BalancedProbes, asking: Array, usual: float) -> Array:
        """a_iᵀ(W x + w0); on new probes a few rows teach the range of the others, and every call refines it."""
        if probes.strengths is None:
            probes.strengths = np.full(probes.count, usual)
            pilot = min(8, probes.count)
            first = self._functionals(probes, asking[:1], (0, pilot))
            probes.strengths[pilot:] = _rms(first) or usual
            first = np.concatenate([first, self._functionals(probes, asking[:1], (pilot, probes.count))], axis=1)
            probes.strengths = np.sqrt(0.5 * first[0] ** 2 + 0.5 * (_rms(first) or usual) ** 2)
            return np.concatenate([first, self._functionals(probes, asking[1:])])
        forms = self._functionals(probes, asking)
        probes.strengths = np.sqrt(0.8 * probes.strengths**2 + 0.2 * np.mean(forms**2, axis=0))
        return forms

    def _functionals(self, probes: BalancedProbes, asking: Array, span: tuple[int, int] | None = None) -> Array:
        """a_iᵀ(W x + w0) for the probes start..stop and every asking row x, each asked at a size that does not saturate."""
        start, stop = span if span is not None else (0, probes.count)
        n, k = len(asking), stop - start
        if n == 0 or k == 0:
            return np.empty((n, k))
        assert probes.strengths is not None
        strengths = probes.strengths[start:stop]
        average = float(np.sqrt(np.mean(strengths**2)))
        gamma = TARGET_SCORE / np.maximum(strengths, average / _LOUD) if average > 0.0 else np.full(k, _LARGEST_PRODUCT)
        gamma = np.minimum(gamma, self._largest_gamma(probes, asking))
        forms = np.empty((n, k))
        size = self._ledger.batch_size(2)
        step = max(1, size // k)
        for j in range(0, n, step):
            for i in range(0, k, size):
                rows = slice(i, min(i + size, k))
                block = slice(j, min(j + step, n))
                forms[block, rows] = self._grid(probes.rows(start + i, start + rows.stop), gamma[rows], asking[block], probes.readout)
        return forms

    def _grid(self, rows: Array, gamma: Array, asking: Array, readout: float) -> Array:
        """Every probe row with every asking row, in one batch; then the saturated ones again until none is left."""
        n, k = len(asking), len(rows)
        scaled = gamma[:, None] * rows
        batch = np.empty((n, k, 2, self.width))
        np.add(scaled[None], asking[:, None], out=batch[:, :, 0])
        batch[:, :, 1] = asking[:, None]
        base = self._c + asking @ self._v
        answers = self._ledger.ask(batch.reshape(n * k, 2, self.width)).reshape(n, k)
        weights = (answers - base[:, None]) / (gamma * readout)
        scores = logit(weights)
        forms = scores / gamma
        for j, i in np.argwhere(~(np.abs(scores) <= _LARGEST_SCORE)):
            forms[j, i] = self._again(rows[i], asking[j], gamma[i], weights[j, i], readout)
        return forms

    def _again(self, row: Array, asking: Array, gamma: float, weight: float, readout: float) -> float:
        """A saturated probe, asked again at smaller and smaller sizes."""
        base = self._c + float(asking @ self._v)
        for _ in range(_TRIES):
            self._plausible(weight, gamma * readout, asking)
            score = abs(float(logit(weight)))
            gamma *= TARGET_SCORE / score if score < 25.0 else 2.0**-6
            answer = self._ledger.ask((np.stack([gamma * row + asking, asking]))[None])[0]
            weight = (float(answer) - base) / (gamma * readout)
            score = float(logit(weight))
            if abs(score) <= _LARGEST_SCORE:
                return score / gamma
        raise OutsideClass(
            SIGMOID_TEST, f"the first row's weight stays at {weight:.3g} however small the row is made; a softmax would share it evenly"
        )

    def _plausible(self, weight: float, signal: float, asking: Array) -> None:
        """A weight outside [0, 1] by more than rounding is no attention weight."""
        slack = 1e-7 + 1e4 * _EPS * (abs(self._c) + float(np.linalg.norm(asking)) * self._loudness * np.sqrt(self.width)) / abs(signal)
        if not -slack <= weight <= 1.0 + slack:
            raise OutsideClass(SIGMOID_TEST, f"the first row's weight would be {weight:.6g}, and a weight lies between 0 and 1")

    def _probes_for(self, basis: Array | None, rest_is_silent: bool) -> BalancedProbes:
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
            carrier = self._v / size
        probes = BalancedProbes(self._v, basis, carrier)
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

    def _largest_gamma(self, probes: BalancedProbes, asking: Array) -> float:
        """Keeps rows within the input bound; probes are at most sqrt(2) long (unit plus unit carrier)."""
        if self._ledger.input_bound is None:
            return np.inf
        longest = float(np.sqrt(np.einsum("nd,nd->n", asking, asking).max()))
        return max(self._ledger.input_bound - longest, 0.0) / (1.0 if probes.carrier is None else 2.0)

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
            rounding = 1e3 * _EPS * (1.0 + (abs(self._c) / size + (0.0 if of_bias else beta)) / gamma)
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
        raise OutsideClass(SIGMOID_TEST, "no size of the two rows gives a score between 0.02 and 5; a softmax passes through all of them")


def logit(weight: Array | float) -> Array:
    """log(p / (1 - p)); infinite at and beyond 0 and 1, where no score can be read."""
    p = np.asarray(weight, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.log(p) - np.log1p(-p)
    return np.asarray(np.where(p <= 0.0, -np.inf, np.where(p >= 1.0, np.inf, inner)))


def two_rows(A: Array, B: Array) -> Array:
    """The sequences [a+b; b], one for each pair of rows."""
    return np.stack([A + B, B], axis=1)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _split(product: float, offset: float, bound: float | None, of_bias: bool) -> tuple[float, float]:
    """Sizes of a and b with the given product: a 64 times b, but no louder than the query bias or the bound allows."""
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
