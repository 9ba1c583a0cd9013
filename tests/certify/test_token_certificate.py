"""The sequences of a token certificate are independent draws, so that its fraction holds."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax import Ledger
from unsoftmax.certify.token_certificate import certify_tokens, token_sequences


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


@pytest.mark.parametrize("longest", [2, 12])
def test_how_tokens_were_drawn_is_stated_and_copies_are_not_counted(longest: int) -> None:
    model = unsoftmax.recover("demo:tokens?V=20&r=1").unwrap()
    assert isinstance(model, unsoftmax.TokenHeads)
    twice = [np.arange(2)] * 2
    certificate = certify_tokens(
        Ledger(unsoftmax.as_oracle("demo:tokens?V=20&r=1")),
        model,
        np.random.default_rng(0),
        allowed=1e-9,
        longest=longest,
        corpus=twice,
    )
    made = 1 + (3 * 24 if longest >= 4 else 0)
    assert (1 - certificate.fraction) ** (certificate.n_queries - made) == pytest.approx(1e-4)
    assert certificate.confidence == 0.9999
    assert "2 are the user's own" in certificate.distribution
    assert ("another order" in certificate.distribution) == (longest >= 4)
