"""Driver of the kill tests, run as its own process: forks a recovery, which kills itself, until one of them
finishes.

python killed_runs.py LEDGER MODE K: MODE 'in-flight' kills while the oracle holds batch K + 1 of a run,
'in-write' inside the transaction that keeps batch K + 1. Prints one JSON object: the model's bytes, the bill,
the number of runs, and what the target saw.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import unsoftmax
from unsoftmax.ledger import SqliteJournal

HIDDEN = unsoftmax.random_single_head(6, 3, seed=5, biases=True)


def digest(model: Any) -> str:
    return sha256(
        b"".join(np.ascontiguousarray(part).tobytes() for _, part in sorted(model.tensors().items()))
    ).hexdigest()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Target:
    """Notes every batch in a file before answering it, so that the note survives; dies while holding the
    last."""

    def __init__(self, log: Path, die_at: int | None) -> None:
        self.log, self.die_at, self.calls = log, die_at, 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        with self.log.open("a") as file:
            file.write(f"{len(batch)}\n")
        if self.calls == self.die_at:
            die()
        return HIDDEN(batch)


def run(ledger: Path, log: Path, mode: str, k: int) -> None:
    target = Target(log, k + 1 if mode == "in-flight" else None)
    if mode == "in-write":
        insert = SqliteJournal._insert

        def torn(journal: SqliteJournal, position: int, values: tuple[object, ...]) -> None:
            if target.calls == k + 1:
                journal._db.set_trace_callback(
                    lambda statement: die() if statement.startswith("COMMIT") else None
                )
            insert(journal, position, values)

        SqliteJournal._insert = torn  # type: ignore[assignment, method-assign]
    result = unsoftmax.recover(target, width=6, ledger=ledger, seed=3)
    Path(f"{ledger}.json").write_text(
        json.dumps(
            {"status": str(result.status), "model": digest(result.unwrap()), "bill": result.queries.total}
        )
    )


def main() -> None:
    ledger, mode, k = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    log = Path(f"{ledger}.log")
    runs = 0
    unsoftmax.recover(HIDDEN)  # imports everything once, before the forks
    while not Path(f"{ledger}.json").exists():
        runs += 1
        child = os.fork()
        if child == 0:
            run(ledger, log, mode, k)
            os._exit(0)
        os.waitpid(child, 0)
        if runs > 500:
            raise SystemExit("the run makes no progress")
    batches = [int(line) for line in log.read_text().split()]
    facts = json.loads(Path(f"{ledger}.json").read_text())
    sys.stdout.write(json.dumps(facts | {"runs": runs, "seen": sum(batches), "largest": max(batches)}))


if __name__ == "__main__":
    main()
