"""LiveSettings: the engine's settings that can change in the middle of a run, each a list to choose from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as W

from minisgl.config import CHOICES, EngineConfig
from minisgl_widgets.knobs import TOOLTIPS
from minisgl_widgets.panel import named

NAMES = {
    "order": CHOICES["order"],
    "admission": ("conservative", "optimistic"),
    "eviction": CHOICES["eviction"],
    "phase": CHOICES["phase"],
}


class LiveSettings(W.HBox):
    """``change(name=value)`` is called for what a hand chooses, never for what :meth:`show` sets."""

    def __init__(self, config: EngineConfig, change: Callable[..., Any]) -> None:
        self._change = change
        self._showing = False
        self.controls = {
            name: W.Dropdown(
                options=_options(name, getattr(config, name)),
                value=getattr(config, name),
                **named(name, TOOLTIPS[name]),
                layout=W.Layout(width="205px"),
                style={"description_width": "70px"},
            )
            for name in NAMES
        }
        for name, control in self.controls.items():
            control.observe(lambda change, name=name: self._chosen(name, change["new"]), "value")
        super().__init__(list(self.controls.values()), layout=W.Layout(flex_flow="row wrap"))

    def _chosen(self, name: str, value: Any) -> None:
        if not self._showing:
            self._change(**{name: value})

    def show(self, config: EngineConfig) -> None:
        """Say how the engine is set."""
        self._showing = True
        try:
            for name, control in self.controls.items():
                value = getattr(config, name)
                if control.value != value:
                    control.options = _options(name, value)
                    control.value = value
        finally:
            self._showing = False


def _options(name: str, value: Any) -> list[tuple[str, Any]]:
    """What can be chosen; a share of max_tokens, which only code sets, is among it while it holds."""
    return [(str(v), v) for v in dict.fromkeys((*NAMES[name], value))]
