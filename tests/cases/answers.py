"""Heads for answers with errors: unit v with one zero and one tiny entry, and W of spectral norm about two."""

from __future__ import annotations

import numpy as np

from unsoftmax import BoundedInputs, Oracle, SingleHead, as_oracle
from unsoftmax.models import Model
from unsoftmax.oracles import Array, OracleSpec

__all__ = ["Longest", "biased_head", "bounded", "distance", "hard_head", "relative_error", "with_unit_v"]


def hard_head(d: int, r: int | None = None, *, seed: int = 0, scale: float = 1.0) -> SingleHead:
    rng = np.random.default_rng([seed, d, 0 if r is None else r])
    W = rng.standard_normal((d, d)) / np.sqrt(d) if r is None else rng.standard_normal((d, r)) @ rng.standard_normal((r, d)) / np.sqrt(d * r)
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
