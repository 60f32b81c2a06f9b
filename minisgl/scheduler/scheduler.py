"""Scheduler: the one loop behind the engine, the simulator and the views.

A step receives, launches at most one batch and processes at most one. Everything it decides stands in plain host data;
what computes is behind ``Executor``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np

from minisgl.config import EngineConfig
from minisgl.core import Batch, Request, SamplingParams, pages_for
from minisgl.errors import LedgerError
from minisgl.events import types as ev
from minisgl.events.bus import EventBus, Subscription
from minisgl.events.fold import Fold
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import COUNTERS
from minisgl.scheduler.advance import Decoded, DecodesAhead, advance
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.checkpoint import checkpoint, restore
from minisgl.scheduler.decoding import Decoding, columns
from minisgl.scheduler.executor import Executor
from minisgl.scheduler.inbox import Inbox
from minisgl.scheduler.leaving import fail, received, release_completed, retract_last
from minisgl.scheduler.ledgers import broken_rules, ledger_state
from minisgl.scheduler.policies import PHASES
from minisgl.scheduler.prefill import PrefillManager
from minisgl.scheduler.receive import receive
from minisgl.scheduler.table import TableManager


class Scheduler:
    """Runs requests on an executor, step by step.

    Args:
        config: with ``num_pages`` and ``max_seq_len`` decided.
        executor: what computes.
        vocab_size: token ids must be below it; None: any id from 0.
        stop_tokens: the model's own end tokens.
        start: the state and the checkpoint of another scheduler, to go on from there.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        vocab_size: int | None = None,
        stop_tokens: Sequence[int] = (),
        start: tuple[dict, dict] | None = None,
    ) -> None:
        assert config.num_pages is not None and config.max_seq_len is not None
        self.config = config
        self.executor = executor
        self.ahead = executor if isinstance(executor, DecodesAhead) else None
        self.bus = EventBus(executor.now)
        self.table = TableManager(config.max_running_requests)
        self.cache = CacheManager(config, self.table, self.bus)
        self.prefill = PrefillManager(config, self.table, self.cache, self.bus)
        self.phase = PHASES[config.phase]
        self.running: dict[int, Request] = {}
        self.steps = 0  # whole steps so far
        self.requests: dict[int, Request] = {}  # arrived and not finished
        self.leaving: list[Request] = []  # finished, their rows named by a batch in flight
        self.inbox = Inbox(config, vocab_size, stop_tokens, executor.now)
        self.batches = 0  # launched so far
        # launched, not yet processed; if they only decode, and nobody's max_tokens end with it, as what
        self.flying: deque[tuple[Batch, list[Request], Decoding | None]] = deque()
        self.decoding: Decoding | None = None  # who decodes, if nothing else happened to them since
        self.stepping = False
        if start:
            restore(self, *start)
        self._check: Fold | None = None
        if config.check:
            self._check = Fold(self.snapshot().to_dict())
            self.bus.on(None, self._check.apply)

    # -- from outside, any thread ------------------------------------------------------------------------------------

    def submit(
        self,
        prompt: Sequence[int] | np.ndarray,
        params: SamplingParams,
        client_id: str | None = None,
        submitted: float | None = None,
    ) -> Request:
        """Queue a prompt; it takes effect in the next step. Raises a RequestError if it could never be served.

        ``submitted`` is when the user asked, in seconds since start; None is now.
        """
        return self.inbox.submit(prompt, params, client_id, submitted)

    def abort(self, uid: int, submitted: float | None = None) -> None:
        """End a request in the next step; nothing happens if it has ended. UnknownRequestError if it never was."""
        self.inbox.abort(uid, submitted)

    def clear_cache(self) -> None:
        """Empty the prefix cache in the next step, but for what running requests hold."""
        self.inbox.clear_cache()

    def change(self, **settings: Any) -> None:
        """Let settings be others from the next step on: order, admission, eviction, phase, max_prefill_tokens.

        Raises FixedSettingError for one that cannot change in the middle of a run, ConfigError for an impossible value.
        """
        self.inbox.change(settings)

    # -- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> ev.StepFinished | None:
        """One iteration. None when there was nothing to receive, launch or process.

        A forward that fails ends its own requests (``finish_reason`` "error", ``error``); the step goes on.
        """
        self._begin()
        try:
            return self._step()
        finally:
            self.stepping = False

    def _step(self) -> ev.StepFinished | None:
        received = receive(self)
        launched, processed = self._launch()
        # with overlap the batch just launched stays in flight; what is before it, or all if it broke, is processed
        ahead = 1 if self.config.overlap and self.flying and self.flying[-1][0] is launched else 0
        if len(self.flying) > ahead:
            processed = self._process()
        if not (received or launched or processed):
            return None
        return self.announce(launched, processed)

    def advance(self, n: int, until: float = math.inf, ends: bool = True) -> list[ev.StepFinished]:
        """As ``n`` calls of ``step``, fewer at will, none after one that ends at ``until`` (seconds) or later.

        Decode steps between two decisions are taken at once where nobody listens and the executor knows its tokens
        beforehand (the simulator's does); otherwise it is one ``step``. Gives the StepFinished of the last one, of
        those before it in which a request ended, and of those before these: there the pool was fullest. Nothing when
        there was nothing to do.

        Args:
            ends: go on when a request ends. False: there is one StepFinished at most, and it tells of the state that
                is left behind.
        """
        self._begin()
        try:
            events = advance(self, n, until, ends)
            if not events and (event := self._step()):
                events.append(event)
            return events
        finally:
            self.stepping = False

    def drain(self) -> ev.StepFinished | None:
        """Process the batch in flight, if there is one, as a step that receives and launches nothing."""
        if not self.flying:
            return None
        self._begin()
        try:
            self._drained("snapshot")
            return self.announce(None, self._process())
        finally:
            self.stepping = False

    def _begin(self) -> None:
        if self.stepping:
            raise RuntimeError("this engine is in the middle of a step: a hook may submit and abort, but not step")
        self.stepping = True
        self.bus.step = self.steps + 1

    def announce(
        self, launched: Batch | Decoded | None, processed: Batch | Decoded | None, steps: int = 1
    ) -> ev.StepFinished:
        """The step is over, or the last of several."""
        self.steps += steps
        batch = launched or processed
        event = ev.StepFinished(
            *((batch.phase, batch.uids, batch.num_tokens) if batch else ("idle", (), 0)),
            *self.counters(),
            launched=launched.number if launched else None,
            processed=processed.number if processed else None,
            processed_uids=processed.uids if processed else (),
            step=self.steps,
            t=self.executor.now(),
        )
        self.bus.deliver(event)
        if self._check:
            self.check_integrity()
        return event

    @property
    def idle(self) -> bool:
        """Nothing submitted that has not ended, nothing in flight, nothing left to announce."""
        return not self.requests and self.inbox.empty and not self.flying

    @property
    def in_flight(self) -> int:
        """Batches launched and not yet processed."""
        return len(self.flying)

    def names(self, request: Request) -> bool:
        """Does a batch in flight compute something for it?"""
        return any([request in requests for _, requests, _ in self.flying])

    def _launch(self) -> tuple[Batch | None, Batch | None]:
        """Put a batch together and launch it; the second is the batch in flight, if its pages had to be waited for."""
        requests = self.phase(self.prefill, self._decodable)
        drained = None
        group = self.decoding
        if group and group.left is not None and requests == group.requests:
            lacking = group.lacking()
        else:
            lacking = self.cache.lacking(requests)
        short = self.cache.short(lacking)
        while short:
            if self.flying:
                self._drained("pages", short)
                drained = self._process()
            elif not retract_last(self, requests):
                break
            requests = [r for r in requests if r.row >= 0]
            lacking = self.cache.lacking(requests)
            short = self.cache.short(lacking)
        if not requests:
            return None, drained
        if self.cache.allocate(lacking):
            self.prefill.retest = True

        batch, group = self._batch(requests)
        self.flying.append((batch, requests, group))
        if self.bus:
            self.bus.emit(
                ev.BatchScheduled,
                batch=batch.number,
                starts=batch.starts,
                ends=batch.ends,
                samples=batch.samples,
                reserved=tuple([r.reserved for r in requests]),
                phase=batch.phase,
                uids=batch.uids,
                num_tokens=batch.num_tokens,
                **dict(zip(COUNTERS, self.counters(), strict=True)),
            )
            self.bus.emit(ev.ForwardStarted, batch=batch.number)
        try:
            self.executor.launch(batch)
        except LedgerError:
            raise
        except Exception as failure:
            self.flying.pop()
            self.cache.put_back(batch.poison)
            self.table.put_back(batch.page_writes, batch.token_writes)  # other requests' rows wait for some of them
            fail(self, batch, requests, failure)
        return batch, drained

    def _prefills(self, request: Request, samples: bool) -> None:
        """A forward of its prompt, or of a chunk of it, is about to be launched."""
        if request.cached_len == request.matched:  # its first
            # the last token never gets KV, so from here on one token less is promised
            ps = self.config.page_size
            self.cache.reserve(request, pages_for(request.worst - 1, ps) - pages_for(request.worst, ps))
        if samples:
            request.status = "running"
            self.running[request.uid] = request

    def _decodable(self) -> list[Request]:
        """Who may have one more token, by uid."""
        if not self.decoding or not self.decoding.again():
            running = self.running
            able = [r for uid in sorted(running) if (r := running[uid]).device_len < r.end]
            self.decoding = Decoding(able, self.config.page_size)
        return self.decoding.requests

    def _batch(self, requests: list[Request]) -> tuple[Batch, Decoding | None]:
        """What the next forward of these requests is, with all writes since the last one; their lengths move on."""
        self.batches += 1
        page_writes, token_writes = self.table.take_writes()
        poison = self.cache.take_poison()
        group = self.decoding
        if group and requests == group.requests:
            starts, ends = group.launch()
            phase = "decode"
            uids, rows, samples, params, seeds = group.columns
        else:
            self.decoding = group = None
            decodes = sum([r.status == "running" for r in requests])
            phase = "mixed" if 0 < decodes < len(requests) else "decode" if decodes else "prefill"
            starts, ends = tuple([r.cached_len for r in requests]), tuple([r.device_len for r in requests])
            uids, rows, samples, params, seeds = columns(requests)
            for request, end, is_sampled in zip(requests, ends, samples, strict=True):
                if request.status == "prefill":
                    self._prefills(request, is_sampled)
                request.cached_len = end
                request.device_len = end + 1 if is_sampled else end  # then the device knows one token more
        batch = Batch(
            number=self.batches,
            phase=phase,
            uids=uids,
            rows=rows,
            starts=starts,
            ends=ends,
            samples=samples,
            params=params,
            seeds=seeds,
            page_writes=page_writes,
            token_writes=token_writes,
            poison=poison,
        )
        return batch, group if group and group.left else None

    def _drained(self, reason: str, short: int = 0) -> None:
        batch, *_ = self.flying[0]
        self.bus.emit(ev.PipelineDrained, batch=batch.number, reason=reason, short=short, pending=self.cache.pending)

    def _process(self) -> Batch:
        """Read the oldest batch in flight: append its tokens, end requests, hand KV over, free pages."""
        batch, requests, group = self.flying.popleft()
        self.cache.batch_completed()
        try:
            result = self.executor.collect()
        except LedgerError:
            raise  # a rule of our own is broken: nothing that follows could be trusted
        except Exception as failure:
            fail(self, batch, requests, failure)
            return batch
        assert result.number == batch.number, (result.number, batch.number)
        if self.bus:
            self.bus.emit(ev.ForwardFinished, batch=batch.number, started=result.started, finished=result.finished)
            self.bus.emit(
                ev.TokensSampled,
                batch=batch.number,
                uids=tuple(compress(batch.uids, batch.samples)),
                tokens=tuple(compress(result.tokens, batch.samples)),
                dropped=tuple(compress([r.status == "finished" for r in requests], batch.samples)),
            )
        if not group or group is not self.decoding or not group.receive(result.tokens, batch.ends):
            self._receive(batch, requests, result.tokens)
        release_completed(self)
        return batch

    def _receive(self, batch: Batch, requests: list[Request], tokens: Sequence[int]) -> None:
        """Append each one's token, which may end it or its prompt."""
        for request, token, end, samples in zip(requests, tokens, batch.ends, batch.samples, strict=True):
            if request.status == "finished":  # it ended while this batch was in flight: nobody wants the token
                continue
            request.done_len = end
            if not samples:
                continue
            output = request.output_ids
            output.append(token)
            if token in request.stop_tokens or len(output) == request.max_tokens or end == request.prefill_len:
                received(self, request)

    # -- looking in --------------------------------------------------------------------------------------------------

    def counters(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The ``COUNTERS`` of an event, as of now: requests, and pages."""
        return len(self.prefill.waiting), len(self.running), *self.cache.counts()

    def checkpoint(self) -> dict[str, Any]:
        """What the snapshot does not show and another scheduler needs to go on from here; drains what is in flight."""
        self.drain()
        return checkpoint(self)

    def snapshot(self) -> Snapshot:
        """The live ledgers as a Snapshot; between steps the same as the fold of all events, commentary aside."""
        return Snapshot(ledger_state(self))

    def after_step(self, fn: Callable[[ev.StepFinished, Callable[[], Snapshot]], None]) -> Subscription:
        """Call ``fn(StepFinished, get_snapshot)`` after every step."""
        return self.bus.on(ev.StepFinished, lambda event: fn(event, self.snapshot))

    def check_integrity(self) -> None:
        """Raise LedgerError naming every broken rule. With ``check=True`` the events' fold must agree as well."""
        found = broken_rules(self)
        if self._check:
            found += [
                f"events and ledgers differ at {d}" for d in Snapshot(self._check.state).differences(self.snapshot())
            ]
        if found:
            raise LedgerError(f"after step {self.steps}: " + "; ".join(found))

    def __repr__(self) -> str:
        return (
            f"Scheduler(steps={self.steps}, waiting={len(self.prefill.waiting)}, running={len(self.running)}, "
            f"{self.cache})"
        )
