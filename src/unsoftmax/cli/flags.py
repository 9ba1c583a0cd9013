"""Messages of the library name arguments of Python; the command names its own flags instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["with_flags"]


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """The text with the flags of a command in the place of arguments. flags: from argument to flag.

    >>> with_flags("width 5 but the target has width 4; pass width=4", {"width": "--width"})
    'width 5 but the target has width 4; pass --width 4'
    >>> with_flags("try 'demo:single-head?d=64&seed=0'", {"seed": "--seed"})
    "try 'demo:single-head?d=64&seed=0'"
    >>> with_flags("pass row='last' (first, mean, all)", {"row": "--row"})
    'pass --row last (first, mean, all)'
    """
    for name, flag in flags.items():
        text = re.sub(rf"(?<![^\s(]){name}='(\w+)'", rf"{flag} \1", text)  # pass row='last'
        text = re.sub(rf"(?<![^\s(]){name}=(?=\S)", f"{flag} ", text)  # pass width=4
        # pass input_bound
        text = re.sub(rf"\b(pass|leave out|choose another|a larger)(\s+){name}\b(?!=)", rf"\1\2{flag}", text)
        text = re.sub(rf"^{name} (must|is an option)\b", rf"{flag} \1", text)  # width must be at least 1
        if "_" in name:
            text = re.sub(rf"(?<![\w-]){name}(?!\w)", flag, text)
    return text
