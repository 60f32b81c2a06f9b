"""CacheManager: pages between the free list, the requests' rows and the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from typing import NamedTuple

from minisgl.config import EngineConfig
from minisgl.core import PageWrites, Request, pages_for
from minisgl.errors import LedgerError
from minisgl.events import types as ev
from minisgl.events.bus import EventBus
from minisgl.kvcache import PREFIX_CACHES, PageAllocator
from minisgl.scheduler.table import TableManager

Released = tuple[int, list[int]]  # the uid that owns them still, pages


class Lacking(NamedTuple):
    """Requests whose rows lack pages, and how many each."""

    requests: Sequence[Request]
    rows: Sequence[int]
    counts: Sequence[int]
    total: int

    @classmethod
    def of(cls, requests: Sequence[Request], counts: Sequence[int]) -> Lacking:
        """Those of them with a count that is not 0."""
        total = sum(counts)
        if 0 in counts:
            requests, counts = list(compress(requests, counts)), list(filter(None, counts))
        return cls(requests, [r.row for r in requests], counts, total)

    @property
    def unpromised(self) -> int:
        """How many of these pages nobody promised them."""
        return sum([n - r.reserved for n, r in zip(self.counts, self.requests, strict=True) if n > r.reserved])


class CacheManager:
    """Every page has one owner: this is where ownership changes hands. Counts are in pages."""

    def __init__(self, config: EngineConfig, table: TableManager, bus: EventBus) -> None:
        assert config.num_pages is not None
        self.page_size = config.page_size
        self.num_pages = config.num_pages
        self.table = table
        self.bus = bus
        self.allocator = PageAllocator(config.num_pages)
        self.prefix = PREFIX_CACHES[config.prefix_cache](config.page_size, bus, config.eviction)
        self.reserved = 0  # promised to running requests, not yet taken
        self._gathered: list[Released] = []  # to be freed at the end of this pass
        self.waiting: list[Released] = []  # the same, but a batch in flight still names them
        self._poison: list[int] | None = [] if config.poison else None  # freed since the last batch

    @property
    def free(self) -> int:
        return self.allocator.num_free

    @property
    def pending(self) -> int:
        """Pages that come free when the batch in flight completes; until then their requests own them."""
        return sum([len(pages) for _, pages in self.waiting]) if self.waiting else 0

    @property
    def owned(self) -> int:
        return self.counts()[2]

    def counts(self) -> tuple[int, int, int, int, int, int]:
        """Free, reserved, owned, evictable, protected and pending pages."""
        free, evictable, protected = self.allocator.num_free, self.prefix.evictable, self.prefix.protected
        return free, self.reserved, self.num_pages - free - evictable - protected, evictable, protected, self.pending

    # -- taking pages ------------------------------------------------------------------------------------------------

    def need(self, worst: int, matched: int) -> int:
        """Pages for ``worst`` tokens, on top of ``matched`` cached ones."""
        return pages_for(worst, self.page_size) - matched // self.page_size

    def fits(self, need: int) -> bool:
        """Could ``need`` more pages be promised now?"""
        return need + self.reserved <= self.free + self.prefix.evictable + self.pending

    def reserve(self, request: Request, pages: int) -> None:
        """Promise ``pages`` more to a request (fewer, if negative)."""
        request.reserved += pages
        self.reserved += pages

    def lacking(self, requests: Sequence[Request]) -> Lacking:
        """The pages that their rows lack to reach each one's ``device_len``."""
        ps = self.page_size
        return Lacking.of(requests, [-(-r.device_len // ps) - len(r.pages) for r in requests])

    def short(self, lacking: Lacking) -> int:
        """Pages that are lacking beyond what is free or evictable now.

        What a request takes beyond its promise must not be promised to anybody else, pending pages counted.
        """
        total, had = lacking.total, self.free + self.prefix.evictable
        if total + self.reserved <= had:
            return 0
        unpromised = lacking.unpromised
        return max(0, total - had, unpromised and unpromised + self.reserved - had - self.pending)

    def can_take(self, n: int, unpromised: int, evicting: bool) -> bool:
        """May ``n`` pages be taken, with or without evicting, though ``unpromised`` of them were promised to nobody?"""
        had = self.free + self.prefix.evictable
        return n <= (had if evicting else self.free) and (not unpromised or unpromised + self.reserved <= had)

    def allocate(self, lacking: Lacking) -> bool:
        """Take the pages that they lack; whether anything had to be evicted for it: exactly what is short, or more."""
        if not lacking.total:
            return False
        evicts = lacking.total > self.free
        pages = self.take(lacking.total)
        self.give(lacking, pages)
        if self.bus:
            self.bus.emit(
                ev.PagesAllocated,
                uids=tuple([r.uid for r in lacking.requests]),
                counts=tuple(lacking.counts),
                pages=tuple(pages),
            )
        return evicts

    def take(self, n: int) -> list[int]:
        """``n`` pages of the free list, for which leaves are evicted if need be."""
        if n > self.free:
            self._free(self.prefix.evict(n - self.free))
        pages = self.allocator.allocate(n)
        if pages is None:  # INVARIANT: what admission promised is there. free + evictable + pending >= reserved
            raise LedgerError(f"{n} pages needed, {self.free} free: admission promised more than there is")
        return pages

    def give(self, lacking: Lacking, pages: Sequence[int]) -> None:
        """Let allocated pages be the next ones of the rows that lack them, one after another."""
        requests, rows, counts, _ = lacking
        firsts = [len(r.pages) for r in requests]
        self.table.write(PageWrites(rows, firsts, counts, pages))
        if len(pages) == len(requests):
            return self.give_each(requests, pages)
        done = kept = 0
        for request, n in zip(requests, counts, strict=True):
            request.pages += pages[done : done + n]
            done += n
            promised = request.reserved
            if promised >= n:
                request.reserved = promised - n
                kept += n
            elif promised:
                request.reserved = 0
                kept += promised
        self.reserved -= kept

    def give_each(self, requests: Sequence[Request], pages: Sequence[int]) -> None:
        """The same, one page to each in turn, where no device need be told."""
        beyond = 0
        for request, page in zip(requests, pages, strict=True):
            request.pages.append(page)
            promised = request.reserved
            if promised:
                request.reserved = promised - 1
            else:
                beyond += 1
        self.reserved -= len(pages) - beyond

    # -- giving them back --------------------------------------------------------------------------------------------

    def handoff(self, request: Request, finished: bool, pending: bool) -> None:
        """Give the KV that is done, tokens ``[0, done_len)``, to the prefix cache: the four segments of DESIGN 4.4.

        INVARIANT: nothing is released while a batch in flight can still touch it. If such a batch names the request
        (``pending``), all waits for it: pages in ``waiting``, and the prefix under the lock that a finished request
        then keeps until ``release``.
        """
        ps, old, n = self.page_size, request.handle, request.done_len
        released = self.waiting if pending else self._gathered
        keeps = not finished or pending
        pages = request.pages[:]  # the pages to free must be read before the row is rewritten
        tokens = request.tokens(n if self.prefix.shares else 0)
        done = self.prefix.insert(tokens, pages, request.uid)
        new = done.handle
        assert old.length <= done.hit_len <= new.length or new.length == 0, (old, done.hit_len, new)

        replaced = []
        if finished and len(pages) > new.length // ps:
            released.append((request.uid, pages[new.length // ps :]))
        if old.length < done.hit_len:
            mine = slice(old.length // ps, done.hit_len // ps)
            released.append((request.uid, pages[mine]))
            if not finished:
                replaced = request.pages[mine] = self.prefix.pages(new)[mine]
                self.table.write_pages(request.row, mine.start, replaced)
        if keeps:
            self.prefix.lock(new, request.uid)  # before the old one goes: nothing may become evictable in between
        self.prefix.unlock(old, request.uid)
        request.handle = new if keeps else None
        if self.bus:
            self.bus.emit(
                ev.Handoff,
                uid=request.uid,
                finished=finished,
                n=n,
                old_len=old.length,
                hit_len=done.hit_len,
                new_len=new.length,
                page_size=ps,
                pages=tuple(pages),
                replaced=tuple(replaced),
                node=new.node.id if keeps and new.length else 0,
                path=done.path,
                tick=done.tick,
                pending=pending,
            )

    def retract(self, request: Request) -> list[int]:
        """Take a request's own pages back, uncached, and let go of its prefix; the pages, to be freed in this pass."""
        pages = request.pages[request.handle.length // self.page_size :]
        if pages:
            self._gathered.append((request.uid, pages))
        self.release(request)
        self.reserve(request, -request.reserved)
        return pages

    def release(self, request: Request) -> None:
        """Let go of the prefix that a request keeps locked."""
        if request.handle is not None:
            self.prefix.unlock(request.handle, request.uid)
            request.handle = None

    def batch_completed(self) -> None:
        """What waited for the batch in flight is freed at the end of this pass."""
        self._gathered += self.waiting
        self.waiting = []

    def free_gathered(self) -> None:
        """Append everything released in this pass to the free list, once."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, []
        pages = list(chain.from_iterable([run for _, run in gathered]))
        self._free(pages)
        if self.bus:
            uids = tuple([uid for uid, run in gathered for _ in run])
            self.bus.emit(ev.PagesFreed, pages=tuple(pages), uids=uids)

    def clear(self) -> None:
        """Evict all that nobody holds."""
        evicted = self.prefix.evict(self.prefix.evictable)
        self._free(evicted)
        if self.bus:
            self.bus.emit(ev.CacheCleared, evicted=len(evicted), kept=self.prefix.protected)

    def _free(self, pages: Sequence[int]) -> None:
        self.allocator.free(pages)
        if self._poison is not None:
            self._poison += pages

    def take_poison(self) -> list[int]:
        """Pages freed since the last call whose KV is to become NaN; none unless ``EngineConfig.poison``."""
        if not self._poison:
            return []
        pages, self._poison = self._poison, []
        return pages

    def put_back(self, poison: list[int]) -> None:
        """Poison these pages with the next batch: the one that was to do it never reached the device."""
        if self._poison is not None:
            self._poison[:0] = poison

    def __repr__(self) -> str:
        return f"CacheManager(free={self.free}, owned={self.owned}, reserved={self.reserved}, cache={self.prefix})"
