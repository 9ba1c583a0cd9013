"""Encoder blocks that torch does not draw: members with unusual eps or neurons, and blocks that are nearly
members. How each ends, queries over parameters, largest deviation on fresh sequences, processor seconds.

python -m benchmarks.unusual_blocks [--case NAME] [--first 0] [--seeds 3] [--width 8 --neurons 12]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

import unsoftmax
from benchmarks.encoder_blocks import layer
from unsoftmax.arrays import Array
from unsoftmax.models import EncoderBlock

Bend = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A layer of this order and activation, with this eps; `on` neurons are on for every input; the first
    neuron has another activation where `bend` is given."""

    order: str
    activation: str
    eps: float = 1e-5
    on: int = 0
    bend: Bend | None = None


CASES = {
    "eps 1e-12, pre relu": Case("pre", "relu", eps=1e-12),
    "eps 1e-12, post relu": Case("post", "relu", eps=1e-12),
    "eps 1e-12, post gelu": Case("post", "gelu", eps=1e-12),
    "eps 3e-6, pre relu": Case("pre", "relu", eps=3e-6),
    "eps 3e-6, post relu": Case("post", "relu", eps=3e-6),
    "eps 3e-6, pre gelu": Case("pre", "gelu", eps=3e-6),
    "always on, pre relu": Case("pre", "relu", on=2),
    "always on, post relu": Case("post", "relu", on=2),
    "softplus(20 z), post relu": Case("post", "relu", bend=lambda z: functional.softplus(z, beta=20.0)),
    "softplus(200 z), post relu": Case("post", "relu", bend=lambda z: functional.softplus(z, beta=200.0)),
    "softplus(2000 z), post relu": Case("post", "relu", bend=lambda z: functional.softplus(z, beta=2000.0)),
    "softplus(200 z), pre relu": Case("pre", "relu", bend=lambda z: functional.softplus(z, beta=200.0)),
    "leaky 1e-3, post relu": Case("post", "relu", bend=lambda z: functional.leaky_relu(z, 1e-3)),
    "leaky 1e-5, pre relu": Case("pre", "relu", bend=lambda z: functional.leaky_relu(z, 1e-5)),
    "hard swish, post relu": Case("post", "relu", bend=functional.hardswish),
    "a step of 0.01, post relu": Case("post", "relu", bend=lambda z: functional.relu(z) + 0.01 * (z > 0.3)),
    "square, pre relu": Case("pre", "relu", bend=lambda z: functional.relu(z) ** 2),
}


def target(case: Case, d: int, neurons: int, seed: int) -> Callable[[Array], Array]:
    """Answers of the last row."""
    made = layer(d, 2, neurons, case.activation, seed, norm_first=case.order == "pre")
    made.norm1.eps = made.norm2.eps = case.eps
    with torch.no_grad():  # the constant that neurons add which are always on is taken off again
        bias = 3.0 * float(np.sqrt(d))
        made.linear1.bias[: case.on] = bias
        made.linear2.bias.sub_(bias * made.linear2.weight[:, : case.on].sum(dim=1))
    plain = functional.relu if case.activation == "relu" else functional.gelu

    def network(x: torch.Tensor) -> torch.Tensor:
        hidden = made.linear1(x)
        active = plain(hidden)
        if case.bend is not None:
            active = torch.cat([case.bend(hidden[..., :1]), active[..., 1:]], dim=-1)
        return torch.as_tensor(made.linear2(active))

    def heads(x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(made.self_attn(x, x, x, need_weights=False)[0])

    @torch.no_grad()
    def answer(X: Array) -> Array:
        x = torch.tensor(X)
        if case.order == "pre":
            y = x + heads(made.norm1(x))
            return np.asarray((y + network(made.norm2(y)))[:, -1].numpy())
        u = made.norm1(x + heads(x))
        return np.asarray(made.norm2(u + network(u))[:, -1].numpy())

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), action="append")
    for name, default in (("first", 0), ("seeds", 3), ("width", 8), ("neurons", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    d, J = options.width, options.neurons
    parameters = 4 * d * d + 2 * J * d + 9 * d + J
    print("| block | seeds | ends | queries / parameters, median / most | largest deviation | CPU s |")
    print("|---|---|---|---|---|---|")
    for name in options.case or CASES:
        ends: Counter[str] = Counter()
        price, off, seconds = [], 0.0, []
        for seed in range(options.first, options.first + options.seeds):
            answer = target(CASES[name], d, J, seed)
            start = time.process_time()
            result = unsoftmax.recover(answer, width=d, outputs=d, family="encoder-block", seed=seed)
            seconds.append(time.process_time() - start)
            ends[result.status.name] += 1
            price.append(result.queries.total / parameters)
            if isinstance(result.model, EncoderBlock):
                X = np.random.default_rng(seed).standard_normal((1000, 5, d))
                off = max(off, float(np.abs(result.model(X) - answer(X)).max()))
        shown = ", ".join(f"{count} {status}" for status, count in ends.items())
        seeds = f"{options.first}-{options.first + options.seeds - 1}"
        print(
            f"| {name} | {seeds} | {shown} | {np.median(price):.1f} / {max(price):.1f} | {off:.0e} | "
            f"{np.median(seconds):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
