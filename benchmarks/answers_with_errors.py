"""Answers with errors: every setting against its figures and against the literal theorems.

Run: python -m benchmarks.answers_with_errors [--seeds 20] [SECTION ...] Sections: tolerance, wide, biased,
rounding, noise, precision, labels, flips, identify, theorems. All of them without a name.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
from tests.cases.answers import Longest, biased_head, bounded, hard_head, relative_error, with_unit_v

import unsoftmax
from benchmarks._literal_theorems import theorems
from unsoftmax import (
    FlippedLabels,
    Labels,
    Ledger,
    LowPrecision,
    Noisy,
    Oracle,
    Result,
    Rounded,
    SingleHead,
    WithinTolerance,
    as_oracle,
)
from unsoftmax.learners import Learner

DECIMALS = {0.5: 0, 0.05: 1, 0.005: 2, 5e-5: 4}
LENGTHS = (10.0, 100.0, 1e4, 1e6)


class Row:
    """Results of one setting over seeds."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.errors: list[float] = []
        self.parts: list[float] = []
        self.queries: list[float] = []
        self.covered = 0

    def add(self, head: SingleHead, result: Result) -> None:
        self.statuses[str(result.status)] += 1
        self.queries.append(result.queries.learning)
        if isinstance(result.model, SingleHead) and result.error_bound is not None:
            self.errors.append(
                head.distance(result.model) if head.w0 is not None else relative_error(result.model.W, head.W)
            )
            self.parts.append(self.errors[-1] / result.error_bound)
            self.covered += head.distance(result.model) <= result.error_bound

    def tell(self, name: str, unit: float = 1.0) -> None:
        statuses = ", ".join(f"{n} {status}" for status, n in self.statuses.items())
        if not self.errors:
            print(f"| {name} | {statuses} | - | - | - | - | - | {max(self.queries):.0f} |", flush=True)
            return
        errors = np.array(self.errors)
        print(
            f"| {name} | {statuses} | {np.median(errors):.1e} | {errors.max():.1e} | "
            f"{errors.max() / unit:.2f} | {self.covered}/{len(errors)} | {np.median(self.parts):.2f} | "
            f"{max(self.queries):.0f} |",
            flush=True,
        )


def header(unit: str) -> None:
    print(
        f"\n| setting | status | median error of W | worst | worst / {unit} | bound covers | median "
        "error/bound | most queries |"
    )
    print("|---|---|---|---|---|---|---|---|")


def heads_of(d: int, r: int | None = None, scale: float = 1.0) -> Callable[[int], SingleHead]:
    return lambda seed: hard_head(d, r, seed=seed, scale=scale)


def rounded_to(decimals: int, R: float) -> Callable[[Oracle, int], Oracle]:
    return lambda oracle, seed: bounded(Rounded(oracle, decimals), R)


def stored_as(precision: str) -> Callable[[Oracle, int], Oracle]:
    return lambda oracle, seed: LowPrecision(oracle, precision)


def run(
    learner: Learner,
    seeds: int,
    heads: Callable[[int], SingleHead],
    wrap: Callable[[Oracle, int], Oracle],
    row: Row,
    unit_v: bool = False,
) -> Row:
    for seed in range(seeds):
        head = heads(seed)
        result = unsoftmax.recover(wrap(as_oracle(head), seed), learner=learner, seed=seed)
        row.add(with_unit_v(head) if unit_v else head, result)
    return row


def tolerance(seeds: int, sizes: tuple[tuple[int, int | None], ...] = ((16, None), (16, 4))) -> None:
    for d, r in sizes:
        header("tau/(R|v|)")
        rows: list[Row] = []
        units, longest = [0.0], 0.0
        for tau, decimals in DECIMALS.items():
            for R in LENGTHS:
                boxes: list[Longest] = []

                def wrap(
                    oracle: Oracle,
                    seed: int,
                    tau: float = tau,
                    decimals: int = decimals,
                    R: float = R,
                    boxes: list[Longest] = boxes,
                ) -> Oracle:
                    boxes.append(
                        bounded(
                            Rounded(oracle, decimals) if seed % 2 else WithinTolerance(oracle, tau, seed), R
                        )
                    )
                    return boxes[-1]

                row = run(unsoftmax.within_tolerance(tau), seeds, heads_of(d, r), wrap, Row())
                row.tell(f"d={d} r={r or d} tau={tau:g} R={R:g}", tau / R)
                rows.append(row)
                longest = max(longest, max(box.norm for box in boxes) / R)
                if R / tau >= 100:
                    units.append(max(row.errors, default=np.inf) / (tau / R))
        covered, total = sum(row.covered for row in rows), sum(len(row.errors) for row in rows)
        parts = [part for row in rows for part in row.parts]
        limit = unsoftmax.within_tolerance().claim.queries(unsoftmax.Size(d, (r or d,)))
        print(
            f"\nd={d} r={r or d}: where R|v|/tau >= 100, worst error {max(units):.2f} tau/(R|v|); bound "
            f"covers in {covered} of {total}, median error/bound {np.median(parts):.2f}; most queries "
            f"{max(max(row.queries) for row in rows):.0f} (limit {limit}); longest row {longest:.9f} R",
            flush=True,
        )


