"""The Jacobian of heads over tokens by its products alone, where the system is too large to be held.

y = Σ_t w_t u_t moves by Σ_t m_t (δk_t·q + k_t·δq) + Σ_t w_t δu_t with m_t = w_t (u_t − y). With m and w as
sparse arrays over sequences and tokens, all of that is a few products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.late_scipy import csr_matrix

__all__ = ["HeadProducts", "TokenProducts"]


@dataclass(frozen=True, eq=False)
class HeadProducts:
    """Products of one head: moves and weights, sparse (n, V); the query of every sequence, and m·keys: (n, k)
    each."""

    moves: Any
    weights: Any
    queries: Array
    by_query: Array

    @property
    def size(self) -> int:
        """Keys and values."""
        return int(self.moves.shape[1] * (self.queries.shape[1] + 1))

    def forward(self, keys: Array, values: Array) -> Array:
        """What keys and values that move add to the answers."""
        return np.asarray(
            np.einsum("nk,nk->n", self.moves @ keys, self.queries) + self.weights @ values, dtype=np.float64
        )

    def backward(self, residual: Array) -> tuple[Array, Array]:
        """The transpose of `forward`."""
        return self.moves.T @ (residual[:, None] * self.queries), self.weights.T @ residual

    def blocks(self) -> Array:
        """Normal matrices (V, k + 1, k + 1) of key and value of every token, the others held."""
        V, k = self.moves.shape[1], self.queries.shape[1]
        moves, weights = self.moves.tocsc(), self.weights.tocsc()
        blocks = np.zeros((V, k + 1, k + 1))
        for token in range(V):
            part = slice(moves.indptr[token], moves.indptr[token + 1])
            slopes = moves.data[part, None] * self.queries[moves.indices[part]]
            rows = np.column_stack([slopes, weights.data[part]])
            blocks[token] = rows.T @ rows
        return blocks


@dataclass(frozen=True, eq=False)
class TokenProducts:
    """Unknowns are ordered: keys and values of every head, then the queries of all heads for every token."""

    heads: tuple[HeadProducts, ...]
    asking: Ids
    vocabulary: int

    @property
    def unknowns(self) -> int:
        """Number of parameters."""
        return sum(head.size for head in self.heads) + int(self.vocabulary * self._inner.shape[1])

    @cached_property
    def _inner(self) -> Array:
        return np.concatenate([head.by_query for head in self.heads], axis=1)

    def forward(self, step: Array) -> Array:
        """J·step."""
        parts, queries = self._split(step)
        answers = np.einsum("nb,nb->n", self._inner, queries[self.asking])
        for head, (keys, values) in zip(self.heads, parts, strict=True):
            answers = answers + head.forward(keys, values)
        return np.asarray(answers)

    def backward(self, residual: Array) -> Array:
        """Jᵀ·residual."""
        parts = [part.ravel() for head in self.heads for part in head.backward(residual)]
        queries = self._askers @ (residual[:, None] * self._inner)
        return np.concatenate([*parts, queries.ravel()])

    def diagonal(self) -> Array:
        """The diagonal of JᵀJ."""
        parts: list[Array] = []
        for head in self.heads:
            parts.append((head.moves.multiply(head.moves).T @ head.queries**2).ravel())
            parts.append(np.asarray(head.weights.multiply(head.weights).sum(axis=0)).ravel())
        return np.concatenate([*parts, (self._askers @ self._inner**2).ravel()])

    def normal(self) -> Array:
        """JᵀJ."""
        return np.array([self.backward(self.forward(unit)) for unit in np.eye(self.unknowns)])

    def preconditioner(self, damping: Array) -> Callable[[Array], Array]:
        """The inverse of the blocks of every token: its key and value in each head, and its queries."""
        parts, queries = self._split(damping)
        inverses = []
        for head, (keys, values) in zip(self.heads, parts, strict=True):
            inverses.append(_inverted(head.blocks(), np.column_stack([keys, values])))
        inner = _inverted(self._query_blocks(), queries)

        def solve(vector: Array) -> Array:
            found: list[Array] = []
            parts, own = self._split(vector)
            for inverse, (keys, values) in zip(inverses, parts, strict=True):
                both = np.einsum("vbc,vc->vb", inverse, np.column_stack([keys, values]))
                found += [both[:, :-1].ravel(), both[:, -1]]
            return np.concatenate([*found, np.einsum("vbc,vc->vb", inner, own).ravel()])

        return solve

    @cached_property
    def _askers(self) -> Any:
        """Sums over the sequences of every asking token, sparse (V, n)."""
        n = len(self.asking)
        return csr_matrix((np.ones(n), (self.asking, np.arange(n))), (self.vocabulary, n))

    def _query_blocks(self) -> Array:
        order = np.argsort(self.asking, kind="stable")
        bounds = np.searchsorted(self.asking[order], np.arange(self.vocabulary + 1))
        inner = self._inner[order]
        parts = (inner[bounds[token] : bounds[token + 1]] for token in range(self.vocabulary))
        return np.array([part.T @ part for part in parts])

    def _split(self, vector: Array) -> tuple[list[tuple[Array, Array]], Array]:
        parts, at = [], 0
        for head in self.heads:
            k, V = head.queries.shape[1], self.vocabulary
            keys = vector[at : at + V * k].reshape(V, k)
            parts.append((keys, vector[at + V * k : at + V * (k + 1)]))
            at += V * (k + 1)
        return parts, vector[at:].reshape(self.vocabulary, -1)


def _inverted(blocks: Array, damping: Array) -> Array:
    size = blocks.shape[1]
    blocks[:, np.arange(size), np.arange(size)] += damping
    return np.asarray(np.linalg.inv(blocks), dtype=np.float64)
