"""Heads that a fit has found, whatever a query answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.two_row_queries import Baseline
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads

__all__ = ["FittedHeads", "as_model"]

Heads = TypeVar("Heads")
Problem = TypeVar("Problem")


@dataclass(frozen=True)
class FittedHeads(Generic[Heads, Problem]):
    """heads, the weighted problem that they minimise, and what single rows tell."""

    heads: Heads
    fit: Problem
    baseline: Baseline


def as_model(heads: HeadFactors | VectorHeads, values: Array) -> MultiHead:
    """The heads as a model, held as factors. values: what each head reads out, (H, d) or (H, d, m)."""
    singles = [
        SingleHead((K[:rank].T, Q[:rank, :-1].T), value, w0=K[:rank].T @ Q[:rank, -1])
        for K, Q, value, rank in zip(heads.K, heads.Q, values, heads.ranks, strict=True)
    ]
    return MultiHead(singles, heads.c)
