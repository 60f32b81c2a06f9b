"""PrefillManager: the queue, admission, and prompts computed in chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from minisgl.config import EngineConfig
from minisgl.core import Request
from minisgl.events import types as ev
from minisgl.events.bus import EventBus
from minisgl.kvcache import Handle
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.policies import ORDERS, longest_prefix, promised_share, worst_case
from minisgl.scheduler.table import TableManager

PATIENCE = 64  # later arrivals that may be admitted before the first of the queue


class PrefillManager:
    """The queue, in order of arrival. One prompt at a time may be unfinished (``chunked``); it always goes first."""

    def __init__(self, config: EngineConfig, table: TableManager, cache: CacheManager, bus: EventBus) -> None:
        self.budget = config.max_prefill_tokens
        self.order = ORDERS[config.order]
        self.share = promised_share(config.admission)
        self.promise = worst_case
        self.table = table
        self.cache = cache
        self.bus = bus
        self.waiting: deque[Request] = deque()
        self.chunked: Request | None = None
        self.admissions = 0  # so far
        # Decoding cannot change what a refused head lacks, so it is tested again only when something else happened.
        self.retest = True

    def add(self, request: Request) -> None:
        self.waiting.append(request)
        self.retest = True

    def put_back(self, request: Request) -> None:
        """A retracted request goes to the head of the queue."""
        self.waiting.appendleft(request)
        self.retest = True

    @property
    def has_work(self) -> bool:
        """Might the next ``schedule`` test or compute anything?"""
        return self.chunked is not None or (bool(self.waiting) and self.retest)

    def refuses(self) -> bool:
        """Would the next test, and all that follow while others decode, be refused before they leave a trace?"""
        if self.chunked or not self.waiting or self.order is longest_prefix:  # an eviction may change that one's choice
            return False
        if not self.table.num_free:
            return True
        request = self.waiting[self._next()]
        request.worst = self.promise(request, self.share)
        return not self.cache.fits(self.cache.need(request.worst, self._matched(request)))

    def schedule(self, budget: int, beside: Sequence[Request] = ()) -> list[Request]:
        """Prompts of the next batch, ``budget`` tokens at most; each one's ``device_len`` is where it will end.

        ``beside``: requests that decode in the same batch. What they take unpromised is not promised to a prompt.
        """
        batch: list[Request] = []
        taken = self.cache.lacking(beside).unpromised if beside else 0
        if self.chunked and budget > 0:
            budget -= self._extend(self.chunked, budget)
            batch.append(self.chunked)
            if self.chunked.device_len == self.chunked.prefill_len:
                self.chunked = None
                self.retest = True
        while self.waiting and self.retest:
            place = self._next()
            request = self.waiting[place]
            verdict = self._admit(request, budget, taken)
            if verdict != "admitted":
                self.retest = verdict == "budget"  # the next batch has a budget of its own
                break
            del self.waiting[place]
            if place:
                self.waiting[0].passed += 1
            budget -= self._extend(request, budget)
            batch.append(request)
            if request.device_len < request.prefill_len:
                self.chunked = request
        return batch

    def _next(self) -> int:
        """Whom to test: the order's choice, but for a first of the queue that was passed over too often."""
        return 0 if self.waiting[0].passed >= PATIENCE else self.order(self.waiting, self._matched)

    def _prompt(self, request: Request) -> np.ndarray:
        """What may be matched: not the last token, so that at least one is computed and can be sampled from."""
        return request.tokens(request.prefill_len - 1)

    def _matched(self, request: Request) -> int:
        return self.cache.prefix.peek(self._prompt(request))

    def _extend(self, request: Request, budget: int) -> int:
        take = min(budget, request.prefill_len - request.cached_len)
        request.device_len = request.cached_len + take
        return take

    def _admit(self, request: Request, budget: int, taken: int) -> str:
        """Test a waiting request; let it in if everything fits. A refusal changes nothing that lasts.

        ``taken`` pages go to others in the same batch, promised or not: they count as promised.
        """
        terms: dict[str, int] = {}
        handle: Handle | None = None
        if self.chunked:
            verdict = "chunk"
        elif not self.table.num_free:
            verdict = "row"
            terms |= {"free_rows": 0}
        elif budget <= 0:
            verdict = "budget"
            terms |= {"free_rows": self.table.num_free, "budget": 0}
        else:
            cache, prefix = self.cache, self.cache.prefix
            prompt = self._prompt(request)
            matched = prefix.peek(prompt)
            request.worst = self.promise(request, self.share)
            need = cache.need(request.worst, matched)
            terms |= {
                "free_rows": self.table.num_free,
                "budget": budget,
                "matched": matched,
                "worst": request.worst,
                "need": need,
                "free": cache.free,
                "evictable": prefix.evictable,
                "pending": cache.pending,
                "reserved": cache.reserved + taken,
            }
            verdict = "pages"
            if cache.fits(need + taken):
                handle = prefix.match(prompt, request.uid)
                prefix.lock(handle, request.uid)
                terms |= {"evictable_locked": prefix.evictable}
                if cache.fits(need + taken):
                    verdict = "admitted"
                else:
                    prefix.unlock(handle, request.uid)
        if self.bus:
            self.bus.emit(
                ev.AdmissionTested,
                uid=request.uid,
                verdict=verdict,
                prompt_len=request.prompt_len,
                max_tokens=request.max_tokens,
                **terms,
            )
        if verdict == "admitted":
            assert handle is not None
            self._enter(request, handle, need)
        return verdict

    def _enter(self, request: Request, handle: Handle, need: int) -> None:
        """Give an admitted request its row, pointing at the matched pages, and its promise."""
        request.status = "prefill"
        request.handle = handle
        request.matched = request.cached_len = request.done_len = handle.length
        request.row, request.generation = self.table.allocate()
        self.admissions += 1
        request.admitted = self.admissions
        if not request.retractions:
            request.cached_tokens = handle.length
        request.pages = self.cache.prefix.pages(handle)
        self.table.write_pages(request.row, 0, request.pages)
        self.table.write_tokens(request.row, request.tokens(request.prefill_len))
        self.cache.reserve(request, need)
        if self.bus:
            self.bus.emit(
                ev.RequestAdmitted,
                uid=request.uid,
                row=request.row,
                generation=request.generation,
                cached_len=request.cached_len,
                pages=tuple(request.pages),
                node=handle.node.id if handle.length else 0,
                reserved=need,
            )
