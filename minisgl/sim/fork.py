"""Fork: a recorded run taken up again after one of its steps, without its model, to go on otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from functools import cached_property
from html import escape
from threading import RLock
from typing import Any

import numpy as np

from minisgl.core import SamplingParams
from minisgl.errors import ForkError, PromptTypeError
from minisgl.events import Event, Snapshot, StepFinished, Subscription
from minisgl.events import types as ev
from minisgl.events.diff import Diff
from minisgl.events.recorder import Recorder
from minisgl.events.table import Table
from minisgl.events.trace import Trace, tokens_in
from minisgl.events.until import Condition, Stop, run_until
from minisgl.prompts import tokens_of
from minisgl.scheduler.inbox import Change, Message
from minisgl.sim.costs import CostModel
from minisgl.sim.replay import Inputs, Replayed, failures, resume
from minisgl.sim.rewind import steps_up_to
from minisgl.sim.whatif import clock_of, said

COMPARED = {"admitted": "admitted_step", "first_token": "first_token_step", "finished": "finished_step"}
COLUMNS = {"uid": "request"} | {f"{name}{now}": "step" for name in COMPARED for now in ("", "_now")}


def fork(trace: Trace, step: int, costs: CostModel | None = None, **changes: Any) -> Fork:
    """Take a recorded run up again after a step, with other settings, further requests, or both.

    ``fork(trace, 17, order="lpm")``, or ``f = fork(trace, 17); f.submit([1, 2, 3])``; then ``f.trace``.

    Args:
        trace: the record.
        step: the last step that stays as it was; the record's start, if nothing is to stay.
        costs: how long a batch takes from there on; None: fitted to the record's own.
        changes: order, admission, eviction, phase, max_prefill_tokens.

    Raises:
        TraceError: the record does not hold that step, or not how to go on from its start.
        FixedSettingError: this setting cannot change in the middle of a run; ``whatif`` changes it from the beginning.
        ForkError: run again, the record does not come out the same up to there.
    """
    return Fork(trace, step, costs or clock_of(trace), changes)


class Fork:
    """A run that was as recorded up to ``start`` and goes its own way from there.

    What the record's users asked for comes when it came: arrivals and aborts after ``start`` in the same steps, and
    with the tokens that were generated then. An engine with nothing to do takes no steps, so if this one is done
    earlier than the record was, what comes later has smaller numbers here. A Recorder takes a Fork as it takes an LLM.

    ``trace`` is the whole run, its first steps the record's own; times after them are modelled. ``diff`` compares it
    with the record, and ``table`` has the steps in which each request was admitted, had its first token and ended, in
    the record and ``_now``.
    """

    def __init__(self, record: Trace, start: int, costs: CostModel, changes: dict[str, Any]) -> None:
        self.record = record
        self.start = start
        self.changes = changes
        self.lock = RLock()
        self.scheduler, self.executor, coming = resume(record, costs)
        kept = steps_up_to(record, start)
        self._kept = [e for e in record.events if e.step <= start]
        self._retake(coming[:kept])
        self._coming = iter([_unless_set(each, changes) for each in coming[kept:]])
        self._events: list[Event] = []
        self.scheduler.bus.on(None, self._events.append)
        self.scheduler.change(**changes)

    def _retake(self, steps: Iterable[Inputs]) -> None:
        """Run the record's own steps again, and be sure that they are."""
        ends = iter([e.t for e in self._kept if isinstance(e, StepFinished)])
        self.executor.broken = failures(self.record)
        with Recorder(Replayed(self.scheduler, self.record)) as recorder:
            for each in steps:
                each.feed(self.scheduler)
                self.executor.be_at(next(ends))
        record = self.record
        diff = Trace(record.keyframe, self._kept, record.texts, about=record.about).diff(recorder.trace)
        if diff:
            raise ForkError(f"run again, the record does not come out the same up to step {self.start}: {diff}")
        launched = self.scheduler.batches  # what breaks later was no doing of the requests
        self.executor.broken = {n: how for n, how in self.executor.broken.items() if n <= launched}
        inbox, uids = self.scheduler.inbox, [e.uid for e in record.of(ev.RequestArrived, ev.RequestRejected)]
        inbox.give_uids_from(max([*uids, *record.keyframe["requests"]], default=-1) + 1)
        inbox.vocab_size = record.about.get("vocab_size")
        inbox.stop_tokens = tuple(record.about.get("stop_tokens", ()))

    # -- by hand -----------------------------------------------------------------------------------------------------

    def submit(self, prompt: Iterable[int], params: SamplingParams | None = None, client_id: str | None = None) -> int:
        """Queue a prompt of token ids for the next step; its uid. Its output is drawn, as no model is there to ask.

        Raises a RequestError if it could never be served, ForkError once ``trace`` was asked for.
        """
        self._open()
        request = self.scheduler.submit(tokens_of(prompt, _no_tokenizer), params or SamplingParams(), client_id)
        self.executor.expect(request, np.empty(0, dtype=np.int32))
        return request.uid

    def abort(self, uid: int) -> None:
        """End a request in the next step. UnknownRequestError if the record has none with this uid, nor this fork."""
        self._open()
        self.scheduler.abort(uid)

    def step(self) -> StepFinished | None:
        """The next step; None when all has ended and nobody else arrives."""
        for coming in self._coming:
            done = coming.feed(self.scheduler, self.executor.now())
            if done is not None:
                return done
        return self.scheduler.step()

    def run_until(self, condition: Condition) -> Stop:
        """Step until something happens: see ``LLM.run_until``."""
        return run_until(self, condition)

    def _open(self) -> None:
        if "trace" in self.__dict__:
            raise ForkError("this fork has run to its end; make another one of the same record")

    # -- what came of it ---------------------------------------------------------------------------------------------

    @cached_property
    def trace(self) -> Trace:
        """The whole run; what is left of it is run first."""
        while self.step() is not None:
            pass
        record, events = self.record, self._kept + self._events
        title = f"{record.title} from step {self.start} on".strip()
        title += f" with {said(self.changes)}" if self.changes else ""
        texts = {token: str(token) for token in tokens_in(record.keyframe, events)} | record.texts
        return Trace(record.keyframe, events, texts, title, record.about, record.checkpoint)

    @cached_property
    def diff(self) -> Diff:
        """The record against this run, times left out: ``diff.first`` is where they part."""
        return self.record.diff(self.trace)

    @cached_property
    def table(self) -> Table:
        """One row per request of either; -1 where it did not come so far."""
        then, now = ({row["uid"]: row for row in t.requests.rows()} for t in (self.record, self.trace))
        return Table.of_rows(
            "fork",
            COLUMNS,
            [
                (uid, *(run[uid][step] if uid in run else -1 for step in COMPARED.values() for run in (then, now)))
                for uid in sorted(then | now)
            ],
        )

    def __repr__(self) -> str:
        done = "" if "trace" in self.__dict__ else f", now at step {self.scheduler.steps}"
        return f"Fork(as recorded up to step {self.start}, then {said(self.changes) or 'the same settings'}{done})"

    def _repr_html_(self) -> str:
        return f"<b>{escape(repr(self))}</b>{self.table._repr_html_()}{self.diff._repr_html_()}"

    # -- what a Recorder wants of its source -------------------------------------------------------------------------

    def on(self, event_type: type[Event] | None, fn: Callable[[Any], object]) -> Subscription:
        return self.scheduler.bus.on(event_type, fn)

    def snapshot(self) -> Snapshot:
        return self.scheduler.snapshot()

    def checkpoint(self) -> dict[str, Any]:
        return self.scheduler.checkpoint()

    def drain(self) -> None:
        self.scheduler.drain()

    def token_text(self, token: int) -> str:
        return self.record.texts.get(token, str(token))

    def about(self) -> dict[str, Any]:
        return self.record.about | {"config": asdict(self.scheduler.config)}


def _unless_set(coming: Inputs, changes: Collection[str]) -> Inputs:
    """The step's inputs without the record's own changes of these settings."""
    messages: list[Message] = []
    for message in coming.messages:
        if isinstance(message, Change):
            message = Change({name: v for name, v in message.settings.items() if name not in changes})
            if not message.settings:
                continue
        messages.append(message)
    return Inputs(messages, coming.drains)


def _no_tokenizer(text: str) -> list[int]:
    raise PromptTypeError(f"{text[:40]!r}: a record holds no tokenizer; give token ids, as llm.encode makes them")
