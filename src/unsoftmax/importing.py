"""Imports what a user names as `package.module:name`; whatever goes wrong there is told in one sentence."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.foreign_code import foreign_code

__all__ = ["import_attribute"]


def import_attribute(name: str, what: str = "target") -> Any:
    """The object that 'package.module:name' names; the working directory is searched too.

    A name that is not there, or a file that is not Python, is a `UsageError`. Code that fails while it is
    imported is an `OracleFault`, also when it tries to end the program.

    >>> import_attribute("math:sqrt")(9.0)
    3.0
    """
    module, _, attribute = name.partition(":")
    with _working_directory_on_path():
        found = _import(module, what)
    for part in attribute.split("."):
        try:
            with foreign_code():
                found = getattr(found, part)
        except AttributeError as error:
            raise UsageError(f"the module {module!r} has no {attribute!r}") from error
        except (Exception, SystemExit) as error:
            raise OracleFault(f"reading {part!r} of the {what} {module!r} {_did(error)}") from error
    return found


def _import(module: str, what: str) -> Any:
    if not all(part.isprintable() and part for part in module.split(".")):
        raise UsageError(f"{module!r} is not a name of a module; write package.module:name")
    try:
        with foreign_code():
            return importlib.import_module(module)
    except SyntaxError as error:
        place = f"{error.filename or module}, line {error.lineno}"
        raise UsageError(f"the {what} {module!r} is not valid Python: {error.msg} ({place})") from error
    except ImportError as error:
        raise UsageError(
            f"cannot import {module!r}: {error}; is it installed, or are you in the right directory?"
        ) from error
    except (Exception, SystemExit) as error:
        raise OracleFault(f"importing the {what} {module!r} {_did(error)}") from error


def _did(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"tried to end the program (sys.exit({error.code!r})); remove that call"
    return f"raised {type(error).__name__}: {error}"


@contextmanager
def _working_directory_on_path() -> Iterator[None]:
    try:
        here = os.getcwd()
    except OSError:  # the working directory was deleted: nothing can be imported from it
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have changed the path, or the working directory
            sys.path.remove(here)
