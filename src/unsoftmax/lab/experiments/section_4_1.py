"""Section 4.1: a one-layer Transformer; its network by one-row queries, its attention by antisymmetric pairs,
and where the pairs are blind."""

from __future__ import annotations

import numpy as np

from unsoftmax.lab.experiments.base import Check, Experiment, Findings, Table
from unsoftmax.learners.transformer import TransformerLearner
from unsoftmax.models import ReluNetwork, SingleHead, Transformer, random_transformer
from unsoftmax.recovery.recover import recover

__all__ = ["EXPERIMENT"]


def _run(fast: bool, seed: int) -> Findings:
    shapes, n_seeds = (
        (((4, 4), (8, 8), (8, 16)), 3)
        if fast
        else (((4, 4), (8, 8), (8, 16), (16, 16), (32, 32), (32, 64)), 5)
    )
    rows, gap = [], 0.0
    for d, m in shapes:
        for meter in ("antisymmetric", "cone"):
            errors, scores, totals, right = [], [], [], 0
            for s in range(n_seeds):
                model = random_transformer(d, m, seed=1000 * seed + s)
                gap = max(gap, _identity_gap(model, s))
                result = recover(model, learner=TransformerLearner(meter=meter), seed=s)
                scores.append(
                    result.queries.by_phase.get("scores", 0) + result.queries.by_phase.get("piece", 0)
                )
                totals.append(result.queries.learning)
                if isinstance(result.model, Transformer):
                    right += 1
                    errors.append(model.distance(result.model))
            n_queries = (2 * d * d, "2d²") if meter == "antisymmetric" else (d * d + 3 * d + 3, "d² + 3d + 3")
            rows.append(
                (
                    d,
                    m,
                    meter,
                    f"{right} of {n_seeds}",
                    max(errors, default=np.inf),
                    f"{n_queries[0]:,} = {n_queries[1]}",
                    max(scores),
                    max(totals),
                )
            )
    columns = (
        "d",
        "m",
        "meter",
        "recovered",
        "worst error",
        "measurements of W cost",
        "billed for W",
        "billed in all",
    )
    blind, blind_right = _blind(fast, seed)
    all_right = all(row[3] == f"{n_seeds} of {n_seeds}" for row in rows)
    return Findings(
        tables=(Table("recovery", columns, tuple(rows)), blind),
        checks=(
            Check(
                "f(X) - f(-X) is attention with v = Aᵀu",
                f"answers deviate by at most {gap:.1e} relative",
                gap < 1e-11,
            ),
            Check(
                "network and W are recovered",
                f"in every run, worst error {max(row[4] for row in rows):.1e}" if all_right else "not always",
                all_right,
            ),
            Check(
                "(ours) Aᵀu = 0: the pairs say that they are blind, one linear piece still shows W",
                blind.rows[-1][-1],
                blind_right,
            ),
        ),
        remarks=(
            "The reduction takes two queries a measurement and is blind when Aᵀu = 0, with biases, and "
            "behind a skip connection. Measuring inside one linear piece of the network takes one query "
            "each and has none of these limits; it is the default.",
            "The paper's section rests on a learner of two-layer ReLU networks with independent rows, and "
            "conjectures one without. The one used here needs no independence: m > d is among the rows "
            "below.",
        ),
    )


def _identity_gap(model: Transformer, seed: int) -> float:
    """How far f(X) - f(-X) is from single-head attention with v = Aᵀu."""
    rng = np.random.default_rng([seed, 0x41])
    network = model.network
    head = SingleHead(model.W, network.A.T @ network.u)
    X = rng.standard_normal((64, 5, model.width))
    answers = head(X)
    return float(np.abs(model(X) - model(-X) - answers).max() / np.abs(answers).max())


def _blind(fast: bool, seed: int) -> tuple[Table, bool]:
    """Networks with A'u = 0: neurons in opposite pairs."""
    rows, right = [], True
    n_seeds = 3 if fast else 10
    for d, m in ((4, 4), (6, 8)):
        pairs, cones = [], []
        for s in range(n_seeds):
            rng = np.random.default_rng([seed, s, d, m])
            half = rng.standard_normal((m // 2, d))
            u = rng.standard_normal(m // 2)
            model = Transformer(
                rng.standard_normal((d, d)) / np.sqrt(d),
                ReluNetwork(np.vstack([half, -half]), np.concatenate([u, u])),
            )
            pairs.append(
                str(recover(model, learner=TransformerLearner(meter="antisymmetric"), seed=s).status)
            )
            found = recover(model, learner=TransformerLearner(), seed=s).model
            cones.append(model.distance(found) if isinstance(found, Transformer) else np.inf)
        right &= set(pairs) == {"UNRESOLVED"} and max(cones) < 1e-7
        rows.append((d, m, ", ".join(sorted(set(pairs))), f"worst error {max(cones):.1e}"))
    return Table("blind", ("d", "m", "antisymmetric pairs end as", "one linear piece"), tuple(rows)), right


EXPERIMENT = Experiment(
    "section-4.1",
    "Section 4.1: a one-layer Transformer",
    "One-row queries are the network itself; f(X) - f(-X) is single-head attention with v = Aᵀu, at two "
    "queries a measurement.",
    _run,
)
