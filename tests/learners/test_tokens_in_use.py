"""Token targets as users reach them: recover, demos, files, servers, the command line, known embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import unsoftmax
from tests.learners.test_tokens import worst_error
from unsoftmax import SingleHead, Status, TokenHeads, UsageError
from unsoftmax.cli.app import app
from unsoftmax.serve import ModelServer

SCORER = "tests.learners.token_scorer:score"
MODEL = unsoftmax.random_token_heads(80, 3, seed=3)


def test_a_function_of_ids_with_a_vocabulary() -> None:
    result = unsoftmax.recover(lambda ids: MODEL(ids), vocabulary=80)
    assert (result.status, result.family, result.width) == (Status.EXACT, "tokens", 80)
    assert isinstance(result.unwrap(), TokenHeads)
    assert MODEL.distance(result.model) < 1e-11  # type: ignore[arg-type]
    assert result.as_json()["rank"] == [3]


@pytest.mark.parametrize("form", ["demo", "model", "safetensors", "onnx", "torch", "server"])
def test_every_form_of_target(form: str, tmp_path: Path) -> None:
    told: dict[str, Any] = {}
    forms: dict[str, Any] = {
        "demo": lambda: "demo:tokens?V=80&r=3&seed=3",
        "model": lambda: MODEL,
        "safetensors": lambda: str(MODEL.save(tmp_path / "model.safetensors")),
        "onnx": lambda: str(MODEL.save_onnx(tmp_path / "model.onnx")),
        "torch": _Module,
        "server": lambda: None,
    }
    target = forms[form]()
    if form == "torch":
        told = {"vocabulary": 80}
    if form == "server":
        with ModelServer(unsoftmax.as_oracle(MODEL)) as server:
            result = unsoftmax.recover(server.url)
            assert [each.value for each in result.findings if each.subject == "vocabulary"] == ["80"]
    else:
        result = unsoftmax.recover(target, **told)
    assert result.status is Status.EXACT
    assert MODEL.distance(result.model) < 1e-10  # type: ignore[arg-type]


class _Module(torch.nn.Module):
    """The model again, as torch computes it."""

    def forward(self, ids: Any) -> Any:
        head = MODEL.heads[0]
        keys, queries, values = (torch.from_numpy(part) for part in (head.keys, head.queries, head.values))
        weights = torch.softmax(torch.einsum("bnk,bk->bn", keys[ids], queries[ids[:, -1]]), dim=1)
        return (weights * values[ids]).sum(dim=1)


def test_a_stopped_run_goes_on_from_its_ledger_and_another_target_is_noticed(tmp_path: Path) -> None:
    asked = 0

    def answer(ids: Any) -> Any:
        nonlocal asked
        asked += len(ids)
        return MODEL(ids)

    ledger = tmp_path / "run.ledger"
    short = unsoftmax.recover(answer, vocabulary=80, ledger=ledger, budget=400)
    assert short.status is Status.BUDGET_SPENT
    first = unsoftmax.recover(answer, vocabulary=80, ledger=ledger)
    assert first.status is Status.EXACT
    assert asked == first.queries.total
    again = unsoftmax.recover(answer, vocabulary=80, ledger=ledger)
    assert again.status is Status.EXACT
    assert asked == again.queries.total == first.queries.total + 1  # one fresh sequence confirms the target


def test_wrong_usage_is_told() -> None:
    with pytest.raises(UsageError, match="takes rows"):
        unsoftmax.recover(unsoftmax.random_single_head(4), vocabulary=9)
    with pytest.raises(UsageError, match="takes rows"):
        unsoftmax.recover(unsoftmax.random_single_head(4), family="tokens")
    told: dict[str, Any] = {"learner": unsoftmax.SingleHeadLearner(), "tolerance": 1e-3}
    for name, given in told.items():
        with pytest.raises(UsageError, match=f"{name} is for targets of rows"):
            unsoftmax.recover(lambda ids: MODEL(ids), vocabulary=80, **{name: given})
    with pytest.raises(UsageError, match="leave the family out"):
        unsoftmax.recover(MODEL, family="multi-head")
    with pytest.raises(UsageError, match="at most"):
        unsoftmax.recover(MODEL, vocabulary=81)
    with pytest.raises(UsageError, match="one row a token"):
        unsoftmax.recover(MODEL, embeddings=np.ones((7, 3)))


def embedded_head(V: int, d: int, r: int, seed: int, biases: bool = True) -> tuple[Any, SingleHead]:
    rng = np.random.default_rng(seed)
    embeddings = rng.standard_normal((V, d))
    return embeddings, unsoftmax.random_single_head(d, r, seed=seed, scale=0.3, biases=biases)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("V", "d", "r"), [(200, 12, 3), (60, 12, 12), (30, 24, 2)])
def test_known_embeddings_give_W_itself(V: int, d: int, r: int, seed: int) -> None:
    embeddings, head = embedded_head(V, d, r, seed)
    result = unsoftmax.recover(
        lambda ids: head(embeddings[ids]), vocabulary=V, embeddings=embeddings, seed=seed
    )
    assert result.status is Status.EXACT
    assert isinstance(result.model, SingleHead)
    assert head.distance(result.model) < 1e-9
    assert result.error_bound is not None
    assert head.distance(result.model) <= result.error_bound
    assert result.queries.learning <= (d + 9) ** 2 + 150  # whatever the vocabulary


BERT = "bert.embeddings."


def bert_state(embeddings: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    d = embeddings.shape[1]
    return {
        BERT + "word_embeddings.weight": embeddings,
        BERT + "position_embeddings.weight": rng.standard_normal((5, d)),
        BERT + "token_type_embeddings.weight": rng.standard_normal((2, d)),
        BERT + "LayerNorm.weight": 1.0 + 0.1 * rng.standard_normal(d),
        BERT + "LayerNorm.bias": rng.standard_normal(d),
        "bert.encoder.layer.0.attention.self.query.weight": rng.standard_normal((d, d)),
    }


def torch_rows(state: dict[str, Any]) -> Any:
    """What a BERT's first layer gets at the first place, by torch."""
    part = {name.removeprefix(BERT): torch.from_numpy(value) for name, value in state.items()}
    rows = part["word_embeddings.weight"] + part["position_embeddings.weight"][0]
    rows = rows + part["token_type_embeddings.weight"][0]
    norm = part["LayerNorm.weight"], part["LayerNorm.bias"]
    return torch.nn.functional.layer_norm(rows, rows.shape[1:], *norm, eps=1e-12).numpy()


