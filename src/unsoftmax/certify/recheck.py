"""When every answer came from a ledger, is the target still the one that gave them?"""

from __future__ import annotations

import numpy as np

from unsoftmax.certify.certificate import Certificate
from unsoftmax.ledger import VERIFICATION, Ledger
from unsoftmax.models import Model
from unsoftmax.outcomes import OutsideClass

__all__ = ["confirm_target"]

REPLAY_TEST = "the target still answers as the ledger says"


def confirm_target(ledger: Ledger, model: Model, certificate: Certificate, rng: np.random.Generator, *, tolerance: float = 0.0) -> None:
    """Asks fresh sequences, one at a time, until one was answered by the target itself, and compares it with the model.

    Confirmations of earlier runs are in the ledger too and are replayed first, so each run pays for one.
    """
    length = min(3, ledger.oracle.spec.max_length or 3)
    size = certificate.sizes[len(certificate.sizes) // 2]
    allowed = max(10.0 * certificate.max_relative_error, certificate.allowed)
    while ledger.only_replayed:
        rows = rng.standard_normal((1, length, model.width))
        batch = size * rows / np.linalg.norm(rows, axis=2, keepdims=True)
        with ledger.phase(VERIFICATION):
            answers = ledger.ask(batch)
        error = float(np.max(np.abs(answers - model(batch)))) - tolerance
        if error > allowed * float(model.sensitivity(batch)[0]):
            raise OutsideClass(
                REPLAY_TEST,
                f"all answers came from the ledger, and a fresh one is off by {error:.2g}; the target has changed: use a new ledger",
            )
