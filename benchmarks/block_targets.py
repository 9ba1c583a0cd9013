"""Encoder blocks as users have them: pooled over rows, every row answered, with positions, masks, bounded
rows, a classifier with one probability, and attention behind or between norms. How each ends, queries, the
largest deviation of a recovered model, parts, and the reason where there is no model.

python -m benchmarks.block_targets [--case NAME] [--first 0] [--seeds 3] [--width 8] [--reasons]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import unsoftmax
from benchmarks.encoder_blocks import layer
from unsoftmax.arrays import Array
from unsoftmax.models import Model

Answer = Callable[[Array], Array]
_LONGEST = 32  # rows that positions are drawn for


@dataclass(frozen=True)
class Target:
    """answer: (B, N, d) to whatever. options: of `recover`. check: (B, N, d) to what the model should answer,
    where that is not `answer`."""

    answer: Answer
    options: dict[str, Any] = field(default_factory=dict)
    check: Answer | None = None


def _all_rows(made: torch.nn.Module, **masks: Any) -> Answer:
    @torch.no_grad()
    def answer(X: Array) -> Array:
        return np.asarray(made(torch.tensor(X), **masks).numpy())

    return answer


def _mean(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows = _all_rows(made)
    return Target(lambda X: rows(X).mean(axis=1), {"outputs": d})


def _mean_classifier(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows, C = _all_rows(made), rng.standard_normal((d, 3)) / np.sqrt(d)
    return Target(lambda X: rows(X).mean(axis=1) @ C, {"outputs": 3})


def _every_row(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows = _all_rows(made)
    return Target(rows, {"row": "all"}, lambda X: rows(X)[:, -1])


def _every_row_unsaid(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows = _all_rows(made)
    return Target(rows, {}, lambda X: rows(X)[:, -1])


def _positions(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows, P = _all_rows(made), 0.3 * rng.standard_normal((_LONGEST, d))
    return Target(lambda X: rows(X + P[: X.shape[1]])[:, -1], {"outputs": d})


def _positions_first(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows, P = _all_rows(made), 0.3 * rng.standard_normal((_LONGEST, d))
    return Target(lambda X: rows(X + P[: X.shape[1]])[:, 0], {"outputs": d})


def _causal(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    @torch.no_grad()
    def answer(X: Array) -> Array:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(X.shape[1], dtype=torch.float64)
        return np.asarray(made(torch.tensor(X), src_mask=mask)[:, -1].numpy())

    return Target(answer, {"outputs": d})


def _causal_every_row(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    @torch.no_grad()
    def answer(X: Array) -> Array:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(X.shape[1], dtype=torch.float64)
        return np.asarray(made(torch.tensor(X), src_mask=mask).numpy())

    return Target(answer, {"row": "all"}, lambda X: answer(X)[:, -1])


def _padding(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    """Rows of zeros are taken for padding, and the first row is answered."""

    @torch.no_grad()
    def answer(X: Array) -> Array:
        padded = (X == 0.0).all(axis=2)
        padded[padded.all(axis=1)] = False
        return np.asarray(made(torch.tensor(X), src_key_padding_mask=torch.tensor(padded))[:, 0].numpy())

    return Target(answer, {"outputs": d})


def _padded_mean(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    """Rows of zeros are taken for padding; the mean over all others is answered."""

    @torch.no_grad()
    def answer(X: Array) -> Array:
        padded = (X == 0.0).all(axis=2)
        padded[padded.all(axis=1)] = False
        kept = torch.tensor(~padded, dtype=torch.float64)[:, :, None]
        rows = made(torch.tensor(X), src_key_padding_mask=torch.tensor(padded))
        rows = torch.nan_to_num(rows) * kept
        return np.asarray((rows.sum(dim=1) / kept.sum(dim=1)).numpy())

    return Target(answer, {"outputs": d})


def _bounded(bound: float) -> Callable[..., Target]:
    def build(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
        rows = _all_rows(made)

        def answer(X: Array) -> Array:
            if float(np.linalg.norm(X, axis=2).max()) > bound * (1.0 + 1e-12):
                raise ValueError("a row is too long")
            return rows(X)[:, -1]

        return Target(answer, {"outputs": d, "input_bound": bound})

    return build


def _probability(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows, c = _all_rows(made), rng.standard_normal(d) / np.sqrt(d)
    return Target(lambda X: np.asarray(1.0 / (1.0 + np.exp(-rows(X)[:, 0] @ c))))


def _probabilities(made: torch.nn.Module, d: int, rng: np.random.Generator) -> Target:
    rows, C = _all_rows(made), rng.standard_normal((d, 4)) / np.sqrt(d)

    def answer(X: Array) -> Array:
        logits = rows(X)[:, 0] @ C
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    return Target(answer, {"outputs": 4})


def _normed_attention(skip: bool, behind: bool) -> Callable[..., Target]:
    def build(made: torch.nn.TransformerEncoderLayer, d: int, rng: np.random.Generator) -> Target:
        @torch.no_grad()
        def answer(X: Array) -> Array:
            x = torch.tensor(X)
            tokens = x if behind else made.norm1(x)
            y = made.self_attn(tokens, tokens, tokens, need_weights=False)[0]
            y = x + y if skip else y
            return np.asarray((made.norm1(y) if behind else y)[:, -1].numpy())

        return Target(answer, {"outputs": d})

    return build


def _eps(made: torch.nn.TransformerEncoderLayer, d: int, rng: np.random.Generator) -> Target:
    made.norm1.eps = made.norm2.eps = 3e-6
    rows = _all_rows(made)
    return Target(lambda X: rows(X)[:, -1], {"outputs": d})


def _cross(made: torch.nn.TransformerEncoderLayer, d: int, rng: np.random.Generator) -> Target:
    """A decoder layer without masks, beside a memory that is always the same."""
    other = torch.nn.TransformerDecoderLayer(d, 2, 12, 0.0, batch_first=True, dtype=torch.float64).eval()
    memory = torch.tensor(rng.standard_normal((1, 4, d)))

    @torch.no_grad()
    def answer(X: Array) -> Array:
        return np.asarray(other(torch.tensor(X), memory.expand(len(X), -1, -1))[:, -1].numpy())

    return Target(answer, {"outputs": d})


CASES: dict[str, tuple[Callable[..., Target], tuple[str, ...]]] = {
    "mean over rows": (_mean, ("pre relu", "pre gelu", "post relu", "post gelu")),
    "mean over rows, 3 logits": (_mean_classifier, ("pre relu", "pre gelu", "post relu")),
    "every row": (_every_row, ("pre relu", "post gelu")),
    "every row, unsaid": (_every_row_unsaid, ("pre gelu", "post relu")),
    "causal mask": (_causal, ("pre gelu", "post relu")),
    "causal mask, every row": (_causal_every_row, ("pre gelu", "post relu")),
    "positions, last row": (_positions, ("pre relu", "post relu")),
    "positions, first row": (_positions_first, ("pre gelu", "post gelu")),
    "zeros are padding, first row": (_padding, ("pre gelu", "post relu")),
    "zeros are padding, mean": (_padded_mean, ("pre gelu", "post relu")),
    "rows of norm 10 at most": (_bounded(10.0), ("pre relu", "pre gelu", "post relu", "post gelu")),
    "rows of norm 1 at most": (_bounded(1.0), ("pre relu", "post gelu")),
    "one probability": (_probability, ("pre relu", "post gelu")),
    "four probabilities": (_probabilities, ("pre gelu", "post relu")),
    "norm(attention(x))": (_normed_attention(False, True), ("post relu",)),
    "norm(x + attention(x))": (_normed_attention(True, True), ("post relu",)),
    "attention(norm(x))": (_normed_attention(False, False), ("pre relu",)),
    "eps 3e-6": (_eps, ("pre relu", "pre gelu", "post relu", "post gelu")),
    "cross attention": (_cross, ("post relu",)),
}


def measure(target: Target, d: int, seed: int) -> dict[str, Any]:
    """How one ends."""
    start = time.process_time()
    try:
        result = unsoftmax.recover(target.answer, width=d, seed=seed, **target.options)
    except Exception as error:
        return {"status": type(error).__name__, "reason": str(error), "queries": 0, "off": 0.0, "parts": ()}
    row: dict[str, Any] = {
        "status": result.status.name,
        "reason": result.reason,
        "queries": result.queries.total,
        "parts": tuple(result.parts),
        "off": 0.0,
        "seconds": time.process_time() - start,
    }
    if isinstance(result.model, Model) and result.status.recovered:
        bound = target.options.get("input_bound", np.inf)
        X = np.random.default_rng(seed).standard_normal((300, 5, d))
        X *= min(1.0, bound / float(np.linalg.norm(X, axis=2).max()))
        row["off"] = float(np.abs(result.model(X) - (target.check or target.answer)(X)).max())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), action="append")
    parser.add_argument("--reasons", action="store_true")
    for name, default in (("first", 0), ("seeds", 3), ("width", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    d = options.width
    print("| target | layer | ends | queries | largest deviation | parts | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in options.case or CASES:
        build, layers = CASES[name]
        for kind in layers:
            order, activation = kind.split()
            rows = []
            for seed in range(options.first, options.first + options.seeds):
                made = layer(d, 2, 12, activation, seed, norm_first=order == "pre")
                rows.append(measure(build(made, d, np.random.default_rng(seed)), d, seed))
            ends = Counter(row["status"] for row in rows)
            parts = sorted({part for row in rows for part in row["parts"]})
            print(
                f"| {name} | {kind} | {', '.join(f'{n} {status}' for status, n in ends.items())} | "
                f"{min(row['queries'] for row in rows):,}-{max(row['queries'] for row in rows):,} | "
                f"{max(row['off'] for row in rows):.0e} | {', '.join(parts)} | "
                f"{np.median([row.get('seconds', 0.0) for row in rows]):.0f} |",
                flush=True,
            )
            for reason in dict.fromkeys(row["reason"] for row in rows) if options.reasons else ():
                print(f"    {reason}", flush=True)


if __name__ == "__main__":
    main()
