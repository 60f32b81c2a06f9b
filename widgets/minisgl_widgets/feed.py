"""Feed: a history that grows while it is watched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from minisgl.events.history import History
from minisgl.events.trace import Trace, tokens_in
from minisgl.events.types import Event


class Feed:
    """Takes events from any thread and folds them when somebody looks.

    ``put`` is the listener: it only appends to a queue, so the engine never waits for a view. Everything else folds
    what has come in first, under one lock, in whichever thread asks.

    Args:
        keyframe: the state before the first event, as ``Snapshot.to_dict()`` gives it.
        text_of: what a token id says; asked once per id.
        title: shown above the views.
        about, checkpoint: where the run comes from and how it could go on, for whoever saves it: see ``Trace``.
    """

    def __init__(
        self,
        keyframe: dict,
        text_of: Callable[[int], str] = str,
        title: str = "",
        about: dict[str, Any] | None = None,
        checkpoint: dict[str, Any] | None = None,
    ) -> None:
        self.title = title
        self.about = about or {}
        self.checkpoint = checkpoint
        self.texts: dict[int, str] = {}  # in the order in which the ids appeared
        self._text_of = text_of
        self._keyframe = keyframe
        self._history = History(keyframe)
        self._events: list[Event] = []
        self._incoming: SimpleQueue[Event] = SimpleQueue()
        self._lock = threading.RLock()
        self._learn(tokens_in(keyframe, []))

    @classmethod
    def of(cls, run: Trace | History | Feed, texts: Mapping[int, str] | None = None, title: str = "") -> Feed:
        """A run that is over, as a feed. ``texts`` says what its token ids mean; a Trace brings its own."""
        if isinstance(run, Feed):
            return run
        if isinstance(run, Trace):
            feed = cls(run.keyframe, title=title or run.title, about=run.about, checkpoint=run.checkpoint)
            feed._history, feed._events = run.history, list(run.events)
            feed.texts = dict(run.texts) | dict(texts or {})
        elif isinstance(run, History):
            feed = cls(run.at(run.first).to_dict(), title=title)
            feed._history = run
            feed._events = [event for i in range(len(run.steps)) for event in run.steps.events(i)]
            feed.texts = dict(texts or {})
        else:
            raise TypeError(f"cannot show a {type(run).__name__}; give a Trace or a History")
        return feed

    def put(self, event: Event) -> None:
        """Take one event. Any thread; returns at once."""
        self._incoming.put(event)

    def _learn(self, tokens: list[int]) -> None:
        for token in tokens:
            if token not in self.texts:
                self.texts[token] = self._text_of(token)

    def _absorb(self) -> None:
        arrived: list[Event] = []
        while True:
            try:
                arrived.append(self._incoming.get_nowait())
            except Empty:
                break
        if arrived:
            self._learn(tokens_in({"requests": {}, "nodes": {}}, arrived))
            for event in arrived:
                self._history.feed(event)
            self._events += arrived

    @property
    def history(self) -> History:
        """The steps so far."""
        with self._lock:
            self._absorb()
            return self._history

    @property
    def trace(self) -> Trace:
        """The run so far, as events; complete in itself."""
        with self._lock:
            self._absorb()
            return Trace(self._keyframe, list(self._events), dict(self.texts), self.title, self.about, self.checkpoint)
