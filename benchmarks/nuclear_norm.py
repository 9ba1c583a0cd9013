"""The convex program of Theorem 5.1: the shipped solver, cvxpy with SCS, and the range finder that needs no program.

    python -m benchmarks.nuclear_norm            # d = 16, 32
    python -m benchmarks.nuclear_norm --fast     # d = 16

Same Gaussian pairs, exact measurements, C = 3. Each solver runs in a process of its own, so that its memory is its own; times are multiples of
the shipped solver's within one run. The range finder chooses its own measurements and is counted through the oracle.
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

import unsoftmax
from unsoftmax.solvers import NuclearNorm


def solve(method: str, d: int, r: int, seed: int) -> tuple[int, float]:
    """(measurements, relative error of W)."""
    head = unsoftmax.random_single_head(d, r, seed=seed)
    W = head.W
    if method == "range finder":
        result = unsoftmax.recover(head, seed=seed)
        return result.queries.learning - d, float(np.linalg.norm(result.unwrap().W - W) / np.linalg.norm(W))  # type: ignore[attr-defined]
    m = 6 * r * d
    rng = np.random.default_rng([seed, d, r])
    A, B = rng.standard_normal((2, m, d))
    t = np.einsum("ki,ij,kj->k", A, W, B)
    if method == "ours":
        found = NuclearNorm().solve(A, B, t).matrix.dense()
    else:
        cp: Any = importlib.import_module("cvxpy")  # its functions carry no types
        X = cp.Variable((d, d))
        measured = np.einsum("ki,kj->kij", A, B).reshape(m, d * d) @ cp.vec(X, order="C")
        cp.Problem(cp.Minimize(cp.normNuc(X)), [measured == t]).solve(solver="SCS", eps=1e-9, max_iters=20_000)
        found = np.asarray(X.value)
    return m, float(np.linalg.norm(found - W) / np.linalg.norm(W))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        if job[0] == "cvxpy + SCS":
            importlib.import_module("cvxpy")  # its memory is not the method's
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        found = solve(*job)
        print(json.dumps([*found, time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024]))
        return
    print("| d | r | solver | measurements | relative error of W | time / shipped | memory, MB |")
    print("|---|---|---|---|---|---|---|")
    for d, r in ((16, 2),) if options.fast else ((16, 2), (32, 2)):
        unit = None
        for method in ("ours", "cvxpy + SCS", "range finder"):
            command = [sys.executable, "-m", "benchmarks.nuclear_norm", "--job", json.dumps([method, d, r, 1])]
            m, error, seconds, memory = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
            unit = seconds if unit is None else unit
            name = "shipped (alternating directions)" if method == "ours" else method
            print(f"| {d} | {r} | {name} | {m:,} | {error:.1e} | {seconds / unit:.1f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
