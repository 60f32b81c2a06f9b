"""SchedulerSource: what a Recorder asks of its source, answered by a scheduler without an engine around it."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from minisgl.events import Event, Snapshot, Subscription
from minisgl.scheduler import Scheduler


class SchedulerSource:
    """A base; who inherits from it says what ran (``about``) and what its tokens are (``token_text``)."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.lock = RLock()

    def snapshot(self) -> Snapshot:
        return self.scheduler.snapshot()

    def checkpoint(self) -> dict[str, Any]:
        return self.scheduler.checkpoint()

    def on(self, event_type: type[Event] | None, fn: Callable[[Any], object]) -> Subscription:
        return self.scheduler.bus.on(event_type, fn)

    def drain(self) -> None:
        self.scheduler.drain()
