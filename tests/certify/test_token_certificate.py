"""The sequences of a token certificate are independent draws, so that its fraction holds."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.certify.token_certificate import token_sequences


@pytest.mark.parametrize("vocabulary", [3, 60, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_frequent_tokens_are_others_in_every_sequence(vocabulary: int, seed: int) -> None:
    sequences = dict(token_sequences(vocabulary, 64, np.random.default_rng(seed)))
    ids = sequences["frequent tokens, more than 16 of them"]
    assert ids.shape == (24, 64)
    assert ids.min() >= 0
    assert ids.max() < vocabulary
    counts = [np.bincount(row, minlength=vocabulary) for row in ids]
    most = [int(count.argmax()) for count in counts]
    # 24 draws of a token: fewer different ones than that happen once in 10^6 times
    assert len(set(most)) >= min(vocabulary, 13)
    # as words: one token much more often than if all were alike
    assert np.mean([count.max() for count in counts]) > 64 * min(0.5, 2.0 / vocabulary + 0.06)
