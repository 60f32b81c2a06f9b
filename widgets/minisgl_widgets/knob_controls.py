"""KnobControls: a slider or a list for every knob of WhatIf, and for what its pictures show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as W

from minisgl_widgets.knobs import AS_RECORDED, Knob, with_value
from minisgl_widgets.panel import WRAPPED, button, named
from minisgl_widgets.whatif_picture import METRICS

SAME_MEMORY = "As many pages as hold the tokens of the recorded pool, whatever the page size."
LABEL = {"description_width": "155px"}


class KnobControls(W.VBox):
    """The browser writes them, and :meth:`put`; ``turned(name)`` is called for what a hand moves, any thread.

    Args:
        knobs: by name; ``knobs`` has them from then on, with the positions that were added.
        turned: called with the name of a knob, or "" for what the pictures show.
        reset, same_memory: what the two buttons do.
    """

    def __init__(
        self,
        knobs: Mapping[str, Knob],
        turned: Callable[[str], object],
        reset: Callable[[], object],
        same_memory: Callable[[], object],
    ) -> None:
        self.knobs = dict(knobs)
        self._turned = turned
        self._putting = False  # several are being set as one change
        self.each = {name: _slider(knob) if knob.ordered else _choice(knob) for name, knob in knobs.items()}
        self.metric = W.Dropdown(
            options=[(label, name) for name, (label, *_) in METRICS.items()],
            **named("curve", "What the curve on the right shows, over the setting that was moved last."),
            style={"description_width": "60px"},
            layout=W.Layout(width="330px"),
        )
        self.axis = W.Dropdown(
            options=[("modelled time", "t"), ("steps, which are exact", "step")],
            **named("runs over", "The axis of the two pictures on the left."),
            style={"description_width": "80px"},
            layout=W.Layout(width="270px"),
        )
        for name, control in {**self.each, "": self.metric}.items():
            control.observe(lambda _, name=name: self._moved(name), "value")
        self.axis.observe(lambda _: self._moved(""), "value")
        sliders = [_with_record(knob, self.each[name]) for name, knob in knobs.items() if knob.ordered]
        choices = [self.each[name] for name, knob in knobs.items() if not knob.ordered]
        buttons = [
            button("Reset", "undo", "90px", "Everything as recorded.", reset),
            button("Same memory", "balance-scale", "140px", SAME_MEMORY, same_memory),
        ]
        super().__init__(
            [
                W.HBox([W.VBox(sliders), W.VBox(choices)], layout=W.Layout(flex_flow="row wrap")),
                W.HBox([*buttons, self.axis, self.metric], layout=W.Layout(**WRAPPED)),
            ]
        )

    def _moved(self, name: str) -> None:
        if not self._putting:
            self._turned(name)

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the record."""
        values = {name: control.value for name, control in self.each.items()}
        return {n: v for n, v in values.items() if v != self.knobs[n].recorded}

    def put(self, values: Mapping[str, Any]) -> None:
        """Set some, and call nobody; a slider gets a position for a value that it does not have yet."""
        self._putting = True
        try:
            for name, value in values.items():
                knob, control = self.knobs[name], self.each[name]
                if value not in knob.values:
                    self.knobs[name] = knob = replace(knob, values=with_value(knob.values, value))
                    control.options = _options(knob)
                control.value = value
        finally:
            self._putting = False


def _slider(knob: Knob) -> W.SelectionSlider:
    slider = W.SelectionSlider(
        options=_options(knob),
        value=knob.recorded,
        **named(knob.name, knob.tooltip),
        style=LABEL,
        layout=W.Layout(width="410px"),
    )
    slider.add_class("msgl-knob")
    return slider


def _with_record(knob: Knob, slider: W.SelectionSlider) -> W.HBox:
    said = W.HTML(f'<span style="opacity: 0.75">recorded: {escape(knob.say(knob.recorded))}</span>')
    return W.HBox([slider, said], layout=W.Layout(align_items="center"))


def _choice(knob: Knob) -> W.Dropdown:
    return W.Dropdown(
        options=[
            (said + " (recorded)" * (value == knob.recorded != AS_RECORDED), value) for said, value in _options(knob)
        ],
        value=knob.recorded,
        **named(knob.name, knob.tooltip),
        style={"description_width": "85px"},
        layout=W.Layout(width="265px"),
    )


def _options(knob: Knob) -> list[tuple[str, Any]]:
    return [(knob.say(value), value) for value in knob.values]
