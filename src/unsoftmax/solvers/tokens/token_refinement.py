"""Joint refinement of heads over tokens: all keys, queries, values and positions to all answers at once.

A sequence has one asking token, so the queries of different tokens never meet in an answer. They are
eliminated block by block, and what is left is a system in keys, values and positions alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.late_scipy import cho_factor, cho_solve, csr_matrix
from unsoftmax.models.tokens.token_head import TokenHead, TokenPositions
from unsoftmax.solvers.least_squares.joint_refinement import Refined, RefinementOptions, refine
from unsoftmax.solvers.tokens.token_answers import FlatSequences
from unsoftmax.solvers.tokens.token_products import HeadProducts, TokenProducts

__all__ = ["LAST_STEPS", "TOKEN_OPTIONS", "TokenFit", "TokenState", "refine_tokens"]

TokenState = tuple[TokenHead, ...]
_DENSE = 4500  # keys, values and positions up to which their system is solved whole: 160 MB
_CHUNK = 1 << 17  # entries whose keys are gathered at once: 34 MB at rank 32
_SPARSE_COST = 50.0  # a product of sparse entries takes about as long as so many of dense ones
_BLOCK = 1024  # rows that are held as an array at once
_WIDE = 4  # times fewer entries than the system has, from which single ones are faster
_JITTER = 1e-14  # relative, where rounding makes a system indefinite
TOKEN_OPTIONS = RefinementOptions(
    iterations=20,
    damping=1e-6,
    least_damping=1e-13,
    most_damping=1e-3,  # starts are close, and every attempt takes a factorisation
    improvement=1e-2,
    enough=0.25,  # noise is a bound on single answers, and residuals of float64 are below half of it
    dense_limit=0,
    inner_iterations=4,  # the preconditioner is the inverse, up to rounding
)
# a few tokens that are still off hardly show in the rms of all
LAST_STEPS = replace(TOKEN_OPTIONS, iterations=2, enough=0.0)


def _is_large(state: TokenState) -> bool:
    """Whether keys and values are too many for a system that is held whole."""
    return sum(head.keys.size + len(head.values) for head in state) > _DENSE


@dataclass(frozen=True, eq=False)
class TokenFit:
    """weight·(predicted − answered) as a function of heads; scalar answers (n,). noise: divides residuals."""

    sequences: FlatSequences
    answers: Array
    noise: float

    def residual(self, state: TokenState) -> Array:
        """What is left of every answer."""
        predicted = sum(self._parts(head)[1] for head in state)
        return np.asarray((predicted - self.answers) / self.noise)

    def moved(self, state: TokenState, step: Array) -> TokenState:
        """Heads with all parameters moved."""
        return _unpacked(_packed(state) + step, state)

    def linearise(self, state: TokenState) -> _TokenJacobian | TokenProducts:
        """The Jacobian, by its products alone where the vocabulary is large."""
        flat, V = self.sequences, len(state[0].keys)
        places = 0 if state[0].positions is None else state[0].positions.longest
        if _is_large(state) and not places:
            return self._products(state)
        kept, columns, rows, queries = [], [], [], []
        at = 0
        for head in state:
            weights, answers, query = self._parts(head)
            key, k = self._keys(head, slice(None)), head.keys.shape[1]
            moves = weights * (self._values(head) - answers[flat.rows])
            slopes = moves[:, None] * query[flat.rows]
            of_tokens = at + flat.tokens[:, None] * k + np.arange(k)
            pieces = [(slopes, of_tokens), (weights[:, None], at + V * k + flat.tokens[:, None])]
            at += V * (k + 1)
            asked = flat.sums(moves[:, None] * key)
            if places:
                pieces.append((slopes, at + flat.places[:, None] * k + np.arange(k)))
                pieces.append((weights[:, None], at + places * k + flat.places[:, None]))
                at += places * (k + 1)
            for values, where in pieces:
                kept.append(values.ravel())
                columns.append(where.ravel())
                rows.append(np.repeat(flat.rows, values.shape[1]))
            if places:
                kept.append(asked.ravel())
                columns.append((at + flat.last[:, None] * k + np.arange(k)).ravel())
                rows.append(np.repeat(np.arange(len(flat)), k))
                at += places * k
            queries.append(asked)
        shape = (len(flat), at)
        outer = csr_matrix(
            (np.concatenate(kept) / self.noise, (np.concatenate(rows), np.concatenate(columns))), shape
        )
        return _TokenJacobian(outer, np.concatenate(queries, axis=1) / self.noise, flat.asking, V)

    def _products(self, state: TokenState) -> TokenProducts:
        flat, V = self.sequences, len(state[0].keys)
        heads = []
        for head in state:
            weights, answers, query = self._parts(head)
            moves = weights * (self._values(head) - answers[flat.rows])
            moved, weighed = (self._by_token(part, V) for part in (moves, weights))
            heads.append(HeadProducts(moved, weighed, query, moved @ head.keys))
        return TokenProducts(tuple(heads), flat.asking, V)

    def _by_token(self, entries: Array, vocabulary: int) -> Any:
        """A number for every entry as a sparse array (n, V), in units of noise."""
        flat = self.sequences
        ends = np.append(flat.starts, len(entries))
        return csr_matrix((entries / self.noise, flat.tokens, ends), (len(flat), vocabulary))

    def value_weights(self, state: TokenState) -> Any:
        """The weight of every value in every answer, sparse (n, H(V + L)), heads one after the other.

        Values of tokens come first, then those of places, if there are any.
        """
        flat, V = self.sequences, len(state[0].keys)
        L = 0 if state[0].positions is None else state[0].positions.longest
        weights, columns = [], []
        for place, head in enumerate(state):
            own = self._parts(head)[0]
            weights += [own, own] if L else [own]
            columns += [place * (V + L) + flat.tokens] + ([place * (V + L) + V + flat.places] if L else [])
        rows = np.tile(flat.rows, len(weights))
        shape = (len(flat), len(state) * (V + L))
        return csr_matrix((np.concatenate(weights), (rows, np.concatenate(columns))), shape)

    def _values(self, head: TokenHead) -> Array:
        values = head.values[self.sequences.tokens]
        if head.positions is not None:
            values = values + head.positions.values[self.sequences.places]
        return np.asarray(values)

    def _keys(self, head: TokenHead, part: slice) -> Array:
        """Keys of some entries, (e, k)."""
        keys = head.keys[self.sequences.tokens[part]]
        if head.positions is not None:
            keys = keys + head.positions.keys[self.sequences.places[part]]
        return np.asarray(keys)

    def _parts(self, head: TokenHead) -> tuple[Array, Array, Array]:
        """Weights (E,), answers (n,) and queries of sequences (n, k)."""
        flat = self.sequences
        queries = head.queries[flat.asking]
        if head.positions is not None:
            queries = queries + head.positions.queries[flat.last]
        scores = np.empty(len(flat.tokens))
        for start in range(0, len(scores), _CHUNK):
            part = slice(start, start + _CHUNK)
            scores[part] = np.einsum("ek,ek->e", self._keys(head, part), queries[flat.rows[part]])
        weights = flat.softmax(scores)
        return weights, flat.sums(weights * self._values(head)), queries


@dataclass(frozen=True, eq=False)
class _TokenJacobian:
    """outer: (n, o), sparse, by keys, values and positions. inner: (n, b), by queries of the asking token.

    Unknowns are ordered: outer ones, then b queries of every token.
    """

    outer: Any
    inner: Array
    asking: Ids
    vocabulary: int

    @property
    def unknowns(self) -> int:
        """Number of parameters."""
        return int(self.outer.shape[1]) + int(self.vocabulary * self.inner.shape[1])

    def forward(self, step: Array) -> Array:
        """J·step."""
        outer, queries = self._split(step)
        return np.asarray(self.outer @ outer + np.einsum("nb,nb->n", self.inner, queries[self.asking]))

    def backward(self, residual: Array) -> Array:
        """Jᵀ·residual."""
        queries = np.zeros((self.vocabulary, self.inner.shape[1]))
        np.add.at(queries, self.asking, self.inner * residual[:, None])
        return np.concatenate([self.outer.T @ residual, queries.ravel()])

    def diagonal(self) -> Array:
        """The diagonal of JᵀJ."""
        queries = np.zeros((self.vocabulary, self.inner.shape[1]))
        np.add.at(queries, self.asking, self.inner**2)
        squared = self.outer.multiply(self.outer).sum(axis=0)
        return np.concatenate([np.asarray(squared).ravel(), queries.ravel()])

    def normal(self) -> Array:
        """JᵀJ."""
        dense = np.zeros((len(self.inner), self.unknowns))
        o, b = self.outer.shape[1], self.inner.shape[1]
        dense[:, :o] = self.outer.toarray()
        columns = o + self.asking[:, None] * b + np.arange(b)
        np.put_along_axis(dense, columns, self.inner, axis=1)
        return np.asarray(dense.T @ dense)

    def preconditioner(self, damping: Array) -> Callable[[Array], Array]:
        """(JᵀJ + diag(damping))⁻¹: exact for moderate sizes, else without what couples keys and queries."""
        outer_damping, inner_damping = self._split(damping)
        order = np.argsort(self.asking, kind="stable")
        bounds = np.searchsorted(self.asking[order], np.arange(self.vocabulary + 1))
        blocks = self._blocks(order, bounds, inner_damping)
        inverses = np.asarray(np.linalg.inv(blocks), dtype=np.float64)
        if self.outer.shape[1] > _DENSE:
            return self._separately(outer_damping, inverses)
        system = _products(self.outer)
        system[np.diag_indices_from(system)] += outer_damping
        couplings: list[tuple[Ids, Array]] = []
        wide: list[Array] = []  # of tokens that ask about most others, subtracted in one product
        for token in range(self.vocabulary):
            chosen = order[bounds[token] : bounds[token + 1]]
            part = self.outer[chosen]
            touched = np.unique(part.indices)
            dense = np.zeros((len(touched), len(chosen)))
            local = np.repeat(np.arange(len(chosen)), np.diff(part.indptr))
            dense[np.searchsorted(touched, part.indices), local] = part.data
            coupling = dense @ self.inner[chosen]
            couplings.append((touched, coupling))
            if _WIDE * len(touched) < len(system):
                system[np.ix_(touched, touched)] -= coupling @ inverses[token] @ coupling.T
            else:
                wide.append(np.zeros((len(system), self.inner.shape[1])))
                sizes, axes = np.linalg.eigh(inverses[token])
                wide[-1][touched] = coupling @ (axes * np.sqrt(np.maximum(sizes, 0.0)))
        if wide:
            together = np.concatenate(wide, axis=1)
            system -= together @ together.T
        factor = _factor(system)
        if factor is None:
            return self._separately(outer_damping, inverses)

        def solve(vector: Array) -> Array:
            outer, queries = self._split(vector)
            within = np.einsum("vbc,vc->vb", inverses, queries)
            right = outer.copy()
            for token, (touched, coupling) in enumerate(couplings):
                right[touched] -= coupling @ within[token]
            found = cho_solve(factor, right, check_finite=False)
            back = queries.copy()
            for token, (touched, coupling) in enumerate(couplings):
                back[token] -= coupling.T @ found[touched]
            return np.concatenate([found, np.einsum("vbc,vc->vb", inverses, back).ravel()])

        return solve

    def _blocks(self, order: Ids, bounds: Ids, damping: Array) -> Array:
        b = self.inner.shape[1]
        blocks = np.zeros((self.vocabulary, b, b))
        for token in range(self.vocabulary):
            part = self.inner[order[bounds[token] : bounds[token + 1]]]
            blocks[token] = part.T @ part
        blocks[:, np.arange(b), np.arange(b)] += damping
        return blocks

    def _separately(self, damping: Array, inverses: Array) -> Callable[[Array], Array]:
        squares = np.asarray(self.outer.multiply(self.outer).sum(axis=0)).ravel() + damping

        def solve(vector: Array) -> Array:
            outer, queries = self._split(vector)
            return np.concatenate([outer / squares, np.einsum("vbc,vc->vb", inverses, queries).ravel()])

        return solve

    def _split(self, vector: Array) -> tuple[Array, Array]:
        o = self.outer.shape[1]
        return vector[:o], vector[o:].reshape(self.vocabulary, self.inner.shape[1])


def refine_tokens(
    fit: TokenFit, start: TokenState, options: RefinementOptions = TOKEN_OPTIONS
) -> Refined[TokenState]:
    """Heads that fit all answers, from heads that nearly do."""
    return refine(fit, start, options)


def _products(matrix: Any) -> Array:
    """MᵀM of a sparse matrix, as an array; by dense blocks of rows where its rows have many entries, as those
    of long sequences do."""
    entries = np.diff(matrix.indptr).astype(np.float64)
    if _SPARSE_COST * float(np.sum(entries**2)) < matrix.shape[0] * float(matrix.shape[1]) ** 2:
        return np.asarray((matrix.T @ matrix).toarray())
    total = np.zeros((matrix.shape[1], matrix.shape[1]))
    for start in range(0, matrix.shape[0], _BLOCK):
        rows = matrix[start : start + _BLOCK].toarray()
        total += rows.T @ rows
    return total


def _packed(state: TokenState) -> Array:
    outer: list[Array] = []
    for head in state:
        outer += [head.keys.ravel(), head.values]
        if head.positions is not None:
            outer += [head.positions.keys.ravel(), head.positions.values, head.positions.queries.ravel()]
    queries = np.concatenate([head.queries for head in state], axis=1)
    return np.concatenate([*outer, queries.ravel()])


def _unpacked(vector: Array, like: TokenState) -> TokenState:
    heads, at = [], 0

    def take(shape: tuple[int, ...]) -> Array:
        nonlocal at
        size = int(np.prod(shape))
        at += size
        return vector[at - size : at].reshape(shape)

    outer = []
    for head in like:
        keys, values, places = take(head.keys.shape), take(head.values.shape), None
        if head.positions is not None:
            of_keys, of_values = take(head.positions.keys.shape), take(head.positions.values.shape)
            places = TokenPositions(of_keys, take(head.positions.queries.shape), of_values)
        outer.append((keys, values, places))
    V = len(like[0].keys)
    widths = [head.keys.shape[1] for head in like]
    queries = np.split(take((V, sum(widths))), np.cumsum(widths)[:-1], axis=1)
    for (keys, values, places), own in zip(outer, queries, strict=True):
        heads.append(TokenHead(keys, own, values, places))
    return tuple(heads)


def _factor(system: Array) -> Any:
    """Cholesky, with a little more damping where rounding has made the system indefinite; None if in vain."""
    scale = float(np.diag(system).max(initial=1.0))
    for power in range(8):
        try:
            return cho_factor(system, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            system[np.diag_indices_from(system)] += _JITTER * 10.0**power * scale
    return None
