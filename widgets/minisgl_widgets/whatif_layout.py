"""What stands around the lines of WhatIf's picture: axes, titles, marks."""

from __future__ import annotations

from typing import Any

from minisgl_widgets.charts import ON_ANY_PAGE

HEIGHT = 430  # pixels
TAG = {"bgcolor": "#f2f2f2", "font": {"color": "#333333"}, "borderpad": 2}  # reads on light and dark pages alike


def title(x: float, y: float, text: str, more: str) -> dict[str, Any]:
    """Of a panel, above its upper left corner at (x, y), shares of the figure."""
    place = {"x": x, "y": y, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 26}
    return {"text": f"<b>{text}</b> {more}", "showarrow": False, **place}


def upright(at: float, colour: str, dash: str) -> dict[str, Any]:
    """A line through the curve's panel at a position."""
    line = {"color": colour, "dash": dash, "width": 1.5}
    ends = {"x0": at, "x1": at, "y0": 0, "y1": 1, "xref": "x2", "yref": "y3 domain"}
    return {"type": "line", "line": line, "layer": "below", **ends}


def mark(at: int, positions: int, text: str, height: float) -> dict[str, Any]:
    """Beside an upright line, on the side where there is room. High up, where other such lines may run through it, on a
    ground of its own; low down that would hide points of the curve."""
    left, high = at > 0.7 * positions, height > 0.5
    side = {"xanchor": "right" if left else "left", "xshift": -4 if left else 4, "yanchor": "top" if high else "bottom"}
    place = {"x": at, "y": height, "xref": "x2", "yref": "y3 domain", **side}
    return {"text": text, "showarrow": False, "align": "left", **place, **(TAG if high else {})}


def axes() -> dict[str, Any]:
    """The figure's layout: two panels one above the other on the left, the curve on the right."""
    axis = ON_ANY_PAGE["xaxis"]
    high = {"rangemode": "tozero", **axis}
    named = {"text": "", "standoff": 8}
    legend = {"orientation": "h", "yanchor": "bottom", "x": 0, "xanchor": "left", "bgcolor": "rgba(0,0,0,0)"}
    return {
        "template": "none",
        "paper_bgcolor": ON_ANY_PAGE["paper_bgcolor"],
        "plot_bgcolor": ON_ANY_PAGE["plot_bgcolor"],
        "font": ON_ANY_PAGE["font"],
        "height": HEIGHT,
        "autosize": True,
        "margin": {"l": 60, "r": 15, "t": 55, "b": 45},
        "uirevision": "what if",  # a zoom stays while a slider moves
        "xaxis": {
            "domain": [0, 0.55],
            "anchor": "y2",
            "title": named,
            "rangemode": "tozero",
            **axis,
        },
        "yaxis": {"domain": [0.6, 1], "anchor": "x", "title": named, **high},
        "yaxis2": {"domain": [0, 0.4], "anchor": "x", "title": named | {"text": "requests"}, **high},
        "xaxis2": {
            "domain": [0.62, 1],
            "anchor": "y3",
            "title": named,
            **axis,
            "showgrid": False,
        },
        "yaxis3": {"anchor": "x2", **high},
        "legend": {"y": 1.0, **legend},
        "legend2": {"y": 0.4, **legend},
    }
