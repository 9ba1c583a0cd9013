"""What every test relies on."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# Two threads on small matrices cost up to 30 times as much beside another process; read when numpy starts.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

settings.register_profile("whatever the load", deadline=None)
settings.load_profile("whatever the load")

# A runner that was started in the background ignores interrupts, and so would every command under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
