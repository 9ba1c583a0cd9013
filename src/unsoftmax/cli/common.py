"""What all commands share: options, exit statuses, plain output for pipes, progress for people."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from unsoftmax.errors import OracleFault, UnsoftmaxError, UsageError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from unsoftmax.ledger import Progress

__all__ = [
    "Budget",
    "Json",
    "LedgerPath",
    "Out",
    "Seed",
    "Target",
    "Width",
    "bar_aside",
    "print_json",
    "reports_errors",
    "say",
    "show_progress",
    "writable_folder",
]

_bars: list[Bar] = []  # those on the terminal now

RECOVERED, NOT_RECOVERED, WRONG_USAGE, ORACLE_FAILED, INTERRUPTED = 0, 1, 2, 3, 130

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help=(
            "demo:single-head?d=64&r=8&seed=0, a .safetensors or .onnx file, "
            "http(s)://host/v2/models/NAME, or package.module:callable"
        ),
        show_default=False,
    ),
]
Width = Annotated[
    int | None,
    typer.Option(
        "--width", help="Columns of a sequence, where the target does not tell.", show_default=False
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="All randomness comes from it.", min=0)]
Budget = Annotated[
    int | None, typer.Option("--budget", help="Largest number of queries.", min=0, show_default=False)
]
LedgerPath = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="File that keeps every answer; a run that was stopped goes on from it.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for the recovered model (.safetensors).", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]

Command = TypeVar("Command", bound=Callable[..., Any])


def reports_errors(command: Command) -> Command:
    """Turns errors into one sentence on standard error and the right exit status; with --json also into an
    object."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except UnsoftmaxError as error:
            status = (
                WRONG_USAGE
                if isinstance(error, UsageError)
                else ORACLE_FAILED
                if isinstance(error, OracleFault)
                else NOT_RECOVERED
            )
            kind = type(error).__name__
            message = str(error)
        except KeyboardInterrupt as stop:  # a command may know better than we do how to go on
            status, kind, message = (
                INTERRUPTED,
                "Interrupted",
                f"interrupted; {stop if stop.args else _how_to_go_on(options)}",
            )
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
            raise typer.Exit(NOT_RECOVERED) from None
        if options.get("as_json"):
            print_json({"status": None, "error": kind, "reason": message})
        say(f"unsoftmax: {message}")
        raise typer.Exit(status)

    return wrapped  # type: ignore[return-value]


def _how_to_go_on(options: dict[str, Any]) -> str:
    ledger = (
        options.get("ledger") or (options.get("out") or Path()) / "audit.ledger"
    )  # an audit always keeps one
    if not ledger.is_file():
        return "nothing was written. With --ledger PATH a run can be stopped and go on"
    from unsoftmax.ledger import read_statement

    try:
        return (
            f"{read_statement(ledger).queries:,} paid answers are kept in {ledger}: run the same command "
            "again to go on"
        )
    except UnsoftmaxError:
        return "nothing was paid yet"


def say(text: str) -> None:
    """A line for people, on standard error."""
    typer.echo(text, err=True)


def print_json(content: dict[str, Any]) -> None:
    """The one object on standard output; numbers that JSON cannot say become null."""
    typer.echo(json.dumps(_finite(content), indent=2, ensure_ascii=False))


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float) and content - content != 0.0:
        return None
    return content


def writable_folder(folder: Path) -> Path:
    """The folder, made if need be, before any query is paid."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".unsoftmax-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    return folder


@contextmanager
def show_progress() -> Iterator[Callable[[Progress], None] | None]:
    """A bar with queries paid against queries expected, on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("queries"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        _bars.append(bar)
        try:
            yield lambda now: bar.update(task, description=now.phase, completed=now.paid, total=now.expected)
        finally:
            _bars.remove(bar)


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
