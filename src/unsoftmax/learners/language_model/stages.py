"""What the stages after the unembedding share, whatever the shape of the layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.learners.language_model.unembedding import Unembedding
from unsoftmax.meters.language_model.precision import FLOAT64, Precision
from unsoftmax.meters.language_model.prompts import Prompts

__all__ = ["LayerStages"]


@dataclass
class LayerStages:
    """first: what the first stage found. parts: by name, kept as they are found."""

    prompts: Prompts
    first: RecoveredPart[Unembedding]
    rng: np.random.Generator
    parts: dict[str, RecoveredPart[object]]
    precision: Precision = FLOAT64

    @property
    def unembedding(self) -> Unembedding:
        """What the first stage found."""
        return self.first.value

    def keep(self, name: str, value: object, bound: float, gauge: str, certificate: PartCertificate) -> None:
        """A part that stays known whatever comes after it."""
        self.parts[name] = RecoveredPart(name, value, bound, gauge, certificate)
