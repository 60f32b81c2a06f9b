"""Dashboard: prompts in, Run, Step, Pause, Fork, and the views of what the engine does with its memory meanwhile."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minisgl.core import SamplingParams
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl.events.types import Event
from minisgl.events.until import Condition
from minisgl_widgets.controls import Controls, Prompt
from minisgl_widgets.driver import Driver, Form
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.lookback import LookBack
from minisgl_widgets.panel import Panel
from minisgl_widgets.prompts import PROMPTS
from minisgl_widgets.screen import Screen

if TYPE_CHECKING:
    from minisgl.llm import LLM

_open: weakref.WeakValueDictionary[int, Dashboard] = weakref.WeakValueDictionary()  # by the id of the LLM they hold


class Dashboard(LookBack, Panel):
    """A window on a running engine. Show it as a cell's last expression; the same LLM has one at a time.

    Everything a click does, a method does as well: :meth:`run`, :meth:`step`, :meth:`pause`, :meth:`add`, :meth:`fork`,
    :meth:`change`, :meth:`verify`; they wait, so that the next line sees the result. What other cells do with the LLM
    is followed too. Of an older dashboard of the same LLM the views stay, to be scrubbed, and the controls are off.

    Args:
        llm: the engine to drive and to watch.
        prompts: what the text box holds at first: texts, or lists of token ids.
        max_tokens, temperature, ignore_eos: what the fields hold at first.
        speed: steps per second at most; None: as fast as it goes.
        title: shown above the views.
    """

    def __init__(
        self,
        llm: LLM,
        prompts: Sequence[Prompt] = PROMPTS,
        max_tokens: int = 8,
        temperature: float = 0.0,
        ignore_eos: bool = False,
        speed: float | None = None,
        title: str = "",
    ) -> None:
        older = _open.pop(id(llm), None)
        if older is not None:
            older.retire()
        self.llm = llm
        self._driver = driver = Driver(llm, title or llm.model_name)
        try:
            acts = {
                "Run": lambda: driver.run(None, self._form(), until=self._controls.until.condition),
                "Step": lambda: driver.run(1, self._form()),
                "Pause": driver.pause,
                "Add": lambda: driver.add(*self._form()),
                "Fork from here": lambda: driver.fork(None),
                "Verify": lambda: self._screen.proof.wish(self.feed),
            }
            fields = (prompts, max_tokens, temperature, ignore_eos, speed)
            self._controls: Controls = Controls(llm.config, acts, driver.change, driver.set_rate, *fields)
            self._screen: Screen = Screen(driver, self._controls)
            self.stage = self._screen.stage
            super().__init__([*self._controls.rows, self.stage])
            self.add_class("msgl-dashboard")
            driver.thread.set_rate(self._controls.speed.value)
            driver.start(self._screen)
        except BaseException:
            driver.stop()  # it listens already
            raise
        self.closed = False
        _open[id(llm)] = self

    # -- by hand -------------------------------------------------------------------------------------------------------

    def run(
        self,
        prompts: Sequence[Prompt] | None = None,
        params: SamplingParams | None = None,
        wait: bool = True,
        until: Condition | None = None,
    ) -> Snapshot:
        """Like the Run button. Prompts given here are submitted in any case; those in the box only when it is idle.

        Waits for the end of the run and gives the state there; an exception that stopped the run is raised here too.
        ``until`` ends it when something happens: "eviction", "free < 8", a function of an event ... (see
        ``minisgl.events.until``); None: what the list beside Run says. ``stopped`` is then the event.
        Interrupting aborts the requests that this call submitted. A refused prompt is shown, in ``errors`` as well.
        """
        until = self._controls.until.condition if until is None else until
        return self._wait(self._driver.run(None, self._form(prompts, params), prompts is not None, until), wait)

    def step(self, n: int = 1) -> Snapshot:
        """Like the Step button, n times; fewer if the engine runs out of work. The state after that."""
        return self._wait(self._driver.run(n, self._form()), True)

    def add(self, prompts: Sequence[Prompt] | None = None, params: SamplingParams | None = None) -> list[int]:
        """Like the Add button: submit without running. The uids of what was accepted."""
        return result(self._driver.add(*self._form(prompts, params)))

    def change(self, **settings: Any) -> None:
        """Like the lists of settings: ``change(order="lpm")``, from the next step on. Raises as ``LLM.change`` does."""
        result(self._driver.change(**settings))

    def fork(self, step: int | None = None, wait: bool = True) -> Snapshot:
        """Like the Fork button: take the engine back to where it was after ``step``, and wait there, paused.

        Everything up to there is computed again as it was, on the model; requests that came later are left out. Then
        :meth:`change` a setting, :meth:`add` a request, :meth:`run` on. ``before`` is the run as it was, so
        ``dash.before.diff(dash.trace)`` says where they part. Hooks and Recorders of other cells end: see
        ``LLM.rewind``.

        Until it is there the controls are off, and what is asked for by hand waits; but for :meth:`pause` (and an
        interrupt), which lets the fork begin at the step that was computed last.

        Args:
            step: None: the step that the views show; if they follow the run, its last.
            wait: until it is there.

        Raises:
            TraceError: the dashboard does not hold that step.
            ForkError: the KV that this run began with is gone; the message says what to do.
        """
        asked = self._driver.fork(step)
        try:
            ended = result(asked)
            if wait:
                result(ended)
        except KeyboardInterrupt:
            if not asked.cancel():
                self.pause()
            raise
        return self.last()

    def verify(self) -> str:
        """Like the Verify button: run the record again without the model; "replay: 0 differences" if all is well.

        When a browser shows the end of a run this happens by itself, up to 2,000 steps. ``minisgl.verify(dash.trace)``
        says more.
        """
        return self._screen.proof.now(self.feed)

    def pause(self) -> Snapshot:
        """Like the Pause button: stop after the step at hand. The state there."""
        result(self._driver.pause())
        return self.last()

    def _form(self, prompts: Sequence[Prompt] | None = None, params: SamplingParams | None = None) -> Form:
        """What the fields say, but for what is given."""
        form = self._controls.form()
        return form[0] if prompts is None else list(prompts), params or form[1]

    def _wait(self, started: Future, wait: bool) -> Snapshot:
        try:
            _, ended = result(started)
            if wait:
                result(ended)
        except KeyboardInterrupt:
            if not started.cancel():  # it may still be waiting for a fork
                result(result(self._driver.abort(result(started)[0])))
            raise
        return self.last()

    # -- looking back --------------------------------------------------------------------------------------------------

    @property
    def feed(self) -> Feed:
        """Every step since the dashboard was made, or of the last fork."""
        return self._driver.feed

    @property
    def errors(self) -> list[str]:
        """What is wrong, one line each: prompts of the last submission that were refused, what stopped the last run.

        Prompts that were refused for the same reason share a line: ``prompts 1-3, 5: ...``.
        """
        return self._driver.notices.errors

    @property
    def stopped(self) -> Event | None:
        """The event that ended the last run "until" it happened; None if nothing did."""
        return self._driver.stopped

    @property
    def before(self) -> Trace | None:
        """The run that the last fork took up again, as it was; None if there was none."""
        return self._driver.before

    def at(self, step: int) -> Snapshot:
        """The state after a step. TraceError if the dashboard was not there yet."""
        return self.history.at(step)

    def save_html(self, path: str | Path, title: str = "") -> Path:
        """The run so far as one HTML file that plays without a kernel or a network."""
        return export_html(self.feed, path, title)

    # -- the end -------------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """Stop thread and listening, because another dashboard takes over. The views stay, the controls are off."""
        if not (self.closed or self._driver.thread.over):
            self._stop()
            self._screen.freeze("closed: another dashboard watches this engine")

    def _end(self) -> None:
        self._stop()
        if _open.get(id(self.llm)) is self:
            del _open[id(self.llm)]

    def _last_words(self) -> str:
        return f"{self._driver.feed.title}: dashboard closed after step {self.history.last}"

    def _stop(self) -> None:
        self._driver.stop()
        self._screen.proof.stop()

    def __repr__(self) -> str:
        return f"Dashboard({self.summary()})"

    def _repr_html_(self) -> str:
        return self.stage._repr_html_()


def result(future: Future) -> Any:
    """A future's result. Waits in short turns, because Ctrl-C may not be able to end a long one."""
    while not future.done():
        wait_for([future], timeout=0.2)
    return future.result()


@atexit.register
def _stop_all() -> None:
    """A thread must not step a model while the interpreter goes down. What is on the page stays there, to be read."""
    for dashboard in list(_open.values()):
        dashboard._stop()
