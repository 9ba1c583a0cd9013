"""The learners that a sweep knows by name. A theorem is given the constants that it assumes, which an
experiment may know."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.audit.defences.wrappers import parts_of
from unsoftmax.errors import UnsoftmaxError, UsageError
from unsoftmax.importing import import_attribute
from unsoftmax.learners import Learner
from unsoftmax.learners.paper.theorem_4_1 import theorem_4_1
from unsoftmax.learners.paper.theorem_5_1 import theorem_5_1
from unsoftmax.learners.paper.theorem_6_1 import theorem_6_1
from unsoftmax.learners.paper.theorem_b_1 import theorem_b_1
from unsoftmax.models import Model, SingleHead

__all__ = ["LEARNERS", "learner_named"]

LearnerMaker = Callable[[Model, str], Learner]  # from the hidden model and the noise of the cell

LEARNERS: dict[str, LearnerMaker | None] = {  # None: whatever `recover` chooses
    "default": None,
    "theorem-4.1": lambda truth, noise: theorem_4_1("gaussian"),
    "theorem-4.1-structured": lambda truth, noise: theorem_4_1("structured"),
    "theorem-5.1": lambda truth, noise: theorem_5_1(_head(truth).rank, 3.0),
    "theorem-6.1": lambda truth, noise: theorem_6_1(_norm(truth), _margin(truth), _tolerance(noise)),
    "theorem-b.1": lambda truth, noise: theorem_b_1(
        _norm(truth), _margin(truth, unit=True), 0.5 * _margin(truth, unit=True)
    ),
}


def learner_named(name: str) -> LearnerMaker | None:
    """A learner of the table, or what `package.module:factory` names, a function without arguments.

    >>> learner_named("theorem-4.1")(None, "exact").claim.title
    'Theorem 4.1: exact recovery of one head'
    """
    if name in LEARNERS:
        return LEARNERS[name]
    if ":" not in name:
        raise UsageError(
            f"there is no learner {name!r}; choose from {', '.join(LEARNERS)}, or name your own as "
            "package.module:factory"
        )
    try:
        made: Callable[[], Learner] = import_attribute(name, "learner")
    except UnsoftmaxError as error:
        raise UsageError(f"the learner {name!r} cannot be imported: {error}") from error
    return lambda truth, noise: made()


def _head(truth: Model) -> SingleHead:
    if not isinstance(truth, SingleHead):
        raise UsageError(
            f"the paper's theorems are about one head, not about a {truth.family}; leave the family out, or "
            "choose the default learner"
        )
    return truth


def _norm(truth: Model) -> float:
    return _head(truth).matrix.norm()


def _margin(truth: Model, *, unit: bool = False) -> float:
    """The least entry of v that is not zero."""
    v = np.asarray(_head(truth).v)
    return float(np.abs(v[v != 0.0]).min(initial=np.inf) / (np.linalg.norm(v) if unit else 1.0))


def _tolerance(noise: str) -> float:
    """How far an answer may be off behind 'tolerance=' or 'decimals='; nothing otherwise."""
    parts = dict(parts_of(noise))
    if "decimals" in parts:
        return float(0.5 * 10.0 ** -float(parts["decimals"]))
    return float(parts.get("tolerance", 0.0))
