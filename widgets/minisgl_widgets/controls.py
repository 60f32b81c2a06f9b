"""Controls: the fields, buttons and lines above a dashboard's views."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets as W

from minisgl.config import EngineConfig
from minisgl.core import SamplingParams
from minisgl_widgets import palette
from minisgl_widgets.breakpoint import Breakpoint
from minisgl_widgets.live_settings import LiveSettings
from minisgl_widgets.panel import WRAPPED, button, every_widget, named

Prompt = str | Sequence[int]

SPEEDS = (1, 2, 5, 10, 20, 50)  # steps per second; the slider's top has no limit
BUTTONS = {  # label -> icon, width, tooltip
    "Run": ("play", "90px", "Idle: submit the prompts in the box, then step until all are done. Otherwise: go on."),
    "Step": (
        *("step-forward", "90px"),
        "One step of the engine. If it is idle, the prompts in the box are submitted first.",
    ),
    "Pause": (
        "pause",
        "90px",
        "Stop after the step at hand; Run or Step goes on from there. A fork that is on its way begins there.",
    ),
    "Add": ("plus", "90px", "Submit the prompts in the box without running; they take effect in the next step."),
    "Fork from here": (
        *("code-fork", "140px"),
        "Take the engine back to the step that the views show: everything up to it is computed again as it was. There "
        "it waits, for other settings or prompts.",
    ),
    "Verify": ("check", "90px", "Run the record again without the model and compare, event for event."),
}

# mixed with the page's own ink, so that it reads on light and dark pages alike
RED = f"color-mix(in srgb, var(--jp-error-color1, {palette.BAD}) 75%, currentColor)"
ALERT = f"color: {RED}; font-weight: bold; line-height: 1.4"
NOTICES = 100  # pixels: one line of how things are and two messages of two lines, where a notebook is 850 wide


class Controls:
    """The browser writes the fields, one thread the two lines; none has two writers.

    Args:
        config: the engine's.
        acts: what each of ``BUTTONS`` does.
        change: what a setting that was chosen does, ``change(order="lpm")``.
        set_rate: what the speed slider does, with steps per second.
        prompts, max_tokens, temperature, ignore_eos, speed: what the fields hold at first.
    """

    def __init__(
        self,
        config: EngineConfig,
        acts: Mapping[str, Callable[[], Any]],
        change: Callable[..., Any],
        set_rate: Callable[[float], Any],
        prompts: Sequence[Prompt],
        max_tokens: int,
        temperature: float,
        ignore_eos: bool,
        speed: float | None,
    ) -> None:
        self.prompts = W.Textarea(
            "\n".join(p if isinstance(p, str) else json.dumps(list(p)) for p in prompts),
            rows=max(3, min(8, len(prompts))),
            layout=W.Layout(width="auto", flex="1 1 auto"),
            tooltip="One prompt per line; a line like [1, 2, 3] is token ids; empty lines are left out.",
        )
        narrow = {"layout": W.Layout(width="190px"), "style": {"description_width": "100px"}}
        self.max_tokens = W.IntText(max_tokens, **named("max_tokens", "New tokens at most."), **narrow)
        self.temperature = W.FloatText(
            temperature, **named("temperature", "0: always the most probable token."), step=0.1, **narrow
        )
        self.ignore_eos = W.Checkbox(
            ignore_eos, **named("ignore_eos", "Do not stop at the model's end tokens."), indent=False
        )
        options = [*((f"{s} step{'' if s == 1 else 's'}/s", s) for s in sorted({*SPEEDS, *([speed] if speed else [])}))]
        self.speed = W.SelectionSlider(
            options=[*options, ("as fast as it goes", math.inf)],
            value=speed or math.inf,
            **named("speed", "Steps a second at most."),
            continuous_update=False,
            layout=W.Layout(width="340px"),
            style={"description_width": "45px"},
        )
        self.speed.observe(lambda change: set_rate(change["new"]), "value")
        self.buttons = {label: button(label, *BUTTONS[label], acts[label]) for label in BUTTONS}
        self.buttons["Run"].button_style = "primary"
        self.until = Breakpoint()
        self.settings = LiveSettings(config, change)
        # as high as they need, in a box that keeps its height, so that the views do not move when there is more to say
        lines = {"margin": "0", "height": "auto", "flex": "0 0 auto"}
        self.status, self.error = W.HTML(layout=W.Layout(**lines)), W.HTML(layout=W.Layout(**lines))
        notices = W.VBox([self.status, self.error], layout=W.Layout(height=f"{NOTICES}px", overflow="auto"))
        fields = W.VBox([self.max_tokens, self.temperature, self.ignore_eos])
        run, step, pause, add, fork, verify = self.buttons.values()
        controls = W.HBox([run, self.until, step, pause, add, self.speed], layout=W.Layout(**WRAPPED))
        aside = W.HBox([fork, verify, self.settings], layout=W.Layout(**WRAPPED))
        self.rows = [W.HBox([self.prompts, fields]), controls, aside, notices]
        for row in self.rows:
            row.add_class("msgl-controls")  # so that they look dead once their kernel is gone

    def form(self) -> tuple[list[Prompt], SamplingParams]:
        """What the fields say now: prompts, one per line, and the parameters for all of them."""
        params = SamplingParams(
            max_tokens=self.max_tokens.value,
            temperature=self.temperature.value,
            ignore_eos=self.ignore_eos.value,
        )
        return [read_prompt(line) for line in self.prompts.value.splitlines() if line.strip()], params

    def say(self, status: str, title: str, errors: Sequence[str]) -> None:
        """Write the two: HTML of how things are, what it says in full, and texts of what is wrong."""
        self.status.value = f'<div role="status" style="line-height: 1.4" title="{escape(title)}">{status}</div>'
        lines = "<br>".join(f"✕ {escape(line)}" for line in errors)
        self.error.value = f'<div role="alert" style="{ALERT}">{lines}</div>' if lines else ""

    def wait(self, waiting: bool) -> None:
        """Nothing but Pause acts on the engine while ``waiting``; what is for later can be filled in."""
        acting = {name: made for name, made in self.buttons.items() if name != "Pause"} | self.settings.controls
        for control in acting.values():
            control.disabled = waiting

    def turn_off(self) -> None:
        """Nothing can be clicked or written into any more."""
        for widget in [w for row in self.rows for w in every_widget(row) if w.has_trait("disabled")]:
            widget.disabled = True


def read_prompt(line: str) -> Prompt:
    """A line of the text box: token ids if it is a list of whole numbers, else the text as it is."""
    try:
        ids = json.loads(line)
    except ValueError:
        return line
    return ids if isinstance(ids, list) and all(type(i) is int for i in ids) else line
