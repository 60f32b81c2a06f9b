"""Replay: a record's own inputs through the scheduler again, step for step; nothing but time may differ."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minisgl import errors
from minisgl.config import EngineConfig
from minisgl.core import Request
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.scheduler import Scheduler
from minisgl.scheduler.inbox import Abort, Change, ClearCache, Message, Refusal
from minisgl.sim.costs import DEFAULT, CostModel
from minisgl.sim.executor import SimulatedExecutor
from minisgl.sim.source import SchedulerSource
from minisgl.sim.workload import recorded_outputs


def replay(trace: Trace, costs: CostModel = DEFAULT) -> Trace:
    """Run a recorded run again, from its first keyframe, arrivals and aborts in the steps that first saw them.

    The result equals the record event for event, times aside: ``len(trace.diff(replay(trace))) == 0``. That is what
    makes a change of configuration believable.

    Raises:
        TraceError: the record does not say how to go on from its start.
    """
    scheduler, executor, steps = resume(trace, costs)
    executor.broken = failures(trace)
    with Recorder(Replayed(scheduler, trace), trace.title) as recorder:
        for each in steps:
            each.feed(scheduler)
    return recorder.trace


def resume(
    trace: Trace, costs: CostModel = DEFAULT, without: Collection[int] = ()
) -> tuple[Scheduler, SimulatedExecutor, list[Inputs]]:
    """A scheduler where the record begins, its executor, and what came from outside in each step that follows.

    Requests in ``without`` never arrive; those alive at the start are aborted in the first step.

    Raises:
        TraceError: the record does not say how to go on from its start.
    """
    start, config = beginning(trace)
    executor = SimulatedExecutor(costs)
    scheduler = Scheduler(config, executor, start=start)
    steps = inputs(trace, without)
    outputs = recorded_outputs(trace)
    alive = list(scheduler.requests.values())
    arriving = [m for each in steps for m in each.messages if isinstance(m, Request)]
    for request in (*alive, *arriving):
        executor.expect(request, outputs[request.uid])
    if steps:
        steps[0].messages[:0] = [Abort(r.uid, r.submitted) for r in alive if r.uid in without]
    return scheduler, executor, steps


def beginning(trace: Trace) -> tuple[tuple[dict, dict], EngineConfig]:
    """What a Scheduler needs to begin where a record does: keyframe and checkpoint, and the configuration.

    Raises:
        TraceError: the record does not say how to go on from its start.
    """
    if trace.checkpoint is None or "config" not in trace.about:
        raise errors.TraceError("this record holds no checkpoint and configuration, so it cannot be run again")
    return (trace.keyframe, trace.checkpoint), config_of(trace.about["config"])


def config_of(settings: dict[str, Any]) -> EngineConfig:
    """Settings out of a record. TraceError for a name or a value that this version does not know."""
    try:
        return EngineConfig.from_keywords(settings)
    except errors.ConfigError as error:
        raise errors.TraceError(
            f"this record cannot be run again: {error}. If a later version of minisgl recorded it, run it with that one"
        ) from None


@dataclass(slots=True)
class Inputs:
    """What came from outside in one step."""

    messages: list[Message]
    drains: bool = False

    def feed(self, scheduler: Scheduler, submitted: float | None = None) -> ev.StepFinished | None:
        """Take the step; None if there was nothing to do. ``submitted`` (seconds) stands for the recorded times."""
        for message in self.messages:
            scheduler.inbox.put(message if submitted is None else _at(message, submitted))
        return scheduler.drain() if self.drains else scheduler.step()


def _at(message: Message, submitted: float) -> Message:
    if isinstance(message, Request):
        message.submitted = submitted
    elif isinstance(message, (Refusal, Abort)):
        return replace(message, submitted=submitted)
    return message


def inputs(trace: Trace, without: Collection[int] = ()) -> list[Inputs]:
    """What came from outside, one for each whole step of the record; nothing of requests in ``without``.

    Raises:
        TraceError: a setting was changed that this version does not know.
    """
    steps = [Inputs([])]
    for e in trace.events:
        if getattr(e, "uid", None) in without:
            continue
        if isinstance(e, ev.RequestArrived):
            steps[-1].messages.append(_request(e))
        elif isinstance(e, ev.RequestRejected):
            error = getattr(errors, e.error)(e.message)
            steps[-1].messages.append(Refusal(e.uid, e.prompt_len, error, e.submitted, e.client_id))
        elif isinstance(e, ev.AbortRequested):
            steps[-1].messages.append(Abort(e.uid, e.submitted))
        elif isinstance(e, ev.CacheCleared):
            steps[-1].messages.append(ClearCache())
        elif isinstance(e, ev.SettingsChanged):
            changes = dict(zip(e.names, e.values, strict=True))
            config_of(changes)
            steps[-1].messages.append(Change(changes))
        elif isinstance(e, ev.PipelineDrained) and e.reason == "snapshot":
            steps[-1].drains = True
        elif isinstance(e, ev.StepFinished):
            steps.append(Inputs([]))
    return steps[:-1]


def _request(e: ev.RequestArrived) -> Request:
    return Request(
        uid=e.uid,
        prompt=np.array(e.prompt, dtype=np.int32),
        params=e.params,
        max_tokens=e.max_tokens,
        seed=e.seed,
        stop_tokens=frozenset(e.stop_tokens),
        client_id=e.client_id,
        submitted=e.submitted,
    )


def failures(trace: Trace) -> dict[int, tuple[str, Exception]]:
    """Batches whose forward broke, where and how: one that was processed broke later than at its launch."""
    processed = {e.processed for e in trace.of(ev.StepFinished)}
    found: dict[int, tuple[str, Exception]] = {}
    for e in trace.of(ev.ForwardFinished):
        if e.error:
            kind, _, text = e.error.partition(": ")
            found[e.batch] = ("collect" if e.batch in processed else "launch", type(kind, (Exception,), {})(text))
    return found


class Replayed(SchedulerSource):
    """A scheduler that runs a record again, as a Recorder wants it."""

    def __init__(self, scheduler: Scheduler, trace: Trace) -> None:
        super().__init__(scheduler)
        self.trace = trace

    def drain(self) -> None:
        """Nothing: a batch that the record left in flight stays there."""

    def token_text(self, token: int) -> str:
        return self.trace.texts.get(token, str(token))

    def about(self) -> dict[str, Any]:
        return self.trace.about
