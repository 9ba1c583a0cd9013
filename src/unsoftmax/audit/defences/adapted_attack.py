"""The attack adapted to detectors: rows no longer than honest ones, and honest-looking queries between its
own, as few as keep the alarm quiet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, longest_rows
from unsoftmax.audit.defences.detectors import Watched
from unsoftmax.audit.defences.wrappers import Defence
from unsoftmax.errors import OracleFault
from unsoftmax.oracles import Oracle, OracleSpec
from unsoftmax.recovery.recover import recover
from unsoftmax.recovery.result import Result

__all__ = ["Attacked", "attack_adapted"]

_LADDER = (0, 1, 3, 7, 15, 19, 31)  # honest-looking queries beside each of ours


@dataclass(frozen=True)
class Attacked:
    """How it ended. result: None where every adaptation was stopped. sent: queries of the last attempt,
    dummies included; attempts that were stopped are not counted, since each begins with a new account. how:
    the adaptation in words; empty where none was needed. why: what stopped the last attempt."""

    result: Result | None
    sent: int
    how: str = ""
    why: str = ""


class _Camouflaged:
    """Asks with `dummies` honest-looking sequences before each of its own."""

    def __init__(self, inner: Oracle, honest: Array, dummies: int, rng: np.random.Generator) -> None:
        self.inner, self.honest, self.dummies, self.rng = inner, honest, dummies, rng

    @property
    def spec(self) -> OracleSpec:
        return self.inner.spec

    def __call__(self, batch: Array, /) -> Array:
        answers = []
        for sequence in batch:
            if self.dummies:
                self.inner(self._dummies())
            answers.append(self.inner(sequence[None]))
        return np.concatenate(answers)

    def _dummies(self) -> Array:
        """Rows of the honest distribution, each used once: known rows, turned a little so that none occurs
        twice, at their own norm."""
        shape = (self.dummies, self.honest.shape[1])
        rows = self.honest.reshape(-1, self.honest.shape[2])
        drawn = rows[self.rng.integers(len(rows), size=shape)]
        spread = float(np.sqrt(np.mean(rows**2)))
        turned = drawn + 0.5 * spread * self.rng.standard_normal(drawn.shape)
        norms = np.linalg.norm(turned, axis=2, keepdims=True)
        return np.asarray(turned * np.linalg.norm(drawn, axis=2, keepdims=True) / np.maximum(norms, 1e-300))


def attack_adapted(oracle: Oracle, defence: Defence, honest: Array, seed: int, budget: int) -> Attacked:
    """The first attempt that no detector stops. Without detectors there is one attempt, as it is."""
    bound = float(longest_rows(honest).max()) if defence.detects else np.inf
    why, sent = "", 0
    for dummies in _LADDER if defence.detects else (0,):
        target = defence.around(oracle, seed)
        rng = np.random.default_rng([0xD077, seed, dummies])
        limit = bound if defence.detects and dummies else None
        if defence.budget is not None:
            budget = min(budget, defence.budget // (1 + dummies))
        try:
            attacker = _Camouflaged(target, honest, dummies, rng) if dummies else target
            result = recover(attacker, seed=seed, budget=budget, input_bound=limit)
        except OracleFault as fault:
            why, sent = str(fault), _sent(target)
            if not defence.detects:
                return Attacked(None, 0, "", why)
            continue
        paid = _sent(target) if defence.detects else result.queries.total
        return Attacked(result, paid, _words(dummies), "")
    return Attacked(None, sent, f"up to {_LADDER[-1]} honest-looking queries beside each of its own", why)


def _sent(target: Oracle) -> int:
    """What the innermost detector has seen."""
    while not isinstance(target, Watched):
        inner = getattr(target, "inner", None)
        if inner is None:
            return 0
        target = inner
    return target.sent


def _words(dummies: int) -> str:
    if not dummies:
        return ""
    many = "1 honest-looking query" if dummies == 1 else f"{dummies} honest-looking queries"
    return f"{many} beside each of its own, rows no longer than honest ones"
