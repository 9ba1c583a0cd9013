"""Whatever a server says, it is an answer or a fault, never an accident."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unsoftmax import HttpOptions, OracleFault, UsageError
from unsoftmax.oracles import checked_answers
from unsoftmax.oracles.http.description import Description
from unsoftmax.oracles.http.json_endpoint import JsonEndpoint
from unsoftmax.oracles.http.json_text import read_json
from unsoftmax.oracles.http.open_inference import OpenInference
from unsoftmax.oracles.http.sender import Reply, Request, Sender

pytestmark = pytest.mark.usefixtures("limited_in_time")
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
VALUES = st.recursive(
    NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("answers") | VALUES,
        "datatype": st.sampled_from(["FP64", "FP32", "INT64", "BOOL", "BYTES"]) | VALUES,
        "shape": st.lists(st.integers(-1, 3), max_size=3) | VALUES,
        "data": st.lists(st.floats(), max_size=3) | VALUES,
        "parameters": VALUES | st.fixed_dictionaries({"binary_data_size": st.integers(-5, 40) | VALUES}),
    },
)
REPLIES = VALUES | st.fixed_dictionaries({"outputs": VALUES | st.lists(TENSORS | VALUES, max_size=2)})
DIALECT = OpenInference(
    "http://h/v2/models/m", Description("sequences", "FP64", 2, "answers", None, False, ""), True, ""
)
ENDPOINT = JsonEndpoint.from_options(
    "http://h/p", HttpOptions(request={"x": "$batch"}, answer="outputs.*.data")
)
SENDER = Sender("http://h/v2/models/m", HttpOptions())


def reply(content: Any, tail: bytes = b"", announced: str | None = None) -> Reply:
    head = json.dumps(content).encode()
    headers = {} if announced is None else {"Inference-Header-Content-Length": announced}
    return Reply(200, httpx.Headers(headers), head + tail)


@settings(deadline=None, derandomize=True)
@given(REPLIES, st.binary(max_size=40), st.sampled_from(["none", "right", "-1", "9" * 30, "x", "7"]))
def test_every_reply_is_an_answer_or_a_fault(content: Any, tail: bytes, announced: str) -> None:
    length = {"none": None, "right": str(len(json.dumps(content).encode()))}.get(announced, announced)
    for dialect in (DIALECT, ENDPOINT):
        try:
            answers = checked_answers(dialect.decode(reply(content, tail, length), 2), 2, None)
        except OracleFault:
            continue
        assert answers.shape == (2,)
        assert np.isfinite(answers).all()


@settings(deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from(["inputs", "outputs", "name"]), VALUES | st.lists(TENSORS, max_size=2))
)
def test_every_description_is_understood_or_refused(told: dict[str, Any]) -> None:
    sender = SENDER
    sender.send = lambda *_, **__: reply(told)  # type: ignore[method-assign]
    try:
        found = OpenInference.discover("http://h/v2/models/m", sender, HttpOptions())
    except (OracleFault, UsageError):
        return
    assert found.width is None or found.width > 0


def test_depth_is_no_way_to_crash() -> None:
    with pytest.raises(ValueError, match=r"nested|recursion"):
        read_json(b"[" * 100_000)


@pytest.mark.parametrize("url", ["http://h/v2/models/m", "https://h:8/a/b/v2/models/m/versions/3/infer/"])
def test_addresses_of_models(url: str) -> None:
    sender = Sender(url, HttpOptions())
    asked: list[str] = []

    def send(request: Request) -> Reply:
        asked.append(request.url)
        return reply({"extensions": ["binary_tensor_data"]})

    sender.send = send  # type: ignore[assignment, method-assign]
    found = OpenInference.discover(url, sender, HttpOptions())
    sender.close()
    assert (found.width, found.told.datatype, found.binary) == (None, "FP64", True)
    assert asked[0] == url.removesuffix("/").removesuffix("/infer")
    assert asked[1] == url.split("/models")[0]
