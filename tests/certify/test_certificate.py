from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from unsoftmax import FunctionOracle, Ledger, OracleSpec, SingleHead, Status
from unsoftmax.answers import Computed
from unsoftmax.arrays import Array
from unsoftmax.certify import AnswersOff, certify, error_bound
from unsoftmax.certify.changed_models import Deviations
from unsoftmax.certify.sample import OwnSequences, draw_sample
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import Model
from unsoftmax.oracles.domain import Ball, Space

HEAD = unsoftmax.random_single_head(10, 4, seed=2, biases=True)


def _certificate(target: SingleHead, model: SingleHead, **spec: object) -> unsoftmax.Certificate:
    ledger = Ledger(FunctionOracle(target, OracleSpec(width=10, **spec)))  # type: ignore[arg-type]
    return certify(ledger, model, np.random.default_rng(1))


def test_the_truth_passes_and_says_what_was_tested() -> None:
    certificate = _certificate(HEAD, HEAD)
    assert certificate.passed
    assert certificate.max_error == 0.0
    assert certificate.n_queries > 100
    assert set(range(1, 18)) < set(certificate.lengths)
    assert 64 < max(certificate.lengths) <= 128
    assert f"of 1 to 17, {certificate.lengths[17]}" in certificate.statement
    assert 0.0 < certificate.fraction < 0.06
    # copies of other sequences do not count
    assert (1 - certificate.fraction) ** (certificate.n_queries - 24) == pytest.approx(
        1 - certificate.confidence
    )
    assert "with 99.99% confidence fewer than 5.8% of sequences" in certificate.statement
    assert f"{certificate.n_queries} fresh sequences" in certificate.statement


@pytest.mark.parametrize("part", ["W", "v", "w0", "c"])
def test_a_millionth_is_noticed(part: str) -> None:
    moved = {"W": HEAD.W, "v": HEAD.v, "w0": HEAD.w0, "c": HEAD.c}
    moved[part] = np.asarray(moved[part]) * (1 + 1e-6)
    certificate = _certificate(HEAD, SingleHead(moved["W"], moved["v"], moved["w0"], moved["c"]))
    assert not certificate.passed
    assert certificate.failed
    assert certificate.failed in certificate.statement


