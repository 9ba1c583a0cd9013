"""One-layer decoders of both shapes, each bent in one way that the learners do not know: how each ends, and
that none is recovered wrongly.

A model that is returned is compared with the target on fresh prompts of up to 60 rows. It is WRONG where it
is off by more than thirty times its bound on prompts as long as those of certificates.

python -m benchmarks.bent_decoders [--only "window of 24;a sink of 1e-9"] [--shape llama] [--seed 3]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.models import LanguageModel, Model, random_gpt2, random_language_model
from unsoftmax.models.language_model import FeedForward, LearnedPositions, Rotary
from unsoftmax.models.language_model.forward import log_softmax
from unsoftmax.oracles import FunctionOracle, OracleSpec

_BUDGET = 15_000  # queries: four times what these sizes take
_LENGTHS, _LONGER = (1, 2, 5, 10, 20, 29), (40, 60)
_PROMPTS = 40  # a length
_BELOW, _ABOVE = 1e-9, 30.0  # an error is wrong beyond the first, or the second times the bound

Target: TypeAlias = tuple[int, int, Callable[[Array], Array]]
"""Width, tokens and answers."""


def _same(values: Array) -> Array:
    return values


def _as_scored(scores: Array, back: Array) -> Array:
    return scores


def _nothing(n: Array) -> Array:
    return np.zeros_like(n)


@dataclass(frozen=True)
class Bend:
    """rows: of a prompt (B, N, d). scores: (B, H, N) of the last row, with how far back each row is. sink:
    the logarithm of what is added to the sum of weights. network: beside the layer's own, of normed rows.
    logits: (B, V)."""

    rows: Callable[[Array], Array] = _same
    scores: Callable[[Array, Array], Array] = _as_scored
    sink: float = -np.inf
    network: Callable[[Array], Array] = _nothing
    logits: Callable[[Array], Array] = _same


def _window(length: int) -> Bend:
    return Bend(scores=lambda s, back: np.where(back < length, s, -np.inf))


def _slopes(size: float) -> Bend:
    return Bend(scores=lambda s, back: s - size * back * 0.25 ** np.arange(s.shape[1])[:, None])


def _capped(size: float) -> Bend:
    return Bend(scores=lambda s, back: size * np.tanh(s / size))


def _sharper(after: int) -> Bend:
    return Bend(scores=lambda s, back: s * max(1.0, np.log(len(back)) / np.log(after)))


def _fold(from_: float) -> Bend:
    """A ReLU neuron that wakes where a normed row points its way."""
    return Bend(network=lambda n: 0.5 * np.maximum(0.0, n[:, :1] - from_) * np.eye(n.shape[1])[1])


def _bent_logits(size: float) -> Bend:
    return Bend(logits=lambda z: size * np.tanh(z / size))


def _last_digits(kind: type) -> Bend:
    return Bend(logits=lambda z: z.astype(kind).astype(float))


BENDS: dict[str, Bend] = {
    "none": Bend(),
    **{f"window of {n}": _window(n) for n in (4, 9, 10, 16, 24, 29, 32)},
    **{f"linear biases of {x:g}": _slopes(x) for x in (0.5, 1e-3, 1e-6, 1e-9)},
    **{f"scores capped at {x:g}": _capped(x) for x in (5.0, 50.0, 1000.0)},
    **{f"scores sharper after {n} rows": _sharper(n) for n in (8, 24)},
    **{f"a sink of {x:g}": Bend(sink=np.log(x)) for x in (1.0, 1e-2, 1e-9)},
    **{f"a fold at {x:g}": _fold(x) for x in (0.5, 1.5, 2.5)},
    **{f"logits capped at {x:g}": _bent_logits(x) for x in (30.0, 1e3, 1e5)},
    "logits of twice the size": Bend(logits=lambda z: 2.0 * z),
    "a bias of logits": Bend(logits=lambda z: z + np.linspace(0.0, 1.0, z.shape[1])),
    "logits in float32": _last_digits(np.float32),
    "logits in float16": _last_digits(np.float16),
    "rows clipped at 100": Bend(rows=lambda X: np.clip(X, -100.0, 100.0)),
    "rows in float16": Bend(rows=lambda X: np.clip(X, -6e4, 6e4).astype(np.float16).astype(float)),
    "the last 16 rows alone": Bend(rows=lambda X: X[:, -16:]),
    "the first 16 rows alone": Bend(rows=lambda X: X[:, :16]),
    "rows in reverse": Bend(rows=lambda X: X[:, ::-1]),
    "a row of ones before all": Bend(rows=lambda X: np.concatenate([np.ones_like(X[:, :1]), X], axis=1)),
}


def answers(model: LanguageModel, bend: Bend, X: Array) -> Array:
    """Log-probabilities of a one-layer decoder that is bent."""
    layer, part = model.layers[0], model.layers[0].attention
    rows = bend.rows(X)
    count, length = rows.shape[:2]
    if isinstance(model.positions, LearnedPositions):
        rows = rows + model.positions.table[:length]
    normed = layer.attention_norm(rows)

    def heads(matrix: Array, bias: Array | None, groups: int) -> Array:
        each = (normed @ matrix.T + (0.0 if bias is None else bias)).reshape(count, length, groups, -1)
        return np.repeat(each, part.heads // groups, axis=2)

    queries = heads(part.query, part.query_bias, part.heads)
    keys = heads(part.key, part.key_bias, part.groups)
    values = heads(part.value, part.value_bias, part.groups)
    if isinstance(model.positions, Rotary):
        queries, keys = model.positions.rotate(queries), model.positions.rotate(keys)
    scores = np.einsum("bhw,bnhw->bhn", queries[:, -1], keys) / np.sqrt(part.head_width)
    scores = bend.scores(scores, np.arange(float(length))[::-1])
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    weights /= weights.sum(axis=-1, keepdims=True) + np.exp(bend.sink - largest)
    mixed = np.einsum("bhn,bnhw->bhw", weights, values).reshape(count, -1) @ part.output.T
    stream = rows[:, -1] + mixed + (0.0 if part.output_bias is None else part.output_bias)
    n = layer.network_norm(stream)
    stream = stream + layer.network(n) + bend.network(n)
    return log_softmax(bend.logits(model.final_norm(stream) @ model.unembedding.T))


def second_layer(model: LanguageModel, other: LanguageModel, size: float) -> LanguageModel:
    """The model with a second layer that adds little."""
    layer = other.layers[0]
    attention = replace(layer.attention, output=size * layer.attention.output)
    if attention.output_bias is not None:
        attention = replace(attention, output_bias=size * attention.output_bias)
    network = layer.network
    if isinstance(network, FeedForward):
        network = replace(network, outer=size * network.outer, outer_bias=size * network.outer_bias)
    else:
        network = replace(network, down=size * network.down)
    faint = replace(layer, attention=attention, network=network)
    return LanguageModel([*model.layers, faint], model.final_norm, model.unembedding, model.positions)


def targets(shape: str, seed: int) -> dict[str, Target]:
    """Every target, by name."""
    draw: Callable[..., LanguageModel] = random_gpt2 if shape == "gpt2" else random_language_model
    d = 8 if shape == "gpt2" else 12
    model, other = (draw(d, 8, heads=2, seed=each) for each in (seed, seed + 50))
    found: dict[str, Target] = {}
    for name, bend in BENDS.items():
        found[name] = d, model.outputs, partial(answers, model, bend)
    for size in (1e-3, 1e-6, 1e-9, 1e-12):
        found[f"a second layer of {size:g}"] = d, model.outputs, second_layer(model, other, size)
    return found


def ended(target: Target, shape: str, seed: int) -> str:
    """How the recovery ends, in a line."""
    d, tokens, answer = target
    longest = 61 if shape == "gpt2" else None  # of 64 positions; some bends add a row
    spec = OracleSpec(width=d, outputs=tokens, max_length=longest, log_probabilities=True)
    with np.errstate(all="ignore"):
        result = unsoftmax.recover(FunctionOracle(answer, spec), seed=seed, budget=_BUDGET)
        line = f"{result.status}, {result.queries.total:,} queries, {', '.join(result.parts) or 'no parts'}"
        if result.model is None:
            return f"{line}; {result.reason}"
        rng = np.random.default_rng(seed + 99)
        off = {n: _off(result.model, answer, n, d, rng) for n in (*_LENGTHS, *_LONGER)}
    bound = result.error_bound or 0.0
    wrong = max(off[n] for n in _LENGTHS) > max(_BELOW, _ABOVE * bound)
    longer = max(off[n] for n in _LONGER)
    return (
        f"{'WRONG: ' if wrong else ''}{line}; bound {bound:.1e}, off by "
        f"{max(off[n] for n in _LENGTHS):.1e}, on longer prompts by {longer:.1e}"
    )


def _off(
    model: Model, answer: Callable[[Array], Array], length: int, d: int, rng: np.random.Generator
) -> float:
    sizes = np.exp(rng.uniform(-2.0, 1.5, (_PROMPTS, 1, 1)))
    prompts = sizes * rng.standard_normal((_PROMPTS, length, d))
    return float(np.abs(np.asarray(model(prompts)) - answer(prompts)).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names, with ; between them")
    parser.add_argument("--shape", choices=["llama", "gpt2"], default="llama")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    every = targets(arguments.shape, arguments.seed)
    for name in arguments.only.split(";") if arguments.only else every:
        print(f"{name}: {ended(every[name], arguments.shape, arguments.seed)}", flush=True)


if __name__ == "__main__":
    main()
