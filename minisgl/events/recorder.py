"""Recorder: collects a run's events into a Trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from minisgl.events.bus import Subscription
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace, tokens_in
from minisgl.events.types import Event


class Source(Protocol):
    """What can be recorded: an LLM. ``lock`` keeps its steps out while it is held.

    ``about`` says what it is (``model``, ``tokenizer``, ``config``); after ``drain`` no batch is in flight;
    ``checkpoint`` is what the snapshot does not show of a run that could go on from here.
    """

    lock: Any

    def snapshot(self) -> Snapshot: ...

    def on(self, event_type: type[Event] | None, fn: Callable[[Any], object]) -> Subscription: ...

    def token_text(self, token: int) -> str: ...

    def about(self) -> dict[str, Any]: ...

    def checkpoint(self) -> dict[str, Any]: ...

    def drain(self) -> None: ...


class Recorder:
    """Collects a run's events between ``with`` and its end; ``trace`` is what was collected so far."""

    def __init__(self, source: Source, title: str = "") -> None:
        self.source = source
        self.title = title
        self.events: list[Event] = []
        self._keyframe: dict | None = None
        self._checkpoint: dict | None = None
        self._subscription: Subscription | None = None

    def start(self) -> Recorder:
        """Begin afresh: a keyframe from the ledgers, then every event."""
        self.stop()
        self.events = []
        with self.source.lock:  # no step may fall between the keyframe and the first event
            self.source.drain()
            self._checkpoint = self.source.checkpoint()
            self._keyframe = self.source.snapshot().to_dict()
            self._subscription = self.source.on(None, self.events.append)
        return self

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    __enter__ = start

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def trace(self) -> Trace:
        if self._keyframe is None:
            raise RuntimeError("nothing recorded yet: use `with Recorder(llm) as rec:` or rec.start()")
        events = list(self.events)
        trace = Trace(self._keyframe, events, {}, self.title, self.source.about(), self._checkpoint)
        trace.texts = {token: self.source.token_text(token) for token in tokens_in(self._keyframe, events)}
        return trace

    def __repr__(self) -> str:
        return f"Recorder({len(self.events)} events, {'recording' if self._subscription else 'stopped'})"