@pytest.mark.parametrize("relative", [1e-3, 1e-7, 1e-11])
@pytest.mark.parametrize("seed", range(5))
def test_the_bound_covers_errors_of_any_shape(relative: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for shape in ("full", "rank one", "one entry", "one row"):
        error = {
            "full": rng.standard_normal((10, 10)),
            "rank one": np.outer(rng.standard_normal(10), rng.standard_normal(10)),
            "one entry": np.eye(10)[[rng.integers(10)]].T @ np.eye(10)[[rng.integers(10)]],
            "one row": np.eye(10)[[rng.integers(10)]].T @ rng.standard_normal((1, 10)),
        }[shape]
        error *= relative * np.linalg.norm(HEAD.W) / np.linalg.norm(error)
        wrong = SingleHead(HEAD.W + error, HEAD.v, HEAD.w0, HEAD.c)
        ledger = Ledger(FunctionOracle(HEAD), width=10)
        bound = error_bound(ledger, wrong, rng)
        assert bound is not None
        assert relative * 0.999 <= bound <= 100 * relative + 1e-12


def test_limits_of_the_oracle_are_kept() -> None:
    lengths: set[int] = set()
    longest = [0.0]

    def watched(X: np.ndarray) -> np.ndarray:
        lengths.add(X.shape[1])
        longest[0] = max(longest[0], float(np.linalg.norm(X, axis=2).max()))
        return HEAD(X)

    ledger = Ledger(FunctionOracle(watched, OracleSpec(width=10, max_length=3, input_bound=0.5)))
    assert certify(ledger, HEAD, np.random.default_rng(0)).passed
    assert max(lengths) <= 3
    assert longest[0] <= 0.5 * (1 + 1e-12)


def test_planned_verification_is_an_upper_limit() -> None:
    for d in (1, 4, 30):
        for kind in (
            "demo:single-head?d={}",
            "demo:single-head?d={}&biases=1",
            "demo:single-head?d={}&scale=50",
        ):
            target = kind.format(d)
            result = unsoftmax.recover(target)
            planned = unsoftmax.plan(target)
            assert result.queries.by_phase["verification"] <= planned.verification
            assert result.queries.total <= planned.at_most


def _otherwise(where: Callable[[Array], Array], usual: Model, other: Model) -> Callable[[Array], Array]:
    """A box that is `usual`, and `other` on the sequences that `where` picks."""

    def box(X: Array) -> Array:
        answers = np.array(usual(X))
        picked = where(X)
        if picked.any():
            answers[picked] = other(X[picked])
        return answers

    return box


def _three_or_more(X: Array) -> Array:
    return np.full(len(X), X.shape[1] >= 3)


@pytest.mark.parametrize("constant", [0.0, 1e4, 1e7, 1e10])
@pytest.mark.parametrize("factor", [1.001, 3.0])
def test_no_constant_excuses_another_head_for_longer_sequences(constant: float, factor: float) -> None:
    W, v = HEAD.W, HEAD.v
    usual, other = SingleHead(W, v, None, constant), SingleHead(factor * W, v, None, constant)
    assert unsoftmax.recover(usual).status is Status.EXACT
    result = unsoftmax.recover(_otherwise(_three_or_more, usual, other), width=10)
    assert not result.status.recovered, result.reason


@pytest.mark.parametrize("constant", [0.0, 1e4, 1e7])
def test_no_output_bias_excuses_another_transformer_for_longer_sequences(constant: float) -> None:
    network = unsoftmax.random_relu_network(4, 6, seed=1, biases=True)
    network = unsoftmax.ReluNetwork(network.A, network.u, network.b, constant, network.linear)
    W = np.random.default_rng(3).standard_normal((4, 4))
    usual, other = unsoftmax.Transformer(W, network), unsoftmax.Transformer(1.001 * W, network)
    assert unsoftmax.recover(usual).status.recovered
    result = unsoftmax.recover(_otherwise(_three_or_more, usual, other), width=4)
    assert not result.status.recovered, result.reason


def _norms(X: Array) -> Array:
    return np.asarray(np.linalg.norm(X, axis=2))


def _collinear(X: Array) -> Array:
    return np.array([x.shape[0] > 1 and np.linalg.matrix_rank(x, tol=1e-9) == 1 for x in X])


LIES: dict[str, Callable[[Array], Array]] = {
    "uneven rows": lambda X: _norms(X).max(axis=1) > 2.1 * _norms(X).min(axis=1),
    "long rows, four and more": lambda X: (_norms(X).max(axis=1) > 8.0) & (X.shape[1] > 3),
    "short rows, seventeen and more": lambda X: (_norms(X).max(axis=1) < 2.0) & (X.shape[1] > 16),
    "a common part": lambda X: np.linalg.norm(X.mean(axis=1), axis=1) > 0.85 * _norms(X).mean(axis=1),
    "no negative entry": lambda X: X.min(axis=(1, 2)) >= 0.0,
    "collinear rows": _collinear,
    "copies": lambda X: np.array([len(np.unique(x, axis=0)) < len(x) for x in X]),
}


@pytest.mark.parametrize("name", sorted(LIES))
def test_the_sample_has_no_holes(name: str) -> None:
    W, v = HEAD.W, HEAD.v

    def where(X: Array) -> Array:
        return np.asarray(LIES[name](X) & (X.shape[1] > 2))

    for seed in range(3):
        box = _otherwise(where, SingleHead(W, v), SingleHead(1.5 * W, v))
        result = unsoftmax.recover(box, width=10, seed=seed)
        assert not result.status.recovered, result.reason


@pytest.mark.parametrize("model", [HEAD, unsoftmax.random_multi_head(10, 2, seed=3)])
@pytest.mark.parametrize("domain", [Space(10), Ball(10, 1000.0)])
@pytest.mark.parametrize("rows", [None, (40, 6, 10), (20, 10)])
@pytest.mark.parametrize("longest", [None, 20])
def test_every_length_class_meets_every_size(
    model: Model, domain: object, rows: tuple[int, ...] | None, longest: int | None
) -> None:
    own = None if rows is None else OwnSequences(np.ones(rows))
    sample = draw_sample(model, domain, np.random.default_rng(0), max_length=longest, own=own)
    sequences = [sequence for batch in sample.batches for sequence in batch]
    assert len(sequences) == len(sample.shapes_of) <= 185
    assert len(sample.sizes) == (8 if isinstance(domain, Ball) else 6)
    met: dict[str, set[float]] = {}
    for sequence, size, name, shape in zip(
        sequences, sample.sizes_of, sample.lengths_of, sample.shapes_of, strict=False
    ):
        met.setdefault(name, set()).add(size)
        if shape != "ends of another sequence":
            assert np.linalg.norm(sequence, axis=1).max() <= size * (1 + 1e-12)
    words = ["one row", "two rows", "three rows", "4 to 16 rows", "17 to 64 rows", "more than 64 rows"]
    assert list(met)[:5] == words[:5]
    assert set(met) == set(words[: 6 if longest is None else 5])
    assert all(sizes == set(sample.sizes) for sizes in met.values())


def test_only_sequences_of_their_own_are_counted() -> None:
    rng = np.random.default_rng(0)
    for own in (None, OwnSequences(rng.standard_normal((4, 10)))):
        sample = draw_sample(HEAD, Space(10), rng, own=own)
        ends = [sequence[[0, -1]] for batch in sample.batches for sequence in batch]
        firsts, lasts = ({end[place].tobytes() for end in ends} for place in (0, 1))
        assert sample.independent <= min(len(firsts), len(lasts)) + (0 if own is None else 44)
        if own is not None:  # four rows make four different sequences of one row
            named = list(zip(sample.lengths_of, sample.shapes_of, strict=True))
            assert 1 <= named.count(("one row", "rows of the user's")) <= 4


@pytest.mark.parametrize("shape", [(40, 6, 10), (300, 10)])
def test_the_users_own_sequences_are_asked(shape: tuple[int, ...]) -> None:
    mine = 1e3 + np.random.default_rng(5).standard_normal(shape)
    kept = mine.copy()
    asked = [0]

    def box(X: Array) -> Array:
        asked[0] += int((X.mean(axis=(1, 2)) > 900).sum())
        return HEAD(X)

    ledger = Ledger(FunctionOracle(box), width=10)
    certificate = certify(ledger, HEAD, np.random.default_rng(1), own=OwnSequences(mine))
    assert 35 <= asked[0] <= 44
    assert certificate.n_queries <= 185
    assert "user's own" in certificate.distribution
    np.testing.assert_array_equal(mine, kept)


def test_a_box_that_differs_on_the_users_sequences_is_caught(tmp_path: Path) -> None:
    W, v = HEAD.W, HEAD.v
    mine = 5.0 + np.random.default_rng(0).standard_normal((50, 6, 10))

    def where(X: Array) -> Array:
        return np.asarray((X.mean(axis=(1, 2)) > 4.0) & (X.shape[1] == 6))

    box = _otherwise(where, SingleHead(W, v), SingleHead(1.5 * W, v))
    assert unsoftmax.recover(box, width=10).status is Status.EXACT
    assert unsoftmax.recover(box, width=10, sequences=mine).status is Status.OUTSIDE_CLASS
    np.save(tmp_path / "mine.npy", mine.reshape(-1, 10))
    head = SingleHead(W, v)
    assert unsoftmax.recover(head, sequences=tmp_path / "mine.npy").status is Status.EXACT


@pytest.mark.parametrize("wrong", ["missing.npy", np.ones((2, 3)), np.full((1, 2, 10), np.nan), [["a"]]])
def test_sequences_that_are_none_are_refused(wrong: object) -> None:
    with pytest.raises(unsoftmax.UsageError):
        unsoftmax.recover(HEAD, sequences=wrong)


@pytest.mark.parametrize(("deviating", "needed"), [(1, False), (7, False), (60, True)])
def test_a_few_saturated_sequences_say_nothing_of_the_scores(deviating: int, needed: bool) -> None:
    """Rounding that nobody foresaw in one sequence of 78 is no error of W; in most of them it is one."""
    head = unsoftmax.random_single_head(4, seed=1)
    rng = np.random.default_rng(0)
    deviations = Deviations(head)
    for first in range(0, 78, 6):
        off = np.where(np.arange(first, first + 6) < deviating, 1e-10, 0.0)
        deviations.see(100.0 * rng.standard_normal((6, 9, 4)), off, off, "4 to 16 rows")
    assert (deviations.hidden_alone > 0.0) == needed


@pytest.mark.parametrize(("times", "alike"), [(1.0, True), (6.0, False)])
def test_only_deviations_of_the_order_of_rounding_are_told_from_none(times: float, alike: bool) -> None:
    arithmetic = Computed(FloatFormat.FLOAT32, 1e-7)
    ledger = Ledger(FunctionOracle(lambda X: HEAD(X) * (1.0 + times * 1e-7), OracleSpec(width=10)))
    certificate = certify(
        ledger,
        HEAD,
        np.random.default_rng(1),
        allowed=arithmetic.rounding,
        answers_off=AnswersOff(deviation=arithmetic.deviation, arithmetic=arithmetic),
    )
    assert certificate.passed
    assert certificate.own_rounding == pytest.approx(times, rel=1e-3)
    assert f"{times:.2g} times the float32 rounding" in certificate.statement
    assert ("indistinguishable from a float32 reimplementation" in certificate.statement) is alike


def test_exact_answers_have_no_rounding_of_their_own() -> None:
    certificate = _certificate(HEAD, HEAD)
    assert certificate.own_rounding is None
    assert "reimplementation" not in certificate.statement
