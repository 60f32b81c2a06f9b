"""Breakpoint: what a run is to stop at, chosen from a list, with a number where one is needed."""

from __future__ import annotations

from typing import Any

import ipywidgets as W

from minisgl_widgets.panel import named

NUMBER = "{n}"
CHOICES = {  # what the list says -> the condition, as ``minisgl.events.until`` reads it
    "all are done": "",
    "a refusal": "refusal",
    "an admission": "admission",
    "a hit": "hit",
    "an eviction": "eviction",
    "a split": "split",
    "a handoff": "handoff",
    "a retraction": "retract",
    "a drain": "drain",
    "a finish": "finish",
    "free pages < n": f"free < {NUMBER}",
    "promised pages > n": f"promised > {NUMBER}",
    "requests waiting > n": f"waiting > {NUMBER}",
    "step n": f"step {NUMBER}",
    "request n ends": f"finish of request {NUMBER}",
}


class Breakpoint(W.HBox):
    """A list and a number; ``condition`` is what they say, None for "all are done"."""

    def __init__(self) -> None:
        self.choice = W.Dropdown(
            options=list(CHOICES.items()),
            **named("until", "Run stops at the end of the step in which this happens."),
            layout=W.Layout(width="230px"),
            style={"description_width": "40px"},
        )
        # always there, so that nothing moves; it can be written into where it counts
        self.number = W.BoundedIntText(8, min=0, max=1 << 30, disabled=True, tooltip="n", layout=W.Layout(width="80px"))
        self.choice.observe(self._chosen, "value")
        super().__init__([self.choice, self.number])

    def _chosen(self, change: Any) -> None:
        self.number.disabled = NUMBER not in change["new"]

    @property
    def condition(self) -> str | None:
        return self.choice.value.replace(NUMBER, str(self.number.value)) or None
