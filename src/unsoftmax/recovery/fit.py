"""`fit`: learn one head from recorded sequences and answers, without a single new query, and say when they do
not determine it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unsoftmax.arrays import EPS, Array, logit
from unsoftmax.certify import Certificate
from unsoftmax.errors import UsageError
from unsoftmax.learners import Assumption, Claim, QueryCount
from unsoftmax.ledger import Bill
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import NotIdentifiable, Status, Stop, Unresolved
from unsoftmax.recovery.result import Result
from unsoftmax.solvers import FixedRank
from unsoftmax.solvers.head_fits.recorded_pairs import Indices, Pairs, State, annealed, descend, uncertainty

__all__ = ["fit"]

_SPARE = 3  # held-out records below which agreement proves nothing
_FIRST_STARTS = 2  # of every rank, before any rank gets all its starts
_LINEAR_RESTARTS = 10  # of the fit to small scores, which is cheap
_FACTOR = 6.0  # standard errors: beyond the largest of many thousand Gaussian ones
_EXACT = 1e-9  # as `SingleHead.exact_at`
_USEFUL = 0.1  # relative error from which a recovery is none

_CLAIM = Claim(
    title="One head from recorded answers",
    source="this library; the key identity of arXiv 2601.16873 on pairs that somebody else chose",
    assumptions=(
        Assumption("v is not zero, no biases", "held-out records"),
        Assumption("more records than parameters", "counted"),
        Assumption("the records see every direction of W and v", "conditioning of the derivatives"),
    ),
    queries=QueryCount("0 (at least r(2d - r) + d + 3 records)", "exact", lambda size: 0),
    recovers="W and v",
    symmetry="none",
)


def fit(
    sequences: object,
    answers: object,
    *,
    rank: int | None = None,
    tolerance: float = 1e-8,
    restarts: int = 30,
    seed: int = 0,
) -> Result:
    """Learns a head without biases from records: sequences of one or two rows, and their answers.

    sequences: (B, 2, d), (B, 1, d), or a list of (1, d) and (2, d) arrays. rank: of W; None tries 0, 1, 2,
    ... as far as the records can decide.
    tolerance: relative residual on held-out records that counts as agreement. restarts: starts of the descent
    for each rank, two at least. One-row records are not needed, but with d of them v is known at once, and
    the rest is easier.

    Records that do not determine the head end as NOT_IDENTIFIABLE, with the number that would.

    >>> import numpy as np, unsoftmax
    >>> head = unsoftmax.random_single_head(6, 1, seed=0)
    >>> X = np.random.default_rng(1).standard_normal((40, 2, 6))
    >>> result = unsoftmax.fit(X, head(X))
    >>> str(result.status), result.model.rank, head.distance(result.model) < 1e-9
    ('EXACT', 1, True)
    """
    pairs = _records(sequences, answers)
    if rank is not None and (
        isinstance(rank, bool) or not isinstance(rank, int | np.integer) or not 0 <= rank <= pairs.A.shape[1]
    ):
        raise UsageError(
            f"rank must be a whole number from 0 to {pairs.A.shape[1]}, not {rank!r}; or None, to search it"
        )
    rng = np.random.default_rng([0xF17, int(seed)])
    model: SingleHead | None = None
    certificate: Certificate | None = None
    bound: float | None = None
    try:
        state, held = _search(pairs, rank, tolerance, restarts, rng)
        model, bound = _certified(pairs, state)
        certificate = _held_out(pairs[held], state, tolerance)
        status = Status.EXACT if bound <= _EXACT else Status.WITHIN_BOUND
        reason = (
            f"{len(held)} held-out records of {len(pairs)} deviate by at most "
            f"{certificate.max_relative_error:.1g} relative; no query was made"
        )
    except Stop as stop:
        status, reason = stop.status, stop.reason
    return Result(status, reason, Bill(), "single-head", pairs.A.shape[1], _CLAIM, model, certificate, bound)


def _records(sequences: object, answers: object) -> Pairs:
    if isinstance(sequences, np.ndarray) and sequences.dtype != object:
        items: list[Array] = list(np.asarray(sequences, dtype=np.float64))
    elif isinstance(sequences, Iterable):
        items = [np.asarray(item, dtype=np.float64) for item in sequences]
    else:
        raise UsageError(
            f"sequences must be an array (B, N, d) or a list of (N, d) arrays, not {type(sequences).__name__}"
        )
    y = np.asarray(answers, dtype=np.float64)
    if y.shape != (len(items),):
        raise UsageError(f"{len(items)} sequences but answers of shape {y.shape}; pass one number a sequence")
    if not items:
        raise UsageError("there are no records; pass at least one sequence and its answer")
    width = items[0].shape[-1] if items[0].ndim else 0
    for item in items:
        if item.ndim != 2 or item.shape[1] != width or width < 1:
            raise UsageError(f"a sequence must be (N, {width}), not {item.shape}")
        if item.shape[0] not in (1, 2):
            raise UsageError(
                f"a sequence has {item.shape[0]} rows; fit reads sequences of one or two rows: leave the "
                "others out"
            )
        if not np.isfinite(item).all():
            raise UsageError("a sequence holds NaN or infinity; leave it out")
    if not np.isfinite(y).all():
        raise UsageError("the answers hold NaN or infinity; leave those records out")
    B = np.stack([item[-1] for item in items])
    return Pairs(np.stack([item[0] for item in items]) - B, B, y)


def _search(
    pairs: Pairs, rank: int | None, tolerance: float, restarts: int, rng: np.random.Generator
) -> tuple[State, Indices]:
    """The state of lowest rank that predicts the held-out records, and which these were."""
    n, d = pairs.A.shape
    if not pairs.y.any():
        raise NotIdentifiable("every recorded answer is zero: v = 0 fits, and then W leaves no trace")
    n_two = int(np.count_nonzero(pairs.A.any(axis=1)))
    spare = max(_SPARE, n // 20)
    determined = [r for r in range(d + 1) if r * (2 * d - r) + d + spare <= n and r * (2 * d - r) <= n_two]
    wanted = determined if rank is None else [int(rank)]
    if not wanted or (rank is not None and rank not in determined):
        r = rank or 0
        raise NotIdentifiable(
            f"under-determined: {n} records ({n_two} with two rows), but rank {r} at width {d} has "
            f"{r * (2 * d - r) + d} parameters; at least {r * (2 * d - r) + d + spare} records are needed, "
            f"{r * (2 * d - r)} of them with two rows"
        )
    best = np.inf
    for first, last in (
        (0, _FIRST_STARTS),
        (_FIRST_STARTS, restarts),
    ):  # a few starts of every rank before the rest of any
        for r in wanted:
            for start in range(first, last):
                n_held = max(_SPARE, min(n // 10, n - d - r * (2 * d - r)))
                order = rng.permutation(n)  # an unlucky choice of records is not made twice
                held, used = order[:n_held], pairs[order[n_held:]]
                end, residual = descend(used, _start(used, r, start, rng))
                loss = max(residual, _relative(pairs[held], end))
                best = min(best, loss)
                if loss <= tolerance:
                    return descend(pairs, _at_its_rank(end))[0], held
    top = max(wanted)
    more = (top + 1) * (2 * d - top - 1) + d + spare
    raise Unresolved(
        f"no head of rank {'up to ' if rank is None else ''}{top} without biases predicts the held-out "
        f"records (best residual {best:.1g}, allowed {tolerance:.1g}) after {max(restarts, _FIRST_STARTS)} "
        "starts each"
        + (
            f"; a larger rank is under-determined by {n} records: rank {top + 1} needs at least {more}"
            if rank is None and top < d
            else ""
        )
        + "; record more pairs, or give more restarts"
    )


def _at_its_rank(state: State) -> State:
    """Without factors that came out as nothing: a rank above the true one was tried first."""
    sizes = np.linalg.norm(state.left, axis=0) * np.linalg.norm(state.right, axis=0)
    kept = sizes > 1e-6 * sizes.max(initial=0.0)
    return State(state.left[:, kept], state.right[:, kept], state.v)


def _start(pairs: Pairs, rank: int, number: int, rng: np.random.Generator) -> State:
    """Where to begin: v from a regression; W from the scores that it makes of the answers where it is exact,
    annealed otherwise."""
    d = pairs.A.shape[1]
    single = ~pairs.A.any(axis=1)
    if np.linalg.matrix_rank(pairs.B[single]) == d:
        v = _regression(pairs.B[single], pairs.y[single])
        return _from_scores(pairs, v, rank, rng) if number == 0 else annealed(pairs, v, rank, rng)
    # On average the first row has half of the weight, whatever the score: y = b·g + a·v/2 + ...
    if number % 2 == 0:
        return annealed(pairs, _regression(pairs.B + 0.5 * pairs.A, pairs.y), rank, rng)
    return annealed(
        pairs, _regression(np.concatenate([pairs.B, 0.5 * pairs.A], axis=1), pairs.y)[d:], rank, rng
    )


def _from_scores(pairs: Pairs, v: Array, rank: int, rng: np.random.Generator) -> State:
    """With v known, answers are scores, and W is a linear problem."""
    signal = pairs.A @ v
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = (pairs.y - pairs.B @ v) / signal
    t = logit(np.nan_to_num(weights, nan=-1.0))
    good = np.abs(t) < 20.0
    t, signal, weights = t[good], signal[good], weights[good]
    trust = 1.0 / (pairs.rounding(v)[good] / np.abs(signal) / (weights * (1.0 - weights)))
    trust = np.minimum(trust / np.median(trust), 1.0) if len(trust) else trust
    found = (
        FixedRank(rank, restarts=_LINEAR_RESTARTS, hold_out=False)
        .solve(pairs.A[good] * trust[:, None], pairs.B[good], t * trust, rng)
        .matrix
    )
    return State(found.left, found.right, v)


def _certified(pairs: Pairs, state: State) -> tuple[SingleHead, float]:
    """The head and its error bound, or the reason why the records do not determine it."""
    w_error, v_error = uncertainty(pairs, state)
    w_norm, v_norm = float(np.linalg.norm(state.left @ state.right.T)), float(np.linalg.norm(state.v))
    bound = _FACTOR * max(w_error / (w_norm or 1.0), v_error / (v_norm or 1.0)) + 16 * float(EPS)
    if not bound <= _USEFUL:
        raise NotIdentifiable(
            f"under-determined: the records agree with a head of rank {state.left.shape[1]}, but they leave "
            f"directions of W or v unseen (relative error up to {bound:.1g}); record pairs in other "
            "directions"
        )
    W = (state.left, state.right) if state.left.shape[1] < len(state.v) else state.left @ state.right.T
    return SingleHead(W, state.v), float(bound)


def _held_out(held: Pairs, state: State, tolerance: float) -> Certificate:
    error = np.abs(state.answers(held) - held.y)
    relative = error / np.maximum(
        np.abs(held.A) @ np.abs(state.v) + np.abs(held.B) @ np.abs(state.v), np.finfo(float).tiny
    )
    lengths = tuple(sorted({1 if not row.any() else 2 for row in held.A}))
    n = len(held)
    return Certificate(
        passed=True,
        max_error=float(error.max()),
        max_relative_error=float(relative.max()),
        allowed=tolerance,
        n_queries=n,
        confidence=0.99,
        fraction=float(1.0 - 0.01 ** (1.0 / n)),
        lengths=lengths,
        sizes=(),
        by_kind={"held-out records": float(relative.max())},
    )


def _relative(pairs: Pairs, state: State) -> float:
    return float(np.linalg.norm(state.answers(pairs) - pairs.y) / (np.linalg.norm(pairs.y) or 1.0))


def _regression(rows: Array, values: Array) -> Array:
    return np.asarray(np.linalg.lstsq(rows, values, rcond=None)[0], dtype=np.float64)
