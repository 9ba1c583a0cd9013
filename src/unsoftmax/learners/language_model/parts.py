"""A recovered part of a model that is not recovered as a whole: its value, how sure it is, and what stays
open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = ["PartCertificate", "RecoveredPart", "save_parts"]

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


def save_parts(parts: Mapping[str, RecoveredPart[Any]], path: Path) -> Path:
    """Writes the arrays of all parts as a numpy archive: one under the part's name, several as name.field."""
    arrays: dict[str, Any] = {}
    for name, part in parts.items():
        value = part.value
        if is_dataclass(value):
            held = {each.name: getattr(value, each.name) for each in fields(value)}
            arrays |= {f"{name}.{key}": array for key, array in held.items() if isinstance(array, np.ndarray)}
        else:
            arrays[name] = np.asarray(value)
    np.savez(path, allow_pickle=False, **arrays)
    return path
