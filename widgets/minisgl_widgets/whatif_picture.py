"""The picture of WhatIf: pool and queues of two runs over time, and the curve over the setting in hand.

One Plotly figure for all of it, because each one that is made costs a browser five megabytes. It is drawn on nothing
and written in a grey that reads on light and dark pages alike, since Plotly does not follow the page's theme.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from minisgl.config import EngineConfig
from minisgl.errors import ConfigError
from minisgl.events.words import count
from minisgl.sim.outcome import Outcome
from minisgl.sim.whatif import cliff_at
from minisgl_widgets import palette
from minisgl_widgets.charts import ON_ANY_PAGE
from minisgl_widgets.knobs import Knob
from minisgl_widgets.whatif_layout import axes, mark, title, upright

POINTS = 300  # of a line: twice as many are drawn at most, the least and the most of each stretch
TICKS = 7  # values named under the curve, about
GHOST = {"color": palette.GHOST, "width": 1.3}

METRICS = {  # what the curve can show: figure -> name, tick format, unit after a tick
    "ttft_mean": ("mean time to first token", "", " s"),
    "ttft_p95": ("time to first token, 95th percentile", "", " s"),
    "queue_time_mean": ("mean queue time", "", " s"),
    "tpot_mean": ("mean time per further token", "", " s"),
    "hit_rate": ("prompt tokens found in the cache", ".0%", ""),
    "output_throughput": ("output tokens per second", "", ""),
    "duration": ("the whole run", "", " s"),
    "retractions": ("retractions", "", ""),
}
AXES = {"t": "modelled seconds", "step": "steps"}
# lines over time: panel, name, column of Outcome.curve, how the run that is tried looks
LINES = (
    ("pool", "occupied", "occupied", {"color": palette.UIDS[0], "width": 2.5}),
    ("pool", "occupied or promised", "spoken_for", {"color": palette.UIDS[5], "width": 2, "dash": "dot"}),
    ("queue", "running", "running", {"color": palette.UIDS[0], "width": 2.5}),
    ("queue", "waiting", "waiting", {"color": palette.UIDS[5], "width": 2, "dash": "dot"}),
)


class Point(NamedTuple):
    """One value of the setting in hand, and what comes of it: its figures, why it cannot be, None: not known yet."""

    value: Any
    came_out: dict[str, Any] | ConfigError | None

    @property
    def figures(self) -> dict[str, Any] | None:
        return self.came_out if isinstance(self.came_out, dict) else None


class Picture:
    """Draws two outcomes and a curve into ``widget``; only one thread may call it."""

    def __init__(self) -> None:
        places = {"pool": {"xaxis": "x", "yaxis": "y", "legend": "legend"}}
        places["queue"] = {"xaxis": "x", "yaxis": "y2", "legend": "legend2"}
        traces: list[Any] = []
        self._at: dict[tuple[str, str], int] = {}  # (line, whose) -> trace

        def add(line: str, whose: str, /, **how: Any) -> None:
            self._at[line, whose] = len(traces)
            traces.append(go.Scatter(x=[], y=[], **how))

        for panel, name, column, look in LINES:  # the ghosts lie below
            ghost = GHOST | ({"dash": look["dash"]} if "dash" in look else {})
            add(
                column,
                "before",
                name=f"{name}, as recorded",
                mode="lines",
                line=ghost,
                showlegend=False,
                **places[panel],
            )
        for panel, name, column, look in LINES:
            add(column, "after", name=name, mode="lines", line=look, **places[panel])
        ends = {"mode": "lines", "hoverinfo": "skip", **places["pool"]}
        add("pool", "before", name="pool, as recorded", line=GHOST | {"dash": "longdash"}, showlegend=False, **ends)
        add("pool", "after", name="the pool", line={"color": ON_ANY_PAGE["font"]["color"], "width": 2}, **ends)
        curve = {"xaxis": "x2", "yaxis": "y3", "showlegend": False}
        blue = {"color": palette.UIDS[0], "width": 2}
        add("curve", "all", name="curve", mode="lines+markers", line=blue, marker={"size": 5}, **curve)
        cross = {"symbol": "x", "size": 8, "color": palette.UIDS[5]}
        add("curve", "refusing", name="some requests are refused", mode="markers", marker=cross, **curve)
        none = {"symbol": "line-ns-open", "size": 12, "color": ON_ANY_PAGE["font"]["color"], "line": {"width": 2}}
        look = {"mode": "markers", "marker": none, "hovertemplate": "%{text}<extra>cannot be</extra>"}
        add("curve", "impossible", name="cannot be", text=[], **look, **curve)
        here = {"symbol": "diamond", "size": 15, "color": palette.UIDS[1], "line": {"width": 2, "color": "#000"}}
        add("curve", "here", name="now", mode="markers", marker=here, **curve)
        self.widget = go.FigureWidget(traces, axes())
        self.widget._config = {"displayModeBar": False}  # it would lie on the title; a double click ends a zoom

    def _trace(self, line: str, whose: str) -> Any:
        return self.widget.data[self._at[line, whose]]

    def _draw(self, lines: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]], around: dict[str, Any]) -> None:
        """Draw lines, x and y, and what stands around them, in one message.

        All of each line, changed or not: in a batch of Plotly's own, x of one line and y of another, the browser loses
        the first one's y.
        """
        x, y = zip(*lines.values(), strict=True)
        self.widget.plotly_update({"x": list(x), "y": list(y)}, around, [self._at[line] for line in lines])

    def draw_runs(
        self, before: Outcome, base: EngineConfig, after: Outcome, config: EngineConfig, axis: str = "t"
    ) -> None:
        """Both runs over time or over steps. Pages are those of the run that is tried, so that heights compare."""
        scale = base.page_size / config.page_size
        assert base.num_pages is not None and config.num_pages is not None
        lines: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        end = 0.0
        for whose, outcome, pages in (("before", before, scale), ("after", after, 1.0)):
            curve = outcome.curve
            x = curve[axis].astype(np.float64)
            end = max(end, float(x[-1]) if len(x) else 0.0)
            spoken_for = curve.occupied + curve.promised
            for panel, _, column, _ in LINES:
                y = (spoken_for if column == "spoken_for" else curve[column]) * (pages if panel == "pool" else 1.0)
                kept = thin(y)
                lines[column, whose] = x[kept], y[kept]
        for whose, high in (("before", base.num_pages * scale), ("after", float(config.num_pages))):
            lines["pool", whose] = np.array([0.0, end]), np.array([high, high])
        size = f"pages of {count(config.page_size, 'token')}"
        self._draw(lines, {"yaxis.title.text": size, "xaxis.title.text": AXES[axis]})
        self._trace("pool", "after").name = f"the pool: {config.num_pages} pages"

    def draw_curve(self, knob: Knob, points: Sequence[Point], here: Any, metric: str) -> None:
        """The curve as far as it is known: a point for each position of the slider, the cliff once all are.

        A value that cannot be has a mark on the axis, which says why when it is pointed at.
        """
        label, form, unit = METRICS[metric]
        known = [(i, p.figures) for i, p in enumerate(points) if p.figures is not None]
        fewest = min((f["refused"] for _, f in known), default=0)
        heights = [(i, 0.0 if math.isnan(f[metric]) else f[metric], f["refused"] > fewest) for i, f in known]
        served = [(i, y) for i, y, refuses in heights if not refuses]
        refusing = [(i, y) for i, y, refuses in heights if refuses]
        impossible = [(i, str(p.came_out)) for i, p in enumerate(points) if isinstance(p.came_out, ConfigError)]
        settled = len(known) + len(impossible)
        complete = settled == len(points)
        values = [p.value for p in points]
        now = values.index(here)
        shapes, notes = (
            [],
            [title(0.0, 1.0, "The pool", "grey: as recorded"), title(0.0, 0.4, "The queue", "grey: as recorded")],
        )
        notes.append(title(0.62, 1.0, f"{label[:1].upper()}{label[1:]}", f"over {knob.name}"))
        shapes.append(upright(values.index(knob.recorded), palette.GHOST, "longdash"))
        notes.append(mark(values.index(knob.recorded), len(values), "as recorded", 0.93))
        cliff = cliff_at([f for _, f in known]) if complete and knob.ordered else None
        if cliff is not None:
            at, beside = (known[i][0] for i in cliff)
            shapes.append(upright(at, palette.UIDS[5], "solid"))
            low, high = (values[i] for i in sorted((at, beside)))
            notes.append(
                mark(at, len(values), f"<b>cliff: between<br>{knob.short(low)} and {knob.say(high)}</b>", 0.83)
            )
        if refusing:
            notes.append(mark(refusing[0][0], len(values), "✕ requests are refused", 0.07))
        if impossible:
            notes.append(mark(impossible[0][0], len(values), "| cannot be", 0.15 if refusing else 0.07))
        every = max(1, math.ceil(len(values) / TICKS))
        ticks = [i for i in range(len(values)) if (len(values) - 1 - i) % every == 0]
        kinds = {
            "all": served,
            "refusing": refusing,
            "impossible": [(i, 0.0) for i, _ in impossible],
            "here": [(i, y) for i, y, _ in heights if i == now],
        }
        around = {
            "xaxis2.tickvals": ticks,
            "xaxis2.ticktext": [knob.short(values[i]) for i in ticks],
            "xaxis2.range": [-0.5, len(values) - 0.5],
            "xaxis2.title.text": knob.name + ("" if complete else f" ({settled} of {len(points)} computed)"),
            "yaxis3.tickformat": form,
            "yaxis3.ticksuffix": unit,
        }
        self._draw({("curve", kind): _xy(found) for kind, found in kinds.items()}, around)
        with self.widget.batch_update():  # of the layout alone
            self.widget.layout.shapes, self.widget.layout.annotations = shapes, notes
        self._trace("curve", "impossible").text = [why for _, why in impossible]
        self._trace("curve", "all").mode = "lines+markers" if knob.ordered else "markers"


def thin(y: np.ndarray) -> np.ndarray:
    """Which points of a line to draw: the least and the most of each stretch, so that no peak is lost."""
    n = len(y)
    if n <= 2 * POINTS:
        return np.arange(n)
    edges = np.linspace(0, n, POINTS + 1).astype(int)
    picks = [f(y[a:b]) + a for a, b in pairwise(edges) for f in (np.argmin, np.argmax)]
    return np.unique([0, *picks, n - 1])


def _xy(points: Sequence[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p[0] for p in points], dtype=np.float64), np.array([p[1] for p in points], dtype=np.float64)
