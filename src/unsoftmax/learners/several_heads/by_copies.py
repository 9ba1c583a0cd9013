"""Heads that share their steps, told apart by copies of rows: proportional W, one query vector, W and -W with
one v.

At one pair (a, b) the copies give all scores and heights. Small moves of a and b are followed from there,
which gives a first model; then all parameters are corrected together on fresh pairs with copies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.several_heads.attempt import Restart, SharedStep, Unexplained
from unsoftmax.learners.several_heads.head_switches import Circle, draw_circle, find_saturation
from unsoftmax.learners.several_heads.isolate import Heads
from unsoftmax.meters.several_heads.copied_rows import PATTERNS, SHIFTS, ask_patterns, fit_heads, follow_heads
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.solvers.head_fits.joint_heads import JointHeads, joint_step, joint_uncertainty

__all__ = [
    "MOST_UNKNOWNS",
    "ask_fresh_pairs",
    "draw_fresh_pairs",
    "heads_by_copies",
    "polish_together",
    "polished",
]

MOST_UNKNOWNS = 2500  # of a dense least-squares step: 2500³ operations, about a second
_LONGEST = max(first + last for first, last in PATTERNS)  # rows of a sequence with copies
_DOUBT = 1e-11  # relative error that pairs may leave open where they correct what is known already
# asking rows looked at for one whose heads are all moderate; the first third is taken at any price
_CANDIDATES = 36
_NEAREST, _FARTHEST = 2.5, 7.5  # octaves of b below the size at which scores saturate
_ROOM = 0.3  # of the longest rows allowed: a + b is as long as both, and moves add a quarter
_MOVED = 0.8  # of the longest rows allowed, where one of a and b has moved and the other is still to move
_HALVINGS = 24  # of a step, at most: to 6e-8 of it
_LADDER = 12  # sizes of b, each a quarter of the one before
_EVENLY = 0.1  # of the size of answers: two heads with moderate scores move them further
_MIDDLE = 4.0  # octaves from moderate scores to saturated ones
_SPREAD = 1.2  # score aimed at
_MOVES = (0.25, 0.08, 0.02)  # how far a step may move a score, first choice first
_USUAL = [0, 1, 2, 4, 6, 8, 12, 13, 15, 17, 19]  # patterns from 1/16 to 16
_STEPS = 24  # 5 to 8 near the solution; the others are shortened ones
_LONGEST_STEP = 0.5  # relative change of a head
_SETTLED = 1e-14  # relative change of a step: rounding


def heads_by_copies(respond: Responses, rng: np.random.Generator) -> Heads:
    """All heads of a small model, or a `Restart`."""
    respond.begin()
    limit = respond.ledger.max_length
    if limit is not None and limit < _LONGEST:
        raise Restart(f"copies need sequences of {_LONGEST} rows, and the target takes {limit}")
    circle = draw_circle(respond, rng)
    with respond.ledger.phase("copies"):
        saturation, size = _sizes(respond, circle)
        base = _best_pair(respond, circle, saturation, size, rng)
        first = _first_model(respond, base, rng)
    with respond.ledger.phase("second look"):
        joint, _ = polish_together(respond, first, float(np.linalg.norm(circle.a)), rng)
    return _at_their_ranks(joint, np.zeros(respond.width))


def polished(respond: Responses, heads: Heads, rng: np.random.Generator) -> Heads:
    """The same heads after all parameters were corrected together; unchanged where they are too many, copies
    of rows are not allowed, or the correction does not settle."""
    limit = respond.ledger.max_length
    joint = JointHeads(np.array(heads.matrices), heads.readouts)
    if joint.unknowns > MOST_UNKNOWNS or (limit is not None and limit < _LONGEST):
        return heads
    size = float(np.linalg.norm(draw_circle(respond, rng).a))
    A, B, which = _draw_pairs(respond, joint, size, rng)
    predicted = joint.predict(A, B, SHIFTS[which])
    # where heads are close, such pairs leave in doubt how they share their readouts
    if joint_uncertainty(joint, A, B, SHIFTS[which], predicted) > _DOUBT:
        return heads
    with respond.ledger.phase("second look"):
        answers = _ask_pairs(respond, A, B, which)
    try:
        joint, _ = _settled(joint, (A, B, SHIFTS[which], answers))
    except (Restart, np.linalg.LinAlgError):
        return heads
    return _at_their_ranks(joint, heads.flat)


def _at_their_ranks(joint: JointHeads, flat: Array) -> Heads:
    matrices, ranks = [], []
    for W in joint.W:
        left, values, right = np.linalg.svd(W, full_matrices=False)
        rank = int((values > 1e-9 * values[0]).sum())
        matrices.append((left[:, :rank] * values[:rank]) @ right[:rank])
        ranks.append(rank if rank < len(W) else None)
    return Heads(matrices, joint.v, ranks, flat)


def _sizes(respond: Responses, circle: Circle) -> tuple[float, float]:
    """The size of b at which scores saturate, and that of the answers. Where rows are limited, the largest b
    that still lets all heads share nearly evenly tells the former."""
    bound = respond.ledger.input_bound
    if bound is None:
        try:
            return find_saturation(respond, circle)
        except SharedStep:  # heads W and -W are together always half on, but for two copies
            return find_saturation(respond, circle, first=2)
    size = float(np.linalg.norm(circle.a) * np.linalg.norm(respond.v))
    evenly = 0.5 * float(circle.a @ respond.v)
    lengths = max(1.0, bound) * 4.0 ** -np.arange(_LADDER)
    B = _inside(respond, np.tile(circle.a, (_LADDER, 1)), lengths[:, None] * circle.p)
    even = np.abs(respond(circle.a, B) - evenly) <= _EVENLY * size
    weak = np.linalg.norm(B, axis=1)[even]
    return 2.0**_MIDDLE * (float(weak.max()) if len(weak) else float(np.linalg.norm(B[-1]))), size


def _inside(respond: Responses, A: Array, B: Array) -> Array:
    """b's so short that the rows of the pairs may be sent, with room for small moves."""
    bound = respond.ledger.input_bound
    if bound is None:
        return B
    longest = _ROOM * bound
    if not respond.biased:
        return np.asarray(B * np.minimum(1.0, longest / np.linalg.norm(B, axis=1))[:, None])
    # the rows that are sent: k a + u/k and u/k, for b = (u, k)
    times = B[:, -1] / respond.unit
    most = longest / np.linalg.norm(A, axis=1)
    times = np.copysign(np.minimum(np.abs(times), most), times)
    asking = B[:, :-1] / (B[:, -1:] / respond.unit)
    asking = asking * np.minimum(1.0, longest / np.linalg.norm(asking, axis=1))[:, None]
    return np.column_stack([asking * times[:, None], times * respond.unit])