@pytest.mark.parametrize("form", ["state", "file", "folder", "pieces"])
def test_embeddings_of_a_transformers_state(form: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    embeddings, head = embedded_head(70, 8, 2, 4)
    state = bert_state(embeddings)
    rows = torch_rows(state)
    given: Any = {name: torch.from_numpy(value) for name, value in state.items()}
    if form in ("file", "folder"):
        given = tmp_path if form == "folder" else tmp_path / "model.safetensors"
        save_file(state, tmp_path / "model.safetensors")
    if form == "pieces":
        given = str(tmp_path)
        names = sorted(state)
        for piece, part in (("a", names[:3]), ("b", names[3:])):
            save_file({name: state[name] for name in part}, tmp_path / f"{piece}.safetensors")
        places = {name: f"{'a' if name in names[:3] else 'b'}.safetensors" for name in names}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    result = unsoftmax.recover(lambda ids: head(rows[ids]), embeddings=given)
    assert result.status is Status.EXACT, result.reason
    found: Any = result.model
    assert result.error_bound is not None
    assert head.on_rows(rows).distance(found.on_rows(rows)) <= result.error_bound
    assert "span 7 of 8 dimensions" in result.reason  # the norm leaves one out
    assert "on_rows" in result.reason


def test_other_tables_of_tokens_and_what_is_none(tmp_path: Path) -> None:
    embeddings, head = embedded_head(40, 6, 2, 4)
    for name in ("model.embed_tokens.weight", "transformer.wte.weight", "shared.weight"):
        result = unsoftmax.recover(lambda ids: head(embeddings[ids]), embeddings={name: embeddings})
        assert result.status is Status.EXACT, result.reason
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 40)
    (tmp_path / "bad.npy").write_bytes(b"no array")
    (tmp_path / "index").mkdir()
    places = json.dumps({"weight_map": {"wte.weight": "../elsewhere.safetensors"}})
    (tmp_path / "index" / "model.safetensors.index.json").write_text(places)
    for wrong, why in (
        ({"weight": embeddings}, "no table of tokens"),
        (tmp_path / "bad.safetensors", "cannot read"),
        (tmp_path / "bad.npy", "cannot read"),
        (tmp_path, "neither model.safetensors"),
        (tmp_path / "index", "elsewhere"),
        ("absent.npy", "cannot read"),
        (np.ones(4), "one row a token"),
        (np.full((40, 2), np.nan), "NaN"),
    ):
        with pytest.raises(UsageError, match=why):
            unsoftmax.recover(lambda ids: head(embeddings[ids]), vocabulary=40, embeddings=wrong)


