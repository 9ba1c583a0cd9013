"""Encoder blocks that torch does not draw: members with unusual eps or neurons, and blocks that are nearly
members. How each ends, queries over parameters, largest deviation on fresh sequences, processor seconds.

python -m benchmarks.unusual_blocks [--case NAME] [--first 0] [--seeds 3] [--width 8 --neurons 12] [--float32]
[--only hostile]
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
    neuron has another activation where `bend` is given. part: the second norm leaves the last column as it
    is. twice: the network is applied once more, behind itself. drop: dropout is on. tied: both heads have the
    same queries and keys, so that they are one."""

    order: str
    activation: str
    eps: float = 1e-5
    on: int = 0
    bend: Bend | None = None
    part: bool = False
    twice: bool = False
    drop: bool = False
    tied: bool = False


HOSTILE = {
    f"hostile: {name}, {order} {activation}": Case(order, activation, **change)
    for order in ("pre", "post")
    for activation in ("relu", "gelu")
    for name, change in (
        ("one neuron is tanh", {"bend": torch.tanh}),
        ("a norm over a part", {"part": True}),
        ("the network twice", {"twice": True}),
        ("dropout", {"drop": True}),
        ("tied heads", {"tied": True}),
    )
}
CASES = {
    **HOSTILE,
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


def target(
    case: Case, d: int, neurons: int, seed: int, dtype: torch.dtype = torch.float64
) -> Callable[[Array], Array]:
    """Answers of the last row."""
    made = layer(d, 2, neurons, case.activation, seed, norm_first=case.order == "pre")
    made.norm1.eps = made.norm2.eps = case.eps
    with torch.no_grad():  # the constant that neurons add which are always on is taken off again
        bias = 3.0 * float(np.sqrt(d))
        made.linear1.bias[: case.on] = bias
        made.linear2.bias.sub_(bias * made.linear2.weight[:, : case.on].sum(dim=1))
        if case.tied:
            for place in (0, d):  # of queries, and of keys
                made.self_attn.in_proj_weight[place + d // 2 : place + d] = made.self_attn.in_proj_weight[
                    place : place + d // 2
                ]
                made.self_attn.in_proj_bias[place + d // 2 : place + d] = made.self_attn.in_proj_bias[
                    place : place + d // 2
                ]
    made = made.to(dtype)
    plain = functional.relu if case.activation == "relu" else functional.gelu

    def network(x: torch.Tensor) -> torch.Tensor:
        hidden = made.linear1(x)
        active = plain(hidden)
        if case.bend is not None:
            active = torch.cat([case.bend(hidden[..., :1]), active[..., 1:]], dim=-1)
        return torch.as_tensor(made.linear2(active))

    def whole(x: torch.Tensor) -> torch.Tensor:
        return x + network(x + network(x)) if case.twice else x + network(x)

    def heads(x: torch.Tensor) -> torch.Tensor:
        mixed = torch.as_tensor(made.self_attn(x, x, x, need_weights=False)[0])
        return functional.dropout(mixed, 0.1, training=case.drop)

    def second(x: torch.Tensor) -> torch.Tensor:
        if not case.part:
            return torch.as_tensor(made.norm2(x))
        weight, bias = made.norm2.weight[:-1], made.norm2.bias[:-1]
        most = functional.layer_norm(x[..., :-1], (d - 1,), weight, bias, case.eps)
        return torch.cat([most, x[..., -1:]], dim=-1)

    @torch.no_grad()
    def answer(X: Array) -> Array:
        x = torch.tensor(X, dtype=dtype)
        if case.order == "pre":
            y = x + heads(made.norm1(x))
            u = second(y)
            return np.asarray((y + whole(u) - u)[:, -1].double().numpy())
        u = made.norm1(x + heads(x))
        return np.asarray(second(whole(u))[:, -1].double().numpy())

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), action="append")
    for name, default in (("first", 0), ("seeds", 3), ("width", 8), ("neurons", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype = torch.float32 if options.float32 else torch.float64
    d, J = options.width, options.neurons
    parameters = 4 * d * d + 2 * J * d + 9 * d + J
    print("| block | seeds | ends | queries / parameters, median / most | largest deviation | CPU s |")
    print("|---|---|---|---|---|---|")
    for name in options.case or [each for each in CASES if options.only in each]:
        ends: Counter[str] = Counter()
        price, off, seconds = [], 0.0, []
        for seed in range(options.first, options.first + options.seeds):
            answer = target(CASES[name], d, J, seed, dtype)
            start = time.process_time()
            result = unsoftmax.recover(answer, width=d, outputs=d, family="encoder-block", seed=seed)
            seconds.append(time.process_time() - start)
            ends[result.status.name] += 1
            price.append(result.queries.total / parameters)
            if isinstance(result.model, EncoderBlock) and not CASES[name].drop:
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
