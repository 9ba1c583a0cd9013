"""A real browser for pages: Chromium, driven by playwright, with no network of its own."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["browser_window", "has_browser"]

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def has_browser() -> bool:
    """Whether there is one. A run that demands a browser (UNSOFTMAX_REQUIRE_BROWSER) fails without."""
    missing = None
    if _chromium() is None:
        missing = "Chromium on the path (apt-get install chromium)"
    elif importlib.util.find_spec("playwright") is None:
        missing = "the Python package playwright"
    if missing and os.environ.get("UNSOFTMAX_REQUIRE_BROWSER"):
        pytest.fail(f"pages must be opened in a browser here, but {missing} is missing")
    return missing is None


@contextmanager
def browser_window(profile: Path) -> Iterator[Any]:
    """A context of Chromium that opens pages."""
    module = importlib.import_module("playwright.sync_api")
    with module.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(profile), executable_path=_chromium(), args=list(_FLAGS), headless=True
        )
        yield context
        context.close()


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)
