"""An audited model as an entry of a CycloneDX 1.6 ML-BOM: what it is, and that it can be extracted."""

from __future__ import annotations

import uuid
from typing import Any

from unsoftmax import __version__
from unsoftmax.audit.standards.taxonomies import entries_for
from unsoftmax.recovery.result import Result

__all__ = ["ml_bom_of"]

_SPACE = uuid.UUID("6b1f7b52-4c1e-5d3a-9d2e-0a5d0c9c1a77")  # any fixed one: equal audits get equal numbers


def ml_bom_of(facts: dict[str, Any], result: Result, ended: str) -> dict[str, Any]:
    """The bill of materials with one component, the target, and a vulnerability where it leaks."""
    target = facts["target"]
    serial = uuid.uuid5(_SPACE, f"{target} {facts['reproduce']['ledger_digest']} {ended}")
    reference = f"model:{uuid.uuid5(_SPACE, target)}"
    bom: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": ended,
            "tools": {"components": [{"type": "application", "name": "unsoftmax", "version": __version__}]},
        },
        "components": [_component(facts, result, reference)],
    }
    if leaks := _vulnerabilities(facts, result, reference):
        bom["vulnerabilities"] = leaks
    return bom


def _component(facts: dict[str, Any], result: Result, reference: str) -> dict[str, Any]:
    parameters = result.model.parameters if result.model is not None else None
    known = {
        "unsoftmax:status": facts["status"],
        "unsoftmax:width": facts["width"],
        "unsoftmax:heads": facts["heads"],
        "unsoftmax:parameters": parameters,
        "unsoftmax:queries": facts["queries"]["total"],
        "unsoftmax:ledger-digest": facts["reproduce"]["ledger_digest"],
    }
    card: dict[str, Any] = {"modelParameters": {"task": "sequence scoring"}}
    if result.model is not None:
        card["modelParameters"] |= {"architectureFamily": "attention", "modelArchitecture": result.family}
    return {
        "type": "machine-learning-model",
        "bom-ref": reference,
        "name": facts["target"],
        "modelCard": card,
        "properties": [
            {"name": name, "value": str(value)} for name, value in known.items() if value is not None
        ],
    }


def _vulnerabilities(facts: dict[str, Any], result: Result, reference: str) -> list[dict[str, Any]]:
    entries = entries_for(result)
    if not entries:
        return []
    return [
        {
            "bom-ref": f"{reference}/extraction",
            "id": "unsoftmax:model-extraction",
            "source": {"name": "unsoftmax"},
            "references": [
                {"id": entry.id, "source": {"name": entry.taxonomy.name, "url": entry.url}}
                for entry in entries
            ],
            "ratings": [{"source": {"name": "unsoftmax"}, "severity": "high", "method": "other"}],
            "description": facts["verdict"],
            "recommendation": facts["advice"] if facts["defences"] is None else facts["defences"]["advice"],
            "affects": [{"ref": reference}],
        }
    ]
