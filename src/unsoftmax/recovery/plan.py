"""`plan`: what a recovery will cost, before the first query."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from unsoftmax.answers import Computed
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat, short_format
from unsoftmax.learners import Claim, Known, Learner, Size
from unsoftmax.oracles import TokenIds, check_width
from unsoftmax.recovery.choose import AUTO, choose, family_named
from unsoftmax.recovery.inputs.targets import as_oracle

__all__ = ["Cost", "Plan", "plan", "plan_for", "usual_size"]

_RANKS = (1, 2, 4, 8, 16, 32, 64, 128)  # rows of the table where no rank is told
_HEADS = (2, 4, 8, 16)  # the same, of usual layers
_EXACT = "float64"  # arithmetic as exact as the answers can be
_REPEATED_CHECKS = 2  # checks and certificate, where answers make them begin again


@dataclass(frozen=True)
class Cost:
    """What a target of one size costs.

    identification: what it takes to see what kind of answers these are. queries: what learning usually takes.
    verification: what checks and certificate usually take, and `checks` what they take with the biases that
    nobody has ruled out. one_attempt and limit: what learning takes at most, in one attempt and in all that
    the learner may begin.
    """

    size: Size
    parameters: int
    identification: int
    queries: int
    verification: int
    checks: int
    one_attempt: int
    limit: int

    @property
    def total(self) -> int:
        """The usual bill."""
        return self.identification + self.queries + self.verification

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "heads": self.size.heads,
            "ranks": list(self.size.ranks),
            "neurons": self.size.neurons,
            "biased": self.size.biased,
            "parameters": self.parameters,
            "identification": self.identification,
            "queries": self.queries,
            "verification": self.verification,
            "total": self.total,
            "one_attempt": self.one_attempt,
            "at_most": self.limit,
        }


@dataclass(frozen=True)
class Plan:
    """Costs by size, because rank, heads and neurons show only on the way; one cost where they are told.

    otherwise: family -> formula, should the box turn out to be of that one.
    """

    width: int
    family: str
    claim: Claim
    costs: tuple[Cost, ...]
    paper: int
    otherwise: dict[str, str] = field(default_factory=dict)

    @property
    def by_rank(self) -> dict[int, int]:
        """Usual queries by the largest rank, without verification."""
        return {cost.size.rank: cost.queries for cost in self.costs}

    @property
    def parameters(self) -> dict[int, int]:
        """Degrees of freedom by the largest rank."""
        return {cost.size.rank: cost.parameters for cost in self.costs}

    @property
    def verification(self) -> int:
        """What checks and certificate usually take, biases included."""
        return max(cost.checks for cost in self.costs)

    @property
    def identification(self) -> int:
        """What it takes to see what kind of answers these are."""
        return max(cost.identification for cost in self.costs)

    @property
    def at_least(self) -> int:
        """The usual bill of the smallest target in the plan."""
        return min(cost.total for cost in self.costs)

    @property
    def usual(self) -> int:
        """The usual bill of the largest target in the plan."""
        return max(cost.total for cost in self.costs)

    @property
    def at_most_in_one_attempt(self) -> int:
        """The whole bill where the first attempt succeeds."""
        return max(cost.one_attempt for cost in self.costs) + self.identification + self.verification

    @property
    def at_most(self) -> int:
        """The whole bill in the worst case, for the family and the sizes that the plan is made for."""
        checks = max(_REPEATED_CHECKS, self.claim.queries.attempts) * self.verification
        return max(cost.limit for cost in self.costs) + self.identification + checks

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "width": self.width,
            "family": self.family,
            "claim": {
                "title": self.claim.title,
                "source": self.claim.source,
                "queries": self.claim.queries.formula,
                "kind": self.claim.queries.kind,
                "assumptions": [{"text": each.text, "check": each.check} for each in self.claim.assumptions],
            },
            "by_rank": [
                {"rank": r, "parameters": self.parameters[r], "queries": n} for r, n in self.by_rank.items()
            ],
            "by_size": [cost.as_json() for cost in self.costs],
            "verification": self.verification,
            "usual": self.usual,
            "at_most": self.at_most,
            "paper": self.paper,
            "otherwise": dict(self.otherwise),
        }


def plan(  # noqa: PLR0913 - an entry point
    target: object,
    *,
    width: int | None = None,
    family: str = "auto",
    outputs: int | None = None,
    learner: Learner | None = None,
    size: Size | None = None,
    vocabulary: int | None = None,
    arithmetic: str | None = None,
) -> Plan:
    """What `recover` with the same arguments would cost. Asks nothing.

    size: ranks, heads, neurons and biases, where they are known; left out, the plan is a table by size.
    vocabulary: number of token ids, for a target that takes ids.
    arithmetic: the format in which the target computes: float64, float32, bfloat16 or float16. Left out, it
    is what a torch module, an .onnx file or a server tells of itself; a bare callable tells nothing.

    >>> plan("demo:single-head?d=64").by_rank[8] < 1.2 * (64 + 8 * (2 * 64 - 8))
    True
    >>> plan("demo:multi-head?d=64", family="multi-head", size=Size(64, (8,) * 8)).usual
    9693
    >>> layer = Size(16, (8, 8))
    >>> [plan("demo:multi-head?d=16", size=layer, arithmetic=each).usual for each in ("float32", "bfloat16")]
    [2392, 4825]
    """
    oracle = as_oracle(target, outputs=outputs, vocabulary=vocabulary)
    if isinstance(oracle.spec.domain, TokenIds):
        return _token_plan(oracle.spec.domain.vocabulary, oracle.spec.outputs, size)
    d = check_width(width if width is not None else oracle.spec.width)
    auto = learner is None and family == AUTO and oracle.spec.outputs is None
    short = oracle.spec.arithmetic if arithmetic is None else _format_named(arithmetic)
    wanted = family_named(family)
    if learner is None:
        learner = _learner_for(wanted, short, oracle.spec.outputs, oracle.spec.max_length)
    if size is not None and size.width != d:
        raise UsageError(f"width {d} but the size says {size.width}; leave one of them out")
    sizes = None if size is None else (replace(size, outputs=oracle.spec.outputs),)
    planned = plan_for(learner, d, oracle.spec.outputs, sizes)
    if not auto:
        return planned
    others = [each for each in (Family.MULTI_HEAD, Family.TRANSFORMER) if each is not learner.family]
    formulas = {str(each): _learner_for(each, short).claim.queries.formula for each in others}
    return replace(planned, family=AUTO, otherwise=formulas)


def _format_named(arithmetic: str) -> FloatFormat | None:
    """The short format of a name; None for float64."""
    if arithmetic != _EXACT and arithmetic not in list(FloatFormat):
        raise UsageError(
            f"there is no arithmetic {arithmetic!r}; choose one of {', '.join((_EXACT, *FloatFormat))}"
        )
    return short_format(arithmetic)


def _learner_for(
    wanted: Family | None, short: FloatFormat | None, outputs: int | None = None, longest: int | None = None
) -> Learner:
    """The learner that a recovery of such a target begins with."""
    if short is None:
        return next(choose(Known(outputs=outputs, max_length=longest), wanted)).learner
    bends = longest == 1 or wanted not in (None, Family.SINGLE_HEAD, Family.MULTI_HEAD)
    computed = Computed(short, short.unit)
    known = Known(outputs=outputs, max_length=longest, answers=computed, bends=bends)
    return next(choose(known, wanted)).learner


def _token_plan(vocabulary: int, outputs: int | None, size: Size | None) -> Plan:
    """The plan for heads over token ids, by the rank of their scores; for one head where no size is given."""
    from unsoftmax.learners.tokens import TokenLearner
    from unsoftmax.learners.tokens.claims import POSITIONS_CLAIM, TOKEN_HEADS_CLAIM

    learner = TokenLearner()
    claim = TOKEN_HEADS_CLAIM if size is not None and size.heads > 1 else learner.claim
    ranks = [r for r in _RANKS if r < vocabulary] or [0]
    sizes = [Size(vocabulary, (r,), outputs=outputs) for r in ranks] if size is None else [size]
    costs = []
    for each in sizes:
        heads = max(each.heads, 1)
        freedom = (heads * (vocabulary - 1) + 1) * (outputs or 1)
        freedom += sum(r * (2 * vocabulary - 1 - r) for r in each.ranks)
        costs.append(replace(_cost(claim, each, each), parameters=freedom))
    everything = vocabulary + vocabulary**2  # every token and every pair
    planned = Plan(vocabulary, str(learner.family), claim, tuple(costs), everything)
    others = {"several heads": TOKEN_HEADS_CLAIM, "learned positions": POSITIONS_CLAIM}
    return (
        planned
        if size is not None
        else replace(planned, otherwise={name: each.queries.formula for name, each in others.items()})
    )


def plan_for(
    learner: Learner,
    width: int,
    outputs: int | None = None,
    sizes: tuple[Size, ...] | None = None,
    biased: bool | None = None,
) -> Plan:
    """The plan for one learner: for the sizes that are known, or by size. biased: None where nobody knows."""
    claim, family = learner.claim, learner.family
    costs = (
        [_cost(claim, size, size) for size in sizes]
        if sizes is not None
        else [
            _cost(claim, replace(size, biased=bool(biased)), replace(size, biased=biased is not False))
            for size in _table(family, width, outputs, claim.one_head)
        ]
    )
    return Plan(width=width, family=str(family), claim=claim, costs=tuple(costs), paper=width + width**2)


def usual_size(family: Family, width: int, outputs: int | None) -> Size:
    """The size of a usual layer of a family, to estimate from before its heads and neurons are known: in
    `progress`. Parameters of all heads together hardly depend on how many they are."""
    heads = 1 if family is Family.SINGLE_HEAD and outputs is None else min(2, width)
    ranks = (max(1, width // heads),) * heads
    if family in (Family.TRANSFORMER, Family.RELU_NETWORK, Family.NETWORK, Family.ENCODER_BLOCK):
        alone = family in (Family.RELU_NETWORK, Family.NETWORK)
        return Size(width, () if alone else ranks, neurons=2 * width, outputs=outputs)
    return Size(width, ranks, outputs=outputs)


def _cost(claim: Claim, size: Size, worst: Size) -> Cost:
    """The cost of a size; its limits are those of `worst`, which has the biases that nobody has ruled out."""
    queries = claim.queries
    return Cost(
        size=size,
        parameters=_parameters(size),
        identification=claim.identification(size),
        queries=queries.expected(size),
        verification=claim.verification(size),
        checks=claim.verification(worst),
        one_attempt=queries.count(worst),
        limit=queries(worst),
    )


def _table(family: Family, width: int, outputs: int | None, one_head: bool) -> list[Size]:
    """Sizes to plan for where nothing is known: by rank, by heads of a usual layer, by neurons. one_head: a
    learner of several heads is for one as well."""
    if family in (Family.TRANSFORMER, Family.RELU_NETWORK):
        ranks = () if family is Family.RELU_NETWORK else (width,)
        return [Size(width, ranks, neurons=max(1, m)) for m in (width // 2, width, 2 * width, 4 * width)]
    if family is Family.MULTI_HEAD or outputs is not None:
        heads = [h for h in _HEADS if h <= width] or [2]
        several = [Size(width, (max(1, width // h),) * h, outputs=outputs) for h in heads]
        one = [Size(width, (width,), outputs=outputs)] if one_head or outputs is not None else []
        return [*one, *several]
    ranks_tried = sorted({r for r in (*_RANKS, width // 2, width) if 1 <= r <= width})
    return [Size(width, (r,)) for r in ranks_tried]


def _parameters(size: Size) -> int:
    """Degrees of freedom of a model of this size."""
    d, m = size.width, size.outputs or 1
    network = (size.neurons + 1) * (d + int(size.biased)) if size.neurons else 0
    if not size.ranks:
        return network
    values = size.value_ranks or (min(d, m),) * size.heads
    readouts = 0 if size.neurons else sum(s * (d + m - s) for s in values)
    biases = d * size.heads if size.biased and not size.neurons else 0
    return size.matrix_parameters + readouts + biases + network
