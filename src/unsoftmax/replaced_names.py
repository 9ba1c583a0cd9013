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
from types import TracebackType
from typing import Any, Self

from unsoftmax.errors import OracleFault

__all__ = ["replaced_names"]

# np.linalg and np.random are looked up by name: numpy may not be loaded yet
_MODULES = (builtins, os, json, random, math, time)
_BY_NAME = ("numpy", "numpy.linalg", "numpy.random")
_GONE = object()
_TOLD = 3  # names in the message


class replaced_names:  # noqa: N801 - used like a function, as contextlib's are
    """Code of others that runs inside may replace `np.max` or `open`; whatever is computed from then on is no
    evidence. At the end all names are as before, and an `OracleFault` says which were not.

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
        self._before: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self._depth = sys.getrecursionlimit()
        if threading.current_thread() is threading.main_thread():
            loaded = [sys.modules.get(name) for name in _BY_NAME]
            modules = [*_MODULES, *(module for module in loaded if module is not None)]
            self._before = [(each.__name__, vars(each), dict(vars(each))) for each in modules]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replaced: list[str] = []
        for module, names, before in self._before:
            for name in before:
                if names.get(name, _GONE) is not before[name]:
                    names[name] = before[name]
                    replaced += [f"{module}.{name}"]
        if self._before and sys.getrecursionlimit() < self._depth:
            sys.setrecursionlimit(self._depth)
            replaced += ["the recursion limit"]
        if replaced and not isinstance(error, KeyboardInterrupt):
            more = f" and {len(replaced) - _TOLD} more" if len(replaced) > _TOLD else ""
            raise OracleFault(
                f"the target replaced {', '.join(replaced[:_TOLD])}{more} in this process, where others use "
                "it; let it put back what it replaces, or ask it through SeparateProcess or unsoftmax serve"
            ) from error
