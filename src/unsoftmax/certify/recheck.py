"""When every answer came from a ledger, is the target still the one that gave them?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.certify.certificate import Certificate
from unsoftmax.ledger import VERIFICATION, Ledger, median_answers
from unsoftmax.models import Model
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["REPLAY_TEST", "confirm_target"]

REPLAY_TEST = Test("the target still answers as the ledger says")
_COARSE = 16  # answers that carry little each, such as labels, are asked so many at a time


def confirm_target(
    ledger: Ledger,
    model: Model,
    certificate: Certificate,
    rng: np.random.Generator,
    *,
    tolerance: float = 0.0,
    deviation: Callable[[Array, Array], Array] | None = None,
    repeats: int = 1,
) -> None:
    """Asks a fresh sequence (a few where answers are coarse) until one was answered by the target itself, and
    compares with the model.

    Confirmations of earlier runs are in the ledger too and are replayed first, so each run pays for one. The
    keywords are those of `certify`.
    """
    length = min(3, ledger.max_length or 3)
    size = certificate.sizes[len(certificate.sizes) // 2]
    allowed = max(10.0 * certificate.max_relative_error, certificate.allowed)

    def compare(batch: Array, answers: Array) -> None:
        off = np.abs(answers - model(batch) if deviation is None else deviation(answers, model(batch)))
        error = np.maximum(off.reshape(len(batch), -1).max(axis=1) - tolerance, 0.0)
        if (error > model.rounding(batch) + allowed * model.sensitivity(batch)).any():
            raise OutsideClass(
                REPLAY_TEST,
                f"all answers came from the ledger, and a fresh one is off by {error.max():.2g}; the target "
                "has changed: use a new ledger",
            )

    while ledger.only_replayed:
        rows = rng.standard_normal((1 if deviation is None else _COARSE, length, model.width))
        batch = size * rows / np.linalg.norm(rows, axis=2, keepdims=True)
        with ledger.phase(VERIFICATION):
            if repeats == 1:
                ledger.ask(batch, check=compare)  # what another target says must not get into this ledger
            else:
                compare(batch, median_answers(ledger, batch, repeats))
