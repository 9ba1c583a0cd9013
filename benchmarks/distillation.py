"""The usual alternative: train a student on random queries. Errors, times and memory beside ours, within one
run.

    python -m benchmarks.distillation            # d = 8 and 16, L-BFGS and Adam on 1, 10 and 100 times our
    queries
    python -m benchmarks.distillation --fast     # d = 8, 1 and 10 times, one head

The student gets every advantage that random queries leave: see TERMS, which is printed above the table.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import unsoftmax
from benchmarks._alone import alone, report

LBFGS_STEPS, ADAM_STEPS, BATCH = 6_000, 8_000, 1024
TERMS = (  # one paragraph
    "The student has the target's own architecture (W and v, float64), exact answers, and Gaussian "
    "sequences of two rows, the shape that shows W best. L-BFGS (strong Wolfe line search, history of 100) "
    "runs until {lbfgs:,} steps lower its loss by less than 1 %, or {most:,} are done; Adam takes {adam:,} "
    "steps of up to {batch:,} sequences, its rate falling from 0.01 to 0.00001. {starts} starts each; the "
    "one with the least training loss counts, which an attacker can see. Medians over {heads} heads. Time "
    "is without loading code; memory is the peak of the process, libraries included. The training residual "
    "is all that a student knows about its error: there is no bound and no certificate."
)


def ours(d: int, seed: int) -> dict[str, Any]:
    head = unsoftmax.random_single_head(d, seed=seed)
    result = unsoftmax.recover(head, seed=seed)
    error = head.distance(result.unwrap())  # type: ignore[arg-type]
    return {"queries": result.queries.learning, "error": error}


def distil(method: str, d: int, seed: int, n_queries: int, starts: int) -> dict[str, Any]:
    """Relative error of the parameters and root mean square of the training residuals, of the start with the
    least loss."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    head = unsoftmax.random_single_head(d, seed=seed)
    X = np.random.default_rng([seed, 0xD1]).standard_normal((n_queries, 2, d))
    tokens, answers = torch.from_numpy(X), torch.from_numpy(head(X))
    best = {"error": np.inf, "residual": np.inf}
    for start in range(starts):
        torch.manual_seed(1000 * seed + start)
        W, v = (0.05 * torch.randn(d, d)).requires_grad_(), (0.1 * torch.randn(d)).requires_grad_()
        (_lbfgs if method == "L-BFGS" else _adam)(W, v, tokens, answers)
        with torch.no_grad():
            final = float(_loss(W, v, tokens, answers)) ** 0.5
        if final < best["residual"]:
            student = unsoftmax.SingleHead(W.detach().numpy(), v.detach().numpy())
            best = {"error": head.distance(student), "residual": final}
    return best


def _loss(W: Any, v: Any, tokens: Any, answers: Any) -> Any:
    scores = (tokens @ (tokens[:, -1] @ W.T).unsqueeze(2)).squeeze(2)
    return ((scores.softmax(1) * (tokens @ v)).sum(1) - answers).square().mean()


def _lbfgs(W: Any, v: Any, tokens: Any, answers: Any) -> None:
    import torch

    before, taken, block = np.inf, 0, LBFGS_STEPS // 10
    while taken < LBFGS_STEPS:
        optimiser = torch.optim.LBFGS(
            [W, v],
            max_iter=block,
            max_eval=2 * block,
            history_size=100,
            tolerance_grad=1e-15,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def closure(optimiser: Any = optimiser) -> Any:
            optimiser.zero_grad()
            value = _loss(W, v, tokens, answers)
            value.backward()
            return value

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        taken += block
        with torch.no_grad():
            now = float(_loss(W, v, tokens, answers))
        if not now < 0.99 * before:
            return
        before = now


def _adam(W: Any, v: Any, tokens: Any, answers: Any) -> None:
    import torch

    optimiser = torch.optim.Adam([W, v], lr=1e-2)
    slower = torch.optim.lr_scheduler.ExponentialLR(optimiser, gamma=1e-3 ** (1.0 / ADAM_STEPS))
    for _ in range(ADAM_STEPS):
        chosen = torch.randint(len(tokens), (BATCH,)) if len(tokens) > BATCH else slice(None)
        optimiser.zero_grad()
        _loss(W, v, tokens[chosen], answers[chosen]).backward()
        optimiser.step()
        slower.step()


def child(job: dict[str, Any]) -> None:
    global LBFGS_STEPS, ADAM_STEPS
    method, d, seed = job["method"], job["d"], job["seed"]
    if method == "ours":
        report(lambda: ours(3, 0), lambda: ours(d, seed))
        return

    def warm_up() -> None:
        global LBFGS_STEPS, ADAM_STEPS
        steps = LBFGS_STEPS, ADAM_STEPS
        LBFGS_STEPS, ADAM_STEPS = 10, 10
        distil(method, 3, 0, 20, 1)
        LBFGS_STEPS, ADAM_STEPS = steps

    report(warm_up, lambda: distil(method, d, seed, job["queries"], job["starts"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        return child(json.loads(options.job))
    seeds = range(1 if options.fast else options.heads)
    facts = {
        "lbfgs": LBFGS_STEPS // 10,
        "most": LBFGS_STEPS,
        "adam": ADAM_STEPS,
        "batch": BATCH,
        "starts": options.starts,
        "heads": len(seeds),
    }
    print(TERMS.format(**facts) + "\n")
    print(
        "| d | method | queries | relative error of W, v | training residual | time / ours | memory / ours |"
    )
    print("|---|---|---|---|---|---|---|")
    for d in (8,) if options.fast else (8, 16):
        base = [alone(__spec__.name, {"method": "ours", "d": d, "seed": seed}) for seed in seeds]
        n = int(np.median([run["queries"] for run in base]))
        print(
            f"| {d} | **unsoftmax** | {n:,} | {np.median([run['error'] for run in base]):.1e} | | 1 | 1 |",
            flush=True,
        )
        for method in ("L-BFGS", "Adam"):
            for factor in (1, 10) if options.fast else (1, 10, 100):
                job = {"method": method, "d": d, "starts": options.starts}
                runs = [
                    alone(__spec__.name, job | {"seed": seed, "queries": factor * base[seed]["queries"]})
                    for seed in seeds
                ]
                error, residual = (np.median([run[name] for run in runs]) for name in ("error", "residual"))
                time, memory = (
                    np.median([run[name] / own[name] for run, own in zip(runs, base, strict=True)])
                    for name in ("seconds", "megabytes")
                )
                print(
                    f"| {d} | student, {method} | {factor * n:,} ({factor}x) | {error:.1e} | {residual:.1e} "
                    f"| {time:,.0f} | {memory:.1f} |",
                    flush=True,
                )
    return None


if __name__ == "__main__":
    main()
