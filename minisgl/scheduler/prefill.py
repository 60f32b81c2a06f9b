"""PrefillManager: the queue, admission in the worst case, and prompts computed in chunks."""

from __future__ import annotations

from collections import deque

import numpy as np

from minisgl.core import Request
from minisgl.events import types as ev
from minisgl.events.bus import EventBus
from minisgl.kvcache import Handle
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.table import TableManager


class PrefillManager:
    """First come, first served. One prompt at a time may be unfinished (``chunked``); it always goes first."""

    def __init__(self, budget: int, table: TableManager, cache: CacheManager, bus: EventBus) -> None:
        self.budget = budget
        self.table = table
        self.cache = cache
        self.bus = bus
        self.waiting: deque[Request] = deque()
        self.chunked: Request | None = None
        # Decoding cannot change what a refused head lacks, so it is tested again only when something else happened.
        self.retest = True

    def add(self, request: Request) -> None:
        self.waiting.append(request)
        self.retest = True

    def schedule(self) -> list[Request]:
        """The requests of the next prefill batch, each with ``device_len`` set to the end of what it computes."""
        budget = self.budget
        batch: list[Request] = []
        if self.chunked:
            budget -= self._extend(self.chunked, budget)
            batch.append(self.chunked)
            if self.chunked.device_len == self.chunked.prompt_len:
                self.chunked = None
                self.retest = True
        while self.waiting and self.retest:
            request = self.waiting[0]
            if not self._admit(request, budget):
                self.retest = False
                break
            self.waiting.popleft()
            budget -= self._extend(request, budget)
            batch.append(request)
            if request.device_len < request.prompt_len:
                self.chunked = request
        return batch

    def _extend(self, request: Request, budget: int) -> int:
        take = min(budget, request.prompt_len - request.cached_len)
        request.device_len = request.cached_len + take
        return take

    def _admit(self, request: Request, budget: int) -> bool:
        """Test the head of the queue; let it in if everything fits. A refusal changes nothing that lasts."""
        terms: dict[str, int] = {}
        handle: Handle | None = None
        if self.chunked:
            verdict = "chunk"
        elif not self.table.num_free:
            verdict = "row"
            terms |= {"free_rows": 0}
        elif not budget:
            verdict = "budget"
            terms |= {"free_rows": self.table.num_free, "budget": 0}
        else:
            cache, prefix = self.cache, self.cache.prefix
            # stops at the last token but one, so that at least one token is computed and can be sampled from
            prompt = np.array(request.token_ids[: request.prompt_len - 1], dtype=np.int32)
            matched = prefix.peek(prompt)
            need = cache.need(request, matched)
            terms |= {
                "free_rows": self.table.num_free,
                "budget": budget,
                "matched": matched,
                "need": need,
                "free": cache.free,
                "evictable": prefix.evictable,
                "pending": cache.pending,
                "reserved": cache.reserved,
            }
            verdict = "pages"
            if cache.fits(need):
                handle = prefix.match(prompt, request.uid)
                prefix.lock(handle, request.uid)
                terms |= {"evictable_locked": prefix.evictable}
                if cache.fits(need):
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
        if verdict != "admitted":
            return False
        assert handle is not None
        self._enter(request, handle, need)
        return True

    def _enter(self, request: Request, handle: Handle, need: int) -> None:
        """Give an admitted request its row, pointing at the matched pages, and its promise."""
        request.status = "prefill"
        request.handle = handle
        request.matched = request.cached_len = request.done_len = handle.length
        request.row, request.generation = self.table.allocate()
        pages = self.cache.prefix.pages(handle)
        request.num_pages = len(pages)
        self.table.write_pages(request.row, 0, pages)
        self.table.write_tokens(request.row, np.array(request.token_ids, dtype=np.int32))
        self.cache.reserve(request, need)
        if self.bus:
            self.bus.emit(
                ev.RequestAdmitted,
                uid=request.uid,
                row=request.row,
                generation=request.generation,
                cached_len=request.cached_len,
                pages=tuple(pages),
                node=handle.node.id if handle.length else 0,
                reserved=need,
            )
