"""Progress for people: a bar on a terminal, lines with --verbose, nothing elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from unsoftmax.ledger import Progress

__all__ = ["bar_aside", "counting_bar", "show_progress"]

_log = logging.getLogger("unsoftmax.progress")
_bars: list[Bar] = []  # those on the terminal now


@contextmanager
def show_progress() -> Iterator[Callable[[Progress], None] | None]:
    """Queries paid against queries expected."""
    if _log.isEnabledFor(logging.INFO):
        yield _in_lines()
        return
    with counting_bar("starting", "queries") as update:
        yield None if update is None else lambda now: update(now.phase, now.paid, now.expected)


@contextmanager
def counting_bar(first: str, unit: str) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A bar on a terminal, to be called with a word, what is done, and the whole (None: not known)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description:<14}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=None)
        # between queries a fit may take minutes: its steps take the place of the word until the next query
        steps = _Steps(lambda step: bar.update(task, description=step))

        def update(word: str, done: int, total: int | None) -> None:
            # an estimate that was too low must not show more than all
            bar.update(
                task, description=word, completed=done, total=None if total is None else max(done, total)
            )

        _bars.append(bar)
        try:
            with steps.heard():
                yield update
        finally:
            _bars.remove(bar)


class _Steps(logging.Handler):
    """Tells what fits report to one who shows it."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Shows one step, without its residual: a terminal of 80 columns has no place for it."""
        self._show(record.getMessage().partition(":")[0])

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listens, unless the steps are written as lines already, and keeps them from everybody else."""
        if _log.isEnabledFor(logging.INFO):
            yield
            return
        level, propagate = _log.level, _log.propagate
        _log.addHandler(self)
        _log.setLevel(logging.DEBUG)
        _log.propagate = False
        try:
            yield
        finally:
            _log.removeHandler(self)
            _log.setLevel(level)
            _log.propagate = propagate


@contextmanager
def bar_aside() -> Iterator[None]:
    """Takes the bar off the terminal for a line or a question, which it would paint over."""
    bars = tuple(_bars)
    for bar in bars:
        bar.stop()
    try:
        yield
    finally:
        for bar in bars:
            bar.start()


def _in_lines() -> Callable[[Progress], None]:
    """A line whenever a new phase begins."""
    last: list[Any] = [None]

    def show(now: Progress) -> None:
        if now.phase != last[0]:
            last[0] = now.phase
            of = "" if now.expected is None else f" of about {now.expected:,}"
            _log.info("phase %s, %s%s queries paid", now.phase, f"{now.paid:,}", of)

    return show
