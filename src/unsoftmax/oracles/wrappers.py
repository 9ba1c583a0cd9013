"""Oracles around oracles: what a defence or a weak instrument does to answers."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import Array, longest_rows
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.float_formats import FloatFormat
from unsoftmax.oracles.base import Oracle, OracleSpec

__all__ = [
    "BoundedInputs",
    "Clipped",
    "FlippedLabels",
    "Labels",
    "LimitedLength",
    "LowPrecision",
    "Noisy",
    "Reversed",
    "Rounded",
    "WithinTolerance",
]


class _Wrapper:
    """Answers of `inner`, changed by `_change`; the spec is the inner one unless a subclass says otherwise.
    draws: whether it changes them afresh at every query."""

    draws: ClassVar[bool] = False

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, deterministic=False) if self.draws else self.inner.spec

    def __call__(self, batch: Array, /) -> Array:
        return self._change(batch, self.inner(batch))

    def _change(self, batch: Array, answers: Array) -> Array:
        raise NotImplementedError  # pragma: no cover - abstract


class Labels(_Wrapper):
    """Membership queries: 1 when the answer is positive, else 0.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> Labels(FunctionOracle(lambda X: X[:, -1, 0]))(np.array([[[2.0]], [[-3.0]]]))
    array([1., 0.])
    """

    def _change(self, batch: Array, answers: Array) -> Array:
        return (answers > 0).astype(np.float64)


class FlippedLabels(Labels):
    """Labels of which each is flipped with probability `flip`, afresh at every query.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> oracle = FlippedLabels(FunctionOracle(lambda X: X[:, -1, 0]), 0.25, seed=0)
    >>> float(oracle(np.ones((1000, 1, 1))).mean().round(1))
    0.8
    """

    draws = True

    def __init__(self, inner: Oracle, flip: float, seed: int = 0) -> None:
        super().__init__(inner)
        if not 0.0 <= flip < 0.5:
            raise UsageError(f"a label may be flipped with a probability from 0 to below 0.5, not {flip!r}")
        self.flip = float(flip)
        self._rng = np.random.default_rng(seed)

    def _change(self, batch: Array, answers: Array) -> Array:
        labels = super()._change(batch, answers)
        return np.where(self._rng.random(labels.shape) < self.flip, 1.0 - labels, labels)


class LowPrecision(_Wrapper):
    """Answers computed exactly and then stored as float32, float16 or bfloat16.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> float(LowPrecision(FunctionOracle(lambda X: X[:, -1, 0]), "bfloat16")(np.array([[[3.14159]]]))[0])
    3.140625
    """

    def __init__(self, inner: Oracle, precision: str) -> None:
        super().__init__(inner)
        if precision not in list(FloatFormat):
            raise UsageError(f"precision must be one of {', '.join(FloatFormat)}, not {precision!r}")
        self.precision = precision

    def _change(self, batch: Array, answers: Array) -> Array:
        return FloatFormat(self.precision).store(answers)


class Clipped(_Wrapper):
    """Answers held between -limit and limit.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> Clipped(FunctionOracle(lambda X: X[:, -1, 0]), 2.0)(np.array([[[5.0]], [[-1.0]]]))
    array([ 2., -1.])
    """

    def __init__(self, inner: Oracle, limit: float) -> None:
        super().__init__(inner)
        if not (np.isfinite(limit) and limit > 0):
            raise UsageError(f"the limit must be a finite number > 0, not {limit!r}")
        self.limit = float(limit)

    def _change(self, batch: Array, answers: Array) -> Array:
        return np.clip(answers, -self.limit, self.limit)


class Rounded(_Wrapper):
    """Answers rounded to `decimals` places.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> Rounded(FunctionOracle(lambda X: X[:, -1, 0]), 1)(np.array([[[0.26]]]))
    array([0.3])
    """

    def __init__(self, inner: Oracle, decimals: int) -> None:
        super().__init__(inner)
        self.decimals = int(decimals)

    def _change(self, batch: Array, answers: Array) -> Array:
        return np.round(answers, self.decimals)


class WithinTolerance(_Wrapper):
    """Answers off by up to `tau`, the error being a fixed function of the query: asking again gives the same
    answer.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> oracle = WithinTolerance(FunctionOracle(lambda X: X[:, -1, 0]), 0.1, seed=1)
    >>> X = np.ones((2, 1, 1))
    >>> bool((abs(oracle(X) - 1) <= 0.1).all()), bool((oracle(X) == oracle(X)).all())
    (True, True)
    """

    def __init__(self, inner: Oracle, tau: float, seed: int = 0) -> None:
        super().__init__(inner)
        if not (np.isfinite(tau) and tau >= 0):
            raise UsageError(f"tau must be a finite number >= 0, not {tau!r}")
        self.tau = float(tau)
        self._key = blake2b(str(seed).encode(), digest_size=16).digest()

    def _change(self, batch: Array, answers: Array) -> Array:
        sequences = np.ascontiguousarray(batch)
        width = 1 if answers.ndim == 1 else answers.shape[1]
        errors = np.array([self._errors(sequence, width) for sequence in sequences]).reshape(answers.shape)
        return answers + self.tau * errors

    def _errors(self, sequence: Array, width: int) -> Array:
        digest = blake2b(sequence.tobytes(), key=self._key, digest_size=8).digest()
        seed = int.from_bytes(digest, "little")
        if width == 1:
            return np.array([seed / 2**63 - 1.0])
        return np.random.default_rng(seed).uniform(-1.0, 1.0, width)


class Noisy(_Wrapper):
    """Fresh Gaussian noise of standard deviation `sigma` on every answer.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> oracle = Noisy(FunctionOracle(lambda X: X[:, -1, 0]), 0.1, seed=1)
    >>> X = np.ones((1, 1, 1))
    >>> bool(oracle(X)[0] != oracle(X)[0])
    True
    """

    draws = True

    def __init__(self, inner: Oracle, sigma: float, seed: int = 0) -> None:
        super().__init__(inner)
        if not (np.isfinite(sigma) and sigma >= 0):
            raise UsageError(f"sigma must be a finite number >= 0, not {sigma!r}")
        self.sigma = float(sigma)
        self._rng = np.random.default_rng(seed)

    def _change(self, batch: Array, answers: Array) -> Array:
        return answers + self.sigma * self._rng.standard_normal(answers.shape)


class Reversed(_Wrapper):
    """Sends every sequence with its rows in reverse: a target whose first row asks is one whose last row
    does.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> Reversed(FunctionOracle(lambda X: X[:, 0, 0]))(np.array([[[1.0], [2.0]]]))
    array([2.])
    """

    def __call__(self, batch: Array, /) -> Array:
        return self.inner(batch[:, ::-1].copy())


class LimitedLength(_Wrapper):
    """Tells in its spec that sequences may have at most `longest` rows.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> LimitedLength(FunctionOracle(lambda X: X[:, -1, 0]), 8).spec.max_length
    8
    """

    def __init__(self, inner: Oracle, longest: int) -> None:
        super().__init__(inner)
        told = inner.spec.max_length
        self.longest = longest if told is None else min(longest, told)

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, max_length=self.longest)

    def __call__(self, batch: Array, /) -> Array:
        return self.inner(batch)


class BoundedInputs(_Wrapper):
    """Refuses sequences with a row longer than `bound`; tells the bound in its spec.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> BoundedInputs(FunctionOracle(lambda X: X[:, -1, 0]), 2.0).spec.input_bound
    2.0
    """

    def __init__(self, inner: Oracle, bound: float) -> None:
        super().__init__(inner)
        if not (np.isfinite(bound) and bound > 0):
            raise UsageError(f"the input bound must be a finite number > 0, not {bound!r}")
        self.bound = float(bound)

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, input_bound=self.bound)

    def __call__(self, batch: Array, /) -> Array:
        longest = float(longest_rows(batch).max(initial=0.0))
        if longest > self.bound * (1 + 1e-12):
            raise OracleFault(
                f"a row of norm {longest:.6g} was sent, but the target takes at most {self.bound:.6g}; pass "
                f"input_bound={self.bound:.6g}"
            )
        return self.inner(batch)
