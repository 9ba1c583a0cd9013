"""Encoder layers nobody chose: width, heads, neurons, order and kind of norms, eps, activation, biases and
the kind of weights are drawn from the seed. How each ends, queries over parameters, largest deviation on
fresh sequences, error of the canonical parameters and its bound, processor seconds.

python -m benchmarks.drawn_blocks [--first 0] [--seeds 10] [--widest 24] [--float32] [--done FILE]

Seeds that FILE names already are passed over, and new lines are added to it.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import unsoftmax
from unsoftmax.models import EncoderBlock, block_from_torch

Activation = Callable[[torch.Tensor], torch.Tensor]


def tanh_gelu(z: torch.Tensor) -> torch.Tensor:
    return functional.gelu(z, approximate="tanh")


ACTIVATIONS: dict[str, Activation] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "tanh gelu": tanh_gelu,
    "silu": functional.silu,
}
_WEIGHTS = ("as made", "drawn", "heavy tails", "on and off")
_SPREAD = 0.7  # of the logarithm of a row's size, with heavy tails
_FAR = 3.0  # bias over √d, for neurons that are on or off for every input
_EDGE = 0.3  # neurons for each d(d + 1): more smooth ones are not told apart


@dataclass(frozen=True)
class Drawn:
    """What a layer is made of."""

    width: int
    heads: int
    neurons: int
    norm_first: bool
    root_mean_square: bool
    eps: float
    activation: str
    bias: bool
    weights: str

    def __str__(self) -> str:
        norm = "RMSNorm" if self.root_mean_square else "LayerNorm"
        order, biases = "pre" if self.norm_first else "post", "biases" if self.bias else "no biases"
        return (
            f"d={self.width} H={self.heads} ff={self.neurons} {order} {self.activation}, {norm}, eps "
            f"{self.eps:.1e}, {biases}, {self.weights}"
        )


def draw(seed: int, widest: int) -> Drawn:
    rng = np.random.default_rng([seed, 17])
    d = int(rng.integers(8, widest + 1))
    heads = int(rng.choice([h for h in (1, 2, 3, 4) if d % h == 0]))
    activation = str(rng.choice(["relu", "relu", *list(ACTIVATIONS)[1:]]))
    most = 4 * d if activation == "relu" else min(4 * d, int(_EDGE * d * (d + 1)))
    neurons = int(rng.integers(d // 2, most + 1))
    norm_first = bool(rng.integers(2))
    root_mean_square = norm_first and bool(rng.uniform() < 0.3)
    eps = float(10.0 ** rng.uniform(-12.0, -3.0)) if rng.uniform() < 0.5 else 1e-5
    bias = bool(rng.uniform() < 0.7)
    return Drawn(
        d, heads, neurons, norm_first, root_mean_square, eps, activation, bias, str(rng.choice(_WEIGHTS))
    )


def layer(drawn: Drawn, seed: int) -> nn.TransformerEncoderLayer:
    torch.manual_seed(seed)
    d, J = drawn.width, drawn.neurons
    made = nn.TransformerEncoderLayer(
        d, drawn.heads, J, 0.0, ACTIVATIONS[drawn.activation], drawn.eps, batch_first=True,
        norm_first=drawn.norm_first, bias=drawn.bias, dtype=torch.float64,
    ).eval()  # fmt: skip
    if drawn.root_mean_square:
        for name in ("norm1", "norm2"):
            setattr(made, name, nn.RMSNorm(d, drawn.eps, dtype=torch.float64))
    if drawn.weights == "as made":
        return made
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name and "weight" in name:
                parameter.copy_(1.0 + 0.2 * torch.randn_like(parameter))
            elif "bias" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
            elif drawn.weights == "heavy tails":
                parameter.mul_(torch.exp(_SPREAD * torch.randn(len(parameter), 1, dtype=torch.float64)))
        if drawn.weights == "on and off" and drawn.bias:
            made.linear1.bias[0] = _FAR * np.sqrt(d)
            made.linear1.bias[1] = -_FAR * np.sqrt(d)
    return made


def measure(seed: int, widest: int, dtype: torch.dtype) -> str:
    drawn = draw(seed, widest)
    target = layer(drawn, seed).to(dtype)
    exact = copy.deepcopy(target).double()
    parameters = sum(part.numel() for part in target.parameters())
    start = time.process_time()
    result = unsoftmax.recover(target, row="last", seed=seed)
    seconds = time.process_time() - start
    price = result.queries.total / parameters
    line = f"{seed}: {drawn}: {result.status.name}, {price:.1f} p, {seconds:.0f} s"
    if not isinstance(result.model, EncoderBlock):
        return f"{line}, {result.reason}"
    X = np.random.default_rng(seed).standard_normal((200, 5, drawn.width))
    off = np.abs(result.model(X) - exact(torch.tensor(X))[:, -1].detach().numpy()).max()
    error, bound = block_from_torch(exact).distance(result.model), result.error_bound or 0.0
    covered = "" if error <= bound else " NOT COVERED"
    return f"{line}, off {off:.0e}, error {error:.0e}, bound {bound:.0e}{covered}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--widest", type=int, default=24)
    parser.add_argument("--done", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # it asks an RMSNorm for a bias
    dtype = torch.float32 if options.float32 else torch.float64
    old = options.done.read_text().splitlines() if options.done and options.done.exists() else []
    done = {line.split(":")[0] for line in old}
    for seed in range(options.first, options.first + options.seeds):
        if str(seed) not in done:
            line = measure(seed, options.widest, dtype)
            print(line, flush=True)
            if options.done:
                with options.done.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
