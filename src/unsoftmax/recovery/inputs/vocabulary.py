"""How many token ids a target takes, where neither it nor the user says: the first id that it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from unsoftmax.answers import Finding
from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles import FunctionOracle, Oracle, TokenFrame, TokenIds
from unsoftmax.recovery.inputs.targets import as_oracle

__all__ = ["find_vocabulary", "vocabulary_of"]

_MOST = 1 << 22  # ids; vocabularies in use have up to 300,000
_ANY = 1 << 40  # stands for a vocabulary that is not known


def find_vocabulary(target: object, *, outputs: int | None = None) -> int:
    """The number of token ids that a target takes: ids from there on raise an error. About 2 log2(V) queries.

    A target that answers every id, as one that hashes ids does, is a `UsageError`.

    >>> table = np.arange(50.0)
    >>> find_vocabulary(lambda ids: table[ids].mean(axis=1))
    50
    """
    oracle = as_oracle(target, outputs=outputs)
    if not isinstance(oracle.spec.domain, TokenIds) and oracle.spec.width is None:
        oracle = as_oracle(target, outputs=outputs, vocabulary=_ANY)
    return vocabulary_of(oracle, TokenFrame())[0]


def vocabulary_of(oracle: Oracle, frame: TokenFrame) -> tuple[int, Finding]:
    """The number of ids, and what was seen. frame: the fixed tokens around every sequence."""
    told = oracle.spec.domain
    if isinstance(told, TokenIds) and told.vocabulary < _ANY:
        return told.vocabulary, Finding("vocabulary", str(told.vocabulary), "told by the target", 0)
    ids = FunctionOracle(oracle, replace(oracle.spec, domain=TokenIds(_ANY)))
    asked = 0

    def takes(token: int) -> bool:
        nonlocal asked
        asked += 1
        sent = replace(frame, padding=None, length=None).around(np.array([[token]]))
        if frame.padding is not None and frame.length is not None:
            rest = np.full((1, max(0, frame.length - sent.shape[1])), frame.padding)
            sent = np.concatenate([sent, rest], axis=1)
        try:
            ids(cast(Array, sent))
        except OracleFault:
            return False
        return True

    if not takes(0):
        raise UsageError("the target does not answer the token id 0; pass vocabulary=V, and prefix or suffix")
    good, bad = 0, 1
    while takes(bad):
        good, bad = bad, 2 * bad
        if good > _MOST:
            raise UsageError(f"the target answers the token id {good} as well; pass vocabulary=V")
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if takes(middle) else (good, middle)
    text = f"the id {good} is answered, and {bad} is refused"
    return bad, Finding("vocabulary", str(bad), text, asked)
