"""Encoder blocks that depart from the class in one place, as other libraries and habits make them: how each
ends, queries over parameters, largest deviation of a recovered model on fresh sequences of one to twelve
rows, and the part of them where it deviates by more than the bound of the certificate allows.

Two are members, because other parameters make the same function: a norm that divides by d - 1, and a sigmoid
GELU, which is SiLU.

python -m benchmarks.nearly_blocks [--case NAME] [--first 0] [--seeds 1] [--width 8 --neurons 12] [--float32]
[--order pre|post]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn import functional

import unsoftmax
from benchmarks.encoder_blocks import layer
from unsoftmax.arrays import Array
from unsoftmax.models import EncoderBlock

Rows = torch.Tensor
Map = Callable[[Rows], Rows]
_HEADS = 2
_WRONG = {torch.float64: 1e-6, torch.float32: 1e-3}  # of answers of size one


@dataclass
class Parts:
    """What a block is put together from; a case replaces some of it. scores: made of queries and keys (B, H,
    N, d/H)."""

    made: torch.nn.TransformerEncoderLayer
    norms: list[Map] = field(init=False)
    activation: Map = field(init=False)
    scores: Callable[[Rows, Rows], Rows] = field(init=False)
    mixed: Map = lambda x: x
    added: Callable[[Rows, Rows], Rows] = lambda x, attended: x + attended
    parallel: bool = False
    twice: bool = False

    def __post_init__(self) -> None:
        self.norms = [self.made.norm1, self.made.norm2]
        self.activation = self.made.activation
        self.scores = lambda queries, keys: queries @ keys.transpose(-1, -2)

    def attention(self, x: Rows) -> Rows:
        batch, length, d = x.shape
        own = self.made.self_attn
        packed = functional.linear(x, own.in_proj_weight, own.in_proj_bias)
        queries, keys, values = (
            part.reshape(batch, length, _HEADS, -1).transpose(1, 2) for part in packed.chunk(3, dim=-1)
        )
        scores = self.scores(queries, keys) / (d / _HEADS) ** 0.5
        mixed = (torch.softmax(scores, dim=-1) @ values).transpose(1, 2).reshape(batch, length, d)
        return self.mixed(own.out_proj(mixed))

    def network(self, x: Rows) -> Rows:
        return torch.as_tensor(self.made.linear2(self.activation(self.made.linear1(x))))

    def __call__(self, x: Rows) -> Rows:
        first, second = self.norms
        if self.made.norm_first:
            y = self.added(x, self.attention(first(x)))
            whole = y + self.network(first(x) if self.parallel else second(y))
            return whole + self.network(second(whole)) if self.twice else whole
        u = first(self.added(x, self.attention(x)))
        whole = second((self.added(x, self.attention(x)) if self.parallel else u) + self.network(u))
        return second(whole + self.network(whole)) if self.twice else whole


def _one_neuron(parts: Parts, bend: Map) -> None:
    plain = parts.activation
    parts.activation = lambda z: torch.cat([bend(z[..., :1]), plain(z[..., 1:])], dim=-1)


def _activation(parts: Parts, bend: Map) -> None:
    parts.activation = bend


def _centred(x: Rows) -> Rows:
    return x - x.mean(dim=-1, keepdim=True)


def _norm(parts: Parts, size: Map) -> None:
    """Both norms divide by `size` of the centred row."""

    def normed(norm: torch.nn.LayerNorm) -> Map:
        return lambda x: norm.weight * _centred(x) / size(_centred(x)) + norm.bias

    parts.norms = [normed(parts.made.norm1), normed(parts.made.norm2)]


def _unbiased(x: Rows) -> Rows:
    return (x.square().sum(dim=-1, keepdim=True) / (x.shape[-1] - 1) + 1e-5).sqrt()


def _eps_outside(x: Rows) -> Rows:
    return x.square().mean(dim=-1, keepdim=True).sqrt() + 1e-3


def _powers(x: Rows) -> Rows:
    return x.abs().pow(1.9).mean(dim=-1, keepdim=True).pow(1 / 1.9) + 1e-5


def _scores(parts: Parts, change: Callable[[Rows], Rows]) -> None:
    plain = parts.scores
    parts.scores = lambda queries, keys: change(plain(queries, keys))


def _unit(x: Rows) -> Rows:
    return x / x.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt()


def _query_key_norm(parts: Parts) -> None:
    plain = parts.scores
    parts.scores = lambda queries, keys: plain(_unit(queries), _unit(keys))


def _cooler(scores: Rows) -> Rows:
    return scores * (1.01 if scores.shape[-1] > 5 else 1.0)


def _faint_distance(scores: Rows) -> Rows:
    places = torch.arange(scores.shape[-1], dtype=scores.dtype)
    return scores - 1e-3 * (places[:, None] - places).abs()


def _set(parts: Parts, name: str, value: object) -> None:
    setattr(parts, name, value)


CASES: dict[str, Callable[[Parts], None]] = {
    "one neuron is ReLU6": lambda parts: _one_neuron(parts, functional.relu6),
    "tanh GELU with 0.044 for 0.044715": lambda parts: _activation(
        parts, lambda z: 0.5 * z * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (z + 0.044 * z**3)))
    ),
    "sigmoid GELU (a member)": lambda parts: _activation(parts, lambda z: z * torch.sigmoid(1.702 * z)),
    "norms divide by d - 1 (a member)": lambda parts: _norm(parts, _unbiased),
    "norms divide by deviation + eps": lambda parts: _norm(parts, _eps_outside),
    "norms of the power 1.9": lambda parts: _norm(parts, _powers),
    "a factor of attention for each row": lambda parts: _set(
        parts, "added", lambda x, attended: x + attended * (1.0 + 0.01 * torch.tanh(x[..., :1]))
    ),
    "residual connections with a gate": lambda parts: _set(
        parts, "added", lambda x, attended: x + torch.sigmoid(x[..., :1] + 3.0) * attended
    ),
    "residual connections with gains": lambda parts: _set(
        parts, "added", lambda x, attended: x * torch.linspace(0.9, 1.1, x.shape[-1]).to(x) + attended
    ),
    "another temperature from six rows on": lambda parts: _scores(parts, _cooler),
    "scores through 30 tanh(s / 30)": lambda parts: _scores(parts, lambda s: 30.0 * torch.tanh(s / 30.0)),
    "a faint bias by distance": lambda parts: _scores(parts, _faint_distance),
    "queries and keys with norms": _query_key_norm,
    "dropout of 0.001": lambda parts: _set(parts, "mixed", lambda x: functional.dropout(x, 1e-3)),
    "attention and network beside each other": lambda parts: _set(parts, "parallel", True),
    "two networks": lambda parts: _set(parts, "twice", True),
}


def target(
    name: str, order: str, activation: str, size: tuple[int, int], seed: int, dtype: torch.dtype
) -> Callable[[Array], Array]:
    """Answers of the last row."""
    made = layer(size[0], _HEADS, size[1], activation, seed, norm_first=order == "pre").to(dtype)
    parts = Parts(made)
    CASES[name](parts)

    @torch.no_grad()
    def answer(X: Array) -> Array:
        return np.asarray(parts(torch.tensor(X, dtype=dtype))[:, -1].double().numpy())

    return answer


def deviations(model: EncoderBlock, answer: Callable[[Array], Array], width: int, seed: int) -> Array:
    """Largest of every fresh sequence."""
    rng = np.random.default_rng([seed, 1])
    found = []
    for length in range(1, 13):
        X = rng.standard_normal((200, length, width))
        found.append(np.abs(model(X) - answer(X)).max(axis=1))
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), action="append")
    parser.add_argument("--order", choices=("pre", "post"), action="append")
    for name, default in (("first", 0), ("seeds", 1), ("width", 8), ("neurons", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--float32", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype = torch.float32 if options.float32 else torch.float64
    size = d, J = options.width, options.neurons
    parameters = 4 * d * d + 2 * J * d + 9 * d + J
    print("| block | norms | seed | ends | queries / parameters | largest deviation | off | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.case or CASES:
        for order in options.order or ("pre", "post"):
            for seed in range(options.first, options.first + options.seeds):
                activation = "relu" if "ReLU" in name or seed % 2 else "gelu"
                answer = target(name, order, activation, size, seed, dtype)
                start = time.process_time()
                result = unsoftmax.recover(answer, width=d, outputs=d, family="encoder-block", seed=seed)
                seconds = time.process_time() - start
                shown = "||"
                if isinstance(result.model, EncoderBlock):
                    off = deviations(result.model, answer, d, seed)
                    wrong = float((off > _WRONG[dtype]).mean())
                    shown = f"| {off.max():.0e} | {wrong:.2%} {'WRONG' if wrong else ''}|"
                print(
                    f"| {name}, {activation} | {order} | {seed} | {result.status.name} | "
                    f"{result.queries.total / parameters:.1f} {shown} {seconds:.0f} | {result.reason[:90]}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
