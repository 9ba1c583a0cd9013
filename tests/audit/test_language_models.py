"""Audits of language models behind a completions server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import unsoftmax
from tests.audit.test_report import Page
from unsoftmax.audit.facts import facts_of, verdict
from unsoftmax.audit.report import render
from unsoftmax.cli.app import app
from unsoftmax.models import LanguageModel, random_gpt2, random_language_model
from unsoftmax.models.language_model.distance import relative
from unsoftmax.oracles.http.logit_bias import BiasShows
from unsoftmax.serve.completions import CompletionsServer

pytest.importorskip("torch")

DEEP = random_language_model(8, 8, heads=2, layers=3, seed=1)
# what it is beside its unembedding is refused after 2 prompts, because rows travel in float32
SOON = random_gpt2(8, 8, layers=2, seed=1)


def test_what_leaks_comes_first() -> None:
    with CompletionsServer(SOON) as server:
        done = unsoftmax.audit_target(server.target, price_per_thousand=1.0)
    found = {finding.subject: finding for finding in done.findings}
    assert found["answers"].value == "float64"
    assert found["final norm"].value == "LayerNorm"
    assert "may be vectors" in found["endpoint"].evidence
    words = verdict(done)
    assert words.startswith("It leaks in part: the unembedding (to ")
    assert "at a price of" in words


def test_without_embeddings_the_width_still_leaks() -> None:
    with CompletionsServer(DEEP, embeddings=False) as server:
        done = unsoftmax.audit_target(server.target)
    found = {finding.subject: finding for finding in done.findings}
    assert found["hidden width"].value == "8"
    assert "may not be vectors" in found["endpoint"].evidence


def test_the_command(tmp_path: Path) -> None:
    with CompletionsServer(SOON) as server:
        run = CliRunner().invoke(app, ["recover", server.target, "--json", "--out", str(tmp_path)])
        report = CliRunner().invoke(app, ["audit", server.target, "--out", str(tmp_path / "audit")])
    assert run.exit_code == 1
    told = json.loads(run.stdout)
    assert told["family"] == "language-model"
    assert told["parts"]["unembedding"]["error_bound"] < 1e-10
    with np.load(told["artifacts"]["parts"]) as parts:
        assert relative(parts["unembedding.matrix"], SOON.canonical().unembedding) < 1e-13
    assert report.exit_code == 1
    assert "It leaks in part" in report.stdout
    assert (tmp_path / "audit" / "report.html").is_file()


def test_a_server_that_tells_five_tokens_is_a_finding(tmp_path: Path) -> None:
    with CompletionsServer(DEEP, max_logprobs=5) as server:
        run = CliRunner().invoke(app, ["audit", server.target, "--out", str(tmp_path)])
    assert run.exit_code == 1
    assert "5 largest log-probabilities" in run.stdout
    assert "logit bias is refused" in run.stdout


def test_no_log_probabilities_are_a_finding() -> None:
    with CompletionsServer(DEEP, max_logprobs=0) as server:
        done = unsoftmax.audit_target(server.target)
    assert done.result.model is None
    assert not done.result.parts
    assert "no log-probabilities" in done.result.reason


def test_a_logit_bias_gives_back_what_top_five_hides() -> None:
    with CompletionsServer(SOON, max_logprobs=5, logit_bias=BiasShows.IN_THE_ANSWERS) as server:
        done = unsoftmax.audit_target(server.target)
    found = {finding.subject: finding for finding in done.findings}
    assert "all 12 of a prompt take 3 requests" in found["endpoint"].evidence
    assert verdict(done).startswith("It leaks in part: the unembedding")


@pytest.mark.parametrize("shows", [None, BiasShows.IN_THE_ANSWERS])
def test_a_check_recommends_no_recovery_of_what_an_endpoint_hides(shows: BiasShows | None) -> None:
    with CompletionsServer(DEEP, max_logprobs=5, embeddings=False, logit_bias=shows) as server:
        found = unsoftmax.check(server.target)
    endpoint = next(each for each in found.findings if each.subject == "endpoint")
    assert "5 largest" in endpoint.evidence
    assert found.recoverable == (shows is not None)
    assert bool(found.command) == found.recoverable
    assert ("stay hidden" in found.obstacle) == (shows is None)


def test_a_model_whose_embedding_is_not_known_can_be_defended() -> None:
    known = random_language_model(8, 8, layers=2, vocabulary=20, seed=4)
    model = LanguageModel(known.layers, known.final_norm, known.unembedding, known.positions)
    table = unsoftmax.defend(model, defences=["token-ids", "token-ids+top-k=5"])
    assert [row.attacked for row in table.rows] == [True, False]
    assert "random rows stand in" in table.honest


def _page(done: unsoftmax.Audit) -> str:
    return " ".join("".join(Page(render(done)).words).split())


def test_the_page_of_a_whole_decoder_speaks_of_its_learner_and_its_parts() -> None:
    model = random_language_model(12, 8, heads=2, groups=1, seed=3)
    done = unsoftmax.audit_target(model)
    found = {finding.subject: finding.value for finding in done.findings}
    assert found["heads"] == "2 of width 6, 2 to a key and a value"
    assert found["network"] == "8 silu neurons, gated"
    assert found["positions"] == "rotary, base 10000"
    assert "rank" not in found
    facts, words = facts_of(done), _page(done)
    assert facts["learner"]["title"].startswith("a one-layer decoder")
    assert all(each["outcome"] == "held" for each in facts["assumptions"])
    assert "No learner was started" not in words
    assert "value path" in words
    assert "unsoftmax defend" not in words + facts["advice"]
    prices = {row["setting"]: row["requests"] for row in facts["settings"]}
    assert prices["prompts of vectors, all log-probabilities"] == 12
    assert prices["prompts of token ids only, all log-probabilities"] == 1.25 * 28 + 64
    assert prices["token ids only, the 5 largest, a logit bias of a few units at most"] is None


def test_the_page_of_a_deep_decoder_shows_what_leaked() -> None:
    with CompletionsServer(DEEP, embeddings=False) as server:
        done = unsoftmax.audit_target(server.target)
    words = _page(done)
    assert "RECOVERED IN PART" in words
    assert "an invertible matrix of hidden coordinates" in words
    assert facts_of(done)["learner"]["source"] == "arXiv 2403.06634"


def test_the_page_of_a_closed_endpoint_begins_no_learner() -> None:
    with CompletionsServer(DEEP, max_logprobs=5) as server:
        done = unsoftmax.audit_target(server.target)
    assert facts_of(done)["learner"] is None
    assert "No learner was started" in _page(done)
    assert "reveals too little" in done.result.advice


def test_audits_of_token_ids_name_their_learner() -> None:
    assert facts_of(unsoftmax.audit_target("demo:tokens?V=30&r=2"))["learner"] is not None


def test_defences_are_the_settings_of_the_endpoint() -> None:
    table = unsoftmax.defend(random_language_model(12, 16, heads=2, layers=3, vocabulary=30, seed=4))
    rows = {row.label: row for row in table.rows}
    assert rows["no defence"].queries < 12 + 16 + 4
    assert (rows["no defence"].parameter_error or 1.0) < 1e-14
    assert 1e-4 < (rows["rounded to 2 decimals"].parameter_error or 0.0) < 1e-2
    assert 1e-3 < (rows["random noise of 0.01"].parameter_error or 0.0) < 5e-2
    assert (rows["token ids only"].parameter_error or 1.0) < 1e-12
    assert 1e-4 < (rows["token ids only + rounded to 2 decimals"].parameter_error or 0.0) < 2e-2
    assert not rows["the 5 largest log-probabilities"].attacked
    biased = [row for row in table.rows if "logit-bias" in row.kinds]
    assert [row.attacked for row in biased] == [True, False]  # of at most 100, of at most 2
    assert biased[0].queries > 5 * rows["token ids only"].queries
    assert "take token ids only" in table.advice
    assert "not evidence of safety" in table.advice


def test_what_rounding_leaves_is_about_what_the_audit_says() -> None:
    with CompletionsServer(DEEP) as server:
        done = unsoftmax.audit_target(server.target)
    said = {row["setting"]: row["leaks"] for row in facts_of(done)["settings"]}
    for setting, defence in (
        ("rounded to 2 decimals", "decimals=2"),
        ("with random noise of 0.01", "noise=0.01"),
    ):
        told = float(said[f"the same, {setting}"].split("about ")[1].split()[0])
        error = unsoftmax.defend(DEEP, defences=[defence]).rows[0].parameter_error
        assert error is not None
        assert told / 3.0 < error < 3.0 * told


@pytest.mark.parametrize(
    ("kind", "decimals", "noise"),
    [
        (random_language_model, 2, 0.0),
        (random_language_model, None, 0.003),
        (random_language_model, 4, 0.0),
        (random_gpt2, 4, 0.0),
    ],
)
def test_width_and_norm_from_token_prompts_whose_answers_are_blurred(
    kind: Callable[..., LanguageModel], decimals: int | None, noise: float
) -> None:
    model = kind(12, 12, heads=2, layers=2, vocabulary=36, seed=6)
    with CompletionsServer(model, embeddings=False, decimals=decimals, noise=noise) as server:
        result = unsoftmax.recover(server.target)
    part = result.parts["unembedding"]
    assert part.value.width == 12
    assert part.value.layer_norm == (kind is random_gpt2)
    basis, true = part.value.basis, model.canonical().unembedding
    assert relative(basis @ (basis.T @ true), true) <= part.error_bound


def test_defences_that_an_endpoint_does_not_have_are_told() -> None:
    with pytest.raises(unsoftmax.errors.UsageError, match="a language model has no defence 'labels'"):
        unsoftmax.defend(DEEP, defences=["labels"])
