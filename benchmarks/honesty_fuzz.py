"""Boxes inside and outside the class: is a success ever another function than what is stated? Run:
python -m benchmarks.honesty_fuzz [--boxes 10000] [--processes 2] [--seed 0] [--kinds TEXT] [--log FILE ...]

Every box is one JSON line of the first log. Those that it holds are not run again, so runs add up. The table
is that of all logs: two runs share the work with seeds 100000 apart and a log each, and --boxes 0 with both
logs prints one table."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tests.cases.honesty import KINDS, SLOW
from tests.cases.honesty_liars import LIARS, lying_on_a_share

import unsoftmax
from benchmarks._honesty_score import share_beyond, what_is_wrong
from unsoftmax import Status

WIDTHS = (1, 2, 3, 4, 6)
# Rounds from one with the slow kinds to the next: they take four times as long as the others, which makes
# half a minute of processor time of every 200 boxes. What boxes make of their seed has periods 2, 3 and 4.
SLOW_ROUNDS = 7
BUDGET = 400_000
# of a liar's share over the certificate's fraction
_EDGES = (0.0, 0.25, 0.5, 1.0, 1.25, 1.5, 2.0, 4.0, 100.0)

Job = tuple[str, int, int]


@dataclass(frozen=True)
class Outcome:
    """How one box ended. wrong: a sentence when that must not happen. share: that of the certificate's
    distribution on which the box deviates by more than is stated, or, of liars that were caught, on which
    they lie. exact_member: a member of a class with exact answers."""

    kind: str
    width: int
    seed: int
    status: str
    seconds: float
    wrong: str = ""
    share: float = 0.0
    fraction: float = 0.0
    exact_member: bool = False
    queries: int = 0
    reason: str = ""

    @property
    def recovered(self) -> bool:
        return self.status != "exception" and Status(self.status).recovered


def run(job: Job) -> Outcome:
    """One box, from start to verdict."""
    kind, width, seed = job
    began = time.process_time()
    try:
        lies = 0.0
        if kind.startswith("liar: "):
            case, lies = lying_on_a_share(kind.removeprefix("liar: "), width, seed)
        else:
            case = KINDS[kind](width, seed)
        options: dict[str, Any] = {"width": case.width, **case.options}
        result = unsoftmax.recover(case.box, seed=seed, budget=BUDGET, **options)
        share = share_beyond(case, result, seed) if result.status.recovered else lies
        wrong = what_is_wrong(case, result, share)
    except Exception:
        last = traceback.format_exc().strip().splitlines()
        told = f"{last[-1]} ({last[-3].strip()})"
        return Outcome(kind, width, seed, "exception", time.process_time() - began, told)
    return Outcome(
        kind,
        width,
        seed,
        str(result.status),
        round(time.process_time() - began, 4),
        wrong,
        share,
        0.0 if result.certificate is None else result.certificate.fraction,
        case.truth is not None and case.exact,
        result.queries.total,
        "" if result.status is Status.EXACT else result.reason[:300],
    )


def jobs(n: int, seed: int, only: str = "") -> list[Job]:
    """n boxes over all kinds, widths and seeds; those that take long in every seventh round only."""
    kinds = [kind for kind in [*KINDS, *(f"liar: {name}" for name in LIARS)] if only in kind]
    quick = [kind for kind in kinds if kind not in SLOW]
    chosen: list[Job] = []
    for turn in range(n):
        now = kinds if turn % SLOW_ROUNDS == 0 or not quick else quick
        width = WIDTHS[(turn + turn // len(WIDTHS)) % len(WIDTHS)]
        chosen += [(kind, width, seed + turn) for kind in now]
        if len(chosen) >= n:
            break
    return chosen[:n]


def outcomes_of(logs: Iterable[Path]) -> list[Outcome]:
    """What the logs hold; a torn last line is not counted."""
    whole = [log.read_text().rpartition("\n")[0] for log in logs if log.exists()]
    return [Outcome(**json.loads(line)) for text in whole for line in text.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--log", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    done = outcomes_of(options.log)
    known = {(o.kind, o.width, o.seed) for o in done}
    todo = [job for job in jobs(options.boxes, options.seed, options.kinds) if job not in known]
    for outcome in _run(todo, options.processes):
        done.append(outcome)
        if options.log:
            with options.log[0].open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
    _print(done)


def _run(todo: list[Job], processes: int) -> Iterator[Outcome]:
    if processes == 1 or not todo:
        yield from map(run, todo)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run, todo, chunksize=4)


def _print(outcomes: list[Outcome]) -> None:
    table: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        table[outcome.kind].append(outcome)
    print("| kind | boxes | how they end | wrong | seconds each |")
    print("|---|---|---|---|---|")
    for kind in sorted(table):
        ends = Counter(outcome.status for outcome in table[kind])
        wrong = sum(bool(outcome.wrong) for outcome in table[kind])
        mean = float(np.mean([outcome.seconds for outcome in table[kind]]))
        ended = ", ".join(f"{n} {status}" for status, n in ends.most_common())
        print(f"| {kind} | {len(table[kind])} | {ended} | {wrong} | {mean:.2f} |")
    _print_liars([outcome for outcome in outcomes if outcome.kind.startswith("liar: ")])
    exact = [o for o in outcomes if o.exact_member]
    if exact:
        recovered = sum(o.recovered for o in exact)
        print(
            f"\nmembers with exact answers: {recovered} of {len(exact)} recovered "
            f"({recovered / len(exact):.2%}), {sum(o.status == Status.OUTSIDE_CLASS for o in exact)} "
            "OUTSIDE_CLASS"
        )
    minutes = sum(o.seconds for o in outcomes) / 60.0
    wrong = sum(bool(o.wrong) for o in outcomes)
    print(f"boxes: {len(outcomes)} in {minutes:.1f} minutes of processor time, wrong: {wrong}")
    for outcome in outcomes:
        name = f"{outcome.kind}, width {outcome.width}, seed {outcome.seed}"
        if outcome.wrong:
            print(f"WRONG {name}: {outcome.wrong}")
        elif outcome.exact_member and not outcome.recovered:
            print(f"REFUSED {name}: {outcome.status}, {outcome.reason}")


def _print_liars(outcomes: list[Outcome]) -> None:
    """Those whose certificate exists: the others were caught before it."""
    judged = [o for o in outcomes if o.fraction]
    if not judged:
        return
    print("\n| share on which it lies, over the certificate's fraction | boxes | caught |")
    print("|---|---|---|")
    for low, high in pairwise(_EDGES):
        within = [o for o in judged if low <= o.share / o.fraction < high]
        print(f"| {low:g} to {high:g} | {len(within)} | {sum(not o.recovered for o in within)} |")


if __name__ == "__main__":
    main()
