"""What all tests share: where the repository is, and how Hypothesis behaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import fuzz
from tests.chromium import launched

# No deadline: a shared core may stall an example for longer than any limit that would still mean something.
settings.register_profile("dev", deadline=None, print_blob=True)
# In CI the same examples each time, so that a change is judged by what it changed.
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if fuzz.RUNS:
        terminalreporter.section("random runs")
        for line in fuzz.report():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``tiny_folder(family)``: that family's random model, made once per session."""
    from tests.models.tiny import tiny_model_folder  # torch and transformers: only for those who ask

    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = tiny_model_folder(family, tmp_path_factory.mktemp(family))
        return made[family]

    return folder


# One per module, not per session: while Playwright's loop lives, asyncio.run() of other tests would be refused.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless browser, see ``tests.chromium``."""
    with launched() as browser:
        yield browser
