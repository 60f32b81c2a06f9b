"""Many decode steps at a time, in closed form: between two decisions a decode step only counts.

As long as nobody arrives, ends or is admitted, every running request gets one token a step, and now and then a page.
Decoding cannot change what a refused request lacks, so what n such steps leave behind can be written down at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from minisgl.core import Request
from minisgl.events import types as ev
from minisgl.scheduler.cache import CacheManager
from minisgl.scheduler.policies import PHASES, decode_first, prefill_first

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


class DecodesAhead(Protocol):
    """An executor whose tokens and times are known beforehand."""

    def decode_ahead(self, requests: Sequence[Request], n: int, until: float) -> list[list[int]]:
        """Decode the same batch ``n`` times, fewer if one of its requests stops or when the clock reaches ``until``.

        Gives each request's tokens, one per step taken; at least one step is taken.
        """


def advance(s: Scheduler, n: int, until: float) -> ev.StepFinished | None:
    """Take up to ``n`` steps as ``Scheduler.advance`` says; None if not even one can be taken in closed form."""
    if s.bus or s.config.overlap or s.flying or not s.inbox.empty or s.decode_ahead is None:
        return None
    if s.phase not in PHASES.values():
        return None
    # a decode step gives nobody in the queue what he lacks, so a test that would change nothing need not be made
    refused = s.phase is prefill_first and s.prefill.refuses()
    if s.prefill.has_work and s.phase is not decode_first and not refused:
        return None
    requests = [r for _, r in sorted(s.running.items())]
    n = min([n, *(r.max_tokens - len(r.output_ids) for r in requests)]) if requests else 0
    rows = _Rows(requests, s.config.page_size)
    # after an eviction it is tested again: that may tick the prefix cache, unless it is refused before that
    evicting = refused or not s.prefill.waiting or not s.table.num_free
    while n and not rows.have_pages(s.cache, n, evicting):
        n //= 2
    if not n:
        return None
    tokens = s.decode_ahead(requests, n, until)
    n = len(tokens[0])
    s.prefill.retest = rows.take_pages(s.cache, n) or (s.prefill.retest and not refused)
    for request, more in zip(requests, tokens, strict=True):
        request.output_ids += more
        request.device_len += n
        request.cached_len = request.done_len = request.device_len - 1
    s.batches += n - 1
    last = s.batch(requests)
    for request in requests:
        if len(request.output_ids) == request.max_tokens or request.output_ids[-1] in request.stop_tokens:
            s.received(request)
    s.release_completed()
    return s.announce(last, last, n)


class _Rows:
    """Lengths of the rows that decode, as arrays over the requests."""

    def __init__(self, requests: Sequence[Request], page_size: int) -> None:
        self.requests = requests
        self.page_size = page_size
        self.lengths = np.array([r.device_len for r in requests])
        self.pages = np.array([r.num_pages for r in requests])

    def missing(self, n: int) -> np.ndarray:
        """Pages that each row lacks for its next ``n`` tokens."""
        return -(-(self.lengths + n - 1) // self.page_size) - self.pages

    def have_pages(self, cache: CacheManager, n: int, evicting: bool) -> bool:
        """Can ``n`` steps have their pages, by evicting or without, and without what is promised to others?"""
        missing = self.missing(n)
        beyond = int(np.maximum(missing - [r.reserved for r in self.requests], 0).sum())
        had = cache.free + cache.prefix.evictable
        return int(missing.sum()) <= (had if evicting else cache.free) and (
            not beyond or beyond + cache.reserved <= had
        )

    def take_pages(self, cache: CacheManager, n: int) -> bool:
        """Pages in the order in which the steps would take them; whether the last step evicts for them."""
        missing = self.missing(n)
        who = np.repeat(np.arange(len(missing)), missing)
        if not len(who):
            return False
        which = self.pages[who] + np.arange(len(who)) - np.repeat(np.cumsum(missing) - missing, missing)  # of its row
        opens = which * self.page_size + 1 - self.lengths[who]  # the step, from 0, that needs it
        order = np.lexsort((who, opens))  # step by step, within a step by uid
        evicts = False
        if len(who) <= cache.free:
            taken = cache.take(len(who))
        else:  # leaf by leaf, as each step would
            taken = []
            for step, count in zip(*(a.tolist() for a in np.unique(opens, return_counts=True)), strict=True):
                evicts = count > cache.free and step == n - 1
                taken += cache.take(count)
        pages = np.empty(len(who), np.int64)
        pages[order] = taken
        takers = np.flatnonzero(missing).tolist()
        cache.give([self.requests[i] for i in takers], missing[takers].tolist(), pages)
        return evicts
