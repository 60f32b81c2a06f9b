"""Widgets leave nothing behind: no thread, no open dashboard or sliders."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    for name in ("minisgl_widgets.dashboard", "minisgl_widgets.whatif"):
        if name in sys.modules:
            for widget in list(sys.modules[name]._open.values()):
                widget.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("minisgl")] == []
