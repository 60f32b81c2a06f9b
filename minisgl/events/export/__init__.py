"""A recorded run in the formats of other tools' viewers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from minisgl.events.export.kv_events import kv_events
from minisgl.events.export.perfetto import perfetto

if TYPE_CHECKING:
    from minisgl.events.trace import Trace

__all__ = ["FORMATS", "export", "kv_events", "perfetto"]

FORMATS: dict[str, Callable[[Trace], bytes]] = {"perfetto": perfetto, "kv-events": kv_events}


def export(trace: Trace, path: str | Path, format: str) -> Path:
    """Write a run to a file in one of ``FORMATS``; the path. Raises OSError if it cannot be written."""
    path = Path(path)
    path.write_bytes(FORMATS[format](trace))
    return path