class _Pair:
    """A pair (a, b) with the scores and heights of all heads there."""

    def __init__(self, a: Array, b: Array, scores: Array, heights: Array, size: float) -> None:
        self.a, self.b, self.scores, self.heights, self.size = a, b, scores, heights, size


def _best_pair(
    respond: Responses, circle: Circle, saturation: float, size: float, rng: np.random.Generator
) -> _Pair:
    """The asking row whose scores are best apart, out of some random ones that show the most heads."""
    found: list[tuple[int, float, Array, Array, Array, Array]] = []
    everything = list(range(len(PATTERNS)))
    length = float(np.linalg.norm(circle.a))
    explained = False  # by any number of heads, whatever their scores
    for candidate in range(_CANDIDATES):
        if candidate >= _CANDIDATES // 3 and (
            not explained
            or any(item[0] == max(other[0] for other in found) and item[1] > 0.8 for item in found)
        ):
            break
        a = rng.standard_normal(respond.width)
        a *= length / np.linalg.norm(a)
        b = rng.standard_normal(respond.columns)
        if respond.biased:
            b[-1] += 0.5 if b[-1] >= 0 else -0.5
        b *= saturation * 2.0 ** rng.uniform(-_FARTHEST, -_NEAREST) / np.linalg.norm(b)
        b = _inside(respond, a[None], b[None])[0]
        seen = fit_heads(ask_patterns(respond, a, b, everything)[0], size)
        if seen is None:
            continue
        explained = True
        scores, heights = seen
        if np.abs(scores).max() > 6.0 or np.abs(heights).min() < 1e-4 * size:
            continue
        gap = float(np.diff(scores).min()) if len(scores) > 1 else 1.0
        found.append(
            (
                len(scores),
                min(gap, 2.0) - 0.1 * max(0.0, float(np.abs(scores).max()) - 3.0),
                a,
                b,
                scores,
                heights,
            )
        )
    if not explained:
        raise Unexplained("the answers to copies of rows are not those of up to six heads at any pair")
    if not found:
        raise Restart("the answers to copies of rows are not those of up to six heads")
    _, _, a, b, scores, heights = max(found, key=lambda item: item[:2])
    return _Pair(a, b, scores, heights, size)


