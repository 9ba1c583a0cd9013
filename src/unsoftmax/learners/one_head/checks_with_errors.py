"""Cheap tests of one head whose answers carry errors: single rows are linear, rows of zeros share evenly."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS
from unsoftmax.learners.one_head.bias_checks import EVEN_TEST
from unsoftmax.learners.one_head.checks import ONE_ROW_TEST
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.meters.probes.mirrored_rows import odd_rows
from unsoftmax.outcomes import OutsideClass

__all__ = ["check_linear_within", "moved_by_query_bias", "refused_query_bias"]


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
    allowed = (readout.tau if off is None else off) * (
        1.0 + 5.0 * sizes / readout.bound
    ) + 64 * EPS * sizes * readout.norm * np.sqrt(asker.width)
    worst = int(np.argmax(excess / allowed))
    if excess[worst] > allowed[worst]:
        raise OutsideClass(
            ONE_ROW_TEST,
            f"a row of norm {sizes[worst]:.3g} is answered {excess[worst]:.3g} away from c + x·v (allowed "
            f"{allowed[worst]:.1g})",
        )
