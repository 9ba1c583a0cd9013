"""One-layer Transformers: W, function, queries and coverage over sizes × kinds × seeds, and the two meters
side by side.

Run: python -m benchmarks.transformers [--seeds 5]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
from tests.cases.networks import no_linear_part

import unsoftmax
from unsoftmax import Transformer, TransformerLearner, random_transformer

SIZES = ((8, 8), (8, 32), (16, 16), (16, 64), (32, 32), (32, 128), (64, 64), (64, 256))
Maker = Callable[[int, int, int], Transformer]


def silent(d: int, m: int, seed: int) -> Transformer:
    """Aᵀu = 0."""
    return Transformer(
        random_transformer(d, 1, seed=seed).W, no_linear_part(d, m, np.random.default_rng([5, seed]), False)
    )


def query_bias(d: int, m: int, seed: int) -> Transformer:
    model = random_transformer(d, m, seed=seed, biases=True)
    return Transformer(
        model.W, model.network, np.random.default_rng([6, seed]).standard_normal(d) / np.sqrt(d)
    )


KINDS: dict[str, Maker] = {
    "plain": lambda d, m, seed: random_transformer(d, m, seed=seed),
    "biases": lambda d, m, seed: random_transformer(d, m, seed=seed, biases=True),
    "Aᵀu = 0": silent,
    "rank d/8": lambda d, m, seed: random_transformer(d, m, max(1, d // 8), seed=seed),
    "rank d/8, biases": lambda d, m, seed: random_transformer(d, m, max(1, d // 8), seed=seed, biases=True),
    "W times 20": lambda d, m, seed: random_transformer(d, m, seed=seed, scale=20.0),
    "W times 20, biases": lambda d, m, seed: random_transformer(d, m, seed=seed, scale=20.0, biases=True),
    "residual": lambda d, m, seed: random_transformer(d, m, seed=seed, residual=1.0),
    "residual, biases": lambda d, m, seed: random_transformer(d, m, seed=seed, residual=1.0, biases=True),
    "query bias, biases": query_bias,
}


def function_error(hidden: Transformer, found: Transformer, seed: int) -> float:
    """Root mean square of the difference over that of the function, on sequences of 2 to 8 Gaussian rows."""
    rng = np.random.default_rng([8, seed])
    differences, values = [], []
    for length in (2, 3, 5, 8):
        batch = rng.standard_normal((250, length, hidden.width))
        values.append(hidden(batch))
        differences.append(values[-1] - found(batch))
    return float(np.sqrt(np.mean(np.square(differences)) / np.mean(np.square(values))))


def measure(
    name: str, make: Callable[[int], Transformer], seeds: int, learner: TransformerLearner | None = None
) -> None:
    statuses: Counter[str] = Counter()
    attention, functions, learning, total, seconds = [], [], [], [], []
    covered = 0
    for seed in range(seeds):
        hidden = make(seed)
        started = time.perf_counter()
        result = unsoftmax.recover(
            lambda X, hidden=hidden: hidden(X), width=hidden.width, seed=seed, learner=learner
        )
        seconds.append(time.perf_counter() - started)
        statuses[str(result.status)] += 1
        learning.append(result.queries.learning / hidden.parameters)
        total.append(result.queries.total / hidden.parameters)
        if isinstance(result.model, Transformer) and result.error_bound is not None:
            attention.append(float(np.linalg.norm(result.model.W - hidden.W) / np.linalg.norm(hidden.W)))
            functions.append(function_error(hidden, result.model, seed))
            covered += hidden.distance(result.model) <= result.error_bound
    print(
        f"| {name:<34} | {', '.join(f'{n} {s}' for s, n in statuses.items()):<10} | "
        f"{max(attention, default=np.nan):.0e} | {max(functions, default=np.nan):.0e} | "
        f"{covered}/{len(attention)} | {np.mean(learning):.3f} | {np.mean(total):.3f} | {max(total):.3f} | "
        f"{np.mean(seconds):.1f} |",
        flush=True,
    )


def heading() -> None:
    print("queries over parameters of the canonical form; learning: without verification\n")
    print(
        "| Transformers | status | worst W | worst function | within bound | learning, mean | total, mean | "
        "total, max | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    heading()
    for kind, make in KINDS.items():
        for d, m in SIZES:
            measure(f"{kind}, d={d} m={m}", partial(make, d, m), options.seeds)
    print("\nThe paper's antisymmetric pair (two queries a measurement) and the cone (one)\n")
    heading()
    for meter in ("antisymmetric", "cone"):
        for r in (None, 4):
            measure(
                f"{meter}, d=32 m=32, rank {r or 32}",
                lambda seed, r=r: random_transformer(32, 32, r, seed=seed),  # type: ignore[misc]
                options.seeds,
                TransformerLearner(meter=meter),
            )


if __name__ == "__main__":
    main()
