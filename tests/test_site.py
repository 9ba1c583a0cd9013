"""The site: built strictly, once a session; complete, self-contained, searchable; opened in a browser."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import unsoftmax
import unsoftmax.testing
from tests.cases.browser import browser_window, has_browser

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by whichever worker comes first; MkDocs in strict mode fails on a broken link."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own  # one process shares nothing
    folder = shared / "site"
    with (shared / "site.lock").open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
                cwd=ROOT,
                env=dict(os.environ) | {"NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            (folder / "built").touch()
    return folder


class Fetched(HTMLParser):
    """What a page fetches when it is opened, and the ids on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.ids.add(told.get("id") or "")
        if tag in ("script", "img", "iframe", "source", "video"):
            self.sources.append(told.get("src") or "")
        elif tag == "link" and told.get("rel") not in ("canonical", "next", "prev"):
            self.sources.append(told.get("href") or "")


def test_the_reference_has_every_public_name(site: Path) -> None:
    ids: set[str] = set()
    for page in (site / "reference").glob("*.html"):
        ids |= Fetched(page.read_text(encoding="utf-8")).ids
    public = {f"unsoftmax.{name}" for name in unsoftmax.__all__ if name != "__version__"}
    suites = {f"unsoftmax.testing.{name}" for name in unsoftmax.testing.__all__}
    homes = unsoftmax.public_homes()
    missing = {
        name
        for name in public | suites
        if name not in ids and f"unsoftmax.{homes.get(name[10:])}.{name[10:]}.{name[10:]}" not in ids
    }
    assert missing == set()


def test_every_page_of_the_docs_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert len(list((site / "notebooks").glob("*.html"))) == 3


def test_pages_fetch_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        sources = Fetched(page.read_text(encoding="utf-8")).sources
        outside = [source for source in sources if re.match(r"(https?:)?//", source)]
        assert outside == [], page


@pytest.mark.filterwarnings("default")  # the driver's own, not ours
def test_a_browser_opens_it_and_finds_what_is_searched(site: Path, tmp_path: Path) -> None:
    if not has_browser():
        assert '"docs"' in (site / "search" / "search_index.js").read_text(encoding="utf-8")
        return
    with browser_window(tmp_path / "profile") as window:
        page = window.new_page()
        problems: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            for name in ("index", "faq", "for-auditors", "prior-art", "notebooks/first-recovery"):
                page.goto((site / f"{name}.html").as_uri())
                assert page.locator("h1").count() == 1
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        _check_search(page, site)
        assert problems == []
        assert [url for url in requests if not url.startswith(("file:", "data:", "about:"))] == []


def _check_search(page: Any, site: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.fill("input[name=query]", "nuclear norm")
    page.wait_for_selector(".md-search-result__item")
    links = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    assert any("extending" in link or "low-rank" in link for link in links)
    page.fill("input[name=query]", "")
    page.type("input[name=query]", "--price-per-1k")  # dashes in front exclude a word, for the search itself
    page.wait_for_selector(".md-search-result__link[href*=command-line]", state="attached")
