"""Does a learner keep what `Learner` promises: determinism, its claim, replay, statuses instead of errors?"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.learners import Claim, Known, Learned, Learner, Size
from unsoftmax.ledger import Asker
from unsoftmax.models import Model
from unsoftmax.oracles import FunctionOracle, OracleSpec
from unsoftmax.outcomes import Status
from unsoftmax.recovery.recover import recover
from unsoftmax.recovery.result import Result
from unsoftmax.testing.violations import raise_if_any

__all__ = ["check_learner"]

_CONFIRMATION = 64  # queries that may be asked again when a ledger is replayed: is it still the same target?
_EXACT = 1e-12  # relative rounding of a distance, beside an error bound


def check_learner(make: Callable[[], Learner], truth: Model, *, seed: int = 0) -> None:
    """Runs the promises of a learner on a model that it should recover, and on functions that are none of its
    family; raises `NonConformance` with all that are broken.

    make: the learner, fresh at every call. truth: what is hidden behind the oracle.

    >>> import unsoftmax
    >>> check_learner(unsoftmax.theorem_4_1, unsoftmax.random_single_head(3, seed=0))
    """
    suite = _Suite(make, truth, seed)
    broken = suite.description()
    raise_if_any("the learner", broken)
    first = suite.recovered()
    if first is None:
        raise_if_any("the learner", suite.broken)
        return
    suite.deterministic(first)
    suite.keeps_its_claim(first)
    suite.replays(first)
    suite.ends_in_statuses()
    suite.cannot_grade_itself()
    raise_if_any("the learner", suite.broken)


class _Asked:
    """An oracle around a function, which remembers how many queries it answered and what they were."""

    def __init__(self, function: Callable[[Array], Array], spec: OracleSpec) -> None:
        self._inner = FunctionOracle(function, spec)
        self._digest = hashlib.sha256()
        self.count = 0

    @property
    def spec(self) -> OracleSpec:
        return self._inner.spec

    @property
    def digest(self) -> str:
        """Of all batches, in order."""
        return self._digest.hexdigest()

    def __call__(self, batch: Array, /) -> Array:
        self.count += len(batch)
        self._digest.update(np.ascontiguousarray(batch).tobytes())
        return self._inner(batch)


@dataclass(frozen=True)
class _Lying:
    """Learns as `inner` does, and returns a model that is a tenth off, known to `bound` as it says."""

    inner: Learner
    bound: float | None

    @property
    def family(self) -> Family:
        return self.inner.family

    @property
    def claim(self) -> Claim:
        return self.inner.claim

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        learned = self.inner.learn(asker, known, rng)
        moved = {
            name: tensor * (1.0 + 0.1 * rng.standard_normal(tensor.shape))
            if tensor.dtype.kind == "f"
            else tensor
            for name, tensor in learned.model.tensors().items()
        }
        return replace(learned, model=type(learned.model).from_tensors(moved), error_bound=self.bound)


class _Suite:
    """One learner, one model, and everything that is found broken."""

    def __init__(self, make: Callable[[], Learner], truth: Model, seed: int) -> None:
        self._make, self._truth, self._seed = make, truth, seed
        self._spec = OracleSpec(width=truth.width, outputs=truth.outputs)
        self.broken: list[str] = []

    def description(self) -> list[str]:
        """Family and claim, and a learner that is its options and nothing else."""
        learner, broken = self._make(), []
        if not isinstance(learner.family, str):
            broken.append("family is not a string")
        if not isinstance(learner.claim, Claim):
            return [*broken, "claim is not a Claim"]
        claim = learner.claim
        if not (claim.title and claim.source and claim.recovers and claim.queries.formula):
            broken.append("the claim has no title, source, formula or word on what is recovered")
        if any(not (each.text and each.check) for each in claim.assumptions):
            broken.append("an assumption of the claim has no check")
        count = claim.queries(Size.of(self._truth))
        if not isinstance(count, int) or count < 0:
            broken.append(f"the claim counts {count!r} queries instead of a whole number >= 0")
        if repr(learner) != repr(self._make()):
            broken.append("two learners with the same options have different repr; a ledger tells them by it")
        return broken

    def recovered(self) -> tuple[Result, _Asked] | None:
        """The first recovery, which must succeed, within its bound."""
        oracle = _Asked(self._truth, self._spec)
        result = self._run(oracle, "the model that it should recover")
        if result is None:
            return None
        if result.model is None:
            self.broken.append(f"the model is not recovered: {result.status}, {result.reason}")
            return None
        if type(result.model) is type(self._truth) and result.error_bound is not None:
            distance = self._truth.distance(result.model)
            if distance > result.error_bound + _EXACT:
                self.broken.append(
                    f"the parameters are {distance:.2g} off, and the bound is {result.error_bound:.2g}"
                )
        return result, oracle

    def deterministic(self, first: tuple[Result, _Asked]) -> None:
        """The same seed and answers: the same queries, the same model."""
        oracle = _Asked(self._truth, self._spec)
        again = self._run(oracle, "the model, for the second time")
        if again is None:
            return
        if oracle.digest != first[1].digest:
            self.broken.append("the same seed and answers lead to other queries")
        elif not _same_model(first[0].model, again.model):
            self.broken.append("the same seed and answers lead to another model")

    def keeps_its_claim(self, first: tuple[Result, _Asked]) -> None:
        """The bill, without verification and the look at the answers."""
        result = first[0]
        assert result.model is not None
        queries = self._make().claim.queries
        paid = result.queries.learning - result.queries.by_phase.get("identify", 0)
        size = Size.of(result.model)
        if not queries.holds(paid, size):
            self.broken.append(
                f"{paid} queries are billed, and the claim says {queries.kind} {queries(size)} for {size}"
            )

    def replays(self, first: tuple[Result, _Asked]) -> None:
        """From a ledger: the same model, and next to nothing asked again; with half of it, the rest."""
        with tempfile.TemporaryDirectory() as folder:
            for stopped_at in (None, max(1, first[0].queries.total // 2)):
                path = Path(folder) / f"{stopped_at}.ledger"
                begun = _Asked(self._truth, self._spec)
                self._run(begun, "the model, into a ledger", ledger=path, budget=stopped_at)
                rest = _Asked(self._truth, self._spec)
                replayed = self._run(rest, "the model, from its ledger", ledger=path)
                if replayed is None:
                    continue
                if not _same_model(first[0].model, replayed.model):
                    self.broken.append("a run that goes on from a ledger ends with another model")
                if begun.count + rest.count > first[1].count + _CONFIRMATION:
                    asked = begun.count + rest.count
                    self.broken.append(
                        f"a run that goes on from a ledger asks {asked} queries in all instead of "
                        f"{first[1].count}"
                    )

    def ends_in_statuses(self) -> None:
        """Functions that are none of the family, and budgets that are too small."""
        for name, function in _strangers(self._truth).items():
            result = self._run(_Asked(function, self._spec), name)
            if result is not None and result.model is not None:
                self.broken.append(f"{name} passes for the family: {result.status}")
        for budget in (0, 1, 7):
            result = self._run(_Asked(self._truth, self._spec), f"a budget of {budget}", budget=budget)
            if result is not None and result.status is not Status.BUDGET_SPENT:
                self.broken.append(f"with a budget of {budget} the status is {result.status}")
            if result is not None and result.queries.total > budget:
                self.broken.append(f"with a budget of {budget}, {result.queries.total} queries are billed")

    def cannot_grade_itself(self) -> None:
        """The same learner, if it returned another model with a bound that it likes."""
        for bound in (1e-15, 0.05, None):
            oracle = _Asked(self._truth, self._spec)
            what = f"another model, said to be known to {bound}"
            result = self._run(oracle, what, learner=_Lying(self._make(), bound))
            if result is not None and result.model is not None:
                off = self._truth.distance(result.model)
                if result.error_bound is None or off > result.error_bound + _EXACT:
                    self.broken.append(f"{what}, passes: {result.status}, {off:.2g} off")

    def _run(
        self,
        oracle: _Asked,
        what: str,
        *,
        budget: int | None = None,
        ledger: Path | None = None,
        learner: Learner | None = None,
    ) -> Result | None:
        """A recovery; an exception is a broken promise."""
        try:
            used = self._make() if learner is None else learner
            return recover(oracle, learner=used, seed=self._seed, budget=budget, ledger=ledger)
        except Exception as raised:  # whatever it is, it is reported
            self.broken.append(f"{what}: raised {type(raised).__name__} ({raised}) instead of a status")
            return None


def _strangers(truth: Model) -> dict[str, Callable[[Array], Array]]:
    """Functions that no learner of attention or of networks may take for its own."""
    shape = () if truth.outputs is None else (truth.outputs,)

    def spread(values: Array) -> Array:
        return np.asarray(values.reshape(len(values), *(1,) * len(shape)) * np.ones(shape))

    noise = np.random.default_rng(0)
    return {
        "the sine of the last row's sum": lambda X: spread(np.sin(3.0 * X[:, -1].sum(axis=1))),
        "the largest entry squared": lambda X: spread(np.square(X).max(axis=(1, 2))),
        "answers that are noise": lambda X: spread(noise.standard_normal(len(X))),
    }


def _same_model(one: Model | None, two: Model | None) -> bool:
    if one is None or two is None or type(one) is not type(two):
        return one is two
    before, after = one.tensors(), two.tensors()
    return set(before) == set(after) and all(np.array_equal(before[name], after[name]) for name in before)
