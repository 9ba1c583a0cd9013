"""Deep pre-norm stacks and decoders through `recover`: how many seeds are right, queries, errors.

python -m benchmarks.depth                    GELU, SwiGLU, ReLU ... stacks of two to four layers
python -m benchmarks.depth --only gelu-2      one row
python -m benchmarks.depth bounds             a bound on the norm of rows, and the error that it leaves
python -m benchmarks.depth others             other widths, activations, skips; post-norm, dropout, ...
python -m benchmarks.depth others --short     the same in float32
python -m benchmarks.depth crowded            more neurons than can be told: what the refusal takes
python -m benchmarks.depth float32            stacks that compute in float32
python -m benchmarks.depth llama              whole decoders of --layers layers through log-probabilities
python -m benchmarks.depth llama --short      the layers of decoders that compute in float32
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import unsoftmax
from benchmarks.language_models import in_transformers
from unsoftmax.arrays import Array, rms
from unsoftmax.audit.drawings.figures import draw_defences
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import LanguageModel, ResidualStack, random_language_model, random_residual_stack
from unsoftmax.models.language_model.distance import relative
from unsoftmax.models.language_model.parts import GatedNetwork
from unsoftmax.models.parts import RELU, SILU
from unsoftmax.models.residual_stack import one_row_stack
from unsoftmax.oracles.transformers_model import TransformersOracle

STACKS: dict[str, tuple[int, int, int, dict[str, Any], int | None]] = {
    # name: width, neurons a layer, layers, kind, queries of a prototype that was told depth and widths
    "gelu-2": (16, 12, 2, {}, 109_000),
    "gelu-3": (24, 12, 3, {}, 230_000),
    "gelu-4": (32, 12, 4, {}, 426_000),
    "swiglu-2": (16, 12, 2, {"gated": True, "paths": True}, 210_000),
    "swiglu-3": (24, 12, 3, {"gated": True, "paths": True}, 385_000),
    "swiglu-4": (32, 12, 4, {"gated": True, "paths": True}, None),
    "swiglu-2-wide": (24, 12, 2, {"gated": True, "paths": True}, None),
    "relu-2": (16, 12, 2, {"activation": RELU}, None),
    "relu-3": (24, 12, 3, {"activation": RELU}, None),
    "relu-4": (32, 12, 4, {"activation": RELU}, None),
    "silu-2": (16, 12, 2, {"activation": SILU}, None),
    "silu-3": (24, 12, 3, {"activation": SILU}, None),
    "layer-norm-2": (16, 12, 2, {"layer_norm": True}, None),
    "biases-2": (16, 12, 2, {"output_biases": True}, None),
}


CROWDED = [(16, 12, 3), (16, 32, 4), (20, 40, 3), (24, 24, 4), (24, 48, 4), (32, 128, 2)]  # d, m, layers


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


class TorchStack:
    """A stack of torch that computes in float32 or float64, with a factor of its skips, leaking ReLUs, norms
    after every sum, or dropout."""

    def __init__(
        self,
        stack: ResidualStack,
        *,
        short: bool = False,
        skip: float = 1.0,
        leak: float = 0.0,
        after: bool = False,
        dropped: float = 0.0,
    ) -> None:
        import torch

        self.torch, self.stack, self.dtype = torch, stack, torch.float32 if short else torch.float64
        self.skip, self.leak, self.after, self.dropped = skip, leak, after, dropped

    def tensor(self, values: Array) -> Any:
        return self.torch.tensor(values, dtype=self.dtype)

    def norm(self, norm: Any, x: Any) -> Any:
        return self.torch.nn.functional.rms_norm(x, (norm.width,), self.tensor(norm.gain), norm.eps)

    def network(self, part: Any, n: Any) -> Any:
        functional = self.torch.nn.functional
        if isinstance(part, GatedNetwork):
            gate, up = n @ self.tensor(part.gate).T, n @ self.tensor(part.up).T
            return (getattr(functional, part.activation.name)(gate) * up) @ self.tensor(part.down).T
        z = n @ self.tensor(part.inner).T + self.tensor(part.inner_bias)
        phi = getattr(functional, part.activation.name)
        hidden = phi(z) - self.leak * phi(-z) if self.leak else phi(z)
        hidden = functional.dropout(hidden, self.dropped)
        return hidden @ self.tensor(part.outer).T + self.tensor(part.outer_bias)

    def __call__(self, X: Array) -> Array:
        x = self.tensor(X[:, -1])
        for layer in self.stack.layers:
            if layer.path is not None:
                x = x + self.norm(layer.path_norm, x) @ self.tensor(layer.path).T
            seen = x if self.after else self.norm(layer.network_norm, x)
            x = self.skip * x + self.network(layer.network, seen)
            x = self.norm(layer.network_norm, x) if self.after else x
        if self.stack.final_norm is not None and not self.after:
            x = self.norm(self.stack.final_norm, x)
        return np.asarray(x.double())


def with_a_sine(stack: TorchStack, size: float) -> Callable[[Array], Array]:
    """The stack, and a little of something else."""
    store = np.float32 if stack.dtype == stack.torch.float32 else np.float64
    return lambda X: (stack(X) + size * np.sin(3.0 * X[:, -1])).astype(store).astype(np.float64)


def others(seeds: range, short: bool) -> None:
    """Stacks that differ from the plain one: recovered where they are in the class, and never wrongly."""
    d, m = 12, 4
    for seed in seeds:
        gelu, other = (random_residual_stack(d, m, seed=seed + k) for k in (0, 1000))
        relu, other_relu = (random_residual_stack(d, m, activation=RELU, seed=seed + k) for k in (0, 1000))
        wide = random_residual_stack(d, 2 * m, seed=seed + 1000)
        silu = random_residual_stack(d, m, activation=SILU, seed=seed + 1000)
        many = random_residual_stack(d, 4 * d, layers=3, gated=True, seed=seed)

        def computed(stack: ResidualStack, **kind: Any) -> TorchStack:
            return TorchStack(stack, short=short, **kind)

        targets: dict[str, Callable[[Array], Array]] = {
            "one layer of another width": computed(mixed(gelu, wide)),
            "a scaled skip": computed(gelu, skip=0.7),
            "a scaled skip, ReLU": computed(relu, skip=0.7),
            "one layer of another activation": computed(mixed(gelu, silu)),
            "ReLU, then GELU": computed(mixed(relu, other)),
            "leaking ReLUs": computed(other_relu, leak=0.01),
            "post-norm": computed(gelu, after=True),
            "dropout": computed(gelu, dropped=0.1),
            "beyond capacity": computed(many),
            "a sine of a millionth": with_a_sine(computed(gelu), 1e-6),
            "a sine of a thousandth": with_a_sine(computed(gelu), 1e-3),
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


def crowded(seeds: range) -> None:
    """Stacks of more gated neurons than can be told: what the refusal takes."""
    for seed, (d, m, layers) in itertools.product(seeds, CROWDED):
        stack = random_residual_stack(d, m, layers=layers, gated=True, paths=True, seed=seed)
        result = unsoftmax.recover(lambda X, f=stack: f(X), width=d, outputs=d, family="network", seed=seed)
        print(
            f"seed {seed}, d={d} m={m} L={layers} ({layers * m / d**2:.2f} d²): {result.status}, "
            f"{result.queries.total:,} queries, parts {', '.join(result.parts)}; {result.reason[:120]}",
            flush=True,
        )


def float32(seeds: range, only: str | None) -> None:
    """Stacks that compute in float32: GELU with L=2 d=24 m=12, or another one of the table."""
    d, m, layers, kind, _ = STACKS[only] if only else (24, 12, 2, {}, None)
    for seed in seeds:
        stack = random_residual_stack(d, m, layers=layers, seed=seed, **kind)
        target = TorchStack(stack, short=True)
        began = time.process_time()
        result = unsoftmax.recover(lambda X, f=target: f(X), width=d, outputs=d, family="network", seed=seed)
        model, off, own = result.model, np.inf, np.inf
        error = stack.distance(model) if isinstance(model, ResidualStack) else np.inf
        if model is not None:
            fresh = np.random.default_rng(999 + seed).standard_normal((200, 1, d))
            fresh = FloatFormat.FLOAT32.store(fresh)
            off, own = (rms(each(fresh) - stack(fresh)) for each in (model, target))
        print(
            f"seed {seed}: {result.status} {result.queries.total:,} queries, error {error:.1e}, bound "
            f"{result.error_bound or np.inf:.1e}, {off / own:.2f} own, {time.process_time() - began:.0f} s; "
            f"{', '.join(result.parts)} {'' if model is not None else result.reason[:200]}",
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


def short_llama(seeds: range, d: int, m: int) -> None:
    """Decoders of two layers that `transformers` computes in float32: the parts that come out."""
    for seed in seeds:
        theirs = in_transformers(random_language_model(d, m, heads=2, groups=1, layers=2, seed=seed))
        truth = LanguageModel.from_transformers(theirs).canonical()
        began = time.process_time()
        result = unsoftmax.recover(TransformersOracle(theirs), family="language-model", seed=seed)
        matrix = result.parts["unembedding"].value.matrix
        shown = f"unembedding {relative(truth.unembedding, matrix):.1e}"
        if "layers" in result.parts:
            part = result.parts["layers"]
            shown += (
                f", layers {one_row_stack(truth).distance(part.value):.1e} (bound {part.error_bound:.1e})"
            )
        print(
            f"seed {seed}: {result.status} {result.queries.total:,} queries; {shown}; "
            f"{time.process_time() - began:.0f} s; {result.reason[:160]}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="stacks",
        choices=("stacks", "bounds", "others", "crowded", "float32", "llama"),
    )
    parser.add_argument("--only", choices=tuple(STACKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--short", action="store_true", help="`others` and `llama` compute in float32")
    parser.add_argument("--picture", type=Path, help="where the curve of `bounds` is drawn, an .svg")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    match arguments.what:
        case "bounds":
            bounds(seeds, arguments.picture)
        case "others":
            others(seeds, arguments.short)
        case "crowded":
            crowded(seeds)
        case "float32":
            float32(seeds, arguments.only)
        case "llama" if arguments.short:
            short_llama(seeds, 24, 12)
        case "llama":
            llama(seeds, 16 if arguments.layers == 2 else 24, 12, arguments.layers)
        case _:
            stacks(arguments.only, seeds)


if __name__ == "__main__":
    main()
