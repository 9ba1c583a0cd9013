"""Models over gRPC: a small server of our own, mlserver, and what goes wrong between."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.oracles.hostile_server import hostile
from tests.oracles.mlserver_process import mlserver
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles.http import HttpOptions
from unsoftmax.outcomes import Status

grpc = pytest.importorskip("grpc")

from tests.oracles.grpc_server import Behaviour, serving  # noqa: E402
from unsoftmax.oracles.grpc import grpc_oracle  # noqa: E402
from unsoftmax.oracles.grpc.messages import message  # noqa: E402

pytestmark = pytest.mark.usefixtures("limited_in_time")
HEAD = unsoftmax.random_single_head(6, seed=11)
QUICK = HttpOptions(backoff=0.01, patience=20.0, batch=8)
Code = grpc.StatusCode


@pytest.mark.parametrize("datatype", ["FP64", "FP32"])
@pytest.mark.parametrize("raw", [True, False])
def test_a_head_is_recovered(datatype: str, raw: bool) -> None:
    with serving(HEAD, Behaviour(datatype=datatype, raw=raw)) as (target, told):
        result = unsoftmax.recover(target)
        assert told.queries == result.queries.total
    assert result.status is (Status.EXACT if datatype == "FP64" else Status.WITHIN_BOUND)
    assert result.error_bound is not None
    assert HEAD.distance(result.model) <= max(result.error_bound, 1e-9)  # type: ignore[arg-type]


def test_ids_travel_as_int64_and_the_vocabulary_is_found() -> None:
    model = unsoftmax.random_token_heads(40, 2, seed=3)
    with serving(model, Behaviour()) as (target, told):
        result = unsoftmax.recover(target)
        asked = next(each.queries for each in result.findings if each.subject == "vocabulary")
        assert told.queries <= result.queries.total + asked
    assert (result.status, result.width) == (Status.EXACT, 40)
    assert model.distance(result.model) < 1e-10  # type: ignore[arg-type]


def test_mlserver_over_grpc_answers_as_over_http(tmp_path: Path) -> None:
    with mlserver(tmp_path, HEAD) as urls:
        rows = np.random.default_rng(0).standard_normal((21, 3, 6))
        for kind, url in urls.items():
            target = f"grpc://127.0.0.1:{urls.grpc_port}/v2/models/{kind}"
            np.testing.assert_array_equal(grpc_oracle(target, QUICK)(rows), unsoftmax.as_oracle(url)(rows))
        result = unsoftmax.recover(f"grpc://127.0.0.1:{urls.grpc_port}/v2/models/FP64")
        with pytest.raises(OracleFault, match="NOT_FOUND"):
            grpc_oracle(f"grpc://127.0.0.1:{urls.grpc_port}/v2/models/other", QUICK)
    assert result.status is Status.EXACT


def test_faults_are_retried_and_billed_once() -> None:
    faults = [Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE]
    with serving(HEAD, Behaviour(faults=faults)) as (target, told):
        oracle = grpc_oracle(target, QUICK)
        rows = np.random.default_rng(0).standard_normal((40, 2, 6))
        np.testing.assert_array_equal(oracle(rows), HEAD(rows))
        assert (oracle.retries, told.queries) == (4, 40)
        assert told.last_metadata["user-agent"].startswith("unsoftmax/")


def test_what_no_retry_mends_is_told_at_once() -> None:
    with serving(HEAD) as (target, told):
        oracle = grpc_oracle(target, QUICK)
        rows = np.zeros((1, 2, 6))
        for code, words in (
            (Code.INVALID_ARGUMENT, "check the width"),
            (Code.PERMISSION_DENIED, "access"),
            (Code.INTERNAL, "server's log"),
        ):
            told.faults.append(code)
            with pytest.raises(OracleFault, match=words):
                oracle(rows)
        assert oracle.retries == 0
        told.faults.extend([Code.UNAVAILABLE] * 20)
        with pytest.raises(OracleFault, match="gave no answer in 3 attempts"):
            grpc_oracle(target, HttpOptions(backoff=0.01, retries=2))(rows)


def _cut(reply: Any) -> None:
    reply.raw_output_contents[0] = reply.raw_output_contents[0][:-8]


def _renamed(reply: Any) -> None:
    reply.outputs[0].name = "others"


def _texts(reply: Any) -> None:
    reply.outputs[0].datatype = "BYTES"


def _infinite(reply: Any) -> None:
    reply.raw_output_contents[0] = np.full(3, np.inf).tobytes()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(_cut, "other data"), (_renamed, "no output"), (_texts, "not a number"), (_infinite, "infin|finite")],
)
def test_spoiled_replies_are_faults(spoil: Any, words: str) -> None:
    with serving(HEAD, Behaviour(spoil=spoil)) as (target, _), pytest.raises(OracleFault, match=words):
        grpc_oracle(target, QUICK)(np.zeros((3, 2, 6)))


def _other_shape(shape: list[int]) -> Callable[[Any], None]:
    def spoil(reply: Any) -> None:
        del reply.outputs[0].shape[:]
        reply.outputs[0].shape.extend(shape)

    return spoil


@pytest.mark.parametrize("shape", [[2**62, 2**62], [2**40], [-3], [0], []])
def test_shapes_that_lie_are_faults(shape: list[int]) -> None:
    behaviour = Behaviour(spoil=_other_shape(shape))
    with serving(HEAD, behaviour) as (target, _), pytest.raises(OracleFault):
        grpc_oracle(target, QUICK)(np.zeros((3, 2, 6)))


def test_no_server_holds_a_call_beyond_its_deadline_or_fills_the_memory() -> None:
    over = threading.Event()

    def fill(reply: Any) -> None:
        reply.raw_output_contents[0] = bytes(64 << 20)

    for spoil in (lambda reply: over.wait(60), fill):
        with serving(HEAD, Behaviour(spoil=spoil)) as (target, _):
            start = time.monotonic()
            with pytest.raises(OracleFault):
                grpc_oracle(target, HttpOptions(timeout=0.5, retries=0))(np.zeros((3, 2, 6)))
            assert time.monotonic() - start < 40.0
            over.set()


def test_the_token_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(HEAD, Behaviour(token="open-sesame")) as (target, _):
        with pytest.raises(OracleFault, match="wants a token"):
            grpc_oracle(target, QUICK)
        monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", "wrong-secret")
        with pytest.raises(OracleFault, match="does not accept the token") as caught:
            grpc_oracle(target, QUICK)
        assert "wrong-secret" not in str(caught.value)
        monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", "open-sesame")
        assert grpc_oracle(target, QUICK).spec.width == 6


TOKEN = "open-sesame-of-the-tests"


def _first_tensor(name: str, value: Any) -> Callable[[Any], None]:
    """Changes one field of the first input, or of the first output."""

    def change(reply: Any) -> None:
        tensor = (reply.inputs or reply.outputs)[0]
        setattr(tensor, name, value)

    return change


@pytest.mark.parametrize("place", ["name", "datatype"])
@pytest.mark.parametrize("when", ["described", "answered"])
def test_the_token_is_hidden_wherever_a_server_repeats_it(
    when: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In names and datatypes, of a description and of an answer; also where a cut would split it."""
    monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN)
    for padding in ("", "x" * 190, "x" * 990):
        change = _first_tensor(place, padding + TOKEN)
        told = Behaviour(describe=change) if when == "described" else Behaviour(spoil=change)
        with serving(HEAD, told) as (target, _):
            try:
                grpc_oracle(target, QUICK)(np.zeros((3, 2, 6)))
            except (OracleFault, UsageError) as fault:
                shown = "".join(traceback.format_exception(fault))
                assert not any(TOKEN[i : i + 8] in shown for i in range(len(TOKEN) - 7)), shown
            else:
                assert (when, place) == ("described", "name")  # an input may have any name


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        ("86400000", "asks to wait 86400 s; run again then"),
        ("9" * 18, r"asks to wait \d+ s; run again then"),
        *((wait, "gave no answer in 3 attempts") for wait in ("9" * 400, "-1", "nan", "1e9", "")),
    ],
)
def test_an_absurd_pushback_is_not_waited_for(wait: str, words: str) -> None:
    """Days end the run at once, with a sentence; what gRPC cannot read as milliseconds counts for nothing."""
    told = Behaviour(faults=[Code.UNAVAILABLE] * 3, pushback=wait)
    with serving(HEAD, told) as (target, _):
        start = time.monotonic()
        oracle = grpc_oracle(target, HttpOptions(backoff=0.01, retries=2, patience=3600.0))
        with pytest.raises(OracleFault, match=words):
            oracle(np.zeros((1, 2, 6)))
        assert time.monotonic() - start < 40.0


