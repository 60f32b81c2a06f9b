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
from minisgl_widgets.shown import Shown, together
from minisgl_widgets.static_requests import requests_html, requests_text
from minisgl_widgets.static_run import pool_picture
from minisgl_widgets.static_time import Timeline

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
    JupyterLab shows those of a notebook that it does not trust once a cell was run, or the notebook trusted. Behind the
    frame stands the same run without scripts, for whoever drops frames, as GitHub does; the page in the frame, as soon
    as it works, takes that away.
    """

    @abstractmethod
    def content(self) -> Content:
        """What it holds now."""

    @abstractmethod
    def still(self) -> Shown:
        """The same without scripts, for terminals, GitHub and nbconvert; its text's first line says what this is."""

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

    def __repr__(self) -> str:
        return self.still().text

    def _repr_html_(self) -> str:
        return self._framed(self.still())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        still = self.still()
        return {"text/plain": still.text, "text/html": self._framed(still)}

    def _framed(self, still: Shown) -> str:
        page, said = escape(self.html()), escape(still.text.partition("\n")[0])
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        frame = f'<iframe srcdoc="{page}" title="{said}" style="{style}"></iframe>'
        return f'{frame}<div class="msgl-still">{still.html}</div>'


def _record(record: bytes) -> str:
    return f'<script type="text/plain" class="record">{base64.b64encode(record).decode()}</script>'


def facts_of(session: Session) -> str:
    """How long and how large a run is, in words."""
    history = session.history
    pool = history.at(history.first)
    steps, pages = count(len(history.deltas), "step"), count(pool.num_pages, "page")
    return f"{steps}, {pages} of {count(pool.page_size, 'token')}"


def still_of(session: Session) -> Shown:
    """A run without scripts: its pool and its requests over the steps, and what was asked and said."""
    history, timeline = session.history, Timeline(session)
    end = history.at(history.last)
    said = Shown(requests_text(end, session.texts), requests_html(end, session.texts))
    return together(pool_picture(session), Shown(repr(timeline), timeline._repr_html_()), said)
