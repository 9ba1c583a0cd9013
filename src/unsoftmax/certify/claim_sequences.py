"""Random sequences that may tell whether a claimed error is true: drawn without a query, of several lengths,
with long rows and moderate scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unsoftmax.answers import Answers
from unsoftmax.arrays import Array, rms
from unsoftmax.ledger import Asker
from unsoftmax.models import Model, MultiHead, SingleHead
from unsoftmax.models.parameter_groups import Role, parameter_groups

__all__ = ["SHORT", "SMALLEST_CLAIM", "candidates"]

SHORT = (1, 2, 3, 5)  # 1 row shows v and c alone, 2 a single score, 3 and 5 how scores share the softmax
SMALLEST_CLAIM = 1e-9  # below it models would differ by their rounding
# of each range one length is drawn, and so many times fewer sequences, which take no longer to compute
_LONGER = ((6, 16, 4), (17, 48, 8))
_MOST_ENTRIES = 1 << 17  # of the rows of one place in all sequences of a length: fewer wide ones are drawn
_FARTHEST = 1e4  # longest rows, against those that scores or the answers' errors ask for
_NEAR_LONGEST = 30.0  # of the longest rows, what still counts as long
_ROOM = 4.0  # longer where a claim asks for it: errors of answers so many times smaller than what it explains


def candidates(
    asker: Asker,
    model: Model,
    ruler: Answers,
    claim: float,
    rng: np.random.Generator,
    *,
    most: int,
    at_least: int,
) -> Iterator[Array]:
    """Random sequences whose rows are longer than the asking row, as far as scores stay moderate; at least
    and at most so many of each length."""
    strength = model.score_strength()
    natural = 1.0 / np.sqrt(strength) if strength > 0.0 else 1.0
    most = min(most, max(at_least + at_least // 2, _MOST_ENTRIES // model.width))
    usual = rng.standard_normal((most, 1, model.width))
    usual *= natural / np.linalg.norm(usual, axis=2, keepdims=True)
    visible = rms(model(usual) - model(np.zeros((1, 1, model.width)))) / natural
    hidden = ruler.tolerance / visible if visible > 0.0 else 0.0  # norm of rows whose answers errors hide
    longest = max(_FARTHEST * max(natural, hidden), _ROOM * hidden / max(claim, SMALLEST_CLAIM))
    bound = np.inf if asker.input_bound is None else asker.input_bound
    longer = ((int(rng.integers(low, high + 1)), fewer) for low, high, fewer in _LONGER)
    for length, fewer in (*((short, 1) for short in SHORT), *longer):
        if asker.max_length is not None and length > asker.max_length:
            continue
        n = max(most // fewer, at_least)
        # half of them near the longest, where errors of answers hide least
        shortest = np.where(np.arange(n) % 4 < 2, natural / 4.0, max(natural / 4.0, longest / _NEAR_LONGEST))
        size = np.exp(rng.uniform(np.log(shortest), np.log(longest), n))
        size = np.minimum(size, bound * 0.999)
        norms = size[:, None] * 2.0 ** -rng.uniform(0.0, 1.0, (n, length))
        if strength > 0.0 and length > 1:
            norms[:, -1] = np.minimum(size, 2.0 ** rng.uniform(-2.0, 4.0, n) / (strength * size))
        rows = _directions(model, n, length, rng)
        rows *= (norms / np.linalg.norm(rows, axis=2))[:, :, None]
        _turn_from_scores(model, rows, natural, rng)
        yield rows


def _directions(model: Model, n: int, length: int, rng: np.random.Generator) -> Array:
    """Random rows; two sequences of three have a part along a readout, so that their rows' values differ."""
    rows = rng.standard_normal((n, length, model.width))
    readouts = _readouts(model)
    if readouts.any():
        along = readouts[:, rng.integers(0, readouts.shape[1], n)].T
        along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-300)
        part = np.sqrt(model.width) * rng.standard_normal((n, length, 1)) * along[:, None]
        part[::3] = 0.0
        rows += part
    return rows


def _turn_from_scores(model: Model, rows: Array, natural: float, rng: np.random.Generator) -> None:
    """Every other sequence gets an asking row of usual size, and its other rows keep so little along the
    vectors that score them that scores are moderate, however long they are."""
    heads = [model] if isinstance(model, SingleHead) else model.heads if isinstance(model, MultiHead) else []
    turned = rows[1::2]
    if not heads or len(heads) >= model.width or rows.shape[1] < 2:
        return
    asking = turned[:, -1]
    size = np.linalg.norm(asking, axis=1, keepdims=True)
    longest = np.linalg.norm(turned, axis=2).max(axis=1, keepdims=True)
    usual = np.minimum(natural * 2.0 ** rng.uniform(-2.0, 1.0, (len(turned), 1)), longest)
    asking *= usual / np.maximum(size, 1e-300)
    vectors = np.stack(
        [head.matrix.apply(asking) + (0.0 if head.w0 is None else head.w0) for head in heads], axis=2
    )
    basis = np.linalg.qr(vectors)[0]
    along = turned[:, :-1] @ basis
    scores = np.abs(turned[:, :-1] @ vectors).max(axis=2, keepdims=True)
    wanted = 2.0 ** rng.uniform(-2.0, 2.0, (len(turned), 1, 1))
    kept = np.minimum(1.0, wanted / np.maximum(scores, 1e-300))
    turned[:, :-1] -= ((1.0 - kept) * along) @ basis.transpose(0, 2, 1)


def _readouts(model: Model) -> Array:
    """What all heads read of a row, side by side."""
    tensors = model.tensors()
    values = [
        tensors[name]
        for group in parameter_groups(model)
        for name in group.sizes
        if group.role is Role.VALUES
    ]
    found = [part.reshape(model.width, -1) for part in values if len(part) == model.width]
    return np.hstack(found) if found else np.zeros((model.width, 0))
