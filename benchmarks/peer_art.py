"""Side by side on the same networks: this library and FunctionallyEquivalentExtraction of the Adversarial
Robustness Toolbox.

The toolbox is installed into an environment of its own (a temporary directory, or --environment DIR to keep
it); it is told the number of neurons, gets float64 answers (g and -g, because it wants two outputs), and its
queries are counted by a wrapper around the target. Run: python -m benchmarks.peer_art [--seeds 6] [--limit
60] [--environment DIR]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.cases.networks import gaussian

import unsoftmax
from benchmarks._alone import alone, report
from benchmarks.relu_networks import function_error
from unsoftmax import ReluNetwork

SIZES = ((8, 4), (16, 4), (16, 8), (32, 8), (64, 16))
PACKAGES = ("adversarial-robustness-toolbox==1.20.1", "numpy", "scipy", "scikit-learn", "packaging")
SUCCESS = 1e-3  # relative function error up to which an extraction counts


def environment(folder: Path) -> Path:
    """The interpreter of an environment with the toolbox in it."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def peer(python: Path, d: int, m: int, seed: int, limit: int, folder: Path) -> dict[str, Any]:
    network, stored = hidden(d, m, seed), folder / "network.npz"
    np.savez(
        stored,
        A=network.A,
        u=network.u,
        b=network.b if network.b is not None else np.zeros(network.neurons),
        c=np.array(network.c),
    )
    worker = Path(__file__).with_name("_peer_art_worker.py")
    done = subprocess.run(
        [str(python), "-W", "ignore", str(worker), str(stored), str(seed), str(limit)],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    if done.returncode != 0:
        return {
            "error": None,
            "failure": done.stderr.strip().splitlines()[-1][:80],
            "queries": 0,
            "seconds": 0.0,
            "megabytes": 0.0,
        }
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def hidden(d: int, m: int, seed: int) -> ReluNetwork:
    return gaussian(d, m, np.random.default_rng([1, seed, d, m]), True)


def ours(d: int, m: int, seed: int) -> dict[str, Any]:
    network = hidden(d, m, seed)
    result = unsoftmax.recover_network(lambda X: network(X), width=network.width, seed=seed)
    error = function_error(network, result.model, seed) if isinstance(result.model, ReluNetwork) else None
    return {"error": error, "failure": None, "queries": result.queries.total}


def row(name: str, runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> None:
    errors = [run["error"] for run in runs if run["error"] is not None]
    good = [run for run in runs if run["error"] is not None and run["error"] <= SUCCESS]
    typical = f"{np.median([run['error'] for run in good]):.0e}" if good else "-"
    reasons = sorted({str(run["failure"]).split(":")[0] for run in runs if run["failure"]})
    medians = [
        [float(np.median([run[name] for run in some])) for some in (runs, base)]
        for name in ("queries", "seconds", "megabytes")
    ]
    ratios = " | ".join(f"{mine / own:,.1f}" if own else "" for mine, own in medians)
    print(
        f"| {name:<28} | {len(good)}/{len(runs)} | {typical} | {medians[0][0]:,.0f} | {ratios} | "
        f"{len(errors) - len(good)} wrong; {', '.join(reasons) or 'no failure'} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        return report(lambda: ours(3, 2, 0), lambda: ours(**job))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            python = environment(options.environment or folder / "environment")
        except subprocess.CalledProcessError as error:
            raise SystemExit(
                f"the toolbox cannot be installed here ({error}); nothing is compared"
            ) from error
        print(
            f"Success: relative function error of at most {SUCCESS:g}. Medians over {options.seeds} networks "
            f"with biases, {options.limit} s at most; the toolbox is told the number of neurons. Queries "
            "(ours with verification), time without loading code and the peak of memory with it, as "
            "multiples of ours.\n"
        )
        print(
            "| network | success | error of successes | queries | queries / ours | time / ours | memory / "
            "ours | otherwise |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for d, m in SIZES:
            base = [alone(__spec__.name, {"d": d, "m": m, "seed": seed}) for seed in range(options.seeds)]
            row(
                f"ART, d={d} m={m}",
                [peer(python, d, m, seed, options.limit, folder) for seed in range(options.seeds)],
                base,
            )
            row(f"unsoftmax, d={d} m={m}", base, base)
    return None


if __name__ == "__main__":
    main()