def _first_model(respond: Responses, pair: _Pair, rng: np.random.Generator) -> JointHeads:
    """V and W from small moves of a and b around one pair, every head followed."""
    d, n, H = respond.width, respond.columns, len(pair.scores)
    if H * d * (n + 1) > MOST_UNKNOWNS:
        raise Restart(f"{H} heads that share their steps are too many to solve for at width {d}")
    left = np.linalg.qr(rng.standard_normal((d, d)))[0].T
    right = np.linalg.qr(rng.standard_normal((n, n)))[0].T
    a_steps, a_scores, v_part = _follow_a(respond, pair, left)
    b_steps, b_scores = _follow_b(respond, pair, right)
    v = v_part @ left  # (H, d)
    column = (a_scores - pair.scores) / a_steps[:, None]  # eᵢᵀ W b
    row = (b_scores - pair.scores) / b_steps[:, None]  # aᵀ W fⱼ
    grid_a, grid_b = np.repeat(np.arange(d), n), np.tile(np.arange(n), d)
    A = pair.a + a_steps[grid_a, None] * left[grid_a]
    B = pair.b + b_steps[grid_b, None] * right[grid_b]
    which = _USUAL[: max(H + 2, 5)] if H < 4 else _USUAL
    answers = ask_patterns(respond, A, B, which)
    inner = np.zeros((d * n, H))
    for q in range(d * n):
        i, j = grid_a[q], grid_b[q]
        plain = pair.scores + a_steps[i] * column[i] + b_steps[j] * row[j]
        seen = follow_heads(plain, v @ A[q], answers[q], which, pair.size, fixed=True)
        if seen is not None and np.abs(seen[0] - plain).max() < 3.0:
            inner[q] = (seen[0] - plain) / (a_steps[i] * b_steps[j])
    if not np.all(np.any(inner != 0.0, axis=0)):
        raise Restart("heads that share their steps cannot be followed when both rows move")
    W = np.einsum("ijh,ik,jl->hkl", inner.reshape(d, n, H), left, right)
    return JointHeads(W, v)


def _follow_a(respond: Responses, pair: _Pair, left: Array) -> tuple[Array, Array, Array]:
    """Steps of a along every direction, the scores there, and eᵢ·v_h."""
    d, H = len(left), len(pair.scores)
    steps, scores, values = np.zeros(d), np.zeros((d, H)), np.zeros((H, d))
    size = float(np.linalg.norm(pair.a))
    typical = size / max(float(np.abs(pair.scores).max()), 1.0)
    todo = np.arange(d)
    for move in _MOVES:
        step = _allowed_step(respond, pair, move * typical, left[todo], first=True)
        answers = ask_patterns(respond, pair.a + step * left[todo], pair.b, _USUAL)
        left_over = []
        for i, y in zip(todo, answers, strict=True):
            seen = follow_heads(pair.scores, pair.heights, y, _USUAL, pair.size)
            if seen is None or np.abs(seen[0] - pair.scores).max() > 2.5:
                left_over.append(i)
                continue
            steps[i], scores[i], values[:, i] = step, seen[0], (seen[1] - pair.heights) / step
        todo = np.array(left_over, dtype=int)
        if len(todo) == 0:
            return steps, scores, values
    raise Restart("heads that share their steps cannot be followed when the first row moves")


def _follow_b(respond: Responses, pair: _Pair, right: Array) -> tuple[Array, Array]:
    """Steps of b along every direction, and the scores there; the heights do not change."""
    n, H = len(right), len(pair.scores)
    steps, scores = np.zeros(n), np.zeros((n, H))
    typical = float(np.linalg.norm(pair.b)) / max(float(np.abs(pair.scores).max()), 1.0)
    todo = np.arange(n)
    for move in _MOVES:
        step = _allowed_step(respond, pair, move * typical, right[todo], first=False)
        answers = ask_patterns(respond, pair.a, pair.b + step * right[todo], _USUAL)
        left_over = []
        for j, y in zip(todo, answers, strict=True):
            seen = follow_heads(pair.scores, pair.heights, y, _USUAL, pair.size, fixed=True)
            if seen is None or np.abs(seen[0] - pair.scores).max() > 2.5:
                left_over.append(j)
                continue
            steps[j], scores[j] = step, seen[0]
        todo = np.array(left_over, dtype=int)
        if len(todo) == 0:
            return steps, scores
    raise Restart("heads that share their steps cannot be followed when the asking row moves")


