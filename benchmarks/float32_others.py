"""Attention layers in short arithmetic that are unlike those of the page's first table: recovered within
their bound, or refused with a reason.

    python -m benchmarks.float32_others                        # every kind, six layers, numbers and vectors
    python -m benchmarks.float32_others --only "heavy tails" --first 300 --seeds 3

Widths and numbers of heads go through 10 to 48 and 1 to 6 with the seed, unless the kind names them.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

import unsoftmax
from benchmarks.float32_layers import Case, make_layer, truth_of
from unsoftmax.arrays import Array
from unsoftmax.models import Model, MultiHead, SingleHead
from unsoftmax.outcomes import Status

Layer = torch.nn.MultiheadAttention
SHAPES = ((10, 5), (12, 1), (15, 3), (18, 6), (20, 5), (24, 3), (30, 5), (33, 3), (36, 6), (48, 3), (48, 6))
SMALL = tuple((d, heads) for d, heads in SHAPES if d <= 20)


@dataclass(frozen=True)
class Target:
    """A layer whose last row is read, perhaps through a readout, in one arithmetic."""

    layer: torch.nn.Module
    width: int
    readout: Array | None
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None

    @property
    def outputs(self) -> int | None:
        return self.width if self.readout is None else None

    def double(self) -> Target:
        return replace(self, layer=copy.deepcopy(self.layer).double(), dtype=torch.float64, autocast=None)

    def __call__(self, batch: Array) -> Array:
        with torch.no_grad(), torch.autocast("cpu", dtype=self.autocast, enabled=self.autocast is not None):
            rows = torch.from_numpy(np.ascontiguousarray(batch)).to(self.dtype)
            last = self.layer(rows)[:, -1]
            if self.readout is not None:
                last = last @ torch.from_numpy(self.readout).to(last.dtype)
        return np.asarray(last.double().numpy())


class Rows(torch.nn.Module):
    """All rows of the layer's answer, whatever the order of its axes."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        sent = rows if self.layer.batch_first else rows.transpose(0, 1)
        answers: torch.Tensor = self.layer(sent, sent, sent, need_weights=False)[0]
        return answers if self.layer.batch_first else answers.transpose(0, 1)


