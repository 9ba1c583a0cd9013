"""Blocks behind a linear readout, such as a classifier; blocks that the first row asks; and parts of those
that are not recovered whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import unsoftmax
from tests.models.test_encoder_block import torch_layer
from unsoftmax.arrays import Array
from unsoftmax.models import AskingRow, EncoderBlock, block_from_torch
from unsoftmax.outcomes import Status


class Classifier(nn.Module):
    """A layer of torch, one of its rows, and a linear map to so many logits."""

    def __init__(self, layer: nn.Module, logits: int, row: int = -1, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layer, self.row = layer, row
        self.head = nn.Linear(8, logits, dtype=torch.float64)

    def forward(self, X: torch.Tensor) -> Any:
        return self.head(self.layer(X)[:, self.row])


def answers_of(module: nn.Module) -> Callable[[Array], Array]:
    def answer(X: Array) -> Array:
        with torch.no_grad():
            return np.asarray(module(torch.tensor(X)).numpy())

    return answer


def truth_of(module: Classifier) -> EncoderBlock:
    """The same function as a block with a readout."""
    block = block_from_torch(module.layer)  # type: ignore[arg-type]
    C, b = (part.detach().numpy() for part in (module.head.weight, module.head.bias))
    network = block.network.followed(C).shifted(b)
    return EncoderBlock(block.attention, network, block.first, block.second, readout=C.T)


@pytest.mark.parametrize(
    ("logits", "activation", "row"), [(3, "relu", -1), (4, "gelu", 0), (11, "relu", 0), (9, "gelu", -1)]
)
def test_a_pre_norm_layer_behind_a_classifier(logits: int, activation: str, row: int) -> None:
    module = Classifier(torch_layer(5, norm_first=True, activation=activation), logits, row)
    target = answers_of(module)
    result = unsoftmax.recover(target, width=8, outputs=logits)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert result.model.first_row == (row == 0)
    truth = truth_of(module)
    truth = truth.asked_by(AskingRow.FIRST) if row == 0 else truth
    assert result.error_bound is not None
    assert truth.distance(result.model) <= result.error_bound < 1e-8
    X = np.random.default_rng(0).standard_normal((30, 5, 8))
    np.testing.assert_allclose(result.model(X), target(X), atol=1e-11)


def test_two_logits_of_a_layer_with_two_heads_give_all_but_the_heads() -> None:
    module = Classifier(torch_layer(5, norm_first=True, activation="relu"), 2)
    result = unsoftmax.recover(answers_of(module), width=8, outputs=2)
    assert result.status is Status.UNRESOLVED
    assert result.model is None
    assert "readout of 2 numbers" in result.reason
    assert set(result.parts) == {"value-path", "network", "readout"}
    truth = truth_of(module).canonical()
    path, network, readout = (result.parts[name] for name in ("value-path", "network", "readout"))
    for part in (path, network, readout):
        assert part.certificate.relative < 1e-12
        assert part.error_bound < 1e-7
    assert np.linalg.norm(path.value - truth.attention.v) < path.error_bound * np.linalg.norm(path.value)
    assert np.linalg.norm(readout.value - truth.readout) < readout.error_bound
    assert truth.network.distance(network.value) < network.error_bound


@pytest.mark.parametrize(("logits", "family"), [(3, "auto"), (1, "encoder-block")])
def test_the_value_path_of_a_post_norm_layer_behind_a_classifier(logits: int, family: str) -> None:
    module = Classifier(torch_layer(5, norm_first=False), logits)
    target = answers_of(module)
    if logits == 1:
        result = unsoftmax.recover(lambda X: target(X)[:, 0], width=8, family=family)
    else:
        result = unsoftmax.recover(target, width=8, outputs=logits)
    assert result.status is Status.UNRESOLVED
    assert "LayerNorm follows the attention" in result.reason
    part = result.parts["value-path"]
    truth = np.asarray(block_from_torch(module.layer).canonical().attention.v)  # type: ignore[arg-type]
    assert np.linalg.norm(part.value - truth) < part.error_bound * np.linalg.norm(truth)
    assert part.error_bound < 1e-4


def test_the_first_row_of_a_layer() -> None:
    layer = torch_layer(6, norm_first=True, activation="relu")
    result = unsoftmax.recover(layer, row="first")
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    X = np.random.default_rng(0).standard_normal((20, 4, 8))
    np.testing.assert_allclose(result.model(X), layer(torch.tensor(X))[:, 0].detach().numpy(), atol=1e-11)


@pytest.mark.parametrize("row", [AskingRow.FIRST, AskingRow.MEAN])
def test_files_and_onnx_keep_the_row_that_asks(tmp_path: object, row: AskingRow) -> None:
    block = block_from_torch(torch_layer(6, norm_first=True)).asked_by(row)
    X = np.random.default_rng(0).standard_normal((5, 4, 8))
    block.save(f"{tmp_path}/block.safetensors")
    np.testing.assert_array_equal(unsoftmax.load(f"{tmp_path}/block.safetensors")(X), block(X))
    block.save_onnx(f"{tmp_path}/block.onnx")
    np.testing.assert_allclose(unsoftmax.as_oracle(f"{tmp_path}/block.onnx")(X), block(X), atol=1e-12)
    assert block.distance(block_from_torch(torch_layer(6, norm_first=True))) == 1.0


def _reason(answer: Callable[[torch.Tensor], torch.Tensor], outputs: int) -> tuple[Status, str]:
    def target(X: Array) -> Array:
        with torch.no_grad():
            return np.asarray(answer(torch.tensor(X)).numpy())

    result = unsoftmax.recover(target, width=8, outputs=outputs)
    return result.status, result.reason


def test_what_stands_in_the_way_is_named() -> None:
    layer = torch_layer(6, norm_first=True)
    places = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shaking = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, dtype=torch.float64).train()
    named = {
        "positions are added to rows": _reason(lambda X: layer(X + places[: X.shape[1]])[:, -1], 8),
        "dropout that is on": _reason(lambda X: shaking(X)[:, -1], 8),
        "as probabilities do": _reason(lambda X: layer(X)[:, -1, :3].sigmoid(), 3),
    }
    for words, (status, reason) in named.items():
        assert status is Status.UNRESOLVED
        assert words in reason


def _faint_head(logits: Array, X: Array) -> Array:
    """One logit sees the mean of all rows, a millionth of it."""
    logits[:, 0] += 1e-6 * X.mean(axis=(1, 2))
    return logits


def _bent_logit(logits: Array, X: Array) -> Array:
    logits[:, 0] = logits[:, 0] + 1e-5 * np.tanh(logits[:, 0])
    return logits


def _long_sequences(logits: Array, X: Array) -> Array:
    return np.asarray(logits * (1.0 + 1e-5 * (X.shape[1] > 9)))


@pytest.mark.parametrize(
    ("hostile", "logits"), [(_faint_head, 3), (_bent_logit, 3), (_long_sequences, 3), (_long_sequences, 9)]
)
def test_what_only_looks_like_a_classified_block_is_never_recovered(
    hostile: Callable[[Array, Array], Array], logits: int
) -> None:
    target = answers_of(Classifier(torch_layer(5, norm_first=True, activation="relu"), logits))
    result = unsoftmax.recover(lambda X: hostile(target(X).copy(), X), width=8, outputs=logits)
    assert not result.status.recovered, result


def test_what_the_asking_row_adds_by_itself_is_not_taken_for_the_value_path() -> None:
    module = Classifier(torch_layer(5, norm_first=True, activation="relu"), 2)
    target, block = answers_of(module), block_from_torch(module.layer)  # type: ignore[arg-type]
    assert block.first is not None
    beside = 0.3 * np.random.default_rng(0).standard_normal((8, 2))
    result = unsoftmax.recover(lambda X: target(X) + block.first(X[:, -1]) @ beside, width=8, outputs=2)
    assert not result.status.recovered
    assert "value-path" not in result.parts
