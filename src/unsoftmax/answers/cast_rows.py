"""Whether a target rounds its rows to float32 first, whatever it computes in after that."""

from __future__ import annotations

import numpy as np

from unsoftmax.float_formats import FloatFormat
from unsoftmax.ledger import Asker

__all__ = ["CAST_ROWS", "casts_rows"]

CAST_ROWS = "every row is answered as the same row in float32"
_ROWS = 4
_NEARBY = 2.0**-20  # of an entry: a move that float32 holds


def casts_rows(asker: Asker, rng: np.random.Generator) -> bool:
    """Whether rows and the same rows in float32 get the same answers to the last bit, where a move of a
    millionth changes every answer. 12 queries.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(4, seed=0)
    >>> short = unsoftmax.Ledger(unsoftmax.as_oracle(lambda X: head(X.astype("f4").astype("f8"))), width=4)
    >>> casts_rows(short, np.random.default_rng(0))
    True
    >>> casts_rows(unsoftmax.Ledger(unsoftmax.as_oracle(head)), np.random.default_rng(0))
    False
    """
    rows = rng.standard_normal((_ROWS, 1, asker.width))
    longest = np.inf if asker.input_bound is None else asker.input_bound
    rows *= min(1.0, longest / (2.0 * float(np.linalg.norm(rows, axis=2).max())))
    short = FloatFormat.FLOAT32.store(rows)
    moved = FloatFormat.FLOAT32.store(short * (1.0 + _NEARBY))
    plain, same, other = asker.ask(np.concatenate([rows, short, moved])).reshape(3, _ROWS, -1)
    return bool((plain == same).all() and (other != same).any(axis=1).all())
