"""Defences as wrappers around a target: what each does to the attack, and what it does to honest users."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from unsoftmax.arrays import Array, longest_rows
from unsoftmax.audit.defences.detectors import Detector, Prada, StructuredRows, Watched, false_alarms
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

__all__ = [
    "Defence",
    "DefenceKind",
    "LimitedLength",
    "bounds_on_rows",
    "honest_ids",
    "honest_sequences",
    "number_of",
    "parts_of",
    "usual_defences",
]


class DefenceKind(StrEnum):
    """What a defence does; the value is its name on the command line."""

    DECIMALS = "decimals"
    TOLERANCE = "tolerance"
    NOISE = "noise"
    PRECISION = "precision"
    LABELS = "labels"
    INPUT_BOUND = "input-bound"
    MAX_LENGTH = "max-length"
    BUDGET = "budget"
    ACCOUNTS = "accounts"
    PRADA = "prada"
    STRUCTURED_ROWS = "structured-rows"
    SIMILAR_NEURONS = "similar-neurons"


_HONEST, _HONEST_ROWS = 256, 8  # sequences and their rows: a share refused is known to 3 % or better
_ROW_BOUNDS = (1e6, 1e4, 3e3, 1e3, 500.0, 300.0, 100.0, 30.0, 1.0)  # over the longest honest row
_WHOLE = (DefenceKind.DECIMALS, DefenceKind.MAX_LENGTH, DefenceKind.BUDGET, DefenceKind.ACCOUNTS, "top-k")
DETECTORS: dict[str, Callable[[float], Detector]] = {
    DefenceKind.PRADA: Prada,
    DefenceKind.STRUCTURED_ROWS: StructuredRows,
}
_NAMED = (DefenceKind.PRECISION,)  # the value is the name of a float format
_ALONE = (DefenceKind.LABELS,)  # no value: answers are not numbers any more


def parts_of(text: str) -> list[tuple[str, str]]:
    """Pairs (kind, value) of a text whose parts are joined by +; that of an exponent joins nothing.

    >>> parts_of("labels + input-bound=3e+07")
    [('labels', ''), ('input-bound', '3e+07')]
    """
    pieces = (piece.strip().partition("=") for piece in re.split(r"\+(?!\d)", text) if piece.strip())
    return [(kind, value) for kind, _, value in pieces]


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
    """One defence or several at once: pairs (kind, value), the kinds being those of `DefenceKind`.

    >>> Defence.parse("decimals=2+input-bound=10").label
    'rounded to 2 decimals + rows of norm ≤ 10'
    """

    parts: tuple[tuple[str, float | str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Defence:
        """The defence of a text such as 'decimals=2', 'labels' or 'precision=float16+input-bound=10'."""
        parts: list[tuple[str, float | str]] = []
        for kind, value in parts_of(text):
            if kind not in list(DefenceKind):
                raise UsageError(
                    f"there is no defence {kind!r}; choose from {', '.join(DefenceKind)}, joined by +"
                )
            parts.append(
                (kind, value if kind in _NAMED else 1.0 if kind in _ALONE else number_of(kind, value))
            )
        defence = cls(tuple(parts))
        defence.around(_Nothing())  # refuses values out of range now rather than in the middle of a run
        return defence

    @property
    def label(self) -> str:
        """For people."""
        return " + ".join(_label(kind, value) for kind, value in self.parts) or "no defence"

    @property
    def accounts(self) -> int:
        """How many accounts the attacker has."""
        return int(self.number(DefenceKind.ACCOUNTS) or 1)

    @property
    def budget(self) -> int | None:
        """The queries of all accounts together, when a budget is part of the defence."""
        each = self.number(DefenceKind.BUDGET)
        return None if each is None else int(each) * self.accounts

    @property
    def detects(self) -> bool:
        """Whether queries are watched."""
        return any(kind in DETECTORS for kind, _ in self.parts)

    @property
    def similarity(self) -> float | None:
        """How similar neurons were made, if they were."""
        return self.number(DefenceKind.SIMILAR_NEURONS)

    def number(self, wanted: DefenceKind) -> float | None:
        """The number of this kind of defence; None where it is not a part."""
        return next((float(value) for kind, value in self.parts if kind == wanted), None)

    def around(self, oracle: Oracle, seed: int = 0) -> Oracle:
        """The target behind the defence. Detectors are new, as for new accounts."""
        for kind, value in self.parts:
            if kind in DETECTORS:
                oracle = Watched(oracle, [DETECTORS[kind](float(value)) for _ in range(self.accounts)])
            else:
                oracle = _AROUND[kind](oracle, value, seed)
        return oracle

    def unwatched(self) -> Defence:
        """The same without detectors: what it does to answers."""
        return Defence(tuple(part for part in self.parts if part[0] not in DETECTORS))

    def price_for_users(self, model: Oracle, sequences: Array, seed: int = 0) -> tuple[float, float]:
        """Distortion of honest answers (root mean square, relative to the answers') and the share of honest
        sequences that is refused.

        Labels are read as well as labels can be: by the best two numbers for them.
        """
        true = model(sequences)
        norms = _norms(sequences)
        bound, longest = (self.number(kind) for kind in (DefenceKind.INPUT_BOUND, DefenceKind.MAX_LENGTH))
        taken = np.full(len(norms), longest is None or sequences.shape[1] <= longest)
        taken &= bound is None or norms <= bound
        if not taken.any():
            return 1.0, 1.0
        given = self.unwatched().around(model, seed)(sequences[taken])
        size = float(np.sqrt(np.mean(true[taken] ** 2))) or 1.0
        if any(kind in _ALONE for kind, _ in self.parts):
            design = np.column_stack([np.ones(len(given)), given])
            given = design @ np.linalg.lstsq(design, true[taken], rcond=None)[0]
        refused = float(1.0 - taken.mean())
        for kind, value in self.parts:
            if kind in DETECTORS:
                refused = max(refused, false_alarms(DETECTORS[kind](float(value)), sequences[taken]))
        return float(np.sqrt(np.mean((given - true[taken]) ** 2))) / size, refused


def usual_defences(
    honest: Array, answers: Array, parameters: int, *, detectors: bool = False
) -> list[Defence]:
    """No defence, each usual one, and pairs with the input bound. Sizes follow the honest sequences and their
    answers. detectors: also those that watch queries, which take longest to get around.

    The input bound is the longest honest row: the tightest that refuses nobody.
    """
    bound = float(f"{1.0005 * _norms(honest).max():.4g}")
    typical = float(np.sqrt(np.mean(answers**2))) or 1.0
    small = float(f"{0.01 * typical:.2g}")
    limit: tuple[str, float | str] = (DefenceKind.INPUT_BOUND, bound)
    alone: list[tuple[str, float | str]] = [
        (DefenceKind.DECIMALS, 4.0),
        (DefenceKind.DECIMALS, 2.0),
        (DefenceKind.DECIMALS, 1.0),
        (DefenceKind.TOLERANCE, small),
        (DefenceKind.NOISE, float(f"{small / 3**0.5:.2g}")),  # as large as the fixed error, in the mean
        (DefenceKind.PRECISION, "float32"),
        (DefenceKind.PRECISION, "float16"),
        (DefenceKind.LABELS, 1.0),
    ]
    others: list[tuple[str, float | str]] = [
        (DefenceKind.MAX_LENGTH, float(honest.shape[1])),
        (DefenceKind.BUDGET, float(parameters // 2)),
    ]
    if honest.ndim == 2:  # ids have no size
        return [Defence(), *(Defence((part,)) for part in [*alone, *others])]
    others.insert(0, limit)
    singles = [Defence((part,)) for part in [*alone, *others]]
    pairs = [Defence((part, limit)) for part in alone]
    pairs.append(Defence(((DefenceKind.DECIMALS, 2.0), (DefenceKind.TOLERANCE, small))))
    pairs.append(Defence(((DefenceKind.BUDGET, float(parameters // 2)), (DefenceKind.ACCOUNTS, 16.0))))
    watched = [
        Defence(((DefenceKind.PRADA, 0.9),)),
        Defence(((DefenceKind.STRUCTURED_ROWS, 0.05),)),
        Defence(((DefenceKind.PRADA, 0.9), (DefenceKind.ACCOUNTS, 16.0))),
    ]
    return [Defence(), *singles, *pairs, *(watched if detectors else [])]


def bounds_on_rows(honest: Array) -> list[Defence]:
    """No defence, and bounds on the norm of rows, from a million times the longest honest row down to it:
    what depth hides, it hides behind such a bound."""
    longest = 1.0005 * float(_norms(honest).max())
    bounds = [float(f"{factor * longest:.4g}") for factor in reversed(_ROW_BOUNDS)]
    return [Defence(), *(Defence(((DefenceKind.INPUT_BOUND, bound),)) for bound in bounds)]


def honest_sequences(width: int, seed: int = 0) -> Array:
    """Sequences of standard normal rows, where no others are given."""
    return np.random.default_rng([0x40E5, seed]).standard_normal((_HONEST, _HONEST_ROWS, width))


def honest_ids(vocabulary: int, longest: int | None, seed: int = 0) -> Ids:
    """Sequences of token ids, each as frequent as words are, where no others are given."""
    rng = np.random.default_rng([0x40E5, seed])
    share = 1.0 / (1.0 + np.arange(vocabulary))
    size = _HONEST_ROWS if longest is None else min(_HONEST_ROWS, longest)
    return np.asarray(
        rng.permutation(vocabulary)[rng.choice(vocabulary, (_HONEST, size), p=share / share.sum())]
    )


def _norms(sequences: Array) -> Array:
    """The longest row of every sequence; ids have none."""
    if sequences.ndim == 2:
        return np.zeros(len(sequences))
    return longest_rows(sequences)


def _checked_budget(oracle: Oracle, value: float | str, seed: int) -> Oracle:
    """A budget changes no answer; it ends a run."""
    if float(value) < 0:
        raise UsageError(f"a query budget must be at least 0, not {float(value):g}")
    return oracle


def _checked_accounts(oracle: Oracle, value: float | str, seed: int) -> Oracle:
    """Accounts change no answer; they multiply budgets and detectors."""
    if float(value) < 1:
        raise UsageError(f"an attacker has at least 1 account, not {float(value):g}")
    return oracle


def _checked_similarity(oracle: Oracle, value: float | str, seed: int) -> Oracle:
    """Similar neurons are made in the model itself, before it answers."""
    if not 0.0 <= float(value) < 1.0:
        raise UsageError(f"neurons are similar by a number from 0 to below 1, not {float(value):g}")
    return oracle


_AROUND: dict[str, Callable[[Oracle, float | str, int], Oracle]] = {
    DefenceKind.DECIMALS: lambda oracle, value, seed: Rounded(oracle, int(float(value))),
    DefenceKind.TOLERANCE: lambda oracle, value, seed: WithinTolerance(oracle, float(value), seed),
    DefenceKind.NOISE: lambda oracle, value, seed: Noisy(oracle, float(value), seed),
    DefenceKind.PRECISION: lambda oracle, value, seed: LowPrecision(oracle, str(value)),
    DefenceKind.LABELS: lambda oracle, value, seed: Labels(oracle),
    DefenceKind.INPUT_BOUND: lambda oracle, value, seed: BoundedInputs(oracle, float(value)),
    DefenceKind.MAX_LENGTH: lambda oracle, value, seed: LimitedLength(oracle, int(float(value))),
    DefenceKind.BUDGET: _checked_budget,
    DefenceKind.ACCOUNTS: _checked_accounts,
    DefenceKind.SIMILAR_NEURONS: _checked_similarity,
}


# numbers that make sense, where 2 does not
_EXAMPLES: dict[str, str] = {
    DefenceKind.PRADA: "0.9",
    DefenceKind.STRUCTURED_ROWS: "0.05",
    DefenceKind.NOISE: "0.01",
    DefenceKind.TOLERANCE: "0.01",
}


def number_of(kind: str, value: str) -> float:
    """The number of a defence, finite and, where it counts something, whole."""
    try:
        number = float(value)
    except ValueError:
        number = np.nan
    whole = kind in _WHOLE
    if not np.isfinite(number) or (whole and number != int(number)):
        raise UsageError(
            f"the defence {kind} needs a {'whole ' if whole else ''}number, not {value!r}; for example "
            f"{kind}={_EXAMPLES.get(kind, '2')}"
        )
    return number


class _Nothing:
    """An oracle that is never asked."""

    spec = OracleSpec()

    def __call__(self, batch: Array, /) -> Array:
        raise OracleFault("nothing answers here")  # pragma: no cover - only wrapped


def _label(kind: str, value: float | str) -> str:
    if kind == DefenceKind.PRECISION:
        return f"{value} answers"
    number = float(value)
    labels: dict[str, str] = {
        DefenceKind.DECIMALS: f"rounded to {number:.0f} decimal{'' if number == 1 else 's'}",
        DefenceKind.TOLERANCE: f"fixed error up to {number:.3g}",
        DefenceKind.NOISE: f"random noise of {number:.3g}",
        DefenceKind.LABELS: "labels only",
        DefenceKind.INPUT_BOUND: f"rows of norm ≤ {number:.4g}",
        DefenceKind.MAX_LENGTH: f"at most {number:.0f} rows",
        DefenceKind.BUDGET: f"at most {number:,.0f} queries",
        DefenceKind.ACCOUNTS: f"{number:,.0f} pooled accounts",
        DefenceKind.PRADA: f"PRADA at {number:g}",
        DefenceKind.STRUCTURED_ROWS: f"alarm above {number:.0%} structured queries",
        DefenceKind.SIMILAR_NEURONS: f"neurons made similar by {number:g}",
    }
    return labels[kind]
