"""Wide heads: queries, error, memory, and wall time over the time inside the target. Run: python -m
benchmarks.width [--sizes 1536x24 ...]

Each size runs in a process of its own, so that its memory is its own. The target is a factored head in the
same process; its time is measured around every call, within the same run as the wall time. The largest size
takes some minutes. With one BLAS thread (the default) learner and target have the same processor; with
--threads 2 the target's products are faster and the learner's part weighs more.

The last column is a floor for any learner in the same process: the target's time, and the time to write one
new row for every query, over the target's time. The time to measure it is in no other column.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray

import unsoftmax

Array = NDArray[np.float64]

SIZES = ("64x8", "384x32", "1536x24", "4096x128", "8192x128")


def _now() -> Array:
    """Seconds on the wall, and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


class Timed:
    """A target that adds up the time spent inside it, and what it takes to write one row of every query."""

    def __init__(self, head: unsoftmax.SingleHead) -> None:
        self.head = head
        self.inside, self.writing, self.beside = np.zeros(2), np.zeros(2), np.zeros(2)
        self._memory = np.ones(0)

    def __call__(self, batch: Array) -> Array:
        begun = _now()
        answers = self.head(batch)
        answered = _now()
        if len(self._memory) < batch.size:
            self._memory = np.ones(batch.size)
        rows = self._memory[: batch.size].reshape(batch.shape)[:, 0]
        ready = _now()
        rows[:] = batch[0, 0]
        written = _now()
        self.inside += answered - begun
        self.writing += written - ready
        self.beside += written - answered
        return answers


def measure(size: str) -> None:
    d, r = (int(part) for part in size.split("x"))
    head = unsoftmax.random_single_head(d, r, seed=0)
    unsoftmax.recover("demo:single-head?d=8&r=2")  # imports are not what is measured
    target = Timed(head)
    begun = _now()
    result = unsoftmax.recover(target, width=d)
    whole = _now() - begun - target.beside
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    found = result.unwrap()
    assert isinstance(found, unsoftmax.SingleHead)
    parameters = head.parameters
    wall, processor = whole / target.inside
    floor = 1.0 + target.writing[0] / target.inside[0]
    print(
        f"| {d} | {r} | {result.status} | {parameters:,} | {result.queries.learning:,} | "
        f"{result.queries.total / parameters:.4f} | {head.distance(found):.0e} | "
        f"{result.error_bound or np.nan:.0e} | {memory:.2f} | {whole[0]:.1f} | {wall:.2f} | "
        f"{processor:.2f} | {floor:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="such as 1536x24: width x rank")
    parser.add_argument("--threads", default="1", help="BLAS threads, of learner and target alike")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        return measure(options.alone)
    print(
        "| d | rank | status | parameters | queries to learn | all queries / parameters | error | bound | "
        "memory, GB | wall, s | wall / target's | processor / target's | floor |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for size in options.sizes:
        environment = os.environ | {
            "OPENBLAS_NUM_THREADS": options.threads,
            "OMP_NUM_THREADS": options.threads,
        }
        subprocess.run(
            [sys.executable, "-m", "benchmarks.width", "--alone", size], check=True, env=environment
        )
    return None


if __name__ == "__main__":
    main()
