"""From the name of a target and the options of a command to an oracle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unsoftmax.cli.options import Servers

if TYPE_CHECKING:
    from unsoftmax.oracles import Oracle

__all__ = ["how_to_go_on", "opened"]


@contextmanager
def opened(target: str, servers: Servers, outputs: int | None = None) -> Iterator[Oracle]:
    """The oracle of a target. Afterwards its connections are closed, and the working directory is what it was
    before, wherever the target's own code went.
    """
    from unsoftmax.oracles.time_limit import TimeLimited
    from unsoftmax.recovery.inputs.targets import as_oracle

    here = _working_directory()
    http = servers.http()
    served = "://" in target or target.endswith(".json")
    limit = None if served else http.pop("timeout", None)
    oracle = as_oracle(target, outputs=outputs, http=http)
    try:
        yield oracle if limit is None else TimeLimited(oracle, limit)
    finally:
        if callable(close := getattr(oracle, "close", None)):
            close()
        if here is not None:
            with suppress(OSError):
                os.chdir(here)


def how_to_go_on(ledger: Path | None) -> str:
    """What an interrupted run leaves, in words."""
    if ledger is None or not ledger.is_file():
        return "nothing was written. With --ledger PATH a run can be stopped and go on"
    from unsoftmax.errors import UnsoftmaxError
    from unsoftmax.ledger import read_statement

    try:
        paid = read_statement(ledger).queries
    except UnsoftmaxError:
        return "nothing was paid yet"
    return f"{paid:,} paid answers are kept in {ledger}: run the same command again to go on"


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None
