"""`unsoftmax serve MODEL`."""

from __future__ import annotations

import os
import signal
import threading
from typing import Annotated

import typer

from unsoftmax.cli.common import Json, Seed, Width, print_json, reports_errors, say
from unsoftmax.errors import UsageError

__all__ = ["serve"]


@reports_errors
def serve(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model file, or any other target.", show_default=False)
    ],
    port: Annotated[
        int, typer.Option("--port", help="Port on loopback; 0 takes a free one.", min=0, max=65535)
    ] = 8080,
    name: Annotated[str, typer.Option("--name", help="Name of the model in the address.")] = "model",
    width: Width = None,
    datatype: Annotated[str, typer.Option("--datatype", help="FP64 or FP32.")] = "FP64",
    decimals: Annotated[
        int | None,
        typer.Option("--round", help="Defence: round answers to so many decimals.", show_default=False),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option("--noise", help="Defence: Gaussian noise of this size.", min=0.0, show_default=False),
    ] = None,
    labels: Annotated[bool, typer.Option("--labels", help="Defence: answer only 1 (positive) or 0.")] = False,
    norm_bound: Annotated[
        float | None,
        typer.Option("--norm-bound", help="Defence: refuse rows longer than this.", show_default=False),
    ] = None,
    rate_limit: Annotated[
        float | None, typer.Option("--rate-limit", help="Defence: most queries a second.", show_default=False)
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            help=(
                "unavailable=0.15, drop=, slow=, error=, null=, nan=, shape=, slow_seconds=, die_after=; "
                "repeatable."
            ),
        ),
    ] = None,
    delay: Annotated[
        float,
        typer.Option("--delay", help="Seconds that every answer takes longer, as over a network.", min=0.0),
    ] = 0.0,
    need_token: Annotated[
        bool, typer.Option("--need-token", help="Ask for the token in UNSOFTMAX_HTTP_TOKEN.")
    ] = False,
    binary: Annotated[bool, typer.Option("--binary/--no-binary", help="Offer tensors as bytes.")] = True,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Serve MODEL on loopback by the Open Inference Protocol, for practice."""
    from dataclasses import replace

    from unsoftmax.oracles import FunctionOracle
    from unsoftmax.recovery.targets import as_oracle
    from unsoftmax.serve import Faults, ModelServer, defended

    token = os.environ.get("UNSOFTMAX_HTTP_TOKEN", "").strip() if need_token else None
    if token == "":
        raise UsageError("--need-token asks for the token in UNSOFTMAX_HTTP_TOKEN, which is not set; set it")
    oracle = as_oracle(model)
    if width is not None and oracle.spec.width is None:
        oracle = FunctionOracle(oracle, replace(oracle.spec, width=width))
    oracle = defended(oracle, decimals=decimals, noise=noise, labels=labels, norm_bound=norm_bound, seed=seed)
    plan = Faults.parse([*(faults or []), f"seed={seed}"])
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ModelServer(
        oracle,
        name=name,
        port=port,
        datatype=datatype,
        binary=binary,
        token=token,
        rate_limit=rate_limit,
        delay=delay,
        faults=plan,
    ) as server:
        if as_json:
            print_json({"url": server.url, "width": server.width, "datatype": datatype})
        else:
            typer.echo(server.url)
        say(f"serving {model}, width {server.width}; Ctrl-C ends it")
        ended.wait()
        say(f"{server.requests:,} requests with {server.queries:,} queries were answered")
