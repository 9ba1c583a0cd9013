"""Models over token ids: the function of a torch layer over embeddings, one canonical form, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax
from unsoftmax import TokenHead, TokenHeads, TokenPositions, UsageError

CASES: dict[str, dict[str, Any]] = {
    "one head": dict(),
    "three heads": dict(heads=3),
    "vectors": dict(heads=2, outputs=4),
    "positions": dict(heads=2, longest=7),
    "positions, vectors": dict(longest=7, outputs=3),
    "saturated": dict(scale=200.0),
    "no scores": dict(r=0),
}


def case(name: str, seed: int = 0) -> TokenHeads:
    return unsoftmax.random_token_heads(**(dict(vocabulary=12, r=3, seed=seed) | CASES[name]))


def sequences(seed: int = 0, n: int = 9, length: int = 5, vocabulary: int = 12) -> Any:
    return np.random.default_rng(seed).integers(0, vocabulary, (n, length))


def test_the_function_is_that_of_a_torch_layer_over_embeddings() -> None:
    torch.manual_seed(0)
    embed = torch.nn.Embedding(12, 8).double()
    place = torch.nn.Embedding(7, 8).double()
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    readout = torch.randn(8, dtype=torch.float64)
    ids = torch.from_numpy(sequences())
    with torch.no_grad():
        rows = embed(ids) + place(torch.arange(5))
        answers = (layer(rows[:, -1:], rows, rows)[0][:, 0] @ readout).numpy()
        W = [part.numpy() for part in layer.in_proj_weight.chunk(3)]
        b = [part.numpy() for part in layer.in_proj_bias.chunk(3)]
        out = layer.out_proj.weight.numpy().T @ readout.numpy()
        constant = float(layer.out_proj.bias @ readout)
    E, P = embed.weight.detach().numpy(), place.weight.detach().numpy()
    heads = []
    for rows_of in (slice(0, 4), slice(4, 8)):
        q, k, v = (E @ part[rows_of].T + bias[rows_of] for part, bias in zip(W, b, strict=True))
        pq, pk, pv = (P @ part[rows_of].T for part in W)
        heads.append(
            TokenHead.of(k, q / 2.0, v @ out[rows_of], TokenPositions.of(pk, pq / 2.0, pv @ out[rows_of]))
        )
    model = TokenHeads(heads, constant)
    np.testing.assert_allclose(model(ids.numpy()), answers, rtol=0, atol=1e-13)
    np.testing.assert_allclose(model.canonical()(ids.numpy()), answers, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_files_give_the_model_back_and_onnx_answers_alike(tmp_path: Path, name: str) -> None:
    model = case(name)
    for length in (1, 2, 5):
        ids = sequences(length, length=length)
        path = model.save_onnx(tmp_path / f"model{length}")
        answers = onnxruntime.InferenceSession(str(path)).run(None, {"ids": ids})[0]
        np.testing.assert_allclose(answers, model(ids), rtol=1e-12, atol=1e-12)
    loaded = unsoftmax.load(model.save(tmp_path / "model.safetensors"))
    assert isinstance(loaded, TokenHeads)
    assert np.array_equal(loaded(sequences()), model(sequences()))
    assert model.distance(loaded) < 1e-14


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_canonical_forms_and_distances_ignore_what_no_answer_shows(name: str, seed: int) -> None:
    model = case(name, seed)
    rng = np.random.default_rng(seed)
    heads = []
    for head in model.heads:
        k = head.keys.shape[1]
        mix, shift, slide = (
            rng.standard_normal((k, k)) + 3.0 * np.eye(k),
            rng.standard_normal(k),
            rng.standard_normal(k),
        )
        back = np.linalg.inv(mix).T if k else mix
        places = head.positions
        if places is not None:
            queries = (places.queries - slide) @ back
            queries[0] = rng.standard_normal(k)
            places = TokenPositions((places.keys + slide) @ mix, queries, places.values + 2.0)
        queries = (head.queries + (0.0 if places is None else slide)) @ back
        heads.append(
            TokenHead(
                (head.keys + shift) @ mix, queries, head.values - (0.0 if places is None else 2.0), places
            )
        )
    other = TokenHeads(heads[::-1], model.c)
    ids = sequences(seed)
    np.testing.assert_allclose(other(ids), model(ids), rtol=1e-9, atol=1e-9)
    assert model.distance(other) < 1e-10
    np.testing.assert_allclose(other.canonical()(ids), model.canonical()(ids), rtol=1e-9, atol=1e-9)
    assert model.canonical().parameters == model.parameters


def test_distance_sees_scores_values_and_constants() -> None:
    head = case("one head").heads[0]
    same = TokenHeads([head])
    assert same.distance(
        TokenHeads([TokenHead(2.0 * head.keys, head.queries, head.values)])
    ) == pytest.approx(1.0)
    assert same.distance(
        TokenHeads([TokenHead(head.keys, head.queries, 2.0 * head.values - head.values.mean())])
    ) == pytest.approx(1.0)
    assert same.distance(TokenHeads([head], 1.0)) > 0.1
    assert same.distance(TokenHeads([head, case("one head", 5).heads[0]])) >= 1.0


def test_equal_heads_merge_and_heads_of_constant_value_vanish() -> None:
    head = case("one head").heads[0]
    constant = TokenHead(head.queries, head.keys, np.full(12, 3.0))
    merged = TokenHeads([head, constant, head]).canonical()
    assert len(merged.heads) == 1
    np.testing.assert_allclose(merged(sequences()), 2.0 * TokenHeads([head])(sequences()) + 3.0, atol=1e-12)
    assert TokenHeads([constant]).canonical().parameters == 12


def test_degrees_of_freedom_are_the_rank_of_the_jacobian() -> None:
    """Complex steps through an independent forward pass; sequences of all lengths."""
    for V, L, r, H in ((8, None, 2, 1), (6, None, 1, 2), (8, 4, 2, 1)):
        model = unsoftmax.random_token_heads(V, r, heads=H, longest=L, seed=3)
        rng = np.random.default_rng(1)
        flat = [part for head in model.heads for part in (head.keys, head.queries, head.values)]
        if L is not None:
            flat += [
                part
                for head in model.heads
                if head.positions
                for part in (head.positions.keys, head.positions.queries, head.positions.values)
            ]
        sizes = np.cumsum([part.size for part in flat])
        start = np.concatenate([part.ravel() for part in flat])
        asked = [rng.integers(0, V, rng.integers(1, (L or 6) + 1)) for _ in range(4 * len(start))]

        def answers(
            theta: Any, flat: Any = flat, sizes: Any = sizes, asked: Any = asked, H: int = H, L: Any = L
        ) -> Any:
            parts = [p.reshape(like.shape) for p, like in zip(np.split(theta, sizes[:-1]), flat, strict=True)]
            out = np.zeros(len(asked), complex)
            for h in range(H):
                K, Q, u = parts[3 * h : 3 * h + 3]
                KP, QP, up = (
                    parts[3 * H : 3 * H + 3]
                    if L
                    else (np.zeros((9, K.shape[1])), np.zeros((9, K.shape[1])), np.zeros(9))
                )
                for n, ids in enumerate(asked):
                    N = len(ids)
                    S = np.exp((K[ids] + KP[:N]) @ (Q[ids[-1]] + QP[N - 1]))
                    out[n] += S @ (u[ids] + up[:N]) / S.sum()
            return out

        J = np.stack([answers(start + 1e-30j * unit).imag / 1e-30 for unit in np.eye(len(start))], axis=1)
        values = np.linalg.svd(J, compute_uv=False)
        assert int((values > 1e-9 * values[0]).sum()) == model.parameters


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TokenHead.of(np.eye(3), np.eye(4), np.ones(3)),
        lambda: TokenHead.of(np.eye(3), np.eye(3), np.ones(4)),
        lambda: TokenHead.of(np.eye(3), np.eye(3), [1.0, np.nan, 1.0]),
        lambda: TokenHeads([]),
        lambda: TokenHeads([case("one head").heads[0], case("vectors").heads[0]]),
        lambda: case("one head")(np.array([[12]])),
        lambda: case("positions")(sequences(length=8)),
        lambda: case("one head").distance(unsoftmax.random_token_heads(11, 3)),
    ],
)
def test_what_does_not_fit_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_files_with_missing_parts_are_refused() -> None:
    tensors = case("positions").tensors()
    for gone in ("heads.0.keys", "heads.1.positions.values"):
        with pytest.raises(unsoftmax.ModelFileError):
            TokenHeads.from_tensors({name: part for name, part in tensors.items() if name != gone})
    with pytest.raises(unsoftmax.ModelFileError):
        TokenHeads.from_tensors(tensors | {"heads.0.bias": np.zeros(3)})
