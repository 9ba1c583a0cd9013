"""What an oracle is: a callable on batches of sequences, with a spec that says what it tells about itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, all_finite
from unsoftmax.errors import NonFiniteAnswers, OracleFault, UsageError, VectorAnswers
from unsoftmax.float_formats import FloatFormat
from unsoftmax.oracles.domain import Ball, Domain, FiniteRows, Space, TokenIds

__all__ = [
    "LARGEST_WIDTH",
    "Oracle",
    "OracleSpec",
    "TellsOutputs",
    "as_numbers",
    "check_width",
    "checked_answers",
    "counts_retries",
    "domain_of",
    "named_parts",
    "retries_of",
]

# A square matrix of this width has 8 TB, so no target of a larger one can be recovered. Sizes that somebody
# else announces are held against it before anything is allocated.
LARGEST_WIDTH = 1 << 20
# Of a dictionary: how many of its names a message tells, and how long they may be. Longer ones are left out,
# because a cut name may hold the half of a secret, which nobody would recognise to hide it.
_PARTS, _NAME = 4, 40


@dataclass(frozen=True)
class OracleSpec:
    """What an oracle tells about itself. Everything is optional: a bare callable tells nothing.

    width: number of columns of a sequence. outputs: None for one number per query, m for vectors (B, m).
    input_bound: largest norm of a row. max_length: largest number of rows. max_batch: largest number of
    sequences per call.
    deterministic: False when asking again may give another answer. name: for people.
    fingerprint: what a ledger is bound to: 'content:...' where it pins the function itself, any other text
    where it only names the target.
    domain: token ids or a finite list of rows; None for all rows of `width` columns within `input_bound`.
    arithmetic: the format in which its steps are computed, where it tells that this is shorter than float64.
    log_probabilities: an answer is one for every token that may come next, so the target is a language model.
    """

    width: int | None = None
    outputs: int | None = None
    input_bound: float | None = None
    max_length: int | None = None
    max_batch: int | None = None
    deterministic: bool = True
    name: str = "target"
    fingerprint: str | None = None
    domain: FiniteRows | TokenIds | None = None
    log_probabilities: bool = False
    arithmetic: FloatFormat | None = None


@runtime_checkable
class Oracle(Protocol):
    """Maps a float64 batch (B, N, d) to answers (B,), or (B, m) when `spec.outputs` is m. One sequence is one
    query.

    Where `spec.domain` is `TokenIds` the batch is int64 (B, N).
    """

    @property
    def spec(self) -> OracleSpec: ...

    def __call__(self, batch: Array, /) -> Array: ...


def check_width(width: object) -> int:
    """The width as a positive int, or a `UsageError` that says what is wrong with it.

    >>> check_width(8)
    8
    """
    if width is None:
        raise UsageError(
            "the target does not tell its width; pass width=d, the number of columns of a sequence, or "
            "vocabulary=V if it takes token ids"
        )
    if isinstance(width, bool) or not isinstance(width, int | np.integer):
        raise UsageError(
            f"width must be a whole number, not {width!r}; pass width=d, the number of columns of a sequence"
        )
    if width < 1:
        raise UsageError(
            f"width must be at least 1, not {int(width)}; pass the number of columns of a sequence"
        )
    if width > LARGEST_WIDTH:
        raise UsageError(f"width must be at most {LARGEST_WIDTH:,}, not {int(width):,}")
    return int(width)


def domain_of(spec: OracleSpec, *, width: int | None = None, input_bound: float | None = None) -> Domain:
    """What may be sent to an oracle, when the user says `width` and `input_bound` where the oracle does not.

    >>> domain_of(OracleSpec(width=4), input_bound=2.0)
    Ball(width=4, radius=2.0)
    """
    told = spec.width if spec.domain is None else spec.domain.width
    if width is not None and isinstance(spec.domain, TokenIds) and width != told:
        raise UsageError("width is for targets that take rows, and this one takes token ids; leave out width")
    if width is not None and told is not None and width != told:
        raise UsageError(f"width {width} but the target has width {told}; pass width={told}")
    bound = _tighter(input_bound, spec.input_bound)
    if spec.domain is not None:
        if bound is not None:
            raise UsageError(
                "input_bound is for targets that take any rows; this one takes a finite list of them, so "
                "leave it out"
            )
        return spec.domain
    columns = check_width(width if width is not None else told)
    return Space(columns) if bound is None else Ball(columns, bound)


def _tighter(asked: float | None, told: float | None) -> float | None:
    for bound in (asked, told):
        if bound is not None and not (np.isfinite(bound) and bound > 0):
            raise UsageError(f"input_bound must be a finite number > 0, not {bound!r}")
    if asked is None or told is None:
        return asked if told is None else told
    return min(asked, told)


def as_numbers(raw: Any) -> NDArray[Any]:
    """What a target returned, as an array; of a torch tensor its values, wherever and in whatever format it
    holds them.

    >>> as_numbers([[1], [2]]).shape
    (2, 1)
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(raw, torch.Tensor):
        values = raw.detach().to("cpu")
        raw = (values.double() if values.is_floating_point() else values).numpy()
    try:
        answers = np.asarray(raw)
    except Exception as error:
        why = "its parts differ in shape" if isinstance(raw, list | tuple) else str(error)
        raise OracleFault(
            f"the target answered with {type(raw).__name__}, which is not an array ({why}); return an array "
            "of floats"
        ) from error
    if answers.dtype.kind not in "fiub":
        of = "" if answers.dtype == np.object_ else f" of {answers.dtype}"
        raise OracleFault(
            f"the target answered with {type(raw).__name__}{of} instead of real numbers; return an array "
            f"of floats{named_parts(raw)}"
        )
    return answers


