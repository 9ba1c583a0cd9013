"""Audits of 200 seeded boxes: are the findings right, and is anything wrongly reported as recovered? Then the
table of defences.

Run: python -m benchmarks.audit [--first 0] [--boxes 200] [--defences 16]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tests.cases.answers import ANSWERS
from tests.cases.outside import BOXES

import unsoftmax
from unsoftmax.audit.defences.defend import errors_of
from unsoftmax.audit.pipeline import Audit, audit_target
from unsoftmax.models import Model
from unsoftmax.recovery.result import Result

# heads whose answers lie a little: within a bound is right, so is none; exact would be wrong
NEARLY = ("cache_by_rounded_input", "float32_answers")
RANDOM = ("noise", "flipped labels")


@dataclass(frozen=True)
class Box:
    """A target, what is true of it, and the model behind it (None: outside every known family)."""

    name: str
    target: object
    width: int
    truth: dict[str, str]
    model: Model | None


def boxes(first: int, n: int) -> Iterator[Box]:
    """Demo targets of every family behind every answer model, and one box in eight outside the known
    families."""
    outside = list(BOXES.items())
    for index in range(first, first + n):
        seed = index // 4
        rng = np.random.default_rng([7, index])
        if index % 8 == 7:
            name, make = outside[(index // 8) % len(outside)]
            d = int(rng.integers(3, 9))
            yield Box(
                f"outside: {name}", make(d, seed), d, {} if name in NEARLY else {"family": "none"}, None
            )
            continue
        d, biased = int(rng.integers(5, 11)), bool(index % 2)
        answers = list(ANSWERS)[index % len(ANSWERS)] if index % 3 else "exact"
        family = ("single-head", "single-head", "multi-head", "single-head", "transformer")[(index // 3) % 5]
        if family == "single-head":
            model: Model = unsoftmax.random_single_head(
                d, int(rng.integers(1, d + 1)), seed=seed, biases=biased
            )
        elif family == "multi-head":
            model = unsoftmax.random_multi_head(d, int(rng.integers(2, 4)), seed=seed, biases=biased)
        else:
            model = unsoftmax.random_transformer(d, int(rng.integers(d, 2 * d)), seed=seed, biases=biased)
        truth = {
            "answers": answers,
            "repeatability": "random" if answers in RANDOM else "deterministic",
            "order of rows": "does not matter",
        }
        truth |= {"family": family, "copies of a row": "do not count"}
        if family != "transformer":
            truth["query bias"] = "present" if biased else "none"
        yield Box(
            f"{family}{' with biases' if biased else ''}, {answers}",
            ANSWERS[answers](unsoftmax.as_oracle(model), seed),
            d,
            truth,
            model,
        )


def wrong_findings(box: Box, done: Audit) -> list[str]:
    """Findings that are not the truth; one that is missing, or left unknown, is wrong too."""
    found = {finding.subject: finding.value for finding in done.findings}
    return [
        f"{name}: {found.get(name)} instead of {true}"
        for name, true in box.truth.items()
        if found.get(name) != true
    ]


def wrongly_recovered(box: Box, done: Audit) -> bool:
    """Recovered though outside, or further off than the error bound says; of the constant, than its own
    bound."""
    result = done.result
    if result.model is None:
        return False
    if box.model is None:
        return bool(box.truth) or result.status is unsoftmax.Status.EXACT
    honest = np.random.default_rng(1).standard_normal((64, 4, box.width))
    found, true = result.model, box.model
    known = result.constant_bound or 0.0
    if (
        isinstance(found, unsoftmax.SingleHead)
        and isinstance(true, unsoftmax.SingleHead)
        and np.abs(np.subtract(found.c, true.c)) <= known
    ):
        found = unsoftmax.SingleHead(found.matrix, found.v, found.w0, true.c)
    off, _ = errors_of(true, found, honest, labels="labels" in box.truth["answers"])
    return off > max(10 * result.model.exact_at, result.error_bound or 0.0)


def alike(found: Result, audited: Result) -> bool:
    """Whether recover and audit end alike: status, family, and one model within both bounds."""
    if found.status is not audited.status:
        return False
    if found.model is None or audited.model is None:
        return found.model is audited.model
    if found.family != audited.family:
        return False
    bounds = (found.error_bound or 0.0) + (audited.error_bound or 0.0)
    one, two = found.model, audited.model
    constant = (found.constant_bound or 0.0) + (audited.constant_bound or 0.0)
    if (
        isinstance(one, unsoftmax.SingleHead)
        and isinstance(two, unsoftmax.SingleHead)
        and np.abs(np.subtract(one.c, two.c)) <= constant
    ):
        two = unsoftmax.SingleHead(two.matrix, two.v, two.w0, one.c, clip=two.clip)
    return one.distance(two) <= max(10 * one.exact_at, bounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first box")
    parser.add_argument(
        "--defences", type=int, default=16, help="width of the head that is defended; 0 for none"
    )
    options = parser.parse_args()
    if options.boxes:
        audit_boxes(options.first, options.boxes)
    if options.defences:
        defences(options.defences)


def audit_boxes(first: int, n: int) -> None:
    """How audits of these boxes end, and whether `recover` ends alike."""
    right, claims, wrong = 0, 0, 0
    ends: Counter[tuple[str, str]] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    identify: list[int] = []
    started = time.perf_counter()
    differently = 0
    both = zip(boxes(first, n), boxes(first, n), strict=True)
    for index, (box, twin) in enumerate(both, first):
        done = audit_target(box.target, width=box.width, seed=index)
        found = unsoftmax.recover(twin.target, width=twin.width, seed=index)
        if not alike(found, done.result):
            differently += 1
            ends_as = f"recover {found.status}, audit {done.result.status}"
            print(f"ENDED OTHERWISE: box {index} ({box.name}): {ends_as}", flush=True)
        mistakes = wrong_findings(box, done)
        claims += 1
        right += not mistakes
        if any(finding.value == "unknown" for finding in done.findings):
            unknown[box.name, str(done.result.status)] += 1
        identify.append(done.result.queries.by_phase.get("identify", 0))
        if wrongly_recovered(box, done):
            wrong += 1
            print(f"WRONGLY RECOVERED: box {index} ({box.name})", flush=True)
        if mistakes:
            print(
                f"wrong finding: box {index} ({box.name}), {done.result.status}: {'; '.join(mistakes)}",
                flush=True,
            )
        ends[box.name.replace(" with biases", ""), str(done.result.status)] += 1
    print("| box | ended as | boxes |\n|---|---|---|")
    for (name, status), count in sorted(ends.items()):
        print(f"| {name} | {status} | {count} |")
    print("\n| family left unknown | ended as | boxes |\n|---|---|---|")
    for (name, status), count in sorted(unknown.items()):
        print(f"| {name} | {status} | {count} |")
    print(
        f"\n{right} of {claims} boxes without a wrong finding, {unknown.total()} of them with the family "
        "left unknown"
    )
    print(f"{wrong} wrongly reported as recovered")
    print(f"recover and audit end alike on {claims - differently} of {claims}")
    print(
        f"first look: {min(identify)} to {max(identify)} queries, median {int(np.median(identify))}; "
        f"{time.perf_counter() - started:.0f} s in all"
    )


def defences(width: int) -> None:
    """The facts behind docs/threat-model.md."""
    head = unsoftmax.random_single_head(width, seed=0)
    table = unsoftmax.defend(head)
    print(f"\n## One head of width {width}, {head.parameters} parameters, behind defences ({table.honest})\n")
    print(
        "| defence | attack ended | queries | × parameters | error of parameters | error of answers | users "
        "lose |\n|---|---|---|---|---|---|---|"
    )
    for row in table.ranked:
        errors = [
            "–" if value is None else f"{value:.0e}" for value in (row.parameter_error, row.functional_error)
        ]
        ratio = f"{row.queries / head.parameters:.1f}"
        print(
            f"| {row.label} | {row.status} | {row.queries:,} | {ratio} | {errors[0]} | {errors[1]} | "
            f"{row.distortion:.0e} |"
        )
    print(f"\n{table.advice}\n")
    bound = next(float(value) for row in table.rows for kind, value in row.parts if kind == "input-bound")
    box = unsoftmax.BoundedInputs(unsoftmax.Rounded(unsoftmax.as_oracle(head), 2), bound)
    one_pass = unsoftmax.recover(box, learner=unsoftmax.within_tolerance(0.005))
    off = "nothing"
    if one_pass.model is not None:
        off = f"{head.distance(one_pass.model):.0e}"  # type: ignore[arg-type]
    print(
        f"2 decimals and rows of norm ≤ {bound:g}, one pass only: {off} after {one_pass.queries.total:,} "
        "queries"
    )


if __name__ == "__main__":
    main()
