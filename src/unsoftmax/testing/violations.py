"""What a suite found: every broken promise in a sentence, raised together."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NonConformance", "raise_if_any"]


class NonConformance(AssertionError):
    """One or more promises of a protocol are broken; the message names them all."""


def raise_if_any(what: str, broken: Sequence[str]) -> None:
    """Raises `NonConformance` with every distinct sentence, if there is one.

    >>> raise_if_any("the meter", [])
    """
    if broken:
        distinct = list(dict.fromkeys(broken))
        raise NonConformance(f"{what} breaks {len(distinct)} of its promises:\n- " + "\n- ".join(distinct))
