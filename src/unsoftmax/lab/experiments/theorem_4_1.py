"""Theorem 4.1: W and v of one head from exactly d + d² queries; and where floating point ends it."""

from __future__ import annotations

from unsoftmax.lab.experiments.base import Chart, Check, Experiment, Findings, Line, Table, learn_raw
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.learners.paper.theorem_4_1 import theorem_4_1
from unsoftmax.models import SingleHead, random_single_head
from unsoftmax.recovery.recover import recover
from unsoftmax.recovery.result import Result

__all__ = ["EXPERIMENT"]

_SATURATING = 36.0  # a score beyond this leaves no digit of 1 - σ in float64


def _run(fast: bool, seed: int) -> Findings:
    widths, n_seeds = ((1, 2, 4, 8, 16), 5) if fast else ((1, 2, 4, 8, 16, 32, 64), 20)
    rows = []
    exact_bill = small_error = True
    for d in widths:
        for probes in ("gaussian", "structured"):
            errors, bills = [], set()
            for s in range(n_seeds):
                head = random_single_head(d, seed=1000 * seed + s)
                found, queries, _ = learn_raw(theorem_4_1(probes), head, s)
                bills.add(queries)
                errors.append(float("inf") if found is None else head.distance(found))
            exact_bill &= bills == {d + d * d}
            small_error &= max(errors) < 1e-6
            rows.append(
                (
                    d,
                    probes,
                    d + d * d,
                    ", ".join(map(str, sorted(bills))),
                    sorted(errors)[n_seeds // 2],
                    max(errors),
                )
            )
    grid = Table(
        "grid",
        ("d", "probes", "claimed queries", "billed queries", "median error", "worst error"),
        tuple(rows),
    )
    saturation, remark, safe = _saturation(fast, seed)
    return Findings(
        tables=(grid, saturation),
        checks=(
            Check.of_all_runs("exactly d + d² queries", exact_bill),
            Check(
                "W and v exactly (scores of size 1, float64)",
                f"worst relative error {max(row[5] for row in rows):.1e}",
                small_error,
            ),
            Check("a saturated run is never reported as recovered", "none was" if safe else "one was", safe),
        ),
        charts=(
            Chart(
                "saturation",
                "size of scores (Frobenius norm of W / sqrt d)",
                "median relative error (1: nothing readable)",
                tuple(
                    Line(
                        name,
                        tuple(row[0] for row in saturation.rows),
                        tuple(row[column] for row in saturation.rows),
                    )
                    for name, column in (("Theorem 4.1, Gaussian probes", 2), ("default learner", 4))
                ),
            ),
        ),
        remarks=(remark,),
    )


def _distance(head: SingleHead, result: Result) -> float | None:
    """From the head to what was recovered; None without a model."""
    return None if result.model is None else head.distance(result.model)  # type: ignore[arg-type]


def _saturation(fast: bool, seed: int) -> tuple[Table, str, bool]:
    """Errors as the scores grow: the literal probes have scores of every size, ours are kept near 1."""
    d, n_seeds = (12, 5) if fast else (32, 10)
    rows, safe, first_failure = [], True, None
    for scale in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        literal, ours, failed = [], [], 0
        for s in range(n_seeds):
            head = random_single_head(d, seed=1000 * seed + s, scale=scale)
            found, _, _ = learn_raw(theorem_4_1(), head, s)
            literal.append(1.0 if found is None else min(1.0, head.distance(found)))
            failed += found is None
            result = recover(head, learner=theorem_4_1(), seed=s)
            off = _distance(head, result)
            safe &= off is None or off <= (result.error_bound or 0.0)
            off = _distance(head, recover(head, learner=SingleHeadLearner(), seed=s))
            ours.append(1.0 if off is None else off)
        if failed and first_failure is None:
            first_failure = (scale, failed)
        middle = n_seeds // 2
        rows.append(
            (
                scale,
                f"{failed} of {n_seeds}",
                sorted(literal)[middle],
                max(literal),
                sorted(ours)[middle],
                max(ours),
            )
        )
    columns = (
        "score scale",
        "literal: a probe saturated",
        "literal: median error",
        "literal: worst",
        "default: median error",
        "default: worst",
    )
    remark = "The literal algorithm kept all its digits on this grid."
    if first_failure is not None:
        scale, failed = first_failure
        remark = (
            f"The literal algorithm fails numerically: scores beyond about {_SATURATING:g} leave no digit of "
            f"the softmax weight, which happens in {failed} of {n_seeds} runs at score scale {scale:g} and "
            f"width {d}. Those runs end as UNRESOLVED. The default learner chooses the sizes of its probes "
            f"and stays at {max(row[5] for row in rows):.0e} on the same heads."
        )
    return Table("saturation", columns, tuple(rows)), remark, safe


EXPERIMENT = Experiment(
    "4.1",
    "Theorem 4.1: exact recovery of one head",
    "If v is not zero, d one-row and d² two-row value queries determine W and v exactly.",
    _run,
)
