"""What every test relies on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Two threads on small matrices cost up to 30 times as much beside another process; read when numpy starts.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

settings.register_profile("whatever the load", deadline=None)
settings.load_profile("whatever the load")

# A runner that was started in the background ignores interrupts, and so would every command under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HOSTILE = 240  # seconds for a test against something hostile, on a busy machine; usually a fraction of one


@pytest.fixture
def limited_in_time() -> Iterator[None]:
    """Ends a test in which something hostile holds up the code under test."""

    def late(*_: object) -> None:
        raise TimeoutError(f"this test was held up for {HOSTILE} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HOSTILE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
