"""What may be done to answers, by name; and heads for them: unit v with one zero and one tiny entry, W of
spectral norm about two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import unsoftmax
from unsoftmax import BoundedInputs, Oracle, SingleHead, as_oracle
from unsoftmax.arrays import Array
from unsoftmax.models import Model
from unsoftmax.oracles import OracleSpec

__all__ = [
    "ANSWERS",
    "Longest",
    "biased_head",
    "bounded",
    "distance",
    "hard_head",
    "relative_error",
    "with_unit_v",
]


ANSWERS: dict[str, Callable[[Oracle, int], Oracle]] = {
    "exact": lambda o, s: o,
    "rounded to 2 decimals": lambda o, s: unsoftmax.Rounded(o, 2),
    "rounded to 4 decimals": lambda o, s: unsoftmax.Rounded(o, 4),
    "tolerance": lambda o, s: unsoftmax.WithinTolerance(o, 1e-3, s),
    "noise": lambda o, s: unsoftmax.Noisy(o, 1e-2, s),
    "float32": lambda o, s: unsoftmax.LowPrecision(o, "float32"),
    "float16": lambda o, s: unsoftmax.LowPrecision(o, "float16"),
    "bfloat16": lambda o, s: unsoftmax.LowPrecision(o, "bfloat16"),
    "labels": lambda o, s: unsoftmax.Labels(o),
    "flipped labels": lambda o, s: unsoftmax.FlippedLabels(o, 0.05, s),
    "clipped": lambda o, s: unsoftmax.Clipped(o, 20.0),
}


def pushed_by(head: SingleHead, tau: float) -> tuple[Callable[[Array], Array], ...]:
    """The head with every answer pushed by the whole tolerance: towards zero, away from it, to one side, or
    to a grid."""

    def towards_zero(X: Array) -> Array:
        y = head(X)
        return np.asarray(y - np.sign(y) * np.minimum(np.abs(y), tau))

    return (
        towards_zero,
        lambda X: head(X) + tau * np.sign(head(X)),
        lambda X: head(X) + 0.9 * tau,
        lambda X: np.round(head(X) / (2 * tau)) * (2 * tau),
    )


def hard_head(d: int, r: int | None = None, *, seed: int = 0, scale: float = 1.0) -> SingleHead:
    rng = np.random.default_rng([seed, d, 0 if r is None else r])
    W = (
        rng.standard_normal((d, d)) / np.sqrt(d)
        if r is None
        else rng.standard_normal((d, r)) @ rng.standard_normal((r, d)) / np.sqrt(d * r)
    )
    v = rng.standard_normal(d)
    if d > 2:
        v[int(rng.integers(d))] = 0.0
        v[int(rng.integers(d))] *= 1e-9
    return SingleHead(scale * W, v / np.linalg.norm(v))


def biased_head(d: int, r: int | None = None, *, seed: int = 0, bias: float = 1.0) -> SingleHead:
    """`hard_head` with a query bias `bias` times as long as W x for a typical unit row x."""
    head = hard_head(d, r, seed=seed)
    w0 = np.random.default_rng([seed, d, 99]).standard_normal(d)
    return SingleHead(head.W, head.v, bias * np.linalg.norm(head.W) / np.sqrt(d) * w0 / np.linalg.norm(w0))


def with_unit_v(head: SingleHead) -> SingleHead:
    return SingleHead(head.W, head.v / np.linalg.norm(head.v), head.w0)


def distance(true: SingleHead, found: Model) -> float:
    assert isinstance(found, SingleHead)
    return true.distance(found)


def relative_error(found: Array, true: Array) -> float:
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


class Longest:
    """Passes everything on, and remembers the longest row."""

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        self.norm = 0.0

    @property
    def spec(self) -> OracleSpec:
        return self.inner.spec

    def __call__(self, batch: Array, /) -> Array:
        self.norm = max(self.norm, float(np.linalg.norm(batch, axis=2).max()))
        return self.inner(batch)


def bounded(oracle: Oracle | SingleHead, bound: float) -> Longest:
    return Longest(BoundedInputs(as_oracle(oracle), bound))
