"""The literal theorems of the paper on answers with errors, beside the settings' own learners."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tests.cases.answers import bounded, relative_error

import unsoftmax
from unsoftmax import Labels, Ledger, SingleHead, WithinTolerance, as_oracle
from unsoftmax.outcomes import Stop


def theorems(tolerances: Iterable[float], seeds: int) -> None:
    """The literal theorems on the same answers, told B, mu and tau, and the settings' own learners."""
    print(
        "\n| answers | theorem | its error of W | its queries | this library | its error of W | its queries |"
    )
    print("|---|---|---|---|---|---|---|")
    for tau in tolerances:
        theirs, ours, paid = [], [], []
        for seed in range(seeds):
            head = _even_head(16, seed)
            oracle = WithinTolerance(as_oracle(head), tau, seed)
            mu = max(float(np.abs(head.v).min()), 2.1 * tau)
            B = float(np.linalg.norm(head.W))
            try:
                theirs.append(
                    relative_error(unsoftmax.theorem_6_1(B, mu, tau).estimate(Ledger(oracle))[0].W, head.W)
                )
            except Stop:  # every entry of v below the tolerance
                theirs.append(np.inf)
            result = unsoftmax.recover(
                bounded(oracle, 100.0), learner=unsoftmax.within_tolerance(tau), seed=seed
            )
            ours.append(_error_of(result, head))
            paid.append(result.queries.learning)
        print(
            f"| tau={tau:g} | 6.1 | {np.median(theirs):.1e} | {16 + 256} | R=100 | {np.median(ours):.1e} | "
            f"{np.median(paid):.0f} |",
            flush=True,
        )
    for eps in (0.1, 0.03, 0.01):
        theirs, ours, paid, theirs_paid = [], [], [], 0
        for seed in range(max(1, seeds // 4)):
            head = _even_head(4, seed)
            learner = unsoftmax.theorem_b_1(
                float(np.linalg.norm(head.W)), max(float(np.abs(head.v).min()), 1.01 * eps), eps
            )
            ledger = Ledger(Labels(as_oracle(head)))
            theirs.append(relative_error(learner.estimate(ledger, np.random.default_rng(seed)).W, head.W))
            theirs_paid = ledger.bill.total
            result = unsoftmax.recover(Labels(as_oracle(head)), learner=unsoftmax.from_labels(48), seed=seed)
            ours.append(_error_of(result, head))
            paid.append(result.queries.learning)
        print(
            f"| labels, d=4, eps={eps:g} | B.1 | {np.median(theirs):.1e} | {theirs_paid} | 48 bits | "
            f"{np.median(ours):.1e} | {np.median(paid):.0f} |",
            flush=True,
        )


def _even_head(d: int, seed: int) -> SingleHead:
    """A head that suits the theorems: no small entry of v."""
    rng = np.random.default_rng([seed, d, 3])
    v = rng.choice([-1.0, 1.0], d) * rng.uniform(0.5, 1.5, d)
    return SingleHead(rng.standard_normal((d, d)) / np.sqrt(d), v / np.linalg.norm(v))


def _error_of(result: unsoftmax.Result, head: SingleHead) -> float:
    """Of W, relative; infinite where no head was recovered."""
    return relative_error(result.model.W, head.W) if isinstance(result.model, SingleHead) else np.inf
