"""What an experiment is: a statement, a grid, and figures that hold the statement against what was
measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from unsoftmax.learners import Known, Learned, Learner
from unsoftmax.ledger import Ledger
from unsoftmax.models import Model, SingleHead
from unsoftmax.oracles import Oracle
from unsoftmax.outcomes import Stop
from unsoftmax.recovery.inputs.targets import as_oracle

__all__ = [
    "Chart",
    "Check",
    "Experiment",
    "Findings",
    "Line",
    "Table",
    "head_with_margin",
    "learn_raw",
    "slope",
]


@dataclass(frozen=True)
class Table:
    """Rows of plain values under named columns. The name is the file's."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Check:
    """A claim, what was measured, and whether the one holds for the other."""

    claim: str
    measured: str
    holds: bool

    @classmethod
    def of_all_runs(cls, claim: str, holds: bool) -> Self:
        """A claim about each run by itself."""
        return cls(claim, "in every run" if holds else "not in every run", holds)


@dataclass(frozen=True)
class Line:
    """A line of a chart; a `bound` is drawn dashed, in the colour of the line before it."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    bound: bool = False


@dataclass(frozen=True)
class Chart:
    """A picture as data, both axes logarithmic unless said otherwise."""

    name: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log_x: bool = True
    log_y: bool = True


@dataclass(frozen=True)
class Findings:
    """What an experiment found."""

    tables: tuple[Table, ...]
    checks: tuple[Check, ...]
    charts: tuple[Chart, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A theorem of the paper (or a check that a summary of it lists), and how to hold it against
    measurements.

    run: (fast, seed) -> Findings, a deterministic function of both.
    """

    key: str
    title: str
    statement: str
    run: Callable[[bool, int], Findings] = field(repr=False)


def learn_raw(learner: Learner, target: Model | Oracle, seed: int) -> tuple[Any, int, str]:
    """(what the algorithm itself returns, or None; queries; why it stopped): without certificate, to see
    errors that `recover` would refuse."""
    ledger = Ledger(as_oracle(target))
    try:
        learned: Learned = learner.learn(ledger, Known(), np.random.default_rng([seed, 0xAB]))
    except Stop as stop:
        return None, ledger.bill.total, stop.reason
    return learned.model, ledger.bill.total, ""


def head_with_margin(d: int, seed: int, *, mu: float, norm: float = 1.0) -> SingleHead:
    """A head with |v| = 1, least non-zero |v_i| equal to `mu`, and |W| = `norm` in the Frobenius norm.

    Where d entries of size mu are longer than 1, only as many as fit are not zero.

    >>> v = head_with_margin(6, 0, mu=0.5).v
    >>> round(float(abs(v[v != 0]).min()), 12), int((v == 0).sum()), round(float(np.linalg.norm(v)), 12)
    (0.5, 2, 1.0)
    """
    rng = np.random.default_rng([seed, d, 0x3A])
    W = rng.standard_normal((d, d))
    nonzero = rng.permutation(d)[: max(1, int(min(d, 1.0 / mu**2 + 1e-9)))]
    least = min(mu, 1.0) if len(nonzero) > 1 else 1.0
    squares = np.zeros(d)
    squares[nonzero] = least**2
    if len(nonzero) > 1:
        squares[nonzero[1:]] += rng.dirichlet(np.ones(len(nonzero) - 1)) * max(
            0.0, 1.0 - len(nonzero) * least**2
        )
    return SingleHead(norm * W / np.linalg.norm(W), np.sqrt(squares) * rng.choice([-1.0, 1.0], d))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Slope of the least-squares line through (log x, log y).

    >>> round(slope([1.0, 10.0, 100.0], [2.0, 20.0, 200.0]), 6)
    1.0
    """
    return float(np.polyfit(np.log(np.asarray(x)), np.log(np.asarray(y)), 1)[0])
