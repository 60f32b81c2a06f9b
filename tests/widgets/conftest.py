"""Widgets leave nothing behind: no thread, no open dashboard."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    if "minisgl_widgets.dashboard" in sys.modules:
        for dash in list(sys.modules["minisgl_widgets.dashboard"]._open.values()):
            dash.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("minisgl")] == []
