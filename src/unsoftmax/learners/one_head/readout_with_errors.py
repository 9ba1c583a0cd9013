"""v and c under answers with errors: long rows in a random basis, so that an error of an answer is divided by
the length."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.learners.one_head.bias_checks import EVEN_TEST
from unsoftmax.learners.one_head.checks import ONE_ROW_TEST
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.meters.probes.mirrored_rows import odd_rows
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["check_linear_within", "moved_by_query_bias", "read_loud_values", "refused_query_bias"]

_ENOUGH = 1e13  # a signal so many times the tolerance leaves only float64 rounding
_LONGEST = 1e12


def read_loud_values(
    asker: Asker, tau: float, rng: np.random.Generator, *, repeats: int = 1, silent: float | None = None
) -> MeasuredReadout:
    """The readout from d + 1 queries; with no bound on rows, they grow until the signal is 1e13 times the
    tolerance.

    silent: size up to which the answer to a row of zeros counts as no constant (None: tau). repeats: answers
    averaged for each row. Raises `Unresolved` when v cannot be told from zero, with the norm of rows that
    would do.
    """
    d = asker.width
    bound = asker.input_bound
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]

    def ask(rows: Array) -> Array:
        return np.asarray(np.mean([asker.ask(rows[:, None]) for _ in range(repeats)], axis=0))

    with asker.phase("values"):
        c = float(ask(np.zeros((1, d)))[0])
        if bound is None:
            bound = 1.0
            while True:
                loud = np.linalg.norm(ask(bound * basis[:1]) - c) * np.sqrt(d)
                if loud >= _ENOUGH * max(tau, 1e-15) or bound >= _LONGEST:
                    break
                bound *= 1e3
        size = bound * (1.0 - 1e-3 * rng.random())
        answers = ask(size * basis)
    if abs(c) <= (tau if silent is None else silent):
        c = 0.0
    else:
        tau = 2.0 * tau  # the constant is only known to tau, and it is in every answer
    v = basis.T @ (answers - c) / size
    readout = MeasuredReadout(v, c, tau, bound)
    if readout.norm * bound < 8.0 * tau * np.sqrt(d) / np.sqrt(repeats):
        needed = 100.0 * tau / max(readout.norm * bound, tau)
        raise Unresolved(
            f"rows of norm {bound:.3g} move the answer by {readout.norm * bound:.2g}, and answers are off "
            f"by {tau:.2g}; "
            f"rows of norm {bound * needed:.2g} (input_bound) or a tolerance of {tau / needed:.2g} would help"
        )
    return readout


def moved_by_query_bias(
    asker: Asker, readout: MeasuredReadout, rng: np.random.Generator, off: float | None = None
) -> float:
    """How far answers move where rows around an asking row of zeros should share evenly; 0 where the answers'
    own errors explain it.

    off: how far single answers may be off (None: tau).
    """
    d = asker.width
    beside = rng.standard_normal((3, d))
    A = readout.v / readout.norm + 0.5 * beside / np.linalg.norm(beside, axis=1)[:, None]
    A *= 0.99 * readout.bound / np.linalg.norm(A, axis=1)[:, None]
    with asker.phase(VERIFICATION):
        answers = asker.ask(odd_rows(A, np.zeros((3, d))))
    moved = float(np.abs(answers - readout.c).max())
    allowed = 1.05 * (readout.tau if off is None else off) + 64 * EPS * readout.bound * readout.norm
    return moved if moved > allowed else 0.0


def refused_query_bias(moved: float, readout: MeasuredReadout) -> OutsideClass:
    """What is said of a query bias that is not recovered."""
    return OutsideClass(
        EVEN_TEST,
        f"the answer moved by {moved:.3g} (tolerance {readout.tau:.2g}): a query bias, which these answers "
        "are not enough for, or another family",
    )


def check_linear_within(
    asker: Asker, readout: MeasuredReadout, rng: np.random.Generator, off: float | None = None
) -> None:
    """f([x]) = c + x·v on fresh rows of several sizes, as far as the tolerance tells. off: see
    `moved_by_query_bias`."""
    sizes = readout.bound * np.array([0.01, 0.1, 0.5, 0.99])
    rows = rng.standard_normal((4, asker.width))
    rows *= (sizes / np.linalg.norm(rows, axis=1))[:, None]
    with asker.phase(VERIFICATION):
        answers = asker.ask(rows[:, None])
    excess = np.abs(answers - readout.c - rows @ readout.v)
    allowed = (readout.tau if off is None else off) * (1.0 + 5.0 * sizes / readout.bound) + 64 * np.finfo(
        float
    ).eps * sizes * readout.norm * np.sqrt(asker.width)
    worst = int(np.argmax(excess / allowed))
    if excess[worst] > allowed[worst]:
        raise OutsideClass(
            ONE_ROW_TEST,
            f"a row of norm {sizes[worst]:.3g} is answered {excess[worst]:.3g} away from c + x·v (allowed "
            f"{allowed[worst]:.1g})",
        )
