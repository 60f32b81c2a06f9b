"""Recorder: collects a run's events into a Trace."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from html import escape
from importlib.metadata import version
from typing import Any, Protocol

from minisgl.errors import ConfigError
from minisgl.events.bus import Subscription
from minisgl.events.fold import Fold
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import fresh
from minisgl.events.trace import Trace, tokens_in
from minisgl.events.types import Event, SettingsChanged, StepFinished


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
    """Collects a run's events between ``with`` and its end; ``trace`` is what was collected so far.

    ``last`` bounds its memory: that many steps are kept (up to an eighth more), and what is older is folded into the
    state in which the trace begins. Requests that had ended by then are forgotten. Folding takes several times as long
    as keeping, so leave it out where the whole run fits. Raises ConfigError if it is not at least 1.
    """

    def __init__(self, source: Source, title: str = "", last: int | None = None) -> None:
        if last is not None and (type(last) is not int or last < 1):
            raise ConfigError(f"last={last!r}: must be None (keep every step) or an integer of at least 1")
        self.source = source
        self.title = title
        self.last = last
        self.events: list[Event] = []
        self._before: Fold | None = None  # the state before those events
        self._steps = 0  # whole ones among the events; counted only where ``last`` bounds them
        self._checkpoint: dict | None = None
        self._about: dict[str, Any] = {}  # as it was at the start: settings may change
        self._subscription: Subscription | None = None

    def start(self) -> Recorder:
        """Begin afresh: a keyframe from the ledgers, then every event."""
        self.stop()
        self.events, self._steps = [], 0
        with self.source.lock:  # no step may fall between the keyframe and the first event
            self.source.drain()
            self._checkpoint, self._about = self.source.checkpoint(), origin(self.source)
            self._before = Fold(self.source.snapshot().to_dict())
            self._subscription = self.source.on(None, self.events.append if self.last is None else self._slide)
        return self

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    __enter__ = start

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _slide(self, event: Event) -> None:
        """Keep the event; when an eighth too many steps are held, fold the oldest."""
        self.events.append(event)
        if isinstance(event, StepFinished):
            self._steps += 1
            assert self.last is not None
            if self._steps > self.last + self.last // 8:
                self._fold_oldest(self._steps - self.last)

    def _fold_oldest(self, steps: int) -> None:
        assert self._before is not None
        self._steps -= steps
        self._checkpoint = None  # it speaks of the beginning
        folded = 0
        while steps:
            event = self.events[folded]
            self._before.apply(event)
            if isinstance(event, SettingsChanged) and "config" in self._about:
                changes = dict(zip(event.names, event.values, strict=True))
                self._about = self._about | {"config": self._about["config"] | changes}
            folded += 1
            steps -= isinstance(event, StepFinished)
        del self.events[:folded]
        state = self._before.state
        for uid in state["requests"].keys() - Snapshot(state).ledgers()["requests"].keys():  # ended, all given back
            del state["requests"][uid]

    @property
    def trace(self) -> Trace:
        if self._before is None:
            raise RuntimeError("nothing recorded yet: use `with Recorder(llm) as rec:` or rec.start()")
        with self.source.lock:  # keyframe and events must fit each other
            keyframe, events = fresh(self._before.state), list(self.events)
        trace = Trace(keyframe, events, {}, self.title, self._about, self._checkpoint)
        trace.texts = {token: self.source.token_text(token) for token in tokens_in(keyframe, events)}
        return trace

    def __repr__(self) -> str:
        if self._before is None:
            return "Recorder(nothing recorded yet)"
        first = self._before.state["step"]
        now = self.events[-1].step if self.events else first
        span = f"steps {first + 1} to {now}" if now > first else "no steps"
        kept = "" if self.last is None else f", keeps the last {self.last} steps"
        return f"Recorder({span}, {len(self.events)} events, {'recording' if self._subscription else 'stopped'}{kept})"

    def _repr_html_(self) -> str:
        return f"<b>{escape(repr(self))}</b>"


def origin(source: Source) -> dict[str, Any]:
    """What a trace says of where it comes from: ``Trace.about``."""
    return source.about() | {"machine": machine()}


def machine() -> dict[str, Any]:
    """Where a run was computed, as far as it may matter to whoever compares two."""
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "minisgl": version("minisgl"),
    }
