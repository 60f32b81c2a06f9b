"""Many decode steps at a time, in closed form: between two decisions a decode step only counts.

As long as nobody arrives, ends, is admitted, or lacks a page, every running request gets one token a step and now and
then the next page of the free list. What n such steps leave behind can be written down at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from minisgl.core import Request, pages_for
from minisgl.events import types as ev
from minisgl.scheduler.policies import PHASES, decode_first

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


@runtime_checkable
class DecodesAhead(Protocol):
    """An executor whose tokens and times are known beforehand."""

    def decode_ahead(self, requests: Sequence[Request], n: int, until: float) -> list[list[int]]:
        """Decode the same batch ``n`` times, fewer if one of its requests stops or when the clock reaches ``until``.

        Gives each request's tokens, one per step taken; at least one step is taken.
        """


def advance(s: Scheduler, n: int, until: float) -> ev.StepFinished | None:
    """Take up to ``n`` steps as ``Scheduler.advance`` says; None if not even one can be taken in closed form."""
    if s.bus or s.config.overlap or s.flying or not s.inbox.empty or not isinstance(s.executor, DecodesAhead):
        return None
    if s.phase is not decode_first and (s.phase not in PHASES.values() or s.prefill.has_work):
        return None
    requests = [r for _, r in sorted(s.running.items())]
    n = min(n, min((r.remain_len for r in requests), default=0))
    while n and not _has_pages(s, requests, n):
        n //= 2
    if not n:
        return None
    tokens = s.executor.decode_ahead(requests, n, until)
    n = len(tokens[0])
    _take_pages(s, requests, n)
    for request, more in zip(requests, tokens, strict=True):
        request.output_ids += more
        request.device_len += n
        request.cached_len = request.done_len = request.device_len - 1
    s.batches += n - 1
    last = s.batch(requests, "decode")
    for request in requests:
        s.received(request)
    s.release_completed()
    return s.announce(last, last, n)


def _missing(request: Request, n: int, page_size: int) -> int:
    """Pages that its row lacks for the next ``n`` tokens."""
    return max(0, pages_for(request.device_len + n - 1, page_size) - request.num_pages)


def _has_pages(s: Scheduler, requests: Sequence[Request], n: int) -> bool:
    """Are all pages of ``n`` steps free, so that nothing is evicted, and none of them promised to others?"""
    missing = [_missing(r, n, s.config.page_size) for r in requests]
    total, cache = sum(missing), s.cache
    beyond = sum(max(0, m - r.reserved) for m, r in zip(missing, requests, strict=True) if m)
    return total <= cache.free and (not beyond or beyond + cache.reserved <= cache.free + cache.prefix.evictable)


def _take_pages(s: Scheduler, requests: Sequence[Request], n: int) -> None:
    """Pages in the order in which the steps would take them: step by step, within a step by uid."""
    ps = s.config.page_size
    due = [
        (page * ps + 1 - request.device_len, i)  # the step, from 0, whose token is the first of that page
        for i, request in enumerate(requests)
        for page in range(request.num_pages, request.num_pages + _missing(request, n, ps))
    ]
    pages = s.cache.allocator.allocate(len(due))
    assert pages is not None
    taken: dict[int, list[int]] = {}
    for (_, i), page in zip(sorted(due), pages, strict=True):
        taken.setdefault(i, []).append(page)
    for i, own in taken.items():
        s.cache.give(requests[i], own)
