"""Several heads, all the shapes that could go wrong: errors, bills and statuses over seeds.

    python benchmarks/multi_head.py                  # every configuration, 50 seeds (10 for degenerate, 450
    for mixed ones: 2,020 runs)
    python benchmarks/multi_head.py --seeds 5        # a quick look
    python benchmarks/multi_head.py --only degenerate --seeds 50
    python benchmarks/multi_head.py --bills          # queries against parameters and against 4Hd² - 2H + 1

A run is right when the status is EXACT, the number of heads is that of the canonical form, and the error is
at most 1e-8. It is silently wrong when the status says recovered and the error exceeds both 1e-8 and the
error bound.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

import unsoftmax
from unsoftmax import MultiHead, SingleHead, random_multi_head

Array = NDArray[np.float64]
Maker = Callable[[int], MultiHead]


@dataclass(frozen=True)
class Case:
    name: str
    make: Maker
    group: str = "regular"
    share: float = 1.0  # of the seeds


def _gauss(rng: np.random.Generator, d: int, r: int | None = None, scale: float = 1.0) -> Array:
    if r is None or r >= d:
        return np.asarray(scale * rng.standard_normal((d, d)) / np.sqrt(d))
    return np.asarray(scale * rng.standard_normal((d, r)) @ rng.standard_normal((r, d)) / np.sqrt(d * r))


def orthogonal_subspaces(d: int, heads: int, seed: int) -> MultiHead:
    rng = np.random.default_rng([1, seed])
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    r = d // heads
    parts = []
    for h in range(heads):
        U = basis[:, h * r : (h + 1) * r]
        parts.append(
            SingleHead((U @ rng.standard_normal((r, r)) / np.sqrt(r), U), U @ rng.standard_normal(r))
        )
    return MultiHead(parts)


def multi_query(d: int, heads: int, seed: int) -> MultiHead:
    """All heads share their keys; queries differ."""
    rng = np.random.default_rng([2, seed])
    keys = rng.standard_normal((d, d // heads)) / np.sqrt(d // heads)
    return MultiHead(
        [
            SingleHead((keys, rng.standard_normal((d, d // heads)) / np.sqrt(d)), rng.standard_normal(d))
            for _ in range(heads)
        ]
    )


def dependent_values(d: int, heads: int, seed: int) -> MultiHead:
    rng = np.random.default_rng([3, seed])
    span = rng.standard_normal((2, d))
    return MultiHead([SingleHead(_gauss(rng, d), rng.standard_normal(2) @ span) for _ in range(heads)])


def loud(d: int, heads: int, seed: int, factor: float = 40.0) -> MultiHead:
    rng = np.random.default_rng([4, seed])
    return MultiHead(
        [
            SingleHead(_gauss(rng, d), (factor if h == 0 else 1.0) * rng.standard_normal(d))
            for h in range(heads)
        ]
    )


def equal_heads(d: int, heads: int, seed: int) -> MultiHead:
    rng = np.random.default_rng([5, seed])
    parts = [SingleHead(_gauss(rng, d), rng.standard_normal(d)) for _ in range(heads)]
    return MultiHead([*parts, SingleHead(parts[0].matrix, rng.standard_normal(d))])


def dead_head(d: int, heads: int, seed: int) -> MultiHead:
    rng = np.random.default_rng([6, seed])
    return MultiHead([SingleHead(_gauss(rng, d), (h != 1) * rng.standard_normal(d)) for h in range(heads)])


def opposite_values(d: int, heads: int, seed: int) -> MultiHead:
    rng = np.random.default_rng([7, seed])
    v = rng.standard_normal(d)
    return MultiHead([SingleHead(_gauss(rng, d), w) for w in [v, -v, *rng.standard_normal((heads - 2, d))]])


def close(d: int, heads: int, distance: float, seed: int) -> MultiHead:
    rng = np.random.default_rng([8, seed])
    W = _gauss(rng, d)
    E = rng.standard_normal((d, d))
    near = W + distance * np.linalg.norm(W) / np.linalg.norm(E) * E
    return MultiHead(
        [
            SingleHead(w, rng.standard_normal(d))
            for w in [W, near, *(_gauss(rng, d) for _ in range(heads - 2))]
        ]
    )


def strong(d: int, heads: int, norm: float, seed: int, biases: bool = False) -> MultiHead:
    """Heads of rank d/heads whose W have Frobenius norms around `norm`, between half and twice of it."""
    rng = np.random.default_rng([9, seed])
    parts = []
    for _ in range(heads):
        W = _gauss(rng, d, d // heads)
        W *= norm * 2.0 ** rng.uniform(-1, 1) / np.linalg.norm(W)
        parts.append(SingleHead(W, rng.standard_normal(d), W @ rng.standard_normal(d) if biases else None))
    return MultiHead(parts, float(rng.standard_normal()) if biases else 0.0)


def biased(d: int, heads: int, seed: int, constant: bool, r: int | None = None) -> MultiHead:
    """Query biases anywhere, not only in the range of W."""
    rng = np.random.default_rng([10, seed])
    parts = [
        SingleHead(_gauss(rng, d, r), rng.standard_normal(d), rng.standard_normal(d) / np.sqrt(d))
        for _ in range(heads)
    ]
    return MultiHead(parts, float(rng.standard_normal()) if constant else 0.0)


def uniform_head(d: int, heads: int, seed: int) -> MultiHead:
    """One head with W = 0: it averages."""
    rng = np.random.default_rng([11, seed])
    return MultiHead([SingleHead((h > 0) * _gauss(rng, d), rng.standard_normal(d)) for h in range(heads)])


def mixed(seed: int) -> MultiHead:
    """Anything: number, width, rank, biases, scale of scores 0.1 to 30, loudness 1 to 30."""
    rng = np.random.default_rng([12, seed])
    heads, d = int(rng.integers(2, 13)), int(rng.integers(12, 49))
    r = None if rng.random() < 0.4 else max(1, d // heads)
    scale, loudness, bias = 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(0, 1.5), bool(rng.random() < 0.5)
    parts = []
    for _ in range(heads):
        W = _gauss(rng, d, r, scale * 10 ** rng.uniform(-0.3, 0.3))
        w0 = W @ rng.standard_normal(d) / np.sqrt(d) * 10 ** rng.uniform(-1, 0.3) if bias else None
        parts.append(SingleHead(W, rng.standard_normal(d) * loudness ** rng.uniform(-0.5, 0.5), w0))
    return MultiHead(parts, float(rng.standard_normal()) if bias else 0.0)


def proportional(d: int, factor: float, seed: int) -> MultiHead:
    rng = np.random.default_rng([20, seed])
    W = _gauss(rng, d)
    return MultiHead([SingleHead(w, rng.standard_normal(d)) for w in (W, factor * W, _gauss(rng, d))])


def shared_query(d: int, heads: int, seed: int) -> MultiHead:
    """Rank-one heads W_h = k_h qᵀ with one q."""
    rng = np.random.default_rng([21, seed])
    q = rng.standard_normal((d, 1)) / np.sqrt(d)
    return MultiHead(
        [SingleHead((rng.standard_normal((d, 1)), q), rng.standard_normal(d)) for _ in range(heads)]
    )


def crowded(d: int, heads: int, r: int | None, seed: int) -> MultiHead:
    rng = np.random.default_rng([22, seed])
    return MultiHead([SingleHead(_gauss(rng, d, r), rng.standard_normal(d)) for _ in range(heads)])


def mirrored(d: int, seed: int) -> MultiHead:
    """W_1 = -W_0 with v_1 = v_0: two rows never show it."""
    rng = np.random.default_rng([23, seed])
    W, v = _gauss(rng, d), rng.standard_normal(d)
    return MultiHead(
        [SingleHead(W, v), SingleHead(-W, v), SingleHead(_gauss(rng, d), rng.standard_normal(d))]
    )


def _random(heads: int, d: int, r: int | None) -> Maker:
    return lambda seed: random_multi_head(d, heads, r, seed=seed)


def cases() -> list[Case]:
    table = [
        Case(f"random H={h} d={d} full rank", _random(h, d, d))
        for h, d in ((2, 12), (4, 24), (8, 32), (16, 48))
    ]
    table += [
        Case(f"random H={h} d={d} r=d/H", _random(h, d, None))
        for h, d in ((2, 12), (4, 32), (8, 64), (16, 64))
    ]
    table += [
        Case("orthogonal subspaces H=4 d=24", lambda s: orthogonal_subspaces(24, 4, s)),
        Case("orthogonal subspaces H=8 d=32", lambda s: orthogonal_subspaces(32, 8, s)),
        Case("shared keys H=4 d=24", lambda s: multi_query(24, 4, s)),
        Case("dependent v H=6 d=16", lambda s: dependent_values(16, 6, s)),
        Case("one head 40 times stronger H=4 d=16", lambda s: loud(16, 4, s)),
        Case("two equal heads (merged) H=4 d=16", lambda s: equal_heads(16, 3, s)),
        Case("a dead head H=4 d=16", lambda s: dead_head(16, 4, s)),
        Case("v_1 = -v_0 H=3 d=16", lambda s: opposite_values(16, 3, s)),
        Case("v_1 = -v_0 H=2 d=16", lambda s: opposite_values(16, 2, s)),
        Case("distance 1e-2 H=3 d=16", lambda s: close(16, 3, 1e-2, s)),
        Case("distance 1e-4 H=3 d=16", lambda s: close(16, 3, 1e-4, s)),
        *(
            Case(f"score norm {norm:g} H=8 d=32", partial(strong, 32, 8, norm))
            for norm in (0.1, 1.0, 10.0, 80.0)
        ),
        *(
            Case(f"score norm {norm:g} H=8 d=32, biases", partial(strong, 32, 8, norm, biases=True))
            for norm in (1.0, 80.0)
        ),
        Case("query biases, no constant H=4 d=16", lambda s: biased(16, 4, s, False)),
        Case("query biases, constant H=4 d=16", lambda s: biased(16, 4, s, True)),
        Case("query biases, constant H=4 d=24 r=3", lambda s: biased(24, 4, s, True, 3)),
        Case("one head averages H=4 d=16", lambda s: uniform_head(16, 4, s)),
        Case("mixed", mixed, share=9.0),
    ]
    hard = [
        Case(f"W_1 = {c:g} W_0 H=3 d=12", partial(proportional, 12, c)) for c in (2.0, -1.0, 0.5, -3.0, 10.0)
    ]
    hard += [
        Case("H=20 d=12 full rank", lambda s: crowded(12, 20, None, s)),
        Case("H=24 d=12 r=2", lambda s: crowded(12, 24, 2, s)),
        Case("distance 1e-5 H=3 d=12", lambda s: close(12, 3, 1e-5, s)),
        Case("distance 1e-6 H=3 d=12", lambda s: close(12, 3, 1e-6, s)),
        Case("two rank-one heads, one query vector d=12", lambda s: shared_query(12, 2, s)),
        Case("three rank-one heads, one query vector d=12", lambda s: shared_query(12, 3, s)),
        Case("W_1 = -W_0, v_1 = v_0 d=12", lambda s: mirrored(12, s)),
    ]
    return table + [Case(case.name, case.make, "degenerate", 0.2) for case in hard]


def judge(model: MultiHead, seed: int) -> tuple[str, float, float, str]:
    """(verdict, error, queries / parameters, reason)."""
    result = unsoftmax.recover(model, seed=seed)
    expected = model.canonical()
    error = np.inf
    if result.model is not None:
        found = result.model
        if not isinstance(found, MultiHead):
            found = MultiHead([found])  # type: ignore[list-item]
        error = expected.distance(found)
    ratio = result.queries.learning / expected.parameters
    if not result.status.recovered:
        return str(result.status), error, ratio, result.reason
    if error > 1e-8 and not (result.error_bound is not None and error <= result.error_bound):
        return "SILENT", error, ratio, result.reason
    if str(result.status) == "EXACT" and error <= 1e-8:
        return "right", error, ratio, ""
    return str(result.status), error, ratio, result.reason


def sweep(seeds: int, only: str | None, first: int) -> None:
    total: Counter[str] = Counter()
    print(f"{'case':<46} {'right':>7} {'worst error':>12} {'median q/p':>11} {'s/run':>6}  other")
    for case in cases():
        if only is not None and only not in (case.group, case.name) and only not in case.name:
            continue
        start = time.perf_counter()
        count = max(1, round(case.share * seeds))
        runs = [judge(case.make(seed), seed) for seed in range(first, first + count)]
        verdicts = Counter(run[0] for run in runs)
        total += verdicts
        right = [run for run in runs if run[0] == "right"]
        worst = max((run[1] for run in right), default=float("nan"))
        bill = float(np.median([run[2] for run in runs]))
        other = "; ".join(f"{n} {verdict}" for verdict, n in verdicts.items() if verdict != "right")
        reason = next((run[3][:150] for run in runs if run[0] != "right"), "")
        elapsed = (time.perf_counter() - start) / count
        print(
            f"{case.name:<46} {len(right):>3}/{count:<3} {worst:>12.1e} {bill:>11.2f} {elapsed:>6.2f}  "
            f"{other} {reason}",
            flush=True,
        )
    print(f"all {total.total()} runs: {dict(total)}")


def bills() -> None:
    print(
        f"{'heads':<28} {'parameters':>11} {'queries':>9} {'ratio':>7} {'round trips':>12} {'4Hd²-2H+1':>11} "
        f"{'saved':>7} {'error':>9}"
    )
    for d, heads, r in ((64, 12, 64), (64, 8, 8), (128, 8, 16), (384, 12, 32)):
        model = random_multi_head(d, heads, r, seed=0)
        trips = 0

        def oracle(batch: Array, model: MultiHead = model) -> Array:
            nonlocal trips
            trips += 1
            return model(batch)

        result = unsoftmax.recover(oracle, width=d, seed=0)
        paid, other = result.queries.learning, 4 * heads * d * d - 2 * heads + 1
        error = model.distance(result.unwrap())  # type: ignore[arg-type]
        name = f"H={heads} d={d} r={r}"
        ratio = paid / model.parameters
        print(
            f"{name:<28} {model.parameters:>11} {paid:>9} {ratio:>7.3f} {trips:>12} {other:>11} "
            f"{other / paid:>6.1f}x {error:>9.1e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--bills", action="store_true")
    options = parser.parse_args()
    if options.bills:
        bills()
    else:
        sweep(options.seeds, options.only, options.first)


if __name__ == "__main__":
    main()
