from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax
from tests.cases import heads
from tests.cases.reference import torch_single_head
from unsoftmax import SingleHead, UsageError
from unsoftmax.models.matrices import Factors


@pytest.mark.parametrize("kind", sorted(heads.ALL))
@pytest.mark.parametrize("d", [1, 3, 16])
def test_forward_agrees_with_torch(kind: str, d: int) -> None:
    head = heads.make(kind, d, seed=0)
    rng = np.random.default_rng(1)
    for length in (1, 2, 7):
        X = rng.standard_normal((5, length, d))
        expected = torch_single_head(X, head.W, head.v, head.w0, float(head.c))
        np.testing.assert_allclose(
            head(X), expected, rtol=1e-11, atol=1e-12 * (1 + float(np.abs(head.v).max()))
        )


def test_factors_and_dense_are_one_function() -> None:
    rng = np.random.default_rng(0)
    left, right, v = rng.standard_normal((9, 3)), rng.standard_normal((9, 3)), rng.standard_normal(9)
    factored, dense = SingleHead((left, right), v), SingleHead(left @ right.T, v)
    X = rng.standard_normal((4, 5, 9))
    np.testing.assert_allclose(factored(X), dense(X), rtol=1e-12)
    assert factored.distance(dense) < 1e-14
    assert factored.rank == dense.rank == 3
    assert factored.parameters == dense.parameters == 9 + 3 * (18 - 3)
    np.testing.assert_allclose(factored.W, left @ right.T)


@pytest.mark.parametrize("r", [2, 6])
def test_from_projections_is_torch_multihead_attention_with_one_head(r: int) -> None:
    d = 6
    torch.manual_seed(0)
    rng = np.random.default_rng(r)
    W_Q, W_K, W_V = (rng.standard_normal((d, r)) for _ in range(3))
    b_Q, b_K, b_V = (rng.standard_normal(r) for _ in range(3))
    readout = rng.standard_normal(r)
    head = SingleHead.from_projections(W_Q, W_K, W_V, readout, b_Q=b_Q, b_K=b_K, b_V=b_V, b_out=0.5)
    X = rng.standard_normal((3, 4, d))
    query, key, value = (
        torch.from_numpy(X @ matrix + bias) for matrix, bias in ((W_Q, b_Q), (W_K, b_K), (W_V, b_V))
    )
    mixed = torch.nn.functional.scaled_dot_product_attention(query[:, -1:], key, value)
    np.testing.assert_allclose(head(X), (mixed @ torch.from_numpy(readout)).numpy()[:, 0] + 0.5, rtol=1e-11)


def test_vector_outputs() -> None:
    rng = np.random.default_rng(3)
    W, V, c = rng.standard_normal((4, 4)), rng.standard_normal((4, 3)), rng.standard_normal(3)
    head = SingleHead(W, V, c=c)
    X = rng.standard_normal((2, 5, 4))
    expected = np.stack([SingleHead(W, V[:, k], c=c[k])(X) for k in range(3)], axis=1)
    np.testing.assert_allclose(head(X), expected, rtol=1e-12)
    assert head.outputs == 3


@pytest.mark.parametrize("size", [1e3, 1e8, 1e150, 1e160])
def test_scores_of_any_size_stay_finite(size: float) -> None:
    head = SingleHead(np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([1.0, -1.0]))
    X = size * np.array([[[1.0, 0.2], [0.5, 1.0], [0.3, 0.7]]])
    answers = head(X)
    assert np.isfinite(answers).all()
    scores = X[0] / size @ head.W @ X[0, -1] / size
    np.testing.assert_allclose(answers, X[0, scores.argmax()] @ head.v)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10**6))