class Projected(torch.nn.Module):
    """Keys and values of other widths than the rows, of which they are products."""

    def __init__(self, width: int, heads: int, keys: int, values: int) -> None:
        super().__init__()
        self.layer = Layer(width, heads, kdim=keys, vdim=values, batch_first=True)
        self.keys = torch.nn.Parameter(torch.randn(width, keys) / width**0.5)
        self.values = torch.nn.Parameter(torch.randn(width, values) / width**0.5)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        keys, values = rows @ self.keys, rows @ self.values
        answers: torch.Tensor = self.layer(rows, keys, values, need_weights=False)[0]
        return answers

    def joined(self) -> Layer:
        """The same function as a layer whose keys and values are as wide as its rows, in float64."""
        own = copy.deepcopy(self).double()
        layer = Layer(own.layer.embed_dim, own.layer.num_heads, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            keys, values = own.layer.k_proj_weight @ own.keys.T, own.layer.v_proj_weight @ own.values.T
            layer.in_proj_weight.copy_(torch.cat((own.layer.q_proj_weight.data, keys, values)))
            layer.in_proj_bias.copy_(own.layer.in_proj_bias)
            layer.out_proj.load_state_dict(own.layer.out_proj.state_dict())
        return layer


def _truth(layer: Layer, readout: Array | None) -> MultiHead:
    """Of layers without biases too."""
    if layer.in_proj_bias is None:
        whole = Layer(layer.embed_dim, layer.num_heads, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            for name, part in whole.named_parameters():
                part.zero_() if "bias" in name else part.copy_(dict(layer.named_parameters())[name])
        layer = whole
    return truth_of(layer, readout)


def _plainest(model: MultiHead) -> Model:
    """One head as a head."""
    head = model.heads[0]
    return model if len(model.heads) > 1 else SingleHead(head.matrix, head.v, head.w0, c=model.c)


def _drawn(shape: tuple[int, int], seed: int) -> Layer:
    return make_layer(Case(*shape, vector=True, seeds=1), seed)


def _heavy(shape: tuple[int, int], seed: int) -> Layer:
    """Student's t with two degrees of freedom, as long as torch's rows."""
    layer = _drawn(shape, seed)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for part in (layer.in_proj_weight, layer.out_proj.weight):
            drawn = torch.from_numpy(rng.standard_t(2.0, part.shape))
            part.copy_(drawn * part.norm() / drawn.norm())
    return layer


def _as_torch_makes_it(shape: tuple[int, int], seed: int, *, bias: bool = True, first: bool = True) -> Layer:
    torch.manual_seed(seed)
    return Layer(*shape, bias=bias, batch_first=first).eval()


def _sink(shape: tuple[int, int], seed: int) -> Layer:
    """One more key and value than the rows have."""
    torch.manual_seed(seed)
    return Layer(*shape, batch_first=True, add_bias_kv=True).eval()


def _uneven(shape: tuple[int, int], seed: int) -> Layer:
    """Columns of all weights fall off from 3 to 0.03, as those of rows with a few large coordinates."""
    layer = _drawn(shape, seed)
    with torch.no_grad():
        layer.in_proj_weight.mul_(torch.logspace(0.5, -1.5, shape[0]))
    return layer


def _narrow(dtype: torch.dtype) -> Callable[[tuple[int, int], int, Array | None], tuple[Target, MultiHead]]:
    def made(shape: tuple[int, int], seed: int, readout: Array | None) -> tuple[Target, MultiHead]:
        layer = _drawn(shape, seed).to(dtype)
        stored = None if readout is None else torch.from_numpy(readout).to(dtype).double().numpy()
        return Target(Rows(layer), shape[0], stored, dtype), _truth(layer, stored)

    return made


def _autocast(shape: tuple[int, int], seed: int, readout: Array | None) -> tuple[Target, MultiHead]:
    layer = _drawn(shape, seed)
    stored = None if readout is None else torch.from_numpy(readout).to(torch.bfloat16).double().numpy()
    return Target(Rows(layer), shape[0], stored, autocast=torch.bfloat16), _truth(layer, stored)


def _projected(shape: tuple[int, int], seed: int, readout: Array | None) -> tuple[Target, MultiHead]:
    torch.manual_seed(seed)
    layer = Projected(*shape, keys=shape[0] // 2 + 3, values=shape[0] + 5).eval()
    return Target(layer, shape[0], readout), _truth(layer.joined(), readout)


def _plain(
    make: Callable[[tuple[int, int], int], Layer],
) -> Callable[[tuple[int, int], int, Array | None], tuple[Target, MultiHead]]:
    def made(shape: tuple[int, int], seed: int, readout: Array | None) -> tuple[Target, MultiHead]:
        layer = make(shape, seed)
        return Target(Rows(layer), shape[0], readout), _truth(layer, readout)

    return made


Makes = Callable[[tuple[int, int], int, Array | None], tuple[Target, MultiHead]]
KINDS: dict[str, tuple[tuple[tuple[int, int], ...], Makes]] = {
    "other widths": (SHAPES, _plain(_drawn)),
    "heavy tails": (SHAPES, _plain(_heavy)),
    "uneven columns": (SHAPES, _plain(_uneven)),
    "as torch makes it, rows first": (
        SHAPES,
        _plain(lambda s, seed: _as_torch_makes_it(s, seed, first=False)),
    ),
    "no biases": (SHAPES, _plain(lambda s, seed: _as_torch_makes_it(s, seed, bias=False))),
    "kdim and vdim": (SHAPES, _projected),
    "autocast to bfloat16": (SMALL, _autocast),
    "bfloat16": (SMALL, _narrow(torch.bfloat16)),
    "float16": (SMALL, _narrow(torch.float16)),
}
HOSTILE = "add_bias_kv"


@dataclass(frozen=True)
class Outcome:
    """What became of one layer. over_own: deviation over that of the layer itself."""

    name: str
    reason: str
    price: float
    over_own: float | None
    seconds: float
    where: str


def run(kind: str, vector: bool, seed: int) -> Outcome:
    shapes, make = KINDS.get(kind, (SMALL, _plain(_sink)))
    shape = shapes[seed % len(shapes)]
    d = shape[0]
    readout = None if vector else np.random.default_rng(seed + 991).standard_normal(d) / np.sqrt(d)
    where, began = f"seed {seed}, d={d} H={shape[1]}", time.process_time()
    if kind == HOSTILE:
        target, truth = Target(Rows(_sink(shape, seed)), d, readout), None
    else:
        target, truth = make(shape, seed, readout)
    try:
        result = unsoftmax.recover(target, width=d, outputs=target.outputs, seed=seed)
    except Exception as error:
        return Outcome(f"raised {type(error).__name__}", str(error), np.nan, None, np.nan, where)
    spent = time.process_time() - began
    if not result.status.recovered or truth is None:
        return Outcome(str(result.status), result.reason, np.nan, None, spent, where)
    covered = (
        result.error_bound is not None and result.unwrap().distance(_plainest(truth)) <= result.error_bound
    )
    name = str(result.status) if covered else f"{result.status}, but the bound does not cover"
    price = result.queries.by_phase.get("heads", 0) / truth.parameters * (d if vector else 1)
    return Outcome(name, result.reason, price, _over_own(result.unwrap(), target), spent, where)


def _over_own(model: Model, target: Target) -> float:
    rng, double = np.random.default_rng(77), target.double()
    mine, own = [], []
    for length in (2, 8, 32, 64):
        rows = torch.from_numpy(rng.standard_normal((64, length, target.width)))
        short = rows.to(target.autocast or target.dtype).double().numpy()
        right = double(short)
        mine.append(np.ravel(model(short) - right))
        own.append(np.ravel(target(short) - right))
    return float(np.linalg.norm(np.concatenate(mine)) / np.linalg.norm(np.concatenate(own)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", nargs="+", default=[*KINDS, HOSTILE], choices=[*KINDS, HOSTILE])
    parser.add_argument(
        "--answers", nargs="+", choices=("numbers", "vectors"), default=["numbers", "vectors"]
    )
    parser.add_argument("--each", action="store_true", help="a line for every layer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| layer | answers | outcomes | queries, median / most | deviation / own, median / worst | CPU s |")
    print("|---|---|---|---|---|---|")
    for kind in options.only:
        for answers in options.answers:
            found = []
            for seed in range(options.first, options.first + options.seeds):
                one = run(kind, answers == "vectors", seed)
                found.append(one)
                if options.each or one.name != str(Status.WITHIN_BOUND):
                    deviation = "" if one.over_own is None else f", {one.over_own:.2f} own, {one.price:.1f} p"
                    print(f"  {kind}, {answers}, {one.where}: {one.name}{deviation}, {one.seconds:.1f} s: ")
                    print(f"    {one.reason}", flush=True)
            print(_line(kind, answers, found), flush=True)


def _line(kind: str, answers: str, found: list[Outcome]) -> str:
    outcomes = ", ".join(f"{n} {name}" for name, n in Counter(one.name for one in found).items())
    cells = [kind, answers, outcomes, "", ""]
    over = [one.over_own for one in found if one.over_own is not None]
    if over:
        prices = [one.price for one in found if one.over_own is not None]
        cells[3] = f"{np.median(prices):.1f} / {max(prices):.1f} {'p/m' if answers == 'vectors' else 'p'}"
        cells[4] = f"{np.median(over):.2f} / {max(over):.2f}"
    return "| " + " | ".join([*cells, f"{np.nanmedian([one.seconds for one in found]):.1f}"]) + " |"


if __name__ == "__main__":
    main()
