"""The sequences of a token certificate are independent draws, so that its fraction holds."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.certify.token_certificate import token_sequences


@pytest.mark.parametrize("vocabulary", [3, 60, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_frequent_tokens_are_others_in_every_sequence(vocabulary: int, seed: int) -> None:
    drawn = (dict(token_sequences(vocabulary, 64, np.random.default_rng([seed, part]))) for part in range(3))
    ids = np.concatenate([sequences["frequent tokens, more than 16 of them"] for sequences in drawn])[:24]
    assert ids.shape == (24, 64)
    assert ids.min() >= 0
    assert ids.max() < vocabulary
    counts = [np.bincount(row, minlength=vocabulary) for row in ids]
    most = [int(count.argmax()) for count in counts]
    # 24 draws of a token: fewer different ones than that happen once in 10^6 times
    assert len(set(most)) >= min(vocabulary, 13)
    # as words: one token much more often than if all were alike
    assert np.mean([count.max() for count in counts]) > 64 * min(0.5, 2.0 / vocabulary + 0.06)


def test_every_short_length_is_compared_and_a_long_one_that_nobody_knows() -> None:
    lengths = [
        {ids.shape[1] for _, ids in token_sequences(20, 64, np.random.default_rng(seed))} for seed in range(4)
    ]
    assert all(set(range(1, 18)) <= each for each in lengths)
    assert len(set.union(*lengths) - set(range(18)) - {33, 64}) > 2
