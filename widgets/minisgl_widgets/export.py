"""A recorded run as one HTML file: the same views, no kernel, no network."""

from __future__ import annotations

import base64
import gzip
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from minisgl.events.words import count
from minisgl_widgets.bundle import STATIC, bundle, styles


def export_html(record: dict[str, Any], path: str | Path, title: str = "") -> Path:
    """Write ``History.record()`` as one HTML file that plays it; the same record gives the same bytes.

    ``#step=17`` at the end of its address opens it at step 17; ``#step=17&req=4`` also marks request 4.
    """
    path = Path(path)
    title = title or record.get("title") or "A run of minisgl"
    assert "</script" not in bundle(), "the page holds the module inside a script element"
    data = msgspec.json.encode({**record, "title": title})
    pool = record["keyframe"]
    facts = [count(len(record["deltas"]), "step"), count(pool["num_pages"], "page")]
    page = Template((STATIC / "export.html").read_text("utf-8")).substitute(
        title=escape(title),
        facts=f"{', '.join(facts)} of {count(pool['page_size'], 'token')}",
        styles=styles(),
        record=base64.b64encode(gzip.compress(data, 9, mtime=0)).decode(),
        module=bundle(),
    )
    path.write_text(page, "utf-8", newline="\n")
    return path
