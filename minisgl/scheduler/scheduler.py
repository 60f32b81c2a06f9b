"""Scheduler: the one loop behind the engine, the simulator and the views.

A step receives, launches at most one batch and processes at most one. Everything it decides stands in plain host data;
what computes is behind ``Executor``.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from minisgl.config import EngineConfig
from minisgl.core import Batch, Request, SamplingParams, pages_for
from minisgl.errors import LedgerError
from minisgl.events import types as ev
from minisgl.events.bus import EventBus, Subscription
from minisgl.events.fold import Fold
from minisgl.events.integrity import violations
from minisgl.events.snapshot import Snapshot
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.executor import Executor
from minisgl.scheduler.inbox import Abort, Inbox, Refusal
from minisgl.scheduler.ledgers import ledger_state
from minisgl.scheduler.prefill import PrefillManager
from minisgl.scheduler.table import TableManager


class Scheduler:
    """Runs requests on an executor, step by step.

    Args:
        config: with ``num_pages`` and ``max_seq_len`` decided.
        executor: what computes.
        vocab_size: token ids must be below it; None: any id from 0.
        stop_tokens: the model's own end tokens.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        vocab_size: int | None = None,
        stop_tokens: Sequence[int] = (),
    ) -> None:
        assert config.num_pages is not None and config.max_seq_len is not None
        self.config = config
        self.executor = executor
        self.bus = EventBus(executor.now)
        self.table = TableManager(config.max_running_requests, config.max_seq_len, config.page_size, config.num_pages)
        self.cache = CacheManager(config, self.table, self.bus)
        self.prefill = PrefillManager(config.max_prefill_tokens, self.table, self.cache, self.bus)
        self.running: dict[int, Request] = {}
        self.steps = 0  # whole steps so far
        self.requests: dict[int, Request] = {}  # arrived and not finished
        self.inbox = Inbox(config, vocab_size, stop_tokens, executor.now)
        self._next_batch = itertools.count(1)
        self._in_flight: deque[tuple[Batch, list[Request]]] = deque()
        self.stepping = False
        self._check: Fold | None = None
        if config.check:
            self._check = Fold(self.snapshot().to_dict())
            self.bus.on(None, self._check.apply)

    # -- from outside, any thread ------------------------------------------------------------------------------------

    def submit(self, prompt: Sequence[int], params: SamplingParams, client_id: str | None = None) -> Request:
        """Queue a prompt; it takes effect in the next step. Raises a RequestError if it could never be served."""
        return self.inbox.submit(prompt, params, client_id)

    def abort(self, uid: int) -> None:
        """End a request in the next step; nothing happens if it has ended. UnknownRequestError if it never was."""
        self.inbox.abort(uid)

    # -- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> ev.StepFinished | None:
        """One iteration. None when there was nothing to receive, launch or process.

        A forward that fails ends its own requests (``finish_reason`` "error", ``error``); the step goes on.
        """
        if self.stepping:
            raise RuntimeError("this engine is in the middle of a step: a hook may submit and abort, but not step")
        self.stepping = True
        try:
            return self._step()
        finally:
            self.stepping = False

    def drain(self) -> None:
        """Process what is in flight and launch nothing."""

    def _step(self) -> ev.StepFinished | None:
        self.bus.step = self.steps + 1
        received = self._receive()
        launched = self._launch()
        processed = self._process() if self._in_flight else None
        if not (received or launched or processed):
            return None
        self.steps += 1
        event = ev.StepFinished(
            step=self.steps,
            t=self.executor.now(),
            launched=launched.number if launched else None,
            processed=processed.number if processed else None,
            processed_uids=processed.uids if processed else (),
            **_columns(launched or processed),
            **self.counters(),
        )
        self.bus.deliver(event)
        if self._check:
            self.check_integrity()
        return event

    @property
    def idle(self) -> bool:
        """Nothing submitted that has not ended, nothing left to announce."""
        return not self.requests and self.inbox.empty and not self._in_flight

    def _receive(self) -> bool:
        received = False
        for message in self.inbox.take():
            received = True
            if isinstance(message, Request):
                self._arrive(message)
            elif isinstance(message, Refusal):
                self._refuse(message)
            else:
                self._abort(message)
        self.cache.free_gathered()
        return received

    def _arrive(self, request: Request) -> None:
        self.requests[request.uid] = request
        self.prefill.add(request)
        if self.bus:
            self.bus.emit(
                ev.RequestArrived,
                uid=request.uid,
                prompt=tuple(request.token_ids),
                max_tokens=request.max_tokens,
                params=request.params,
                seed=request.seed,
                stop_tokens=tuple(sorted(request.stop_tokens)),
                submitted=request.submitted,
                client_id=request.client_id,
            )

    def _refuse(self, refusal: Refusal) -> None:
        self.bus.emit(
            ev.RequestRejected,
            uid=refusal.uid,
            prompt_len=refusal.prompt_len,
            error=type(refusal.error).__name__,
            message=str(refusal.error),
            submitted=refusal.submitted,
            client_id=refusal.client_id,
        )

    def _abort(self, abort: Abort) -> None:
        self.bus.emit(ev.AbortRequested, uid=abort.uid, submitted=abort.submitted)
        request = self.requests.get(abort.uid)
        if request is not None:
            self._finish(request, "abort", request.cached_len)

    def _launch(self) -> Batch | None:
        """Prefill first; else one token for every running request."""
        requests, phase = self.prefill.schedule(), "prefill"
        if not requests:
            requests, phase = [self.running[uid] for uid in sorted(self.running)], "decode"
        if not requests:
            return None
        if self.cache.allocate(requests):
            self.prefill.retest = True

        slot_writes, token_writes = self.table.take_writes()
        batch = Batch(
            number=next(self._next_batch),
            phase=phase,
            uids=tuple(r.uid for r in requests),
            rows=tuple(r.row for r in requests),
            starts=tuple(r.cached_len for r in requests),
            ends=tuple(r.device_len for r in requests),
            samples=tuple(r.device_len >= r.prompt_len for r in requests),
            params=tuple(r.params for r in requests),
            seeds=tuple(r.seed for r in requests),
            slot_writes=slot_writes,
            token_writes=token_writes,
        )
        for request, samples in zip(requests, batch.samples, strict=True):
            if request.cached_len == request.matched and request.status == "prefill":  # its first forward
                # the last token never gets KV, so from here on one token less is promised
                worst = request.prompt_len + request.max_tokens
                ps = self.config.page_size
                self.cache.reserve(request, pages_for(worst - 1, ps) - pages_for(worst, ps))
            request.cached_len = request.device_len
            if samples:
                request.device_len += 1
                request.status = "running"
                self.running[request.uid] = request
        self._in_flight.append((batch, requests))
        if self.bus:
            self.bus.emit(
                ev.BatchScheduled,
                batch=batch.number,
                starts=batch.starts,
                ends=batch.ends,
                samples=batch.samples,
                reserved=tuple(r.reserved for r in requests),
                **_columns(batch),
                **self.counters(),
            )
            self.bus.emit(ev.ForwardStarted, batch=batch.number)
        try:
            self.executor.launch(batch)
        except Exception as failure:
            self._in_flight.pop()
            self.table.put_back(slot_writes, token_writes)  # other requests' rows wait for some of them
            self._fail(batch, requests, failure)
        return batch

    def _fail(self, batch: Batch, requests: list[Request], failure: Exception) -> None:
        """The forward broke: its requests end with an error, without the KV it should have made; the engine goes on."""
        for request, start in zip(requests, batch.starts, strict=True):
            if not request.finished:
                request.error = failure
                self._finish(request, "error", start)
        self.cache.free_gathered()

    def _process(self) -> Batch:
        """Read the oldest batch in flight: append its tokens, end requests, hand KV over, free pages."""
        batch, requests = self._in_flight.popleft()
        try:
            result = self.executor.collect()
        except Exception as failure:
            self._fail(batch, requests, failure)
            return batch
        assert result.number == batch.number, (result.number, batch.number)
        if self.bus:
            self.bus.emit(ev.ForwardFinished, batch=batch.number, started=result.started, finished=result.finished)
        sampled = [
            (request, token, end)
            for request, token, end, samples in zip(requests, result.tokens, batch.ends, batch.samples, strict=True)
            if samples
        ]
        if self.bus:
            self.bus.emit(
                ev.TokensSampled,
                batch=batch.number,
                uids=tuple(request.uid for request, _, _ in sampled),
                tokens=tuple(token for _, token, _ in sampled),
                dropped=tuple(request.finished for request, _, _ in sampled),
            )
        for request, token, end in sampled:
            if request.finished:
                continue
            request.token_ids.append(token)
            if token in request.stop_tokens:
                self._finish(request, "stop", end)
            elif request.remain_len == 0:
                self._finish(request, "length", end)
            elif end == request.prompt_len:
                self.cache.handoff(request, end, finished=False)
                self.prefill.retest = True
        self.cache.free_gathered()
        return batch

    def _finish(self, request: Request, reason: str, n: int) -> None:
        """End a request, its KV valid for ``[0, n)``. Pages go to the cache and to the free list, its row back."""
        if request.row >= 0:
            self.cache.handoff(request, n, finished=True)
            self.cache.reserve(request, -request.reserved)
            self.table.free(request.row)
            self.running.pop(request.uid, None)
            if self.prefill.chunked is request:
                self.prefill.chunked = None
        else:
            self.prefill.waiting.remove(request)
        request.status, request.finish_reason = "finished", reason
        del self.requests[request.uid]
        self.prefill.retest = True
        if self.bus:
            self.bus.emit(
                ev.RequestFinished,
                uid=request.uid,
                reason=reason,
                num_output=len(request.token_ids) - request.prompt_len,
                error="" if request.error is None else f"{type(request.error).__name__}: {request.error}",
            )
        if request.row >= 0:
            self.bus.emit(ev.RowReleased, uid=request.uid, row=request.row, generation=request.generation)
            request.row = -1

    # -- looking in --------------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, Any]:
        """The counters of ``events.Counters``, as of now: requests, and pages."""
        prefix = self.cache.prefix
        return {
            "waiting": len(self.prefill.waiting),
            "running": len(self.running),
            "free_pages": self.cache.free,
            "reserved_pages": self.cache.reserved,
            "owned_pages": self.cache.owned,
            "evictable_pages": prefix.evictable,
            "protected_pages": prefix.protected,
            "pending_pages": 0,
        }

    def snapshot(self) -> Snapshot:
        """The live ledgers as a Snapshot; between steps the same as the fold of all events, commentary aside."""
        return Snapshot(ledger_state(self))

    def after_step(self, fn: Callable[[ev.StepFinished, Callable[[], Snapshot]], None]) -> Subscription:
        """Call ``fn(StepFinished, get_snapshot)`` after every step."""
        return self.bus.on(ev.StepFinished, lambda event: fn(event, self.snapshot))

    def check_integrity(self) -> None:
        """Raise LedgerError naming every broken rule. With ``check=True`` the events' fold must agree as well."""
        state = ledger_state(self)
        found = violations(state)
        seated = [*self.running.values(), *([self.prefill.chunked] if self.prefill.chunked else [])]
        rows = sorted([*self.table.free_rows, *(r.row for r in seated)])
        if rows != list(range(self.config.max_running_requests)):
            found.append(f"free rows {sorted(self.table.free_rows)} and rows in use do not add up: {rows}")
        for request in seated:
            for position in self.table.misplaced(request.row, request.num_pages):
                found.append(f"row {request.row} of request {request.uid}: token {position} is out of its page's order")
        if self._check:
            differences = Snapshot(self._check.state).differences(Snapshot(state))
            found += [f"events and ledgers differ at {d}" for d in differences]
        if found:
            raise LedgerError(f"after step {self.steps}: " + "; ".join(found))

    def __repr__(self) -> str:
        return (
            f"Scheduler(steps={self.steps}, waiting={len(self.prefill.waiting)}, running={len(self.running)}, "
            f"{self.cache})"
        )


def _columns(batch: Batch | None) -> dict:
    """The fields of ``events.Counters`` that speak of the step's batch."""
    if batch is None:
        return {"phase": "idle", "uids": (), "num_tokens": 0}
    return {"phase": batch.phase, "uids": batch.uids, "num_tokens": batch.num_tokens}
