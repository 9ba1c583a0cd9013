"""Fixed tokens around sequences, padding, and the longest sequence."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import unsoftmax
from unsoftmax import Status, UsageError
from unsoftmax.cli.app import app

MODEL = unsoftmax.random_token_heads(50, 4, seed=3)


def framed_only(ids: Any, first: int = 1, last: int = 2) -> Any:
    """A target that insists on its frame."""
    if ids.shape[1] < 3 or (ids[:, 0] != first).any() or (ids[:, -1] != last).any():
        raise ValueError("sequences begin with 1 and end with 2")
    return MODEL(ids)


def whole(count: int, length: int) -> Any:
    ids = np.random.default_rng(length).integers(0, 50, (count, length))
    ids[:, 0], ids[:, -1] = 1, 2
    return ids


@pytest.mark.parametrize("outputs", [None, 3])
def test_a_frame_shows_the_scores_of_its_asking_token(outputs: int | None) -> None:
    model = MODEL if outputs is None else unsoftmax.random_token_heads(50, 4, seed=3, outputs=outputs)
    result = unsoftmax.recover(
        lambda ids: model(ids) if ids.shape[1] > 2 else 1 / 0,
        vocabulary=50,
        prefix=[1],
        suffix=[2],
        outputs=outputs,
    )
    assert result.status is Status.EXACT, result.reason
    assert "other tokens never ask" in result.reason
    assert result.queries.learning <= 2 * 50 + 48
    found: Any = result.model
    for length in (3, 8, 40):
        ids = whole(100, length)
        np.testing.assert_allclose(found(ids), model(ids), atol=1e-9)


def test_the_first_row_may_ask() -> None:
    """CLS asks: torch's own layer, read at its first row."""
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 1, batch_first=True).double()
    table, readout = torch.randn(50, 8).double(), torch.randn(8).double()

    def answer(ids: Any) -> Any:
        rows = table[torch.from_numpy(np.asarray(ids))]
        with torch.no_grad():
            return (layer(rows[:, :1], rows, rows)[0][:, 0] @ readout).numpy()

    result = unsoftmax.recover(answer, vocabulary=50, prefix=[1], suffix=[2])
    assert result.status is Status.EXACT, result.reason
    found: Any = result.model
    np.testing.assert_allclose(found(whole(100, 9)), answer(whole(100, 9)), atol=1e-9)


@pytest.mark.parametrize(("prefix", "outputs"), [([1], None), ([4, 9], None), ([3, 3, 8], 3)])
def test_a_prefix_alone_hides_nothing(prefix: list[int], outputs: int | None) -> None:
    model = unsoftmax.random_token_heads(50, 4, seed=5, outputs=outputs)

    def answer(ids: Any) -> Any:
        assert (ids[:, : len(prefix)] == prefix).all()
        assert len(prefix) < ids.shape[1] <= 64
        return model(ids)

    result = unsoftmax.recover(answer, vocabulary=50, prefix=prefix, outputs=outputs)
    assert result.status is Status.EXACT, result.reason
    assert result.error_bound is not None
    found: Any = result.model
    assert model.distance(found) <= result.error_bound
    assert result.queries.learning <= 2.2 * (model.parameters + 80) + 3 * 50


def test_a_prefix_whose_token_asks() -> None:
    result = unsoftmax.recover(lambda ids: MODEL(ids[:, ::-1]), vocabulary=50, prefix=[1])
    assert result.status is Status.EXACT, result.reason
    assert "other tokens never ask" in result.reason
    ids = whole(50, 9)[:, :-1]
    found: Any = result.model
    np.testing.assert_allclose(found(ids), MODEL(ids[:, ::-1]), atol=1e-9)


def test_other_functions_behind_a_prefix_are_not_recovered() -> None:
    two = unsoftmax.random_token_heads(50, 3, heads=2, seed=1)
    placed = unsoftmax.random_token_heads(50, 3, longest=64, seed=1)
    bag = np.random.default_rng(1).standard_normal(50)
    for other in (
        two,
        placed,
        lambda ids: np.tanh(MODEL(ids)),
        lambda ids: bag[ids].sum(axis=1),
        lambda ids: MODEL(ids[:, 1:]) + 1e-4 * (ids == 7).any(axis=1),
    ):
        result = unsoftmax.recover(other, vocabulary=50, prefix=[1])
        assert not result.status.recovered, result.reason
    with pytest.raises(UsageError, match="fixed token asks"):
        unsoftmax.recover(MODEL, prefix=[1], suffix=[2], embeddings=np.eye(50))


