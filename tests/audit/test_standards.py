"""What others read: SARIF, the ML-BOM, the taxonomies, and the policy of a pipeline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import unsoftmax
from tests.audit.sarif_schema import SARIF
from unsoftmax.audit.policy import Policy
from unsoftmax.audit.standards.taxonomies import entries_for

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "recovered": ("demo:single-head?d=4&r=2", {"price_per_thousand": 2.0, "currency": "EUR"}),
    "outside": (lambda X: X[:, 0, 0] ** 3, {"width": 2}),
    "budget": ("demo:single-head?d=6", {"budget": 180}),
    "unresolved": (unsoftmax.Labels(unsoftmax.as_oracle("demo:multi-head?d=4&heads=2")), {}),
    "not identifiable": (lambda X: 0.0 * X[:, 0, 0], {"width": 2}),
}


@pytest.fixture(scope="module")
def audits() -> dict[str, unsoftmax.Audit]:
    return {name: unsoftmax.audit_target(target, **options) for name, (target, options) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_files_for_other_tools_pass_their_schemas(
    name: str, audits: dict[str, unsoftmax.Audit], tmp_path: Path
) -> None:
    artifacts = unsoftmax.write_report(audits[name], tmp_path)
    log = json.loads(Path(artifacts["sarif"]).read_text())
    jsonschema.Draft202012Validator(SARIF, format_checker=jsonschema.FormatChecker()).validate(log)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(artifacts["bom"]).read_text()) is None
    (result,) = log["runs"][0]["results"]
    assert (result["kind"] == "fail") == (name == "recovered")
    assert (result["level"] == "error") == (name == "recovered")  # other kinds must have no level
    assert "physicalLocation" not in json.dumps(log)  # an endpoint has no file


def test_the_transcribed_schema_refuses_what_the_standard_refuses(audits: dict[str, unsoftmax.Audit]) -> None:
    from unsoftmax.audit.facts import facts_of
    from unsoftmax.audit.standards.sarif import sarif_of

    done = audits["recovered"]
    checker = jsonschema.Draft202012Validator(SARIF)
    for broken in ("no tool", "unknown name", "wrong level"):
        log = json.loads(json.dumps(sarif_of(facts_of(done), done.result, done.date)))
        run = log["runs"][0]
        if broken == "no tool":
            del run["tool"]
        elif broken == "unknown name":
            run["results"][0]["price"] = 2
        else:
            run["results"][0]["level"] = "critical"
        assert not checker.is_valid(log), broken


def test_taxa_are_defined_where_they_are_referred_to(
    audits: dict[str, unsoftmax.Audit], tmp_path: Path
) -> None:
    artifacts = unsoftmax.write_report(audits["recovered"], tmp_path)
    run = json.loads(Path(artifacts["sarif"]).read_text())["runs"][0]
    defined = {(each["name"], taxon["id"]) for each in run["taxonomies"] for taxon in each["taxa"]}
    used = {(taxon["toolComponent"]["name"], taxon["id"]) for taxon in run["results"][0]["taxa"]}
    assert used == defined
    assert ("MITRE ATLAS", "AML.T0024.002") in used
    assert ("OWASP ML Top 10", "ML05:2023") in used
    assert ("NIST AI 100-2", "NISTAML.031") in used


def test_nothing_leaked_means_no_threat(audits: dict[str, unsoftmax.Audit]) -> None:
    for name, done in audits.items():
        assert bool(entries_for(done.result)) == (name == "recovered")


def test_the_findings_prices_add_up_to_the_bill(audits: dict[str, unsoftmax.Audit]) -> None:
    from unsoftmax.audit.facts import facts_of

    for done in audits.values():
        facts = facts_of(done)
        assert sum(item["queries"] for item in facts["bill"]) == done.result.queries.total
        assert sum(each.queries for each in done.findings) == done.result.queries.total
    priced = facts_of(audits["recovered"])
    assert sum(item["price"] for item in priced["bill"]) == pytest.approx(priced["price"]["total"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", priced["date"])
    assert "EUR" in priced["verdict"]


def test_policies_of_pipelines(audits: dict[str, unsoftmax.Audit]) -> None:
    leak, none = audits["recovered"], audits["outside"]
    assert Policy("recovered").judge(leak).violated
    assert not Policy("recovered").judge(none).violated
    assert leak.cost is not None
    assert Policy("recovered", leak.cost + 0.01).judge(leak).violated
    assert not Policy("recovered", leak.cost - 0.01).judge(leak).violated
    with pytest.raises(unsoftmax.UsageError, match="price_per_thousand=PRICE"):
        Policy("recovered", 5.0).budget(None)


def test_a_failure_says_why_and_what_to_try(audits: dict[str, unsoftmax.Audit]) -> None:
    assert "is not linear in that row" in audits["outside"].result.advice
    assert "larger budget" in audits["budget"].result.advice
    assert "labels" in audits["unresolved"].result.advice
    assert "There is nothing to try" in audits["not identifiable"].result.advice
