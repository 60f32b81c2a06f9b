"""Replay: a recorded run as a cell's output that scrubs without a kernel, wherever the notebook is read."""

from __future__ import annotations

from html import escape

from minisgl_widgets.document import Content, Document, facts_of, still_of
from minisgl_widgets.session import Run, Session
from minisgl_widgets.shown import Shown, together


class Replay(Document):
    """Show a run for good: ``Replay(trace)`` as a cell's last expression; see ``Document`` for what is stored.

    Args:
        run: a Trace, a History, a Feed or a Session; what it holds when it is shown is what is stored.
        title: shown above the views.
    """

    def __init__(self, run: Run, title: str = "") -> None:
        self.session = Session(run, title=title)

    @property
    def title(self) -> str:
        return self.session.title or "A run of minisgl"

    def content(self) -> Content:
        return Content(self.title, facts_of(self.session), [self.session.record()])

    def still(self) -> Shown:
        history = self.session.history
        what = f"Replay(steps {history.first} to {history.last}: {self.session.summary()})"
        head = f"<p><b>{escape(self.title)}</b><br>{escape(what)}</p>"
        return together(Shown(what, head), still_of(self.session))
