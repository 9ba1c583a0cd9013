"""Boxes for the honesty fuzzer that are a member of a class for some sequences and, for the others, the same
with one thing changed: an entry, a neuron, a head, a temperature. Every family, every way to tell sequences
apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

import unsoftmax
from tests.cases.honesty_case import Case, Function, Maker
from unsoftmax import GatedNetwork, Model, MultiHead, Network, OracleSpec, SingleHead, TokenHeads
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import AskingRow, block_from_torch
from unsoftmax.models.parts.activations import ACTIVATIONS
from unsoftmax.oracles import TokenIds

__all__ = ["KINDS", "SLOW", "NearMember", "mixed", "near_members", "picks"]


@dataclass(frozen=True)
class NearMember:
    """model: what the box computes. link: what its answers go through. width: None for token ids. alone:
    whether it takes single rows only."""

    model: Model
    link: Function = lambda values: values
    width: int | None = None
    alone: bool = False
    options: dict[str, object] = field(default_factory=dict)


def _generator(d: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, d, 61])


# What picks the sequences that are answered otherwise; at least a seventh of those that a certificate draws.


def _norms(X: Array) -> Array:
    return np.asarray(np.linalg.norm(X, axis=2))


_Pick = Callable[[Array], NDArray[np.bool_]]
_PICKS: dict[str, _Pick] = {
    "three rows on": lambda X: np.full(len(X), X.shape[1] >= 3),
    "six rows on": lambda X: np.full(len(X), X.shape[1] >= 6),
    "even lengths": lambda X: np.full(len(X), X.shape[1] % 2 == 0),
    "sign of an entry": lambda X: X[:, -1, 0] > 0.0,
    "last row not the longest": lambda X: _norms(X).argmax(axis=1) < X.shape[1] - 1,
    "long asking row": lambda X: _norms(X)[:, -1] > np.sqrt(X.shape[2]),
    "first row like the last": lambda X: np.einsum("bd,bd->b", X[:, 0], X[:, -1]) > 0.0,
    "two signs": lambda X: (X[:, 0, 0] > 0.0) & (X[:, -1, -1] < 0.0),
}
_ALONE = ("sign of an entry", "long asking row")
_IDS: dict[str, _Pick] = {
    "three rows on": lambda ids: np.full(len(ids), ids.shape[1] >= 3),
    "six rows on": lambda ids: np.full(len(ids), ids.shape[1] >= 6),
    "even lengths": lambda ids: np.full(len(ids), ids.shape[1] % 2 == 0),
    "five ids": lambda ids: np.full(len(ids), ids.shape[1] == 5),
    "even last id": lambda ids: ids[:, -1] % 2 == 0,
    "first id below the last": lambda ids: ids[:, 0] < ids[:, -1],
}


def _otherwise(model: Model, size: float, rng: np.random.Generator) -> Model:
    """The model with one thing larger by a part: an array, one of its rows, or one entry."""
    tensors = dict(model.tensors())
    names = sorted(name for name, part in tensors.items() if np.abs(part).max(initial=0.0) > 0.0)
    names = [name for name in names if name.split(".")[-1] not in ("eps", "residual", "clip")]
    name = names[int(rng.integers(len(names)))]
    part = np.array(tensors[name], dtype=np.float64)
    where = tuple(int(rng.integers(n)) for n in part.shape)[: int(rng.integers(part.ndim + 1))]
    part[where] = part[where] * (1.0 + size)
    return type(model).from_tensors(tensors | {name: part})


def mixed(usual: Function, other: Function, pick: _Pick) -> Function:
    def answer(X: Array) -> Array:
        found, picked = np.array(usual(X)), pick(X)
        if picked.any():
            found[picked] = other(X[picked])
        return found

    return answer


def _near(make: Callable[[int, int], NearMember], short: bool, d: int, seed: int) -> Case:
    """short: answers in float32."""
    rng = _generator(d, seed)
    member = make(d, seed)
    picks = _IDS if member.width is None else _PICKS
    names = list(_ALONE) if member.alone else list(picks)
    pick = picks[names[int(rng.integers(len(names)))]]
    other = _otherwise(member.model, 10.0 ** -rng.uniform(0.3, 8.0), rng)
    function = mixed(member.model, other, pick)

    def box(X: Array) -> Array:
        answers = member.link(function(X))
        return FloatFormat.FLOAT32.store(answers) if short else answers

    target: object = box
    if member.alone:
        spec = OracleSpec(width=member.width, max_length=1, outputs=member.model.outputs)
        target = unsoftmax.FunctionOracle(box, spec)
    elif isinstance(member.model, TokenHeads) and member.model.longest is not None:
        domain = TokenIds(member.model.vocabulary)
        target = unsoftmax.FunctionOracle(box, OracleSpec(domain=domain, max_length=member.model.longest))
    shown = _of_single_rows(function) if member.alone else function
    return Case(target, member.width, shown, exact=False, options=dict(member.options))


def _of_single_rows(function: Function) -> Function:
    return lambda rows: function(rows[:, None])


# Members of every family.


def _with_outputs(model: Model, **options: object) -> NearMember:
    told: dict[str, object] = {} if model.outputs is None else {"outputs": model.outputs}
    return NearMember(model, width=model.width, options={**told, **options})


def _head(d: int, seed: int) -> NearMember:
    return _with_outputs(unsoftmax.random_single_head(d, seed=seed, biases=seed % 2 == 1))


def _heads(vectors: bool, d: int, seed: int) -> NearMember:
    outputs = d + seed % 2 if vectors else None
    return _with_outputs(unsoftmax.random_multi_head(d, 2, seed=seed, outputs=outputs, biases=seed % 2 == 1))


def _bounded(make: Callable[[int, int], NearMember], d: int, seed: int) -> NearMember:
    member = make(d, seed)
    bound = (1.0, 10.0, 100.0)[seed % 3]
    return replace(member, options={**member.options, "input_bound": bound})


def _skip(vectors: bool, d: int, seed: int) -> NearMember:
    model = _heads(vectors, d, seed).model
    assert isinstance(model, MultiHead)
    shape = (d,) if model.outputs is None else (d, model.outputs)
    return _with_outputs(MultiHead(model.heads, model.c, _generator(d, seed).standard_normal(shape)))


def _transformer(d: int, seed: int) -> NearMember:
    return _with_outputs(
        unsoftmax.random_transformer(d, 1 + d, seed=seed, biases=True, residual=float(seed % 2))
    )


def _network(name: str, d: int, seed: int) -> NearMember:
    rng, d = _generator(d, seed), max(d, 2)
    outputs = (d, 2)[seed % 2]
    model = Network(
        rng.standard_normal((d + 1, d)) / np.sqrt(d),
        rng.standard_normal((d + 1, outputs)),
        0.5 * rng.standard_normal(d + 1),
        rng.standard_normal(outputs),
        activation=ACTIVATIONS[name],
    )
    return NearMember(model, width=d, alone=True, options={"family": "network"})


def _gated(d: int, seed: int) -> NearMember:
    rng, d = _generator(d, seed), max(d, 4)
    shapes = ((2, d), (2, d), (2, d), (2,), (2,), (d,))
    model = GatedNetwork(*(rng.standard_normal(shape) / np.sqrt(d) for shape in shapes))
    return NearMember(model, width=d, alone=True, options={"family": "network"})


_BLOCK = 8  # width


def _torch_block(norm_first: bool, seed: int) -> Model:
    torch.manual_seed(seed)
    activation = ("relu", "gelu")[seed % 2]
    layer = torch.nn.TransformerEncoderLayer(
        _BLOCK, 2, 6, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        for name, part in layer.named_parameters():
            if "norm" in name and "weight" in name:
                part.copy_(1.0 + 0.2 * torch.randn_like(part))
            elif "bias" in name:
                part.copy_(0.2 * torch.randn_like(part))
    return block_from_torch(layer)


def _block(norm_first: bool, asking: AskingRow, bound: float | None, d: int, seed: int) -> NearMember:
    block = _torch_block(norm_first, seed)
    assert isinstance(block, unsoftmax.EncoderBlock)
    options: dict[str, object] = {"outputs": _BLOCK, "family": "encoder-block"}
    if bound is not None:
        options["input_bound"] = bound
    return NearMember(block.asked_by(asking), width=_BLOCK, options=options)


def _tokens(longest: int | None, heads: int, d: int, seed: int) -> NearMember:
    model = unsoftmax.random_token_heads(8 + 2 * d, 2, heads=heads, seed=seed, longest=longest)
    options: dict[str, object] = {"vocabulary": model.vocabulary}
    return NearMember(model, options=options)


def _sigmoid(values: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))


def _softmax(values: Array) -> Array:
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _probabilities(vectors: bool, d: int, seed: int) -> NearMember:
    model = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, outputs=3 if vectors else None)
    if vectors:  # a softmax hides what all logits share
        heads = [
            SingleHead(head.matrix, head.v - head.v.mean(axis=1, keepdims=True), head.w0)
            for head in model.heads
        ]
        model = MultiHead(heads, np.asarray(model.c) - np.mean(model.c))
    return NearMember(model, _softmax if vectors else _sigmoid, d, options={"probabilities": True})


_MAKERS: dict[str, Callable[[int, int], NearMember]] = {
    "a head": _head,
    "heads": partial(_heads, False),
    "heads, vectors": partial(_heads, True),
    "a bounded head": partial(_bounded, _head),
    "bounded heads": partial(_bounded, partial(_heads, False)),
    "bounded heads, vectors": partial(_bounded, partial(_heads, True)),
    "heads and a skip": partial(_skip, False),
    "heads and a skip, vectors": partial(_skip, True),
    "a Transformer": _transformer,
    "a tanh network": partial(_network, "tanh"),
    "a GELU network": partial(_network, "gelu"),
    "a ReLU network": partial(_network, "relu"),
    "a gated network": _gated,
    "a pre-norm block": partial(_block, True, AskingRow.LAST, None),
    "a post-norm block": partial(_block, False, AskingRow.LAST, None),
    "a mean of rows": partial(_block, True, AskingRow.MEAN, None),
    "a bounded block": partial(_block, True, AskingRow.LAST, 10.0),
    "tokens": partial(_tokens, None, 1),
    "two heads of tokens": partial(_tokens, None, 2),
    "tokens with positions": partial(_tokens, 6, 1),
    "a sigmoid": partial(_probabilities, False),
    "a softmax of answers": partial(_probabilities, True),
}


def _every_row(d: int, seed: int) -> Case:
    """Every row is answered, behind a causal mask in every second; in two of three the rows before the last
    are other ones in some sequences."""
    model = _heads(True, d, seed).model
    rng = _generator(d, seed)
    names = list(_PICKS)
    pick = _PICKS[names[int(rng.integers(len(names)))]]
    causal, size = seed % 2 == 0, 10.0 ** -rng.uniform(0.3, 6.0) if seed % 3 else 0.0

    def box(X: Array) -> Array:
        n = X.shape[1]
        seen = [X[:, : i + 1] if causal else np.roll(X, -1 - i, axis=1) for i in range(n)]
        answers = np.stack([model(rows) for rows in seen], axis=1)
        answers[np.flatnonzero(pick(X)), :-1] *= 1.0 + size
        return answers

    def of_others(X: Array) -> Array:
        return np.asarray(model(X) * (1.0 + size * pick(X)[:, None]))

    return Case(box, d, of_others, None if size else model, options={"row": "all", "outputs": model.outputs})


def picks() -> dict[str, _Pick]:
    """What picks sequences, by name."""
    return dict(_PICKS)


def near_members() -> dict[str, Callable[[int, int], NearMember]]:
    """What makes members, by name of the family."""
    return dict(_MAKERS)


KINDS: dict[str, Maker] = {
    "near: every row": _every_row,
    **{f"near: {name}": partial(_near, make, False) for name, make in _MAKERS.items()},
    **{f"near: {name}, float32": partial(_near, _MAKERS[name], True) for name in _MAKERS},
}
SLOW = frozenset(KINDS)
