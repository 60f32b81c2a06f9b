"""Rewind: an engine taken back to the start of a record of its own, to be run again up to one of its steps."""

from __future__ import annotations

from collections.abc import Sequence

from minisgl.core import Request
from minisgl.errors import ForkError, TraceError
from minisgl.events import Event, StepFinished
from minisgl.events import types as ev
from minisgl.events.state import FREE
from minisgl.events.trace import Trace
from minisgl.events.words import count, pages
from minisgl.scheduler import Scheduler
from minisgl.sim.replay import Inputs, beginning, inputs


def steps_up_to(trace: Trace, step: int) -> int:
    """How many whole steps a record has up to this one, itself included. TraceError if it does not hold it."""
    first = trace.keyframe["step"]
    last = first + len(trace.of(StepFinished))
    if not first <= step <= last:
        raise TraceError(f"step {step} is not in this run: it holds steps {first} to {last}")
    return step - first


def rewound(scheduler: Scheduler, trace: Trace) -> tuple[Scheduler, list[Inputs]]:
    """A scheduler on the same executor, as at the start of a record of this one, and what came in each step since.

    The record must reach up to now; what is waiting or running now is aborted. The device keeps what it has, so the KV
    that was there when the record began must still be. Both schedulers have one inbox.

    Raises:
        TraceError: the record does not say how to go on from its start.
        ForkError: it is no record of this engine up to now, or what it began with is gone.
    """
    start, config = beginning(trace)
    coming = inputs(trace)
    _still_there(trace, trace.events)
    apart = trace.at(trace.history.last).differences(scheduler.snapshot())
    if apart:
        raise ForkError(
            f"the engine is not where this record ends ({apart[0]}): run the record without the model, "
            f"fork(trace, step), or record anew"
        )
    _still_there(trace, _end_all(scheduler))
    again = Scheduler(config, scheduler.executor, start=start)
    again.inbox = scheduler.inbox  # whoever submits meanwhile, on another thread, is heard, and no uid is given twice
    again.cache.put_back(list(again.cache.allocator))  # under poison=True: what was free was NaN
    return again, coming


def _still_there(trace: Trace, since: Sequence[Event]) -> None:
    """Is all KV that the record began with where it was, after these events? Who takes a page writes over it."""
    start = trace.keyframe
    alive = [uid for uid, r in start["requests"].items() if r["row"] >= 0]
    if alive:
        raise ForkError(
            f"{count(len(alive), 'request')} ({', '.join(map(str, alive[:8]))}) had begun before the record did, and "
            f"their KV is gone: begin to record (or make the Dashboard) while the engine is idle"
        )
    held = {page for page, owner in enumerate(start["pages"]["owner"]) if owner != FREE}
    poisons = trace.about["config"].get("poison")
    lost = (ev.PagesAllocated, ev.PagesFreed, ev.PagesEvicted) if poisons else (ev.PagesAllocated,)
    gone = sorted(held.intersection(page for e in since if isinstance(e, lost) for page in e.pages))
    if gone:
        raise ForkError(
            f"the prefix cache was in use when the record began, and its pages {pages(tuple(gone))} were given to "
            f"others since: call llm.clear_cache() and llm.step() before you begin to record (or make the Dashboard)"
        )


def _end_all(scheduler: Scheduler) -> list[Event]:
    """Abort whatever has not ended, even what nobody has received yet, until all pages and rows are back.

    Others may go on submitting. Gives the events of it.
    """
    events: list[Event] = []
    with scheduler.bus.on(None, events.append):
        while not scheduler.idle:
            pending = list(scheduler.inbox.take())
            for message in pending:
                scheduler.inbox.put(message)
            for uid in [*scheduler.requests, *(m.uid for m in pending if isinstance(m, Request))]:
                scheduler.abort(uid)
            scheduler.step()
    return events
