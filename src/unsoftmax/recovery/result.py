"""What a recovery returns: the status, the model, the proof and the bill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from unsoftmax.answers import Answers, Computed, Finding
from unsoftmax.certify import Certificate
from unsoftmax.errors import NotRecovered
from unsoftmax.families import Family
from unsoftmax.html_tables import facts_table
from unsoftmax.learners import Claim
from unsoftmax.ledger import Bill
from unsoftmax.models import Model
from unsoftmax.outcomes import Status
from unsoftmax.recovery.advice import advice_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from unsoftmax.learners.language_model.parts import RecoveredPart

__all__ = ["Result"]


@dataclass(frozen=True, repr=False)
class Result:
    """Everything about one recovery.

    error_bound: on the relative error of the parameters. constant_bound: how far the constant c alone may be
    off, where answers with errors tell no better; then `error_bound` is that of the others.
    parts: what was recovered and certified by itself, by name, although the whole may not be. answers: the
    kind of answers, where it was found; vectors: whether an answer holds several numbers.

    >>> import unsoftmax
    >>> result = unsoftmax.recover(unsoftmax.random_single_head(4, seed=0))
    >>> result.status
    <Status.EXACT: 'EXACT'>
    >>> result.unwrap().width
    4
    >>> unsoftmax.recover("demo:single-head?d=4", budget=10)
    Result(BUDGET_SPENT, auto, width 4, 10 queries)
    """

    status: Status
    reason: str
    queries: Bill
    family: str
    width: int
    claim: Claim
    model: Model | None = None
    certificate: Certificate | None = None
    error_bound: float | None = None
    constant_bound: float | None = None
    artifacts: dict[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    parts: Mapping[str, RecoveredPart[Any]] = field(default_factory=dict)
    answers: Answers | None = None
    vectors: bool = False

    def __repr__(self) -> str:
        """One line: how it ended, what it is, what it cost. `print(result.reason)` says why."""
        facts = [str(self.status), self.family, self.size, f"{self.queries.total:,} queries"]
        if self.error_bound is not None:
            facts.append(f"error at most {self.error_bound:.1e}")
        if self.parts:
            facts.append(f"parts {', '.join(self.parts)}")
        return f"Result({', '.join(facts)})"

    @property
    def size(self) -> str:
        """What the target takes, for people: how many columns a row has, or how many tokens there are."""
        return f"{'vocabulary' if self.family == str(Family.TOKENS) else 'width'} {self.width}"

    def unwrap(self) -> Model:
        """The model, or `NotRecovered` with the reason."""
        if self.model is None:
            raise NotRecovered(f"{self.status}: {self.reason}", self)
        return self.model

    @property
    def arithmetic(self) -> str:
        """The format that the target computes in, as far as was found: "float64" unless every step rounds."""
        return str(self.answers.format) if isinstance(self.answers, Computed) else "float64"

    def to_torch(self) -> nn.Module:
        """The model as a torch module that computes in the format of the target."""
        return self.unwrap().to_torch(dtype=self.arithmetic)

    @property
    def advice(self) -> str:
        """Why it ended like this, and what to try next."""
        return advice_for(self)

    def plot(self) -> Figure:
        """A picture of the heads, their spectra, the certificate and the bill, as a matplotlib figure.

        >>> import unsoftmax
        >>> figure = unsoftmax.recover("demo:single-head?d=4").plot()
        >>> [axes.get_title() for axes in figure.axes][:2]
        ['W', 'singular values of W']
        """
        from unsoftmax.recovery.picture import draw_result

        return draw_result(self)

    def _repr_html_(self) -> str:
        """The facts as a table, for notebooks."""
        facts: list[tuple[str, object]] = [("status", self.status), ("reason", self.reason)]
        if self.model is not None:
            ranks = ", ".join(map(str, self.model.ranks))
            facts += [
                ("model", f"{self.family}, {self.size}, rank {ranks}"),
                ("parameters", f"{self.model.parameters:,}"),
            ]
        facts += [
            (f"part: {name}", f"error at most {part.error_bound:.1e}") for name, part in self.parts.items()
        ]
        if not self.status.recovered:
            facts.append(("what to try", self.advice))
        phases = ", ".join(f"{phase} {count:,}" for phase, count in self.queries.by_phase.items())
        facts.append(("queries", f"{self.queries.total:,} ({phases})"))
        if self.error_bound is not None:
            facts.append(("error", f"at most {self.error_bound:.1e}, relative"))
        return facts_table("unsoftmax.Result", facts)

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data, for `json.dumps`."""
        certificate = None
        if self.certificate is not None:
            certificate = asdict(self.certificate) | {"statement": self.certificate.statement}
        return {
            "status": str(self.status),
            "family": self.family,
            "width": self.width,
            "heads": None if self.model is None else len(self.model.ranks),
            "rank": None if self.model is None else self.model.ranks,
            "parameters": None if self.model is None else self.model.parameters,
            "queries": {
                "total": self.queries.total,
                "by_phase": dict(self.queries.by_phase),
                "retries": self.queries.retries,
            },
            "certificate": certificate,
            "error_bound": self.error_bound,
            "constant_bound": self.constant_bound,
            "artifacts": dict(self.artifacts),
            "findings": [asdict(finding) for finding in self.findings],
            "parts": {name: part.as_json() for name, part in self.parts.items()},
            "reason": self.reason,
            "advice": self.advice,
        }
