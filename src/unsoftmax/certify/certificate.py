"""Is the model right? Fresh sequences of several lengths, sizes and shapes, never those it was learnt
from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import VERIFICATION, Ledger
from unsoftmax.models import Model

__all__ = ["Certificate", "certify"]

_CONFIDENCE = 0.99
# of the answers: more than this is wrong, however sharply the model says that they depend on its parameters
_GROSS = 1e-3
_LONGEST = 128  # rows of a sequence, where the target sets no limit of its own


@dataclass(frozen=True)
class Certificate:
    """What fresh queries showed.

    max_error: largest |answer - prediction|. max_relative_error: the same against what each sequence could
    show at most (|c| + longest row times |v|, times one plus the spread of scores). n_queries: fresh queries
    compared.
    failed: the name of the kind of sequence that deviated most, when that was more than allowed. With
    `confidence`, less than `fraction` of sequences drawn like these deviate by more than max_relative_error.
    It says nothing of sequences unlike these: no deviation found is not equality; caveat names what is known
    to escape them.
    """

    passed: bool
    max_error: float
    max_relative_error: float
    allowed: float
    n_queries: int
    confidence: float
    fraction: float
    lengths: tuple[int, ...]
    sizes: tuple[float, ...]
    by_kind: dict[str, float]
    failed: str | None = None
    caveat: str = ""

    @property
    def statement(self) -> str:
        """The certificate in one sentence."""
        if not self.passed:
            return (
                f"the model deviates on fresh queries: {self.max_relative_error:.2g} relative, allowed "
                f"{self.allowed:.1g}, worst on '{self.failed}'" + (f"; {self.caveat}" if self.caveat else "")
            )
        return (
            f"{self.n_queries} fresh sequences of {_in_words(self.lengths)} rows deviate by at most "
            f"{self.max_error:.2g} "
            f"({self.max_relative_error:.1g} relative): with {self.confidence:.0%} confidence "
            f"fewer than {self.fraction:.1%} of sequences drawn like these deviate more"
            + (f"; {self.caveat}" if self.caveat else "")
        )


def certify(
    ledger: Ledger,
    model: Model,
    rng: np.random.Generator,
    *,
    allowed: float | None = None,
    tolerance: float = 0.0,
    caveat: str = "",
    deviation: Callable[[Array, Array], Array] | None = None,
    repeats: int = 1,
) -> Certificate:
    """Compares the model with fresh answers and bills them to verification. `tolerance`: how far an answer
    may be off by itself.

    deviation, repeats: see `Learned`.
    """
    allowed = model.exact_at if allowed is None else allowed
    errors: list[Array] = []
    relative: list[Array] = []
    by_kind: dict[str, float] = {}
    lengths: set[int] = set()
    sizes = _sizes(model, ledger.input_bound)
    with ledger.phase(VERIFICATION):
        for kind, batch in _sequences(model, sizes, ledger, rng):
            answers = (
                ledger.ask(batch)
                if repeats == 1
                else np.median([ledger.ask(batch) for _ in range(repeats)], axis=0)
            )
            predictions = model(batch)
            error = _largest(answers - predictions if deviation is None else deviation(answers, predictions))
            unexplained = np.maximum(error - tolerance, 0.0)
            scale = model.sensitivity(batch)
            if (
                deviation is None and tolerance > 0.0
            ):  # whatever the scores: nothing explains an error as large as the answers themselves
                reach = max(float(np.abs(answers).max()), float(np.abs(predictions).max()))
                scale = np.minimum(scale, max(_GROSS / allowed, 100.0) * reach) if allowed > 0.0 else scale
            ratio = np.where(
                unexplained == 0.0, 0.0, unexplained / np.where(scale > 0, scale, np.finfo(float).tiny)
            )
            ratio = np.where(np.isnan(ratio), np.inf, ratio)  # what cannot be computed is no agreement
            errors.append(error)
            relative.append(ratio)
            lengths.add(batch.shape[1])
            by_kind[kind] = max(by_kind.get(kind, 0.0), float(ratio.max()))
        repeated = _repeats(ledger, model, tolerance) if repeats == 1 else None
        if repeated is not None:
            by_kind["early queries asked again"] = repeated
    all_errors, all_ratios = np.concatenate(errors), np.concatenate(relative)
    worst = {kind: ratio for kind, ratio in by_kind.items() if ratio > allowed}
    n = len(all_errors)
    return Certificate(
        passed=not worst,
        max_error=float(all_errors.max()),
        max_relative_error=max(float(all_ratios.max()), *by_kind.values()),
        allowed=allowed,
        n_queries=n,
        confidence=_CONFIDENCE,
        fraction=float(1.0 - (1.0 - _CONFIDENCE) ** (1.0 / n)),
        lengths=tuple(sorted(lengths)),
        sizes=tuple(float(f"{size:.3g}") for size in sizes),
        by_kind=by_kind,
        failed=max(worst, key=lambda kind: worst[kind]) if worst else None,
        caveat=caveat,
    )


def _sizes(model: Model, bound: float | None) -> list[float]:
    """Norms of rows: plain unit ones, those at which the model's scores are weak, moderate and saturated, and
    the longest allowed."""
    strength = model.score_strength()
    natural = 1.0 / np.sqrt(strength) if strength > 0 else 1.0
    sizes = sorted({1.0, np.sqrt(model.width), 0.3 * natural, natural, 2.0 * natural, 6.0 * natural})
    if bound is not None:
        sizes = sorted({min(size, bound) for size in (*sizes, bound)})
    return [float(size) for size in sizes]


def _sequences(
    model: Model, sizes: list[float], ledger: Ledger, rng: np.random.Generator
) -> Iterator[tuple[str, Array]]:
    """Kinds of sequences, each with its name."""
    d = model.width
    limit = ledger.oracle.spec.max_length or _LONGEST
    middle = sizes[len(sizes) // 2]
    for length, count in ((1, 4), (2, 4), (3, 4), (5, 2), (9, 2), (17, 2)):
        if length <= limit:
            for size in sizes:
                yield _named(length), _rows(rng, (count, length, d), size)
    others = [
        4,
        *range(6, 9),
        *range(10, 17),
        33,
        64,
        int(rng.integers(18, 64)),
        int(rng.integers(65, _LONGEST + 1)),
    ]
    for length in sorted(set(others)):
        if length <= limit:
            yield _named(length), _rows(rng, (2, length, d), middle)
    if limit >= 4:
        base = _rows(rng, (4, 4, d), middle)
        yield "the same rows in another order", base[:, [2, 0, 1, 3]]
        yield "the same rows in the first order", base
        yield "rows moved by a millionth", base + 1e-6 * _rows(rng, (4, 4, d), middle)
        copies = base.copy()
        copies[:, 1] = copies[:, 0]
        copies[:, 2] = copies[:, 3]
        yield "repeated rows", copies
        silent = base.copy()
        silent[:, 1] = 0.0
        yield "rows of zeros", silent
        mixed = base * np.array([1.0, 1e-3, 0.1, 1.0])[:, None]
        yield "rows of mixed sizes", mixed
        units = np.zeros((4, 4, d))
        units[np.arange(4)[:, None], np.arange(4)[None], rng.integers(0, d, (4, 4))] = middle
        yield "unit rows", units
        for alone in _rows(rng, (3, 2, d), middle):
            yield "one sequence a call", alone[None]


def _in_words(lengths: tuple[int, ...]) -> str:
    """'1 to 17, 33 and 64' for (1, 2, ..., 17, 33, 64)."""
    runs: list[list[int]] = []
    for length in lengths:
        if runs and length == runs[-1][-1] + 1:
            runs[-1].append(length)
        else:
            runs.append([length])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _named(length: int) -> str:
    if length <= 3:
        return ("one row", "two rows", "three rows")[length - 1]
    return "4 to 16 rows" if length <= 16 else "17 to 64 rows" if length <= 64 else "more than 64 rows"


def _rows(rng: np.random.Generator, shape: tuple[int, int, int], size: float) -> Array:
    """Random rows of norm between half of size and size."""
    rows = rng.standard_normal(shape)
    rows *= (size * rng.uniform(0.5, 1.0, shape[:2]) / np.sqrt(np.einsum("bnd,bnd->bn", rows, rows)))[
        ..., None
    ]
    return rows


def _repeats(ledger: Ledger, model: Model, tolerance: float) -> float | None:
    """Largest change of early answers, relative to what they could show; asked in another order than at
    first."""
    worst: float | None = None
    for sequence, before in list(reversed(ledger.witnesses))[-8:]:
        now = ledger.ask(sequence[None])[0]
        scale = float(model.sensitivity(sequence[None])[0])
        change = max(float(np.max(np.abs(now - before))) - 2.0 * tolerance, 0.0)
        worst = max(worst or 0.0, change / scale if scale > 0 else change)
    return worst


def _largest(difference: Array) -> Array:
    size = np.abs(difference)
    return size if size.ndim == 1 else size.max(axis=1)
