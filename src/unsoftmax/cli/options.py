"""The options that commands share: one name and one meaning each, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from unsoftmax.errors import UsageError

__all__ = [
    "Asking",
    "Budget",
    "Family",
    "InputBound",
    "Inputs",
    "Json",
    "LedgerPath",
    "Longest",
    "Price",
    "Seed",
    "Servers",
    "Shape",
    "Target",
    "Tokens",
    "Vocabulary",
    "Width",
]

Family = Literal[
    "auto",
    "single-head",
    "multi-head",
    "transformer",
    "relu-network",
    "network",
    "encoder-block",
    "language-model",
    "tokens",
]
_TOKENS = "Token ids"
_SERVERS = "Servers and slow targets"


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="demo:single-head?d=64&r=8&seed=0, a .safetensors or .onnx file, http(s)://host/v2/models/NAME, "
        "grpc(s)://host:port/v2/models/NAME, openai+http(s)://host/v1?model=NAME, "
        "a .json file that describes an endpoint, or "
        "package.module:callable",
        show_default=False,
    ),
]
Width = Annotated[
    int | None,
    typer.Option("--width", help="Input width d, if the target does not report it.", show_default=False),
]
Vocabulary = Annotated[
    int | None,
    typer.Option(
        "--vocabulary",
        help="Number of token ids, for a target that takes ids.",
        min=1,
        show_default=False,
        rich_help_panel=_TOKENS,
    ),
]
InputBound = Annotated[
    float | None,
    typer.Option("--input-bound", help="Largest norm of a row that may be sent.", show_default=False),
]
Longest = Annotated[
    int | None,
    typer.Option(
        "--longest",
        help="Largest number of rows, or of tokens with --prefix and --suffix, in a sequence.",
        min=1,
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random choices.", min=0)]
Budget = Annotated[
    int | None, typer.Option("--budget", help="Largest number of queries.", min=0, show_default=False)
]
LedgerPath = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="File that keeps every answer; a run that was stopped continues from it.",
        show_default=False,
    ),
]
Price = Annotated[
    float | None,
    typer.Option("--price-per-1k", help="Price of a thousand queries.", min=0.0, show_default=False),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object and nothing else on standard output.", show_default=False
    ),
]


@dataclass(frozen=True)
class Shape:
    """What is known of a target before it is asked."""

    width: Width = None
    outputs: Annotated[
        int | None,
        typer.Option(
            "--outputs",
            help="Numbers in an answer, if the target does not report them.",
            min=1,
            show_default=False,
        ),
    ] = None
    family: Annotated[
        Family,
        typer.Option(
            "--family", metavar="NAME", help=f"The family, if known: {', '.join(get_args(Family))}."
        ),
    ] = "auto"


@dataclass(frozen=True)
class Asking(Shape):
    """How a target is asked."""

    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            help="How far an answer may be off. Default: measured.",
            min=0.0,
            show_default=False,
        ),
    ] = None
    input_bound: InputBound = None
    seed: Seed = 0
    budget: Budget = None

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `recover` and `audit_target` that these options are."""
        return {
            "width": self.width,
            "family": self.family,
            "tolerance": self.tolerance,
            "input_bound": self.input_bound,
            "outputs": self.outputs,
            "seed": self.seed,
            "budget": self.budget,
        }


@dataclass(frozen=True)
class Tokens:
    """What is known of a target that takes token ids."""

    vocabulary: Vocabulary = None
    embeddings: Annotated[
        Path | None,
        typer.Option(
            "--embeddings",
            help="Embeddings, if known: .npy (V, d), .safetensors, or a folder of transformers.",
            show_default=False,
            rich_help_panel=_TOKENS,
        ),
    ] = None
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            help="Ids before every sequence, such as 101.",
            show_default=False,
            rich_help_panel=_TOKENS,
        ),
    ] = None
    suffix: Annotated[
        str | None,
        typer.Option(
            "--suffix",
            help="Ids after every sequence, such as 102.",
            show_default=False,
            rich_help_panel=_TOKENS,
        ),
    ] = None
    padding: Annotated[
        int | None,
        typer.Option(
            "--padding",
            help="Id that fills sequences up to --length.",
            min=0,
            show_default=False,
            rich_help_panel=_TOKENS,
        ),
    ] = None
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            help="Length of every sequence, with --padding.",
            min=1,
            show_default=False,
            rich_help_panel=_TOKENS,
        ),
    ] = None
    longest: Longest = None

    def frame(self) -> dict[str, Any]:
        """The keyword arguments of `recover` that describe fixed tokens and lengths."""
        return {
            "prefix": _id_list("--prefix", self.prefix),
            "suffix": _id_list("--suffix", self.suffix),
            "padding": self.padding,
            "length": self.length,
            "longest": self.longest,
        }


@dataclass(frozen=True)
class Inputs(Tokens):
    """What goes in and what is read of the answers."""

    row: Annotated[
        Literal["last", "first", "mean", "all"] | None,
        typer.Option("--row", help="Row to read, if the target answers every row.", show_default=False),
    ] = None
    readout: Annotated[
        Path | None,
        typer.Option("--readout", help="A .npy file (m,): weights of a vector answer.", show_default=False),
    ] = None
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities", help="Answers are probabilities (sigmoid, softmax): recover their logits."
        ),
    ] = False
    sequences: Annotated[
        str | None,
        typer.Option(
            "--sequences",
            help="A .npy file (n, N, d) or (n, d): your own sequences, for the certificate. For ids: a .npy "
            "file (n, N), or a text file with one sequence on each line.",
            show_default=False,
        ),
    ] = None

    def inputs(self) -> dict[str, Any]:
        """The keyword arguments of `recover` and `audit_target` that these options are."""
        told = {
            "vocabulary": self.vocabulary,
            "embeddings": self.embeddings,
            "sequences": self.sequences,
            "row": self.row,
            "readout": self.readout,
            "probabilities": self.probabilities,
        }
        return told | self.frame()


def _id_list(flag: str, text: str | None) -> list[int]:
    try:
        return [int(word) for word in (text or "").replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"{flag} {text!r} must be token ids, such as {flag} 101") from None


@dataclass(frozen=True)
class Servers:
    """How a server is asked, and how long a target may take."""

    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            help="Seconds for one request to a server, or for one call of any other target.",
            show_default=False,
            rich_help_panel=_SERVERS,
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            help="Largest number of requests at a time.",
            min=1,
            show_default=False,
            rich_help_panel=_SERVERS,
        ),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", help="Largest number of queries a second.", show_default=False, rich_help_panel=_SERVERS
        ),
    ] = None
    headers: Annotated[
        Path | None,
        typer.Option(
            "--headers",
            help="File of further headers, one 'Name: value' per line.",
            show_default=False,
            rich_help_panel=_SERVERS,
        ),
    ] = None

    def http(self) -> dict[str, Any]:
        """The options of `HttpOptions` that were given."""
        given = {
            "timeout": self.timeout,
            "concurrency": self.concurrency,
            "rate": self.rate,
            "headers": None if self.headers is None else str(self.headers),
        }
        return {name: value for name, value in given.items() if value is not None}
