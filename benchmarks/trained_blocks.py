"""Trained post-norm layers of the SCEPTR package (T-cell receptors; eight heads, ReLU), through `recover` in
float64: how it ends, queries over parameters, deviation on rows as the model itself makes them.

python -m benchmarks.trained_blocks [--model SCEPTR_small] [--layer 1] [--seed 0] [--packages FOLDER]

SCEPTR_tiny has width 16 and 64 neurons, SCEPTR_small 32 and 128, SCEPTR 64 and 256; three layers each.
Without --packages sceptr is installed with pip, without its dependencies, into a temporary folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import unsoftmax
from unsoftmax.models import EncoderBlock, block_from_torch

_STACK = "_self_attention_stack._standard_stack._self_attention_stack.layers."
_HEADS = 8
_SEQUENCES, _LONGEST = 200, 24


def load(folder: Path, model: str) -> dict[str, torch.Tensor]:
    path = folder / "sceptr" / "_model_saves" / model / "state_dict.pt"
    state = torch.load(path, weights_only=True, map_location="cpu")
    return {name: part.double() for name, part in state.items()}


def layer_of(state: dict[str, torch.Tensor], number: int) -> torch.nn.TransformerEncoderLayer:
    prefix = f"{_STACK}{number}."
    parts = {name[len(prefix) :]: part for name, part in state.items() if name.startswith(prefix)}
    neurons, width = parts["linear1.weight"].shape
    layer = torch.nn.TransformerEncoderLayer(
        width, _HEADS, neurons, 0.0, batch_first=True, dtype=torch.float64
    ).eval()
    layer.load_state_dict(parts)
    return layer


@torch.no_grad()
def rows_before(state: dict[str, torch.Tensor], number: int, seed: int) -> list[torch.Tensor]:
    """What a layer gets for random strings of residues: embeddings of tokens, of compartments and a position,
    projected, and passed through the layers before it."""
    rng = np.random.default_rng(seed)
    tokens = state["_token_embedder._token_embedding._token_embeddings"]
    compartments = state["_token_embedder._compartment_embedding._token_embeddings"]
    projector = state["_self_attention_stack._initial_projector.weight"]
    found = []
    for length in rng.integers(4, _LONGEST, _SEQUENCES):
        kinds = torch.tensor(rng.integers(3, len(tokens), length))
        places = torch.tensor(np.sort(rng.integers(1, len(compartments), length)))
        position = torch.linspace(0.0, 1.0, int(length), dtype=torch.float64)[:, None]
        x = (torch.cat([tokens[kinds], compartments[places], position], dim=1) @ projector.T)[None]
        for before in range(number):
            x = layer_of(state, before)(x)
        found.append(x)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="SCEPTR_small")
    parser.add_argument("--layer", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.packages or Path(temporary)
        if options.packages is None:
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", temporary]
            subprocess.run([*command, "sceptr==1.2.0"], check=True)
        state = load(folder, options.model)
    target = layer_of(state, options.layer)
    parameters = sum(part.numel() for part in target.parameters())
    start = time.process_time()
    result = unsoftmax.recover(target, family="encoder-block", seed=options.seed)
    seconds = time.process_time() - start
    print(
        f"{options.model} layer {options.layer}: {result.status}, {result.queries.total} queries "
        f"({result.queries.total / parameters:.2f} times the parameters), {seconds:.0f} CPU s"
    )
    print(result.reason)
    if isinstance(result.model, EncoderBlock):
        off = 0.0
        for x in rows_before(state, options.layer, options.seed):
            with torch.no_grad():
                answers = target(x)[:, -1].numpy()
            off = max(off, float(np.abs(result.model(x.numpy()) - answers).max()))
        distance = block_from_torch(target).distance(result.model)
        print(f"deviation on the model's own rows {off:.1e}; parameters {distance:.1e}", end="; ")
        print(f"bound {result.error_bound:.1e}")


if __name__ == "__main__":
    main()
