"""`recover` of language models: our own, and those of `transformers` in process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from tests.models.language_model.float64_llama import in_float64
from unsoftmax.arrays import Array
from unsoftmax.learners.claims import Size
from unsoftmax.learners.language_model.token_prompts import TokenPromptLearner
from unsoftmax.ledger import Ledger
from unsoftmax.models import LanguageModel, random_gpt2, random_language_model
from unsoftmax.models.language_model.distance import relative
from unsoftmax.oracles import FunctionOracle, OracleSpec
from unsoftmax.oracles.domain import TokenIds
from unsoftmax.outcomes import Status

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def test_a_whole_layer_is_exact_and_certified() -> None:
    model = random_language_model(12, 8, heads=2, groups=1, seed=3)
    result = unsoftmax.recover(model)
    assert result.status is Status.EXACT
    assert result.family == "language-model"
    assert isinstance(result.model, LanguageModel)
    assert result.certificate is not None
    assert result.certificate.passed
    assert result.error_bound is not None
    assert model.distance(result.model) <= result.error_bound <= 1e-9
    size = Size(12, (6, 6), 8, model.outputs)
    assert result.claim.queries.holds(result.queries.learning, size)


@pytest.mark.parametrize(("layers", "budget", "parts"), [(1, 60, {"unembedding"}), (3, 10, set())])
def test_a_spent_budget_keeps_what_was_certified(layers: int, budget: int, parts: set[str]) -> None:
    result = unsoftmax.recover(random_language_model(12, 8, layers=layers, seed=3), budget=budget)
    assert result.status is Status.BUDGET_SPENT
    assert set(result.parts) == parts


def _asked_as(model: LanguageModel, answer: Callable[[Array], Array]) -> unsoftmax.Result:
    """The recovery of a target that answers by a function, with the width and the tokens of a model."""
    spec = OracleSpec(width=model.width, outputs=model.outputs, log_probabilities=True)
    return unsoftmax.recover(FunctionOracle(answer, spec))


def test_answers_that_are_no_numbers_keep_what_was_certified() -> None:
    """As behind norms whose eps is zero: a row of zeros is answered with NaN."""
    model = random_language_model(8, 8, seed=3)
    result = _asked_as(model, lambda X: np.where(np.any(X, axis=(1, 2))[:, None], model(X), np.nan))
    assert result.status is Status.UNRESOLVED
    assert set(result.parts) == {"unembedding"}
    assert "NaN" in result.reason


def test_a_target_that_cuts_long_prompts_off_is_named() -> None:
    model = random_language_model(8, 4, heads=2, groups=1, seed=5)
    result = _asked_as(model, lambda X: model(X[:, :16]))
    assert result.status is Status.UNRESOLVED
    assert "value-path" in result.parts
    assert "cut off" in result.reason


@pytest.mark.parametrize("layers", [1, 2])
def test_a_transformers_model_in_process(layers: int) -> None:
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=12,
        intermediate_size=8,
        num_hidden_layers=layers,
        num_attention_heads=2,
        initializer_range=0.3,
    )
    transformers.set_seed(layers)
    theirs = in_float64(transformers.LlamaForCausalLM(config))
    truth = LanguageModel.from_transformers(theirs)
    result = unsoftmax.recover(theirs)
    error = relative(result.parts["unembedding"].value.matrix, truth.canonical().unembedding)
    assert error <= min(1e-13, result.parts["unembedding"].error_bound)
    if layers == 1:
        assert isinstance(result.model, LanguageModel), result.reason
        assert result.model.distance(truth) <= 1e-8
    else:
        assert result.model is None


@pytest.mark.parametrize(
    ("kind", "options", "word", "parts", "most"),
    [
        ("Qwen2", {}, "biases", {"unembedding"}, 100),
        ("Mistral", {"sliding_window": 4}, "window", {"unembedding"}, 1000),
        ("Mistral", {"sliding_window": 8}, "window", {"unembedding", "value-path", "network", "eps"}, 10_000),
        ("Qwen3", {"head_dim": 4}, "normed", {"unembedding", "value-path", "network", "eps"}, 20_000),
    ],
)
def test_what_stands_in_the_way_is_named(
    kind: str, options: dict[str, int], word: str, parts: set[str], most: int
) -> None:
    """Decoders of other shapes keep the parts that are certain."""
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=20,
        hidden_size=12,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        **options,
    )
    transformers.set_seed(1)
    theirs = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for name, values in theirs.named_parameters():
            if name.endswith("bias"):
                values.normal_(0.0, 0.3)
    result = unsoftmax.recover(theirs)
    assert result.status is Status.UNRESOLVED
    assert word in result.reason
    assert set(result.parts) == parts
    assert result.queries.total < most


@pytest.mark.parametrize("seed", [21])
def test_a_layer_that_computes_in_float32_is_known_within_a_bound(seed: int) -> None:
    """Weights of usual size: transformers computes everything in float32, and so rounds its answers."""
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=12,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
    )
    transformers.set_seed(seed)
    theirs = transformers.LlamaForCausalLM(config).float()
    truth = LanguageModel.from_transformers(theirs)
    result = unsoftmax.recover(theirs, seed=seed)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, LanguageModel)
    assert result.error_bound is not None
    assert truth.distance(result.model) <= result.error_bound <= 1e-3


def test_gpt2_in_float32_gives_its_unembedding() -> None:
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=30, n_embd=12, n_layer=2, n_head=2, n_positions=64)
    )
    result = unsoftmax.recover(theirs)
    truth = LanguageModel.from_transformers(theirs).canonical()
    part = result.parts["unembedding"]
    assert relative(part.value.matrix, truth.unembedding) <= min(3e-6, part.error_bound)
    assert result.status in (Status.UNRESOLVED, Status.OUTSIDE_CLASS)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(("d", "layers"), [(8, 1), (24, 3)])
def test_width_norm_and_column_space_from_token_prompts(kind: str, d: int, layers: int) -> None:
    make = random_language_model if kind == "llama" else random_gpt2
    model = make(d, 2 * d, layers=layers, seed=d, vocabulary=3 * d)
    spec = OracleSpec(outputs=model.outputs, domain=TokenIds(model.outputs))
    ledger = Ledger(FunctionOracle(lambda ids: model(model.embed(ids)), spec))
    part = TokenPromptLearner().learn_part(ledger, np.random.default_rng(0))
    assert part.value.width == d
    assert part.value.layer_norm == (kind == "gpt2")
    true, basis = model.canonical().unembedding, part.value.basis
    assert relative(basis @ (basis.T @ true), true) <= 1e-9
    assert TokenPromptLearner.claim.queries.holds(ledger.bill.learning, Size(d))


def test_a_model_wider_than_its_vocabulary_shows_no_rank() -> None:
    model = random_language_model(24, 24, vocabulary=12, seed=1)
    spec = OracleSpec(outputs=12, domain=TokenIds(12), log_probabilities=True)
    result = unsoftmax.recover(FunctionOracle(lambda ids: model(model.embed(ids)), spec))
    assert result.status is Status.UNRESOLVED
    assert not result.parts


@pytest.mark.parametrize(
    ("moves", "says"), [(True, "when asked again"), (False, "the same log-probabilities")]
)
def test_answers_that_do_not_depend_on_the_prompt_show_no_unembedding(moves: bool, says: str) -> None:
    """Drawn anew for every request, or one distribution for all prompts."""
    rng = np.random.default_rng(1)
    one = np.log(rng.dirichlet(np.ones(12)))
    spec = OracleSpec(outputs=12, domain=TokenIds(12), log_probabilities=True, max_batch=32)

    def answer(ids: Array) -> Array:
        told = np.log(rng.dirichlet(np.ones(12))) if moves else one
        return np.tile(told, (len(ids), 1))

    result = unsoftmax.recover(FunctionOracle(answer, spec))
    assert result.status is Status.UNRESOLVED
    assert says in result.reason
    assert not result.parts


def test_a_check_says_what_leaks() -> None:
    found = unsoftmax.check(random_language_model(12, 8, layers=2, seed=1))
    assert found.recoverable
    assert "language model" in found.looks_like
    assert "12 queries" in found.advice
    assert found.queries == 0
