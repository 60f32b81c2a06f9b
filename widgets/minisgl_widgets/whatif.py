"""WhatIf: a recorded run under sliders; the picture, the curve and the table follow."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import ipywidgets as W

from minisgl.errors import ConfigError
from minisgl.events.recorder import origin
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.sim.costs import CostModel
from minisgl.sim.outcome import Outcome
from minisgl.sim.simulator import Simulator
from minisgl.sim.whatif import whatif
from minisgl_widgets.controls import ALERT, every_widget
from minisgl_widgets.differences import as_html, as_text, differences, memory, refusals
from minisgl_widgets.feed import Feed
from minisgl_widgets.knobs import AS_RECORDED, Knob, knobs_of, with_value
from minisgl_widgets.latest import LatestThread
from minisgl_widgets.stage import Stage
from minisgl_widgets.whatif_picture import METRICS, Picture, Point
from minisgl_widgets.whatif_still import pool_then_and_now

SAME_MEMORY = "As many pages as hold the tokens of the recorded pool, whatever the page size."
EVERY_PAGE = "Record every event of this run and show its pages, tree, queue and requests below, step by step."
STYLE = """<style>
.msgl-what-if table { border-collapse: collapse; font-size: 13px; line-height: 1.5; }
.msgl-what-if th, .msgl-what-if td { padding: 1px 14px 1px 4px; border-bottom: 1px solid rgba(128, 128, 128, 0.3); }
.msgl-what-if td { font-variant-numeric: tabular-nums; }
.msgl-what-if th { text-align: right; }
.msgl-knob .widget-readout { min-width: 100px; text-align: left; }
</style>"""
CURVE_EVERY = 0.25  # seconds between two drawings of a curve that is still being computed
LABEL = {"description_width": "155px"}

_open: weakref.WeakValueDictionary[int, WhatIf] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Wish:
    """What the controls say."""

    changes: dict[str, Any] = field(default_factory=dict)  # what differs from the record
    hand: str = "num_pages"  # the setting that the curve runs over
    metric: str = "ttft_mean"
    axis: str = "t"
    pages: bool = False  # record every page of it as well


class WhatIf(W.VBox):
    """Sliders on a recorded run: its own requests and tokens under another configuration, beside the run as it was.

    Whatever a slider does, :meth:`set` does as well and waits for the picture; ``result`` is what ``whatif(trace,
    costs, **changes)`` gives. Steps are exact, milliseconds are modelled.

    Args:
        trace: a recorded run that says under which configuration it was made.
        costs: how long a batch takes; None: fitted to the record's own batches.

    Raises:
        TraceError: the record does not hold its configuration.
    """

    _closed = True  # until everything is there

    def __init__(self, trace: Trace, costs: CostModel | None = None) -> None:
        self.cell = _this_cell()
        _close_earlier_runs_of(self.cell)
        self._unchanged = whatif(trace, costs)
        self.knobs = knobs_of(self._unchanged.base, self._unchanged.recorded)
        self.result = self._unchanged  # the question whose answer is drawn
        self.errors: list[str] = []  # why what the controls say cannot be, or not for all requests
        self._wish = Wish()
        self._setting = False  # several controls are being set as one change
        self._figures: dict[tuple, dict[str, Any] | None] = {}  # of every setting that was tried; None: cannot be
        self._drawn: Wish | None = None
        self._curve_drawn = 0.0  # monotonic clock
        self._picture = Picture()
        self._thread = LatestThread(self._work, self._one_point, self._failed)
        self._build()
        super().__init__([self._top, self._status, self._alert, self._picture.widget, self._below])
        self._closed = False
        _open[id(self)] = self
        self._wait(self._thread.ask(self._wish))

    # -- controls ------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Make the widgets. The browser writes the controls, the thread writes what shows; none has two writers."""
        self._controls: dict[str, Any] = {}
        sliders, choices = [], []
        for knob in self.knobs.values():
            control = self._controls[knob.name] = _slider(knob) if knob.ordered else _choice(knob)
            control.observe(self._turned, "value")
            if knob.ordered:
                said = W.HTML(f'<span style="opacity: 0.75">recorded: {escape(knob.say(knob.recorded))}</span>')
                sliders.append(W.HBox([control, said], layout=W.Layout(align_items="center")))
            else:
                choices.append(control)
        self._metric = W.Dropdown(
            options=[(label, name) for name, (label, *_) in METRICS.items()],
            description="curve",
            tooltip="What the curve on the right shows, over the setting that was moved last.",
            style={"description_width": "60px"},
            layout=W.Layout(width="330px"),
        )
        self._axis = W.Dropdown(
            options=[("modelled time", "t"), ("steps, which are exact", "step")],
            description="runs over",
            tooltip="The axis of the two pictures on the left.",
            style={"description_width": "80px"},
            layout=W.Layout(width="270px"),
        )
        self._metric.observe(self._turned, "value")
        self._axis.observe(self._turned, "value")
        buttons = [
            _button("Reset", "undo", "90px", "Everything as recorded.", self._reset),
            _button("Same memory", "balance-scale", "140px", SAME_MEMORY, self._same_memory),
        ]
        wrap = W.Layout(flex_flow="row wrap", align_items="center")
        self._top = W.VBox(
            [
                W.HBox([W.VBox(sliders), W.VBox(choices)], layout=W.Layout(flex_flow="row wrap")),
                W.HBox([*buttons, self._axis, self._metric], layout=wrap),
            ]
        )
        self._status = W.HTML(layout=W.Layout(margin="4px 0 0 0"))
        self._alert = W.HTML(layout=W.Layout(margin="0"))
        self._table = W.HTML()
        self._progress = W.FloatProgress(0.0, max=1.0, layout=W.Layout(width="200px", display="none"))
        self._recorded = W.HTML()
        self._stage = W.VBox()
        show = _button("Show every page", "th", "180px", EVERY_PAGE, self._ask_pages)
        show.button_style = "primary"
        row = W.HBox([show, self._progress, self._recorded], layout=W.Layout(align_items="center"))
        self._below = W.VBox([self._table, row, self._stage])

    def _turned(self, change: Any) -> None:
        """A control has another value. Comes on any thread, so it only asks."""
        if self._setting or self._closed:
            return
        hand = next((name for name, c in self._controls.items() if c is change["owner"]), self._wish.hand)
        self._ask(hand)

    def _ask(self, hand: str, pages: bool = False) -> int:
        values = {name: control.value for name, control in self._controls.items()}
        changes = {n: v for n, v in values.items() if v != self.knobs[n].recorded}
        self._wish = Wish(changes, hand, self._metric.value, self._axis.value, pages)
        return self._thread.ask(self._wish)

    def _put(self, name: str, value: Any) -> None:
        """Set one control; a slider gets a position for a value that it does not have yet."""
        knob, control = self.knobs[name], self._controls[name]
        if value not in knob.values:
            self.knobs[name] = knob = replace(knob, values=with_value(knob.values, value))
            control.options = _options(knob)
        control.value = value

    def _wait(self, number: int) -> WhatIf:
        self._thread.wait(number)
        return self

    # -- by hand -------------------------------------------------------------------------------------------------------

    def set(self, **changes: Any) -> WhatIf:
        """Turn knobs as a hand would, ``set(num_pages=32, order="lpm")``, and wait for the picture. Others stay.

        Raises ConfigError for a name that is no knob and for a value that cannot be; nothing is turned then.
        """
        unknown = [name for name in changes if name not in self.knobs]
        if unknown:
            raise ConfigError(f"{', '.join(unknown)}: no knob here; there are {', '.join(self.knobs)}")
        self._unchanged.change(**(self.changes | changes))
        return self._wait(self._turn(changes))

    def reset(self) -> WhatIf:
        """Everything as recorded."""
        return self._wait(self._reset())

    def same_memory(self) -> WhatIf:
        """As many pages as hold the tokens that the recorded pool holds, whatever the page size."""
        return self._wait(self._same_memory())

    def _reset(self) -> int:
        return self._turn({name: knob.recorded for name, knob in self.knobs.items()}, self._wish.hand)

    def _same_memory(self) -> int:
        base, page_size = self._unchanged.base, self._controls["page_size"].value
        assert base.num_pages is not None
        return self._turn({"num_pages": max(2, base.num_pages * base.page_size // page_size)})

    def _turn(self, values: dict[str, Any], hand: str | None = None) -> int:
        self._setting = True
        try:
            for name, value in values.items():
                self._put(name, value)
        finally:
            self._setting = False
        return self._ask(hand or next(reversed(values), self._wish.hand))

    def show_pages(self) -> Stage:
        """Like the button: record every event of what is drawn and open it below. The Stage."""
        self._wait(self._ask_pages())
        return self.stage

    def _ask_pages(self) -> int:
        return self._ask(self._wish.hand, pages=True)

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the record, as ``whatif`` takes it."""
        return dict(self._wish.changes)

    @property
    def before(self) -> Outcome:
        """The run as it was, on the modelled clock."""
        return self.result.before

    @property
    def outcome(self) -> Outcome:
        """The run as it would be."""
        return self.result.after

    @property
    def diff_table(self) -> Table:
        """Both, figure by figure."""
        return self.result.table

    @property
    def notes(self) -> list[str]:
        """What to keep in mind."""
        return [*self.result.notes, *filter(None, [memory(self.result)])]

    @property
    def trace(self) -> Trace:
        """The run as it would be, with every event."""
        return self.result.trace

    @property
    def stage(self) -> Stage:
        """The page-level picture. LookupError before the first one was asked for."""
        if not self._stage.children:
            raise LookupError("no pages are shown yet: show_pages() records them")
        return self._stage.children[0]

    def curve(self) -> list[Point]:
        """The curve over the setting in hand; waits until it is whole."""
        self._thread.wait(self._ask(self._wish.hand), background=True)
        return self._points()

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _work(self, wish: Wish, check: Callable[[], None]) -> None:
        before, self._drawn = self._drawn, wish
        how = ""
        if before is None or before.changes != wish.changes:
            begun = time.perf_counter()
            result = self._unchanged.change(**wish.changes)
            self._figures[_key(wish.changes)] = result.after.figures
            self.result = result
            self.errors = [line for line in [refusals(result.after)] if line]
            how = f"{len(result.workload):,} requests replayed in {(time.perf_counter() - begun) * 1000:.0f} ms"
        if before is None or (before.changes, before.axis) != (wish.changes, wish.axis):
            r = self.result
            self._picture.draw_runs(r.before, r.base, r.after, r.config, wish.axis)
            self._say(wish, how)
        self._draw_curve()
        if wish.pages:
            self._show_every_page(check)

    def _say(self, wish: Wish, how: str) -> None:
        said = ", ".join(f"{n} = {self.knobs[n].say(v)}" for n, v in wish.changes.items()) or "everything as recorded"
        self._status.value = f'<div role="status"><b>{escape(said)}</b> · {escape(how)}</div>'
        lines = "<br>".join(f"✕ {escape(line)}" for line in self.errors)
        self._alert.value = f'<div role="alert" style="{ALERT}">{lines}</div>' if lines else ""
        self._table.value = STYLE + f'<div class="msgl-what-if">{self._html_table()}</div>'

    def _points(self) -> list[Point]:
        wish = self._drawn or self._wish
        knob = self.knobs[wish.hand]
        return [Point(v, self._figures.get(_key(self._at(v)))) for v in knob.values]

    def _at(self, value: Any) -> dict[str, Any]:
        """The changes that are drawn, with the setting in hand at a value."""
        wish = self._drawn or self._wish
        changes = {n: v for n, v in wish.changes.items() if n != wish.hand}
        return changes if value == self.knobs[wish.hand].recorded else changes | {wish.hand: value}

    def _draw_curve(self) -> None:
        wish = self._drawn or self._wish
        knob = self.knobs[wish.hand]
        here = wish.changes.get(wish.hand, knob.recorded)
        self._picture.draw_curve(knob, self._points(), here, wish.metric)
        self._curve_drawn = time.monotonic()

    def _one_point(self, check: Callable[[], None]) -> bool:
        """Compute the next point of the curve, from coarse to fine. Is there another?"""
        assert self._drawn is not None
        values = self.knobs[self._drawn.hand].values
        missing = [i for i, v in enumerate(values) if _key(self._at(v)) not in self._figures]
        if missing:
            changes = self._at(values[min(missing, key=_coarse_to_fine)])
            self._figures[_key(changes)] = self._figures_of(changes, check)
        if len(missing) == 1 or time.monotonic() - self._curve_drawn > CURVE_EVERY:
            self._draw_curve()
        return len(missing) > 1

    def _figures_of(self, changes: dict[str, Any], check: Callable[[], None]) -> dict[str, Any] | None:
        try:
            there = self._unchanged.change(**changes)
            return Simulator(there.config, there.costs).run(there.workload, lambda _: check()).figures
        except ConfigError:
            return None

    def _show_every_page(self, check: Callable[[], None]) -> None:
        what, begun = self.result, time.perf_counter()
        said = ", ".join(f"{n}={v}" for n, v in what.changes.items()) or "as recorded"
        simulator = Simulator(what.config, what.costs)
        texts = what.record.texts
        about, checkpoint = origin(simulator), simulator.checkpoint()
        keyframe = simulator.snapshot().to_dict()
        feed = Feed(keyframe, lambda token: texts.get(token, str(token)), said, about, checkpoint)
        whole = what.after.figures["duration"] or 1.0
        shown_at = begun

        def watch(now: float) -> None:
            nonlocal shown_at
            if time.perf_counter() - shown_at > 0.1:
                shown_at = time.perf_counter()
                self._progress.value = min(1.0, now / whole)
                check()

        self._progress.value, self._progress.layout.display = 0.0, ""
        try:
            with simulator.on(None, feed.put):
                simulator.run(what.workload, watch)
            stage = Stage(feed)
        finally:
            self._progress.layout.display = "none"
        earlier, self._stage.children = self._stage.children, [stage]
        for old in earlier:
            old.close()
        taken = time.perf_counter() - begun
        self._recorded.value = f"<b>{escape(said)}</b>: {what.after.steps:,} steps recorded in {taken:.1f} s"

    def _failed(self, error: BaseException) -> None:
        self._drawn = None  # asked again, it is tried again
        self.errors = [f"stopped by {type(error).__name__}: {error}"]
        self._say(self._wish, "")

    # -- without a browser ---------------------------------------------------------------------------------------------

    def _html_table(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return as_html(differences(self.result)) + (f"<ul>{notes}</ul>" if notes else "")

    def __repr__(self) -> str:
        said = ", ".join(f"{n}={v!r}" for n, v in self.result.changes.items()) or "everything as recorded"
        lines = [f"WhatIf({said})", *(f"✕ {line}" for line in self.errors)]
        lines.append(as_text(differences(self.result)))
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        said = ", ".join(f"{n} = {self.knobs[n].say(v)}" for n, v in self.result.changes.items())
        errors = "".join(f"<p>✕ {escape(line)}</p>" for line in self.errors)
        asked = f"<p><b>What if {escape(said or 'everything is as recorded')}?</b></p>"
        return f"{asked}{errors}{pool_then_and_now(self.result)}{self._html_table()}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict:
        shown = super()._repr_mimebundle_(**kwargs) or {}
        return shown | {"text/plain": repr(self), "text/html": self._repr_html_()}

    def close(self) -> None:
        """Stop the thread and remove the widgets."""
        if self._closed:
            return
        self._closed = True
        self._thread.stop()
        _open.pop(id(self), None)
        for widget in every_widget(self):
            if widget is not self:
                widget.close()
        super().close()


def _slider(knob: Knob) -> W.SelectionSlider:
    slider = W.SelectionSlider(
        options=_options(knob),
        value=knob.recorded,
        description=knob.name,
        tooltip=knob.tooltip,
        style=LABEL,
        layout=W.Layout(width="370px"),
    )
    slider.add_class("msgl-knob")
    return slider


def _choice(knob: Knob) -> W.Dropdown:
    return W.Dropdown(
        options=[
            (said + " (recorded)" * (value == knob.recorded != AS_RECORDED), value) for said, value in _options(knob)
        ],
        value=knob.recorded,
        description=knob.name,
        tooltip=knob.tooltip,
        style={"description_width": "85px"},
        layout=W.Layout(width="270px"),
    )


def _options(knob: Knob) -> list[tuple[str, Any]]:
    return [(knob.say(value), value) for value in knob.values]


def _button(label: str, icon: str, width: str, tooltip: str, act: Callable[[], Any]) -> W.Button:
    made = W.Button(description=label, icon=icon, tooltip=tooltip, layout={"width": width})
    made.on_click(lambda _: act())
    return made


def _key(changes: dict[str, Any]) -> tuple:
    return tuple(sorted(changes.items(), key=lambda item: item[0]))


def _coarse_to_fine(i: int) -> tuple[int, int]:
    """First the numbers that a big power of two divides, so that a curve has its shape soon."""
    return (-(i & -i) if i else -(1 << 30), i)


def _this_cell() -> tuple[str, str] | None:
    """The notebook's cell and this run of it, where a front end says so."""
    from IPython import get_ipython

    shell = get_ipython()
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    cell = parent.get("metadata", {}).get("cellId")
    return (cell, parent["header"]["msg_id"]) if cell else None


def _close_earlier_runs_of(cell: tuple[str, str] | None) -> None:
    """A cell that is run again replaces its sliders; the figure of each that stayed would cost five megabytes."""
    for earlier in list(_open.values()):
        if cell and earlier.cell and earlier.cell[0] == cell[0] and earlier.cell[1] != cell[1]:
            earlier.close()