def _allowed_step(respond: Responses, pair: _Pair, step: float, directions: Array, *, first: bool) -> float:
    """The step, halved until the rows that it sends may be sent: with a query bias they are as long as b over
    its last coordinate, which a step may bring near zero."""
    bound = respond.ledger.input_bound
    for _ in range(_HALVINGS if bound is not None else 0):
        moved = step * directions
        A = pair.a + (moved if first else np.zeros((1, len(pair.a))))
        B = pair.b + (np.zeros((1, len(pair.b))) if first else moved)
        if respond.longest_row(A, B) <= _MOVED * (bound or np.inf):
            break
        step /= 2.0
    return step


def polish_together(
    respond: Responses, heads: JointHeads, size: float, rng: np.random.Generator
) -> tuple[JointHeads, float]:
    """Gauss-Newton on one fresh set of pairs with copies; (heads, last relative change)."""
    return _settled(heads, ask_fresh_pairs(respond, heads, size, rng))


def _settled(heads: JointHeads, pairs: tuple[Array, Array, Array, Array]) -> tuple[JointHeads, float]:
    """Steps that would change a head by more than half of it are shortened to that."""
    best: tuple[float, JointHeads, float] | None = None
    for _ in range(_STEPS):
        moved, change, residual = joint_step(heads, *pairs)
        if best is None or residual < best[0]:
            best = (residual, heads, change)
        part = min(1.0, _LONGEST_STEP / max(change, 1e-300))
        heads = JointHeads(heads.W + part * (moved.W - heads.W), heads.v + part * (moved.v - heads.v))
        if change < _SETTLED:
            break
    assert best is not None
    residual = joint_step(heads, *pairs)[2]
    if residual <= best[0]:
        best = (residual, heads, best[2])
    if best[2] > _LONGEST_STEP:
        raise Restart("the parameters of heads that share their steps do not settle")
    return best[1], best[2]


def ask_fresh_pairs(
    respond: Responses, heads: JointHeads, size: float, rng: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    """(A, B, shifts, answers) of 1.6 fresh pairs with copies for each unknown."""
    A, B, which = _draw_pairs(respond, heads, size, rng)
    return A, B, SHIFTS[which], _ask_pairs(respond, A, B, which)


def draw_fresh_pairs(
    respond: Responses, heads: JointHeads, size: float, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """(A, B, shifts) as `ask_fresh_pairs` draws them; nothing is asked."""
    A, B, which = _draw_pairs(respond, heads, size, rng)
    return A, B, SHIFTS[which]


def _ask_pairs(respond: Responses, A: Array, B: Array, which: NDArray[np.intp]) -> Array:
    answers = np.empty(len(A))
    for k in np.unique(which):
        members = which == k
        answers[members] = respond(A[members], B[members], first=PATTERNS[k][0], last=PATTERNS[k][1])
    return answers


def _draw_pairs(
    respond: Responses, heads: JointHeads, size: float, rng: np.random.Generator
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Random pairs at which each head in turn has moderate scores, and a pattern of copies for each."""
    d, columns = heads.W.shape[1:]
    n = int(1.6 * heads.unknowns) + 16
    A = rng.standard_normal((n, d))
    A *= size / np.linalg.norm(A, axis=1)[:, None]
    B = rng.standard_normal((n, columns))
    if respond.biased:
        B[:, -1] += np.where(B[:, -1] >= 0, 0.5, -0.5)
    turn = np.arange(n) % len(heads.W)
    scores = np.einsum("hq->qh", heads.scores(A, B))[np.arange(n), turn]
    wanted = _SPREAD * (0.3 + rng.random(n) * 1.7)
    B *= (wanted / np.maximum(np.abs(scores), 0.1 * np.median(np.abs(scores))))[:, None]
    return A, _inside(respond, A, B), rng.choice(np.array([0, 1, 3, 5, 12, 14, 16]), n)
