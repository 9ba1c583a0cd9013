from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unsoftmax
from tests.cases import heads
from unsoftmax import FunctionOracle, Ledger, OutsideClass, SigmoidMeter
from unsoftmax.meters.one_head.exact import two_rows
from unsoftmax.meters.paper.two_rows import TwoRowMeter
from unsoftmax.meters.probes.balanced_probes import AxisProbes, BalancedProbes, Probes
from unsoftmax.meters.probes.sizes import choose_scales


def _meter(
    head: unsoftmax.SingleHead, *, bias: bool = True, input_bound: float | None = None
) -> tuple[Ledger, SigmoidMeter]:
    ledger = Ledger(FunctionOracle(head), width=head.width, input_bound=input_bound)
    return ledger, SigmoidMeter(
        ledger, head.v, float(head.c), head.w0 if bias else None, rng=np.random.default_rng(5)
    )


@pytest.mark.parametrize("kind", sorted(heads.ALL))
@pytest.mark.parametrize("d", [1, 4, 23])
def test_project_measures_any_subspace(kind: str, d: int) -> None:
    head = heads.make(kind, d, seed=1)
    rng = np.random.default_rng(2)
    B = np.linalg.qr(rng.standard_normal((d, d)))[0][:, : max(1, d // 2)]
    scale = head.matrix.norm() + (0.0 if head.w0 is None else float(np.linalg.norm(head.w0))) ** 2 + 1e-20
    for k in {1, max(1, d // 3), d}:
        _, meter = _meter(head)
        Q = np.linalg.qr(rng.standard_normal((d, k)))[0]
        np.testing.assert_allclose(meter.project(Q, B), Q.T @ head.W @ B, atol=1e-12 * scale)
    _, meter = _meter(head)
    np.testing.assert_allclose(meter.project(None, B), head.W @ B, atol=1e-12 * scale)


@pytest.mark.parametrize("v", ["orthogonal", "inside", "random"])
def test_readout_outside_the_subspace_is_no_obstacle(v: str) -> None:
    head = heads.low_rank(20, 4, seed=3, v=v)
    Q = np.linalg.qr(head.W)[0][:, :4]
    B = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 5)))[0]
    for silent in (False, True):
        ledger, meter = _meter(head)
        np.testing.assert_allclose(
            meter.project(Q, B, rest_is_zero=silent), Q.T @ head.W @ B, atol=1e-12 * head.matrix.norm()
        )
        if silent:
            assert ledger.bill.total <= 4 * 5 + 6


def test_one_query_a_measurement() -> None:
    head = heads.make("plain", 40, seed=0)
    ledger, meter = _meter(head)
    meter.project(None, np.eye(40)[:, :1])
    before = ledger.bill.total
    meter.project(None, np.eye(40)[:, 1:31])
    assert ledger.bill.total - before <= 40 * 30 * 1.01


@pytest.mark.parametrize("kind", ["biases", "query_bias_only", "zero_W_with_bias"])
@pytest.mark.parametrize("d", [1, 3, 30])
def test_query_bias_is_found(kind: str, d: int) -> None:
    head = heads.make(kind, d, seed=4)
    ledger, meter = _meter(head, bias=False)
    found = meter.query_bias()
    assert found is not None
    assert head.w0 is not None
    np.testing.assert_allclose(found, head.w0, atol=1e-12 * float(np.linalg.norm(head.w0)))
    assert ledger.bill.total <= d + 12


@pytest.mark.parametrize("kind", ["plain", "saturating", "tiny_v", "constant_only"])
def test_no_query_bias_costs_a_look(kind: str) -> None:
    ledger, meter = _meter(heads.make(kind, 30, seed=4))
    assert meter.query_bias() is None
    assert ledger.bill.total <= 6


@pytest.mark.parametrize("bound", [1e-2, 1.0, 1e3])
def test_no_row_is_longer_than_the_bound(bound: float) -> None:
    head = heads.make("plain", 12, seed=0)
    longest = [0.0]

    def watched(X: np.ndarray) -> np.ndarray:
        longest[0] = max(longest[0], float(np.linalg.norm(X, axis=2).max()))
        return head(X)

    result = unsoftmax.recover(watched, width=12, input_bound=bound)
    assert 0.3 * bound < longest[0] <= bound * (1 + 1e-12) or bound > 1.0
    assert longest[0] <= bound * (1 + 1e-12)
    assert result.status.recovered
    assert result.error_bound is not None
    assert head.distance(result.unwrap()) <= result.error_bound  # type: ignore[arg-type]


def test_forms_are_the_papers_measurements() -> None:
    head = heads.make("plain", 6, seed=9)
    ledger, _ = _meter(head)
    A, B = np.random.default_rng(0).standard_normal((2, 10, 6))
    found = TwoRowMeter(ledger, head.v).forms(A, B)
    np.testing.assert_allclose(found, np.einsum("kd,de,ke->k", A, head.W, B), rtol=1e-9)
    assert ledger.bill.total == 10


def test_a_saturated_pair_of_the_paper_is_not_finite() -> None:
    head = heads.make("saturating", 6, seed=9)
    A, B = np.random.default_rng(0).standard_normal((2, 10, 6))
    found = TwoRowMeter(_meter(head)[0], head.v).forms(1e6 * A, B)
    assert not (np.abs(found) < 36.0).any()
    limited = TwoRowMeter(_meter(head)[0], head.v, 1.0).forms(1e6 * A, B)
    np.testing.assert_allclose(np.abs(limited), 1.0)


def test_answers_that_are_no_weights_are_refused() -> None:
    ledger = Ledger(FunctionOracle(lambda X: 3.0 * X[:, 0, 0]), width=2)
    with pytest.raises(OutsideClass, match="between 0 and 1"):
        SigmoidMeter(ledger, np.array([1.0, 0.0])).project(None, np.eye(2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("d", "k"), [(1, 1), (5, 5), (9, 3), (9, 9)])
@pytest.mark.parametrize("axis", [False, True])
def test_probes_hear_v_and_lead_back(seed: int, d: int, k: int, axis: bool) -> None:
    rng = np.random.default_rng([seed, d, k])
    v = rng.standard_normal(d) * (np.arange(d) != 1)
    basis = np.eye(d) if axis else np.linalg.qr(rng.standard_normal((d, k)))[0]
    probes: Probes = AxisProbes(v) if axis else BalancedProbes(v, basis)
    gamma, shares = rng.uniform(0.1, 10.0, (2, probes.count))
    which = np.arange(probes.count)
    rows = probes.rows(which, gamma, shares)
    np.testing.assert_allclose(probes.readouts(which, gamma, shares), rows @ v, rtol=1e-12)
    assert (np.linalg.norm(rows, axis=1) <= probes.longest * np.maximum(gamma, shares) * (1 + 1e-12)).all()
    loudness = np.linalg.norm(basis.T @ v) / np.sqrt(probes.count)
    assert (rows @ v >= np.minimum(gamma, shares) * loudness * (1 - 1e-9)).all()
    m = rng.standard_normal(d)
    forms, ratios = (rows @ m / gamma)[None], (shares / gamma)[None]
    np.testing.assert_allclose(probes.coordinates(forms, ratios)[0], basis.T @ m, atol=1e-12)
    np.testing.assert_allclose(probes.forms_of(m, ratios), forms, atol=1e-12)


@pytest.mark.parametrize("axis", [False, True])
def test_a_batch_is_every_probe_with_every_asking_row(axis: bool) -> None:
    rng = np.random.default_rng(0)
    v, asking, gamma = rng.standard_normal(6), rng.standard_normal((3, 6)), rng.uniform(0.5, 2.0, 4)
    probes: Probes = AxisProbes(v) if axis else BalancedProbes(v, np.eye(6))
    probes.begin(1, gamma)
    grid = probes.batch(asking, 0.7).reshape(3, 4, 2, 6)
    rows = probes.rows(np.arange(1, 5), gamma, np.full(4, 0.7))
    np.testing.assert_allclose(grid[:, :, 0], rows[None] + asking[:, None], atol=1e-14)
    np.testing.assert_array_equal(grid[:, :, 1], np.repeat(asking[:, None], 4, axis=1))


@given(
    plan=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(1, 6), st.booleans(), st.integers(1, 2)),
        min_size=2,
        max_size=12,
    )
)
@pytest.mark.parametrize("axis", [False, True])
def test_batches_one_after_another_are_each_written_right(
    axis: bool, plan: list[tuple[int, int, int, bool, int]]
) -> None:
    """Whatever was asked before, kept or let go: batches of one column reuse what stands in memory."""
    rng = np.random.default_rng(0)
    v, rows_asking = rng.standard_normal(6), rng.standard_normal((3, 6))
    probes: Probes = AxisProbes(v) if axis else BalancedProbes(v, np.eye(6))
    blocks = {(column, n): rows_asking[column : column + n] for column in (0, 1) for n in (1, 2)}
    kept = []
    for column, first, count, keep, n in plan:
        gamma = rng.uniform(0.5, 2.0, min(count, 6 - first))
        which, shares = np.arange(first, first + len(gamma)), np.full(len(gamma), 0.7)
        asking = blocks[column, n]
        probes.begin(first, gamma)
        batch = probes.batch(asking, 0.7)
        expected = np.concatenate(
            [two_rows(probes.rows(which, gamma, shares), np.tile(x, (len(gamma), 1))) for x in asking]
        )
        np.testing.assert_allclose(batch, expected, rtol=0.0, atol=1e-14)
        kept.append((batch if keep else expected, expected))
        del batch
    for batch, expected in kept:
        np.testing.assert_allclose(batch, expected, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("strength", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("bias", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("bound", [None, 1.0])
def test_scales_neither_saturate_nor_exceed_the_bound(
    strength: float, bias: float, bound: float | None
) -> None:
    gamma, beta = choose_scales(strength, bias=bias, bound=bound)
    assert gamma * (beta * strength + bias) <= 1.0 + 1e-9
    assert bound is None or gamma + beta <= bound * (1 + 1e-12)
