"""Every command and every sweep in README and docs: all are parsed as they stand, and what does not take
minutes is run as a reader would."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import unsoftmax
from unsoftmax.cli.app import app
from unsoftmax.lab.sweep.spec import parse_spec

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TOO_LONG = {  # parsed here; run by `make bench`, or on small grids by tests/lab
    "unsoftmax reproduce",
    "unsoftmax reproduce --fast",
    "unsoftmax reproduce --theorem 6.1 --theorem B.1 --seed 7 --out out/mine",
    "unsoftmax audit demo:single-head?d=64&r=8 --price-per-1k 2",  # docs/audit.md has the same with --out
    "unsoftmax defend demo:single-head?d=16",
    "unsoftmax sweep widths.toml --dask local --workers 8",
    "unsoftmax sweep widths.toml --dask tcp://scheduler:8786",
}


CONFIGURATION = "seed = 3\nbudget = 50000\nprice-per-1k = 0.4\n[recover]\ninput-bound = 100.0\n"


def commands(page: Path) -> list[list[str]]:
    """The lines after a dollar sign, cut into words, without comments."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [
        shlex.split(line[2:], comments=True)
        for block in blocks
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


ALL = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)}") for page in PAGES for words in commands(page)
]


@pytest.mark.parametrize("words", ALL)
def test_every_command_is_one_that_exists(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    elif words[0] == "python":
        assert (ROOT / (words[2].replace(".", "/") + ".py")).exists()
    else:
        assert words[0] == "unsoftmax"
        monkeypatch.chdir(tmp_path)
        (tmp_path / "run.toml").write_text(CONFIGURATION)
        command = typer.main.get_command(app)
        with suppress(typer.Exit):  # what -h and --version end with
            context = command.make_context("unsoftmax", words[1:])  # refuses names and options not there
            while hasattr(command, "resolve_command"):
                rest = [*context._protected_args, *context.args]
                name, command, rest = command.resolve_command(context, rest)
                context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_sweep_can_be_read(page: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL):
        assert parse_spec(block, page.stem).cells


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_the_commands_of_a_page_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, but for servers; tests/cli runs commands in processes of their own."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    port, host = free_port(), ""
    with ExitStack() as servers, endpoint(tmp_path, page):
        if "https://host/" in " ".join(chain(*commands(page))):
            ranker = ["unsoftmax", "serve", "model.safetensors", "--name", "ranker"]
            host = servers.enter_context(serving(tmp_path, ranker, free_port()))
        for words in commands(page):
            if words[0] != "unsoftmax" or " ".join(words) in TOO_LONG:
                continue
            words = [
                re.sub(r"https://host/v2/models/\w+", host, word)
                .replace(":8080", f":{port}")
                .replace("d=64&r=8", "d=16&r=4")  # shows the same in a fifth of the time
                for word in words
            ]
            if words[1] == "serve":
                servers.pop_all().close()
                servers.enter_context(serving(tmp_path, words, port))
                continue
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, (words, done.output, done.exception)
    for name in [name for name in sys.modules if name.split(".")[0] == "mypackage"]:
        del sys.modules[name]


def prepare(folder: Path) -> None:
    """What the pages take for granted: a model under several names, a package, an endpoint, a small sweep and
    its table."""
    head = unsoftmax.random_single_head(6, 2, seed=3, biases=True)
    for name in ("A", "B", "recovered", "original", "hidden", "model"):
        head.save(folder / f"{name}.safetensors")
    (folder / "mypackage").mkdir()
    (folder / "mypackage" / "mymodule.py").write_text(
        "import unsoftmax\ncallable = unsoftmax.random_single_head(64, 8, seed=1)\n"
    )
    (folder / "run.toml").write_text(CONFIGURATION)
    (folder / "widths.toml").write_text(
        'name = "widths"\n[grid]\nd = [2, 3]\nnoise = ["exact", "tolerance=1e-6"]\n'
    )


@contextmanager
def serving(folder: Path, words: list[str], port: int) -> Iterator[str]:
    """A server of the page, on a port that is free; gives its address."""
    words = [word for word in words if word not in ("--port", "8080")] + ["--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), words
    try:
        yield address
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


@contextmanager
def endpoint(folder: Path, page: Path) -> Iterator[None]:
    """The JSON endpoint that a page describes, if it does: the same templates, with an address and a width
    that are there."""
    blocks = re.findall(r"```json\n(.*?)```", page.read_text(), flags=re.DOTALL)
    if not blocks:
        yield
        return
    head = unsoftmax.load(folder / "model.safetensors")

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            batch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"]
            body = json.dumps(
                {"predictions": [{"score": float(answer)} for answer in head(np.asarray(batch))]}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is said."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    described = json.loads(blocks[0]) | {
        "url": f"http://127.0.0.1:{server.server_port}/score",
        "width": 6,
        "rate": 5000,
    }
    (folder / "endpoint.json").write_text(json.dumps(described))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])
