"""A recorded run as one HTML file: the same views, no kernel, no network."""

from __future__ import annotations

from pathlib import Path

from minisgl_widgets.replay import Replay
from minisgl_widgets.session import Run


def export_html(run: Run, path: str | Path, title: str = "") -> Path:
    """Write a run as one HTML file that plays it; the same run gives the same bytes.

    ``#step=17`` at the end of its address opens it at step 17; ``#step=17&req=4`` also holds request 4 (``page=`` and
    ``node=`` likewise), and ``view=chart,events`` chooses what the tabs show. The page writes its own address so.
    """
    return Replay(run, title).export_html(path)
