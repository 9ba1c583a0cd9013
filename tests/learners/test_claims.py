"""Claims against bills: no learner takes more than it says, whatever the target; and plans that are near."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import unsoftmax
from tests.cases import bills
from tests.cases.bills import Bill, claimed, learning
from unsoftmax import (
    Learner,
    Model,
    Size,
    UsageError,
    plan,
    random_multi_head,
    random_single_head,
    random_transformer,
)

GROUPS: dict[str, Callable[[], Iterator[Bill]]] = {
    "one head, d=3": lambda: bills.of_single_heads(3, 1),
    "one head, d=8": lambda: bills.of_single_heads(8, 2),
    "several heads, d=6": lambda: bills.of_several_heads(6, 3),
    "several heads, d=8": lambda: bills.of_several_heads(8, 4),
    "vector answers": lambda: bills.of_vector_answers(6, 5),
    "networks": lambda: bills.of_networks(5, 7, 6),
    "networks, uneven": lambda: bills.of_networks(8, 5, 0),
    "Transformers": lambda: bills.of_transformers(4, 5, 7),
    "answers with errors, d=3": lambda: bills.of_answers_with_errors(3, None, 8, bounds=(None, 1e3)),
    "answers with errors, d=5 r=2": lambda: bills.of_answers_with_errors(5, 2, 9, bounds=(None, 10.0)),
}


@pytest.mark.parametrize("group", GROUPS)
def test_no_bill_exceeds_its_claim(group: str) -> None:
    recovered, wrong = 0, []
    for case in GROUPS[group]():
        result = case.paid()
        if result.model is None:
            continue
        recovered += 1
        if not result.claim.queries.holds(learning(result), Size.of(result.model)):
            wrong.append(f"{case.name}: billed {learning(result)}, claimed {claimed(result)}")
    assert wrong == []
    assert recovered >= 15


MODELS: dict[str, Callable[[int], Model]] = {
    "several heads": lambda seed: random_multi_head(16, 3, seed=seed),
    "several heads of full rank": lambda seed: random_multi_head(12, 2, 12, seed=seed),
    "several heads with biases": lambda seed: random_multi_head(16, 4, seed=seed, biases=True),
    "a Transformer": lambda seed: random_transformer(12, 10, seed=seed),
    "a Transformer with biases": lambda seed: random_transformer(16, 8, 4, seed=seed, biases=True),
    "vector answers": lambda seed: random_multi_head(16, 4, seed=seed, outputs=16),
    "vector answers of one head": lambda seed: unsoftmax.SingleHead(
        random_single_head(16, seed=seed).matrix, np.random.default_rng(seed).standard_normal((16, 4))
    ),
    "vector answers of heads that overlap": lambda seed: random_multi_head(12, 3, 12, seed=seed, outputs=12),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_plan_for_a_known_size_is_within_a_fifth_of_the_bill(kind: str) -> None:
    for seed in range(2):
        hidden = MODELS[kind](seed)
        result = unsoftmax.recover(hidden, seed=seed)
        assert result.status.recovered, result.reason
        planned = plan(hidden, family=hidden.family, size=Size.of(hidden))
        assert len(planned.costs) == 1
        assert abs(planned.usual - result.queries.total) <= 0.2 * result.queries.total
        assert result.queries.total <= planned.at_most


def test_a_plan_for_an_unknown_size_is_a_table_that_holds_the_bill() -> None:
    for target, family in (
        ("demo:multi-head?d=16&heads=4&r=4", "multi-head"),
        ("demo:transformer?d=8&m=16", "transformer"),
    ):
        planned = plan(target, family=family)
        assert len(planned.costs) == 4
        assert planned.at_least <= unsoftmax.recover(target).queries.total <= planned.at_most


def test_sizes_tell_what_a_claim_needs() -> None:
    biased = Size.of(random_multi_head(8, 2, 3, seed=0, biases=True))
    assert (biased.heads, biased.ranks, biased.biased) == (2, (3, 3), True)
    network = Size.of(random_transformer(4, 5, seed=1, biases=True))
    assert (network.neurons, network.ranks) == (5, (4,))
    vectors = Size.of(random_multi_head(8, 2, 3, seed=0, outputs=5))
    assert (vectors.outputs, vectors.value_ranks) == (5, (3, 3))
    assert Size.of(random_single_head(6, 2, seed=0), repeats=7).repeats == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"width": 4, "ranks": (5,)},
        {"width": 4, "neurons": -1},
        {"width": 4, "outputs": 0},
        {"width": 4, "repeats": 0},
        {"width": 4, "ranks": (2, 2), "value_ranks": (2,)},
    ],
)
def test_sizes_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Size(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", MODELS)
def test_an_automatic_recovery_is_held_to_the_claim_of_its_learner(kind: str) -> None:
    hidden = MODELS[kind](4)
    result = unsoftmax.recover(lambda X: hidden(X), width=hidden.width, outputs=hidden.outputs, seed=1)
    assert result.status.recovered, result.reason
    learners: dict[str, Learner] = {
        "single-head": unsoftmax.SingleHeadLearner(),
        "multi-head": unsoftmax.MultiHeadLearner(),
        "transformer": unsoftmax.TransformerLearner(),
    }
    expected = learners[hidden.family] if hidden.outputs is None else unsoftmax.VectorOutputsLearner()
    assert result.claim.title == expected.claim.title
    assert result.claim.queries.holds(learning(result), Size.of(result.unwrap()))
