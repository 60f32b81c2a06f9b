"""Stage: the views of one run in a notebook, drawn and scrubbed by the browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import anywidget
import traitlets

from minisgl.events.snapshot import Snapshot
from minisgl_widgets.bundle import bundle, styles
from minisgl_widgets.feed import Feed
from minisgl_widgets.latest import LatestThread
from minisgl_widgets.lookback import LookBack
from minisgl_widgets.questions import answer, key_of
from minisgl_widgets.record import Encoder
from minisgl_widgets.session import Run, Session
from minisgl_widgets.static_views import view

FRAMES_PER_SECOND = 12  # tails sent at most; a Jupyter server drops messages from 1,000 a second on
PATIENCE = 1.0  # seconds to wait for a browser that has not drawn the last tail yet


class Stage(LookBack, anywidget.AnyWidget):
    """Shows a run: page strip, admission ledger, radix tree, handoffs, requests, invariant lamp, and a player.

    A recorded run needs no engine: ``Stage(trace)``. For a live one the Dashboard calls :meth:`publish`, always from
    the same thread; the browser writes none of the traits, it only sends messages. Scrubbing asks the kernel nothing;
    where the player came to rest is told to the session.

    Args:
        run: a Trace, a History, a Feed that is still growing, or a Session, whose step and selection it then shares.
        texts: what token ids say, for a History (a Trace brings its own).
        title: shown above the views.
        live: follow the newest step; else the views open at the session's step.
        on_request: called, from any thread, when a browser asks for the whole record; default: it is sent at once.
        on_drawn: called, likewise, with the last step that a browser has drawn.
    """

    _esm = bundle()
    _css = styles()
    record = traitlets.Bytes().tag(sync=True)  # see minisgl_widgets.record
    length = traitlets.Int().tag(sync=True)  # steps the kernel has
    live = traitlets.Bool(False).tag(sync=True)  # the run goes on: follow its newest step
    _end_observing: Callable[[], None] = staticmethod(lambda: None)  # until there is something to end
    _asked: LatestThread | None = None  # likewise
    start = traitlets.Int(-1).tag(sync=True)  # the step to open at; -1: as the browser likes

    def __init__(
        self,
        run: Run,
        texts: Mapping[int, str] | None = None,
        title: str = "",
        live: bool = False,
        on_request: Callable[[], None] | None = None,
        on_drawn: Callable[[int], object] = lambda step: None,
    ) -> None:
        self.session = Session.of(run, texts, title)
        self._encoder = Encoder(self.session.feed)
        self._live = live
        self._on_request, self._on_drawn = on_request or self.resync, on_drawn
        self._sent_at = -PATIENCE  # seconds, monotonic clock
        self._drawn = -1  # the last step that a browser said it has drawn
        self._following = live  # the views go on to each new step, as far as is known here
        self._telling = False  # the session is being told what this browser shows
        self._wish = ""  # the key of the question at hand
        self._asked_of = self.session.feed  # the run it is answered from
        self._asked = LatestThread(self._answer, lambda _: False, self._unanswered, rest=0)
        record = self._whole()
        start = -1 if live else self.session.step
        super().__init__(record=record, length=self._encoder.sent, live=live, start=start)
        self.on_msg(self._message)
        self._end_observing = self.session.observe(self._moved)

    @property
    def feed(self) -> Feed:
        return self.session.feed

    def at(self, step: int | None = None) -> Snapshot:
        """The state after a step, by default the one that is looked at. TraceError if the run does not hold it."""
        return self.session.at(step)

    # -- to the browser: one thread only -------------------------------------------------------------------------------

    def due_in(self) -> float:
        """Seconds until the next tail may go out: 12 a second, but none for a second while the browser lags."""
        since = time.monotonic() - self._sent_at
        lagging = self._drawn < self.history.first + self._encoder.sent
        return max(0.0, (PATIENCE if lagging else 1 / FRAMES_PER_SECOND) - since)

    def publish(self) -> None:
        """Send the steps that the browser does not have yet."""
        tail = self._encoder.tail()
        if tail is None:
            return
        self.send(*tail)
        self._sent_at = time.monotonic()
        self.length = self._encoder.sent

    def resync(self) -> None:
        """Send the whole record again: for a browser that came late or lost something."""
        record = self._whole()
        if record == self.record:
            self.send_state("record")  # setting an equal value would send nothing
        self.record = record
        self.length = self._encoder.sent
        self._sent_at = time.monotonic()

    def begin_again(self, feed: Feed) -> None:
        """Show another run instead, from its beginning."""
        self.session.begin_again(feed)
        self._following = self._live
        self._encoder = Encoder(feed)
        self.resync()

    def _whole(self) -> bytes:
        """The record; from here on tails continue it."""
        return self._encoder.record(deflate=not self._live, title=self.session.title)

    def looked_at(self) -> int:
        """The step that the views show: of a live run the newest, unless somebody has moved them back."""
        return self.history.last if self._following else self.session.step

    def _moved(self, session: Session) -> None:
        if not self._telling:
            self._following = self._live and session.step == self.history.last
            self.send({"kind": "look", "step": session.step, "selection": session.selection})

    # -- from the browser: any thread ----------------------------------------------------------------------------------

    def _message(self, _: Any, content: Any, buffers: Any) -> None:
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "drawn":
            self._drawn = int(content["step"])
            self._on_drawn(self._drawn)
        elif kind == "resync":
            self._on_request()
        elif kind == "looked":
            if not self.history.first <= int(content["step"]) <= self.history.last:
                return  # said of the run that was shown before
            self._telling, self._following = True, content["following"]
            try:
                self.session.look(int(content["step"]), content["selection"])
            finally:
                self._telling = False
        elif kind == "ask" and self._asked:
            id, uid = content["id"], int(content["uid"])
            self._asked.ask((key_of(id, uid), id, uid))

    # -- questions: a thread of their own ------------------------------------------------------------------------------

    def _answer(self, wish: tuple[str, str, int], check: Callable[[], None]) -> None:
        self._wish, id, uid = wish
        self._asked_of = self.session.feed
        trace = self._asked_of.trace
        self._send_answer(answer(trace, id, uid), trace.history.last)

    def _unanswered(self, error: BaseException) -> None:
        html = f'<p class="msgl-empty">{escape(f"{type(error).__name__}: {error}")}</p>'
        self._send_answer(html, self._asked_of.history.last)

    def _send_answer(self, html: str, last: int) -> None:
        if self._asked_of is self.session.feed:  # else the views show another run by now, of which it says nothing
            self.send({"kind": "answer", "key": self._wish, "html": html, "last": last})

    def close(self) -> None:
        self._end_observing()
        if self._asked:
            self._asked.stop()
        super().close()

    # -- without a browser ---------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Stage(steps {self.history.first} to {self.history.last}: {self.summary()})"

    def _repr_html_(self) -> str:
        return view(self.last(), "all", self.feed.texts)._repr_html_()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict] | None:
        shown = super()._repr_mimebundle_(**kwargs)
        if shown is None:
            return None
        data, metadata = shown
        return data | {"text/plain": repr(self), "text/html": self._repr_html_()}, metadata
