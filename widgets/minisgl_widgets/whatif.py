"""WhatIf: a recorded run under sliders; the picture, the curve and the table follow."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from minisgl.errors import ConfigError
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.sim.costs import CostModel
from minisgl.sim.outcome import Outcome
from minisgl.sim.whatif import whatif
from minisgl_widgets import verdict
from minisgl_widgets.differences import refusals
from minisgl_widgets.every_page import EveryPage
from minisgl_widgets.knob_controls import KnobControls
from minisgl_widgets.knobs import Knob, knobs_of
from minisgl_widgets.latest import LatestThread
from minisgl_widgets.panel import Panel
from minisgl_widgets.stage import Stage
from minisgl_widgets.this_cell import this_cell
from minisgl_widgets.verdict import Verdict
from minisgl_widgets.whatif_curve import Curve
from minisgl_widgets.whatif_picture import Picture, Point

CURVE_EVERY = 0.25  # seconds between two drawings of a curve that is still being computed

_open: weakref.WeakValueDictionary[int, WhatIf] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Wish:
    """What the controls say."""

    changes: dict[str, Any] = field(default_factory=dict)  # what differs from the record
    hand: str = "num_pages"  # the setting that the curve runs over
    metric: str = "ttft_mean"
    axis: str = "t"
    pages: bool = False  # record every page of it as well


class WhatIf(Panel):
    """Sliders on a recorded run: its own requests and tokens under another configuration, beside the run as it was.

    Whatever a slider does, :meth:`set` does as well and waits for the picture. Steps are exact, milliseconds are
    modelled. A cell that is run again replaces its sliders.

    Attributes:
        result: what ``minisgl.whatif(trace, costs, **changes)`` gives, of what is drawn.
        errors: why what the controls say cannot be, or not for all requests.

    Args:
        trace: a recorded run that says under which configuration it was made.
        costs: how long a batch takes; None: fitted to the record's own batches.

    Raises:
        TraceError: the record does not hold its configuration.
    """

    def __init__(self, trace: Trace, costs: CostModel | None = None) -> None:
        self.cell = this_cell()
        for earlier in list(_open.values()):  # the figure of each that stayed would cost five megabytes
            if self.cell and self.cell.again(earlier.cell):
                earlier.close()
        self._unchanged = self.result = whatif(trace, costs)
        self.errors: list[str] = []
        self._wish = Wish()
        self._drawn: Wish | None = None
        self._curve = Curve(self._unchanged)
        self._curve_drawn = 0.0  # monotonic clock
        knobs = knobs_of(self._unchanged.base, self._unchanged.recorded)
        # the browser writes the controls, the thread all that shows; none has two writers
        self._controls = KnobControls(knobs, self._turned, self._reset, self._same_memory)
        self._picture = Picture()
        self._pages = EveryPage(self._ask_pages)
        self._verdict = v = Verdict()
        self._thread = LatestThread(self._work, self._one_point, self._failed)
        rows = [self._controls, v.status, v.alert, self._picture.widget, v.table, self._pages]
        super().__init__(rows)
        self.closed = False
        _open[id(self)] = self
        self._thread.wait(self._thread.ask(self._wish))

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

    def show_pages(self) -> Stage:
        """Like the button: record every event of what is drawn and open it below. The Stage."""
        self._wait(self._ask_pages())
        return self.stage

    def curve(self) -> list[Point]:
        """The curve over the setting in hand; waits until it is whole."""
        self._thread.wait(self._ask(self._wish.hand), background=True)
        return self._points(self._wish)

    @property
    def knobs(self) -> dict[str, Knob]:
        """What can be turned, by name."""
        return self._controls.knobs

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
        return verdict.notes(self.result)

    @property
    def trace(self) -> Trace:
        """The run as it would be, with every event."""
        return self.result.trace

    @property
    def stage(self) -> Stage:
        """The page-level picture. LookupError before the first one was asked for."""
        return self._pages.stage

    # -- what is asked for: on any thread, so that is all these do -----------------------------------------------------

    def _turned(self, name: str) -> None:
        if not self.closed:
            self._ask(name or self._wish.hand)

    def _reset(self) -> int:
        self._controls.put({name: knob.recorded for name, knob in self.knobs.items()})
        return self._ask(self._wish.hand)

    def _same_memory(self) -> int:
        base, page_size = self._unchanged.base, self._controls.each["page_size"].value
        assert base.num_pages is not None
        return self._turn({"num_pages": max(2, base.num_pages * base.page_size // page_size)})

    def _turn(self, values: dict[str, Any]) -> int:
        self._controls.put(values)
        return self._ask(next(reversed(values), self._wish.hand))

    def _ask_pages(self) -> int:
        return self._ask(self._wish.hand, pages=True)

    def _ask(self, hand: str, pages: bool = False) -> int:
        c = self._controls
        self._wish = Wish(c.changes, hand, c.metric.value, c.axis.value, pages)
        return self._thread.ask(self._wish)

    def _wait(self, number: int) -> WhatIf:
        self._thread.wait(number)
        return self

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _work(self, wish: Wish, check: Callable[[], None]) -> None:
        before, self._drawn = self._drawn, wish
        how = ""
        if before is None or before.changes != wish.changes:
            begun = time.perf_counter()
            result = self._unchanged.change(**wish.changes)
            self._curve.learn(wish.changes, result.after.figures)
            self.result = result
            self.errors = [line for line in [refusals(result.after)] if line]
            how = f"{len(result.workload):,} requests replayed in {(time.perf_counter() - begun) * 1000:.0f} ms"
        if before is None or (before.changes, before.axis) != (wish.changes, wish.axis):
            r = self.result
            self._picture.draw_runs(r.before, r.base, r.after, r.config, wish.axis)
            self._say(wish, how)
        self._draw_curve(wish)
        if wish.pages:
            self._pages.record(self.result, check)

    def _say(self, wish: Wish, how: str) -> None:
        self._verdict.say(self.result, self._said(wish.changes) or "everything as recorded", how, self.errors)

    def _one_point(self, check: Callable[[], None]) -> bool:
        """Compute the next point of the curve. Is there another?"""
        wish = self._drawn
        assert wish is not None
        missing = self._curve.compute_one(self.knobs[wish.hand], wish.changes, check)
        if not missing or time.monotonic() - self._curve_drawn > CURVE_EVERY:
            self._draw_curve(wish)
        return missing > 0

    def _points(self, wish: Wish) -> list[Point]:
        return self._curve.points(self.knobs[wish.hand], wish.changes)

    def _draw_curve(self, wish: Wish) -> None:
        knob = self.knobs[wish.hand]
        self._picture.draw_curve(knob, self._points(wish), wish.changes.get(knob.name, knob.recorded), wish.metric)
        self._curve_drawn = time.monotonic()

    def _failed(self, error: BaseException) -> None:
        self._drawn = None  # asked again, it is tried again
        self.errors = [f"stopped by {type(error).__name__}: {error}"]
        self._say(self._wish, "")

    def _end(self) -> None:
        self._thread.stop()
        _open.pop(id(self), None)

    # -- without a browser ---------------------------------------------------------------------------------------------

    def _last_words(self) -> str:
        return f"sliders closed: {self._said(self.changes) or 'everything as recorded'}"

    def _said(self, changes: dict[str, Any]) -> str:
        return ", ".join(f"{n} = {self.knobs[n].say(v)}" for n, v in changes.items())

    def __repr__(self) -> str:
        return verdict.text(self.result, self.errors)

    def _repr_html_(self) -> str:
        said = self._said(self.result.changes) or "everything is as recorded"
        return verdict.html(self.result, said, self.errors)
