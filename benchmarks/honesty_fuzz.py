"""Boxes inside and outside the class: is a success ever another function than what is stated? Run:
python -m benchmarks.honesty_fuzz [--boxes 10000] [--processes 2] [--seed 0] [--kinds TEXT]"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from tests.cases.answers import hard_head
from tests.cases.honesty import KINDS, LIARS, Case, liar

import unsoftmax
from unsoftmax import Status
from unsoftmax.arrays import Array
from unsoftmax.certify.sample import draw_sample
from unsoftmax.models import Model
from unsoftmax.oracles.domain import Ball, Space

WIDTHS = (1, 2, 3, 4, 6)
SAMPLES = 4  # fresh draws of the stated distribution, about 177 sequences each
SHARES = (0.005, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5)


@dataclass(frozen=True)
class Outcome:
    """How one box ended. wrong: a sentence when that must not happen."""

    kind: str
    width: int
    seed: int
    status: str
    seconds: float
    wrong: str = ""
    share: float = 0.0


def judge(case: Case, result: unsoftmax.Result, seed: int) -> str:
    """What is wrong with this result; empty when nothing is."""
    truth, model = case.truth, result.model
    if truth is not None and case.exact and result.status is Status.OUTSIDE_CLASS:
        return f"a member is OUTSIDE_CLASS: {result.reason[:160]}"
    if model is None:
        return ""
    bound = result.error_bound
    if truth is not None and type(truth) is type(model) and bound is not None:
        distance = truth.distance(model)
        allowance = 0.0 if result.constant_bound is None else result.constant_bound
        if distance > bound and not _constant_only(truth, model, bound, allowance):
            return f"distance {distance:.2g} above the bound {bound:.2g}"
    if not case.steady:
        return "" if truth is not None else _steadily_wrong(case, result, seed)
    share = share_beyond(case, result, seed)
    fraction = 0.0 if result.certificate is None else result.certificate.fraction
    if share > 2.0 * fraction:
        return f"{result.status}: {share:.1%} of sequences deviate by more than is stated"
    return ""


def _constant_only(truth: Model, model: Model, bound: float, constant_bound: float) -> bool:
    """Whether the distance is one of constants, within their own bound."""
    own, found = getattr(truth, "c", None), getattr(model, "c", None)
    if own is None or found is None or not isinstance(truth, unsoftmax.SingleHead):
        return False
    if float(np.max(np.abs(np.asarray(own) - np.asarray(found)))) > constant_bound:
        return False
    assert isinstance(model, unsoftmax.SingleHead)
    return truth.distance(unsoftmax.SingleHead(model.matrix, model.v, model.w0, own)) <= bound


def _steadily_wrong(case: Case, result: unsoftmax.Result, seed: int) -> str:
    return f"{result.status} for a box that is no function" if result.status is Status.EXACT else ""


def share_beyond(case: Case, result: unsoftmax.Result, seed: int) -> float:
    """The share of fresh sequences, drawn as the certificate says, whose deviation exceeds what is stated."""
    model, certificate = result.model, result.certificate
    assert model is not None
    assert certificate is not None
    bound = case.options.get("input_bound")
    domain = Ball(case.width, float(bound)) if isinstance(bound, float) else Space(case.width)
    longest = max(certificate.lengths)
    stated = max(certificate.allowed, certificate.resolution)
    beyond = total = 0
    for draw in range(SAMPLES):
        rng = np.random.default_rng([seed, draw, 4711])
        for batch in draw_sample(model, domain, rng, max_length=longest).batches:
            beyond += int((deviations(case, model, batch) > stated).sum())
            total += len(batch)
    return beyond / total


def deviations(case: Case, model: Model, batch: Array) -> Array:
    """How far the function behind the answers is from the model, beyond what rounding and the answers'
    errors explain, against what a sequence could show."""
    predictions = model(batch)
    values = case.function(batch if model.family != "relu-network" else batch[:, 0])
    off = np.abs(values - predictions)
    if case.labels:  # they show on which side of zero a value lies, and nothing else
        off = np.where((values > 0.0) == (predictions > 0.0), 0.0, np.abs(predictions))
    scale = model.sensitivity(batch)
    unexplained = off.reshape(len(batch), -1).max(axis=1) - model.rounding(batch, predictions, scale)
    return np.where(unexplained <= 0.0, 0.0, unexplained / np.maximum(scale, 1e-300))


def run(job: tuple[str, int, int]) -> Outcome:
    """One box, from start to verdict."""
    kind, width, seed = job
    began = time.perf_counter()
    try:
        if kind.startswith("liar: "):
            return run_liar(kind, width, seed)
        case = KINDS[kind](width, seed)
        result = unsoftmax.recover(case.box, width=case.width, seed=seed, budget=400_000, **case.options)  # type: ignore[arg-type]
        wrong = judge(case, result, seed)
    except Exception:
        last = traceback.format_exc().strip().splitlines()
        return Outcome(
            kind, width, seed, "exception", time.perf_counter() - began, f"{last[-1]} ({last[-3].strip()})"
        )
    return Outcome(kind, width, seed, str(result.status), time.perf_counter() - began, wrong)


def run_liar(kind: str, width: int, seed: int) -> Outcome:
    """A head that is another one on about a given share of the certificate's distribution."""
    began = time.perf_counter()
    rng = np.random.default_rng([seed, width, 815])
    wanted = SHARES[int(rng.integers(len(SHARES)))]
    name = kind.removeprefix("liar: ")
    head = hard_head(width, seed=seed)
    numbers = np.concatenate(
        [
            LIARS[name](batch) if batch.shape[1] > 2 else np.full(len(batch), -np.inf)
            for draw in range(6)
            for batch in draw_sample(head, Space(width), np.random.default_rng([seed, draw])).batches
        ]
    )
    box = liar(name, float(np.quantile(numbers, 1.0 - wanted)), head)
    result = unsoftmax.recover(box, width=width, seed=seed)
    wrong, share = "", wanted
    if result.model is not None:
        share = share_beyond(Case(box, width, box), result, seed)
        fraction = 0.0 if result.certificate is None else result.certificate.fraction
        if share > 2.0 * fraction:
            wrong = f"{result.status}: it lies on {share:.1%} of sequences"
    return Outcome(kind, width, seed, str(result.status), time.perf_counter() - began, wrong, share)