def test_earlier_rows_may_be_permuted_and_all_rows_repeated(d: int, seed: int) -> None:
    head = heads.make("biases", d, seed)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3, 5, d))
    order = np.append(rng.permutation(4), 4)
    np.testing.assert_allclose(head(X[:, order]), head(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(head(np.concatenate([X, X], axis=1)), head(X), rtol=1e-9, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_distance_is_a_relative_size(d: int, seed: int) -> None:
    head = heads.make("plain", d, seed)
    assert head.distance(head) == 0.0
    for part in (1e-3, 10.0):
        np.testing.assert_allclose(head.distance(SingleHead((1 + part) * head.W, head.v)), part, rtol=1e-6)
        np.testing.assert_allclose(head.distance(SingleHead(head.W, (1 - part) * head.v)), part, rtol=1e-6)
    shifted = SingleHead(
        head.W, head.v, 1e-3 * head.matrix.norm() * np.eye(d)[0], 1e-4 * float(np.linalg.norm(head.v))
    )
    np.testing.assert_allclose(head.distance(shifted), 1e-3, rtol=1e-6)


def test_canonical_forgets_what_cannot_be_seen() -> None:
    silent = SingleHead(np.eye(3), np.zeros(3), np.ones(3), 2.0).canonical()
    assert not silent.W.any()
    assert silent.w0 is None
    assert silent.parameters == 3 + 1
    gauge = np.array([[2.0, 1.0], [0.0, 1.0]])
    left, right = np.random.default_rng(0).standard_normal((2, 5, 2))
    first, second = (
        SingleHead((left, right), np.ones(5)),
        SingleHead((left @ gauge, right @ np.linalg.inv(gauge).T), np.ones(5)),
    )
    assert first.distance(second) < 1e-14
    one, other = first.canonical().matrix, second.canonical().matrix
    assert isinstance(one, Factors)
    assert isinstance(other, Factors)
    np.testing.assert_allclose(one.left, other.left, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(heads.ALL))
def test_saved_and_loaded_is_the_same_to_the_bit(kind: str, tmp_path: Path) -> None:
    head = heads.make(kind, 5, seed=2)
    loaded = unsoftmax.load(head.save(tmp_path / "head.safetensors"))
    assert isinstance(loaded, SingleHead)
    X = np.random.default_rng(0).standard_normal((3, 4, 5))
    assert np.array_equal(loaded(X), head(X))
    assert loaded.parameters == head.parameters


def test_factors_survive_the_file(tmp_path: Path) -> None:
    head = unsoftmax.random_single_head(12, 2, seed=1, biases=True)
    loaded = unsoftmax.load(head.save(tmp_path / "head.safetensors"))
    assert isinstance(loaded, SingleHead)
    assert loaded.matrix.left.shape == (12, 2)  # type: ignore[union-attr]
    assert np.array_equal(head.W, loaded.W)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(W=np.ones((2, 3)), v=np.ones(2)), "square"),
        (dict(W=np.ones((2, 2)), v=np.ones(3)), "v must be"),
        (dict(W=np.ones((2, 2)), v=np.ones(2), w0=np.ones(3)), "w0 must be"),
        (dict(W=np.ones((2, 2)), v=np.ones(2), c=np.ones(2)), "c must be"),
        (dict(W=np.full((2, 2), np.nan), v=np.ones(2)), "NaN"),
        (dict(W=np.ones((2, 2)), v=np.array([1.0, np.inf])), "NaN or infinity"),
        (dict(W=np.ones((0, 0)), v=np.ones(0)), "empty"),
        (dict(W=(np.ones((2, 1)), np.ones((3, 1))), v=np.ones(2)), "factors"),
    ],
)
def test_wrong_shapes_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SingleHead(arguments["W"], arguments["v"], arguments.get("w0"), arguments.get("c", 0.0))


def test_wrong_batches_are_refused() -> None:
    head = SingleHead(np.eye(3), np.ones(3))
    for shape, message in (((2, 3), "must be"), ((1, 2, 4), "4 columns"), ((1, 0, 3), "at least one row")):
        with pytest.raises(UsageError, match=message):
            head(np.zeros(shape))
    with pytest.raises(UsageError, match="equal shapes"):
        head.distance(SingleHead(np.eye(2), np.ones(2)))


def test_answers_that_stop_at_a_limit(tmp_path: Path) -> None:
    head = heads.make("biases", 4, seed=0)
    clipped = SingleHead(head.W, head.v, head.w0, head.c, clip=(-0.5, 0.25))
    X = 3 * np.random.default_rng(0).standard_normal((50, 3, 4))
    assert np.array_equal(clipped(X), np.clip(head(X), -0.5, 0.25))
    assert clipped.distance(head) == 0.0
    loaded = unsoftmax.load(clipped.save(tmp_path / "head.safetensors"))
    assert np.array_equal(loaded(X), clipped(X))
    with pytest.raises(UsageError, match="clip must be"):
        SingleHead(head.W, head.v, clip=(1.0, -1.0))
