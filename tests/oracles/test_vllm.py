"""The client against vLLM itself, where the variable UNSOFTMAX_VLLM names its program (it takes minutes to
start)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from benchmarks.vllm_server import served_model, vllm_server

from unsoftmax.learners.language_model.token_prompts import TokenPromptLearner
from unsoftmax.learners.language_model.unembedding import UnembeddingLearner
from unsoftmax.ledger import Ledger
from unsoftmax.models.language_model.distance import relative
from unsoftmax.oracles.http.completions import completions_oracle

pytest.importorskip("torch")

PROGRAM = os.environ.get("UNSOFTMAX_VLLM", "")


@pytest.mark.skipif(not PROGRAM, reason="UNSOFTMAX_VLLM does not name the program vllm")
def test_vllm_answers_as_the_model_does_and_leaks_its_unembedding() -> None:
    model = served_model(64, 32, 2, 2, seed=5)
    rows = np.random.default_rng(0).standard_normal((6, 5, 64)).astype(np.float32).astype(np.float64)
    ids = np.random.default_rng(1).integers(0, model.outputs, (6, 5))
    with vllm_server(Path(PROGRAM), model) as target:
        by_rows = completions_oracle(target)
        by_ids = completions_oracle(target.partition("&")[0])
        assert by_rows.look.embeddings
        np.testing.assert_allclose(by_rows(rows), model(rows), atol=1e-4)
        np.testing.assert_allclose(by_ids(ids), model(model.embed(ids)), atol=1e-4)  # type: ignore[arg-type]
        part = UnembeddingLearner().learn_part(Ledger(by_rows), np.random.default_rng(2))
        space = TokenPromptLearner().learn_part(Ledger(by_ids), np.random.default_rng(3))
    assert relative(part.value.matrix, model.canonical().unembedding) < min(1e-6, part.error_bound)
    assert space.value.width == 64