def named_parts(raw: Any) -> str:
    """What a dictionary of answers holds, in words; empty for anything else.

    >>> named_parts({"logits": [0.5]})
    ", such as its part 'logits'"
    """
    if not isinstance(raw, Mapping):
        return ""
    names = [text for text in map(repr, raw) if len(text) <= _NAME][:_PARTS]
    return f", such as its part {' or '.join(names)}" if names else ""


def checked_answers(raw: Any, n_queries: int, outputs: int | None) -> Array:
    """Answers as float64 (B,) or (B, m); anything else is an `OracleFault` with the reason.

    >>> checked_answers([[1], [2]], 2, None)
    array([1., 2.])
    """
    expected = (n_queries,) if outputs is None else (n_queries, outputs)
    plain = type(raw) is np.ndarray and raw.dtype == np.float64 and raw.shape == expected
    if plain and all_finite(raw):  # as most are
        return np.array(raw)
    if isinstance(raw, np.ma.MaskedArray):
        raise OracleFault("the target answered with a masked array; return plain numbers")
    answers = np.array(as_numbers(raw), dtype=np.float64)
    if outputs is None and answers.shape == (n_queries, 1):
        answers = answers[:, 0]
    if answers.shape != expected:
        queries = "one query" if n_queries == 1 else f"{n_queries} queries"
        seen = f"the target answered {queries} with shape {answers.shape} instead of {expected}"
        if outputs is None and answers.ndim == 2 and len(answers) == n_queries and answers.shape[1] > 1:
            m = answers.shape[1]
            raise VectorAnswers(f"{seen}; for vector answers pass outputs={m}", m, n_queries)
        if answers.ndim == 3 and len(answers) == n_queries:
            seen += "; it answers every row: pass row='last' (first, mean, all), or readout=WEIGHTS"
        elif outputs is not None and answers.shape == (n_queries,):
            seen += "; its answers are single numbers: leave out outputs"
        elif isinstance(raw, tuple) and len(raw) != n_queries:
            seen += f"; it returned a tuple of {len(raw)}: return the part that holds the answers"
        elif answers.shape[:1] != (n_queries,):
            seen += "; return one number, or one vector, for each sequence"
        raise OracleFault(seen)
    bad = ~np.isfinite(answers)
    if bad.any():
        hit = np.asarray(bad.reshape(n_queries, -1).any(axis=1))
        raise NonFiniteAnswers(
            f"the target answered {int(hit.sum())} of {n_queries} queries with NaN or infinity (first: query "
            f"{int(hit.argmax())} of the batch); an answer must be a finite number. If large inputs overflow "
            "inside the target, pass input_bound"
        )
    return answers


@runtime_checkable
class TellsOutputs(Protocol):
    """An oracle that can be read as one with vector answers."""

    def with_outputs(self, outputs: int) -> Oracle:
        """The same target, whose answers hold that many numbers."""


def retries_of(oracle: object) -> int:
    """How often the oracle, or the one that it wraps, has sent a request again; 0 for oracles that never do.

    >>> retries_of(lambda X: X)
    0
    """
    counts = counts_retries(oracle)
    return 0 if counts is None else int(counts.retries)


def counts_retries(oracle: Any) -> Any:
    """The oracle, or the one that it wraps, that counts how often it sent a request again; None where none
    does."""
    while oracle is not None and not hasattr(oracle, "retries"):
        oracle = getattr(oracle, "inner", getattr(oracle, "function", None))
    return oracle
