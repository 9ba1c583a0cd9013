"""The HTTP oracle against servers that misbehave in every way we know."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax import HttpOptions, OracleFault, Status, UsageError
from unsoftmax.ledger import read_statement
from unsoftmax.oracles.http import http_oracle
from unsoftmax.oracles.http.pace import RateLimit
from unsoftmax.serve import Faults, ModelServer, defended

HEAD = unsoftmax.random_single_head(6, 3, seed=4, biases=True)
BATCH = np.random.default_rng(0).standard_normal((50, 3, 6))
QUICK = HttpOptions(backoff=0.001, timeout=5.0, patience=20.0, retries=40)
TOKEN = "s3cret-token-7781"


def serving(**options: Any) -> ModelServer:
    return ModelServer(unsoftmax.as_oracle(HEAD), **options)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_answers_are_exact_and_in_order(binary: bool, concurrency: int, size: int) -> None:
    with serving(binary=binary) as server:
        oracle = http_oracle(server.url, HttpOptions(batch=size, concurrency=concurrency))
        np.testing.assert_array_equal(
            oracle(BATCH), np.concatenate([HEAD(BATCH[i : i + size]) for i in range(0, 50, size)])
        )
        assert (oracle.spec.width, oracle.spec.outputs, oracle.retries) == (6, None, 0)
        assert server.queries == server.seen == 50


def test_vector_answers() -> None:
    vectors = unsoftmax.SingleHead(np.eye(3), np.arange(6.0).reshape(3, 2))
    with ModelServer(unsoftmax.as_oracle(vectors)) as server:
        oracle = unsoftmax.as_oracle(server.url)
        assert oracle.spec.outputs == 2
        np.testing.assert_array_equal(oracle(BATCH[:, :, :3]), vectors(BATCH[:, :, :3]))


@pytest.mark.parametrize("binary", [True, False])
def test_float32_answers_are_float32_answers(binary: bool) -> None:
    with serving(datatype="FP32", binary=binary) as server:
        oracle = http_oracle(server.url)
        assert oracle.spec.arithmetic == "float32"
        answers = oracle(BATCH)
    single = BATCH.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(answers, HEAD(single).astype(np.float32))


def test_rows_beyond_float32_are_a_fault() -> None:
    with (
        serving(datatype="FP32") as server,
        pytest.raises(OracleFault, match="FP32 cannot hold; pass input_bound"),
    ):
        http_oracle(server.url)(np.full((1, 1, 6), 1e200))


@pytest.mark.parametrize("concurrency", [1, 8])
def test_an_unreliable_server_is_finished_with(tmp_path: Path, concurrency: int) -> None:
    faults = Faults(unavailable=0.15, drop=0.05, slow=0.05, slow_seconds=0.01, seed=concurrency)
    with serving(faults=faults) as server:
        oracle = http_oracle(
            server.url, HttpOptions(batch=5, concurrency=concurrency, backoff=0.001, retries=40)
        )
        result = unsoftmax.recover(oracle, ledger=tmp_path / "run.ledger")
        assert result.status is Status.EXACT
        assert HEAD.distance(result.model) < 1e-9  # type: ignore[arg-type]
        assert result.queries.total == server.queries  # billed is answered
        assert server.seen > server.queries
        assert result.queries.retries == oracle.retries > 0
    statement = read_statement(tmp_path / "run.ledger")
    assert (statement.queries, statement.retries, statement.lost) == (result.queries.total, oracle.retries, 0)


def test_a_server_that_is_too_slow_is_asked_again() -> None:
    with serving(faults=Faults(slow=0.3, slow_seconds=1.0, seed=3)) as server:
        oracle = http_oracle(server.url, HttpOptions(batch=5, timeout=0.25, backoff=0.001, retries=40))
        np.testing.assert_allclose(oracle(BATCH), HEAD(BATCH), rtol=1e-14)
        assert oracle.retries > 0


def test_a_server_that_dies_ends_resumable(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    whole = unsoftmax.recover(HEAD)
    with serving(faults=Faults(die_after=20)) as server:
        port = int(server.url.split(":")[2].split("/")[0])
        oracle = http_oracle(server.url, HttpOptions(backoff=0.001, retries=3))
        with pytest.raises(OracleFault, match=r"gave no answer in 4 attempts.*run again with the same"):
            unsoftmax.recover(oracle, ledger=path)
        answered = server.queries
    with serving(port=port) as server:
        result = unsoftmax.recover(server.url, ledger=path)
        assert result.status is Status.EXACT
        assert result.queries.total == answered + server.queries == whole.queries.total


def test_a_server_that_is_not_there_ends_at_once() -> None:
    with serving() as server:
        url = server.url
    with pytest.raises(OracleFault, match=r"gave no answer in 2 attempts.*Is the server running"):
        http_oracle(url, HttpOptions(retries=1, backoff=0.001))


@pytest.mark.parametrize("kind", ["null", "nan", "shape"])
@pytest.mark.parametrize("binary", [True, False])
def test_a_200_that_is_no_answer_is_a_fault(kind: str, binary: bool) -> None:
    with serving(faults=Faults(**{kind: 1.0}), binary=binary) as server:  # type: ignore[arg-type]
        oracle = http_oracle(server.url, QUICK)
        with pytest.raises(OracleFault, match=r"null|NaN|shape"):
            oracle(BATCH)
        assert oracle.retries == 0


def test_a_bare_500_is_told_in_a_sentence() -> None:
    with (
        serving(faults=Faults(error=1.0)) as server,
        pytest.raises(OracleFault, match=r"failed on a request.*500.*server's log"),
    ):
        http_oracle(server.url, QUICK)(BATCH)


def test_the_server_s_norm_bound_is_told() -> None:
    with (
        ModelServer(defended(unsoftmax.as_oracle(HEAD), norm_bound=2.0)) as server,
        pytest.raises(OracleFault, match=r"422.*input_bound=2"),
    ):
        http_oracle(server.url, QUICK)(100.0 * BATCH)


def test_a_wrong_name_and_a_wrong_address() -> None:
    with serving() as server:
        with pytest.raises(OracleFault, match=r"nothing at .*404.*check the address"):
            http_oracle(server.url + "x", QUICK)
        with pytest.raises(UsageError, match="two templates"):
            http_oracle(server.url.replace("/v2/models/", "/"), QUICK)
        with pytest.raises(UsageError, match="holds a password"):
            http_oracle(server.url.replace("//", "//user:pass@"), QUICK)
        with pytest.raises(UsageError, match="web address"):
            http_oracle("ftp://host/v2/models/a", QUICK)


def test_wrong_widths_are_refused_before_a_query() -> None:
    with serving() as server, pytest.raises(UsageError, match="width 7 but the target has width 6"):
        unsoftmax.recover(server.url, width=7)


def test_the_token_opens_the_door_and_is_seen_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    with serving(token=TOKEN) as server:
        monkeypatch.delenv("UNSOFTMAX_HTTP_TOKEN", raising=False)
        with pytest.raises(OracleFault, match=r"wants a token \(401\); set UNSOFTMAX_HTTP_TOKEN"):
            http_oracle(server.url, QUICK)
        monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN + "x")
        with pytest.raises(OracleFault, match="does not accept the token") as refusal:
            http_oracle(server.url, QUICK)
        monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN + "\n")
        oracle = http_oracle(server.url, QUICK)
        result = unsoftmax.recover(oracle, ledger=tmp_path / "run.ledger")
        monkeypatch.delenv("UNSOFTMAX_HTTP_TOKEN")
        headers = tmp_path / "headers.txt"
        headers.write_text(f"# private\nAuthorization: Bearer {TOKEN}\n\nX-Key: abc\n")
        http_oracle(server.url, HttpOptions(headers=str(headers)))(BATCH)
        headers.unlink()
    texts = [
        str(refusal.value),
        repr(result),
        json.dumps(result.as_json()),
        repr(vars(oracle)),
        repr(oracle._sender.secrets),
        caplog.text,
    ]
    assert not any(TOKEN in text for text in texts)
    assert not any(TOKEN.encode() in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("content", ["no colon", "Bad Name: x", "X-Key:", "X-Key: \u00e9"])
def test_bad_header_files_are_refused_without_showing_them(tmp_path: Path, content: str) -> None:
    path = tmp_path / "headers.txt"
    path.write_text(f"X-Fine: 1\n{content}\n")
    with pytest.raises(UsageError, match=r"line 2 of .* is not a header") as refusal:
        http_oracle("http://127.0.0.1:9/v2/models/a", HttpOptions(headers=str(path)))
    assert content not in str(refusal.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"batch": 0},
        {"concurrency": -1},
        {"retries": 1.5},
        {"timeout": 0},
        {"rate": float("inf")},
        {"patience": "long"},
    ],
)
def test_options_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        HttpOptions(**bad)


def test_a_rate_limit_spaces_queries() -> None:
    limit, stop = RateLimit(10.0), threading.Event()
    waits: list[float] = []

    def note(timeout: float | None = None) -> bool:
        waits.append(timeout or 0.0)
        return False

    stop.wait = note  # type: ignore[method-assign]
    for _ in range(4):
        limit.wait(5, stop)
    np.testing.assert_allclose(waits, [0.0, 0.5, 1.0, 1.5], atol=0.05)


def test_a_served_rate_limit_is_kept_to() -> None:
    with serving(rate_limit=200.0) as server:
        oracle = http_oracle(server.url, HttpOptions(batch=50, concurrency=1, backoff=0.001))
        for _ in range(6):
            np.testing.assert_allclose(oracle(BATCH), HEAD(BATCH), rtol=1e-14)
        assert oracle.retries > 0


def test_a_run_may_go_on_with_another_concurrency(tmp_path: Path) -> None:
    with serving() as server:
        spent = unsoftmax.recover(
            http_oracle(server.url, HttpOptions(concurrency=1, batch=4)),
            ledger=tmp_path / "run.ledger",
            budget=50,
        )
        assert spent.status is Status.BUDGET_SPENT
        result = unsoftmax.recover(
            http_oracle(server.url, HttpOptions(concurrency=8, batch=4)), ledger=tmp_path / "run.ledger"
        )
        assert result.status is Status.EXACT
        assert server.queries == result.queries.total
