"""When a request is sent again, and how long the client waits before it."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["TRY_AGAIN", "Again", "pause_before", "retry_after"]

TRY_AGAIN = (429, 502, 503, 504)  # the statuses that the standard calls temporary
_LONGEST_PAUSE = 20.0  # seconds of our own pauses: a third of the default patience, so that three still fit
_LONGEST_WAIT = 1e9  # seconds (32 years): what a server asks for beyond that is told as this


class Again(Exception):
    """This attempt gave no answer, but another one may; `pause` is what the server asked for, in seconds."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pause = pause


def pause_before(attempt: int, backoff: float, asked: float | None, jitter: random.Random) -> float:
    """Seconds before the next attempt: what the server asked for, or twice as long as the time before.

    Jitter keeps clients that failed together from coming back together.
    """
    doubled = backoff * 2.0 ** min(attempt, 60)
    own = float(min(_LONGEST_PAUSE, doubled) * jitter.uniform(0.5, 1.0))
    return own if asked is None else asked + 0.1 * own


def retry_after(text: str) -> float | None:
    """Seconds that a Retry-After header asks for, a number or a date; None for anything else.

    >>> retry_after("7"), retry_after("-3"), retry_after("nan"), retry_after("9" * 5000)
    (7.0, None, None, 1000000000.0)
    """
    text = text.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text):
        return min(float(text), _LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(text[:100])
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    except (IndexError, OverflowError, TypeError, ValueError):
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT)
