"""Driver: what a dashboard does with its engine, each a job for the engine thread."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from minisgl.core import SamplingParams
from minisgl.errors import EngineClosedError, MinisglError
from minisgl.events.trace import Trace
from minisgl.events.types import Event, RequestFinished, SettingsChanged, StepFinished
from minisgl.events.until import Condition, Watch, reason
from minisgl.events.words import count
from minisgl_widgets.controls import Prompt
from minisgl_widgets.engine_thread import EngineThread
from minisgl_widgets.feed import Feed
from minisgl_widgets.hearing import Hearing
from minisgl_widgets.notices import Notices
from minisgl_widgets.way_back import WayBack

if TYPE_CHECKING:
    from minisgl.llm import LLM
    from minisgl_widgets.screen import Screen

Form = tuple[Sequence[Prompt], SamplingParams]  # prompts, and the parameters for all of them


class Driver:
    """Drives an engine and listens to it. Each method returns at once, with the Future of what it asked for.

    Attributes:
        stopped, before: see ``Dashboard``.
        back: a fork that is on its way; nothing else is done with the engine then, but that it may be paused.
        elsewhere: somebody else stepped the engine since this was last set to False.
        set_anew: settings have changed since this was last set to False.
    """

    def __init__(self, llm: LLM, title: str) -> None:
        self.llm = llm
        self.notices = Notices()
        self.stopped: Event | None = None
        self.before: Trace | None = None
        self.back: WayBack | None = None
        self.elsewhere = self.set_anew = False
        self._screen: Screen
        self.thread = EngineThread(self._step, lambda: self._screen.show(), self._failed, lambda: self._screen.due_in())
        with llm.lock:
            self._hearing = Hearing(llm, title, self._heard)

    @property
    def feed(self) -> Feed:
        """All that happened since the driver was made, or since the last fork's start."""
        return self._hearing.feed

    def start(self, screen: Screen) -> None:
        self._screen = screen
        screen.show()
        self.thread.start()

    def stop(self) -> None:
        """Listen no more, and step no more. The engine keeps its requests."""
        self._hearing.end()
        self.thread.stop()

    @property
    def idle(self) -> bool | None:
        """Has the engine nothing to do? None: it was closed."""
        try:
            return self.llm.idle
        except EngineClosedError:
            return None

    # -- from any thread -----------------------------------------------------------------------------------------------

    def run(self, steps: int | None, form: Form, always: bool = False, until: Condition | None = None) -> Future:
        """Step so often, or until idle or something happens; of an idle engine, or ``always``, submit the form before.

        The Future gives the uids of what was accepted and the Future of the run's end.
        """

        def job() -> tuple[list[int], Future]:
            self.notices.clear()
            self.stopped = None
            watch = None if until is None else Watch(self.llm.on, until)
            uids = self._submit(*form) if always or self.llm.idle else []
            if watch is None:
                return uids, self.thread.go(steps)
            ended = self.thread.go(steps, lambda: self._enough(watch))
            ended.add_done_callback(lambda _: watch.close())
            return uids, ended

        return self.thread.put(job)

    def add(self, prompts: Sequence[Prompt], params: SamplingParams) -> Future:
        """Submit without running. The Future gives the uids of what was accepted."""

        def job() -> list[int]:
            uids = self._submit(prompts, params)
            if uids:
                effect = "it takes effect" if len(uids) == 1 else "they take effect"
                self.notices.note = f"{_of(len(uids), len(prompts))} added; {effect} in the next step"
                self._screen.show()
            return uids

        return self.thread.put(job)

    def change(self, **settings: Any) -> Future:
        def job() -> None:
            self.llm.change(**settings)
            said = ", ".join(f"{name}={value}" for name, value in settings.items())
            self.notices.note = f"{said} from the next step on"
            self._screen.show()

        return self.thread.put(job)

    def fork(self, step: int | None) -> Future:
        """Go back to a step, or to the one that somebody looks at. The Future gives the Future of being there."""

        def job() -> Future:
            self.notices.clear()
            self.notices.submit()
            trace = self.feed.trace
            to = self._screen.looked_at() if step is None else step
            with self.llm.lock:
                back = WayBack(self.llm, trace, to)
                self._hearing.end()
                self._hearing = Hearing(self.llm, self.feed.title, self._heard)
            self.before, self.back = trace, back
            self._screen.begin_again(self.feed)
            self.set_anew = True
            left = back.left
            self._arrived()  # already, if it goes back to the start
            ended = self.thread.go(left, self._arrived, alone=True)
            self._screen.show()
            return ended

        return self.thread.put(job)

    def set_rate(self, rate: float) -> Future:
        """Steps per second at most."""
        return self.thread.put(lambda: self.thread.set_rate(rate), at_once=True)

    def pause(self) -> Future:
        """Stop after the step at hand. A fork that is on its way begins where it is then."""

        def job() -> None:
            self._end_of_the_way_back()
            self.thread.halt()

        return self.thread.put(job, at_once=True)

    def abort(self, uids: Sequence[int]) -> Future:
        """End these requests and the run; their pages are back when the Future's Future is done."""

        def job() -> Future:
            for uid in uids:
                self.llm.abort(uid)
            return self.thread.go(1)

        return self.thread.put(job)

    # -- on the engine thread ------------------------------------------------------------------------------------------

    def _step(self) -> StepFinished | None:
        return self.back.step() if self.back else self.llm.step()

    def _enough(self, watch: Watch) -> bool:
        """Has it happened? What the condition itself raises ends the run like any other failure."""
        if watch.error is not None:
            raise watch.error
        if watch.event is not None:
            self.stopped = watch.event
            self.notices.note = f"stopped at {reason(watch.until.condition, watch.event)}"
        return watch.event is not None

    def _arrived(self) -> bool:
        """Has a fork come to where it begins?"""
        there = self.back is not None and not self.back.left
        if there:
            self._end_of_the_way_back()
        return there

    def _end_of_the_way_back(self) -> None:
        """A fork begins where the engine is now, and what was computed again is compared."""
        if self.back is None:
            return
        back, self.back = self.back, None
        self.notices.note = back.note(self.feed.history.last)
        self.notices.failure = back.difference(self.feed.trace)

    def _submit(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[int]:
        """Submit what can be served; the rest is shown, each with its own reason."""
        uids: list[int] = []
        self.notices.submit()
        for number, prompt in enumerate(prompts, 1):
            try:
                uids.append(self.llm.submit(prompt, params))
            except MinisglError as error:
                self.notices.refuse(f"{type(error).__name__}: {error}", number)
        if not prompts:
            self.notices.refuse("no prompts: write one per line into the box")
        self.notices.note = f"{_of(len(uids), len(prompts))} submitted"
        self._screen.show()
        return uids

    def _failed(self, error: BaseException) -> None:
        self.back = None
        self.notices.failure = f"stopped by {type(error).__name__}: {error}"

    # -- on the thread that steps --------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        if isinstance(event, RequestFinished) and event.error:
            self.notices.failure = f"request {event.uid} ended with {event.error}"
        if isinstance(event, StepFinished) and not self.thread.here:
            self.elsewhere = True
            self.thread.wake()
        if isinstance(event, SettingsChanged):
            self.set_anew = True


def _of(some: int, all_of: int) -> str:
    """ "3 prompts", or "2 of 3 prompts"."""
    return count(all_of, "prompt") if some == all_of else f"{some} of {count(all_of, 'prompt')}"
