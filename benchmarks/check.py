"""Is `check` right? Every kind of target with several seeds: what it calls recoverable is recovered, and what
it does not ends as it says.

python -m benchmarks.check [--seeds 5] [--first 0] [--kind NAME]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from tests.cases.outside import BOXES

import unsoftmax

__all__ = ["KINDS", "Judged", "judge"]


@dataclass(frozen=True)
class Case:
    """A target, and what a user would tell of it, to check and to recover alike."""

    target: Any
    told: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)  # what only `recover` takes


@dataclass(frozen=True)
class Judged:
    """What check said, how the recovery ended, and whether the two agree."""

    recoverable: bool
    said: str
    ended: str
    queries: int
    right: bool


def head(d: int, seed: int, **options: Any) -> unsoftmax.Oracle:
    return unsoftmax.as_oracle(unsoftmax.random_single_head(d, seed=seed, **options))


def attention_layer(seed: int, dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype).eval()


def encoder_layer(seed: int, *, norm_first: bool) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).eval()


def dropout_layer(seed: int) -> Case:
    """A layer that was left in training mode."""
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(6, 2, 0.3, batch_first=True, dtype=torch.float64).train()
    readout = torch.randn(6, dtype=torch.float64)

    def answer(X: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(X)
        with torch.no_grad():
            return np.asarray((layer(x, x, x, need_weights=False)[0][:, -1] @ readout).numpy())

    return Case(answer, {"width": 6})


def short(target: Any, seed: int, step: int = 1) -> Case:
    """A target that takes a few rows only: check finds out how many, and a user tells recover."""
    oracle = unsoftmax.as_oracle(target)
    longest = 2 + step * (seed % 6)

    def answer(X: np.ndarray) -> np.ndarray:
        if X.shape[1] > longest:
            raise ValueError(f"{X.shape[1]} rows")
        return oracle(X)

    return Case(answer, {"width": oracle.spec.width}, {"longest": longest})


def last_row_alone(seed: int) -> Case:
    v = np.random.default_rng(seed).standard_normal(6)
    return Case(lambda X: X[:, -1] @ v + 0.3, {"width": 6})


def mean_and_network(seed: int) -> Case:
    """No attention, but a mean: one head with W = 0."""
    network = unsoftmax.random_transformer(6, 8, seed=seed).network
    return Case(lambda X: network(X.mean(axis=1, keepdims=True)), {"width": 6})


def classes(seed: int) -> Case:
    """The largest of four numbers is named."""
    heads = [unsoftmax.random_single_head(5, 2, seed=4 * seed + k) for k in range(4)]
    return Case(lambda X: np.stack([each(X) for each in heads]).argmax(axis=0), {"width": 5})


def every_row(seed: int) -> Case:
    """A function that answers every row: check reads the last one, and says so."""
    layer = attention_layer(seed, torch.float64)

    def answer(X: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(X)
        with torch.no_grad():
            return np.asarray(layer(x, x, x, need_weights=False)[0].numpy())

    return Case(answer, {"width": 8}, {"row": "last", "outputs": 8})


class Pooled(torch.nn.Module):
    """Attention, read at one row or at the mean of all, with a residual connection or a network on top."""

    def __init__(self, how: str, ids: int = 0, heads: int = 2) -> None:
        super().__init__()
        self.how, self.ids = how, ids
        self.embeddings = torch.nn.Embedding(max(ids, 1), 8)
        self.places = torch.nn.Embedding(64, 8)
        self.attention = torch.nn.MultiheadAttention(8, heads, batch_first=True)
        self.norm, self.readout = torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)
        self.network = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embeddings(x) if self.ids else x
        x = x + self.places(torch.arange(x.shape[1])) if "places" in self.how else x
        z = self.norm(x) if "norm first" in self.how else x
        y = self.attention(z, z, z, need_weights=False)[0]
        y = y + x if "residual" in self.how else y
        y = y.mean(dim=1) if "mean" in self.how else y[:, 0] if "first row" in self.how else y[:, -1]
        if "probabilities" in self.how:
            return torch.softmax(y, dim=-1)
        answer = (self.network if "network" in self.how else self.readout)(y).squeeze(-1)
        return torch.tanh(answer) if "tanh" in self.how else answer


def pooled(how: str, dtype: torch.dtype, ids: int = 0, heads: int = 2) -> Callable[[int], Case]:
    def made(seed: int) -> Case:
        torch.manual_seed(seed)
        module = Pooled(how, ids, heads).to(dtype).eval()
        more = {"probabilities": True} if "probabilities" in how else {}
        return Case(module, {"vocabulary": ids} if ids else {"width": 8}, more)

    return made


def outside(name: str) -> Callable[[int], Case]:
    return lambda seed: Case(BOXES[name](5, seed), {"width": 5})


KINDS: dict[str, Callable[[int], Case]] = {
    "one head": lambda s: Case(head(8, s)),
    "one head, low rank, biases": lambda s: Case(head(8, s, r=2, biases=True)),
    "several heads": lambda s: Case(unsoftmax.random_multi_head(8, 2, 2, seed=s)),
    "one-layer Transformer": lambda s: Case(unsoftmax.random_transformer(5, 4, seed=s)),
    "every row of a layer": every_row,
    "a layer in float32": lambda s: Case(attention_layer(s, torch.float32)),
    "pre-norm encoder block": lambda s: Case(encoder_layer(s, norm_first=True)),
    "post-norm encoder block": lambda s: Case(encoder_layer(s, norm_first=False)),
    "rounded": lambda s: Case(unsoftmax.Rounded(head(5, s), 2)),
    "stored in float32": lambda s: Case(unsoftmax.LowPrecision(head(5, s), "float32")),
    "stored in float16": lambda s: Case(unsoftmax.LowPrecision(head(5, s), "float16")),
    "noisy": lambda s: Case(unsoftmax.Noisy(head(5, s), 1e-3, s)),
    "within a tolerance": lambda s: Case(unsoftmax.WithinTolerance(head(5, s), 1e-3, s)),
    "labels": lambda s: Case(unsoftmax.Labels(head(4, s))),
    "labels of several heads": lambda s: Case(
        unsoftmax.Labels(unsoftmax.as_oracle(unsoftmax.random_multi_head(4, 2, 2, seed=s)))
    ),
    "token ids": lambda s: Case(unsoftmax.random_token_heads(20, 2, seed=s), {"vocabulary": 20}),
    "language model": lambda s: Case(unsoftmax.random_language_model(16, 24, heads=2, seed=s)),
    "dropout left on": dropout_layer,
    "positions": outside("positional_term"),
    "tanh on top": outside("tanh_on_top"),
    "hard maximum": outside("hard_max"),
    "drifting answers": outside("drifts"),
    "torch, attention and a residual": pooled("residual", torch.float64),
    "torch, the same in float32": pooled("residual", torch.float32),
    "torch, a mean over rows": pooled("mean", torch.float64),
    "torch, a mean over rows in float32": pooled("mean", torch.float32),
    "torch, the first row": pooled("first row", torch.float32),
    "torch, a norm first": pooled("norm first", torch.float64),
    "torch, learned places in float32": pooled("places", torch.float32),
    "torch, tanh on top in float32": pooled("tanh", torch.float32),
    "torch, two heads and a network": pooled("network", torch.float64),
    "torch, probabilities": pooled("probabilities", torch.float64),
    "ids, one head in float32": pooled("", torch.float32, 60, 1),
    "ids, two heads": pooled("", torch.float64, 60),
    "ids, two heads in float32": pooled("", torch.float32, 60),
    "ids, a residual": pooled("residual", torch.float64, 60),
    "ids, a mean over tokens": pooled("mean", torch.float64, 60),
    "ids, learned places": pooled("places", torch.float64, 40, 1),
    "ids, two heads with places": pooled("places", torch.float64, 60),
    "short sequences, one head": lambda s: short(unsoftmax.random_single_head(5, 2, seed=s), s),
    "short sequences, several heads": lambda s: short(unsoftmax.random_multi_head(6, 2, seed=s), s),
    "short sequences, vectors": lambda s: short(unsoftmax.random_multi_head(6, 2, outputs=6, seed=s), s),
    "short sequences, a network on top": lambda s: short(unsoftmax.random_transformer(4, 5, seed=s), s),
    "short sequences, float32": lambda s: short(attention_layer(s, torch.float32), s),
    "short sequences, an encoder block": lambda s: short(encoder_layer(s, norm_first=True), s, 3),
    "one answer to everything": lambda s: Case(lambda X: np.full(len(X), 0.1 * s), {"width": 4}),
    "the last row alone": last_row_alone,
    "a mean over rows and a network": mean_and_network,
    "classes": classes,
}


def judge(case: Case, seed: int) -> Judged:
    """Checks, recovers, compares."""
    found = unsoftmax.check(case.target, seed=seed, **case.told)
    result = unsoftmax.recover(case.target, seed=seed, **case.told, **case.more)
    leaked = result.status.recovered or bool(result.parts)
    right = leaked if found.recoverable else result.status is found.ending
    return Judged(
        found.recoverable,
        found.looks_like if found.recoverable else f"{found.ending}: {found.obstacle}",
        str(result.status) + (" with parts" if result.parts and not result.status.recovered else ""),
        found.queries,
        right,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    print("| target | check says recoverable | recovery ends | queries of check | right |")
    print("|---|---|---|---|---|")
    right = total = 0
    for name, make in KINDS.items():
        if options.kind not in (None, name):
            continue
        rows = [judge(make(seed), seed) for seed in range(options.first, options.first + options.seeds)]
        right += sum(row.right for row in rows)
        total += len(rows)
        ends = ", ".join(sorted({row.ended for row in rows}))
        asked = sorted(row.queries for row in rows)
        says = sum(row.recoverable for row in rows)
        print(
            f"| {name} | {says} of {len(rows)} | {ends} | {asked[0]:,} … {asked[-1]:,} | "
            f"{sum(row.right for row in rows)} of {len(rows)} |",
            flush=True,
        )
        for row in rows:
            if not row.right:
                print(f"  wrong: said '{row.said}', ended {row.ended}", flush=True)
    print(f"\n{right} of {total} right")


if __name__ == "__main__":
    main()
