"""Replay: a recorded run as a cell's output that scrubs without a kernel, wherever the notebook is read."""

from __future__ import annotations

from html import escape
from typing import Any

from minisgl_widgets.export import page_of
from minisgl_widgets.session import Run, Session

HEIGHT = 900  # pixels, until the page inside has measured itself


class Replay:
    """Show a run for good: ``Replay(trace)`` as a cell's last expression.

    What a notebook stores is the whole page that ``export_html`` writes, in a frame: it plays in a notebook that is
    opened again without a kernel, in what nbconvert makes of it, and on a colleague's machine. A frame asks for trust:
    JupyterLab shows those of a notebook that it does not trust once a cell was run, or the notebook trusted.

    Args:
        run: a Trace, a History, a Feed or a Session; what it holds when it is shown is what is stored.
        title: shown above the views.
    """

    def __init__(self, run: Run, title: str = "") -> None:
        self.session = Session(run, title=title)

    def __repr__(self) -> str:
        history = self.session.history
        return f"Replay(steps {history.first} to {history.last}: {self.session.summary()})"

    def _repr_html_(self) -> str:
        page, said = escape(page_of(self.session)), escape(repr(self))
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe srcdoc="{page}" title="{said}" style="{style}">{said}</iframe>'

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
