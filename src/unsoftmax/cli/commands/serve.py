"""`unsoftmax serve MODEL`."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import typer

from unsoftmax.cli.command import command
from unsoftmax.cli.options import Json, Seed, Width
from unsoftmax.cli.output import print_json, say
from unsoftmax.errors import UsageError

__all__ = ["serve"]


@dataclass(frozen=True)
class _Place:
    """Where and how the model is served."""

    port: Annotated[
        int, typer.Option("--port", help="Port on loopback; 0 takes a free one.", min=0, max=65535)
    ] = 8080
    name: Annotated[str, typer.Option("--name", help="Name of the model in the address.")] = "model"
    width: Width = None
    datatype: Annotated[
        Literal["FP64", "FP32"], typer.Option("--datatype", help="Datatype of inputs and answers.")
    ] = "FP64"
    binary: Annotated[
        bool, typer.Option("--binary/--no-binary", help="Accept and send tensors as bytes.")
    ] = True
    need_token: Annotated[
        bool, typer.Option("--need-token", help="Require the token in UNSOFTMAX_HTTP_TOKEN.")
    ] = False


@dataclass(frozen=True)
class _Defences:
    """What is done to questions and answers."""

    decimals: Annotated[
        int | None,
        typer.Option("--round", help="Defence: round answers to this many decimals.", show_default=False),
    ] = None
    noise: Annotated[
        float | None,
        typer.Option("--noise", help="Defence: Gaussian noise of this size.", min=0.0, show_default=False),
    ] = None
    labels: Annotated[bool, typer.Option("--labels", help="Defence: answer only 1 (positive) or 0.")] = False
    input_bound: Annotated[
        float | None,
        typer.Option("--input-bound", help="Defence: refuse rows longer than this.", show_default=False),
    ] = None
    rate_limit: Annotated[
        float | None,
        typer.Option("--rate-limit", help="Defence: largest number of queries a second.", show_default=False),
    ] = None


@command("unsoftmax.serve", "unsoftmax.recovery.inputs.targets")
def serve(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model file, or any other target.", show_default=False)
    ],
    place: _Place,
    defences: _Defences,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            help="unavailable=0.15, drop=, slow=, error=, null=, nan=, shape=, slow_seconds=, die_after=; "
            "repeatable.",
        ),
    ] = None,
    delay: Annotated[
        float, typer.Option("--delay", help="Seconds added to every answer, as on a network.", min=0.0)
    ] = 0.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Serve MODEL on loopback by the Open Inference Protocol, for practice."""
    from unsoftmax.oracles import FunctionOracle, TokenIds
    from unsoftmax.recovery.inputs.targets import as_oracle
    from unsoftmax.serve import Faults, ModelServer, defended

    token = os.environ.get("UNSOFTMAX_HTTP_TOKEN", "").strip() if place.need_token else None
    if token == "":
        raise UsageError("--need-token asks for the token in UNSOFTMAX_HTTP_TOKEN, which is not set; set it")
    oracle = as_oracle(model)
    if place.width is not None and oracle.spec.width is None:
        oracle = FunctionOracle(oracle, replace(oracle.spec, width=place.width))
    oracle = defended(
        oracle,
        decimals=defences.decimals,
        noise=defences.noise,
        labels=defences.labels,
        norm_bound=defences.input_bound,
        seed=seed,
    )
    plan = Faults.parse([*(faults or []), f"seed={seed}"])
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ModelServer(
        oracle,
        name=place.name,
        port=place.port,
        datatype=place.datatype,
        binary=place.binary,
        token=token,
        rate_limit=defences.rate_limit,
        delay=delay,
        faults=plan,
    ) as server:
        ids = isinstance(server.domain, TokenIds)
        size = {"width": None if ids else server.width, "vocabulary": server.width if ids else None}
        if as_json:
            print_json("serve", {"url": server.url, **size, "datatype": place.datatype})
        else:
            typer.echo(server.url)
        inputs = f"token ids below {server.width:,}" if ids else f"rows of width {server.width:,}"
        say(f"serving {model}, which takes {inputs}; Ctrl-C ends it")
        ended.wait()
        say(f"{server.requests:,} requests with {server.queries:,} queries were answered")