def test_the_vocabulary_is_found_where_ids_beyond_it_are_refused() -> None:
    table = torch.nn.EmbeddingBag(321, 1).double()
    assert unsoftmax.find_vocabulary(table, outputs=1) == 321
    assert unsoftmax.find_vocabulary("demo:tokens?V=30&r=2") == 30
    assert unsoftmax.find_vocabulary(lambda ids: MODEL(ids)) == 80
    with pytest.raises(UsageError, match="as well; pass vocabulary=V"):
        unsoftmax.find_vocabulary(lambda ids: np.sin(ids).mean(axis=1))
    with pytest.raises(UsageError, match="id 0"):
        unsoftmax.find_vocabulary(lambda ids: 1 / 0)


def test_embeddings_that_are_not_the_targets_are_refused() -> None:
    embeddings, head = embedded_head(100, 8, 3, 1)
    others = np.random.default_rng(7).standard_normal((100, 8))
    result = unsoftmax.recover(lambda ids: head(embeddings[ids]), vocabulary=100, embeddings=others)
    assert result.status is Status.OUTSIDE_CLASS


def test_embeddings_in_a_subspace_say_so() -> None:
    rng = np.random.default_rng(3)
    embeddings = rng.standard_normal((90, 5)) @ rng.standard_normal((5, 9)) / 3.0
    head = unsoftmax.random_single_head(9, 2, seed=2)
    result = unsoftmax.recover(lambda ids: head(embeddings[ids]), vocabulary=90, embeddings=embeddings)
    assert result.status.recovered
    assert "span 5 of 9 dimensions" in result.reason
    true, seen = head.on_rows(embeddings), result.model.on_rows(embeddings)  # type: ignore[union-attr]
    assert true.width == 5
    assert true.distance(seen) <= result.error_bound  # type: ignore[operator]
    with pytest.raises(UsageError, match="all rows are equal"):
        head.on_rows(np.ones((3, 9)))
    with pytest.raises(UsageError, match="rows must be"):
        head.on_rows(np.ones((3, 8)))
    ids = rng.integers(0, 90, (200, 7))
    found: Any = result.model
    np.testing.assert_allclose(found(embeddings[ids]), head(embeddings[ids]), atol=1e-9)


