"""Memory that is used again must never change what somebody kept."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import unsoftmax
from unsoftmax.ledger import BatchMemory, Ledger
from unsoftmax.oracles import FunctionOracle, OracleSpec

Array = NDArray[np.float64]


def test_memory_is_used_again_when_nobody_holds_it() -> None:
    memory = BatchMemory()
    first = memory.blank((3, 2, 5))
    address = first.ctypes.data
    del first
    assert memory.blank((3, 2, 5)).ctypes.data == address


@pytest.mark.parametrize("keep", ["itself", "view", "view of a view"])
def test_what_is_kept_stays_as_it_was(keep: str) -> None:
    memory = BatchMemory()
    batch = memory.blank((4, 2, 3))
    batch[:] = 1.0
    kept = {"itself": batch, "view": batch[1:], "view of a view": batch[1:].reshape(-1)[2:]}[keep]
    del batch
    memory.blank((4, 2, 3))[:] = 2.0
    assert (kept == 1.0).all()


@pytest.mark.parametrize("limit", [None, 5])
def test_a_target_may_keep_every_batch(limit: int | None) -> None:
    head = unsoftmax.random_single_head(12, 3, seed=0)
    kept: list[Array] = []
    copies: list[Array] = []

    def target(X: Array) -> Array:
        kept.append(X)
        copies.append(X.copy())
        return head(X)

    oracle = FunctionOracle(target, OracleSpec(width=12, max_batch=limit))
    assert unsoftmax.recover(oracle).status is unsoftmax.Status.EXACT
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))


def test_batches_grow_with_the_width_up_to_a_limit() -> None:
    sizes = {
        d: Ledger(FunctionOracle(lambda X: X[:, -1, 0], OracleSpec(width=d))).batch_size(2)
        for d in (64, 4096, 8192, 65536)
    }
    assert sizes == {64: 6144, 4096: 128, 8192: 128, 65536: 32}


def test_a_debugger_that_looks_at_everything_changes_nothing() -> None:
    """A reference from elsewhere, such as a profiler's, costs a new block and no more."""
    memory = BatchMemory()
    seen = []
    for value in (1.0, 2.0):
        batch = memory.blank((2, 3))
        batch[:] = value
        seen.append((batch.base, batch.copy()))
        del batch
        assert memory.left((2, 3)) is None
    assert [kept.max() for _, kept in seen] == [1.0, 2.0]
