"""The facts of an audit as plain data: what the page shows and what the JSON file holds are one thing."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from unsoftmax import __version__
from unsoftmax.answers import Computed, Labels, Subject
from unsoftmax.arrays import EPS, Array
from unsoftmax.audit.defences.endpoint_settings import settings_of
from unsoftmax.audit.pipeline import Audit
from unsoftmax.audit.planning import money
from unsoftmax.audit.standards.taxonomies import entries_for
from unsoftmax.families import Family
from unsoftmax.learners import Assumption, Claim
from unsoftmax.models import SingleHead
from unsoftmax.models.heads import heads_of
from unsoftmax.outcomes import Status
from unsoftmax.recovery.result import Result

__all__ = ["assumptions", "command", "facts_of", "verdict", "versions"]


_NOUNS: dict[str, str] = {
    Family.SINGLE_HEAD: "a single-head model",
    Family.MULTI_HEAD: "a multi-head model",
    Family.TRANSFORMER: "a one-layer Transformer",
    Family.RELU_NETWORK: "a ReLU network",
    Family.NETWORK: "a network",
    Family.ENCODER_BLOCK: "an encoder block",
    Family.LANGUAGE_MODEL: "a language model",
    Family.TOKENS: "attention over {} token ids",
}


def facts_of(done: Audit) -> dict[str, Any]:
    """Everything that the report says, ready for `json.dumps`.

    >>> import unsoftmax
    >>> facts_of(unsoftmax.audit_target("demo:single-head?d=4"))["verdict"].startswith("Everything leaks")
    True
    """
    result = done.result
    paper = result.width + result.width**2
    return result.as_json() | {
        "target": done.target,
        "date": done.date,
        "verdict": verdict(done),
        "price": {"per_thousand": done.price_per_thousand, "total": done.cost, "currency": done.currency},
        "bill": _bill_of(done),
        "plan": None if done.plan is None else done.plan.as_json(),
        "learner": _learner(result.claim) if done.learner_begun else None,
        "recovers": result.claim.recovers,
        "symmetry": result.claim.symmetry,
        "paper_queries": paper if result.family == Family.SINGLE_HEAD else None,
        "model_heads": []
        if result.model is None
        else [_head_facts(name, W, v) for name, W, v in heads_of(result.model)],
        "assumptions": assumptions(done),
        "curve": {
            "queries": list(done.curve.queries),
            "error": list(done.curve.error),
            "method": done.curve.method,
            "why_not": done.curve.why_not,
        },
        "defences": None if done.defences is None else done.defences.as_json(),
        "settings": settings_of(result),
        "standards": [entry.as_json() for entry in entries_for(result)],
        "reproduce": {
            "command": command(done),
            "seed": done.seed,
            "ledger_digest": done.ledger_digest,
            "seconds": round(done.seconds, 3),
            "versions": versions(),
        },
    }


def _bill_of(done: Audit) -> list[dict[str, Any]]:
    """What each finding cost; the items add up to the bill."""
    rate = done.price_per_thousand
    return [
        {
            "item": each.subject,
            "queries": each.queries,
            "price": None if rate is None else rate * each.queries / 1000.0,
        }
        for each in done.findings
        if each.queries
    ]


def verdict(done: Audit) -> str:
    """One sentence: what leaks, how exactly, for how many queries and what price."""
    result = done.result
    bill = f"{result.queries.total:,} queries"
    if done.cost is not None:
        bill += f", at a price of {money(done.cost, done.currency)}"
    if result.model is not None:
        found = result.model
        ranks = ", ".join(map(str, sorted(set(found.ranks))))
        heads = f"{len(found.ranks)} heads" if len(found.ranks) > 1 else "one head"
        takes_ids = found.family == Family.TOKENS.value
        of_width = "" if takes_ids else f" of width {result.width}"
        box = _NOUNS[found.family].format(f"{result.width:,}") + of_width
        box += f" ({heads}, rank {ranks})" if ranks else ""
        if isinstance(result.answers, Labels):
            box += ", up to the scale of its answers, which labels do not show,"
        if result.status is Status.EXACT:
            return (
                f"Everything leaks: all {found.parameters:,} parameters of {box} were recovered to float64 "
                f"precision, for {bill}."
            )
        bound = (
            "" if result.error_bound is None else f" to a relative error of at most {result.error_bound:.1g}"
        )
        if isinstance(result.answers, Computed):
            bound += f" (it computes in {result.answers.format}, whose rounding hides the rest)"
        return f"It leaks: all {found.parameters:,} parameters of {box} were recovered{bound}, for {bill}."
    if result.parts:
        return _parts_verdict(result, bill)
    why = "the budget ended before the attack did" if done.approved else "going on was not approved"
    endings = {
        Status.NOT_IDENTIFIABLE: "What can be seen was recovered; the rest leaves no trace in any answer",
        Status.OUTSIDE_CLASS: (
            "Nothing was recovered. The target matches no supported family; that does not mean that it "
            "is safe"
        ),
        Status.UNRESOLVED: (
            f"Nothing was recovered at this precision{_likeness(done)}. That is not proof that nothing leaks"
        ),
        Status.BUDGET_SPENT: f"Not finished: {why}",
    }
    return f"{endings[result.status]}. Paid: {bill}."


def _parts_verdict(result: Result, bill: str) -> str:
    """What leaks although the whole was not recovered: that comes first."""
    named = [
        f"the {name.replace('-', ' ')} (to {part.error_bound:.1g} relative; left open: {part.gauge})"
        for name, part in result.parts.items()
    ]
    return f"It leaks in part: {', '.join(named)}. The whole was not recovered. Paid: {bill}."


def _likeness(done: Audit) -> str:
    """What the target looks like, where that was found."""
    names: dict[str, str] = {
        Family.SINGLE_HEAD: "one head",
        Family.MULTI_HEAD: "several heads",
        Family.TRANSFORMER: "a network on top of attention",
    }
    found = next((finding.value for finding in done.findings if finding.subject == Subject.FAMILY), "")
    return f" of what looks like {names[found]}" if found in names else ""


def assumptions(done: Audit) -> list[dict[str, Any]]:
    """Every assumption of the learner, how it was checked, and by what margin it held, where a margin was
    measured."""
    if not done.learner_begun:
        return []
    outcome = "held" if done.result.status.recovered else "open"
    claimed = done.result.claim.assumptions
    return [
        {"text": each.text, "check": each.check, "outcome": outcome, "margin": _margin(done, each)}
        for each in claimed
    ]


def _learner(claim: Claim) -> dict[str, str]:
    return {"title": claim.title, "source": claim.source, "formula": claim.queries.formula}


def _margin(done: Audit, assumption: Assumption) -> str | None:
    """The measured margin of an assumption, in words; None where the check is a yes or no."""
    certificate, model = done.result.certificate, done.result.model
    if certificate is None or model is None:
        return None
    text = assumption.text
    kinds = {
        "repeat": ("early queries asked again",),
        "affine": ("one row",),
        "softmax": ("three rows", "the same rows in another order"),
    }
    for word, names in kinds.items():
        seen = [certificate.by_kind[name] for name in names if name in certificate.by_kind]
        if word in text and seen:
            return f"fresh deviation {max(seen):.1e}, allowed {certificate.allowed:.0e}"
    if "v is not zero" in text and isinstance(model, SingleHead):
        return f"|v| = {np.linalg.norm(model.v):.4g}"
    if "within tau" in text:
        return f"largest deviation on fresh queries {certificate.max_error:.2g}"
    if "R|v|/tau" in text and done.result.error_bound is not None:
        return f"error bound {done.result.error_bound:.1e}, useful up to 0.1"
    return None


def _head_facts(name: str, W: Array, v: Array | None) -> dict[str, Any]:
    spectrum = np.linalg.svd(W, compute_uv=False)
    kept = spectrum[spectrum > spectrum.max(initial=0.0) * len(W) * EPS]
    return {
        "name": name,
        "rank": len(kept),
        "norm_W": float(np.linalg.norm(W)),
        "norm_v": None if v is None else float(np.linalg.norm(v)),
        "spectrum": [float(value) for value in kept],
    }


def command(done: Audit) -> str:
    """The command that does it again."""
    words = ["unsoftmax", "audit", done.target]
    for name, value in done.options.items():
        if (name, value) != ("family", "auto") and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    if done.price_per_thousand is not None:
        words += ["--price-per-1k", f"{done.price_per_thousand:g}"]
    if done.currency is not None:
        words += ["--currency", done.currency]
    return shlex.join([*words, "--seed", str(done.seed)])


def versions() -> dict[str, str]:
    """What the figures were computed with."""
    found = {"unsoftmax": __version__, "Python": platform.python_version()}
    for package in ("numpy", "scipy", "matplotlib"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # pragma: no cover - an unusual installation
            found[package] = "unknown"
    return found
