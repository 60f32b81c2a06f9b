"""Document: recorded runs with something around them as one HTML page, for a file or a cell. No kernel, no network."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from minisgl.events.words import count
from minisgl_widgets.bundle import STATIC, bundle, styles
from minisgl_widgets.session import Session

HEIGHT = 900  # pixels of a frame, until the page inside has measured itself


class Content(NamedTuple):
    """What a document holds.

    ``records`` are binary, see ``minisgl_widgets.record``; each gets a stage. ``facts`` is a sentence about them.
    ``panel`` is what stands around the stages, plain JSON: its ``kind`` is a class in ``static/panels.js``.
    """

    title: str
    facts: str
    records: Sequence[bytes]
    panel: Mapping[str, Any] | None = None


class Document(ABC):
    """Base of whatever is shown for good: a subclass says what it holds, and its ``repr`` what it is.

    What a notebook stores is the whole page that ``export_html`` writes, in a frame: it works in a notebook that is
    opened again without a kernel, in what nbconvert makes of it, and on a colleague's machine. A frame asks for trust:
    JupyterLab shows those of a notebook that it does not trust once a cell was run, or the notebook trusted.
    """

    @abstractmethod
    def content(self) -> Content:
        """What it holds now."""

    def html(self) -> str:
        """The page; the same content gives the same text."""
        content = self.content()
        assert "</script" not in bundle(), "the page holds the module inside a script element"
        return Template((STATIC / "export.html").read_text("utf-8")).substitute(
            title=escape(content.title),
            facts=escape(content.facts),
            styles=styles(),
            records="\n".join(map(_record, content.records)),
            panel=json.dumps(content.panel, ensure_ascii=False).replace("<", "\\u003c"),
            module=bundle(),
        )

    def export_html(self, path: str | Path) -> Path:
        """Write the page as one HTML file."""
        path = Path(path)
        path.write_text(self.html(), "utf-8", newline="\n")
        return path

    def _repr_html_(self) -> str:
        page, said = escape(self.html()), escape(repr(self))
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe srcdoc="{page}" title="{said}" style="{style}">{said}</iframe>'

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _record(record: bytes) -> str:
    return f'<script type="text/plain" class="record">{base64.b64encode(record).decode()}</script>'


def facts_of(session: Session) -> str:
    """How long and how large a run is, in words."""
    history = session.history
    pool = history.at(history.first)
    steps, pages = count(len(history.deltas), "step"), count(pool.num_pages, "page")
    return f"{steps}, {pages} of {count(pool.page_size, 'token')}"
