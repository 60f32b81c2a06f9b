"""Proof: whether the record of a run equals its replay without the model."""

from __future__ import annotations

from collections.abc import Callable

from minisgl.events.trace import Trace
from minisgl.events.types import StepFinished
from minisgl.events.words import count
from minisgl.sim.answers import verify
from minisgl_widgets.feed import Feed
from minisgl_widgets.latest import LatestThread

Asked = tuple[Feed, int]  # a run up to a step


class Proof:
    """Runs a record again on a thread of its own: neither the engine nor who waits for it has to wait for that.

    ``found`` is called on that thread when something came of it.
    """

    def __init__(self, found: Callable[[], object]) -> None:
        self._found = found
        self._wished: Asked | None = None  # last
        self._known: tuple[Feed, int, str] | None = None  # the run, up to which step, and what came of it
        self._error: BaseException | None = None  # of the last one
        self._thread = LatestThread(self._work, lambda _: False, self._failed, rest=0)

    def wish(self, feed: Feed) -> None:
        """Have the run so far verified some time; once, however often it is wished for."""
        asked = feed, feed.history.last
        if asked != self._wished:
            self._wished = asked
            self._number = self._thread.ask(feed)

    def now(self, feed: Feed) -> str:
        """Verify the run so far, wait for it, and say what came of it. Raises as ``verify`` does."""
        self._wished = None
        self.wish(feed)
        self._thread.wait(self._number)
        if self._error:
            raise self._error
        assert self._known
        return self._known[2]

    def said(self, feed: Feed) -> str:
        """What is known of the run so far: "replay: 0 differences"; "" if it was not verified up to here."""
        if self._known is None or self._known[:2] != (feed, feed.history.last):
            return ""
        return self._known[2]

    def stop(self) -> None:
        self._thread.stop()

    def _work(self, feed: Feed, check: Callable[[], None]) -> None:
        self._error = None
        trace = whole_steps(feed.trace)
        facts = verify(trace).facts
        n = facts["differences"]
        said = "replay: 0 differences" if not n else f"replay: {count(n, 'difference')} ✕"
        self._known = feed, trace.keyframe["step"] + facts["steps"], said
        self._found()

    def _failed(self, error: BaseException) -> None:
        assert self._wished
        self._error = error
        self._known = *self._wished, f"replay: stopped by {type(error).__name__}: {error}"
        self._found()


def whole_steps(trace: Trace) -> Trace:
    """A run without the beginning of a step at its end: somebody may be stepping the engine just now."""
    ends = [i for i, event in enumerate(trace.events) if isinstance(event, StepFinished)]
    events = trace.events[: ends[-1] + 1] if ends else []
    return Trace(trace.keyframe, events, trace.texts, trace.title, trace.about, trace.checkpoint)
