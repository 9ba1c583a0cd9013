"""`python -m unsoftmax`, and the installed command.

Nothing is imported here before interrupts are taken care of: importing the rest takes up to seconds on a busy
machine, and an interrupt in the middle of it would print a traceback.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # type checkers take it for true
if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # `signal` adds names of numbers alone, for which it imports `enum`: 3 ms more

__all__ = ["main"]

_INTERRUPTED = 130  # 128 and the number of the signal, as shells say it


def main() -> None:
    """Entry point of the installed command."""
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:  # otherwise interrupts are ignored, for instance in the background: that stays
        signal.signal(signal.SIGINT, _leave)
    from unsoftmax.cli.app import run

    status = run()
    from unsoftmax.foreign_code import run_at_exit

    run_at_exit()
    sys.exit(status)


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends the program at once. Until a command has begun nothing has to be cleaned up."""
    os.write(2, b"unsoftmax: interrupted; nothing was asked and nothing was written\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
