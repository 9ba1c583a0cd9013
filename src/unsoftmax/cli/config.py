"""Options of a run in a file: `--config FILE`, in TOML, with the names of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax.errors import UsageError
from unsoftmax.text_files import parse_toml, read_small_text

__all__ = ["Config"]


def _load(context: typer.Context, value: Path | None) -> Path | None:
    """Makes the values of the file the defaults of this command; what is on the command line wins."""
    if value is None or context.resilient_parsing:
        return value
    try:
        found = _values(
            context, parse_toml(read_small_text(value, "configuration"), f"configuration {value}")
        )
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error
    context.default_map = {**(context.default_map or {}), **found}
    return value


def _values(context: typer.Context, content: dict[str, Any]) -> dict[str, Any]:
    """Entries at the top hold for every command with such an option; a table [recover] for that command."""
    mine = _options(context.command)
    root = context.find_root().command
    commands: dict[str, Any] = getattr(root, "commands", {})
    known = set(mine).union(*(_options(command) for command in commands.values()))
    values: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            if name not in commands:
                raise UsageError(f"there is no command [{name}]; there are {', '.join(commands)}")
            continue
        if name not in known:
            raise UsageError(f"no command has the option {name!r}; write names as on the command line")
        if name in mine:
            values[mine[name]] = value
    for name, value in content.get(context.info_name or "", {}).items():
        if name not in mine:
            raise UsageError(f"{context.info_name} has no option {name!r}; it has {', '.join(mine)}")
        values[mine[name]] = value
    return values


def _options(command: Any) -> dict[str, str]:
    """From the name of an option without its dashes to the name of its parameter."""
    return {
        flag.lstrip("-"): str(parameter.name)
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.name not in ("config", "help")
        for flag in parameter.opts
        if flag.startswith("--")
    }


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="UNSOFTMAX_CONFIG",
        help="Options in a TOML file, named as here without dashes; options on the command line win.",
        show_default=False,
        is_eager=True,
        callback=_load,
    ),
]
