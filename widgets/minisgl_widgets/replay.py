"""Replay: a recorded run as a cell's output that scrubs without a kernel, wherever the notebook is read."""

from __future__ import annotations

from minisgl_widgets.document import Content, Document, facts_of
from minisgl_widgets.session import Run, Session


class Replay(Document):
    """Show a run for good: ``Replay(trace)`` as a cell's last expression; see ``Document`` for what is stored.

    Args:
        run: a Trace, a History, a Feed or a Session; what it holds when it is shown is what is stored.
        title: shown above the views.
    """

    def __init__(self, run: Run, title: str = "") -> None:
        self.session = Session(run, title=title)

    def content(self) -> Content:
        title = self.session.title or "A run of minisgl"
        return Content(title, facts_of(self.session), [self.session.record()])

    def __repr__(self) -> str:
        history = self.session.history
        return f"Replay(steps {history.first} to {history.last}: {self.session.summary()})"
