"""Is a result of the honesty fuzzer what it states? Counted exactly as the certificate says it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
from tests.cases.honesty_case import Case

import unsoftmax
from unsoftmax import Certificate, GatedNetwork, Network, ReluNetwork, Status
from unsoftmax.answers import Clipped
from unsoftmax.arrays import Array
from unsoftmax.certify.sample import draw_sample
from unsoftmax.certify.token_certificate import token_sequences
from unsoftmax.models import Model
from unsoftmax.oracles.domain import Ball, Space

__all__ = ["deviations", "share_beyond", "what_is_wrong"]

_FIRST = 4  # draws of the stated distribution, about 177 sequences each
_MOST = 64  # draws where the share is near the certificate's fraction: its standard error is then 0.2 %
_NEAR_BEHIND_LABELS = 1e-4  # distance of heads, relative to W, up to which they are said to look like one
_NEAR = 4.0  # standard errors of the share that count as near


def what_is_wrong(case: Case, result: unsoftmax.Result, share: float) -> str:
    """A sentence when this result must not happen; empty when nothing is wrong.

    share: that of the stated distribution on which the box deviates by more than is stated.
    """
    truth, model = case.truth, result.model
    if ((truth is not None and case.exact) or case.member) and result.status is Status.OUTSIDE_CLASS:
        return f"a member is OUTSIDE_CLASS: {result.reason[:160]}"
    if model is None:
        return ""
    bound = result.error_bound
    for each in (truth, case.also):
        if each is None or type(each) is not type(model) or bound is None:
            continue
        distance = each.distance(model)
        allowance = 0.0 if result.constant_bound is None else result.constant_bound
        if distance > bound and not _constant_only(each, model, bound, allowance):
            return f"distance {distance:.2g} above the bound {bound:.2g}"
    missing = _missing_heads(case, model, result)
    if missing:
        return missing
    if not case.steady:
        nothing = truth is None and result.status is Status.EXACT
        return f"{result.status} for a box that is not a function" if nothing else ""
    assert result.certificate is not None
    if share > result.certificate.fraction:
        return (
            f"{result.status}: {share:.1%} of sequences deviate by more than is stated, where fewer than "
            f"{result.certificate.fraction:.1%} are stated"
        )
    return ""


def _missing_heads(case: Case, model: Model, result: unsoftmax.Result) -> str:
    """A sentence when several heads are given as one that the certificate, or the bound, would tell apart."""
    truth = case.truth
    if not isinstance(truth, unsoftmax.MultiHead) or not isinstance(model, unsoftmax.SingleHead):
        return ""
    certificate, bound = result.certificate, result.error_bound or 0.0
    assert certificate is not None
    sizes = [float(np.linalg.norm(head.v)) for head in truth.heads]
    largest = truth.heads[int(np.argmax(sizes))]
    faint = max(bound, certificate.resolution, certificate.faintest_head or 0.0) * sum(sizes)
    # two heads given as one differ from it by an eighth of their distance squared; for labels it is stated
    unseen = _NEAR_BEHIND_LABELS if case.labels else float(np.sqrt(32.0 * certificate.resolution))
    near = max(bound, unseen, certificate.closest_heads or 0.0)
    apart = max(
        float(np.linalg.norm(head.W - largest.W)) / max(float(np.linalg.norm(largest.W)), 1e-300)
        for head, size in zip(truth.heads, sizes, strict=True)
        if size >= faint
    )
    return f"{len(sizes)} heads that are {apart:.2g} apart are given as one" if apart > near else ""


def _constant_only(truth: Model, model: Model, bound: float, constant_bound: float) -> bool:
    """Whether the distance is one of constants, within their own bound."""
    own, found = getattr(truth, "c", None), getattr(model, "c", None)
    if own is None or found is None or not isinstance(truth, unsoftmax.SingleHead):
        return False
    if float(np.max(np.abs(np.asarray(own) - np.asarray(found)))) > constant_bound:
        return False
    assert isinstance(model, unsoftmax.SingleHead)
    return truth.distance(unsoftmax.SingleHead(model.matrix, model.v, model.w0, own)) <= bound


def share_beyond(case: Case, result: unsoftmax.Result, seed: int) -> float:
    """The share of fresh sequences, drawn as the certificate says, whose deviation exceeds what is stated.
    More are drawn where it is near the certificate's fraction."""
    model, certificate = result.model, result.certificate
    if model is None or certificate is None or not case.steady:
        return 0.0
    stated = max(certificate.allowed, certificate.resolution)
    clipped = isinstance(result.answers, Clipped)
    beyond = total = 0
    for draw in range(_MOST):
        rng = np.random.default_rng([seed, draw, 4711])
        for batch in _drawn(case, model, certificate, rng, clipped=clipped):
            beyond += int((deviations(case, model, batch, certificate.tolerance) > stated).sum())
            total += len(batch)
        share = beyond / total
        spread = np.sqrt(max(share, 1.0 / total) / total)
        if draw + 1 >= _FIRST and abs(share - certificate.fraction) > _NEAR * spread:
            break
    return share


def _drawn(
    case: Case, model: Model, certificate: Certificate, rng: np.random.Generator, *, clipped: bool
) -> Iterable[Array]:
    """Sequences as the certificate states them."""
    if isinstance(model, unsoftmax.TokenHeads):
        sequences = token_sequences(model.vocabulary, max(certificate.lengths), rng)
        return [cast(Array, ids) for _, ids in sequences]
    bound = case.options.get("input_bound")
    # rows whose logits are moderate, or whose answers reach no limit, were found out, and sizes say so
    if case.options.get("probabilities") is True or clipped:
        bound = max(certificate.sizes)
    domain = Ball(model.width, float(bound)) if isinstance(bound, float) else Space(model.width)
    longest = 1 if certificate.lengths == (1,) else None
    return draw_sample(model, domain, rng, max_length=longest).batches


def deviations(case: Case, model: Model, batch: Array, tolerance: float = 0.0) -> Array:
    """How far the function behind the answers is from the model, beyond the stated tolerance and what
    rounding explains, against what a sequence could show."""
    predictions = model(batch)
    values = case.function(batch[:, 0] if isinstance(model, ReluNetwork | Network | GatedNetwork) else batch)
    off = np.abs(values - predictions)
    if case.labels:  # they show on which side of zero a value lies, and nothing else
        off = np.where((values > 0.0) == (predictions > 0.0), 0.0, np.abs(predictions))
    scale = model.sensitivity(batch)
    explained = tolerance + model.rounding(batch, predictions, scale)
    unexplained = off.reshape(len(batch), -1).max(axis=1) - explained
    return np.where(unexplained <= 0.0, 0.0, unexplained / np.maximum(scale, 1e-300))
