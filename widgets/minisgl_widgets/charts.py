"""Plotly figures for notebooks: small, the same bytes each time, so that a test compares the numbers in them.

Each carries its numbers as text and plain HTML as well, for whoever does not draw Plotly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl.events.types import AdmissionTested
from minisgl_widgets import palette
from minisgl_widgets.static_decisions import ledger, tests_of
from minisgl_widgets.static_run import counters, pool_picture

if TYPE_CHECKING:
    from minisgl_widgets.still_figure import StillFigure

AREAS = {  # of the pool chart, from the bottom up: counter -> name, colour
    "owned_pages": ("owned by requests", palette.KINDS["owned"]),
    "protected_pages": ("cached, locked", palette.KINDS["protected"]),
    "evictable_pages": ("cached, evictable", palette.KINDS["evictable"]),
    "free_pages": ("free", palette.KINDS["free"]),
}
# Plotly does not follow the page's theme: no background, and a grey that reads on white and on JupyterLab's black.
_GREY = {"gridcolor": "rgba(128,128,128,0.3)", "linecolor": palette.GREY, "zerolinecolor": palette.GREY}
ON_ANY_PAGE: dict[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"color": palette.GREY},
    "xaxis": _GREY,
    "yaxis": _GREY,
}
TEST_GAP = 0.5  # between the bars of two tests, in bars
BAR_HEIGHT = 22  # pixels
CHART_EDGES = 130  # pixels above and below the bars


def pool_chart(run: Trace | History, scheduled: bool = False, title: str = "") -> StillFigure:
    """Who has the pages, over the steps, stacked to the whole pool; the line is what is taken or promised."""
    from minisgl_widgets.still_figure import StillFigure

    data = counters(run, scheduled)
    chart = StillFigure(layout=_layout(title or "Pages over the steps", "step", "pages"))
    for name, (label, colour) in AREAS.items():
        line = {"width": 1, "color": palette.LINE, "shape": "hv"}
        chart.add_scatter(
            x=data["step"], y=data[name], name=label, stackgroup="pool", mode="lines", line=line, fillcolor=colour
        )
    taken = ("owned_pages", "protected_pages", "reserved_pages", "pending_pages")  # pending ones can be had again
    spoken_for = [a + b + c - d for a, b, c, d in zip(*(data[name] for name in taken), strict=True)]
    line = {"color": palette.BAD, "width": 2, "dash": "dot", "shape": "hv"}
    chart.add_scatter(x=data["step"], y=spoken_for, name="owned, locked or promised", mode="lines", line=line)
    return chart.with_still(pool_picture(run, scheduled))


def admission_chart(tests: Snapshot | Iterable[AdmissionTested], title: str = "") -> StillFigure:
    """Every test's inequality as bars, one below the other: what is asked, what is to be had, and that once the prefix
    is locked. Each test has its own bars, also when a request is tested again in a later step."""
    from minisgl_widgets.still_figure import StillFigure

    listed = tests_of(tests) if isinstance(tests, Snapshot) else list(tests)
    labels: list[str] = []
    places: list[float] = []  # the bars of one test stand together
    parts: dict[str, list[int]] = {name: [] for name in palette.LEDGER}
    for number, t in enumerate(t for t in listed if t.need is not None):
        verdict = "admitted" if t.verdict == "admitted" else "waits"
        bars: list[tuple[str, dict[str, Any]]] = [
            (f"request {t.uid}, step {t.step} ({verdict}): asked", {"need": t.need, "promised": t.reserved}),
            ("to be had", {"free": t.free, "evictable": t.evictable, "pending": t.pending}),
        ]
        if t.evictable_locked is not None:
            locked = {"free": t.free, "evictable": t.evictable_locked, "pending": t.pending}
            bars.append(("once locked", locked))
        for label, values in bars:
            places.append(len(places) + number * TEST_GAP)
            labels.append(label)
            for name in parts:
                parts[name].append(values.get(name) or 0)
    last = places[-1] if places else 0.0
    chart = StillFigure(layout=_layout(title or "Admission", "pages", "") | {"barmode": "stack", "bargap": 0.15})
    chart.layout.height = CHART_EDGES + round(BAR_HEIGHT * (last + 1))
    chart.layout.yaxis = {"tickvals": places, "ticktext": labels, "range": [last + 0.5, -0.5], "automargin": True}
    chart.layout.yaxis.update(ticks="outside", ticklen=6, tickcolor=palette.LINE, zeroline=False)
    chart.layout.legend.traceorder = "normal"
    chart.layout.xaxis.rangemode = "tozero"
    for name, widths in parts.items():
        if any(widths):
            text = [v or "" for v in widths]
            bar = {"text": text, "textangle": 0, "textposition": "inside", "constraintext": "none"}
            chart.add_bar(x=widths, y=places, orientation="h", width=0.85, name=name, marker=_bar(name), **bar)
    return chart.with_still(ledger(listed))


def _bar(name: str) -> dict[str, Any]:
    return {"color": palette.LEDGER[name], "line": {"color": palette.LINE, "width": 1}}


def _layout(title: str, x: str, y: str) -> dict[str, Any]:
    """Plain axes and no template: a template is seven kilobytes in every notebook."""
    return ON_ANY_PAGE | {
        "template": "none",
        "title": {"text": title},
        "xaxis": {"title": {"text": x}, **ON_ANY_PAGE["xaxis"]},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero", **ON_ANY_PAGE["yaxis"]},
        "height": 320,
        "margin": {"l": 50, "r": 10, "t": 70, "b": 60},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)"},
    }
