"""JSON Schema (2020-12) of everything that `--json` prints. Within a version objects may gain entries; none
is taken away or changes its type."""

from __future__ import annotations

from typing import Any

__all__ = ["COMMANDS", "SCHEMA_VERSION", "schema_of"]

SCHEMA_VERSION = 1  # counts up when a name of the JSON changes its meaning or goes

_TEXT, _NUMBER, _YES = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_STATUS = {
    "enum": ["EXACT", "WITHIN_BOUND", "NOT_IDENTIFIABLE", "OUTSIDE_CLASS", "UNRESOLVED", "BUDGET_SPENT"]
}


def _or_null(kind: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [kind, {"type": "null"}]}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _map(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of}


def _object(**entries: dict[str, Any]) -> dict[str, Any]:
    """An object that has at least these."""
    return {"type": "object", "properties": entries, "required": list(entries)}


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return _object(**first["properties"], **second["properties"])


_FINDING = _object(subject=_TEXT, value=_TEXT, evidence=_TEXT, queries=_COUNT)
_QUERIES = _object(total=_COUNT, by_phase=_map(_COUNT), retries=_COUNT)
_PART = _object(error_bound=_or_null(_NUMBER), gauge=_TEXT, certificate={"type": "object"})
_RECOVER = _object(
    status=_STATUS,
    family=_TEXT,
    width=_COUNT,
    heads=_or_null(_COUNT),
    rank=_or_null(_list(_COUNT)),
    parameters=_or_null(_COUNT),
    queries=_QUERIES,
    certificate=_or_null({"type": "object", "required": ["n_queries", "statement"]}),
    error_bound=_or_null(_NUMBER),
    constant_bound=_or_null(_NUMBER),
    artifacts=_map(_TEXT),
    findings=_list(_FINDING),
    parts=_map(_PART),
    reason=_TEXT,
    advice=_TEXT,
)
_COST = _object(
    heads=_COUNT,
    ranks=_list(_COUNT),
    neurons=_COUNT,
    biased=_YES,
    parameters=_COUNT,
    identification=_COUNT,
    queries=_COUNT,
    verification=_COUNT,
    total=_COUNT,
    one_attempt=_COUNT,
    at_most=_COUNT,
)
_CLAIM = _object(
    title=_TEXT,
    source=_TEXT,
    queries=_TEXT,
    kind={"enum": ["exact", "upper"]},
    assumptions=_list(_object(text=_TEXT, check=_TEXT)),
)
_DEFENCE_ROW = _object(
    label=_TEXT,
    parts=_list(_object(kind=_TEXT, value={})),
    status=_TEXT,
    reason=_TEXT,
    queries=_COUNT,
    parameter_error=_or_null(_NUMBER),
    functional_error=_or_null(_NUMBER),
    error_bound=_or_null(_NUMBER),
    distortion=_NUMBER,
    refused=_NUMBER,
    attacked=_YES,
    adapted=_TEXT,
)
_DEFENCES = _object(
    advice=_TEXT, parameters=_COUNT, honest=_TEXT, stand_in=_YES, seed=_COUNT, rows=_list(_DEFENCE_ROW)
)
_AUDIT = _joined(
    _RECOVER,
    _object(
        target=_TEXT,
        date=_TEXT,
        verdict=_TEXT,
        price=_object(per_thousand=_or_null(_NUMBER), total=_or_null(_NUMBER), currency=_or_null(_TEXT)),
        bill=_list(_object(item=_TEXT, queries=_COUNT, price=_or_null(_NUMBER))),
        plan=_or_null(_object(paid=_COUNT, at_least=_COUNT, at_most=_COUNT)),
        learner=_or_null(_object(title=_TEXT, source=_TEXT, formula=_TEXT)),
        assumptions=_list(_object(text=_TEXT, check=_TEXT, outcome=_TEXT, margin=_or_null(_TEXT))),
        curve=_object(queries=_list(_COUNT), error=_list(_or_null(_NUMBER)), method=_TEXT, why_not=_TEXT),
        defences=_or_null(_DEFENCES),
        standards=_list(_object(taxonomy=_TEXT, version=_TEXT, id=_TEXT, name=_TEXT, url=_TEXT)),
        reproduce=_object(command=_TEXT, seed=_COUNT, ledger_digest=_or_null(_TEXT), versions=_map(_TEXT)),
    ),
)
_ARTIFACTS = {"type": "object"}

COMMANDS: dict[str, dict[str, Any]] = {
    "recover": _RECOVER,
    "demo": _joined(_RECOVER, _object(distance_to_truth=_or_null(_NUMBER))),
    "audit": _AUDIT,
    "check": _object(
        recoverable=_YES,
        looks_like=_TEXT,
        obstacle=_TEXT,
        advice=_TEXT,
        command=_TEXT,
        queries=_COUNT,
        expected=_or_null(_COUNT),
        findings=_list(_FINDING),
        ending=_or_null(_STATUS),
    ),
    "plan": _object(
        width=_COUNT,
        family=_TEXT,
        claim=_CLAIM,
        by_size=_list(_COST),
        this_target=_or_null(_COST),
        budget=_or_null(_COUNT),
        rank_within_budget=_or_null(_COUNT),
    ),
    "defend": _DEFENCES,
    "compare": _object(
        same=_YES,
        distance=_or_null(_NUMBER),
        reason=_TEXT,
        families=_list(_TEXT),
        separating={},
        answers={},
        gap=_or_null(_NUMBER),
        rounding=_or_null(_NUMBER),
    ),
    "serve": _object(url=_TEXT, width=_or_null(_COUNT), vocabulary=_or_null(_COUNT), datatype=_TEXT),
    "reproduce": _object(
        holds=_YES,
        checks=_list(_object(theorem=_TEXT, claim=_TEXT, measured=_TEXT, holds=_YES)),
        artifacts=_ARTIFACTS,
    ),
    "sweep": _object(cells=_COUNT, computed=_COUNT, failed=_COUNT, workers_lost=_COUNT, artifacts=_ARTIFACTS),
    "sweep-plot": _object(picture=_TEXT),
    "ledger-show": _object(
        path=_TEXT,
        binding=_map(_TEXT),
        phases=_list(_object(phase=_TEXT, calls=_COUNT, queries=_COUNT, retries=_COUNT)),
        queries=_COUNT,
        retries=_COUNT,
        lost=_COUNT,
        runs=_COUNT,
        cost=_or_null(_NUMBER),
        digest=_TEXT,
    ),
    "error": _object(status={"type": "null"}, error=_TEXT, reason=_TEXT),
}


def schema_of(command: str) -> dict[str, Any]:
    """The schema of what a command prints with `--json`; 'error' is what every command may print instead.

    >>> schema_of("recover")["properties"]["schema"]
    {'const': 'unsoftmax/1/recover'}
    """
    name = f"unsoftmax/{SCHEMA_VERSION}/{command}"
    inner = COMMANDS[command]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('/', ':')}",
        "title": f"unsoftmax {command.replace('-', ' ')} --json",
        "type": "object",
        "properties": {"schema": {"const": name}, **inner["properties"]},
        "required": ["schema", *inner["required"]],
    }
