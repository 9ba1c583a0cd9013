"""One cell of a sweep: a seeded target, what is done to its answers, a learner; and the row that comes
out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from unsoftmax.audit.defences.wrappers import Defence
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.lab.sweep.learners import learner_named
from unsoftmax.learners.relu_network.learner import ReluNetworkLearner
from unsoftmax.models import (
    Model,
    MultiHead,
    SingleHead,
    random_multi_head,
    random_relu_network,
    random_single_head,
    random_transformer,
)
from unsoftmax.oracles import Clipped, FlippedLabels, Oracle
from unsoftmax.recovery.inputs.targets import as_oracle
from unsoftmax.recovery.network import rows_oracle
from unsoftmax.recovery.recover import recover
from unsoftmax.recovery.result import Result

__all__ = ["AXES", "FAILED", "FAMILIES", "RESULTS", "Cell", "run_cell"]

_MAKERS: dict[str, Callable[[Cell], Model]] = {
    Family.SINGLE_HEAD: lambda c: random_single_head(c.d, c.r, seed=c.seed, scale=c.scale, biases=c.biases),
    Family.MULTI_HEAD: lambda c: random_multi_head(
        c.d, c.heads or 2, c.r, seed=c.seed, scale=c.scale, biases=c.biases
    ),
    Family.RELU_NETWORK: lambda c: random_relu_network(c.d, c.neurons or c.d, seed=c.seed, biases=c.biases),
    Family.TRANSFORMER: lambda c: random_transformer(
        c.d, c.neurons or c.d, c.r, seed=c.seed, scale=c.scale, biases=c.biases
    ),
}
FAMILIES = tuple(_MAKERS)
FAILED = "ERROR"  # as the status of a cell: it ended in an error, and may be run again
# axes that a family does not have: dropped, so that a grid over families holds no cell twice
_IRRELEVANT: dict[str, tuple[str, ...]] = {
    Family.SINGLE_HEAD: ("heads", "neurons"),
    Family.MULTI_HEAD: ("neurons",),
    Family.RELU_NETWORK: ("heads", "r", "scale"),
    Family.TRANSFORMER: ("heads",),
}

_UNTOUCHED = ("exact", "none")
_FURTHER: dict[
    str, Callable[[Oracle, float, int], Oracle]
] = {  # beside the defences of the audit: name -> (oracle, number, seed) -> oracle
    "clipped": lambda oracle, limit, seed: Clipped(oracle, limit),
    "flipped-labels": lambda oracle, flip, seed: FlippedLabels(oracle, flip, seed),
}


@dataclass(frozen=True)
class Cell:
    """A point of the grid. None means: the family's default.

    >>> Cell(family="single-head", d=8, heads=3).normal().heads is None
    True
    """

    family: str = "single-head"
    d: int = 8
    r: int | None = None
    heads: int | None = None
    neurons: int | None = None
    scale: float = 1.0
    biases: bool = False
    noise: str = "exact"
    defence: str = "none"
    learner: str = "default"
    input_bound: float | None = None
    budget: int | None = None
    seed: int = 0

    def normal(self) -> Cell:
        """The same cell without the axes that its family does not have."""
        defaults: dict[str, Any] = {field.name: field.default for field in fields(Cell)}
        return replace(self, **{axis: defaults[axis] for axis in _IRRELEVANT[self.family]})

    @property
    def key(self) -> str:
        """A digest of all axes: the identity under which a finished cell is known."""
        return blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=8).hexdigest()

    def check(self) -> None:
        """`UsageError` when a name in the cell is unknown, before anything runs."""
        if self.family not in FAMILIES:
            raise UsageError(f"there is no family {self.family!r}; choose from {', '.join(FAMILIES)}")
        learner_named(self.learner)
        for text in (self.noise, self.defence):
            _around(text, as_oracle(random_single_head(1)), 0)

    def target(self) -> tuple[Model, Oracle]:
        """The hidden model, and the oracle that shows it."""
        truth = _MAKERS[self.family](self)
        oracle: Oracle = (
            rows_oracle(truth, self.d) if self.family == Family.RELU_NETWORK else as_oracle(truth)
        )
        for place, text in enumerate((self.noise, self.defence)):
            oracle = _around(
                text, oracle, int(np.random.default_rng([self.seed, place, 0x5EED]).integers(2**31))
            )
        return truth, oracle


AXES = tuple(field.name for field in fields(Cell))
RESULTS = (
    "status",
    "parameters",
    "queries",
    "learning",
    "verification",
    "error",
    "error_bound",
    "bound_holds",
    "max_deviation",
    "reason",
    "fault",
)


def run_cell(cell: Cell) -> dict[str, Any]:
    """The row of a cell. Whatever goes wrong inside becomes the row's `fault`, with status ERROR.

    >>> row = run_cell(Cell(d=4, seed=3))
    >>> row["status"], row["error"] < 1e-12, row["bound_holds"], row["fault"]
    ('EXACT', True, True, None)
    """
    row: dict[str, Any] = {"cell": cell.key, **asdict(cell), **dict.fromkeys(RESULTS)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a cell that fails says so in its row
            truth, oracle = cell.target()
            row["parameters"] = truth.parameters
            make = learner_named(cell.learner)
            learner = (
                None
                if make is None
                else make(truth, cell.noise if cell.noise not in _UNTOUCHED else cell.defence)
            )
            if learner is None and cell.family == Family.RELU_NETWORK:
                learner = ReluNetworkLearner()
            result = recover(
                oracle,
                width=cell.d,
                budget=_budget(cell),
                seed=cell.seed,
                input_bound=cell.input_bound,
                learner=learner,
            )
            row |= _measured(truth, result, labels="labels" in cell.noise + cell.defence)
    except Exception as error:
        row |= {"status": FAILED, "fault": f"{type(error).__name__}: {error}"}
    return row


def _budget(cell: Cell) -> int | None:
    """The smallest budget that the cell or its defences set."""
    texts = [
        text
        for text in (cell.noise, cell.defence)
        if text not in _UNTOUCHED and text.partition("=")[0] not in _FURTHER
    ]
    return min(
        (
            budget
            for budget in (cell.budget, *(Defence.parse(text).budget for text in texts))
            if budget is not None
        ),
        default=None,
    )


def _measured(truth: Model, result: Result, *, labels: bool) -> dict[str, Any]:
    error = None if result.model is None else _distance(truth, result.model, labels=labels)
    bound = result.error_bound
    return {
        "status": str(result.status),
        "queries": result.queries.total,
        "learning": result.queries.learning,
        "verification": result.queries.total - result.queries.learning,
        "error": error,
        "error_bound": None if bound is None else float(bound),
        "bound_holds": None if error is None or bound is None else bool(error <= bound),
        "max_deviation": None if result.certificate is None else float(result.certificate.max_relative_error),
        "reason": result.reason,
    }


def _distance(truth: Any, found: Any, *, labels: bool) -> float:
    """Relative error of the parameters up to symmetry; labels show v only up to a positive factor, so there
    both get length 1."""
    if labels and isinstance(truth, SingleHead) and isinstance(found, SingleHead):
        truth, found = (
            SingleHead(head.matrix, head.v / np.linalg.norm(head.v), head.w0, head.c / np.linalg.norm(head.v))
            for head in (truth, found)
        )
    if isinstance(truth, MultiHead) != isinstance(found, MultiHead):
        truth, found = (
            model if isinstance(model, MultiHead) else MultiHead([model]) for model in (truth, found)
        )
    return float(truth.distance(found))


def _around(text: str, oracle: Oracle, seed: int) -> Oracle:
    """The oracle behind what `text` says: 'none', a defence of the audit such as 'decimals=2+input-bound=10',
    'clipped=3', 'flipped-labels=0.05'."""
    if text in _UNTOUCHED:
        return oracle
    name, _, number = text.partition("=")
    if name not in _FURTHER:
        return Defence.parse(text).around(oracle, seed)
    try:
        value = float(number)
    except ValueError:
        raise UsageError(f"{text!r} needs a number; write for instance '{name}=0.1'") from None
    return _FURTHER[name](oracle, value, seed)
