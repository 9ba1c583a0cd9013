"""What a ledger file is bound to, and opening it for a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path

from unsoftmax.ledger.sqlite_journal import SqliteJournal
from unsoftmax.oracles import Oracle, identity

__all__ = ["open_journal"]


def open_journal(
    path: str | Path,
    oracle: Oracle,
    *,
    seed: int,
    learner: object,
    options: Mapping[str, object] | None = None,
) -> SqliteJournal:
    """The ledger file of a run, new or begun before; refused when it belongs to another target, seed, learner
    or options.

    Everything that decides which queries a run asks belongs into `options`; what only limits it, such as a
    budget, does not.

    >>> import tempfile
    >>> from unsoftmax.oracles import FunctionOracle
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_journal(folder + "/run.ledger", FunctionOracle(len), seed=0,
    ...     learner="columns") as journal:
    ...         len(journal)
    0
    """
    binding = {"target": identity(oracle), "seed": str(seed), "learner": _described(learner)}
    binding |= {name: str(value) for name, value in (options or {}).items() if value is not None}
    return SqliteJournal(path, binding)


def _described(learner: object) -> str:
    """A text that two learners share when they ask the same: class and options, without addresses in
    memory."""
    if isinstance(learner, str):
        return learner
    text = repr(learner) if is_dataclass(learner) else type(learner).__qualname__
    return re.sub(r" at 0x[0-9a-f]+", "", text)
