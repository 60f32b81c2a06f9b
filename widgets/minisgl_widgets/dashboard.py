"""Dashboard: prompts in, Run, Step, Pause, Fork, and the views of what the engine does with its memory meanwhile."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from minisgl.core import SamplingParams
from minisgl.errors import MinisglError
from minisgl.events.history import History
from minisgl.events.recorder import origin
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl.events.types import Event, RequestArrived, RequestFinished, SettingsChanged, StepFinished
from minisgl.events.until import Condition, Watch, reason
from minisgl.events.words import count
from minisgl.events.words import pages as runs
from minisgl.sim.answers import verify
from minisgl_widgets.controls import Controls, Prompt, every_widget
from minisgl_widgets.engine_thread import EngineThread
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.prompts import PROMPTS
from minisgl_widgets.stage import Stage
from minisgl_widgets.static_pool import summary

if TYPE_CHECKING:
    from minisgl.llm import LLM

PROVEN = 2_000  # steps at most whose record is verified by itself after a run: a fifth of a second

_open: weakref.WeakValueDictionary[int, Dashboard] = weakref.WeakValueDictionary()  # by the id of the LLM they hold


class Dashboard(W.VBox):
    """A window on a running engine. Show it as a cell's last expression; the same LLM has one at a time.

    Everything a click does, a method does as well: :meth:`run`, :meth:`step`, :meth:`pause`, :meth:`add`, :meth:`fork`,
    :meth:`change`, :meth:`verify`; they wait, so that the next line sees the result. What other cells do with the LLM
    is followed too. Of an older dashboard of the same LLM the views stay, to be scrubbed, and the controls are off.

    Attributes:
        stopped: the event that ended the last run "until" it happened; None if nothing did.
        before: the run that the last fork took up again, as it was; None if there was none.

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
        self.stopped: Event | None = None
        self.before: Trace | None = None
        self._refused: dict[str, list[int]] = {}  # why prompts of the last submission cannot be served -> their numbers
        self._failure = ""  # what stopped the last run, or a request in it
        self._note = ""
        self._elsewhere = False  # somebody else stepped the engine since the last frame
        self._closed = self._retired = False
        self._again: Iterator[StepFinished] = iter(())  # steps of a fork that are taken as they were ...
        self._left = 0  # ... and how many of them
        self._proof: tuple[int, str] | None = None  # up to which step the record was verified, and what came of it
        self._looked_at: int | None = None  # the step that a browser shows, if somebody has moved there
        self._thread = EngineThread(self._take, self._show, self._failed, lambda: self.stage.due_in())
        with llm.lock:  # no step may fall between the keyframe and the first event
            self._feed = self._fed(title or llm.model_name)
        self.stage = Stage(self._feed, live=True, on_request=self._resync)
        self.stage.session.observe(self._looked)
        acts = {
            "Run": lambda: self._start(None, self._controls.form(), until=self._controls.until.condition),
            "Step": lambda: self._start(1, self._controls.form()),
            "Pause": self._halt,
            "Add": lambda: self._submit_later(*self._controls.form()),
            "Fork from here": lambda: self._fork(None),
            "Verify": lambda: self._thread.put(self._prove_and_show),
        }
        fields = (prompts, max_tokens, temperature, ignore_eos, speed)
        self._controls: Controls = Controls(llm.config, acts, self._change, self._set_rate, *fields)
        super().__init__([*self._controls.rows, self.stage])
        self._thread.set_rate(self._controls.speed.value)
        self._show()
        _open[id(llm)] = self
        self._thread.start()

    def _fed(self, title: str) -> Feed:
        """A feed of all that happens from now on. The engine's lock is held."""
        llm = self.llm
        checkpoint = llm.checkpoint()  # nothing is in flight after it
        keyframe = llm.snapshot().to_dict()
        feed = Feed(keyframe, llm.token_text, title, origin(llm), checkpoint)
        self._subscription = llm.on(None, lambda event: self._listen(feed, event))
        return feed

    # -- controls ------------------------------------------------------------------------------------------------------

    # Callbacks come on any thread, so all they do is to hand a job to the engine thread.

    def _resync(self) -> None:
        if self._retired:  # no thread writes any more
            self.stage.resync()
        else:
            self._thread.put(self.stage.resync)

    def _looked(self, session: Any) -> None:
        self._looked_at = session.step

    def _set_rate(self, rate: float) -> None:
        self._thread.put(lambda: self._thread.set_rate(rate))

    def _start(
        self,
        steps: int | None,
        form: tuple[list[Prompt], SamplingParams] | None,
        always: bool = False,
        until: Condition | None = None,
    ) -> Future:
        def job() -> tuple[list[int], Future]:
            self._failure = self._note = ""
            self.stopped = None
            watch = None if until is None else Watch(self.llm.on, until)
            uids = self._submit(*form) if form and (always or self.llm.idle) else []
            if watch is None:
                return uids, self._thread.go(steps)
            ended = self._thread.go(steps, lambda: self._enough(watch))
            ended.add_done_callback(lambda _: watch.close())
            return uids, ended

        return self._thread.put(job)

    def _change(self, **settings: Any) -> Future:
        def job() -> None:
            self.llm.change(**settings)
            said = ", ".join(f"{name}={value}" for name, value in settings.items())
            self._note = f"{said} from the next step on"
            self._show()

        return self._thread.put(job)

    def _fork(self, step: int | None) -> Future:
        def job() -> Future:
            self._failure = self._note = ""
            self._refused = {}
            trace = self.trace
            last = trace.history.last
            to = self._looked_at if step is None else step
            to = last if to is None else to
            with self.llm.lock:
                self._again, self._left = self.llm.rewind(trace, to), to - trace.history.first
                self._subscription.close()
                self._feed = self._fed(self._feed.title)
            self.before, self._looked_at = trace, None
            self.stage.begin_again(self._feed)
            self._controls.settings.show(self.llm.config)
            later = sum(e.step > to for e in trace.of(RequestArrived))
            left = f"; what came later is left out: {count(later, 'request')}" if later else ""
            self._note = f"forked after step {to}, which was computed again{left}"
            return self._thread.go(self._left, lambda: self._there(trace, to))

        return self._thread.put(job)

    def _halt(self) -> Future:
        return self._thread.put(self._thread.halt)

    def _submit_later(self, prompts: list[Prompt], params: SamplingParams) -> Future:
        def job() -> list[int]:
            uids = self._submit(prompts, params)
            if uids:
                effect = "it takes effect" if len(uids) == 1 else "they take effect"
                self._note = f"{_of(len(uids), len(prompts))} added; {effect} in the next step"
                self._show()
            return uids

        return self._thread.put(job)

    # -- on the engine thread ------------------------------------------------------------------------------------------

    def _take(self) -> StepFinished | None:
        """The next step: as it was, as long as a fork is on its way to where it begins."""
        if not self._left:
            return self.llm.step()
        done = next(self._again, None)
        self._left = self._left - 1 if done else 0
        return done

    def _enough(self, watch: Watch) -> bool:
        """Has it happened? What the condition itself raises ends the run like any other failure."""
        if watch.error is not None:
            raise watch.error
        if watch.event is not None:
            self.stopped = watch.event
            self._note = f"stopped at {reason(watch.until.condition, watch.event)}"
        return watch.event is not None

    def _there(self, before: Trace, step: int) -> bool:
        """Has a fork come to where it begins? Then what was computed again is compared."""
        if self._left:
            return False
        events = [e for e in before.events if e.step <= step]
        diff = Trace(before.keyframe, events, before.texts, about=before.about).diff(self.trace)
        if diff.first is not None:
            self._failure = f"the same steps came out differently: {' '.join(str(diff.first).split())}"
        return True

    def _prove(self) -> None:
        """Run the record again, and keep what came of it."""
        trace = self.trace
        facts = verify(trace).facts
        n = facts["differences"]
        self._proof = trace.history.last, "replay: 0 differences" if not n else f"replay: {count(n, 'difference')} ✕"

    def _prove_and_show(self) -> None:
        self._prove()
        self._show()

    def _submit(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[int]:
        """Submit what can be served; the rest is shown, each with its own reason."""
        uids: list[int] = []
        self._refused = {}
        for number, prompt in enumerate(prompts, 1):
            try:
                uids.append(self.llm.submit(prompt, params))
            except MinisglError as error:
                self._refused.setdefault(f"{type(error).__name__}: {error}", []).append(number)
        if not prompts:
            self._refused["no prompts: write one per line into the box"] = []
        self._note = f"{_of(len(uids), len(prompts))} submitted"
        self._show()
        return uids

    def _show(self) -> None:
        """Send the new steps, and write the two lines."""
        self.stage.publish()
        state = "running" if self._thread.running else "idle" if self._idle() else "paused"
        if state == "paused" and self._elsewhere:
            state = "run by another cell"
        self._elsewhere = False
        now = self.at(self.history.last)
        if state == "idle" and 0 < self.history.last - self.history.first <= PROVEN and not self._proven(now.step):
            self._prove()
        requests = f"{now.counters['running']} running, {now.counters['waiting']} waiting"
        proof = [self._proof[1]] if self._proof and self._proven(now.step) else []
        said = " · ".join([f" after step {now.step}", requests, *proof, *([self._note] if self._note else [])])
        title = f"{state}{said} ({summary(now)})"
        self._controls.say(f"<b>{state}</b>{escape(said)}", title, self.errors)

    def _proven(self, step: int) -> bool:
        return self._proof is not None and self._proof[0] == step

    def _failed(self, error: BaseException) -> None:
        self._failure = f"stopped by {type(error).__name__}: {error}"

    def _idle(self) -> bool:
        try:
            return self.llm.idle
        except MinisglError:  # it was closed
            return True

    # -- on the thread that steps --------------------------------------------------------------------------------------

    def _listen(self, feed: Feed, event: Event) -> None:
        feed.put(event)
        if isinstance(event, RequestFinished) and event.error:
            self._failure = f"request {event.uid} ended with {event.error}"
        if isinstance(event, StepFinished) and not self._thread.here:
            self._elsewhere = True
            self._thread.wake()
        if isinstance(event, SettingsChanged):
            self._controls.settings.show(self.llm.config)

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
        form = self._controls.form()
        form = form[0] if prompts is None else list(prompts), params or form[1]
        started = self._start(
            None, form, prompts is not None, self._controls.until.condition if until is None else until
        )
        return self._wait(started, wait)

    def step(self, n: int = 1) -> Snapshot:
        """Like the Step button, n times; fewer if the engine runs out of work. The state after that."""
        return self._wait(self._start(n, self._controls.form()), True)

    def add(self, prompts: Sequence[Prompt] | None = None, params: SamplingParams | None = None) -> list[int]:
        """Like the Add button: submit without running. The uids of what was accepted."""
        form = self._controls.form()
        return result(self._submit_later(form[0] if prompts is None else list(prompts), params or form[1]))

    def change(self, **settings: Any) -> None:
        """Like the lists of settings: ``change(order="lpm")``, from the next step on. Raises as ``LLM.change`` does."""
        result(self._change(**settings))

    def fork(self, step: int | None = None, wait: bool = True) -> Snapshot:
        """Like the Fork button: take the engine back to where it was after ``step``, and wait there, paused.

        Everything up to there is computed again as it was, on the model; requests that came later are left out. Then
        :meth:`change` a setting, :meth:`add` a request, :meth:`run` on. ``before`` is the run as it was, so
        ``dash.before.diff(dash.trace)`` says where they part. Hooks and Recorders of other cells end: see
        ``LLM.rewind``.

        Args:
            step: None: the step that the views show.
            wait: until it is there.

        Raises:
            TraceError: the dashboard does not hold that step.
            ForkError: the KV that this run began with is gone; the message says what to do.
        """
        ended = result(self._fork(step))
        if wait:
            result(ended)
        return self.at(self.history.last)

    def verify(self) -> str:
        """Like the Verify button: run the record again without the model; "replay: 0 differences" if all is well.

        After each run of up to 2,000 steps this happens by itself. ``minisgl.verify(dash.trace)`` says more.
        """
        result(self._thread.put(self._prove_and_show))
        assert self._proof
        return self._proof[1]

    def pause(self) -> Snapshot:
        """Like the Pause button: stop after the step at hand. The state there."""
        result(self._halt())
        return self.at(self.history.last)

    def _wait(self, started: Future, wait: bool) -> Snapshot:
        try:
            _, ended = result(started)
            if wait:
                result(ended)
        except KeyboardInterrupt:
            self._abort(result(started)[0])
            raise
        return self.at(self.history.last)

    @property
    def errors(self) -> list[str]:
        """What is wrong, one line each: prompts of the last submission that were refused, what stopped the last run.

        Prompts that were refused for the same reason share a line: ``prompts 1-3, 5: ...``.
        """
        refused = [
            f"{'prompt' if len(numbers) == 1 else 'prompts'} {runs(tuple(numbers))}: {why}" if numbers else why
            for why, numbers in self._refused.items()
        ]
        return [*refused, *([self._failure] if self._failure else [])]

    def _abort(self, uids: list[int]) -> None:
        """End these requests and the run; their pages are back when this returns."""

        def job() -> Future:
            for uid in uids:
                self.llm.abort(uid)
            return self._thread.go(1)

        result(result(self._thread.put(job)))

    # -- looking back --------------------------------------------------------------------------------------------------

    @property
    def history(self) -> History:
        """Every step since the dashboard was made."""
        return self._feed.history

    @property
    def trace(self) -> Trace:
        """The same as events, complete in itself."""
        return self._feed.trace

    @property
    def texts(self) -> dict[int, str]:
        """What the token ids that have appeared say."""
        return dict(self._feed.texts)

    def at(self, step: int) -> Snapshot:
        """The state after a step. TraceError if the dashboard was not there yet."""
        return self.history.at(step)

    def summary(self) -> str:
        """The numbers after the last step, in one line."""
        return summary(self.at(self.history.last))

    def save_html(self, path: str | Path, title: str = "") -> Path:
        """The run so far as one HTML file that plays without a kernel or a network."""
        return export_html(self._feed, path, title)

    def retire(self) -> None:
        """Stop thread and listening, because another dashboard takes over. The views stay, the controls are off."""
        if self._closed or self._retired:
            return
        self._subscription.close()
        self._thread.stop()
        self._retired = True
        self.stage.publish()
        self._controls.turn_off()
        said = f"It holds steps {self.history.first} to {self.history.last}, which can be scrubbed as before."
        self._controls.say(f"<b>closed: another dashboard watches this engine</b> · {said}", said, self.errors)

    def close(self) -> None:
        """Stop the thread, stop listening, remove the widgets. The engine keeps its requests."""
        if self._closed:
            return
        self._closed = True
        self._subscription.close()
        self._thread.stop()
        if _open.get(id(self.llm)) is self:
            del _open[id(self.llm)]
        for widget in every_widget(self):
            if widget is not self:
                widget.close()
        super().close()

    def __repr__(self) -> str:
        return f"Dashboard({self.summary()})"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict:
        shown = super()._repr_mimebundle_(**kwargs) or {}
        return shown | {"text/plain": repr(self), "text/html": self.stage._repr_html_()}


def _of(some: int, all_of: int) -> str:
    """ "3 prompts", or "2 of 3 prompts"."""
    return count(all_of, "prompt") if some == all_of else f"{some} of {count(all_of, 'prompt')}"


def result(future: Future) -> Any:
    """A future's result. Waits in short turns, because Ctrl-C may not be able to end a long one."""
    while not future.done():
        wait_for([future], timeout=0.2)
    return future.result()


@atexit.register
def _close_all() -> None:
    """A thread must not step a model while the interpreter goes down."""
    for dashboard in list(_open.values()):
        dashboard.close()
