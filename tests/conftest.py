"""What every test relies on."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("whatever the load", deadline=None)
settings.load_profile("whatever the load")

# A runner that was started in the background ignores interrupts, and so would every command under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
