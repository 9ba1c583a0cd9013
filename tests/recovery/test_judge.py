"""No learner grades itself: whatever it says of a wrong model, the model is not recovered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import unsoftmax
from unsoftmax import (
    Claim,
    FlippedLabels,
    Labels,
    LowPrecision,
    MultiHead,
    Noisy,
    Oracle,
    ReluNetworkLearner,
    Rounded,
    SingleHead,
    SingleHeadLearner,
    Status,
    Transformer,
    UsageError,
    WithinTolerance,
    as_oracle,
)
from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.learners import Known, Learned
from unsoftmax.ledger import Asker
from unsoftmax.models import Model


@dataclass(frozen=True)
class _Boaster:
    """Returns a model of its own choice, with whatever it likes to say of it."""

    family: ClassVar[Family] = Family.SINGLE_HEAD
    model: Model
    error_bound: float | None
    v_bound: float | None = None
    constant_bound: float | None = None
    within: float | None = None
    answers_bound: float | None = None

    @property
    def claim(self) -> Claim:
        return SingleHeadLearner().claim

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        asker.ask(rng.standard_normal((4, 1, asker.width)))
        return Learned(
            self.model,
            self.claim,
            error_bound=self.error_bound,
            v_bound=self.v_bound,
            constant_bound=self.constant_bound,
            within=self.within,
            answers_bound=self.answers_bound,
            note="perfect",
        )


BOUNDS = [None, 0.0, 1e-12, 1e-3, 0.09, 0.1, 10.0, np.inf]


def _wrong(truth: SingleHead, seed: int) -> list[Model]:
    """Models at distance one: another W, a W of double size, W gone, W and v of another head."""
    other = unsoftmax.random_single_head(truth.width, seed=seed + 100)
    size = np.linalg.norm(truth.W) / np.linalg.norm(other.W)
    return [
        SingleHead(truth.W + size * other.W, truth.v, truth.w0, truth.c),
        SingleHead(2.0 * truth.W, truth.v, truth.w0, truth.c),
        SingleHead(0.0 * truth.W, truth.v, truth.w0, truth.c),
        other,
        MultiHead([truth, SingleHead(size * other.W, other.v)]),
    ]


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_wrong_model_never_succeeds_on_exact_answers(bound: float | None) -> None:
    for seed in range(2):
        truth = unsoftmax.random_single_head(5, seed=seed, biases=bool(seed))
        for model in _wrong(truth, seed):
            for more in ({}, {"constant_bound": 1e9}, {"within": 1e-6}):
                result = unsoftmax.recover(truth, learner=_Boaster(model, bound, **more))
                assert result.status in (Status.OUTSIDE_CLASS, Status.UNRESOLVED), (
                    model,
                    more,
                    result.reason,
                )
                assert result.model is None


def test_a_class_of_ones_own_brings_no_ruler_and_no_answers() -> None:
    truth, other = unsoftmax.random_single_head(5, seed=0), unsoftmax.random_single_head(5, seed=1)

    class Lenient(SingleHead):
        exact_at = 10.0

    class Parrot(SingleHead):
        def __call__(self, batch: Array, /) -> Array:
            return truth(batch)

    for kind in (Lenient, Parrot):
        model = kind(other.matrix, other.v)
        result = unsoftmax.recover(truth, learner=_Boaster(model, 1e-12, answers_bound=0.5))
        assert not result.status.recovered, result.reason


@pytest.mark.parametrize("more", [{"answers_bound": np.inf}, {}])
def test_a_wrong_model_behind_labels_needs_no_bound_to_be_refused(more: dict[str, float]) -> None:
    truth = unsoftmax.random_transformer(4, 6, seed=351688, biases=True)
    wrong = Transformer(0.0 * truth.W, truth.network, truth.w0, truth.residual)
    result = unsoftmax.recover(
        FlippedLabels(as_oracle(truth), 0.05, 0), learner=_Boaster(wrong, 0.0 if more else None, **more)
    )
    assert not result.status.recovered, result.reason


@pytest.mark.parametrize("bound", [np.nan, -1.0])
def test_a_bound_is_a_number_from_zero_on(bound: float) -> None:
    truth = unsoftmax.random_single_head(4, seed=0)
    with pytest.raises(UsageError, match="error_bound"):
        unsoftmax.recover(truth, learner=_Boaster(truth, bound))


def _behind(truth: SingleHead, seed: int) -> list[Oracle]:
    base = as_oracle(truth)
    return [
        WithinTolerance(base, 1e-3, seed),
        Rounded(base, 3),
        Noisy(base, 1e-4, seed),
        LowPrecision(base, "float32"),
        LowPrecision(base, "bfloat16"),
        Labels(base),
        FlippedLabels(base, 0.05, seed),
    ]


@pytest.mark.parametrize("bound", [0.0, 1e-6, 0.09, 10.0])
def test_a_wrong_model_never_succeeds_behind_errors(bound: float) -> None:
    truth = unsoftmax.random_single_head(4, seed=3)
    for number in range(7):
        for model in _wrong(truth, 3)[:3]:
            for more in ({}, {"v_bound": 0.1, "constant_bound": 1e9}):
                oracle = _behind(truth, 3)[number]
                result = unsoftmax.recover(oracle, learner=_Boaster(model, bound, **more))
                assert not result.status.recovered, (type(oracle).__name__, model, result.reason)


@pytest.mark.parametrize("bound", [1e-12, 0.05])
def test_a_wrong_network_never_succeeds(bound: float) -> None:
    truth = unsoftmax.random_relu_network(4, 6, seed=1, biases=True)
    for model in (
        unsoftmax.random_relu_network(4, 6, seed=2, biases=True),
        unsoftmax.random_relu_network(4, 1, seed=2),
    ):
        learner = _Boaster(model, bound)
        result = unsoftmax.recover_network(lambda X: truth(X), width=4, learner=learner)
        assert not result.status.recovered, result.reason
    right = unsoftmax.recover_network(lambda X: truth(X), width=4, learner=ReluNetworkLearner())
    assert right.status is Status.EXACT


def test_a_bound_that_fresh_answers_exceed_is_raised_to_what_they_show() -> None:
    """A bound is never lowered by what the certificate sees: five outputs of very different sizes."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        A, U = rng.standard_normal((1, 5)), rng.standard_normal((1, 5)) * 10.0 ** rng.uniform(-4, 4, 5)
        hidden = unsoftmax.Network(A, U, linear=rng.standard_normal((5, 5)))
        result = unsoftmax.recover_network(hidden, seed=seed)
        found = result.unwrap()
        assert isinstance(found, unsoftmax.Network)
        assert result.error_bound is not None
        assert hidden.distance(found) <= result.error_bound
        assert result.certificate is not None
        assert result.certificate.max_relative_error <= 2.0 * result.error_bound
