"""After a run was resumed: has the target itself shown that it is still the one that the ledger knows?"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["Replay"]

_LABELS = 2  # answers with at most two values are labels
_FEW_LABELS = 16  # another function agrees with 16 labels by chance once in 65,536 times
_ROWS = 3  # a sequence of so many rows that are not multiples of each other shows every part of a head
_PARALLEL = 0.999  # cosine from which two rows count as multiples; random ones stay below from width 2 on


class Replay:
    """Watches which answers came from the journal of an earlier run and which from the target itself.

    Queries that are made to show one part of a target, such as single rows, cannot show a change of another
    part. So only general sequences count: three rows or more, none zero, no two parallel.

    >>> replay = Replay()
    >>> replay.replayed(np.array([0.3, 0.4, 0.5]))
    >>> replay.answered(np.ones((8, 1, 4)), np.zeros(8)); replay.unconfirmed
    True
    >>> replay.answered(np.random.default_rng(0).standard_normal((1, 3, 4)), np.zeros(1)); replay.unconfirmed
    False
    """

    def __init__(self) -> None:
        self._any = False
        self._shown = 0
        self._values: set[float] = set()

    def replayed(self, answers: Array) -> None:
        """These answers came from the journal."""
        self._any = True
        if len(self._values) <= _LABELS:
            self._values.update(np.unique(answers.ravel()[:64]).tolist())

    def answered(self, batch: Array, answers: Array, most_rows: int | None = None) -> None:
        """The target gave these answers to this batch. most_rows: rows that it takes at most, if known."""
        if self.unconfirmed and _is_general(batch[0], most_rows):
            self._shown += len(answers)

    @property
    def unconfirmed(self) -> bool:
        """Whether answers were replayed, and the target's own could not show that it is another one."""
        return self._any and self._shown < (_FEW_LABELS if len(self._values) <= _LABELS else 1)


def _is_general(sequence: Array, most_rows: int | None) -> bool:
    """Whether the answer to a sequence depends on everything that the target holds."""
    if len(sequence) < min(_ROWS, most_rows or _ROWS):
        return False
    if sequence.ndim == 1:  # token ids
        return len(sequence) < _ROWS or len(set(sequence.tolist())) > 1
    sizes = np.linalg.norm(sequence, axis=1)
    if not np.isfinite(sizes).all() or sizes.min() == 0.0:
        return False
    if sequence.shape[1] == 1:
        return len(np.unique(sequence)) == len(sequence)
    directions = sequence / sizes[:, None]
    cosines = np.abs(directions @ directions.T) - np.eye(len(sequence))
    return bool(cosines.max() < _PARALLEL)
