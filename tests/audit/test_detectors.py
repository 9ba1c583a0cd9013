"""Detectors on honest users and on the attack, the attack adapted to them, accounts, similar neurons, and
advice that agrees with its table."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax.audit.defences.detectors import Detector, Prada, StructuredRows, Watched, false_alarms
from unsoftmax.audit.defences.similar_neurons import with_similar_neurons
from unsoftmax.audit.defences.table import DefenceRow, Defences
from unsoftmax.audit.defences.wrappers import honest_sequences

HEAD = unsoftmax.random_single_head(4, seed=0)
DETECTORS = {"prada": Prada, "structured": StructuredRows}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", DETECTORS.values(), ids=DETECTORS)
def test_honest_users_hear_no_alarm_and_the_plain_attack_does(make: type[Detector], seed: int) -> None:
    assert false_alarms(make(), honest_sequences(4, seed)) == 0.0
    watched = Watched(unsoftmax.as_oracle(HEAD), [make()])
    with pytest.raises(unsoftmax.OracleFault, match="ended an account"):
        unsoftmax.recover(watched, seed=seed)
    assert watched.sent <= 400


def test_copied_queries_are_structured() -> None:
    detector = StructuredRows(0.05)
    sequence = np.random.default_rng(0).standard_normal((3, 4))
    assert any(detector.alarm(sequence) for _ in range(101))


@pytest.fixture(scope="module")
def table() -> dict[str, DefenceRow]:
    chosen = ["", "structured-rows=0.05", "prada=0.9", "prada=0.9+accounts=16", "budget=30+accounts=16"]
    rows = unsoftmax.defend(HEAD, defences=chosen).rows
    return dict(zip(chosen, rows, strict=True))


def test_the_adapted_attack_gets_past_and_pays_for_it(table: dict[str, DefenceRow]) -> None:
    plain = table[""]
    for name in ("structured-rows=0.05", "prada=0.9"):
        row = table[name]
        assert row.parameter_error is not None
        assert row.parameter_error < 1e-9
        assert row.refused == 0.0
        assert "honest-looking" in row.adapted
        assert row.queries > 2 * plain.queries
    assert table["structured-rows=0.05"].queries >= 15 * plain.queries // 2


def test_accounts_share_the_work(table: dict[str, DefenceRow]) -> None:
    assert table["prada=0.9+accounts=16"].queries == table[""].queries
    assert table["budget=30+accounts=16"].status == "EXACT"


def test_similar_neurons_are_told_apart_and_cost_users() -> None:
    model = unsoftmax.random_transformer(4, 3, seed=1)
    honest = honest_sequences(4)
    protected = with_similar_neurons(model, 0.9, honest)
    assert isinstance(protected, unsoftmax.Transformer)
    assert np.ptp(protected.network.A, axis=0).max() < 0.2 * np.ptp(model.network.A, axis=0).max()
    (row,) = unsoftmax.defend(model, defences=["similar-neurons=0.9"]).rows
    assert row.parameter_error is not None
    assert row.parameter_error < 1e-6
    assert row.distortion > 1e-3
    with pytest.raises(unsoftmax.UsageError, match="single-head"):
        unsoftmax.defend(HEAD, defences=["similar-neurons=0.9"])


@pytest.mark.parametrize("text", ["prada=2", "structured-rows=0", "accounts=0", "similar-neurons=1"])
def test_values_out_of_range_are_refused_before_any_query(text: str) -> None:
    with pytest.raises(unsoftmax.UsageError):
        unsoftmax.defend(HEAD, defences=[text])


@pytest.mark.parametrize("seed", range(200))
def test_advice_never_contradicts_its_table(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = ("decimals", "noise", "prada", "input-bound", "budget", "labels")
    rows = []
    for index in range(int(rng.integers(1, 7))):
        leak = None if rng.random() < 0.3 else float(10.0 ** rng.uniform(-16, 0))
        rows.append(
            DefenceRow(
                f"row {index}",
                ((str(rng.choice(kinds)), 1.0),),
                "EXACT",
                "",
                int(rng.integers(10, 1000)),
                leak,
                leak,
                leak,
                float(10.0 ** rng.uniform(-9, 0)),
                float(rng.choice([0.0, 0.5])),
                0.0,
                bool(rng.random() < 0.8),
            )
        )
    if rng.random() < 0.5:
        pooled = (("budget", 9.0), ("accounts", 4.0))
        rows.append(DefenceRow("pooled", pooled, "EXACT", "", 50, 1e-12, 1e-12, None, 0.0, 0.0, 0.0))
    advice = Defences(tuple(rows), 50, "", False, 0).advice
    by_label = {row.label: row for row in rows}
    tested = [row for row in rows if row.attacked and "budget" not in row.kinds]
    kind = [row for row in tested if row.distortion <= 0.01 and row.refused <= 0.01]
    if advice.startswith("Use '"):
        named = by_label[advice.split("'")[1]]
        assert named in kind
        assert named.leak >= 0.1
        assert named.leak == max(row.leak for row in kind)
    else:
        assert all(row.leak < 0.1 for row in kind)  # what stops it and harms nobody would have been advised
    for label, row in by_label.items():
        if f"'{label}'" in advice:
            assert row.attacked
    if "pooled" in by_label:
        assert "'pooled' did not stop it" in advice
