"""A Plotly figure that says something where Plotly is not: on GitHub, in what nbconvert makes, in a terminal."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from minisgl_widgets.shown import Shown, heading, together


class StillFigure(go.Figure):
    """A figure with ``still``, the same numbers without scripts; whoever shows it takes the richest form they can."""

    still: Shown | None = None
    _ipython_display_ = None  # Plotly's own would show the figure alone

    def with_still(self, still: Shown) -> StillFigure:
        """The figure itself, with a still under its title."""
        self.still = together(heading(self.layout.title.text), still)
        return self

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        figure = super()._repr_mimebundle_(*args, **kwargs)
        return {"text/plain": self.still.text, "text/html": self.still.html} | figure if self.still else figure
