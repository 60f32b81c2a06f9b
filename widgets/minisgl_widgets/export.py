"""A recorded run as one HTML file: the same views, no kernel, no network."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from string import Template

from minisgl.events.words import count
from minisgl_widgets.bundle import STATIC, bundle, styles
from minisgl_widgets.session import Run, Session


def export_html(run: Run, path: str | Path, title: str = "") -> Path:
    """Write a run as one HTML file that plays it; the same run gives the same bytes.

    ``#step=17`` at the end of its address opens it at step 17; ``#step=17&req=4`` also holds request 4 (``page=`` and
    ``node=`` likewise), and ``view=chart,events`` chooses what the tabs show. The page writes its own address so.
    """
    path = Path(path)
    path.write_text(page_of(run, title), "utf-8", newline="\n")
    return path


def page_of(run: Run, title: str = "") -> str:
    """The same as a text."""
    session = Session(run, title=title)
    history = session.history
    title = session.title or "A run of minisgl"
    assert "</script" not in bundle(), "the page holds the module inside a script element"
    pool = history.at(history.first)
    facts = [count(len(history.deltas), "step"), count(pool.num_pages, "page")]
    return Template((STATIC / "export.html").read_text("utf-8")).substitute(
        title=escape(title),
        facts=f"{', '.join(facts)} of {count(pool.page_size, 'token')}",
        styles=styles(),
        record=base64.b64encode(session.record()).decode(),
        module=bundle(),
    )