def wide(seeds: int) -> None:
    tolerance(seeds, ((64, 4), (64, None)))


BIASES = (0.1, 1.0, 5.0)


def biased(seeds: int) -> None:
    """Heads with a query bias 0.1, 1 and 5 times as long as W x of a typical unit row x, behind every kind of
    answers."""
    for d, r in ((3, None), (8, None), (16, None), (3, 2), (8, 2), (16, 2)):
        _biased_tolerance(d, r, seeds)
    header("1e-13")
    kinds: list[tuple[str, Learner, Callable[[Oracle, int], Oracle], bool]] = [
        (
            "noise 0.01, R=1e4",
            unsoftmax.noisy(0.01),
            lambda oracle, seed: bounded(Noisy(oracle, 0.01, seed), 1e4),
            False,
        ),
        ("2 decimals, R=1e4", unsoftmax.rounded(2), rounded_to(2, 1e4), False),
        ("2 decimals, R=100", unsoftmax.rounded(2), rounded_to(2, 100.0), False),
        *(
            (name, unsoftmax.low_precision(name), stored_as(name), False)
            for name in ("float32", "bfloat16", "float16")
        ),
        ("labels", unsoftmax.from_labels(), lambda oracle, seed: Labels(oracle), True),
    ]
    for name, learner, wrap, unit_v in kinds:
        for d, r in ((8, None), (16, None), (16, 2)):
            row = Row()
            for bias in BIASES:
                run(learner, max(1, seeds // 3), biased_heads_of(d, r, bias), wrap, row, unit_v=unit_v)
            each = max(row.queries) / biased_head(d, r).parameters
            row.tell(f"{name}, d={d} r={r or d} ({each:.1f} queries a parameter)", 1e-13)


def _biased_tolerance(d: int, r: int | None, seeds: int) -> None:
    header("tau/(R|v|)")
    rows: list[Row] = []
    units = [0.0]
    for bias in BIASES:
        for tau in (1e-2, 1e-4):
            for R in (10.0, 100.0, 1e4, None):

                def wrap(oracle: Oracle, seed: int, tau: float = tau, R: float | None = R) -> Oracle:
                    off = WithinTolerance(oracle, tau, seed)
                    return off if R is None else bounded(off, R)

                row = run(unsoftmax.within_tolerance(tau), seeds, biased_heads_of(d, r, bias), wrap, Row())
                row.tell(
                    f"d={d} r={r or d} bias={bias:g} tau={tau:g} R={'unbounded' if R is None else f'{R:g}'}",
                    np.nan if R is None else tau / R,
                )
                rows.append(row)
                if R is not None:
                    units.append(max(row.errors, default=0.0) / (tau / R))
    covered, total = sum(row.covered for row in rows), sum(len(row.errors) for row in rows)
    ended = sum((row.statuses for row in rows), Counter[str]())
    how = ", ".join(f"{n} {status}" for status, n in ended.items())
    parts = [part for row in rows for part in row.parts]
    print(
        f"\nd={d} r={r or d}: {how}; worst error {max(units):.2f} tau/(R|v|); bound covers in {covered} of "
        f"{total}, median error/bound {np.median(parts):.2f}; most queries "
        f"{max(max(row.queries) for row in rows):.0f} ({biased_head(d, r).parameters} parameters)",
        flush=True,
    )


def biased_heads_of(d: int, r: int | None, bias: float) -> Callable[[int], SingleHead]:
    return lambda seed: biased_head(d, r, seed=seed, bias=bias)


def rounding(seeds: int) -> None:
    header("1e-12")
    for d, r, decimals, R in ((16, None, 2, 1e4), (16, None, 0, 100.0), (16, 4, 2, 1e4), (16, 4, 0, 100.0)):
        row = run(unsoftmax.rounded(decimals), seeds, heads_of(d, r), rounded_to(decimals, R), Row())
        row.tell(
            f"{decimals} decimals, d={d} r={r or d} R={R:g} "
            f"({max(row.queries) / hard_head(d, r).parameters:.1f} queries a parameter)",
            1e-12,
        )


def noise(seeds: int) -> None:
    header("sigma/(R|v|)")
    for repeats in (1, 100):
        row = run(
            unsoftmax.noisy(0.01, repeats=repeats),
            seeds,
            lambda seed: hard_head(16, seed=seed),
            lambda oracle, seed: bounded(Noisy(oracle, 0.01, seed), 1e4),
            Row(),
        )
        row.tell(f"sigma=0.01 R=1e4, {repeats} repeats", 1e-6)


def precision(seeds: int) -> None:
    header("1e-13")
    for kind in ("float32", "bfloat16", "float16"):
        for d, r in ((16, None), (64, 4)):
            row = run(unsoftmax.low_precision(kind), seeds, heads_of(d, r), stored_as(kind), Row())
            row.tell(
                f"{kind} d={d} r={r or d} ({max(row.queries) / hard_head(d, r).parameters:.2f} queries a "
                "parameter)",
                1e-13,
            )


def labels(seeds: int) -> None:
    header("1e-12")
    for d, r in ((32, None), (64, 4)):
        for scale in (1.0, 1e-2, 1e2):
            row = run(
                unsoftmax.from_labels(48),
                seeds,
                heads_of(d, r, scale),
                lambda oracle, seed: Labels(oracle),
                Row(),
                unit_v=True,
            )
            each = max(row.queries) / hard_head(d, r).parameters / 48
            row.tell(
                f"labels d={d} r={r or d}, W times {scale:g} ({each:.3f} queries a parameter and bit)", 1e-12
            )


def flips(seeds: int) -> None:
    header("1e-6")
    row = run(
        unsoftmax.from_labels(24, 0.05),
        int(2.5 * seeds),
        lambda seed: hard_head(16, seed=seed),
        lambda oracle, seed: FlippedLabels(oracle, 0.05, seed),
        Row(),
        unit_v=True,
    )
    row.tell(f"5 % flipped, d=16 ({max(row.queries) / hard_head(16).parameters:.1f} queries an entry)", 1e-6)


def identify(seeds: int) -> None:
    print("\n| answers | told right | queries |\n|---|---|---|")
    for name, wrap in _kinds().items():
        right, paid = 0, []
        for seed in range(5 * seeds):
            rng = np.random.default_rng([seed, 7])
            d = int(rng.choice([4, 16, 64]))
            head = hard_head(d, seed=seed)
            oracle = as_oracle(SingleHead(head.W, 10.0 ** rng.uniform(-0.5, 1.0) * head.v))
            found = unsoftmax.identify(Ledger(wrap(oracle, rng, seed)), rng)
            kind, decimals = found.answers.name, getattr(found.answers, "decimals", None)
            right += name in (kind, f"{kind} {decimals}")
            paid.append(found.queries)
        print(f"| {name} | {right}/{5 * seeds} | {np.mean(paid):.0f} |", flush=True)


Kind = Callable[[Oracle, np.random.Generator, int], Oracle]


def _kinds() -> dict[str, Kind]:
    kinds: dict[str, Kind] = {
        "exact": lambda oracle, rng, seed: oracle,
        "tolerance": lambda oracle, rng, seed: WithinTolerance(oracle, 10.0 ** rng.uniform(-8, 0), seed),
        "noise": lambda oracle, rng, seed: Noisy(oracle, 10.0 ** rng.uniform(-6, 0), seed),
        "labels": lambda oracle, rng, seed: Labels(oracle),
        "flipped labels": lambda oracle, rng, seed: FlippedLabels(oracle, 0.05, seed),
        "clipped": lambda oracle, rng, seed: unsoftmax.Clipped(oracle, 10.0 ** rng.uniform(-0.5, 1.5)),
    }
    for decimals in (0, 1, 2, 4, 6):
        kinds[f"decimals {decimals}"] = _drop_rng(partial(_rounded, decimals))
    for precision in ("float32", "float16", "bfloat16"):
        kinds[precision] = _drop_rng(stored_as(precision))
    return kinds


def _rounded(decimals: int, oracle: Oracle, seed: int) -> Oracle:
    return Rounded(oracle, decimals)


def _drop_rng(wrap: Callable[[Oracle, int], Oracle]) -> Kind:
    return lambda oracle, rng, seed: wrap(oracle, seed)


SECTIONS: dict[str, Callable[[int], None]] = {
    "identify": identify, "theorems": partial(theorems, DECIMALS), "noise": noise, "precision": precision,
    "rounding": rounding, "tolerance": tolerance, "labels": labels, "flips": flips, "wide": wide,
    "biased": biased,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    options = parser.parse_args()
    for name in options.sections or SECTIONS:
        print(f"\n### {name}", flush=True)
        SECTIONS[name](options.seeds)


if __name__ == "__main__":
    main()
