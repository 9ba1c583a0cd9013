"""Deep pre-norm stacks and decoders through `recover`: how many seeds are right, queries, errors.

python -m benchmarks.depth GELU and SwiGLU stacks of two to four layers python -m benchmarks.depth --only
gelu-2 one row python -m benchmarks.depth bounds a bound on the norm of rows, and the error that it leaves
python -m benchmarks.depth others other widths, activations, skips; post-norm, dropout, many neurons python -m
benchmarks.depth float32 a stack that computes in float32 python -m benchmarks.depth llama whole decoders of
--layers layers through log-probabilities
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.audit.drawings.figures import draw_defences
from unsoftmax.models import LanguageModel, ResidualStack, random_language_model, random_residual_stack
from unsoftmax.models.parts import RELU, SILU

STACKS: dict[str, tuple[int, int, int, dict[str, Any], int | None]] = {
    # name: width, neurons a layer, layers, kind, queries of a prototype that was told depth and widths
    "gelu-2": (16, 12, 2, {}, 109_000),
    "gelu-3": (24, 12, 3, {}, 230_000),
    "gelu-4": (32, 12, 4, {}, 426_000),
    "swiglu-2": (16, 12, 2, {"gated": True, "paths": True}, 210_000),
    "swiglu-3": (24, 12, 3, {"gated": True, "paths": True}, 385_000),
    "swiglu-4": (32, 12, 4, {"gated": True, "paths": True}, None),
    "relu-2": (16, 12, 2, {"activation": RELU}, None),
    "relu-3": (24, 12, 3, {"activation": RELU}, None),
    "relu-4": (32, 12, 4, {"activation": RELU}, None),
    "silu-2": (16, 12, 2, {"activation": SILU}, None),
    "silu-3": (24, 12, 3, {"activation": SILU}, None),
    "layer-norm-2": (16, 12, 2, {"layer_norm": True}, None),
    "biases-2": (16, 12, 2, {"output_biases": True}, None),
}


def stacks(only: str | None, seeds: range) -> None:
    """Every seed of every row, and a summary."""
    for name, (d, m, layers, kind, before) in STACKS.items():
        if only not in (None, name):
            continue
        right, queries, errors = 0, [], []
        for seed in seeds:
            stack = random_residual_stack(d, m, layers=layers, seed=seed, **kind)
            began = time.process_time()
            result = unsoftmax.recover(
                lambda X, f=stack: f(X), width=d, outputs=d, family="network", seed=seed
            )
            found = isinstance(result.model, ResidualStack)
            error = stack.distance(result.model) if isinstance(result.model, ResidualStack) else np.inf
            right += found and error < 1e-10
            queries.append(result.queries.total)
            errors.append(error)
            spent = time.process_time() - began
            print(
                f"  {name} seed {seed}: {result.status} {queries[-1]:,} queries, error {error:.1e}, bound "
                f"{result.error_bound or np.inf:.1e}, {spent:.0f} s {'' if found else result.reason[:160]}",
                flush=True,
            )
        print(
            f"{name} d={d} m={m}: {right} of {len(seeds)} to 1e-10, queries {min(queries):,} to "
            f"{max(queries):,}{'' if before is None else f' (prototype {before:,})'}, median error "
            f"{np.median(errors):.1e}, worst {max(errors):.1e}",
            flush=True,
        )


def bounds(seeds: range, picture: Path | None) -> None:
    """The largest norm of a row against what is recovered; the curve of the first seed as a picture."""
    for seed in seeds:
        table = unsoftmax.defend(random_residual_stack(12, 5, seed=seed), seed=seed)
        for row in table.rows:
            off = np.inf if row.parameter_error is None else row.parameter_error
            print(
                f"seed {seed}, {row.label}: {row.status}, error {off:.1e}, {row.queries:,} queries",
                flush=True,
            )
        if picture is not None and seed == seeds[0]:
            picture.write_text(draw_defences(table.ranked, alone=True), encoding="utf-8")


def mixed(one: ResidualStack, two: ResidualStack) -> ResidualStack:
    """The first layer of one and the second of the other."""
    return ResidualStack([one.layers[0], two.layers[1]], one.final_norm)


def by_hand(
    stack: ResidualStack, skip: float = 1.0, leak: float = 0.0, after: bool = False, dropped: float = 0.0
) -> Callable[[Array], Array]:
    """The stack with a factor of its skips, leaking ReLUs, norms after every sum, or dropout."""
    rng = np.random.default_rng(0)

    def answers(X: Array) -> Array:
        x = X[:, -1]
        for layer in stack.layers:
            part: Any = layer.network
            z = (x if after else layer.network_norm(x)) @ part.inner.T + part.inner_bias
            hidden = part.activation(z) - leak * part.activation(-z)
            if dropped:
                hidden = hidden * (rng.uniform(size=hidden.shape) > dropped)
            x = skip * x + hidden @ part.outer.T
            x = layer.network_norm(x) if after else x
        return np.asarray(x)

    return answers


def with_a_sine(stack: ResidualStack) -> Callable[[Array], Array]:
    """The stack, and a millionth of something else."""
    return lambda X: np.asarray(stack(X) + 1e-6 * np.sin(3.0 * X[:, -1]))


def others(seeds: range) -> None:
    """Stacks that differ from the plain one: recovered where they are in the class, and never wrongly."""
    d, m = 12, 4
    for seed in seeds:
        gelu, other = (random_residual_stack(d, m, seed=seed + k) for k in (0, 1000))
        relu, other_relu = (random_residual_stack(d, m, activation=RELU, seed=seed + k) for k in (0, 1000))
        wide = random_residual_stack(d, 2 * m, seed=seed + 1000)
        silu = random_residual_stack(d, m, activation=SILU, seed=seed + 1000)
        many = random_residual_stack(d, 4 * d, layers=3, gated=True, seed=seed)
        targets: dict[str, Callable[[Array], Array]] = {
            "one layer of another width": mixed(gelu, wide),
            "a scaled skip": by_hand(gelu, skip=0.7),
            "a scaled skip, ReLU": by_hand(relu, skip=0.7),
            "one layer of another activation": mixed(gelu, silu),
            "ReLU, then GELU": mixed(relu, other),
            "leaking ReLUs": by_hand(other_relu, leak=0.01),
            "post-norm": by_hand(gelu, after=True),
            "dropout": by_hand(gelu, dropped=0.1),
            "beyond capacity": many,
            "a sine of a millionth": with_a_sine(gelu),
        }
        fresh = np.random.default_rng(999 + seed).standard_normal((200, 1, d))
        for name, target in targets.items():
            result = unsoftmax.recover(
                lambda X, f=target: f(X), width=d, outputs=d, family="network", seed=seed
            )
            off = np.inf if result.model is None else float(np.abs(result.model(fresh) - target(fresh)).max())
            parts = ", ".join(result.parts) or "none"
            print(
                f"seed {seed}, {name}: {result.status}, {result.queries.total:,} queries, parts {parts}, "
                f"fresh answers off by {off:.1e}",
                flush=True,
            )


class Float32Stack:
    """A stack of torch that computes in float32."""

    def __init__(self, stack: ResidualStack) -> None:
        import torch

        self.torch, self.stack = torch, stack

    def __call__(self, X: Array) -> Array:
        torch = self.torch
        x = torch.from_numpy(X[:, -1]).float()
        for layer in self.stack.layers:
            part: Any = layer.network
            gain, inner, outer = (
                torch.tensor(a).float() for a in (layer.network_norm.gain, part.inner, part.outer)
            )
            n = torch.nn.functional.rms_norm(x, (len(gain),), gain, layer.network_norm.eps)
            x = x + torch.nn.functional.gelu(n @ inner.T + torch.tensor(part.inner_bias).float()) @ outer.T
        last: Any = self.stack.final_norm
        return np.asarray(
            torch.nn.functional.rms_norm(
                x, (len(last.gain),), torch.tensor(last.gain).float(), last.eps
            ).double()
        )


def float32(seeds: range) -> None:
    """L=2 d=24 m=12 in float32."""
    for seed in seeds:
        stack = random_residual_stack(24, 12, seed=seed)
        target = Float32Stack(stack)
        result = unsoftmax.recover(
            lambda X, f=target: f(X), width=24, outputs=24, family="network", seed=seed
        )
        model = result.model
        error = stack.distance(model) if isinstance(model, ResidualStack) else np.inf
        print(
            f"seed {seed}: {result.status} {result.queries.total:,} error {error:.1e} {result.reason[:200]}",
            flush=True,
        )


def llama(seeds: range, d: int, m: int, layers: int) -> None:
    """Whole decoders, heads included."""
    for seed in seeds:
        model = random_language_model(d, m, heads=2, groups=1, layers=layers, seed=seed)
        began = time.process_time()
        result = unsoftmax.recover(model, family="language-model", seed=seed)
        off = np.inf
        if isinstance(result.model, LanguageModel):
            fresh = np.random.default_rng(999 + seed).standard_normal((50, 20, d))
            off = float(np.abs(result.model(fresh) - model(fresh)).max())
        print(
            f"seed {seed}: {result.status} {result.queries.total:,} queries; {', '.join(result.parts)}; 20 "
            f"rows off by {off:.1e}; {time.process_time() - began:.0f} s; {result.reason[:160]}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="?", default="stacks", choices=("stacks", "bounds", "others", "float32", "llama")
    )
    parser.add_argument("--only", choices=tuple(STACKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--picture", type=Path, help="where the curve of `bounds` is drawn, an .svg")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    match arguments.what:
        case "bounds":
            bounds(seeds, arguments.picture)
        case "others":
            others(seeds)
        case "float32":
            float32(seeds)
        case "llama":
            llama(seeds, 16 if arguments.layers == 2 else 24, 12, arguments.layers)
        case _:
            stacks(arguments.only, seeds)


if __name__ == "__main__":
    main()
