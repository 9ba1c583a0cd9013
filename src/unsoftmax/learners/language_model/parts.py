"""A recovered part of a model that is not recovered as a whole: its value, how sure it is, and what stays
open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = ["PartCertificate", "RecoveredPart"]

Value = TypeVar("Value", covariant=True)


@dataclass(frozen=True)
class PartCertificate:
    """What fresh queries said: the largest difference of an answer from its prediction, and over how many
    queries.

    scale: size of the answers, to which the difference is relative.
    """

    max_error: float
    n_queries: int
    scale: float

    @property
    def relative(self) -> float:
        """The largest difference over the size of the answers."""
        return self.max_error / self.scale if self.scale > 0.0 else 0.0


@dataclass(frozen=True)
class RecoveredPart(Generic[Value]):
    """value: the part. error_bound: largest relative error of its entries. gauge: what is left undetermined,
    in words."""

    name: str
    value: Value
    error_bound: float
    gauge: str
    certificate: PartCertificate
    facts: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data; the value itself is in Python only."""
        return {
            "error_bound": self.error_bound,
            "gauge": self.gauge,
            "certificate": {
                "max_error": self.certificate.max_error,
                "n_queries": self.certificate.n_queries,
                "scale": self.certificate.scale,
            },
        }
