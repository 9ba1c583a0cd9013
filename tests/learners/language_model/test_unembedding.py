"""The unembedding in d queries: any depth, both norms, float64 and float32, and what ends the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.learners.language_model.asking import asked
from tests.models.language_model.float64_llama import log_probabilities
from unsoftmax.learners.claims import Size
from unsoftmax.learners.language_model.unembedding import UnembeddingLearner
from unsoftmax.models.language_model import LanguageModel, random_gpt2, random_language_model
from unsoftmax.models.language_model.distance import relative
from unsoftmax.models.parts import LayerNorm, RMSNorm
from unsoftmax.outcomes import NotIdentifiable, OutsideClass

transformers = pytest.importorskip("transformers")


def _shape(kind: str, d: int, layers: int, seed: int) -> LanguageModel:
    if kind == "llama":
        return random_language_model(d, 2 * d, heads=2, layers=layers, seed=seed)
    return random_gpt2(d, 2 * d, heads=2, layers=layers, seed=seed)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(("d", "layers", "seed"), [(8, 1, 0), (16, 4, 1), (32, 12, 2)])
def test_float64(kind: str, d: int, layers: int, seed: int) -> None:
    model = _shape(kind, d, layers, seed)
    ledger = asked(model)
    part = UnembeddingLearner().learn_part(ledger, np.random.default_rng(seed))
    error = relative(part.value.matrix, model.canonical().unembedding)
    assert error <= 1e-14
    assert error <= part.error_bound <= 1e-12
    assert isinstance(part.value.norm, RMSNorm if kind == "llama" else LayerNorm)
    assert UnembeddingLearner.claim.queries.holds(ledger.bill.learning, Size(d))
    assert ledger.bill.by_phase["verification"] == part.certificate.n_queries


@pytest.mark.parametrize(("kind", "layers"), [("llama", 4), ("gpt2", 3)])
def test_float32_as_transformers_computes_it(tmp_path: Path, kind: str, layers: int) -> None:
    folder = _shape(kind, 16, layers, 5).to_transformers(tmp_path)
    theirs: Any = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    model = LanguageModel.from_transformers(theirs)
    ledger = asked(model, lambda X: log_probabilities(theirs, X))
    part = UnembeddingLearner().learn_part(ledger, np.random.default_rng(0))
    error = relative(part.value.matrix, model.canonical().unembedding)
    assert error <= 3e-7
    assert error <= part.error_bound <= 1e-4


def test_logits_with_any_offset_serve_as_well() -> None:
    model = random_language_model(8, 8, seed=1)
    ledger = asked(model, lambda X: model(X) + 7.0)
    part = UnembeddingLearner().learn_part(ledger, np.random.default_rng(0))
    assert relative(part.value.matrix, model.canonical().unembedding) <= 1e-13


def test_a_post_norm_model_is_outside() -> None:
    model = random_language_model(8, 8, layers=1, seed=2)

    def normed_input(X: np.ndarray) -> np.ndarray:
        return model(np.tanh(X))

    with pytest.raises(OutsideClass, match="linear in the direction"):
        UnembeddingLearner().learn_part(asked(model, normed_input), np.random.default_rng(0))


def test_a_constant_model_tells_nothing() -> None:
    model = random_language_model(8, 8, seed=3)
    with pytest.raises(NotIdentifiable):
        UnembeddingLearner().learn_part(
            asked(model, lambda X: np.zeros((len(X), model.outputs))), np.random.default_rng(0)
        )


def test_a_wide_model_in_float32_does_not_overflow(tmp_path: Path) -> None:
    """The square of a row of width 300 and size 2^60 is beyond float32, if all its entries are that large."""
    folder = random_language_model(300, 8, heads=2, vocabulary=320, seed=1).to_transformers(tmp_path)
    theirs: Any = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    model = LanguageModel.from_transformers(theirs)
    part = UnembeddingLearner().learn_part(
        asked(model, lambda X: log_probabilities(theirs, X)), np.random.default_rng(0)
    )
    assert relative(part.value.matrix, model.canonical().unembedding) <= min(3e-7, part.error_bound)
