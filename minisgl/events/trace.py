"""Trace: a recorded run as data, from a keyframe and its events."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from html import escape
from typing import Any

from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import RequestState
from minisgl.events.types import BatchScheduled, Event, StepFinished


class Trace:
    """A recorded run: the state it began in, its events, and the texts of its tokens.

    ``about`` says where it comes from: ``model``, ``tokenizer``, ``config`` (every EngineConfig field) and ``machine``.

    ``trace.at(step)`` is the Snapshot after that step; ``trace.steps`` are the StepFinished events. Nothing of the
    engine is kept.
    """

    def __init__(
        self,
        keyframe: dict,
        events: list[Event],
        texts: dict[int, str],
        title: str = "",
        about: dict[str, Any] | None = None,
    ) -> None:
        self.keyframe = keyframe
        self.events = events
        self.texts = texts
        self.title = title
        self.about = about or {}

    @cached_property
    def history(self) -> History:
        """The folded run, made at first use; a long one shows its progress."""
        from tqdm.auto import tqdm

        history = History(self.keyframe)
        with _nothing_to_collect():
            for event in tqdm(self.events, desc="folding the run", unit="event", delay=2, leave=False):
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


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    """Without Python's garbage collector: it would look again and again at all that a fold keeps, half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
