"""What a ledger file says: what was asked, when, by phase, and what it cost."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unsoftmax.errors import LedgerRefused, UsageError
from unsoftmax.ledger.files import connect, read_binding, verify

__all__ = ["PhaseStatement", "Statement", "read_statement"]


@dataclass(frozen=True)
class PhaseStatement:
    """One phase: its calls and queries, and when the first and the last were answered (UTC)."""

    phase: str
    calls: int
    queries: int
    retries: int
    first: str
    last: str


@dataclass(frozen=True)
class Statement:
    """A ledger for people.

    binding: what the ledger belongs to (target, seed, learner, options). queries: answered and kept, each
    counted once. lost: sent, but never answered or not kept (a killed run, a server that died); they were or
    will be asked again. cost: None without a price.
    digest: of every query's sketch and answer, in order; two runs that asked and got the same have the same.
    """

    path: str
    binding: dict[str, str]
    phases: tuple[PhaseStatement, ...]
    queries: int
    retries: int
    lost: int
    runs: int
    price_per_thousand: float | None
    cost: float | None
    digest: str = ""

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return asdict(self)


def read_statement(path: str | Path, *, price_per_thousand: float | None = None) -> Statement:
    """The statement of a ledger file, also of one that a run is writing just now. Damage is found, and
    refused.

    >>> import tempfile, unsoftmax
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = unsoftmax.recover("demo:single-head?d=4", ledger=folder + "/run.ledger")
    ...     statement = read_statement(folder + "/run.ledger", price_per_thousand=2.0)
    >>> statement.queries == result.queries.total, statement.cost == 2.0 * statement.queries / 1000
    (True, True)
    """
    if price_per_thousand is not None and not 0.0 <= price_per_thousand < float("inf"):
        raise UsageError(f"the price of a thousand queries must be a number >= 0, not {price_per_thousand!r}")
    file = Path(path)
    if not file.is_file():
        raise LedgerRefused(f"there is no ledger {file}")
    db = connect(file, read_only=True)
    try:
        db.execute("BEGIN")  # one moment, whatever a run writes meanwhile
        binding = read_binding(db, file)
        if binding is None:
            raise LedgerRefused(f"{file} is empty, not a ledger")
        head = verify(db, file)[1]
        grouped = db.execute(
            "SELECT phase, count(*), sum(n), sum(retries), min(answered), max(answered) FROM batches GROUP "
            "BY phase ORDER BY min(position)"
        ).fetchall()
        lost = db.execute("SELECT coalesce(sum(n), 0) FROM sent").fetchone()[0]
        runs = db.execute("SELECT count(*) FROM runs").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise LedgerRefused(f"the ledger {file} cannot be read: {error}") from error
    finally:
        db.close()
    phases = tuple(
        PhaseStatement(name, calls, n, again, _moment(first), _moment(last))
        for name, calls, n, again, first, last in grouped
    )
    queries = sum(phase.queries for phase in phases)
    cost = None if price_per_thousand is None else price_per_thousand * queries / 1000.0
    return Statement(
        str(file),
        binding,
        phases,
        queries,
        sum(p.retries for p in phases),
        lost,
        runs,
        price_per_thousand,
        cost,
        head.hex(),
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
