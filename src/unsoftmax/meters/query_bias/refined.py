"""z = Wb + w0 for asking rows b, to float64, from a rough z: answers that are predicted to vanish, or to
step, tell what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, complement, expit, logit
from unsoftmax.ledger import Asker
from unsoftmax.meters.one_head.rounded import bracketed_step
from unsoftmax.meters.probes.asking import in_parts
from unsoftmax.meters.probes.simplex import simplex
from unsoftmax.meters.query_bias.score_intervals import SPREAD
from unsoftmax.outcomes import Unresolved

__all__ = ["LONGEST", "Balance", "Steps", "ZeroVectors", "Zeros"]

_SCORE = 0.7  # root mean square of a probe's score
_LARGEST_SCORE = 2.0  # dσ/dt = 0.1 there, less than half of what it is at zero
LONGEST = 1.0 + float(np.exp(_LARGEST_SCORE))  # a·v against b·v, at most
_LEAST = 1e-9  # no share is read closer to zero or one: scores stay within 21

Values = Callable[[Array, NDArray[np.intp]], Array]
"""values(x, which): answers to the chosen probes of [b - a; b], with a as long as makes a·v = x."""


class Balance(Protocol):
    """How a share is read where b·v and what a takes off nearly balance: y = b·v - share·(a·v)."""

    def read(
        self, values: Values, asked: Array, share: Array, spread: Array, most: Array
    ) -> tuple[Array, Array]:
        """The a·v that were sent, and the shares there, when `share` is expected to a relative error of
        `spread`.

        asked: b·v. most: the largest |a·v| that may be sent.
        """


class Zeros:
    """Answers of relative precision: one query where the answer should vanish."""

    def read(
        self, values: Values, asked: Array, share: Array, spread: Array, most: Array
    ) -> tuple[Array, Array]:
        sent = asked / share
        return sent, (asked - values(sent, np.arange(len(sent)))) / sent


class Steps:
    """Answers on a grid: the a·v at which the value steps over `threshold`, bisected. middle: between two
    labels, where that is all they say."""

    def __init__(self, threshold: float, middle: float | None = None) -> None:
        self._threshold = threshold
        self._middle = middle

    def read(
        self, values: Values, asked: Array, share: Array, spread: Array, most: Array
    ) -> tuple[Array, Array]:
        level = self._threshold * np.sign(asked)

        def below(sent: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
            answers = values(np.sign(asked[which]) * sent, which)
            return np.asarray(
                np.sign(asked[which]) * (answers - (level[which] if self._middle is None else self._middle))
                < 0.0
            )

        wanted = np.abs(asked - level)
        sent, lost = bracketed_step(below, wanted / share, spread, wanted, most)
        if lost.any():
            raise Unresolved(
                f"{int(lost.sum())} of {len(lost)} answers do not step where their scores predict; longer "
                "rows (input_bound) would help"
            )
        return np.sign(asked) * sent, wanted / sent


class ZeroVectors:
    """Measures z at asking rows that see v, given v to float64 and a rough z. The rows stay within `bound`.

    Probes are a = A·p + s·g, with a carrier p near v but orthogonal to the rough z, and g in a simplex; A is
    what makes the answer balance.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import LowPrecision, SingleHead, as_oracle
    >>> head = SingleHead(np.diag([1.0, 2.0, 3.0]), np.array([0.6, 0.8, 0.0]), np.array([0.5, 1.0, -1.0]))
    >>> ledger = Ledger(LowPrecision(as_oracle(head), "float32"))
    >>> b = np.array([[1.0, 1.0, 1.0]])
    >>> z = b @ head.W.T + head.w0
    >>> found = ZeroVectors(ledger, head.v, np.random.default_rng(0), Zeros()).measure(b, z + 1e-6, 1e-5)
    >>> bool(np.abs(found - z).max() < 1e-11)
    True
    """

    def __init__(
        self, ledger: Asker, v: Array, rng: np.random.Generator, balance: Balance, bound: float | None = None
    ) -> None:
        self._ledger = ledger
        self._v = v
        self._rng = rng
        self._balance = balance
        self._bound = np.inf if bound is None else bound * (1.0 - 1e-9)

    def measure(self, B: Array, Z: Array, error: float) -> Array:
        """z at the rows of B (n, d), from rough ones in Z that are off by about the length `error`: d queries
        a row, or d bisections."""
        n, d = B.shape
        probes = [self._probes(b, z) for b, z in zip(B, Z, strict=True)]
        P, S, G = (np.concatenate([probe[part] for probe in probes]) for part in range(3))
        asking, rough = np.repeat(B, d, axis=0), np.repeat(Z, d, axis=0)
        asked, p_v, g_v = asking @ self._v, P @ self._v, (S[:, None] * G) @ self._v
        expected = np.einsum("nd,nd->n", S[:, None] * G, rough)

        def rows(sent: Array, which: NDArray[np.intp]) -> Array:
            return np.asarray(
                ((sent - g_v[which]) / p_v[which])[:, None] * P[which] + S[which, None] * G[which]
            )

        def values(sent: Array, which: NDArray[np.intp]) -> Array:
            def ask(part: slice) -> Array:
                b = asking[which[part]]
                return self._ledger.ask(np.stack([b - rows(sent[part], which[part]), b], axis=1))

            return in_parts(ask, len(which), self._ledger.batch_size(2))

        share = expit(-expected)
        everyone = np.arange(n * d)
        spread = SPREAD * error / np.sqrt(d) * np.linalg.norm(rows(asked / share, everyone), axis=1)
        room = self._bound - np.linalg.norm(asking, axis=1)
        sent, share = self._balance.read(values, asked, share, spread, p_v * (room - S) - np.abs(g_v))
        scores = -logit(np.clip(share, _LEAST, 1.0 - _LEAST))
        A = rows(sent, everyone).reshape(n, d, d)
        residual = scores.reshape(n, d) - np.einsum("nij,nj->ni", A, Z)
        try:
            return np.asarray(Z + np.linalg.solve(A, residual[:, :, None])[:, :, 0])
        except np.linalg.LinAlgError as singular:
            raise Unresolved(
                "probes of an asking row do not tell its scores; longer rows (input_bound) or another seed "
                "may help"
            ) from singular

    def _probes(self, b: Array, z: Array) -> tuple[Array, Array, Array]:
        """The carrier, sizes and directions of the d probes of one asking row."""
        d = len(b)
        length = float(np.linalg.norm(z))
        towards = z / length if length > 0.0 else np.zeros(d)
        p = self._v - towards * (towards @ self._v)
        p /= np.linalg.norm(p)
        G = simplex(d - 1, self._rng) @ complement(p).T
        s = _SCORE * np.sqrt(d) / max(length, 1e-300)
        room = self._bound - float(np.linalg.norm(b))
        p_v, g_v = float(p @ self._v), float(np.abs(G @ self._v).max())
        taken = LONGEST * abs(float(b @ self._v)) / p_v  # the longest carrier, at the largest score
        s = min(s, 0.5 * room / (1.0 + g_v / p_v))
        sizes = np.minimum(s, _LARGEST_SCORE / np.maximum(np.abs(G @ z), 1e-300))
        if taken > 0.5 * room:
            raise Unresolved(
                f"asking rows and carriers do not fit into rows of norm {self._bound:.3g}; longer ones "
                "(input_bound) would help"
            )
        return np.tile(p, (d, 1)), sizes, G