def test_a_handshake_that_stalls_does_not_hold_a_call() -> None:
    with hostile(lambda _: time.sleep(60)) as host:
        start = time.monotonic()
        with pytest.raises(OracleFault, match="gave no answer in 1 attempts"):
            grpc_oracle(f"{host.replace('http', 'grpcs')}/v2/models/m", HttpOptions(timeout=0.5, retries=0))
        assert time.monotonic() - start < 40.0


def test_killed_and_resumed_from_the_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "run.ledger"
    once = HttpOptions(backoff=0.01, retries=0, batch=1)
    with serving(HEAD) as (target, told):
        oracle = grpc_oracle(target, once)

        def stop_after_some(reply: Any) -> None:
            if told.queries == 30:
                told.faults.append(Code.UNAVAILABLE)

        told.spoil = stop_after_some
        with pytest.raises(OracleFault):
            unsoftmax.recover(oracle, ledger=ledger)
        told.spoil = None
        result = unsoftmax.recover(grpc_oracle(target, once), ledger=ledger)
        assert told.queries < result.queries.total + 20
    assert result.status is Status.EXACT


def test_the_pace_is_kept() -> None:
    with serving(HEAD) as (target, _):
        oracle = grpc_oracle(target, HttpOptions(batch=10, concurrency=1, rate=100.0))
        began = time.monotonic()
        oracle(np.zeros((30, 2, 6)))
        assert time.monotonic() - began >= 0.19


