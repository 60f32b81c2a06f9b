"""Views of a running or recorded engine for notebooks: everything draws a Snapshot and nothing else.

``Dashboard(llm)`` drives an engine and shows it live; ``Stage(trace)`` plays a recorded run, ``Replay(trace)`` plays it
without a kernel as well, ``Tour`` with a text that leads through it, ``Quiz`` with questions about it, ``SideBySide``
beside another one on the same clock; ``runs`` are recorded ones that come with the package. ``WhatIf(trace)`` puts a
run under sliders. ``view(snapshot)`` is a picture in text and HTML, and so are ``pool_picture(trace)``,
``batch_strip(trace)``, ``event_log(trace)``, ``life_lines(trace)``, ``Timeline(trace)``, ``page_table(snapshot)``,
``evictions(snapshot, pages)`` and ``compare(a, b)``; ``pool_chart`` and ``admission_chart`` are Plotly figures;
``export_html`` writes a page. A ``Session`` is a run with the step that several of them share.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minisgl_widgets import runs as runs
    from minisgl_widgets.charts import admission_chart as admission_chart
    from minisgl_widgets.charts import pool_chart as pool_chart
    from minisgl_widgets.dashboard import Dashboard as Dashboard
    from minisgl_widgets.export import export_html as export_html
    from minisgl_widgets.page_views import compare as compare
    from minisgl_widgets.page_views import evictions as evictions
    from minisgl_widgets.page_views import life_lines as life_lines
    from minisgl_widgets.page_views import page_table as page_table
    from minisgl_widgets.quiz import Quiz as Quiz
    from minisgl_widgets.replay import Replay as Replay
    from minisgl_widgets.session import Session as Session
    from minisgl_widgets.side_by_side import SideBySide as SideBySide
    from minisgl_widgets.stage import Stage as Stage
    from minisgl_widgets.static_run import pool_picture as pool_picture
    from minisgl_widgets.static_steps import batch_strip as batch_strip
    from minisgl_widgets.static_steps import event_log as event_log
    from minisgl_widgets.static_time import Timeline as Timeline
    from minisgl_widgets.static_views import View as View
    from minisgl_widgets.static_views import view as view
    from minisgl_widgets.tour import Tour as Tour
    from minisgl_widgets.whatif import WhatIf as WhatIf

_HOME = {
    "Dashboard": "dashboard",
    "Quiz": "quiz",
    "Replay": "replay",
    "Session": "session",
    "SideBySide": "side_by_side",
    "Stage": "stage",
    "Timeline": "static_time",
    "Tour": "tour",
    "View": "static_views",
    "WhatIf": "whatif",
    "admission_chart": "charts",
    "batch_strip": "static_steps",
    "compare": "page_views",
    "event_log": "static_steps",
    "evictions": "page_views",
    "export_html": "export",
    "life_lines": "page_views",
    "page_table": "page_views",
    "pool_chart": "charts",
    "pool_picture": "static_run",
    "view": "static_views",
}
__all__ = [*_HOME, "runs"]


def __getattr__(name: str) -> Any:
    """Load what is asked for, so that exporting a page or printing a view needs no notebook packages."""
    if name == "runs":
        return import_module("minisgl_widgets.runs")
    if name not in _HOME:
        raise AttributeError(f"module 'minisgl_widgets' has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"minisgl_widgets.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
