"""Targets that answer with probabilities, read as their logits: those are what attention computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import NonFiniteAnswers, OracleFault, UsageError
from unsoftmax.float_formats import decimals_of, smallest_format
from unsoftmax.oracles.base import Oracle, OracleSpec, TellsOutputs

__all__ = ["Logits"]

_FORMAT_UNITS = 8.0  # of the last place of a short format by which its own sum of probabilities may be off
_SUM_UNITS = 64.0  # of float64 for every probability


class Logits:
    """log(p / (1 - p)) of a probability; of several that add up to 1, log p less the mean of all.

    Where probabilities of a vector do not add up to 1, as with several labels, each has a logit of its own.
    A probability of exactly 0 or 1 has none: `NonFiniteAnswers` says so.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> oracle = Logits(FunctionOracle(lambda X: 1.0 / (1.0 + np.exp(-X[:, -1, 0]))))
    >>> oracle(np.array([[[2.0]], [[-3.0]]])).round(12)
    array([ 2., -3.])
    """

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        self._decimals: int | None = 0
        self._shares: bool | None = None  # whether the probabilities of a vector add up to 1

    @property
    def spec(self) -> OracleSpec:
        told = self.inner.spec
        return replace(told, fingerprint=None if told.fingerprint is None else f"{told.fingerprint}:logits")

    @property
    def adds_up(self) -> bool:
        """Whether the target was seen to answer with vectors of probabilities that add up to 1."""
        return bool(self._shares)

    @property
    def decimals(self) -> int | None:
        """The smallest number of decimals that writes all probabilities seen; None where they have more."""
        return self._decimals

    @property
    def takes_ids(self) -> bool:
        """Whether the target says that it takes token ids."""
        return bool(getattr(self.inner, "takes_ids", False))

    def with_outputs(self, outputs: int) -> Logits:
        """The same target, whose answers hold that many probabilities."""
        if isinstance(self.inner, TellsOutputs):
            return Logits(self.inner.with_outputs(outputs))
        raise UsageError("pass outputs=m together with probabilities")

    def close(self) -> None:
        """Closes the target, where it can be closed."""
        close: Any = getattr(self.inner, "close", None)
        if callable(close):
            close()

    def __call__(self, batch: Array, /) -> Array:
        logits = self.logits_of(self.probabilities(batch))
        endless = ~np.isfinite(logits).reshape(len(logits), -1).all(axis=1)
        if endless.any():
            raise NonFiniteAnswers(
                f"the target answered {int(endless.sum())} of {len(batch)} queries with a probability of "
                "exactly 0 or 1, whose logit is infinite; pass a smaller input_bound"
            )
        return logits

    def probabilities(self, batch: Array) -> Array:
        """What the target itself answers."""
        answers = self.inner(batch)
        for worst in (float(answers.min(initial=0.0)), float(answers.max(initial=0.0))):
            if not 0.0 <= worst <= 1.0:
                raise OracleFault(
                    f"the target answered {worst:.6g}, which is not a probability; leave out probabilities"
                )
        seen = decimals_of(answers)
        self._decimals = None if seen is None or self._decimals is None else max(seen, self._decimals)
        return answers

    def logits_of(self, probabilities: Array) -> Array:
        """The logits; infinite ones where a probability is 0 or 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if probabilities.ndim == 2 and self._add_up(probabilities):
                logs = np.log(probabilities)
                return np.asarray(logs - logs.mean(axis=1, keepdims=True))
            return np.asarray(np.log(probabilities) - np.log1p(-probabilities))

    def _add_up(self, probabilities: Array) -> bool:
        """Whether probabilities of a vector add up to 1, as far as their rounding lets them; what the first
        answers do, all must do, because a factor that all share does not show in the logits of a softmax. One
        answer alone may add up to 1 by chance."""
        sums = probabilities.sum(axis=1)
        off = np.abs(sums - 1.0)
        added = bool((off <= _explained(probabilities)).all())
        if self._shares is None:
            if len(probabilities) == 1:
                return added
            self._shares = added
        if self._shares and not added:
            raise OracleFault(
                "the probabilities of the first answers added up to 1, and those of a later one add up to "
                f"{float(sums[off.argmax()]):.10g}, which rounding does not explain; leave probabilities out"
            )
        return self._shares


def _explained(probabilities: Array) -> float:
    """How far rounding may bring the sum of a vector of probabilities from 1: by the decimals that they are
    told in, or by the format that they are stored in."""
    n = probabilities.shape[1]
    decimals = decimals_of(probabilities)
    if decimals is not None:
        return float(0.5 * n * 10.0**-decimals + _SUM_UNITS * EPS * n)
    short = smallest_format(probabilities)
    return float(_SUM_UNITS * EPS * n if short is None else (_FORMAT_UNITS + np.sqrt(n)) * short.unit)