def test_addresses_that_are_none() -> None:
    for target in ("grpc://host", "grpc://host:1/v2/models/", "grpc://user:pass@host:1/v2/models/a"):
        with pytest.raises(UsageError, match="grpc://host:port/v2/models/NAME"):
            unsoftmax.as_oracle(target)
    many = "1" * 5000
    for host in (f"h:{many}", "[::1", "127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1:0", ":80"):
        with pytest.raises(UsageError, match="host and port") as refusal:
            unsoftmax.as_oracle(f"grpc://{host}/v2/models/m")
        assert len(str(refusal.value)) < 300
    with pytest.raises(OracleFault, match="gave no answer"):
        grpc_oracle("grpc://127.0.0.1:9/v2/models/a", HttpOptions(backoff=0.01, retries=1, patience=5.0))


def test_messages_on_the_wire() -> None:
    """Bytes by the rules of protocol buffers: tag = number·8 + wire type."""
    asked = message("ModelInferRequest")(model_name="m", raw_input_contents=[b"\x01\x02"])
    asked.inputs.add(name="x", datatype="FP64", shape=[2, -1])
    shape = bytes([0x1A, 11, 2]) + b"\xff" * 9 + b"\x01"
    tensor = b"\n\x01x\x12\x04FP64" + shape
    assert asked.SerializeToString() == b"\n\x01m*" + bytes([len(tensor)]) + tensor + b":\x02\x01\x02"
    double = message("InferTensorContents")(fp64_contents=[1.0]).SerializeToString()
    assert double == bytes([0x3A, 8]) + np.float64(1.0).tobytes()
