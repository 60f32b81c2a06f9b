"""Trace: a recorded run as data, from a keyframe and its events."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from minisgl.events import file, tables
from minisgl.events.diff import Diff
from minisgl.events.figures import Figures, figures
from minisgl.events.history import History
from minisgl.events.integrity import violations
from minisgl.events.snapshot import Snapshot
from minisgl.events.table import Table, aligned
from minisgl.events.types import BatchScheduled, Event, StepFinished
from minisgl.events.until import Condition, Until
from minisgl.progress import progress_bar


class Trace:
    """A recorded run: the state it began in, its events, and the texts of its tokens.

    ``checkpoint`` is what the keyframe does not show and a replay needs (``Scheduler.checkpoint``).
    ``about`` says where it comes from: ``model``, ``tokenizer``, ``config`` (every EngineConfig field) and ``machine``.

    ``trace.at(step)`` is the Snapshot after that step. ``requests``, ``steps``, ``admissions``, ``handoffs`` and
    ``pages`` are tables of what happened, ``figures`` what it comes to. Nothing of the engine is kept.
    """

    def __init__(
        self,
        keyframe: dict,
        events: list[Event],
        texts: dict[int, str],
        title: str = "",
        about: dict[str, Any] | None = None,
        checkpoint: dict[str, Any] | None = None,
    ) -> None:
        self.keyframe = keyframe
        self.events = events
        self.texts = texts
        self.title = title
        self.about = about or {}
        self.checkpoint = checkpoint

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the run to a file, compressed if its name ends in ``.zst``: see ``minisgl.events.file``."""
        return file.save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trace:
        """A run from a file, which needs neither torch nor the model; what can go wrong: ``minisgl.events.file``."""
        return cls(**file.load(path))

    @cached_property
    def history(self) -> History:
        """The folded run, made at first use; a long one shows its progress."""
        history = History(self.keyframe)
        with _nothing_to_collect():
            for event in progress_bar("folding the run", "event", self.events):
                history.feed(event)
        return history

    # -- as tables, each made at first use; minisgl.events.tables says what the columns mean ---------------------------

    @cached_property
    def requests(self) -> Table:
        """One row per request: tokens, times, and what is derived of them."""
        return tables.requests(self.keyframe, self.events)

    @cached_property
    def steps(self) -> Table:
        """One row per step: its batch, the counters after it, and what happened in it."""
        return tables.steps(self.keyframe, self.events)

    @cached_property
    def admissions(self) -> Table:
        """One row per admission test, with all its terms."""
        return tables.admissions(self.events)

    @cached_property
    def handoffs(self) -> Table:
        """One row per handoff to the prefix cache: the four segments in tokens and pages."""
        return tables.handoffs(self.events)

    @cached_property
    def pages(self) -> Table:
        """Who owned each page from which step to which."""
        return tables.pages(self.keyframe, self.events)

    @cached_property
    def figures(self) -> Figures:
        """What the run comes to: TTFT, TPOT, throughput, hit rate, pages."""
        return figures(self.keyframe, self.events, self.requests, self.steps)

    # -- questions ---------------------------------------------------------------------------------------------------

    def diff(self, other: Trace, times: bool = False) -> Diff:
        """Where this run and another differ; times are left out unless asked for."""
        return Diff(self, other, times)

    def check(self) -> list[tuple[int, str]]:
        """Every broken rule as ``(step, violation)``, with the step it was first seen in; empty: the run is sound.

        Steps are judged as they are folded, and the last state once more by a walk through all of it.
        """
        last = self.history.last
        return self.history.findings + [(last, broken) for broken in violations(self.at(last).to_dict())]

    def of(self, *kinds: type[Event]) -> list[Any]:
        """The events of some types, in order."""
        return [e for e in self.events if isinstance(e, kinds)]

    def find(self, condition: Condition, after: int = -1) -> Event | None:
        """The first event after step ``after`` for which a condition holds: ``trace.find("eviction", after=7).step``.

        Conditions are those of ``minisgl.events.until``: "refusal", "free < 8", "finish of request 4", a function of
        an event ... None if there is no such event. Raises ConditionError if it cannot be read.
        """
        until = Until(condition)
        return next((e for e in self.events if e.step > after and type(e) in until.kinds and until.holds(e)), None)

    def at(self, step: int) -> Snapshot:
        """The state after StepFinished ``step``; TraceError if the run does not hold it."""
        return self.history.at(step)

    def table(self) -> str:
        """One line per batch: the pool in pages after its allocation, before its processing."""
        names = ("step", "phase", "tokens", "waiting", "running", "free", "owned", "cached", "promised", "requests")
        rows: list[tuple] = [names]
        for e in self.of(BatchScheduled):
            cached = e.evictable_pages + e.protected_pages
            pool = (e.free_pages, e.owned_pages, cached, e.reserved_pages)
            rows.append((e.step, e.phase, e.num_tokens, e.waiting, e.running, *pool, " ".join(map(str, e.uids))))
        return "\n".join(aligned([[str(v) for v in row] for row in rows], left=[names.index("requests")]))

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __repr__(self) -> str:
        steps = self.of(StepFinished)
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
