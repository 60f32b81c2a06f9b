"""The system's own Chromium (``apt install chromium fonts-dejavu-core``), or the one CHROME_PATH names.

Without it the tests that need it are skipped, unless MINISGL_REQUIRE_BROWSER is set: then that is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MACOS_CHROME = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


def skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("MINISGL_REQUIRE_BROWSER"):
        pytest.fail(f"MINISGL_REQUIRE_BROWSER is set, but {reason}", pytrace=False)
    pytest.skip(reason)


def find_chromium() -> str | None:
    if named := os.environ.get("CHROME_PATH"):
        return named
    found = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    return found or (str(MACOS_CHROME) if MACOS_CHROME.exists() else None)


@contextmanager
def launched() -> Iterator[Any]:
    """A Playwright browser, headless."""
    path = find_chromium()
    if path is None:
        skip_or_fail("no Chromium was found; install it (apt install chromium fonts-dejavu-core) or set CHROME_PATH")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_or_fail("playwright is not installed (pip install -e '.[lab,dev]')")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()
