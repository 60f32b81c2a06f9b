"""Panel: widgets in a column that are closed together, and that leave something to read without a browser."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as W
from IPython.display import DisplayHandle

WRAPPED = {"flex_flow": "row wrap", "align_items": "center"}  # layout of a row that goes on in the next line


class Panel(W.VBox):
    """Base of Dashboard and WhatIf. ``repr`` and ``_repr_html_`` are what a notebook stores of it."""

    closed = True  # until it is made: what could not be made has nothing to close
    _shown: tuple[DisplayHandle, ...] = ()  # where notebooks show it

    @abstractmethod
    def _end(self) -> None:
        """Stop what works for the panel, before its widgets go."""

    @abstractmethod
    def _last_words(self) -> str:
        """What stands where it was once it is closed: one line."""

    @abstractmethod
    def _repr_html_(self) -> str:
        """What is shown where widgets are not."""

    def close(self) -> None:
        """Stop what works for it and remove the widgets. Where they were shown one line says so."""
        if self.closed:
            return
        self.closed = True
        self._end()
        for widget in every_widget(self):
            if widget is not self:
                widget.close()
        super().close()
        for output in self._shown:  # else an empty box would stay there
            output.update({"text/plain": self._last_words()}, raw=True)

    def _ipython_display_(self) -> None:
        """A cell's result could not be changed later on; an output with a name can."""
        output = DisplayHandle()
        output.display(self._still() if self.closed else self._repr_mimebundle_(), raw=True)
        self._shown += (output,)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict:
        return (super()._repr_mimebundle_(**kwargs) or {}) | self._still()

    def _still(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


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
