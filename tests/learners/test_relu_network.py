"""The network learner: sizes × kinds × seeds, bumps, digits against queries, refusals; and Milli et al.
2019."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.networks import HARD, gaussian, with_bump
from unsoftmax import ReluNetwork, ReluNetworkLearner, Size, Status, UsageError, random_relu_network
from unsoftmax.arrays import Array


def _function_error(hidden: ReluNetwork, found: object) -> float:
    assert isinstance(found, ReluNetwork)
    rows = hidden.folds.reach * np.random.default_rng(7).standard_normal((1000, hidden.width))
    return float(
        np.sqrt(np.mean((hidden(rows) - found(rows)) ** 2)) / max(np.sqrt(np.mean(hidden(rows) ** 2)), 1e-300)
    )


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("d", "m"), [(1, 5), (2, 9), (8, 5), (8, 40), (24, 24), (32, 64)])
def test_random_networks(d: int, m: int, biased: bool) -> None:
    for seed in range(3):
        hidden = gaussian(d, m, np.random.default_rng([seed, d, m]), biased)
        result = unsoftmax.recover_network(hidden.__call__, width=d, seed=seed)
        assert result.status is Status.EXACT, result.reason
        model = result.unwrap()
        assert isinstance(model, ReluNetwork)
        assert model.folds.count == hidden.folds.count
        assert _function_error(hidden, model) <= 1e-8
        assert result.error_bound is not None
        assert hidden.distance(model) <= result.error_bound
        assert result.claim.queries.holds(result.queries.learning, Size.of(result.unwrap()))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", sorted(HARD))
def test_hard_networks(name: str, biased: bool) -> None:
    for seed in range(2):
        hidden = HARD[name](8, 12, np.random.default_rng([2, seed]), biased)
        result = unsoftmax.recover_network(hidden, seed=seed)
        assert result.status is Status.EXACT, result.reason
        model = result.unwrap()
        assert isinstance(model, ReluNetwork)
        assert model.folds.count == hidden.folds.count
        assert _function_error(hidden, model) <= 1e-8


def test_the_price_at_the_size_that_counts() -> None:
    for seed in range(6):
        for biased in (False, True):
            hidden = gaussian(32, 64, np.random.default_rng([5, seed]), biased)
            result = unsoftmax.recover_network(hidden, seed=seed)
            assert result.status is Status.EXACT, result.reason
            assert result.queries.total <= 1.15 * 64 * 34


def test_rounding_that_cancelled_neurons_leave_behind_is_not_taken_for_kinks() -> None:
    for seed in range(8):
        hidden = HARD["cancelling"](8, 1, np.random.default_rng([2, seed]), True)
        result = unsoftmax.recover_network(hidden, seed=seed)
        assert result.status is Status.EXACT, result.reason
        assert hidden.distance(result.unwrap()) < 1e-9  # type: ignore[arg-type]
        assert result.queries.total < 500


def test_a_ray_on_which_neurons_cancel_does_not_make_up_biases() -> None:
    a, b = np.array([[1.0, 0.3], [0.2, 1.1]])
    hidden = ReluNetwork(np.stack([a, b, a + b]), [0.7, 0.7, -0.7])
    for seed in range(8):
        result = unsoftmax.recover_network(hidden, seed=seed)
        assert result.status is Status.EXACT, result.reason
        assert isinstance(result.model, ReluNetwork)
        assert not result.model.folds.biased
        assert result.error_bound is not None
        assert hidden.distance(result.model) <= result.error_bound < 1e-9


@pytest.mark.parametrize("distance", [20.0, 2e3, 2e5])
def test_hyperplanes_far_from_where_rays_see_bending_are_all_found(distance: float) -> None:
    for seed in range(3):
        rng = np.random.default_rng([4, seed])
        A = rng.standard_normal((12, 6))
        b = np.linalg.norm(A, axis=1) * np.where(np.arange(12) < 1, 1.0, distance) * rng.uniform(0.5, 1.5, 12)
        hidden = ReluNetwork(A * np.where(np.arange(12) < 1, 1e4, 1.0)[:, None], rng.standard_normal(12), b)
        result = unsoftmax.recover_network(hidden, seed=seed)
        if result.status.recovered:
            assert _function_error(hidden, result.model) <= 1e-8
        else:
            assert distance > 1e3


def test_constant_and_linear_functions_have_no_folds() -> None:
    for network in (
        ReluNetwork(np.zeros((0, 3)), [], c=2.5),
        ReluNetwork(np.zeros((0, 3)), [], c=1.0, linear=[1.0, 2.0, 3.0]),
        random_relu_network(3, 0),
    ):
        result = unsoftmax.recover_network(network)
        assert result.status is Status.EXACT, result.reason
        assert network.distance(result.unwrap()) < 1e-12  # type: ignore[arg-type]


def test_more_queries_give_more_digits() -> None:
    hidden = gaussian(16, 96, np.random.default_rng(1), True)
    plain = unsoftmax.recover_network(hidden, learner=ReluNetworkLearner(polish=0.0))
    polished = unsoftmax.recover_network(hidden, learner=ReluNetworkLearner(polish=1.0, goal=0.0))
    assert polished.queries.by_phase["polish"] > 0
    assert "polish" not in plain.queries.by_phase
    assert _function_error(hidden, polished.model) < 0.3 * _function_error(hidden, plain.model)


def test_a_bump_wider_than_the_stated_blind_spot_is_found() -> None:
    for seed in range(4):
        hidden = with_bump(6, 8, 0.1, np.random.default_rng([3, seed]))
        result = unsoftmax.recover_network(hidden, seed=seed, learner=ReluNetworkLearner(thoroughness=10.0))
        assert result.status is Status.EXACT, result.reason
        assert hidden.distance(result.unwrap()) < 1e-6  # type: ignore[arg-type]
        assert result.certificate is not None
        assert "a bump confined to a slab narrower than" in result.certificate.statement


def test_the_rows_of_the_gradients_find_most_bumps_in_larger_networks() -> None:
    found = 0
    for seed in range(6):
        hidden = with_bump(24, 32, 0.05, np.random.default_rng([6, seed]))
        result = unsoftmax.recover_network(hidden, seed=seed)
        if not result.status.recovered:
            continue
        assert result.error_bound is not None
        assert result.certificate is not None
        right = hidden.distance(result.unwrap()) <= result.error_bound  # type: ignore[arg-type]
        assert right or float(result.certificate.caveat.split("narrower than ")[1].split(",")[0]) > 0.05
        found += right
    assert found >= 5


def test_hyperplanes_too_close_to_tell_apart_are_said_to_be_given_as_one() -> None:
    rng = np.random.default_rng(3)
    base = gaussian(5, 8, rng, True)
    assert base.b is not None
    hidden = ReluNetwork(
        np.vstack([base.A, base.A[:1]]),
        np.append(base.u, 0.7),
        np.append(base.b, base.b[0] + 2e-8 * np.linalg.norm(base.A[0])),
    )
    result = unsoftmax.recover_network(hidden, seed=1)
    assert result.status.recovered
    assert isinstance(result.model, ReluNetwork)
    assert result.model.folds.count == 8
    assert result.certificate is not None
    assert "one hyperplane lies within" in result.certificate.statement


def test_thoroughness_buys_a_smaller_blind_spot() -> None:
    hidden = gaussian(4, 6, np.random.default_rng(1), True)
    spots = []
    for thoroughness in (1.0, 10.0):
        result = unsoftmax.recover_network(hidden, learner=ReluNetworkLearner(thoroughness=thoroughness))
        assert result.certificate is not None
        spots.append(float(result.certificate.caveat.split("narrower than ")[1].split(",")[0]))
    assert spots[1] == pytest.approx(
        spots[0] / 10.0, rel=0.3
    )  # measured on the rows, so by chance a little more or less


@pytest.mark.parametrize("distance", [3e5, 3e6, 1e8])
def test_a_kink_far_beyond_the_others_is_found_or_at_least_not_missed_in_silence(distance: float) -> None:
    hidden = ReluNetwork(np.eye(3), [1.0, 2.0, -1.0], [0.5, -1.0, distance])
    for seed in range(3):
        result = unsoftmax.recover_network(hidden, seed=seed)
        if isinstance(result.model, ReluNetwork):
            assert result.model.folds.count == 3
        else:
            assert distance > 1e6
            assert result.status is Status.UNRESOLVED


@pytest.mark.parametrize(
    ("function", "status", "words"),
    [
        (lambda X: np.sin(X @ np.ones(3)), Status.OUTSIDE_CLASS, "piecewise linear"),
        (
            lambda X: (
                np.maximum(np.maximum(X, 0) @ np.array([[1.0, -2.0], [0.5, 1.0], [-1.0, 1.5]]) + 0.2, 0)
                @ np.array([1.0, -1.5])
            ),
            Status.OUTSIDE_CLASS,
            "",
        ),
        (lambda X: np.round(np.abs(X @ np.ones(3) - 0.3), 5), Status.UNRESOLVED, "rounded to 5 decimals"),
    ],
)
def test_other_functions_are_refused(function: object, status: Status, words: str) -> None:
    result = unsoftmax.recover_network(function, width=3)  # type: ignore[arg-type]
    assert result.status is status, result.reason
    assert words in result.reason
    assert result.model is None


def test_answers_in_float32_are_enough_for_a_bound() -> None:
    def stored(X: Array) -> Array:
        return np.asarray(np.abs(X @ np.ones(3) - 0.3).astype(np.float32))

    result = unsoftmax.recover_network(stored, width=3)
    true = ReluNetwork(np.array([[1.0] * 3, [-1.0] * 3]), np.ones(2), np.array([-0.3, 0.3]))
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, ReluNetwork)
    assert result.error_bound is not None
    assert true.distance(result.model) <= result.error_bound


def test_noise_is_refused() -> None:
    rng = np.random.default_rng(0)
    hidden = gaussian(4, 6, np.random.default_rng(1), True)

    def noisy(X: Array) -> Array:
        return np.asarray(hidden(X) + 1e-6 * rng.standard_normal(len(X)))

    assert not unsoftmax.recover_network(
        noisy, width=4, learner=ReluNetworkLearner(max_neurons=64)
    ).status.recovered


def test_bounded_rows_serve_networks_without_biases_only() -> None:
    assert (
        unsoftmax.recover_network(random_relu_network(4, 6, seed=1), input_bound=0.5).status is Status.EXACT
    )
    refused = unsoftmax.recover_network(random_relu_network(4, 6, seed=1, biases=True), input_bound=0.5)
    assert refused.status is Status.UNRESOLVED
    assert "input_bound" in refused.reason


def test_a_budget_is_kept() -> None:
    result = unsoftmax.recover_network(random_relu_network(6, 8, seed=1), budget=50)
    assert result.status is Status.BUDGET_SPENT
    assert result.queries.total <= 50


def test_the_seed_decides_everything() -> None:
    hidden = gaussian(5, 7, np.random.default_rng(1), True)
    first, second = (unsoftmax.recover_network(hidden, seed=4) for _ in range(2))
    assert isinstance(first.model, ReluNetwork)
    assert isinstance(second.model, ReluNetwork)
    assert (first.model.A == second.model.A).all()
    assert first.queries.by_phase == second.queries.by_phase


def test_wrong_options_are_said() -> None:
    with pytest.raises(UsageError, match="thoroughness"):
        ReluNetworkLearner(thoroughness=0.0)
    with pytest.raises(UsageError, match="callable"):
        unsoftmax.recover_network(3, width=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(("d", "m"), [(3, 2), (8, 8), (16, 10)])
def test_milli_recovers_independent_rows(d: int, m: int) -> None:
    for seed in range(2):
        hidden = random_relu_network(d, m, seed=seed)
        result = unsoftmax.recover_network(hidden, seed=seed, learner=unsoftmax.milli_2019())
        assert result.status is Status.EXACT, result.reason
        assert hidden.distance(result.unwrap()) < 1e-7  # type: ignore[arg-type]
        assert result.claim.queries.holds(result.queries.learning, Size.of(result.unwrap()))
        assert isinstance(result.model, ReluNetwork)
        assert result.model.linear is None


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (random_relu_network(4, 7, seed=1), "linearly dependent"),
        (random_relu_network(4, 3, seed=1, biases=True), "has biases"),
        (
            ReluNetwork(np.vstack([np.eye(4), -np.eye(4)[:1]]), [1.0, 2.0, 3.0, -1.0, 0.5]),
            "share a hyperplane",
        ),
    ],
)
def test_milli_says_what_it_cannot(network: ReluNetwork, words: str) -> None:
    result = unsoftmax.recover_network(network, learner=unsoftmax.milli_2019())
    assert result.status is Status.UNRESOLVED
    assert words in result.reason
