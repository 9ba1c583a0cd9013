"""Are two models one function? Canonical forms decide it; a sequence that tells them apart proves every
no."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import UsageError
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.tokens.token_heads import TokenHeads
from unsoftmax.models.transformer import Transformer

__all__ = ["Equivalence", "equivalent"]

# Random sequences that are tried to show a difference: rounds of one length and size, and how many in each
_ROUNDS = 40
_LONGEST = 64  # tokens of a sequence, where models set no limit
_PER_ROUND = 64  # a difference on a tenth of inputs is met in one round but once in 800 times


@dataclass(frozen=True)
class Equivalence:
    """True or false, and why.

    distance: of the canonical forms. separating: a sequence (N, d), or of ids (N,), on which the two differ,
    with `answers`, for every no.
    """

    equal: bool
    distance: float
    reason: str
    separating: Array | None = None
    answers: tuple[Array, Array] | None = None

    def __bool__(self) -> bool:
        return self.equal


def equivalent(f: Model, g: Model, *, rtol: float = 1e-9, seed: int = 0) -> Equivalence:
    """Decides whether two attention models are the same function, parameters compared to a relative `rtol`.

    Heads are the same function exactly when their canonical forms agree: for fixed rows a + b and b, repeated
    n and m times, the answer is a rational function of n/m whose poles and residues are the heads' scores and
    values. A no comes with a sequence that shows it, larger than rounding can explain. When the parameters
    differ but no sequence shows it in float64, the answer is yes, and the reason says so.

    >>> from unsoftmax import MultiHead, SingleHead, equivalent
    >>> W, U = np.diag([1.0, 2.0]), np.ones((2, 2))
    >>> one = MultiHead([SingleHead(W, [1.0, 1.0]), SingleHead(U, [0.0, 2.0])])
    >>> two = MultiHead([SingleHead(U, [0.0, 2.0]), SingleHead(W, [1.0, 0.0]), SingleHead(W, [0.0, 1.0])])
    >>> bool(equivalent(one, two))
    True
    >>> answer = equivalent(one, MultiHead([SingleHead(W, [1.0, 1.0]), SingleHead(U, [0.0, 2.0 + 1e-6])]))
    >>> bool(answer), abs(one(answer.separating[None]) - answer.answers[0]).max()
    (False, np.float64(0.0))
    """
    if isinstance(f, TokenHeads) and isinstance(g, TokenHeads):
        return _with_tokens(f, g, rtol, seed)
    if isinstance(f, ReluNetwork | Transformer) or isinstance(g, ReluNetwork | Transformer):
        return _with_networks(f, g, rtol, seed)
    first, second = _heads(f), _heads(g)
    if first.width != second.width or first.outputs != second.outputs:
        raise UsageError(
            f"equivalence needs equal shapes, not width {first.width} and {second.width} (outputs "
            f"{first.outputs} and {second.outputs})"
        )
    first, second = first.canonical(), second.canonical()
    distance = max(first.distance(second), second.distance(first))
    if distance <= rtol:
        return Equivalence(True, distance, f"their canonical forms agree to {distance:.1g}")
    found = _separate(first, second, np.random.default_rng(seed))
    if found is None:
        return Equivalence(
            True,
            distance,
            f"their canonical forms differ by {distance:.1g}, but no sequence shows more than rounding in "
            "float64; pass a larger rtol",
        )
    sequence = found
    answers = (np.asarray(f(sequence[None])), np.asarray(g(sequence[None])))
    gap = float(np.abs(answers[0] - answers[1]).max())
    return Equivalence(
        False, distance, f"they differ by {gap:.3g} on a sequence of {len(sequence)} rows", sequence, answers
    )


def _with_networks(f: Model, g: Model, rtol: float, seed: int) -> Equivalence:
    """Networks by their folds, Transformers by W and folds; a Transformer whose network is affine is a single
    head."""
    first, second = _simplest(f), _simplest(g)
    if not isinstance(first, ReluNetwork | Transformer) and not isinstance(second, ReluNetwork | Transformer):
        return equivalent(first, second, rtol=rtol, seed=seed)
    if isinstance(first, ReluNetwork) != isinstance(second, ReluNetwork):
        raise UsageError(
            f"a {type(f).__name__} takes other inputs than a {type(g).__name__}; compare two of one kind"
        )
    if first.width != second.width:
        raise UsageError(f"equivalence needs equal shapes, not width {first.width} and {second.width}")
    distance = max(first.distance(second), second.distance(first)) if type(first) is type(second) else np.inf
    if distance <= rtol:
        return Equivalence(True, distance, f"their canonical forms agree to {distance:.1g}")
    rng, rows = np.random.default_rng(seed), 1 if isinstance(f, ReluNetwork) else 2
    sizes = 4.0 ** np.arange(-6.0, 7.0)
    return _by_answers(
        f, g, distance, (size * rng.standard_normal((_PER_ROUND, rows, f.width)) for size in sizes)
    )


def _with_tokens(f: TokenHeads, g: TokenHeads, rtol: float, seed: int) -> Equivalence:
    """Both take ids: sequences of a few lengths, and every token asking behind every length once at least."""
    if f.vocabulary != g.vocabulary or f.outputs != g.outputs:
        raise UsageError(
            f"equivalence needs equal shapes, not vocabulary {f.vocabulary} and {g.vocabulary} (outputs "
            f"{f.outputs} and {g.outputs})"
        )
    distance = max(f.distance(g), g.distance(f))
    if distance <= rtol:
        return Equivalence(True, distance, f"their canonical forms agree to {distance:.1g}")
    rng, asking = np.random.default_rng(seed), np.arange(f.vocabulary)
    longest = min(each.longest or _LONGEST for each in (f, g))
    drawn = (
        np.column_stack([rng.integers(0, f.vocabulary, (len(asking), before)), asking])
        for before in (0, 1, 1, 1, 2, 3, 7, 15, 31)
        if before < longest
    )
    return _by_answers(f, g, distance, (cast(Array, ids) for ids in drawn))


def _by_answers(f: Model, g: Model, distance: float, batches: Iterable[Array]) -> Equivalence:
    """Whether a sequence of the batches shows what canonical forms say."""
    best: tuple[float, Array | None] = (1.0, None)
    for batch in batches:
        rounding = 64 * EPS * np.maximum(f.sensitivity(batch), g.sensitivity(batch))
        gap = np.abs(f(batch) - g(batch)).reshape(len(batch), -1).max(axis=1)
        ratio = gap / np.where(rounding > 0, rounding, np.finfo(float).tiny)
        if ratio.max() > best[0]:
            best = (float(ratio.max()), batch[int(ratio.argmax())].copy())
    sequence = best[1]
    if sequence is None:
        return Equivalence(
            True,
            distance,
            f"their canonical forms differ by {distance:.1g}, but no sequence shows more than rounding in "
            "float64",
        )
    answers = (np.asarray(f(sequence[None])), np.asarray(g(sequence[None])))
    gap = float(np.abs(answers[0] - answers[1]).max())
    of = "token" if isinstance(f, TokenHeads) else "row"
    length = f"{len(sequence)} {of}{'' if len(sequence) == 1 else 's'}"
    return Equivalence(
        False, distance, f"they differ by {gap:.3g} on a sequence of {length}", sequence, answers
    )


def _simplest(model: Model) -> Model:
    if isinstance(model, Transformer) and model.network.folds.count == 0 and model.residual == 0.0:
        return SingleHead(model.matrix, model.network.folds.linear, model.w0, model.network.folds.constant)
    return model


def _heads(model: Model) -> MultiHead:
    if isinstance(model, MultiHead):
        return model
    if isinstance(model, SingleHead):
        return MultiHead([model])
    raise UsageError(
        f"a {type(model).__name__} cannot be compared with it; two heads over rows, two models over tokens, "
        "two ReLU networks, or two one-layer Transformers can"
    )


def _separate(f: MultiHead, g: MultiHead, rng: np.random.Generator) -> Array | None:
    """The sequence whose difference stands out most against its rounding; None when nothing does."""
    d = f.width
    strengths = [head.score_strength() for model in (f, g) for head in model.heads]
    biases = [
        float(np.linalg.norm(head.w0)) / np.sqrt(d)
        for model in (f, g)
        for head in model.heads
        if head.w0 is not None
    ]
    scales = sorted(
        {1.0, *(1.0 / np.sqrt(s) for s in strengths if s > 0), *(1.0 / s for s in biases if s > 0)}
    )
    best: tuple[float, Array] | None = None
    for round_ in range(_ROUNDS):
        scale = scales[round_ % len(scales)] * 4.0 ** (
            rng.uniform(-2.0, 2.0) if round_ >= len(scales) else 0.0
        )
        length = (2, 3, 1, 5)[(round_ // len(scales)) % 4]
        batch = scale * rng.standard_normal((_PER_ROUND, length, d))
        if round_ % 2:
            batch[:, :-1] = batch[:, -1:] + 2.0 ** rng.uniform(-6, 6) * (batch[:, :-1] - batch[:, -1:])
        gap = np.abs(f(batch) - g(batch)).reshape(_PER_ROUND, -1).max(axis=1)
        rounding = 64 * EPS * np.maximum(f.sensitivity(batch), g.sensitivity(batch))
        ratio = gap / np.where(rounding > 0, rounding, np.finfo(float).tiny)
        index = int(ratio.argmax())
        if best is None or ratio[index] > best[0]:
            best = (float(ratio[index]), batch[index].copy())
        if best[0] > 1e6 and round_ >= 2 * len(scales):
            break
    return best[1] if best is not None and best[0] > 1.0 else None