def test_the_command_line(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["recover", "demo:tokens?V=60&r=2", "--json", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert (told["status"], told["family"], told["rank"]) == ("EXACT", "tokens", [2])
    model: Any = unsoftmax.load(told["artifacts"]["model"])
    assert worst_error(unsoftmax.random_token_heads(60, 2), model) < 1e-10
    ran = CliRunner().invoke(app, ["recover", SCORER, "--vocabulary", "40", "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["family"] == "tokens"
    np.save(tmp_path / "embeddings.npy", np.eye(40))
    options = ["--vocabulary", "40", "--embeddings", str(tmp_path / "embeddings.npy"), "--json"]
    ran = CliRunner().invoke(app, ["recover", SCORER, *options])
    assert json.loads(ran.stdout)["family"] == "single-head"


def test_the_plan_is_kept() -> None:
    planned = unsoftmax.plan("demo:tokens?V=200&r=4", vocabulary=200)
    result = unsoftmax.recover("demo:tokens?V=200&r=4")
    assert abs(result.queries.learning - planned.by_rank[4]) < 0.02 * planned.by_rank[4]
    assert planned.parameters[4] == unsoftmax.random_token_heads(200, 4).parameters
    two = unsoftmax.plan("demo:tokens?V=200&r=4", size=unsoftmax.Size(200, (4, 4)))
    assert "heads" in two.claim.title
    assert two.parameters[4] == unsoftmax.random_token_heads(200, 4, heads=2).parameters


def test_audit_and_defend_know_tokens(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("5 17 3\n8 8 21 2 9\n\n4\n")
    options = ["--out", str(tmp_path / "audit"), "--defences", "none", "--sequences", str(corpus), "--json"]
    ran = CliRunner().invoke(app, ["audit", "demo:tokens?V=40&r=2", *options])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    found = {each["subject"]: each["value"] for each in told["findings"]}
    assert (found["input"], found["heads"], found["positions"]) == ("ids of 40 tokens", "1", "none")
    assert "the user's own sequences" in told["certificate"]["by_kind"]
    assert "token" in (tmp_path / "audit" / "report.html").read_text()
    table = unsoftmax.defend(
        "demo:tokens?V=40&r=2", defences=["", "precision=float32", "labels", "budget=50"]
    )
    none, short, labels, budget = table.rows
    assert none.parameter_error is not None
    assert none.parameter_error < 1e-10
    assert short.parameter_error is not None
    assert 1e-9 < short.parameter_error < 1e-3
    assert labels.parameter_error is None
    assert not labels.attacked
    assert budget.status == "BUDGET_SPENT"
    usual = unsoftmax.defend(MODEL, sequences=np.array([[1, 2, 3]]), defences=["decimals=4"])
    assert "1 sequences of 3 tokens" in usual.honest


def test_the_users_own_sequences_of_ids(tmp_path: Path) -> None:
    own: Any = [[1, 2, 3], [4, 5], [6, 7]]
    result = unsoftmax.recover(lambda ids: MODEL(ids), vocabulary=80, sequences=own)
    assert result.certificate is not None
    assert "the user's own sequences" in result.certificate.by_kind
    np.save(tmp_path / "own.npy", np.array([[1, 2], [3, 79]]))
    result = unsoftmax.recover(lambda ids: MODEL(ids), vocabulary=80, sequences=tmp_path / "own.npy")
    assert result.status is Status.EXACT
    cheats = lambda ids: MODEL(ids) + 0.1 * (ids == 63).all(axis=1) * (ids.shape[1] == 7)  # noqa: E731
    assert unsoftmax.recover(cheats, vocabulary=80).status is Status.EXACT  # seven equal tokens are rare
    caught = unsoftmax.recover(cheats, vocabulary=80, sequences=[[63] * 7])
    assert not caught.status.recovered
    for wrong, why in (
        ([[1.5]], "list of token ids"),
        ([[80]], "0 to 79"),
        ([], "no sequence"),
        (3, "lists"),
    ):
        with pytest.raises(UsageError, match=why):
            unsoftmax.recover(lambda ids: MODEL(ids), vocabulary=80, sequences=wrong)
    with pytest.raises(UsageError, match="cannot read sequences"):
        unsoftmax.recover(lambda ids: MODEL(ids), vocabulary=80, sequences=tmp_path / "absent.txt")


@pytest.mark.parametrize("kind", [{"heads": 2}, {"longest": 6}, {"heads": 2, "longest": 5, "outputs": 3}])
def test_onnx_files_of_heads_and_positions_take_ids(kind: dict[str, int], tmp_path: Path) -> None:
    import onnxruntime  # type: ignore[import-untyped]

    model = unsoftmax.random_token_heads(30, 3, seed=5, **kind)
    session = onnxruntime.InferenceSession(str(model.save_onnx(tmp_path / "model.onnx")))
    ids = np.random.default_rng(0).integers(0, 30, (20, 5))
    np.testing.assert_allclose(session.run(None, {"ids": ids})[0], model(ids), atol=1e-13)


def test_models_over_tokens_are_compared_and_a_sequence_shows_the_difference() -> None:
    (head,) = unsoftmax.random_token_heads(40, 3, seed=4).heads
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    values = head.values.copy()
    values[7] += 1e-6
    model, same, other = (
        TokenHeads([unsoftmax.TokenHead.of(*parts)])
        for parts in (
            (head.keys, head.queries, head.values),
            (head.keys @ turn + 1.0, head.queries @ turn, head.values),
            (head.keys, head.queries, values),
        )
    )
    assert unsoftmax.equivalent(model, same)
    found = unsoftmax.equivalent(model, other)
    assert not found
    assert found.separating is not None
    assert 7 in found.separating
    with pytest.raises(unsoftmax.UsageError, match="two models over tokens"):
        unsoftmax.equivalent(model, unsoftmax.random_single_head(40, seed=1))
