"""Panel: widgets in a column that are closed together, and that leave something to read without a browser."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as W

WRAPPED = {"flex_flow": "row wrap", "align_items": "center"}  # layout of a row that goes on in the next line


class Panel(W.VBox):
    """Base of Dashboard and WhatIf. ``repr`` and ``_repr_html_`` are what a notebook stores of it."""

    closed = True  # until it is made: what could not be made has nothing to close

    @abstractmethod
    def _end(self) -> None:
        """Stop what works for the panel, before its widgets go."""

    @abstractmethod
    def _repr_html_(self) -> str:
        """What is shown where widgets are not."""

    def close(self) -> None:
        """Stop what works for it and remove the widgets."""
        if self.closed:
            return
        self.closed = True
        self._end()
        for widget in every_widget(self):
            if widget is not self:
                widget.close()
        super().close()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict:
        shown = super()._repr_mimebundle_(**kwargs) or {}
        return shown | {"text/plain": repr(self), "text/html": self._repr_html_()}


def named(name: str, tooltip: str) -> dict[str, Any]:
    """How a control is named, with a sentence for whoever points at the name.

    A control's own ``tooltip`` would not do: in a browser only controls without a name show theirs.
    """
    description = f'<span title="{escape(tooltip)}">{escape(name)}</span>'
    return {"description": description, "description_allow_html": True, "tooltip": tooltip}


def button(label: str, icon: str, width: str, tooltip: str, act: Callable[[], object], style: str = "") -> W.Button:
    made = W.Button(description=label, icon=icon, button_style=style, tooltip=tooltip, layout={"width": width})
    made.on_click(lambda _: act())
    return made


def every_widget(top: W.Widget) -> list[W.Widget]:
    """A widget and all that belongs to it: children, and the layouts and styles they bring."""
    found: list[W.Widget] = []
    waiting = [top]
    while waiting:
        widget = waiting.pop()
        if widget in found:
            continue
        found.append(widget)
        waiting += getattr(widget, "children", ())
        parts = (getattr(widget, "layout", None), getattr(widget, "style", None))
        waiting += [part for part in parts if isinstance(part, W.Widget)]  # a figure's layout is none
    return found
