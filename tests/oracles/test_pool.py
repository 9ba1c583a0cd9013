"""A pool of copies gives the same bits as one copy, and every fault is named."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

import unsoftmax
from unsoftmax.oracles import FunctionOracle, OracleSpec

Array = NDArray[np.float64]


def _copies(head: unsoftmax.SingleHead, n: int) -> list[FunctionOracle]:
    return [
        FunctionOracle(
            unsoftmax.SingleHead(head.matrix, head.v), OracleSpec(width=head.width, name=f"copy {i}")
        )
        for i in range(n)
    ]


@pytest.mark.parametrize(("d", "r"), [(12, 12), (40, 3)])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_same_bits_as_with_one(d: int, r: int, n: int) -> None:
    head = unsoftmax.random_single_head(d, r, seed=1)
    results = []
    for copies in (1, n):
        with unsoftmax.Pool(_copies(head, copies), piece=16) as pool:
            results.append(unsoftmax.recover(pool, seed=3))
    one, many = (result.unwrap() for result in results)
    assert isinstance(one, unsoftmax.SingleHead)
    assert isinstance(many, unsoftmax.SingleHead)
    np.testing.assert_array_equal(one.W, many.W)
    np.testing.assert_array_equal(one.v, many.v)
    assert results[0].queries.by_phase == results[1].queries.by_phase
    assert head.distance(many) < 1e-10


def test_every_copy_works_and_none_is_called_twice_at_once() -> None:
    busy, used = [0, 0, 0], [0, 0, 0]
    barrier = threading.Barrier(3, timeout=30)

    def copy(i: int) -> FunctionOracle:
        def answer(X: Array) -> Array:
            busy[i] += 1
            assert busy[i] == 1
            barrier.wait()  # passes only when all three are at work
            used[i] += len(X)
            busy[i] -= 1
            return X[:, -1, 0].copy()

        return FunctionOracle(answer, OracleSpec(width=1))

    with unsoftmax.Pool([copy(i) for i in range(3)], piece=2) as pool:
        np.testing.assert_array_equal(pool(np.arange(12.0).reshape(12, 1, 1)), np.arange(12.0))
    assert sum(used) == 12
    assert min(used) > 0


def test_a_fault_of_one_copy_is_a_fault() -> None:
    def broken(X: Array) -> Array:
        raise RuntimeError("out of memory")

    with (
        unsoftmax.Pool([FunctionOracle(broken), FunctionOracle(broken)], piece=1) as pool,
        pytest.raises(unsoftmax.OracleFault, match="out of memory"),
    ):
        pool(np.zeros((4, 1, 2)))


def test_misuse_is_named() -> None:
    with pytest.raises(unsoftmax.UsageError, match="at least one copy"):
        unsoftmax.Pool([])
    same = FunctionOracle(lambda X: X[:, 0, 0], OracleSpec(width=2))
    with pytest.raises(unsoftmax.UsageError, match="piece"):
        unsoftmax.Pool([same], piece=0)
    with pytest.raises(unsoftmax.UsageError, match="same of themselves"):
        unsoftmax.Pool([same, FunctionOracle(lambda X: X[:, 0, 0], OracleSpec(width=3))])
