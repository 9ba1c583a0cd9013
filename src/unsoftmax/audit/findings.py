"""What was found while learning, added to what the first look found."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unsoftmax.answers import Finding, Seen, Subject
from unsoftmax.families import Family
from unsoftmax.models import (
    EncoderBlock,
    LanguageModel,
    Model,
    MultiHead,
    SingleHead,
    TokenHeads,
    Transformer,
)
from unsoftmax.models.language_model import GatedNetwork, LearnedPositions, Positions, Rotary
from unsoftmax.outcomes import Status
from unsoftmax.recovery.result import Result

__all__ = ["merge_findings"]


def merge_findings(first: tuple[Finding, ...], result: Result) -> tuple[Finding, ...]:
    """The first look's findings, with those that the recovered model corrects or adds: family, heads, ranks,
    query bias.

    A finding that learning overturned is replaced by what was learnt; its evidence says so. Prices add up to
    the bill: verification is the price of the family, what is left that of the parameters.
    """
    earlier = {finding.subject: finding for finding in first}
    learnt = _of_model(result, earlier) if result.model is not None else []
    guess = earlier.get("family")
    if result.status is Status.OUTSIDE_CLASS and guess is not None and guess.value != Seen.UNKNOWN:
        learnt = [Finding("family", "none", result.reason, 0)]
    subjects = {finding.subject for finding in learnt}
    merged = [finding for finding in first if finding.subject not in subjects]
    for finding in learnt:
        before = earlier.get(finding.subject)
        if before is None:
            merged.append(finding)
        elif before.value in (finding.value, Seen.UNKNOWN):
            told = before.evidence in finding.evidence  # a failure repeats what the first look has seen
            text = finding.evidence if told else f"{before.evidence}; {finding.evidence}"
            merged.append(Finding(finding.subject, finding.value, text, before.queries + finding.queries))
        else:
            text = f"{finding.evidence} (the first look had said: {before.value})"
            merged.append(Finding(finding.subject, finding.value, text, before.queries + finding.queries))
    left = result.queries.total - sum(finding.queries for finding in merged)
    if result.model is not None:
        text = "all of them, from the queries of learning"
        merged.append(Finding("parameters", f"{result.model.parameters:,}", text, max(left, 0)))
    elif left > 0:
        text = "asked beyond these tests" if merged else "asked until a test failed; the reason names it"
        merged.append(Finding("learning", "no model", text, left))
    return tuple(merged)


def _of_model(result: Result, earlier: Mapping[str, Finding]) -> list[Finding]:
    model = result.model
    assert model is not None
    verified = result.queries.total - result.queries.learning
    checked = 0 if result.certificate is None else result.certificate.n_queries
    single = isinstance(model, MultiHead) and len(model.heads) == 1
    found = [
        Finding(
            "family",
            Family.SINGLE_HEAD if single else model.family,
            f"the recovered model agrees with {checked} fresh answers",
            verified,
        )
    ]
    if isinstance(model, MultiHead) and not single:
        found.append(
            Finding(
                "heads",
                str(len(model.heads)),
                "each differs from the others; heads with equal scores count as one",
                0,
            )
        )
    if isinstance(model, TokenHeads):
        return found + _of_tokens(model)
    if isinstance(model, LanguageModel):
        return found + _of_decoder(model)
    if not model.ranks:  # a network without attention
        return found
    ranks = ", ".join(map(str, model.ranks))
    found.append(
        Finding("rank", ranks, "no direction beyond these moved a score, to the precision of the answers", 0)
    )
    if isinstance(model, Transformer):
        neurons = model.network.folds.count
        found.append(
            Finding("neurons", str(neurons), "the number of hyperplanes at which the gradient jumps", 0)
        )
    seen = earlier.get(Subject.QUERY_BIAS)
    shown = seen is not None and seen.value == Seen.PRESENT
    found.append(_query_bias(model, result.error_bound or 0.0, shown=shown))
    return found


def _of_tokens(model: TokenHeads) -> list[Finding]:
    places = "none" if model.longest is None else f"{model.longest} learned ones"
    order = f"the order of tokens before the last {'does not matter' if model.longest is None else 'matters'}"
    ranks = ", ".join(map(str, model.ranks))
    return [
        Finding("input", f"ids of {model.vocabulary:,} tokens", "embeddings stay unknown", 0),
        Finding("heads", str(len(model.heads)), "the fewest that explain copies of pairs of tokens", 0),
        Finding("rank", ranks, "no direction beyond these moved a score, to the precision of the answers", 0),
        Finding("positions", places, order, 0),
    ]


def _of_decoder(model: LanguageModel) -> list[Finding]:
    """Sizes and settings of a decoder that no answer states by itself."""
    each = [layer.attention for layer in model.layers]
    heads = "; ".join(
        f"{part.heads} of width {part.head_width}"
        + (f", {part.shared_by} to a key and a value" if part.shared_by > 1 else "")
        for part in each
    )
    networks = "; ".join(
        f"{layer.network.neurons} {layer.network.activation.name} neurons"
        + (", gated" if isinstance(layer.network, GatedNetwork) else "")
        for layer in model.layers
    )
    eps = sorted({f"{norm.eps:.3g}" for norm in model.norms}, key=float)
    return [
        Finding("layers", str(len(model.layers)), "with as many, all fresh prompts are predicted", 0),
        Finding(
            "heads",
            heads,
            "the answer to a row behind k rows of zeros has, as a function of k, one pole for each head",
            0,
        ),
        Finding(
            "network",
            networks,
            "the rank of second derivatives is the number of neurons; their profiles show the activation",
            0,
        ),
        Finding("positions", _positions(model.positions), "as fitted to prompts of several rows", 0),
        Finding("eps of norms", ", ".join(eps), "seen with rows so short that eps counts", 0),
    ]


def _positions(positions: Positions | None) -> str:
    match positions:
        case Rotary(theta):
            return f"rotary, base {theta:.6g}"
        case LearnedPositions(table):
            return f"{len(table)} learned ones"
        case _:
            return "none"


def _query_bias(model: Model, bound: float, *, shown: bool) -> Finding:
    """Whether a query bias is larger than its own error, which is relative to W, or to it where it is larger.

    bound: on the relative error of the parameters. shown: whether the first look has seen one, which a model
    within its bound does not contradict.
    """
    size = 0.0
    for head in _heads(model):
        own = 0.0 if head.w0 is None else float(np.linalg.norm(head.w0))
        size = max(size, own / max(head.matrix.norm(), own) if own else 0.0)
    if size > bound or (shown and size > 0.0):
        return Finding(Subject.QUERY_BIAS, Seen.PRESENT, "the recovered model agrees", 0)
    agrees = (
        f"none beyond {bound:.1g} of the size of W, the error bound" if size else "the recovered model agrees"
    )
    return Finding(Subject.QUERY_BIAS, Seen.NONE, agrees, 0)


def _heads(model: Model) -> tuple[SingleHead | Transformer, ...]:
    """Parts of the model that may have a query bias."""
    match model:
        case SingleHead() | Transformer():
            return (model,)
        case MultiHead():
            return model.heads
        case EncoderBlock():
            return model.attention.heads
        case _:
            return ()
