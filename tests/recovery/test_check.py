"""`check`: what it says can be recovered is recovered, what it says cannot be is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import unsoftmax
from tests.cases.answers import ANSWERS
from tests.cases.outside import BOXES
from tests.cases.tokens import OUTSIDE, VOCABULARY
from unsoftmax import as_oracle
from unsoftmax.arrays import Array
from unsoftmax.cli.app import app

FAMILIES: dict[str, Callable[[int], object]] = {
    "single-head": lambda seed: unsoftmax.random_single_head(5, 2, seed=seed, biases=bool(seed % 2)),
    "multi-head": lambda seed: unsoftmax.random_multi_head(6, 2, seed=seed),
    "transformer": lambda seed: unsoftmax.random_transformer(4, 5, seed=seed, biases=True),
}
HEAD = unsoftmax.random_single_head(3, seed=4)


@pytest.mark.parametrize("family", FAMILIES)
def test_members_are_recoverable_and_are_recovered(family: str) -> None:
    for seed in range(2):
        model = FAMILIES[family](seed)
        found = unsoftmax.check(model)
        assert found.recoverable, found
        assert found.queries <= 110, found
        assert found.expected is not None
        assert unsoftmax.recover(model).status.recovered


@pytest.mark.parametrize("answers", ANSWERS)
def test_one_head_behind_every_kind_of_answers(answers: str) -> None:
    head = unsoftmax.random_single_head(5, seed=3)
    found = unsoftmax.check(ANSWERS[answers](as_oracle(head), 3))
    assert found.recoverable, found
    assert found.queries > 0


@pytest.mark.parametrize("name", ["quadratic_values", "linear_attention", "drifts", "sigmoid_attention"])
def test_boxes_outside_are_never_recovered_whatever_check_says(name: str) -> None:
    found = unsoftmax.check(BOXES[name](4, 1), width=4)
    if not found.recoverable:
        assert found.obstacle
    assert not unsoftmax.recover(BOXES[name](4, 1), width=4).status.recovered


@pytest.mark.parametrize("heads", [2, 3])
def test_heads_whose_readouts_cancel(heads: int) -> None:
    """Single rows are answered zero: exactly with two heads, up to rounding with three."""
    rng = np.random.default_rng(3)
    W, v = rng.standard_normal((heads, 6, 6)) / 2, rng.standard_normal((heads, 6))
    v[-1] = -v[:-1].sum(axis=0)

    def cancelling(X: Array) -> Array:
        scores = np.einsum("bnd,hde,be->bhn", X, W, X[:, -1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.asarray(sum(np.einsum("bn,bn->b", weights[:, h], X @ v[h]) for h in range(heads)))

    assert unsoftmax.check(cancelling, width=6).recoverable
    result = unsoftmax.recover(cancelling, width=6)
    assert result.status == "EXACT"
    hidden = unsoftmax.MultiHead([unsoftmax.SingleHead(*head) for head in zip(W, v, strict=True)])
    assert result.unwrap().distance(hidden) < 1e-9


def test_a_layer_that_answers_every_row() -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)

    def every_row(X: Array) -> Array:
        x = torch.from_numpy(X)
        return np.asarray(layer(x, x, x, need_weights=False)[0].detach().numpy())

    found = unsoftmax.check(every_row, width=8)
    assert found.recoverable
    assert "every row" in found.advice
    by_row = unsoftmax.recover(every_row, width=8, outputs=8, row="last")
    assert by_row.status.recovered
    read = np.arange(1.0, 9.0)
    one = unsoftmax.recover(every_row, width=8, row="last", readout=read)
    assert one.status.recovered
    with pytest.raises(unsoftmax.UsageError, match="row must be one of"):
        unsoftmax.recover(every_row, width=8, row="middle")


def test_a_target_that_does_not_answer() -> None:
    def broken(X: Array) -> Array:
        raise ValueError("no")

    found = unsoftmax.check(broken, width=3)
    assert not found.recoverable
    assert "ValueError" in found.obstacle
    assert "put a function around it" in found.advice


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda x: float(x[-1] @ np.ones((3, 3)) @ x[0]), "`lambda X: [f(x) for x in X]`"),
        (lambda rows: np.einsum("nd,d->n", rows, np.ones(3)), "`unsoftmax.recover_network`"),
        (lambda ids: np.bincount(ids[0]).max() * np.ones(len(ids)), "vocabulary=V"),
        (lambda X: HEAD(X.swapaxes(0, 1)), "`lambda X: f(X.swapaxes(0, 1))`"),
    ],
    ids=["one sequence", "single rows", "token ids", "rows first"],
)
def test_a_target_that_takes_something_else_is_told_so(answer: Callable[[Array], object], said: str) -> None:
    found = unsoftmax.check(answer, width=3)
    assert not found.recoverable
    assert found.ending is None
    assert said in found.advice


def test_how_long_sequences_may_be_is_found_and_told() -> None:
    hidden = unsoftmax.random_single_head(5, 2, seed=3)

    def short(X: Array) -> Array:
        if X.shape[1] > 6:
            raise ValueError(f"{X.shape[1]} rows")
        return hidden(X)

    found = unsoftmax.check(short, width=5, name="my:short")
    assert found.command == "unsoftmax recover my:short --width 5 --longest 6"
    with pytest.raises(unsoftmax.OracleFault, match=r"pass longest=[2-6]$"):
        unsoftmax.recover(short, width=5)
    assert unsoftmax.recover(short, width=5, longest=6).status is unsoftmax.Status.EXACT
    with pytest.raises(unsoftmax.UsageError, match="are for targets that take token ids"):
        unsoftmax.recover(short, width=5, prefix=[1], longest=6)


def test_the_command_prints_the_next_one() -> None:
    run = [sys.executable, "-m", "unsoftmax", "check", "demo:multi-head?d=6&heads=2"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "unsoftmax recover 'demo:multi-head?d=6&heads=2'" in done.stdout
    facts = json.loads(subprocess.run([*run, "--json"], capture_output=True, text=True, check=True).stdout)
    assert facts["recoverable"] is True


def test_a_broken_target_ends_the_command_with_3() -> None:
    done = CliRunner().invoke(app, ["check", "math:sqrt", "--width", "3"])
    assert done.exit_code == 3
    assert "a target that does not answer" in done.output


@pytest.mark.parametrize(
    "name", ["bigrams", "convolution", "maximum", "hash of the sequence", "bag of words, summed"]
)
def test_functions_of_ids_that_are_no_attention_are_named(name: str) -> None:
    found = unsoftmax.check(OUTSIDE[name], vocabulary=VOCABULARY)
    assert not found.recoverable
    assert found.queries <= 200
    assert unsoftmax.recover(OUTSIDE[name], vocabulary=VOCABULARY).status is found.ending


def test_answers_that_move_with_the_batch_are_a_finding() -> None:
    head = unsoftmax.random_single_head(6, seed=1)

    def together(X: Array) -> Array:
        return np.asarray(head(X) * (1.0 + 1e-14 * (len(X) - 1)))

    found = unsoftmax.check(together, width=6)
    assert {f.subject: f.value for f in found.findings}["batches"].startswith("matter little")


def test_attention_over_the_batch_is_named() -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(6, 2, dtype=torch.float64)  # takes the rows first

    def every_row(X: Array) -> Array:
        x = torch.from_numpy(X)
        return np.asarray(layer(x, x, x, need_weights=False)[0].detach().numpy())

    found = unsoftmax.check(every_row, width=6)
    assert found.ending is unsoftmax.Status.OUTSIDE_CLASS
    assert "batch_first=False" in found.advice
    result = unsoftmax.recover(every_row, width=6, row="last", outputs=6)
    assert result.status is found.ending
    assert "other sequences of its batch" in result.reason
    assert "batch_first=False" in result.advice


class OfIds(torch.nn.Module):
    """One head over token ids; with dropout, which evaluation mode switches off. every: all rows answer."""

    def __init__(self, *, every: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embeddings = torch.nn.Embedding(20, 8, dtype=torch.float64)
        self.attention = torch.nn.MultiheadAttention(8, 1, 0.5, batch_first=True, dtype=torch.float64)
        self.readout = torch.nn.Linear(8, 1, dtype=torch.float64)
        self.every = every

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.embeddings(ids)
        answers: torch.Tensor = self.readout(self.attention(rows, rows, rows)[0])[..., 0]
        return answers if self.every else answers[:, -1]


def test_a_module_of_ids_that_answers_every_row() -> None:
    found = unsoftmax.check(OfIds(every=True), vocabulary=20, name="my:scorer")
    assert found.command == "unsoftmax recover my:scorer --vocabulary 20 --row last"
    by_row = unsoftmax.recover(OfIds(every=True), vocabulary=20, row="last").unwrap()
    assert by_row.distance(unsoftmax.recover(OfIds(every=False), vocabulary=20).unwrap()) < 1e-9
    with pytest.raises(unsoftmax.UsageError, match="pass row='last'"):
        unsoftmax.recover(OfIds(every=True), vocabulary=20, row="all")
    untold = unsoftmax.check(OfIds(every=True), width=8)  # whose rows are no numbers
    assert "pass vocabulary=V" in untold.advice


def test_a_module_of_ids_may_be_an_oracle_already() -> None:
    oracle = unsoftmax.as_oracle(OfIds(every=False))
    assert unsoftmax.recover(oracle, vocabulary=20).status is unsoftmax.Status.EXACT


def test_one_number_a_row() -> None:
    def every_row(X: Array) -> Array:
        return np.stack([HEAD(np.roll(X, -1 - i, axis=1)) for i in range(X.shape[1])], axis=1)

    found = unsoftmax.check(every_row, width=3, name="my:scorer")
    assert found.command == "unsoftmax recover my:scorer --width 3 --row last"
    result = unsoftmax.recover(every_row, width=3, row="all")
    assert result.unwrap().distance(HEAD) < 1e-9


def test_a_tuple_as_an_answer_is_named() -> None:
    with pytest.raises(unsoftmax.OracleFault, match="a tuple of 2: return the part that holds the answers"):
        unsoftmax.recover(lambda X: (HEAD(X), HEAD(X)), width=3)


def test_the_parts_of_a_dictionary_are_named() -> None:
    class Named(torch.nn.Module):
        def forward(self, X: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": X[:, -1, 0]}

    for target in (Named(), lambda X: {"logits": HEAD(X)}):
        assert "'logits'" in unsoftmax.check(target, width=3).obstacle


def test_the_command_names_flags_in_what_stands_in_the_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "overflows.py").write_text("def answer(X): return X[:, 0, 0] * float('inf')\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["check", "overflows:answer", "--width", "3"])
    assert "--input-bound" in done.output
    assert "input_bound" not in done.output


def test_vectors_over_ids_that_nobody_told_of() -> None:
    heads = unsoftmax.random_token_heads(24, 3, seed=2, outputs=3)
    found = unsoftmax.check(lambda ids: heads(ids), vocabulary=24, name="my:scorer")
    assert found.recoverable
    assert found.command == "unsoftmax recover my:scorer --vocabulary 24 --outputs 3"
    assert (
        found.queries >= next(each.queries for each in found.findings if each.subject == "answer shape") > 0
    )


def test_classes_are_named() -> None:
    heads = [unsoftmax.random_single_head(4, 2, seed=seed) for seed in range(4)]

    def classes(X: Array) -> Array:
        winners: Array = np.stack([head(X) for head in heads]).argmax(axis=0).astype(np.float64)
        return winners

    found = unsoftmax.check(classes, width=4)
    assert not found.recoverable
    assert "classes" in found.obstacle
    result = unsoftmax.recover(classes, width=4)
    assert result.status is found.ending
    assert "the classes of an argmax" in result.advice


def _classifier(readout: str, dtype: torch.dtype) -> Callable[[Array], Array]:
    """Three classes from a layer of three heads, read at the last row or as the mean of all."""
    torch.manual_seed(3)
    layer = torch.nn.MultiheadAttention(12, 3, batch_first=True).to(dtype).eval()
    classes = torch.nn.Linear(12, 3).to(dtype)

    def answer(X: Array) -> Array:
        x = torch.from_numpy(X).to(dtype)
        with torch.no_grad():
            y = layer(x, x, x, need_weights=False)[0]
            y = y.mean(dim=1) if readout == "mean" else y[:, -1]
            return np.asarray(torch.softmax(classes(y), dim=-1).numpy())

    return answer


def test_pooling_behind_a_softmax_is_named() -> None:
    pooled = _classifier("mean", torch.float64)
    assert "mean or a maximum over the outputs of all rows" in unsoftmax.check(pooled, width=12).advice
    result = unsoftmax.recover(pooled, width=12, probabilities=True)
    assert result.status == "OUTSIDE_CLASS"
    assert "mean or a maximum over the outputs of all rows" in result.advice


def test_one_answer_to_everything_is_not_taken_for_a_probability() -> None:
    found = unsoftmax.check(lambda X: np.full(len(X), 0.3), width=4)
    assert (found.ending, "probabilities" in found.obstacle) == ("NOT_IDENTIFIABLE", False)


def test_probabilities_of_few_digits_are_what_stands_in_the_way() -> None:
    short = _classifier("last", torch.float32)
    assert "module.double()" in unsoftmax.check(short, width=12).obstacle
    result = unsoftmax.recover(short, width=12, probabilities=True)
    assert (result.status, "module.double()" in result.reason) == ("UNRESOLVED", True)
    assert unsoftmax.check(_classifier("last", torch.float64), width=12).recoverable
