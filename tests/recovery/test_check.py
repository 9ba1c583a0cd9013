"""`check`: what it says can be recovered is recovered, what it says cannot be is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

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
        (lambda ids: np.bincount(ids[0]).max() * np.ones(len(ids)), "--vocabulary V"),
    ],
    ids=["one sequence", "single rows", "token ids"],
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
    assert {f.subject: f.value for f in found.findings}["batches"].startswith("move answers by")


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
