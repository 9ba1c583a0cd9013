from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax import (
    BoundedInputs,
    Clipped,
    FlippedLabels,
    FunctionOracle,
    Labels,
    LowPrecision,
    Noisy,
    Oracle,
    OracleFault,
    OracleSpec,
    Rounded,
    SeparateProcess,
    UsageError,
    WithinTolerance,
    as_oracle,
)
from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.oracles.base import checked_answers
from unsoftmax.testing import NonConformance, check_oracle

HEAD = unsoftmax.random_single_head(5, 2, seed=1)
VECTOR = unsoftmax.SingleHead(HEAD.W, np.eye(5)[:, :3])


@pytest.fixture
def file_target(tmp_path: Path) -> str:
    return str(HEAD.save(tmp_path / "head.safetensors"))


CONFORMING: dict[str, Callable[[], Oracle]] = {
    "callable": lambda: FunctionOracle(lambda X: HEAD(X)),
    "model": lambda: as_oracle(HEAD),
    "vector model": lambda: as_oracle(VECTOR),
    "demo": lambda: as_oracle("demo:single-head?d=5&r=2&seed=4"),
    "importable": lambda: as_oracle("tests.oracles.test_oracles:HEAD"),
    "labels": lambda: Labels(as_oracle(HEAD)),
    "rounded": lambda: Rounded(as_oracle(HEAD), 2),
    "tolerance": lambda: WithinTolerance(as_oracle(HEAD), 0.1, seed=3),
    "vector tolerance": lambda: WithinTolerance(as_oracle(VECTOR), 0.1, seed=3),
    "noisy": lambda: Noisy(as_oracle(HEAD), 0.1, seed=3),
    "bounded": lambda: BoundedInputs(as_oracle(HEAD), 2.0),
    "low precision": lambda: LowPrecision(as_oracle(HEAD), "bfloat16"),
    "clipped": lambda: Clipped(as_oracle(HEAD), 0.5),
    "flipped labels": lambda: FlippedLabels(as_oracle(HEAD), 0.1, seed=3),
    "stacked": lambda: Rounded(BoundedInputs(WithinTolerance(as_oracle(HEAD), 0.01), 3.0), 3),
}


@pytest.mark.parametrize("name", sorted(CONFORMING))
def test_every_oracle_conforms(name: str) -> None:
    check_oracle(CONFORMING[name](), width=5)


def test_file_and_process_conform(file_target: str) -> None:
    check_oracle(as_oracle(file_target))
    with SeparateProcess(file_target) as oracle:
        check_oracle(oracle)
        X = np.random.default_rng(0).standard_normal((3, 2, 5))
        assert np.array_equal(oracle(X), HEAD(X))


class _Bad:
    def __init__(self, answer: Callable[[Any], Any], **spec: Any) -> None:
        self.answer, self.spec = answer, OracleSpec(**spec)

    def __call__(self, X: Any) -> Any:
        return self.answer(X)


