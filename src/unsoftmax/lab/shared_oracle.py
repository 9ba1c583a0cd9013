"""One large target asked by many workers: each batch is cut into fixed shares, every worker reaches the
target itself, the ledger stays here."""

from __future__ import annotations

import functools
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.lab.workers import Crew, first_done
from unsoftmax.oracles import Oracle, OracleSpec, checked_answers, identity, retries_of
from unsoftmax.recovery.inputs.targets import as_oracle

__all__ = ["SharedOracle"]

_LOSSES = 3  # how many workers may die over one share before the target is blamed


class SharedOracle:
    """The target's answers, computed by a crew. A share has the same queries whoever answers it and however
    many workers there are, so the answers, and with them the recovered model, are the same to the last bit.
    The ledger in this process bills a query once; a share whose worker died is sent again and counted in
    `retries`.

    target: a name that every worker can resolve: 'demo:...', a file, 'package.module:callable', a web
    address. crew: None answers in this process.
    share: queries that one worker answers at a time; the bits of the answers may depend on it, so keep it
    when resuming. http: as in `as_oracle`.

    >>> import unsoftmax
    >>> result = unsoftmax.recover(SharedOracle("demo:single-head?d=6&seed=2", None, share=5))
    >>> str(result.status)
    'EXACT'
    """

    def __init__(
        self, target: str, crew: Crew | None, *, share: int = 64, http: dict[str, Any] | None = None
    ) -> None:
        if not isinstance(target, str):
            raise UsageError(
                "workers reach a target by its name ('demo:...', a file, 'package.module:callable', an "
                f"address), not {type(target).__name__}"
            )
        if isinstance(share, bool) or not isinstance(share, int) or share < 1:
            raise UsageError(f"share must be a whole number of queries >= 1, not {share!r}")
        here = as_oracle(target, http=http)
        self.target, self.share = target, share
        self.retries = 0
        self._crew = crew
        self._http = tuple(sorted((http or {}).items()))
        limit = here.spec.max_batch
        self._step = share if limit is None else min(share, limit)
        self._spec = replace(
            here.spec, max_batch=None, fingerprint=f"{identity(here)}|shares of {self._step}"
        )

    @property
    def spec(self) -> OracleSpec:
        return self._spec

    def __call__(self, batch: Array, /) -> Array:
        shares = [np.ascontiguousarray(batch[i : i + self._step]) for i in range(0, len(batch), self._step)]
        parts = (
            [_answer(self.target, self._http, share) for share in shares]
            if self._crew is None
            else self._ask(self._crew, shares)
        )
        self.retries += sum(retries for _, retries in parts)
        return np.concatenate(
            [
                checked_answers(answers, len(share), self._spec.outputs)
                for (answers, _), share in zip(parts, shares, strict=True)
            ]
        )

    def _ask(self, crew: Crew, shares: list[Array]) -> list[tuple[Array, int]]:
        """All shares at once; those whose worker died again, until everyone is answered."""
        answered: dict[int, tuple[Array, int]] = {}
        for _ in range(_LOSSES):
            tasks: dict[int, Future[Any]] = {
                i: crew.submit(_answer, self.target, self._http, share)
                for i, share in enumerate(shares)
                if i not in answered
            }
            lost = 0
            for i, task in tasks.items():
                first_done(crew, [task])
                try:
                    answered[i] = task.result()
                except crew.lost:
                    lost += 1
            if not lost:
                return [answered[i] for i in range(len(shares))]
            self.retries += lost
            crew.renew()
        raise OracleFault(
            f"the workers that asked {self.target!r} died {_LOSSES} times in a row; the target may need more "
            "memory than they have"
        )


@functools.lru_cache(maxsize=4)
def _reach(target: str, http: tuple[tuple[str, Any], ...]) -> Oracle:
    """The worker's own connection to the target, kept between shares."""
    return as_oracle(target, http=dict(http))


def _answer(target: str, http: tuple[tuple[str, Any], ...], share: Array) -> tuple[Array, int]:
    oracle = _reach(target, http)
    before = retries_of(oracle)
    return oracle(share), retries_of(oracle) - before
