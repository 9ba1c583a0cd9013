"""Restores names of shared modules that a target's code has replaced, and reports them."""

from __future__ import annotations

import builtins
import json
import math
import os
import random
import sys
import threading
import time
from operator import is_
from types import ModuleType, TracebackType
from typing import Any, Self

from unsoftmax.errors import OracleFault

__all__ = ["replaced_names"]

# np.linalg and np.random are looked up by name: numpy may not be loaded yet
_MODULES = (builtins, os, json, random, math, time)
_BY_NAME = ("numpy", "numpy.linalg", "numpy.random", "scipy.linalg", "sqlite3")
# Where the evidence of a result comes from. What a learner finds is held against the target here, so that a
# learner that was changed shows; all rooms together would cost three times as much in every run.
_OWN = ("unsoftmax.certify", "unsoftmax.models", "unsoftmax.recovery.judge")
_GONE = object()
_classes: dict[str, list[type]] = {}  # by the module that defines them: a module defines them once
_put_on_class, _all, _len, _map, _zip = type.__setattr__, all, len, map, zip
_TOLD = 3  # names in the message


class replaced_names:  # noqa: N801 - used like a function, as contextlib's are
    """Code of others that runs inside may replace `np.max` or `open`, or a part of a certificate; whatever is
    computed from then on is no evidence. At the end all names are as before, and an `OracleFault` says which
    were not.

    Names that are added, as lazy imports do, are left. Outside the main thread it does nothing, because other
    threads may replace what belongs to them. It uses no builtin after the code has run.

    >>> import math
    >>> try:
    ...     with replaced_names():
    ...         math.sqrt = None
    ... except OracleFault as fault:
    ...     print(str(fault)[:33], math.sqrt(4.0))
    the target replaced math.sqrt in  2.0
    """

    def __enter__(self) -> Self:
        self._owners: list[Any] = []
        self._depth = sys.getrecursionlimit()
        if threading.current_thread() is threading.main_thread():
            loaded = [sys.modules.get(name) for name in _BY_NAME]
            self._owners = [*_MODULES, *(module for module in loaded if module is not None), *_own()]
        self._before = [vars(each).copy() for each in self._owners]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replaced: list[str] = []
        for owner, before in _zip(self._owners, self._before):
            names = owner.__dict__
            if _len(names) == _len(before) and _all(_map(is_, names.values(), before.values())):
                continue  # at C's speed: hundreds of modules and classes are looked at in every run
            for name, was in before.items():
                if names.get(name, _GONE) is not was:
                    replaced += [_put_back(owner, name, was)]
        if self._before and sys.getrecursionlimit() < self._depth:
            sys.setrecursionlimit(self._depth)
            replaced += ["the recursion limit"]
        if replaced and not isinstance(error, KeyboardInterrupt):
            more = f" and {len(replaced) - _TOLD} more" if len(replaced) > _TOLD else ""
            raise OracleFault(
                f"the target replaced {', '.join(replaced[:_TOLD])}{more} in this process, where others use "
                "it; let it put back what it replaces, or ask it through SeparateProcess or unsoftmax serve"
            ) from error


def _own() -> list[Any]:
    """Our modules of evidence that are loaded by now, and the classes that they define."""
    owners: list[Any] = []
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_OWN):
            if name not in _classes:
                _classes[name] = [each for each in vars(module).values() if _defines(module, each)]
            owners += [module, *_classes[name]]
    return owners


def _defines(module: ModuleType, each: Any) -> bool:
    return isinstance(each, type) and each.__module__ == module.__name__


def _put_back(owner: Any, name: str, was: Any) -> str:
    """The name's content as it was before; gives the full name. Modules have a dictionary to write to."""
    if owner.__class__ is ModuleType:
        owner.__dict__[name] = was
        return f"{owner.__name__}.{name}"
    _put_on_class(owner, name, was)
    return f"{owner.__module__}.{owner.__qualname__}.{name}"