def jobs(n: int, seed: int, only: str = "") -> list[tuple[str, int, int]]:
    """n boxes over all kinds, widths and seeds."""
    kinds = [kind for kind in [*KINDS, *(f"liar: {name}" for name in LIARS)] if only in kind]
    return [
        (kinds[i % len(kinds)], WIDTHS[(i // len(kinds)) % len(WIDTHS)], seed + i // len(kinds))
        for i in range(n)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="")
    options = parser.parse_args()
    todo = jobs(options.boxes, options.seed, options.kinds)
    if options.processes == 1:
        outcomes = [run(job) for job in todo]
    else:
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            outcomes = list(pool.imap_unordered(run, todo, chunksize=4))
    _print(outcomes)


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
    exact = [o for o in outcomes if o.kind in KINDS and _exact_member(o.kind)]
    recovered = sum(Status(o.status).recovered for o in exact if o.status != "exception")
    if exact:
        part = f"{recovered} of {len(exact)} recovered ({recovered / len(exact):.2%})"
        print(f"\nmembers with exact answers: {part}")
    print(f"boxes: {len(outcomes)}, wrong: {sum(bool(o.wrong) for o in outcomes)}")
    for outcome in outcomes:
        if outcome.wrong:
            print(f"WRONG {outcome.kind}, width {outcome.width}, seed {outcome.seed}: {outcome.wrong}")


def _print_liars(outcomes: list[Outcome]) -> None:
    if not outcomes:
        return
    print("\n| lies on this share of the stated distribution | boxes | caught |")
    print("|---|---|---|")
    edges = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 1.0)
    for low, high in pairwise(edges):
        within = [o for o in outcomes if low <= o.share < high]
        caught = sum(not Status(o.status).recovered for o in within)
        print(f"| {low:.0%} to {high:.0%} | {len(within)} | {caught} |")


def _exact_member(kind: str) -> bool:
    return kind.split(":")[0] in ("head", "heads", "vector", "transformer", "network")


if __name__ == "__main__":
    main()
