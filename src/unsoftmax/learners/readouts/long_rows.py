"""v and c under answers with errors: long rows in a random basis, so that an error of an answer is divided by
the length."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.outcomes import Unresolved

__all__ = ["read_long_rows"]

_ENOUGH = 1e13  # a signal so many times the tolerance leaves only float64 rounding
_LONGEST = 1e12  # where v is so small that answers do not move so far: scores of such rows stay finite


def read_long_rows(
    asker: Asker,
    tau: float,
    rng: np.random.Generator,
    *,
    repeats: int = 1,
    zeros: int = 1,
    no_constant: float | None = None,
) -> MeasuredReadout:
    """The readout from d + 1 queries; with no bound on rows, they grow until the signal is 1e13 times the
    tolerance.

    no_constant: size up to which the answer to a row of zeros counts as none (None: tau). repeats: answers
    averaged for each row; zeros: so many times more of them for a row of zeros. Raises `Unresolved` when v
    cannot be told from zero, with the norm of rows that would do.
    """
    d = asker.width
    bound = asker.input_bound
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]

    def ask(rows: Array) -> Array:
        return np.asarray(np.mean([asker.ask(rows[:, None]) for _ in range(repeats)], axis=0))

    with asker.phase("values"):
        c = float(ask(np.zeros((zeros, d))).mean())
        if bound is None:
            bound = 1.0
            while True:
                moved = np.linalg.norm(ask(bound * basis[:1]) - c) * np.sqrt(d)
                if moved >= _ENOUGH * max(tau, 1e-15) or bound >= _LONGEST:
                    break
                bound *= 1e3
        size = bound * (1.0 - 1e-3 * rng.random())
        answers = ask(size * basis)
    if abs(c) <= (tau if no_constant is None else no_constant):
        c = 0.0
    else:
        tau = 2.0 * tau  # the constant is only known to tau, and it is in every answer
    v = basis.T @ (answers - c) / size
    readout = MeasuredReadout(v, c, tau, bound)
    if readout.norm * bound < 8.0 * tau * np.sqrt(d) / np.sqrt(repeats):
        needed = 100.0 * tau / max(readout.norm * bound, tau)
        raise Unresolved(
            f"rows of norm {bound:.3g} move the answer by {readout.norm * bound:.2g}, and answers are off by "
            f"{tau:.2g}; rows of norm {bound * needed:.2g} (input_bound) or a tolerance of "
            f"{tau / needed:.2g} would help"
        )
    return readout
