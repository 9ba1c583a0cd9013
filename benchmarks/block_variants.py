"""Blocks that are not plain encoder layer: without norms, without residual connections, without a network,
behind a classifier, asked by their first row.

python -m benchmarks.block_variants [--seeds 3] [--first 300] [--only name] [--width 8]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.models import AskingRow, EncoderBlock, MultiHead, Network, SingleHead
from unsoftmax.models.parts import GELU, RELU, Activation, LayerNorm

HEADS = 2


def block(width: int, neurons: int, activation: Activation, seed: int, kind: str) -> EncoderBlock:
    """Weights as nn.Linear draws them; biases, gains and the classifier drawn as well."""
    rng, r = np.random.default_rng(seed), width // HEADS

    def draw(*sizes: int) -> Array:
        return np.asarray(rng.uniform(-1.0, 1.0, sizes) / np.sqrt(sizes[0]) * np.sqrt(3.0))

    heads = [
        SingleHead.from_projections(
            draw(width, r), draw(width, r), draw(width, r), draw(width, width)[:r], b_Q=draw(r), b_V=draw(r)
        )
        for _ in range(HEADS)
    ]
    attention = MultiHead(heads, 0.3 * rng.standard_normal(width))
    logits = int(kind.removeprefix("classifier ").split()[0]) if kind.startswith("classifier") else width
    A, U = 0.6 * draw(width, neurons).T, 0.6 * draw(neurons, logits)
    network = Network(A, U, 0.3 * rng.standard_normal(neurons), draw(logits), activation=activation)
    norms = [LayerNorm(rng.uniform(0.5, 1.5, width), 0.3 * rng.standard_normal(width)) for _ in range(2)]
    match kind:
        case "no norms":
            return EncoderBlock(attention, network)
        case "no norms, no residuals":
            return EncoderBlock(attention, network, skip=False, readout=np.zeros((width, width)))
        case "no network":
            return EncoderBlock(attention, Network(np.empty((0, width)), np.empty((0, width))), norms[0])
        case "first row":
            return EncoderBlock(attention, network, *norms).asked_by(AskingRow.FIRST)
        case _:
            return EncoderBlock(attention, network, *norms, readout=draw(width, logits))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=300)
    parser.add_argument("--only", default="")
    parser.add_argument("--width", type=int, default=8)
    options = parser.parse_args()
    d = options.width
    kinds = {
        "no norms": 2 * d,
        "no norms, no residuals": 4 * d,
        "no network": 0,
        "first row": 2 * d,
        "classifier 3 logits": 2 * d,
        f"classifier {d + 2} logits": 2 * d,
    }
    print("| block | d, ff | activation | EXACT | queries | worst parameter | bound covers | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, neurons in kinds.items():
        for activation in (RELU, GELU) if neurons else (RELU,):
            # more smooth neurons than 0.3 d(d + 1) are beyond their learner
            count = min(neurons, 2 * d) if activation is GELU else neurons
            if options.only in kind:
                seeds = range(options.first, options.first + options.seeds)
                print(_row(kind, d, count, activation, seeds), flush=True)


def _row(kind: str, d: int, neurons: int, activation: Activation, seeds: range) -> str:
    exact, covered, queries, off, seconds = 0, 0, [], [0.0], []
    for seed in seeds:
        hidden = block(d, max(neurons, 1), activation, seed, kind)
        start = time.process_time()
        result = unsoftmax.recover(lambda X, f=hidden: f(X), width=d, outputs=hidden.outputs, seed=seed)
        seconds.append(time.process_time() - start)
        queries.append(result.queries.total)
        if isinstance(result.model, EncoderBlock):
            exact += result.status is unsoftmax.Status.EXACT
            off.append(hidden.distance(result.model))
            covered += off[-1] <= (result.error_bound or 0.0)
        else:
            print(f"  {kind} {activation.name} seed {seed}: {result.status}: {result.reason}", flush=True)
    return (
        f"| {kind} | {d}, {neurons} | {activation.name if neurons else ''} | {exact}/{len(seeds)} | "
        f"{min(queries):,}-{max(queries):,} | {max(off):.0e} | {covered}/{len(off) - 1} | "
        f"{float(np.median(seconds)):.0f} |"
    )


if __name__ == "__main__":
    main()
