"""Who listens to the events. With nobody listening no event object is ever made."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

from minisgl.events.types import EVENT_TYPES, Event


class Subscription:
    """Handle of one listener: ``with`` or :meth:`close` ends it."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def close(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class EventBus:
    """Delivers events, in the order they happen, on the scheduler's thread.

    ``if bus:`` is true when anybody listens; emitters ask that before they gather an event's fields.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.step = 0
        self._clock = clock
        self._listeners: dict[type[Event], tuple[Callable[[Any], object], ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def on(self, event_type: type[Event] | None, fn: Callable[[Any], object]) -> Subscription:
        """Call ``fn(event)`` for each event of a type; None is every type.

        A listener that raises is reported once, on stderr, and detached; the engine goes on.
        """
        types = EVENT_TYPES if event_type is None else (event_type,)
        for cls in types:
            if cls not in EVENT_TYPES:
                names = ", ".join(c.__name__ for c in EVENT_TYPES)
                raise TypeError(f"{cls!r} is not an event type; the event types are {names}")

        def entry(event: Event) -> None:
            try:
                fn(event)
            except Exception:
                print(f"minisgl: a listener of {type(event).__name__} raised and is detached:", file=sys.stderr)
                traceback.print_exc()
                undo()

        def undo() -> None:
            for cls in types:
                kept = tuple(f for f in self._listeners.get(cls, ()) if f is not entry)
                if kept:
                    self._listeners[cls] = kept
                else:
                    self._listeners.pop(cls, None)

        for cls in types:
            self._listeners[cls] = (*self._listeners.get(cls, ()), entry)
        return Subscription(undo)

    def emit(self, cls: type[Event], **fields: Any) -> None:
        """Make the event, if anybody wants it, and deliver it."""
        listeners = self._listeners.get(cls)
        if listeners:
            self.deliver(cls(step=self.step, t=self._clock(), **fields))

    def deliver(self, event: Event) -> None:
        for listener in self._listeners.get(type(event), ()):
            listener(event)
