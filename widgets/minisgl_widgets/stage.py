"""Stage: the views of one run in a notebook, drawn and scrubbed by the browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import msgspec
import traitlets

from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl_widgets.bundle import bundle, styles
from minisgl_widgets.feed import Feed
from minisgl_widgets.static_views import summary, view

FRAMES_PER_SECOND = 12  # tails sent at most; a Jupyter server drops messages from 1,000 a second on
PATIENCE = 1.0  # seconds to wait for a browser that has not drawn the last tail yet


class Stage(anywidget.AnyWidget):
    """Shows a run: page strip, admission ledger, radix tree, handoffs, requests, invariant lamp, and a player.

    A recorded run needs no engine: ``Stage(trace)``. For a live one the Dashboard calls :meth:`publish`, always from
    the same thread; the browser writes none of the traits, it only sends messages.

    Args:
        run: a Trace, a History, or a Feed that is still growing.
        texts: what token ids say, for a History (a Trace brings its own).
        title: shown above the views.
        live: follow the newest step; else the views open at the first step of the record.
        on_request: called, from any thread, when a browser asks for the whole record; default: it is sent at once.
    """

    _esm = bundle()
    _css = styles()
    record = traitlets.Unicode().tag(sync=True)  # JSON of History.record()
    length = traitlets.Int().tag(sync=True)  # steps the kernel has
    live = traitlets.Bool(False).tag(sync=True)  # the run goes on: follow its newest step

    def __init__(
        self,
        run: Trace | History | Feed,
        texts: Mapping[int, str] | None = None,
        title: str = "",
        live: bool = False,
        on_request: Callable[[], None] | None = None,
    ) -> None:
        self.feed = Feed.of(run, texts, title)
        self._on_request = on_request or self.resync
        self._sent_at = -PATIENCE  # seconds, monotonic clock
        self._drawn = -1  # the last step that a browser said it has drawn
        record = self._whole()
        super().__init__(record=record, length=self._sent, live=live)
        self.on_msg(self._message)

    @property
    def history(self) -> History:
        return self.feed.history

    def at(self, step: int) -> Snapshot:
        """The state after a step. TraceError if the run does not hold it."""
        return self.history.at(step)

    # -- to the browser: one thread only -------------------------------------------------------------------------------

    def due_in(self) -> float:
        """Seconds until the next tail may go out: 12 a second, but none for a second while the browser lags."""
        since = time.monotonic() - self._sent_at
        lagging = self._drawn < self.history.first + self._sent
        return max(0.0, (PATIENCE if lagging else 1 / FRAMES_PER_SECOND) - since)

    def publish(self) -> None:
        """Send the steps that the browser does not have yet."""
        tail = self.feed.tail(self._sent, self._texts_sent)
        if not tail["deltas"]:
            return
        self.send(tail)
        self._sent += len(tail["deltas"])
        self._texts_sent += len(tail["texts"])
        self._sent_at = time.monotonic()
        self.length = self._sent

    def resync(self) -> None:
        """Send the whole record again: for a browser that came late or lost something."""
        record = self._whole()
        if record == self.record:
            self.send_state("record")  # setting an equal value would send nothing
        self.record = record
        self.length = self._sent
        self._sent_at = time.monotonic()

    def _whole(self) -> str:
        """The record as JSON; from here on tails continue it."""
        record = self.feed.record()
        self._sent, self._texts_sent = len(record["deltas"]), len(record["texts"])
        return msgspec.json.encode(record).decode()  # ids that are keys become strings

    # -- from the browser: any thread ----------------------------------------------------------------------------------

    def _message(self, _: Any, content: Any, buffers: Any) -> None:
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "drawn":
            self._drawn = int(content["step"])
        elif kind == "resync":
            self._on_request()

    # -- without a browser ---------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """The numbers after the last step, in one line."""
        history = self.history
        return summary(history.at(history.last))

    def __repr__(self) -> str:
        return f"Stage(steps {self.history.first} to {self.history.last}: {self.summary()})"

    def _repr_html_(self) -> str:
        history = self.history
        return view(history.at(history.last), "all", self.feed.texts)._repr_html_()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict] | None:
        shown = super()._repr_mimebundle_(**kwargs)
        if shown is None:
            return None
        data, metadata = shown
        return data | {"text/plain": repr(self), "text/html": self._repr_html_()}, metadata
