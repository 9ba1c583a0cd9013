"""Several heads as a model: the sum, its canonical form, equality of functions, files and torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax
from unsoftmax import (
    ModelFileError,
    MultiHead,
    SingleHead,
    UsageError,
    equivalent,
    from_torch,
    load,
    random_multi_head,
    to_torch,
    witness_pair,
)


def _batch(d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((7, 5, d))


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("r", [2, 6])
def test_the_answer_is_the_sum_of_the_heads(r: int, outputs: int | None) -> None:
    model = random_multi_head(6, 3, r, seed=1, biases=True, outputs=outputs)
    X = _batch(6)
    assert np.allclose(model(X), sum(head(X) for head in model.heads) + np.asarray(model.c), rtol=1e-13)
    assert np.allclose(
        model.scores(X), np.stack([head.scores(X) for head in model.heads], axis=2), rtol=1e-12
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), heads=st.integers(1, 4), d=st.integers(1, 6), biases=st.booleans())
def test_canonical_form_keeps_the_function_and_is_idempotent(
    seed: int, heads: int, d: int, biases: bool
) -> None:
    model = random_multi_head(d, heads, seed=seed, biases=biases)
    rng = np.random.default_rng(seed)
    again = MultiHead([model.heads[i] for i in rng.permutation(heads)], model.c)
    X = _batch(d, seed)
    assert np.allclose(model(X), again.canonical()(X), rtol=1e-10, atol=1e-10)
    assert model.distance(again) < 1e-12
    assert model.canonical().distance(model.canonical().canonical()) < 1e-12


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_witness_pairs_are_one_function_with_different_parameters(seed: int, biases: bool) -> None:
    f, g = witness_pair(5, 3, seed=seed, biases=biases)
    X = _batch(5, seed)
    assert np.allclose(f(X), g(X), rtol=1e-12)
    assert max(float(np.abs(a.v - b.v).max()) for a, b in zip(f.heads, g.heads, strict=False)) > 0.1
    assert len(f.canonical().heads) == len(g.canonical().heads) == 2
    assert equivalent(f, g)


def _moved(model: MultiHead, what: str, by: float) -> MultiHead:
    head = model.heads[-1]
    W, v, w0, c = (
        head.W.copy(),
        head.v.copy(),
        None if head.w0 is None else head.w0.copy(),
        np.array(model.c, dtype=float),
    )
    if what == "W":
        W[0, 1] += by
    elif what == "v":
        v.flat[0] += by
    elif what == "w0" and w0 is not None:
        w0[0] += by
    else:
        c += by
    return MultiHead([*model.heads[:-1], SingleHead(W, v, w0)], c)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("scale", [0.05, 1.0, 40.0])
@pytest.mark.parametrize("what", ["W", "v", "w0", "c"])
def test_an_entry_moved_by_a_millionth_is_another_function_and_a_sequence_shows_it(
    what: str, scale: float, outputs: int | None
) -> None:
    model = random_multi_head(6, 3, 6, seed=2, biases=True, scale=scale, outputs=outputs)
    other = _moved(model, what, 1e-6)
    answer = equivalent(model, other)
    assert not answer
    assert answer.separating is not None
    X = answer.separating[None]
    assert np.abs(model(X) - other(X)).max() > 0
    assert answer.answers is not None
    assert np.array_equal(answer.answers[0], model(X))


def test_gauge_permutation_merging_and_silent_heads_do_not_matter() -> None:
    model = random_multi_head(6, 3, 2, seed=3)
    rng = np.random.default_rng(0)
    parts = []
    for head in model.heads:
        M = rng.standard_normal((2, 2))
        left, right = head.matrix.left, head.matrix.right  # type: ignore[union-attr]
        split = rng.standard_normal(6)
        parts += [
            SingleHead((left @ M, right @ np.linalg.inv(M).T), head.v - split),
            SingleHead(head.matrix, split),
        ]
    parts.append(SingleHead(np.ones((6, 6)), np.zeros(6)))
    other = MultiHead([parts[i] for i in rng.permutation(len(parts))])
    answer = equivalent(model, other)
    assert answer, answer.reason
    assert equivalent(model.heads[0], MultiHead([model.heads[0]]))


def test_equivalence_says_what_it_cannot_compare() -> None:
    with pytest.raises(UsageError, match="equal shapes"):
        equivalent(random_multi_head(4, 2), random_multi_head(5, 2))


@pytest.mark.parametrize("outputs", [None, 3])
def test_files(tmp_path: Path, outputs: int | None) -> None:
    model = random_multi_head(5, 2, seed=1, biases=True, outputs=outputs)
    again = load(model.save(tmp_path / "heads.safetensors"))
    assert isinstance(again, MultiHead)
    assert np.array_equal(model(_batch(5)), again(_batch(5)))


def test_bad_files_and_bad_heads_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "bad.safetensors"
    save_file(
        {"heads.1.v": np.ones(2)}, path, {"format": "unsoftmax", "version": "1", "family": "multi-head"}
    )
    with pytest.raises(ModelFileError, match="numbers its heads"):
        load(path)
    with pytest.raises(UsageError, match="at least one head"):
        MultiHead([])
    with pytest.raises(UsageError, match="one shape"):
        MultiHead([SingleHead(np.eye(2), np.ones(2)), SingleHead(np.eye(3), np.ones(3))])
    with pytest.raises(UsageError, match="SingleHead models"):
        MultiHead([3])  # type: ignore[list-item]


def test_parameters_count_degrees_of_freedom() -> None:
    assert random_multi_head(8, 4, 2, seed=0).parameters == 4 * (2 * (16 - 2) + 8)
    assert random_multi_head(8, 4, 2, seed=0, biases=True).parameters == 4 * (2 * (17 - 2) + 8) + 1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("readout", [False, True])
def test_torch_layers_come_and_go(bias: bool, readout: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(12, 3, bias=bias, batch_first=True, dtype=torch.float64).eval()
    if bias:
        with torch.no_grad():
            layer.in_proj_bias.normal_()
            layer.out_proj.bias.normal_()
    weights = np.random.default_rng(0).standard_normal(12) if readout else None
    model = from_torch(layer, weights)
    X = _batch(12)
    with torch.no_grad():
        rows = torch.from_numpy(X)
        there = layer(rows, rows, rows)[0].numpy()
    assert np.allclose(
        model(X), there[:, -1] @ weights if weights is not None else there[:, -1], rtol=1e-11, atol=1e-12
    )
    if readout:
        with pytest.raises(UsageError, match="all outputs"):
            to_torch(model)
        return
    rebuilt = to_torch(model)
    with torch.no_grad():
        assert np.allclose(rebuilt(rows, rows, rows)[0].numpy(), there, rtol=1e-10, atol=1e-11)


def test_layers_that_cannot_be_read_or_built_say_why() -> None:
    with pytest.raises(UsageError, match="add_bias_kv"):
        from_torch(torch.nn.MultiheadAttention(4, 2, add_bias_kv=True))
    with pytest.raises(UsageError, match="one width"):
        from_torch(torch.nn.MultiheadAttention(4, 2, kdim=3))
    with pytest.raises(UsageError, match="readout must be"):
        from_torch(torch.nn.MultiheadAttention(4, 2), np.ones(3))
    with pytest.raises(UsageError, match="rank above"):
        to_torch(random_multi_head(4, 2, 4, outputs=4))
    with pytest.raises(UsageError, match="divisor"):
        to_torch(random_multi_head(5, 2, 1, outputs=5), 3)


def test_the_demo_target_is_a_multi_head_model() -> None:
    result = unsoftmax.recover("demo:multi-head?d=10&heads=2&r=3&seed=1&biases=1")
    assert result.status is unsoftmax.Status.EXACT
    assert result.as_json()["heads"] == 2
    assert result.as_json()["rank"] == [3, 3]
