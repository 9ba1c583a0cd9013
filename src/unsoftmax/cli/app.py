"""The `unsoftmax` command."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Annotated

import typer

from unsoftmax import __version__
from unsoftmax.cli.commands.audit import audit
from unsoftmax.cli.commands.check import check
from unsoftmax.cli.commands.compare import compare
from unsoftmax.cli.commands.defend import defend
from unsoftmax.cli.commands.demo import demo
from unsoftmax.cli.commands.ledger import ledger_app
from unsoftmax.cli.commands.plan import plan
from unsoftmax.cli.commands.recover import recover
from unsoftmax.cli.commands.reproduce import reproduce
from unsoftmax.cli.commands.schema import schema
from unsoftmax.cli.commands.serve import serve
from unsoftmax.cli.commands.sweep import sweep
from unsoftmax.cli.failures import failure_of
from unsoftmax.cli.output import say

__all__ = ["app", "run"]

app = typer.Typer(
    help="Recover the parameters of attention models from black-box queries, with certificate and bill.",
    epilog="Exit status: 0 recovered and certified; 1 any other outcome; 2 wrong usage or input; "
    "3 the target failed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _command in (check, recover, plan, audit, defend, compare, serve, demo, sweep, reproduce, schema):
    app.command()(_command)
app.add_typer(ledger_app, name="ledger")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unsoftmax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version and exit.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass


def run() -> int:
    """Runs the command line; gives its exit status. Whatever happens is one sentence, never a traceback."""
    try:
        app(prog_name="unsoftmax")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:  # outside of any command: help that cannot be printed, for instance
        failure = failure_of(error)
        say(f"unsoftmax: {failure.message}")
        status = failure.status
    else:
        status = 0
    status = _flushed(status)
    if _left_behind():
        os._exit(status)
    return status


def _left_behind() -> bool:
    """Whether a call that took too long, or threads that the target began, would keep this process."""
    limits = sys.modules.get("unsoftmax.oracles.time_limit")  # loaded where a target has one
    begun = any(
        not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()
    )
    return begun or (limits is not None and limits.calls_left_behind())


def _flushed(status: int) -> int:
    """The status, after everything was written; otherwise Python would report a failure by itself."""
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if status == 0:
            failure = failure_of(error)
            if not isinstance(error, BrokenPipeError):
                say(f"unsoftmax: {failure.message}")
            return failure.status if not isinstance(error, BrokenPipeError) else 1
    return status
