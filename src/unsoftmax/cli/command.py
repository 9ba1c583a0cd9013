"""What makes a function a command: groups of options, errors as one sentence, and the options of all."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from unsoftmax.cli.config import Config
from unsoftmax.cli.failures import NOT_RECOVERED, Failure, failure_of
from unsoftmax.cli.flags import with_flags
from unsoftmax.cli.interrupts import allow_interrupts
from unsoftmax.cli.output import print_json, say
from unsoftmax.replaced_names import replaced_names

__all__ = ["command", "flags_of"]

Function = TypeVar("Function", bound=Callable[..., Any])

_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show phases and retries on standard error.")]
_Debug = Annotated[bool, typer.Option("--debug", help="Show everything, and the traceback of an error.")]


def command(*needs: str, interrupted: str = "") -> Callable[[Function], Function]:
    """Turns a function into a command. needs: modules that it will use; they are imported first, while an
    interrupt still ends the program without a trace. interrupted: what it says of itself after an interrupt.

    A parameter whose type is a dataclass is a group: each of its fields becomes an option of the command.
    """

    def decorate(function: Function) -> Function:
        parameters, groups = _flattened(function)
        flags = _flags(parameters)

        @functools.wraps(function)
        def wrapped(**options: Any) -> Any:
            debug, verbose = options.pop("debug"), options.pop("verbose")
            options.pop("config")
            as_json = bool(options.get("as_json"))
            try:
                _start_logging(verbose, debug)
                for module in needs:
                    importlib.import_module(module)
                allow_interrupts()
                for name, (kind, names) in groups.items():
                    options[name] = kind(**{part: options.pop(part) for part in names})
                with replaced_names():
                    return function(**options)
            except (typer.Exit, typer.Abort):
                raise
            except BrokenPipeError:
                sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
                raise typer.Exit(NOT_RECOVERED) from None
            except BaseException as error:
                if debug:
                    say(traceback.format_exc().rstrip())
                if isinstance(error, KeyboardInterrupt) and not error.args:
                    error = KeyboardInterrupt(interrupted or _left_behind(flags))
                failure = failure_of(error)
                raise typer.Exit(_told(failure, with_flags(failure.message, flags), as_json)) from None

        del wrapped.__wrapped__  # its signature is the one below
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped  # type: ignore[return-value]

    return decorate


def flags_of(function: Callable[..., Any]) -> dict[str, str]:
    """From the arguments of a command to its flags, for `with_flags`."""
    return _flags(list(inspect.signature(function).parameters.values()))


def _left_behind(flags: Mapping[str, str]) -> str:
    """What an interrupt leaves of a command that kept nothing yet."""
    if "ledger" not in flags:
        return "nothing was written"
    return "nothing was written. With --ledger PATH a stopped run can be continued"


def _told(failure: Failure, message: str, as_json: bool) -> int:
    if as_json:
        try:
            print_json("error", {"status": None, "error": failure.kind, "reason": message})
        except OSError as error:
            second = failure_of(error).message
            message = message if second == message else f"{message} ({second})"
    say(f"unsoftmax: {message}")
    return failure.status


def _flattened(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """The parameters with groups replaced by their fields, and the groups with the names of their fields."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(_keyword(name, kind, parameter.default))
            continue
        types = get_type_hints(kind, include_extras=True)
        groups[name] = (kind, [part.name for part in fields(kind)])
        for part in fields(kind):
            default = inspect.Parameter.empty if part.default is MISSING else part.default
            parameters.append(_keyword(part.name, types[part.name], default))
    for name, kind, default in (
        ("config", Config, None),
        ("verbose", _Verbose, False),
        ("debug", _Debug, False),
    ):
        parameters.append(_keyword(name, kind, default))
    return parameters, groups


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _flags(parameters: list[inspect.Parameter]) -> dict[str, str]:
    flags = {}
    for parameter in parameters:
        for part in get_args(parameter.annotation)[1:]:
            # inside Annotated the first flag stands where a default would
            declared = (getattr(part, "default", None), *(getattr(part, "param_decls", None) or ()))
            long = [flag for flag in declared if isinstance(flag, str) and flag.startswith("--")]
            if long:
                flags[parameter.name] = long[0].split("/")[0]
    return flags


def _start_logging(verbose: bool, debug: bool) -> None:
    """Messages of this library only; others keep to warnings."""
    if verbose or debug:
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
        logging.getLogger("unsoftmax").setLevel(logging.DEBUG if debug else logging.INFO)
