"""An audit as SARIF 2.1.0, for tools that gather findings. A target is a logical location: an endpoint has no
source file, and none is invented."""

from __future__ import annotations

from typing import Any

from unsoftmax import __version__
from unsoftmax.audit.standards.taxonomies import Entry, Taxonomy, entries_for
from unsoftmax.outcomes import Status
from unsoftmax.recovery.result import Result

__all__ = ["SCHEMA", "sarif_of"]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_RULES = {
    "model-recovered": (
        "ModelRecovered",
        "All parameters of the model were recovered from its answers and certified on fresh queries.",
        "error",
    ),
    "part-recovered": (
        "PartRecovered",
        "Parameters of a part of the model were recovered from its answers and certified.",
        "error",
    ),
    "not-recovered": ("NotRecovered", "Nothing was recovered. That is not proof that nothing leaks.", "none"),
}
_KEPT = ("status", "family", "width", "heads", "parameters", "queries", "error_bound", "price")
_NOT_RECOVERED = {  # kinds of SARIF for outcomes that are not a finding
    Status.NOT_IDENTIFIABLE: "review",
    Status.OUTSIDE_CLASS: "notApplicable",
    Status.UNRESOLVED: "open",
    Status.BUDGET_SPENT: "open",
}


def sarif_of(facts: dict[str, Any], result: Result, ended: str) -> dict[str, Any]:
    """The log. facts: those of the report. ended: the moment, as in 2026-01-31T12:00:00Z."""
    entries = entries_for(result)
    taxonomies = list(dict.fromkeys(entry.taxonomy for entry in entries))
    rule = "model-recovered" if result.status.recovered else "part-recovered" if entries else "not-recovered"
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "unsoftmax", "version": __version__, "rules": [_rule(rule)]}},
        "invocations": [
            {"executionSuccessful": True, "commandLine": facts["reproduce"]["command"], "endTimeUtc": ended}
        ],
        "results": [_result(rule, facts, result, entries)],
        "columnKind": "unicodeCodePoints",
    }
    if taxonomies:
        run["taxonomies"] = [_component(each, entries) for each in taxonomies]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(key: str) -> dict[str, Any]:
    name, text, level = _RULES[key]
    return {
        "id": key,
        "name": name,
        "shortDescription": {"text": text},
        "defaultConfiguration": {"level": level},
    }


def _result(rule: str, facts: dict[str, Any], result: Result, entries: tuple[Entry, ...]) -> dict[str, Any]:
    text = facts["verdict"] if entries else f"{facts['verdict']} {result.reason}"
    told: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": 0,
        "kind": "fail" if entries else _NOT_RECOVERED[result.status],
        "level": "error" if entries else "none",
        "message": {"text": text},
        "locations": [
            {
                "logicalLocations": [
                    {"name": facts["target"], "fullyQualifiedName": facts["target"], "kind": "resource"}
                ]
            }
        ],
        "partialFingerprints": {"target/v1": facts["target"], "outcome/v1": f"{rule}/{result.family}"},
        "properties": {name: facts[name] for name in _KEPT},
    }
    if entries:
        told["taxa"] = [{"id": entry.id, "toolComponent": {"name": entry.taxonomy.name}} for entry in entries]
    return told


def _component(taxonomy: Taxonomy, entries: tuple[Entry, ...]) -> dict[str, Any]:
    return {
        "name": taxonomy.name,
        "fullName": taxonomy.title,
        "version": taxonomy.version,
        "organization": taxonomy.organization,
        "informationUri": taxonomy.url,
        "isComprehensive": False,
        "taxa": [
            {"id": entry.id, "name": entry.name, "helpUri": entry.url}
            for entry in entries
            if entry.taxonomy == taxonomy
        ],
    }
