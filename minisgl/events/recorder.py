"""Recorder and Trace: a run as data, from a keyframe and its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from html import escape
from typing import Any, Protocol

from minisgl.events.bus import Subscription
from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import RequestState
from minisgl.events.types import BatchScheduled, Event, StepFinished


class Source(Protocol):
    """What can be recorded: an LLM. ``lock`` keeps its steps out while it is held."""

    lock: Any

    def snapshot(self) -> Snapshot: ...

    def on(self, event_type: type[Event] | None, fn: Callable[[Any], object]) -> Subscription: ...

    def token_text(self, token: int) -> str: ...


class Trace:
    """A recorded run: the state it began in, its events, and the texts of its tokens.

    ``trace.at(step)`` is the Snapshot after that step; ``trace.steps`` are the StepFinished events. Nothing of the
    engine is kept.
    """

    def __init__(self, keyframe: dict, events: list[Event], texts: dict[int, str], title: str = "") -> None:
        self.keyframe = keyframe
        self.events = events
        self.texts = texts
        self.title = title

    @cached_property
    def history(self) -> History:
        """The folded run, made at first use."""
        history = History(self.keyframe)
        for event in self.events:
            history.feed(event)
        return history

    @property
    def steps(self) -> list[StepFinished]:
        return [e for e in self.events if isinstance(e, StepFinished)]

    @property
    def requests(self) -> dict[int, RequestState]:
        """Every request of the run, as it was at the end."""
        return self.at(self.history.last).requests

    def of(self, *kinds: type[Event]) -> list[Any]:
        """The events of some types, in order."""
        return [e for e in self.events if isinstance(e, kinds)]

    def at(self, step: int) -> Snapshot:
        """The state after StepFinished ``step``; TraceError if the run does not hold it."""
        return self.history.at(step)

    def record(self) -> dict[str, Any]:
        """The run for a browser: see ``History.record``."""
        return self.history.record(self.texts, self.title)

    def table(self) -> str:
        """One line per batch: the pool in pages after its allocation, before its processing."""
        names = ("step", "phase", "tokens", "waiting", "running", "free", "owned", "cached", "promised", "requests")
        rows: list[tuple] = [names]
        for e in self.of(BatchScheduled):
            cached = e.evictable_pages + e.protected_pages
            pool = (e.free_pages, e.owned_pages, cached, e.reserved_pages)
            rows.append((e.step, e.phase, e.num_tokens, e.waiting, e.running, *pool, " ".join(map(str, e.uids))))
        widths = [max(len(str(row[i])) for row in rows) for i in range(len(names) - 1)]
        return "\n".join(
            "  ".join([*(str(v).rjust(w) for v, w in zip(row, widths, strict=False)), str(row[-1])]) for row in rows
        )

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __repr__(self) -> str:
        steps = self.steps
        span = f"steps {steps[0].step} to {steps[-1].step}" if steps else "no steps"
        return f"Trace({span}, {len(self.events)} events)"

    def _repr_html_(self) -> str:
        return f"<b>{escape(repr(self))}</b><pre>{escape(self.table())}</pre>"


class Recorder:
    """Collects a run's events between ``with`` and its end; ``trace`` is what was collected so far."""

    def __init__(self, source: Source, title: str = "") -> None:
        self.source = source
        self.title = title
        self.events: list[Event] = []
        self._keyframe: dict | None = None
        self._subscription: Subscription | None = None

    def start(self) -> Recorder:
        """Begin afresh: a keyframe from the ledgers, then every event."""
        self.stop()
        self.events = []
        with self.source.lock:  # no step may fall between the keyframe and the first event
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
        trace = Trace(self._keyframe, events, {}, self.title)
        trace.texts = {token: self.source.token_text(token) for token in tokens_in(self._keyframe, events)}
        return trace

    def __repr__(self) -> str:
        return f"Recorder({len(self.events)} events, {'recording' if self._subscription else 'stopped'})"


def tokens_in(keyframe: dict, events: list[Event]) -> list[int]:
    """Every token id that a run names, each once, in the order of their numbers."""
    found: set[int] = set()
    for request in keyframe["requests"].values():
        found.update(request["prompt"], request["output"])
    for node in keyframe["nodes"].values():
        found.update(node["tokens"])
    for event in events:
        found.update(getattr(event, "prompt", ()), getattr(event, "tokens", ()))
    return sorted(found)
