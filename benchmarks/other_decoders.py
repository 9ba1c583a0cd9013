"""Decoders of other shapes as `transformers` makes them, through `recover`: how each ends, and that none is
recovered wrongly.

python -m benchmarks.other_decoders                          all, in float32
python -m benchmarks.other_decoders --only "Gemma;Qwen2" --double --seed 7
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import transformers
import unsoftmax
from unsoftmax.arrays import Array

_WIDTH, _TOKENS, _NEURONS = 16, 40, 20
_HELD_OUT, _ROWS = 40, 24
_LLAMA: dict[str, Any] = {
    "vocab_size": _TOKENS,
    "hidden_size": _WIDTH,
    "intermediate_size": _NEURONS,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_GPT2: dict[str, Any] = {
    "vocab_size": _TOKENS,
    "n_embd": _WIDTH,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 64,
}
_TWO_LAYERS: dict[str, Any] = _LLAMA | {"num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 12}
_CAPS = {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 5.0}
_FACTORS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "logits_scaling": 2.0,
    "attention_multiplier": 0.3,
}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("Llama", _LLAMA),
    "Llama, two layers": ("Llama", _TWO_LAYERS),
    "Llama, GELU": ("Llama", _LLAMA | {"hidden_act": "gelu"}),
    "Llama, biases": ("Llama", _LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "Gemma": ("Gemma", _LLAMA | {"head_dim": 8}),
    "Gemma 2": ("Gemma2", _LLAMA | _CAPS | {"head_dim": 8}),
    "Granite": ("Granite", _LLAMA | _FACTORS),
    "Qwen2": ("Qwen2", _LLAMA),
    "Qwen2, two layers": ("Qwen2", _TWO_LAYERS),
    "Qwen3": ("Qwen3", _LLAMA | {"head_dim": 8}),
    "Qwen3, two layers": ("Qwen3", _TWO_LAYERS | {"head_dim": 8}),
    "Mistral, window 4": ("Mistral", _LLAMA | {"sliding_window": 4}),
    "Mistral, window 8": ("Mistral", _LLAMA | {"sliding_window": 8}),
    "Mistral, two layers": ("Mistral", _TWO_LAYERS | {"sliding_window": 4}),
    "Mixtral": ("Mixtral", _LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "OLMo 2": ("Olmo2", _LLAMA),
    "StableLM": ("StableLm", _LLAMA | {"partial_rotary_factor": 0.5}),
    "Phi": ("Phi", _LLAMA | {"num_key_value_heads": 2, "partial_rotary_factor": 0.5}),
    "Cohere": ("Cohere", _LLAMA),
    "GPT-NeoX": ("GPTNeoX", _LLAMA | {"rotary_pct": 0.5}),
    "GPT-J": ("GPTJ", _GPT2 | {"rotary_dim": 4}),
    "OPT": ("OPT", _LLAMA | {"ffn_dim": _NEURONS, "word_embed_proj_dim": _WIDTH}),
    "GPT-BigCode": ("GPTBigCode", _GPT2),
    "GPT-Neo": (
        "GPTNeo",
        {"vocab_size": _TOKENS, "hidden_size": _WIDTH, "num_layers": 1, "num_heads": 2}
        | {"attention_types": [[["global"], 1]], "max_position_embeddings": 64},
    ),
    "Phi-3": ("Phi3", _LLAMA),
    "StarCoder 2": ("Starcoder2", _LLAMA),
    "Falcon": ("Falcon", _LLAMA | {"multi_query": True, "parallel_attn": True}),
    "MPT": ("Mpt", {"vocab_size": _TOKENS, "d_model": _WIDTH, "n_layers": 1, "n_heads": 2}),
    "Bloom": ("Bloom", {"vocab_size": _TOKENS, "hidden_size": _WIDTH, "n_layer": 1, "n_head": 2}),
    "GPT-2": ("GPT2", _GPT2),
    "GPT-2, two layers": ("GPT2", _GPT2 | {"n_layer": 2}),
}


def decoder(name: str, seed: int, double: bool) -> Any:
    """A decoder with random weights of the size that trained ones have, gains and biases included."""
    kind, options = DECODERS[name]
    config = getattr(transformers, f"{kind}Config")(**options)
    head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{kind}{head}")(config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter, values in model.named_parameters():
            noise = torch.randn(values.shape, generator=draw)
            if values.dim() >= 2:
                values.copy_(1.2 * noise / np.sqrt(values.shape[-1]))
            elif "norm" in parameter or "ln" in parameter:
                values.add_(0.2 * noise)
            else:
                values.copy_(0.3 * noise)
    return (model.double() if double else model).eval()


def _off(model: Any, found: Any, seed: int) -> float:
    """Largest difference of log-probabilities on fresh prompts."""
    d = model.get_input_embeddings().weight.shape[1]
    prompts = np.random.default_rng(seed + 99).standard_normal((_HELD_OUT, _ROWS, d)).astype(np.float32)
    with torch.no_grad():
        rows = torch.tensor(prompts, dtype=model.dtype)
        answers: Array = model(inputs_embeds=rows).logits[:, -1].double().log_softmax(-1).numpy()
    return float(np.abs(found(prompts.astype(np.float64)) - answers).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names, with ; between them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--double", action="store_true", help="float64, as far as transformers computes in it"
    )
    arguments = parser.parse_args()
    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    for name in arguments.only.split(";") if arguments.only else DECODERS:
        model = decoder(name, arguments.seed, arguments.double)
        result = unsoftmax.recover(model, seed=arguments.seed)
        off = "-" if result.model is None else f"{_off(model, result.model, arguments.seed):.1e}"
        parts = ", ".join(result.parts) or "no parts"
        print(
            f"{name}: {result.status}, {result.queries.total:,} queries, {parts}, "
            f"fresh log-probabilities off by {off}; {result.reason}",
            flush=True,
        )


if __name__ == "__main__":
    main()
