"""Low rank from exact measurements: the shipped convex solver, cvxpy with SCS, and the range finder that
needs no program.

    python -m benchmarks.nuclear_norm            # d = 16, 32, 64
    python -m benchmarks.nuclear_norm --fast     # d = 16

The two convex solvers get the same Gaussian pairs, 3.5 times r(2d - r) of them; the range finder chooses its
own. Measurements cost nothing here, so that solvers alone are compared: their time without loading code, and
the peak of their process, libraries included. All are multiples of the range finder's within one run; SCS at
d = 64 takes minutes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unsoftmax
from unsoftmax.solvers import NuclearNorm, RangeFinder
from unsoftmax.testing import MatrixMeter

Array = NDArray[np.float64]

RATIO, RANK = 3.5, 2
METHODS = ("range finder", "alternating directions (shipped)", "SCS (cvxpy)")


def solve(method: str, W: Array, seed: int) -> tuple[int, float, Array]:
    """Measurements, seconds inside the solver, and W as found."""
    d = len(W)
    rng = np.random.default_rng([seed, d, RANK])
    if method == METHODS[0]:
        meter = MatrixMeter(W)
        start = time.perf_counter()
        found = RangeFinder().solve(meter, rng)
        return meter.measured, time.perf_counter() - start, found.matrix.dense()
    m = int(np.ceil(RATIO * RANK * (2 * d - RANK)))
    A, B = rng.standard_normal((2, m, d))
    t = np.einsum("ki,ij,kj->k", A, W, B)
    if method == METHODS[1]:
        start = time.perf_counter()
        solved = NuclearNorm().fit(A, B, t).matrix.dense()
        return m, time.perf_counter() - start, solved
    cp: Any = importlib.import_module("cvxpy")  # its functions carry no types
    start = time.perf_counter()
    X = cp.Variable((d, d))
    measured = np.einsum("ki,kj->kij", A, B).reshape(m, d * d) @ cp.vec(X, order="C")
    cp.Problem(cp.Minimize(cp.normNuc(X)), [measured == t]).solve(solver="SCS", eps=1e-9, max_iters=20_000)
    return m, time.perf_counter() - start, np.asarray(X.value)


def job(method: str, d: int) -> None:
    """One solver in this process: a small instance first, because loading code is not what is measured."""
    small, W = (unsoftmax.random_single_head(width, RANK, seed=1).W for width in (8, d))
    solve(method, small, 0)
    m, seconds, found = solve(method, W, 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([m, float(np.linalg.norm(found - W) / np.linalg.norm(W)), seconds, memory]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        return job(options.job[0], int(options.job[1]))
    columns = (
        "measurements",
        "/ range finder's",
        "relative error of W",
        "time / range finder's",
        "/ shipped convex solver's",
        "memory / range finder's",
    )
    print(f"| d | r | solver | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for d in (16,) if options.fast else (16, 32, 64):
        taken: list[tuple[int, float, float]] = []
        for method in METHODS:
            command = [sys.executable, "-m", "benchmarks.nuclear_norm", "--job", method, str(d)]
            m, error, seconds, memory = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
            taken.append((m, seconds, memory))
            fewer, times, larger = m / taken[0][0], seconds / taken[0][1], memory / taken[0][2]
            against = f"{seconds / taken[1][1]:,.1f}" if len(taken) > 1 else ""
            print(
                f"| {d} | {RANK} | {method} | {m:,} | {fewer:.2f} | {error:.0e} | {times:,.0f} | {against} | "
                f"{larger:.1f} |",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()
