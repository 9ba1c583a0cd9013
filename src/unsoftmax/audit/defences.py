"""Defences as wrappers around a target: what each does to the attack, and what it does to honest users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles import (
    BoundedInputs,
    Ids,
    Labels,
    LowPrecision,
    Noisy,
    Oracle,
    OracleSpec,
    Rounded,
    WithinTolerance,
)

__all__ = ["Defence", "LimitedLength", "honest_ids", "honest_sequences", "usual_defences"]

KINDS = ("decimals", "tolerance", "noise", "precision", "labels", "input-bound", "max-length", "budget")
_WHOLE = ("decimals", "max-length", "budget")
_NAMED = ("precision",)  # the value is the name of a float format
_ALONE = ("labels",)  # no value: answers are no numbers any more


class LimitedLength:
    """Refuses sequences of more than `rows` rows; tells the limit in its spec.

    >>> from unsoftmax.oracles import FunctionOracle
    >>> LimitedLength(FunctionOracle(lambda X: X[:, -1, 0]), 4).spec.max_length
    4
    """

    def __init__(self, inner: Oracle, rows: int) -> None:
        if rows < 1:
            raise UsageError(f"the largest number of rows must be at least 1, not {rows!r}")
        self.inner, self.rows = inner, int(rows)

    @property
    def spec(self) -> OracleSpec:
        return replace(self.inner.spec, max_length=self.rows)

    def __call__(self, batch: Array, /) -> Array:
        if batch.shape[1] > self.rows:
            raise OracleFault(
                f"a sequence of {batch.shape[1]} rows was sent, but the target takes at most {self.rows}"
            )
        return self.inner(batch)


@dataclass(frozen=True)
class Defence:
    """One defence or several at once: pairs (kind, value), the kinds being those of `KINDS`.

    >>> Defence.parse("decimals=2+input-bound=10").label
    'rounded to 2 decimals + rows of norm ≤ 10'
    """

    parts: tuple[tuple[str, float | str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Defence:
        """The defence of a text such as 'decimals=2', 'labels' or 'precision=float16+input-bound=10'."""
        parts: list[tuple[str, float | str]] = []
        for piece in filter(None, text.split("+")):
            kind, _, value = piece.strip().partition("=")
            if kind not in KINDS:
                raise UsageError(f"there is no defence {kind!r}; choose from {', '.join(KINDS)}, joined by +")
            parts.append((kind, value if kind in _NAMED else 1.0 if kind in _ALONE else _number(kind, value)))
        defence = cls(tuple(parts))
        defence.around(_Nothing())  # refuses values out of range now rather than in the middle of a run
        return defence

    @property
    def label(self) -> str:
        """For people."""
        return " + ".join(_label(kind, value) for kind, value in self.parts) or "no defence"

    @property
    def budget(self) -> int | None:
        """The query budget, when it is part of the defence."""
        return next((int(float(value)) for kind, value in self.parts if kind == "budget"), None)

    def around(self, oracle: Oracle, seed: int = 0) -> Oracle:
        """The target behind the defence."""
        for kind, value in self.parts:
            oracle = _AROUND[kind](oracle, value, seed)
        return oracle

    def price_for_users(self, model: Oracle, sequences: Array, seed: int = 0) -> tuple[float, float]:
        """Distortion of honest answers (root mean square, relative to the answers') and the share of honest
        sequences that is refused.

        Labels are read as well as labels can be: by the best two numbers for them.
        """
        true = model(sequences)
        bound = next((float(value) for kind, value in self.parts if kind == "input-bound"), np.inf)
        longest = next((float(value) for kind, value in self.parts if kind == "max-length"), np.inf)
        norms = _norms(sequences)
        taken = (norms <= bound) & (sequences.shape[1] <= longest)
        if not taken.any():
            return 1.0, 1.0
        given = self.around(model, seed)(sequences[taken])
        size = float(np.sqrt(np.mean(true[taken] ** 2))) or 1.0
        if any(kind in _ALONE for kind, _ in self.parts):
            design = np.column_stack([np.ones(len(given)), given])
            given = design @ np.linalg.lstsq(design, true[taken], rcond=None)[0]
        return float(np.sqrt(np.mean((given - true[taken]) ** 2))) / size, float(1.0 - taken.mean())


def usual_defences(honest: Array, answers: Array, parameters: int) -> list[Defence]:
    """No defence, each usual one, and pairs with the input bound. Sizes follow the honest sequences and their
    answers.

    The input bound is the longest honest row: the tightest that refuses nobody.
    """
    bound = float(f"{1.0005 * _norms(honest).max():.4g}")
    typical = float(np.sqrt(np.mean(answers**2))) or 1.0
    small = float(f"{0.01 * typical:.2g}")
    limit: tuple[str, float | str] = ("input-bound", bound)
    alone: list[tuple[str, float | str]] = [
        ("decimals", 4.0),
        ("decimals", 2.0),
        ("decimals", 1.0),
        ("tolerance", small),
        ("noise", float(f"{small / 3**0.5:.2g}")),  # as large as the fixed error, in the mean
        ("precision", "float32"),
        ("precision", "float16"),
        ("labels", 1.0),
    ]
    others: list[tuple[str, float | str]] = [
        ("max-length", float(honest.shape[1])),
        ("budget", float(parameters // 2)),
    ]
    if honest.ndim == 2:  # ids have no size
        return [Defence(), *(Defence((part,)) for part in [*alone, *others])]
    others.insert(0, limit)
    singles = [Defence((part,)) for part in [*alone, *others]]
    pairs = [Defence((part, limit)) for part in alone]
    pairs.append(Defence((("decimals", 2.0), ("tolerance", small))))
    return [Defence(), *singles, *pairs]


def honest_sequences(width: int, seed: int = 0, *, n: int = 256, length: int = 8) -> Array:
    """Sequences of standard normal rows, where no others are given."""
    return np.random.default_rng([0x40E5, seed]).standard_normal((n, length, width))


def honest_ids(vocabulary: int, longest: int | None, seed: int = 0, *, n: int = 256, length: int = 8) -> Ids:
    """Sequences of token ids, each as frequent as words are, where no others are given."""
    rng = np.random.default_rng([0x40E5, seed])
    share = 1.0 / (1.0 + np.arange(vocabulary))
    size = length if longest is None else min(length, longest)
    return np.asarray(rng.permutation(vocabulary)[rng.choice(vocabulary, (n, size), p=share / share.sum())])


def _norms(sequences: Array) -> Array:
    """The longest row of every sequence; ids have none."""
    if sequences.ndim == 2:
        return np.zeros(len(sequences))
    return np.asarray(np.linalg.norm(sequences, axis=2).max(axis=1))


def _checked_budget(oracle: Oracle, value: float | str, seed: int) -> Oracle:
    """A budget changes no answer; it ends a run."""
    if float(value) < 0:
        raise UsageError(f"a query budget must be at least 0, not {float(value):g}")
    return oracle


_AROUND: dict[str, Callable[[Oracle, float | str, int], Oracle]] = {
    "decimals": lambda oracle, value, seed: Rounded(oracle, int(float(value))),
    "tolerance": lambda oracle, value, seed: WithinTolerance(oracle, float(value), seed),
    "noise": lambda oracle, value, seed: Noisy(oracle, float(value), seed),
    "precision": lambda oracle, value, seed: LowPrecision(oracle, str(value)),
    "labels": lambda oracle, value, seed: Labels(oracle),
    "input-bound": lambda oracle, value, seed: BoundedInputs(oracle, float(value)),
    "max-length": lambda oracle, value, seed: LimitedLength(oracle, int(float(value))),
    "budget": _checked_budget,
}


def _number(kind: str, value: str) -> float:
    """The number of a defence, finite and, where it counts something, whole."""
    try:
        number = float(value)
    except ValueError:
        number = np.nan
    whole = kind in _WHOLE
    if not np.isfinite(number) or (whole and number != int(number)):
        raise UsageError(
            f"the defence {kind}={value!r} needs a number{', a whole one' if whole else ''}; write for "
            f"instance {kind}=2"
        )
    return number


class _Nothing:
    """An oracle that is never asked."""

    spec = OracleSpec()

    def __call__(self, batch: Array, /) -> Array:
        raise OracleFault("nothing answers here")  # pragma: no cover - only wrapped


def _label(kind: str, value: float | str) -> str:
    if kind == "precision":
        return f"{value} answers"
    number = float(value)
    return {
        "decimals": f"rounded to {number:.0f} decimal{'' if number == 1 else 's'}",
        "tolerance": f"fixed error up to {number:.3g}",
        "noise": f"random noise of {number:.3g}",
        "labels": "labels only",
        "input-bound": f"rows of norm ≤ {number:.4g}",
        "max-length": f"at most {number:.0f} rows",
        "budget": f"at most {number:,.0f} queries",
    }[kind]
