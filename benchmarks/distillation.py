"""The usual alternative: train a student on random queries. Errors, times and memory beside ours, within one run.

    python -m benchmarks.distillation            # d = 8 and 16, L-BFGS and Adam on 1, 10 and 100 times our queries
    python -m benchmarks.distillation --fast     # d = 8, 1 and 10 times

The student is the target's own architecture (W and v, float64), started small, trained on Gaussian sequences of 2 rows (the shape that shows W
best) until the optimiser stops. That is the best case for distillation: no model mismatch, exact answers. The better of `--starts` starts counts.
Each method runs in a process of its own, so that its memory is its own; time is given as a multiple of ours in the same run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

import unsoftmax


def ours(d: int, seed: int) -> tuple[int, float]:
    head = unsoftmax.random_single_head(d, seed=seed)
    result = unsoftmax.recover(head, seed=seed)
    return result.queries.learning, head.distance(result.unwrap())  # type: ignore[arg-type]


def distil(method: str, d: int, seed: int, n_queries: int, starts: int) -> tuple[float, float]:
    """(relative error of the parameters, root mean square of the training residuals) of the start with the least loss."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    head = unsoftmax.random_single_head(d, seed=seed)
    rng = np.random.default_rng([seed, 0xD1])
    X = rng.standard_normal((n_queries, 2, d))
    tokens, answers = torch.from_numpy(X), torch.from_numpy(head(X))
    best = (np.inf, np.inf)
    for start in range(starts):
        torch.manual_seed(1000 * seed + start)
        W, v = (0.05 * torch.randn(d, d)).requires_grad_(), (0.1 * torch.randn(d)).requires_grad_()

        def loss(W: torch.Tensor = W, v: torch.Tensor = v) -> torch.Tensor:
            scores = torch.einsum("bnd,bd->bn", tokens, tokens[:, -1] @ W.T)
            return ((torch.softmax(scores, 1) * (tokens @ v)).sum(1) - answers).square().mean()

        if method == "L-BFGS":
            optimiser: torch.optim.Optimizer = torch.optim.LBFGS(
                [W, v], max_iter=2000, history_size=50, tolerance_grad=1e-14, tolerance_change=1e-16, line_search_fn="strong_wolfe"
            )

            def closure(optimiser: torch.optim.Optimizer = optimiser, loss=loss) -> torch.Tensor:  # type: ignore[no-untyped-def]
                optimiser.zero_grad()
                value: torch.Tensor = loss()
                value.backward()  # type: ignore[no-untyped-call]
                return value

            optimiser.step(closure)  # type: ignore[arg-type]
        else:
            optimiser = torch.optim.Adam([W, v], lr=1e-2)
            for _ in range(3000):
                optimiser.zero_grad()
                value = loss()
                value.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        final = float(loss().detach()) ** 0.5
        if final < best[1]:
            student = unsoftmax.SingleHead(W.detach().numpy(), v.detach().numpy())
            best = (head.distance(student), final)
    return best


def alone(job: dict[str, object]) -> dict[str, float]:
    """Runs a job in a process of its own; adds its seconds and the memory that it took beyond the imports."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.distillation", "--job", json.dumps(job)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def child(job: dict[str, object]) -> None:
    d, seed = int(str(job["d"])), int(str(job["seed"]))
    if job["method"] != "ours":
        import torch  # noqa: F401 - its memory is not the method's
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    if job["method"] == "ours":
        queries, error = ours(d, seed)
        found = {"queries": float(queries), "error": error, "residual": 0.0}
    else:
        n, starts = int(str(job["queries"])), int(str(job["starts"]))
        error, residual = distil(str(job["method"]), d, seed, n, starts)
        found = {"queries": float(n), "error": error, "residual": residual}
    found |= {"seconds": time.perf_counter() - start, "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        child(json.loads(options.job))
        return
    print("| d | method | queries | relative error of W, v | training residual | time / ours | memory, MB |")
    print("|---|---|---|---|---|---|---|")
    for d in (8,) if options.fast else (8, 16):
        base = alone({"method": "ours", "d": d, "seed": options.seed})
        n = int(base["queries"])
        print(f"| {d} | **unsoftmax** | {n:,} | {base['error']:.1e} | | 1 | {base['megabytes']:.0f} |", flush=True)
        for method in ("L-BFGS", "Adam"):
            for factor in (1, 10) if options.fast else (1, 10, 100):
                found = alone({"method": method, "d": d, "seed": options.seed, "queries": factor * n, "starts": options.starts})
                cells = (d, f"student, {method}", f"{factor * n:,} ({factor}x)", f"{found['error']:.1e}", f"{found['residual']:.1e}")
                print(f"| {' | '.join(map(str, cells))} | {found['seconds'] / base['seconds']:,.0f} | {found['megabytes']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