@pytest.mark.parametrize(
    ("oracle", "rule"),
    [
        (_Bad(lambda X: list(HEAD(X))), "float64"),
        (_Bad(lambda X: HEAD(X)[:, None]), "shape"),
        (_Bad(lambda X: HEAD(X)[::-1].copy()), "order"),
        (_Bad(lambda X: HEAD(X) + len(X)), "alone"),
        (_Bad(lambda X: HEAD(X) * np.nan), "NaN"),
        (_Bad(lambda X: HEAD(X) + np.random.default_rng().standard_normal(len(X))), "asking again"),
        (_Bad(lambda X: (X.fill(1.0), np.ones(len(X)))[1]), "changed the batch"),
        (_Bad(lambda X: HEAD(X), input_bound=0.5), "input_bound"),
        (_Bad(lambda X: HEAD(X), width=4), "spec.width"),
    ],
)
def test_conformance_names_what_is_broken(oracle: _Bad, rule: str) -> None:
    with pytest.raises(NonConformance, match=rule):
        check_oracle(oracle, width=5)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda X: np.full(len(X), np.nan), "NaN or infinity"),
        (lambda X: np.where(np.arange(len(X)) == 0, np.inf, 0.0), "NaN or infinity"),
        (lambda X: np.zeros(len(X) + 1), "shape"),
        (lambda X: np.zeros((len(X), 3, 2)), "pass row='last'"),
        (lambda X: 1.0, "shape"),
        (lambda X: None, "instead of real numbers"),
        (lambda X: "text", "instead of real numbers"),
        (lambda X: np.zeros(len(X), dtype=complex), "complex"),
        (lambda X: [object()] * len(X), "list instead of real numbers"),
        (lambda X: [[0.0], [0.0, 1.0]], "not an array"),
        (lambda X: np.ma.masked_array(np.zeros(len(X)), True), "masked"),
        (lambda X: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_bad_answers_end_in_one_clear_error(answer: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(OracleFault, match=message):
        unsoftmax.recover(answer, width=3)


def test_queries_are_counted_where_vectors_are_not_finite() -> None:
    answers = np.zeros((17, 16))
    answers[3:5] = np.nan
    with pytest.raises(NonFiniteAnswers, match=r"2 of 17 queries with NaN or infinity \(first: query 3"):
        checked_answers(answers, 17, 16)


def test_wrapped_answers() -> None:
    X = np.random.default_rng(0).standard_normal((50, 3, 5))
    exact = HEAD(X)
    inner = as_oracle(HEAD)
    assert np.array_equal(Labels(inner)(X), exact > 0)
    assert np.array_equal(Rounded(inner, 1)(X), np.round(exact, 1))
    off = WithinTolerance(inner, 0.2, seed=5)(X) - exact
    assert 0.1 < np.abs(off).max() <= 0.2
    assert np.array_equal(WithinTolerance(inner, 0.2, seed=5)(X[::-1])[::-1] - exact, off)
    assert not np.array_equal(WithinTolerance(inner, 0.2, seed=6)(X) - exact, off)
    noisy = Noisy(inner, 0.5, seed=1)
    assert 0.3 < np.std(noisy(X) - exact) < 0.7
    assert not noisy.spec.deterministic
    with pytest.raises(OracleFault, match="pass input_bound=1"):
        BoundedInputs(inner, 1.0)(10 * X)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_wrappers_refuse_senseless_sizes(value: float) -> None:
    for wrapper in (WithinTolerance, Noisy, BoundedInputs):
        with pytest.raises(UsageError, match="must be a finite number"):
            wrapper(as_oracle(HEAD), value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, "a target is"),
        ("nowhere", "names no target"),
        ("demo:rnn", "no demo 'rnn'"),
        ("demo:single-head?q=1", "no option 'q'"),
        ("demo:single-head?d=x", "is not a number"),
        ("demo:single-head?d=4&r=9", "0 <= r <= d"),
        ("no.such.module:thing", "cannot import"),
        ("tests.oracles.test_oracles:absent", "has no 'absent'"),
        ("tests.oracles.test_oracles:_Bad", "is the class"),
        ("absent.safetensors", "there is no file"),
        (__file__, "is Python code"),
        (str(Path(__file__).parent), "as a model file"),
    ],
)
def test_targets_that_are_none(target: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_oracle(target)


def test_process_that_cannot_start_or_dies() -> None:
    with pytest.raises(UsageError, match="could not be started"):
        SeparateProcess("demo:nothing")
    with (
        SeparateProcess("tests.oracles.test_oracles:dies") as oracle,
        pytest.raises(OracleFault, match="process"),
    ):
        for _ in range(3):
            oracle(np.zeros((1, 1, 2)))
    with (
        SeparateProcess("tests.oracles.test_oracles:raises") as oracle,
        pytest.raises(OracleFault, match="raised ValueError"),
    ):
        oracle(np.zeros((1, 1, 2)))


def dies(X: Any) -> Any:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def raises(X: Any) -> Any:
    print("this print must not disturb the answers")
    raise ValueError("no")
