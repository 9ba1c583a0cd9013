"""The page: self-contained, every figure there, hostile names stay text; in a real browser where there is
one."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import unsoftmax
from tests.cases.browser import browser_window, has_browser
from unsoftmax.audit.facts import facts_of
from unsoftmax.audit.report import render

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>" + "\u202eמודל" + "x" * 300
FIGURES = ("matrices", "spectra", "phases", "curve", "defences")


class Page(HTMLParser):
    """Everything on a page that could fetch, run or link."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif tag == "a" and name == "href":
                self.links.append(value or "")
            elif name in ("src", "href", "xlink:href", "data", "action", "srcset"):
                self.sources.append(value or "")
            elif name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    done = unsoftmax.audit_target("demo:single-head?d=8&r=3", price_per_thousand=2.0)
    assert done.result.model is not None
    table = unsoftmax.defend(
        done.result.model,
        defences=["", "decimals=2", "budget=10", "tolerance=0.01+input-bound=9"],
        stand_in=True,
    )
    hostile = replace(done.findings[0], value=HOSTILE, evidence=HOSTILE)
    findings = (hostile, *done.findings)
    done = replace(
        done,
        target=HOSTILE,
        defences=table,
        findings=findings,
        result=replace(done.result, findings=findings, reason=HOSTILE),
    )
    unsoftmax.write_report(done, place)
    several = unsoftmax.audit_target("demo:multi-head?d=8&heads=3&seed=1")
    unsoftmax.write_report(several, place / "several")
    nothing = unsoftmax.audit_target(lambda X: X[:, 0, 0] ** 3, width=3)
    unsoftmax.write_report(nothing, place / "nothing")
    return place


def check_statically(folder: Path) -> None:
    """What a parser can see: no scripts, nothing fetched, links that lead somewhere, figures in place,
    hostile names as text."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert page.handlers == []
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    assert "url(http" not in text
    assert "@import" not in text
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert (link[1:] in page.ids) if link.startswith("#") else (folder / link).is_file(), link
    assert page.tags.count("img") == 0


def test_the_page_is_self_contained_and_hostile_names_stay_text(folder: Path) -> None:
    check_statically(folder)
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert HOSTILE in page.words
    assert {f"figure-{name}" for name in FIGURES} <= set(page.ids)
    assert page.tags.count("svg") == len(FIGURES)


def test_other_outcomes_have_their_page(folder: Path) -> None:
    check_statically(folder / "several")
    check_statically(folder / "nothing")
    page = Page((folder / "nothing" / "report.html").read_text(encoding="utf-8"))
    words = "".join(page.words)
    assert "Nothing was recovered" in words
    assert "What to do next." in words
    assert "figure-matrices" not in page.ids
    assert "does not pass" not in words


def test_a_page_speaks_of_no_learner_that_was_not_begun() -> None:
    done = unsoftmax.audit_target(unsoftmax.Labels(unsoftmax.as_oracle("demo:multi-head?d=6&heads=2&seed=1")))
    facts, words = facts_of(done), "".join(Page(render(done)).words)
    assert (facts["status"], facts["learner"], facts["assumptions"]) == ("UNRESOLVED", None, [])
    assert "No learner was started" in words
    assert "Its claim" not in words


def test_a_refusal_is_not_called_a_spent_budget() -> None:
    done = unsoftmax.audit_target("demo:single-head?d=4", confirm_above=200, confirm=lambda text: False)
    assert "not approved" in facts_of(done)["verdict"]
    assert "budget ended" in facts_of(unsoftmax.audit_target("demo:single-head?d=4", budget=200))["verdict"]


def test_deviations_within_rounding_are_not_called_none() -> None:
    done = unsoftmax.audit_target(unsoftmax.Rounded(unsoftmax.as_oracle("demo:single-head?d=4&biases=1"), 2))
    words = "".join(Page(render(done)).words)
    assert "within errors" in words
    assert "no deviation" not in words


def test_page_and_data_tell_the_same(folder: Path) -> None:
    facts: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    words = "".join(Page((folder / "report.html").read_text(encoding="utf-8")).words)
    assert facts["verdict"] in words
    assert facts["defences"]["advice"] in words
    assert facts["target"] == HOSTILE
    assert facts["price"]["total"] == pytest.approx(2.0 * facts["queries"]["total"] / 1000)
    for key in (
        "status",
        "family",
        "width",
        "heads",
        "rank",
        "parameters",
        "queries",
        "certificate",
        "error_bound",
        "artifacts",
        "reason",
    ):
        assert key in facts
    assert facts["model_heads"][0]["rank"] == 3
    assert len(facts["model_heads"][0]["spectrum"]) == 3
    assert facts["curve"]["error"][-1] < 1e-6
    assert facts["reproduce"]["versions"]["unsoftmax"] == unsoftmax.__version__
    assert unsoftmax.load(facts["artifacts"]["model"]).width == 8
    assert "What the certificate does not say" in words
    assert "The recovered model was attacked in place of the target" in words


def test_a_model_of_an_earlier_audit_does_not_stand_beside_a_report_of_nothing(tmp_path: Path) -> None:
    found = unsoftmax.audit_target("demo:single-head?d=3&seed=4")
    unsoftmax.write_report(found, tmp_path)
    nothing = unsoftmax.audit_target(lambda X: X[:, 0, 0] ** 3, width=3)
    assert "model" not in unsoftmax.write_report(nothing, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    kept = unsoftmax.load(tmp_path / "earlier-model.safetensors")
    assert kept.distance(found.result.unwrap()) == 0.0


@pytest.mark.filterwarnings("default")  # the driver's own, not ours
def test_a_browser_shows_it_without_errors_requests_or_sideways_scrolling(
    folder: Path, tmp_path: Path
) -> None:
    places = (folder, folder / "several", folder / "nothing")
    if not has_browser():
        for place in places:
            check_statically(place)
        return
    with browser_window(tmp_path / "profile") as context:
        for place in places:
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    _check_shown(context, place / "report.html", width, scheme)


def _check_shown(context: Any, report: Path, width: int, scheme: str) -> None:
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("request", lambda request: requests.append(request.url))
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(report.as_uri())
    assert problems == []
    assert [url for url in requests if not url.startswith(("data:", report.as_uri()))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for index in range(page.locator("svg.figure").count()):
        box = page.locator("svg.figure").nth(index).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 60
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    lost = "[...document.querySelectorAll('nav a')].filter(a => !document.querySelector(a.hash)).length"
    assert page.evaluate(lost) == 0
    assert (
        len(
            set(
                page.locator("body").evaluate(
                    "body => [getComputedStyle(body).color, getComputedStyle(body).backgroundColor]"
                )
            )
        )
        == 2
    )
    page.close()