@pytest.mark.parametrize("seed", [0, 1])
def test_other_functions_in_a_frame_are_not_recovered(seed: int) -> None:
    two = unsoftmax.random_token_heads(50, 3, heads=2, seed=1)
    for other in (
        two,
        lambda ids: np.tanh(MODEL(ids)),
        lambda ids: MODEL(ids) + 1e-4 * (ids == 7).any(axis=1),
        lambda ids: MODEL(ids[:, [*range(ids.shape[1] - 2), -1]]) if ids.shape[1] > 3 else MODEL(ids),
        lambda ids: (ids % 7).mean(axis=1) ** 2,
    ):
        result = unsoftmax.recover(other, vocabulary=50, prefix=[1], suffix=[2], seed=seed)
        assert not result.status.recovered, result.reason


def test_padding_and_the_longest_sequence() -> None:
    def padded(ids: Any) -> Any:
        """Rows of 12 ids, of which the zeros at the end do not count."""
        assert ids.shape[1] == 12
        assert (ids[:, 0] > 0).all()
        return np.array([MODEL(row[row > 0][None])[0] for row in ids])

    result = unsoftmax.recover(lambda ids: padded(ids), vocabulary=50, padding=0, length=12)
    assert result.status is Status.EXACT, result.reason
    assert "padding id 0" in result.reason
    found: Any = result.model
    ids = np.random.default_rng(0).integers(1, 50, (200, 9))
    assert found.vocabulary == result.width == 50
    np.testing.assert_allclose(found(ids), MODEL(ids), atol=1e-9)
    both = unsoftmax.recover(
        lambda ids: padded(ids),
        vocabulary=50,
        padding=0,
        length=12,
        prefix=[1],
        suffix=[2],
        sequences=[[5, 9]],
    )
    assert both.status is Status.EXACT, both.reason
    framed: Any = both.model
    np.testing.assert_allclose(framed(np.array([[1, 7, 8, 2]])), MODEL(np.array([[1, 7, 8, 2]])), atol=1e-9)
    sizes = set()

    def short(ids: Any) -> Any:
        sizes.add(ids.shape[1])
        return MODEL(ids)

    assert unsoftmax.recover(short, vocabulary=50, longest=5).status is Status.EXACT
    assert max(sizes) == 5
    options = ["--longest", "4", "--vocabulary", "40", "--json"]
    ran = CliRunner().invoke(app, ["recover", "tests.learners.token_scorer:score", *options])
    assert json.loads(ran.stdout)["status"] == "EXACT"
    options = ["--prefix", "1", "--suffix", "2", "--vocabulary", "40", "--json"]
    ran = CliRunner().invoke(app, ["recover", "tests.learners.token_scorer:score", *options])
    assert json.loads(ran.stdout)["status"] == "EXACT"


def test_wrong_frames_are_told() -> None:
    for told, why in (
        ({"padding": 0}, "pass both"),
        ({"padding": 2, "length": 9, "suffix": [2]}, "fixed token as well"),
        ({"suffix": [50]}, "0 to 49"),
        ({"suffix": ["x"]}, "token ids"),
        ({"prefix": [1], "suffix": [2], "longest": 2}, "no room"),
    ):
        with pytest.raises(UsageError, match=why):
            unsoftmax.recover(framed_only, vocabulary=50, **told)
    with pytest.raises(UsageError, match="token ids"):
        unsoftmax.recover(unsoftmax.random_single_head(4), suffix=[2])


@pytest.mark.parametrize(
    ("heads", "dtype", "named"),
    [(2, torch.float64, "several heads"), (1, torch.float32, "float32"), (2, torch.float32, "float32")],
)
def test_a_text_scorer_whose_first_token_asks_is_named_where_it_is_not_learnt(
    heads: int, dtype: torch.dtype, named: str
) -> None:
    torch.manual_seed(heads)
    table, out = torch.nn.Embedding(60, 6, dtype=dtype), torch.nn.Linear(6, 1, dtype=dtype)
    layer = torch.nn.MultiheadAttention(6, heads, batch_first=True, dtype=dtype)

    def scorer(ids: Any) -> Any:
        with torch.no_grad():
            rows = table(torch.from_numpy(np.ascontiguousarray(ids)))
            return out(layer(rows, rows, rows)[0][:, 0])[:, 0].numpy()

    result = unsoftmax.recover(scorer, vocabulary=60, prefix=[3])
    assert result.status is Status.UNRESOLVED, result.reason
    assert named in result.reason


def test_two_heads_behind_a_prefix_are_named() -> None:
    two = unsoftmax.random_token_heads(50, 3, heads=2, seed=1)
    result = unsoftmax.recover(lambda ids: two(ids), vocabulary=50, prefix=[1])
    assert result.status is Status.UNRESOLVED
    assert "behind a prefix, several heads" in result.reason
