"""Defences as wrappers around a target: what each does to the attack, and what it does to honest users."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, longest_rows
from unsoftmax.audit.detectors import Detector, Prada, StructuredRows, Watched, false_alarms
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
    "LimitedLength",
    "bounds_on_rows",
    "honest_ids",
    "honest_sequences",
    "number_of",
    "parts_of",
    "usual_defences",
]

KINDS = (
    "decimals",
    "tolerance",
    "noise",
    "precision",
    "labels",
    "input-bound",
    "max-length",
    "budget",
    "accounts",
    "prada",
    "structured-rows",
    "similar-neurons",
)
_ROW_BOUNDS = (1e6, 1e4, 3e3, 1e3, 500.0, 300.0, 100.0, 30.0, 1.0)  # over the longest honest row
_WHOLE = ("decimals", "max-length", "budget", "accounts", "top-k")
DETECTORS: dict[str, Callable[[float], Detector]] = {"prada": Prada, "structured-rows": StructuredRows}
_NAMED = ("precision",)  # the value is the name of a float format
_ALONE = ("labels",)  # no value: answers are no numbers any more


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
    """One defence or several at once: pairs (kind, value), the kinds being those of `KINDS`.

    >>> Defence.parse("decimals=2+input-bound=10").label
    'rounded to 2 decimals + rows of norm ≤ 10'
    """

    parts: tuple[tuple[str, float | str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Defence:
        """The defence of a text such as 'decimals=2', 'labels' or 'precision=float16+input-bound=10'."""
        parts: list[tuple[str, float | str]] = []
        for kind, value in parts_of(text):
            if kind not in KINDS:
                raise UsageError(f"there is no defence {kind!r}; choose from {', '.join(KINDS)}, joined by +")
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
        return next((int(float(value)) for kind, value in self.parts if kind == "accounts"), 1)

    @property
    def budget(self) -> int | None:
        """The queries of all accounts together, when a budget is part of the defence."""
        each = next((int(float(value)) for kind, value in self.parts if kind == "budget"), None)
        return None if each is None else each * self.accounts

    @property
    def detects(self) -> bool:
        """Whether queries are watched."""
        return any(kind in DETECTORS for kind, _ in self.parts)

    @property
    def similarity(self) -> float | None:
        """How similar neurons were made, if they were."""
        return next((float(value) for kind, value in self.parts if kind == "similar-neurons"), None)

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
        bound = next((float(value) for kind, value in self.parts if kind == "input-bound"), np.inf)
        longest = next((float(value) for kind, value in self.parts if kind == "max-length"), np.inf)
        norms = _norms(sequences)
        taken = (norms <= bound) & (sequences.shape[1] <= longest)
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
    pairs.append(Defence((("budget", float(parameters // 2)), ("accounts", 16.0))))
    watched = [
        Defence((("prada", 0.9),)),
        Defence((("structured-rows", 0.05),)),
        Defence((("prada", 0.9), ("accounts", 16.0))),
    ]
    return [Defence(), *singles, *pairs, *(watched if detectors else [])]


def bounds_on_rows(honest: Array) -> list[Defence]:
    """No defence, and bounds on the norm of rows, from a million times the longest honest row down to it:
    what depth hides, it hides behind such a bound."""
    longest = 1.0005 * float(_norms(honest).max())
    bounds = [float(f"{factor * longest:.4g}") for factor in reversed(_ROW_BOUNDS)]
    return [Defence(), *(Defence((("input-bound", bound),)) for bound in bounds)]


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
    "decimals": lambda oracle, value, seed: Rounded(oracle, int(float(value))),
    "tolerance": lambda oracle, value, seed: WithinTolerance(oracle, float(value), seed),
    "noise": lambda oracle, value, seed: Noisy(oracle, float(value), seed),
    "precision": lambda oracle, value, seed: LowPrecision(oracle, str(value)),
    "labels": lambda oracle, value, seed: Labels(oracle),
    "input-bound": lambda oracle, value, seed: BoundedInputs(oracle, float(value)),
    "max-length": lambda oracle, value, seed: LimitedLength(oracle, int(float(value))),
    "budget": _checked_budget,
    "accounts": _checked_accounts,
    "similar-neurons": _checked_similarity,
}


# numbers that make sense, where 2 does not
_EXAMPLES = {"prada": "0.9", "structured-rows": "0.05", "noise": "0.01", "tolerance": "0.01"}


def number_of(kind: str, value: str) -> float:
    """The number of a defence, finite and, where it counts something, whole."""
    try:
        number = float(value)
    except ValueError:
        number = np.nan
    whole = kind in _WHOLE
    if not np.isfinite(number) or (whole and number != int(number)):
        raise UsageError(
            f"the defence {kind}={value!r} needs a number{', a whole one' if whole else ''}; write for "
            f"instance {kind}={_EXAMPLES.get(kind, '2')}"
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
        "accounts": f"against {number:,.0f} accounts",
        "prada": f"PRADA at {number:g}",
        "structured-rows": f"alarm above {number:.0%} structured queries",
        "similar-neurons": f"neurons made similar by {number:g}",
    }[kind]
