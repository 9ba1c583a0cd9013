"""Nuclear norm minimisation: alternating directions against SCS, and both against the range finder. Run: python -m benchmarks.nuclear_norm

d = 64, r = 2. SCS and our solver get the same Gaussian measurements (3.5 times r(2d - r)), each in a process of its own for the memory. The range
finder gets a head and learns it from answers; Theorem 5.1 learns the same head at its measured C. Needs cvxpy.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unsoftmax
from unsoftmax.solvers import NuclearNorm

Array = NDArray[np.float64]

D, R, RATIO, C = 64, 2, 3.5, 3.25


def instance() -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((D, R)) @ rng.standard_normal((R, D))
    A, B = rng.standard_normal((2, int(np.ceil(RATIO * R * (2 * D - R))), D))
    return W, A, B, np.asarray(np.einsum("kd,kd->k", A @ W, B))


def by_scs(A: Array, B: Array, t: Array) -> Array:
    cp: Any = import_module("cvxpy")
    X = cp.Variable((D, D))
    rows = (A[:, :, None] * B[:, None, :]).reshape(len(t), -1)
    problem = cp.Problem(cp.Minimize(cp.normNuc(X)), [rows @ cp.vec(X, order="C") == t])
    problem.solve(solver=cp.SCS, eps=1e-9, max_iters=20_000)
    return np.asarray(X.value)


def solve(name: str) -> None:
    W, A, B, t = instance()
    if name == "scs":
        import_module("cvxpy")  # so that the import is neither time nor memory of the solver
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    found = by_scs(A, B, t) if name == "scs" else NuclearNorm().solve(A, B, t).matrix.dense()
    wall = time.perf_counter() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    print(f"| {name} | {np.linalg.norm(found - W) / np.linalg.norm(W):.0e} | {wall:.2f} | {memory:.0f} |", flush=True)


def learners() -> None:
    head = unsoftmax.random_single_head(D, R, seed=0)
    unsoftmax.recover("demo:single-head?d=8&r=2")  # imports are not what is measured
    rows = []
    for name, learner in (("range finder (default)", None), (f"Theorem 5.1, C = {C:g}", unsoftmax.theorem_5_1(R, C))):
        start = time.perf_counter()
        result = unsoftmax.recover(head, learner=learner)
        wall = time.perf_counter() - start
        found = result.unwrap()
        assert isinstance(found, unsoftmax.SingleHead)
        rows.append((name, result.queries.learning, wall, head.distance(found)))
    print("\n| learner | queries | wall, s | error |\n|---|---|---|---|")
    for name, queries, wall, error in rows:
        print(f"| {name} | {queries:,} | {wall:.3f} | {error:.0e} |")
    print(f"\nrange finder: {rows[1][1] / rows[0][1]:.2f} times fewer queries, {rows[1][2] / rows[0][2]:.0f} times less time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        return solve(options.alone)
    print("| solver | error | wall, s | memory on top, MB |\n|---|---|---|---|", flush=True)
    for name in ("alternating directions", "scs"):
        subprocess.run([sys.executable, "-m", "benchmarks.nuclear_norm", "--alone", name], check=True)
    return learners()


if __name__ == "__main__":
    main()
