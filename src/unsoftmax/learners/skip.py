"""A skip connection: what the asking row adds to the answer by itself, f(X) = attention(X) + x_N·o.

A row of zeros asks, and adds nothing. Beside it, opposite rows have opposite scores in every head, so that
their weights add up to one: f([a; 0]) - f([-a; 0]) = a·v for any heads and biases. A row alone shows f([a]) -
f([0]) = a·(v + o). The difference is o.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Answers
from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker

__all__ = ["QUERIES_WITHOUT_SKIP", "find_skip", "shows_skip"]

QUERIES_WITHOUT_SKIP = 19  # what it takes to see that there is none

_EXACT = 1e-9  # of the answers: float64 never loses so much in four of them
_LONGEST = 4  # rows of the sequences that are asked
_ROUNDINGS = 64.0  # of answers that round at every step, in a difference of four of them


def find_skip(asker: Asker, answers: Answers, rng: np.random.Generator) -> Array | None:
    """o, (d,) or (d, m); None where there is none, or where single rows are not answered affinely.

    19 queries where there is none, 3d + 24 where there is one.

    >>> import unsoftmax
    >>> from unsoftmax.answers import Exact
    >>> heads = unsoftmax.random_multi_head(4, 2, seed=0)
    >>> oracle = unsoftmax.as_oracle(unsoftmax.MultiHead(heads.heads, skip=np.arange(4.0)))
    >>> find_skip(unsoftmax.Ledger(oracle), Exact(), np.random.default_rng(0)).round(9)
    array([0., 1., 2., 3.])
    """
    if not shows_skip(asker, answers, rng):
        return None
    size = _size(asker)
    basis = np.linalg.qr(rng.standard_normal((asker.width, asker.width)))[0]
    with asker.phase("skip"):
        shown = _Differences(asker, size * basis.T).skip
    return np.asarray(np.tensordot(basis, shown, axes=1) / size)


def shows_skip(asker: Asker, answers: Answers, rng: np.random.Generator) -> bool:
    """Whether two rows and their mean show something linear beside attention, and the same attention under
    another asking row, in any order of the rows before it, and for two copies of every row."""
    rows = rng.standard_normal((2, asker.width))
    rows *= _size(asker) / np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.vstack([rows, rows.mean(axis=0)])
    with asker.phase("skip"):
        tried = _Differences(asker, rows)
        opposite = asker.ask(-rows[:, None])
        asking = 0.5 * rows[::-1]  # so that no row is longer than these
        up, down = (asker.ask(np.stack([asking + sign * rows, asking], axis=1)) for sign in (0.5, -0.5))
    limit = max(_EXACT, _ROUNDINGS * answers.rounding) * tried.largest
    bend = float(np.abs(tried.alone + opposite - 2.0 * tried.c).max())
    nonlinear = float(np.abs(tried.skip[2] - 0.5 * (tried.skip[0] + tried.skip[1])).max())
    elsewhere = float(np.abs((up - down) - 0.5 * tried.shared).max())
    if not max(bend, nonlinear, elsewhere) <= limit < min(float(np.abs(tried.skip).max()), tried.moved):
        return False
    if asker.max_length is not None and asker.max_length < _LONGEST:
        return True
    a, b, x = rows
    with asker.phase("skip"):
        first, second = asker.ask(np.array([[a, b, x], [b, a, x]]))
        once, twice = asker.ask(np.array([[a, x]]))[0], asker.ask(np.array([[a, a, x, x]]))[0]
    return bool(max(np.abs(second - first).max(), np.abs(twice - once).max()) <= limit)


def _size(asker: Asker) -> float:
    """Rows as long as tokens usually are."""
    usual = float(np.sqrt(asker.width))
    return usual if asker.input_bound is None else min(usual, asker.input_bound)


class _Differences:
    """What rows show alone and beside a row of zeros. shared: rows @ v. skip: rows @ o. moved: how far a row
    moves the answer to a row of zeros after it. largest: the size of the answers."""

    def __init__(self, asker: Asker, rows: Array) -> None:
        beside = np.zeros_like(rows)
        self.c = asker.ask(np.zeros((1, 1, asker.width)))[0]
        self.alone = asker.ask(rows[:, None])
        up, down = (asker.ask(np.stack([sign * rows, beside], axis=1)) for sign in (1.0, -1.0))
        self.shared = up - down
        self.moved = float(max(np.abs(each - self.c).max() for each in (up, down)))
        self.skip = (self.alone - self.c) - self.shared
        self.largest = float(max(np.abs(each).max() for each in (self.c, self.alone, up, down)))
