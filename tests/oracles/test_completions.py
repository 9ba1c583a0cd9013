"""OpenAI-style completions: our server, our client, and what goes wrong between them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.oracles.hostile_server import always, hostile, response, trickle
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.learners.language_model.unembedding import UnembeddingLearner
from unsoftmax.ledger import Ledger
from unsoftmax.models import LanguageModel, random_gpt2, random_language_model
from unsoftmax.models.language_model.distance import relative
from unsoftmax.oracles.http import HttpOptions
from unsoftmax.oracles.http.completions import completions_oracle
from unsoftmax.oracles.http.logit_bias import BiasShows
from unsoftmax.outcomes import Status
from unsoftmax.serve.completions import CompletionsServer
from unsoftmax.serve.faults import Faults
from unsoftmax.serve.guarded import Refused
from unsoftmax.serve.limits import RateLimit

pytest.importorskip("torch")

DEEP = random_language_model(8, 8, heads=2, layers=3, seed=1)
# what it is beside its unembedding is refused after 2 prompts, because rows travel in float32
SOON = random_gpt2(8, 8, layers=2, seed=1)
QUICK = HttpOptions(backoff=0.01, patience=20.0)


def _error(model: LanguageModel, result: unsoftmax.Result) -> float:
    return relative(result.parts["unembedding"].value.matrix, model.canonical().unembedding)


def test_rows_and_ids_are_answered_as_the_model_does() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((70, 3, 8)).astype(np.float32).astype(np.float64)
    with CompletionsServer(DEEP) as server:
        oracle = completions_oracle(server.target, QUICK)
        assert oracle.spec.width == 8
        assert oracle.spec.outputs == DEEP.outputs
        np.testing.assert_allclose(oracle(rows), DEEP(rows), atol=1e-14)
        ids = rng.integers(0, DEEP.outputs, (5, 4))
        by_ids = completions_oracle(server.target.partition("&")[0], QUICK)
        np.testing.assert_allclose(by_ids(ids), DEEP(DEEP.embed(ids)), atol=1e-14)  # type: ignore[arg-type]
    assert server.queries == 70 + 5 + (4 + 3)  # the looks: one prompt each, and a list of two


def test_the_unembedding_over_the_wire() -> None:
    with CompletionsServer(SOON) as server:
        result = unsoftmax.recover(server.target)
        assert server.queries == result.queries.total + 4
    assert result.status is Status.UNRESOLVED
    assert result.model is None
    assert _error(SOON, result) <= 1e-14
    assert _error(SOON, result) <= result.parts["unembedding"].error_bound
    assert result.queries.by_phase["unembedding"] == 8
    assert "recovered in part: unembedding" in result.reason
    assert result.as_json()["parts"]["unembedding"]["gauge"]


def test_a_whole_layer_over_the_wire_where_rows_travel_in_float32() -> None:
    """The server computes in float64, and its prompts are float32 tensors: that is found out, and allowed
    for."""
    model = random_language_model(8, 4, heads=2, groups=1, seed=5)
    with CompletionsServer(model) as server:
        result = unsoftmax.recover(server.target)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, LanguageModel)
    assert result.error_bound is not None
    assert model.distance(result.model) <= result.error_bound <= 1e-9


def test_a_gpt2_over_the_wire_says_what_is_missing() -> None:
    with CompletionsServer(random_gpt2(8, 8, seed=1)) as server:
        result = unsoftmax.recover(server.target)
    assert result.status is Status.UNRESOLVED
    assert "rounded to float32 on their way" in result.reason


def test_faults_are_retried_and_change_nothing() -> None:
    with CompletionsServer(
        DEEP, faults=Faults(unavailable=0.2, drop=0.2, seed=3), rate_limit=400.0
    ) as server:
        oracle = completions_oracle(server.target, HttpOptions(backoff=0.01, batch=4, patience=60.0))
        ledger = Ledger(oracle)
        part = UnembeddingLearner().learn_part(ledger, np.random.default_rng(0))
    assert ledger.bill.retries > 0
    assert relative(part.value.matrix, DEEP.canonical().unembedding) <= 1e-14


class _EverySecondRequest(RateLimit):
    """Tells every second request to come back, whatever the time."""

    def __init__(self) -> None:
        super().__init__(None)
        self.calls = 0

    def wait_for(self, n_queries: int) -> float | None:
        self.calls += 1
        return 0.001 if self.calls % 2 else None


def test_a_server_that_says_too_many_requests_is_waited_for() -> None:
    """Nothing but 429s goes wrong, and every answer is paid for once."""
    with CompletionsServer(DEEP) as server:
        oracle = completions_oracle(server.target, QUICK)
        server.rate = _EverySecondRequest()
        ledger = Ledger(oracle)
        part = UnembeddingLearner().learn_part(ledger, np.random.default_rng(0))
        assert server.queries == ledger.bill.total + 4
    assert ledger.bill.retries > 0
    assert relative(part.value.matrix, DEEP.canonical().unembedding) <= 1e-14


def test_killed_and_resumed_from_the_ledger(tmp_path: Path) -> None:
    """The server dies after some answers; another one with the same model goes on, and nothing is asked
    twice."""
    ledger = tmp_path / "run.sqlite"
    options = HttpOptions(backoff=0.01, retries=1, batch=1)
    with CompletionsServer(SOON, faults=Faults(die_after=14)) as server:
        port = server.target.partition("127.0.0.1:")[2].partition("/")[0]
        oracle = completions_oracle(server.target, options)
        with pytest.raises(OracleFault):
            unsoftmax.recover(oracle, ledger=ledger)
        server.faults = Faults()
        again = unsoftmax.recover(completions_oracle(server.target, options), ledger=ledger)
        asked = server.queries
    assert port.isdecimal()
    assert _error(SOON, again) <= 1e-14
    assert asked < again.queries.total + 20


def test_only_token_ids_leave_the_column_space() -> None:
    with CompletionsServer(DEEP, embeddings=False) as server:
        result = unsoftmax.recover(server.target)
    assert result.status is Status.NOT_IDENTIFIABLE
    space = result.parts["unembedding"].value
    assert space.width == 8
    assert not space.layer_norm
    true = DEEP.canonical().unembedding
    outside = true - space.basis @ (space.basis.T @ true)
    assert np.abs(outside).max() <= 1e-10 * np.abs(true).max()


@pytest.mark.parametrize("shows", [BiasShows.IN_THE_ANSWERS, BiasShows.IN_THE_CHOICE])
@pytest.mark.parametrize(("most", "limit"), [(2, 100.0), (5, 100.0), (5, 20.0), (20, 50.0)])
def test_a_logit_bias_tells_all_tokens(shows: BiasShows, most: int, limit: float) -> None:
    model = random_language_model(8, 8, layers=2, vocabulary=37, seed=2)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 2, 8)).astype(np.float32).astype(np.float64)
    with CompletionsServer(model, max_logprobs=most, logit_bias=shows, max_bias=limit) as server:
        oracle = completions_oracle(server.target, QUICK)
        assert oracle.look.bias is not None
        assert (oracle.look.bias.size, oracle.look.bias.tokens) == (limit, 37)
        assert oracle.look.bias.shows is shows
        np.testing.assert_allclose(oracle(rows), model(rows), atol=1e-11)
        before = server.queries
        oracle(rows)
        assert server.queries - before == 3 * oracle.look.requests_a_prompt


def test_one_token_an_answer_is_enough_where_the_choice_shows() -> None:
    for shows, readable in ((BiasShows.IN_THE_CHOICE, True), (BiasShows.IN_THE_ANSWERS, False)):
        with CompletionsServer(DEEP, max_logprobs=1, logit_bias=shows) as server:
            oracle = completions_oracle(server.target, QUICK)
            assert oracle.look.readable == readable
            if not readable:
                with pytest.raises(OracleFault, match="1 largest"):
                    oracle(np.zeros((1, 1, 12)))


def test_the_unembedding_through_a_logit_bias() -> None:
    with CompletionsServer(DEEP, max_logprobs=5, logit_bias=BiasShows.IN_THE_ANSWERS) as server:
        ledger = Ledger(completions_oracle(server.target, QUICK))
        part = UnembeddingLearner().learn_part(ledger, np.random.default_rng(0))
    assert relative(part.value.matrix, DEEP.canonical().unembedding) <= min(1e-13, part.error_bound)


def test_the_column_space_through_a_logit_bias() -> None:
    shows = BiasShows.IN_THE_ANSWERS
    with CompletionsServer(DEEP, max_logprobs=5, logit_bias=shows, embeddings=False) as server:
        part = unsoftmax.recover(server.target).parts["unembedding"]
    true = DEEP.canonical().unembedding
    assert part.value.width == 8
    assert np.abs(true - part.value.basis @ (part.value.basis.T @ true)).max() <= 1e-9


def test_top_five_only_is_told() -> None:
    with CompletionsServer(DEEP, max_logprobs=5) as server:
        result = unsoftmax.recover(server.target)
    assert result.status is Status.UNRESOLVED
    assert result.queries.total == 0
    assert "5 largest" in result.reason


def test_tokens_and_wrong_names_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with CompletionsServer(DEEP, token="sesame") as server:
        with pytest.raises(OracleFault, match="wants a token"):
            completions_oracle(server.target, QUICK)
        monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", "sesame")
        assert completions_oracle(server.target, QUICK).spec.width == 8
        with pytest.raises(OracleFault, match="404"):
            completions_oracle(server.target.replace("practice", "other"), QUICK)
    with pytest.raises(UsageError, match="names no model"):
        completions_oracle("openai+http://127.0.0.1:1/v1")
    with pytest.raises(UsageError, match="unknown option"):
        completions_oracle("openai+http://127.0.0.1:1/v1?model=a&depth=3")


@pytest.mark.parametrize("name", ["width", "vocabulary"])
@pytest.mark.parametrize("size", ["1" * 5000, "1048577", "0", "-1", "abc", "²", "٣"])
def test_sizes_in_a_target_that_are_none_are_wrong_usage(name: str, size: str) -> None:
    with pytest.raises(UsageError, match=rf"the target's {name} must be a whole number") as refusal:
        completions_oracle(f"openai+http://127.0.0.1:1/v1?model=a&{name}={size}")
    assert len(str(refusal.value)) < 200


def test_a_target_that_is_no_address_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="is not a web address"):
        completions_oracle("openai+http://[::1/v1?model=a")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1" + 400 * "0", "no log-probabilities by token id"),
        ("-1e308", "is not a log-probability"),
        ("5.0", "is not a log-probability"),
    ],
    ids=["an endless integer", "the smallest number", "a positive one"],
)
def test_what_is_no_log_probability_is_named(value: str, words: str) -> None:
    told = (
        '{"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:0": -1.0, "token_id:1": %s}]}}]}'
    )

    def script(connection: socket.socket) -> None:
        body = (told % value).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with hostile(script) as url, pytest.raises(OracleFault, match=words):
        completions_oracle(f"openai+{url}/v1?model=a", QUICK)


def test_a_server_of_completions_holds_nobody_and_reads_no_token_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", "open-sesame")
    for script, words in (
        (trickle(b"HTTP/1.1 200 OK\r\n", b"X"), "no complete answer within"),
        (always(response(b"no open-sesame", "403 No")), "forbids this"),
    ):
        with hostile(script) as url, pytest.raises(OracleFault, match=words) as fault:
            completions_oracle(f"openai+{url}/v1?model=a", HttpOptions(timeout=0.3, retries=0))
        assert "sesame" not in str(fault.value)


class _Odd(CompletionsServer):
    """A server whose replies `bend` changes: a function of the choices and of how many prompts there were."""

    bend: Callable[[list[dict[str, Any]]], Any] = staticmethod(lambda choices: choices)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        reply = super().answer(body)
        return reply | {"choices": self.bend(reply["choices"])}


def _told_as(change: Callable[[dict[str, float]], Any]) -> Callable[[list[dict[str, Any]]], Any]:
    """The choices with other log-probabilities."""
    return lambda choices: [
        each | {"logprobs": {"top_logprobs": [change(each["logprobs"]["top_logprobs"][0])]}}
        for each in choices
    ]


@pytest.mark.parametrize(
    ("bend", "words"),
    [
        (_told_as(lambda told: {f" word{name[9:]}": told[name] for name in told}), "named by their text"),
        (_told_as(lambda told: None), "the reply has none"),
        (lambda choices: [each | {"logprobs": None} for each in choices], "the reply has none"),
        (_told_as(lambda told: dict(list(told.items())[:3])), "3 largest log-probabilities"),
        (lambda choices: [each | {"index": each["index"] + 1} for each in choices], "of index [1]"),
        (
            lambda choices: [
                each | {"logprobs": {"top_logprobs": 2 * each["logprobs"]["top_logprobs"]}}
                for each in choices
            ],
            "may repeat the prompt",
        ),
        (_told_as(lambda told: {name: value - 3.0 for name, value in told.items()}), "add up to 0.05"),
    ],
    ids=["by text", "null lists", "null", "silently three", "indices from one", "echo", "logits"],
)
def test_replies_that_tell_less_than_asked_are_a_finding(
    bend: Callable[[list[dict[str, Any]]], Any], words: str
) -> None:
    with _Odd(DEEP) as server:
        server.bend = bend
        result = unsoftmax.recover(server.target)
    assert result.status is Status.UNRESOLVED
    assert not result.parts
    assert words in result.reason


@pytest.mark.parametrize(
    ("bend", "words"),
    [
        (_told_as(lambda told: told | {"token_id:3": -9999.0}), "bars tokens"),
        (_told_as(lambda told: told | {"token_id:3": float("-inf")}), "bars tokens"),
        (_told_as(lambda told: told | {"token_id:3": None}), "bars tokens"),
    ],
    ids=["as vLLM bars", "barred", "null"],
)
def test_barred_tokens_are_named(bend: Callable[[list[dict[str, Any]]], Any], words: str) -> None:
    with _Odd(DEEP) as server:
        server.bend = bend
        with pytest.raises(OracleFault, match=words):
            completions_oracle(server.target, QUICK)


def test_a_server_that_takes_one_prompt_a_request_is_asked_so() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 1, 8)).astype(np.float32).astype(np.float64)
    with _Odd(DEEP) as server:
        server.bend = lambda choices: choices[:1]
        oracle = completions_oracle(server.target, QUICK)
        before = server.requests
        np.testing.assert_allclose(oracle(rows), DEEP(rows), atol=1e-14)
        assert server.requests - before == len(rows)
    assert "takes one prompt" in " ".join(oracle.look.sentences)


class _FailsOnVectors(CompletionsServer):
    """A server that does not refuse vectors in words, but fails on them. status: how."""

    status = 500

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "prompt_embeds" in body:
            raise Refused(self.status, "no such thing")
        return super().answer(body)


@pytest.mark.parametrize("status", [500, 403, 415])
def test_vectors_that_a_server_fails_on_are_not_taken(status: int) -> None:
    with _FailsOnVectors(DEEP) as server:
        server.status = status
        oracle = completions_oracle(server.target, QUICK)
    assert oracle.spec.width is None
    assert "may not be vectors (no such thing)" in " ".join(oracle.look.sentences)


def test_answers_that_depend_on_no_prompt_show_no_unembedding() -> None:
    alike = {f"token_id:{token}": -np.log(DEEP.outputs) for token in range(1, DEEP.outputs - 1)}
    alike |= {
        "token_id:0": np.log(0.5 / DEEP.outputs),
        f"token_id:{DEEP.outputs - 1}": np.log(1.5 / DEEP.outputs),
    }
    with _Odd(DEEP) as server:
        server.bend = _told_as(lambda told: alike)
        result = unsoftmax.recover(server.target)
    assert result.status is Status.UNRESOLVED
    assert not result.parts
    assert "the same log-probabilities" in result.reason


def test_answers_that_move_with_the_list_are_told() -> None:
    with _Odd(DEEP) as server:
        server.bend = lambda choices: _told_as(
            lambda told: {name: value - 1e-6 * len(choices) for name, value in told.items()}
        )(choices)
        oracle = completions_oracle(server.target, QUICK)
    assert oracle.look.lists
    assert "moves by 1e-06 with the number of prompts" in " ".join(oracle.look.sentences)


def test_what_an_endpoint_offers_in_words() -> None:
    with CompletionsServer(DEEP) as server:
        words = " ".join(completions_oracle(server.target, QUICK).look.sentences)
    assert "all log-probabilities" in words
    assert "may be vectors" in words
