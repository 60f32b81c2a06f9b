"""Decoding: the same requests in one batch after another, reckoned ahead for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from minisgl.core import Request
from minisgl.scheduler.cache import Lacking


class Decoding:
    """Those who decode, by uid. A batch of all of them gives each one token more and changes nothing else, so who needs
    a page and when the first of them ends is known beforehand.

    It holds as long as that is all that happens to them; what else does drops it (``Scheduler.decoding``).
    """

    def __init__(self, requests: list[Request], page_size: int) -> None:
        self.requests = requests
        self.left: int | None = None  # batches until one of them has all its tokens; None before the first of these
        self._page_size = page_size
        self._next = 0  # which of _lacking the next batch finds
        self._ends: tuple[int, ...] = ()  # of the last batch

    def again(self) -> bool:
        """Can all of them be in the next batch as well?"""
        if self.left is None:
            self.left = min([r.end - r.device_len for r in self.requests], default=0)
        return self.left > 0

    def lacking(self) -> Lacking:
        """The pages that they lack for the next batch: as ``CacheManager.lacking`` would find it."""
        return self._lacking[self._next]

    def launch(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """All of them are in one more batch, whose starts and ends these are; their lengths move on."""
        starts = self._ends or tuple([r.cached_len for r in self.requests])
        self._ends = ends = tuple([n + 1 for n in starts])
        for request, end in zip(self.requests, ends, strict=True):
            request.cached_len = end
            request.device_len = end + 1
        if self.left is not None:
            self.left -= 1
            self._next = (self._next + 1) % self._page_size
        return starts, ends

    def receive(self, tokens: Sequence[int], ends: Sequence[int]) -> bool:
        """Append each one's token of a batch that ended there; not if one of them ends somebody."""
        if not self._stops.isdisjoint(tokens):
            return False
        for request, token, end in zip(self.requests, tokens, ends, strict=True):
            request.done_len = end
            request.output_ids.append(token)
        return True

    @cached_property
    def _stops(self) -> frozenset[int]:
        """Tokens that end any of them."""
        return frozenset().union(*[r.stop_tokens for r in self.requests])

    @cached_property
    def _lacking(self) -> list[Lacking]:
        """The same for each of the next ``page_size`` batches; then it begins anew."""
        ps = self._page_size
        full: list[list[Request]] = [[] for _ in range(ps)]
        for r in self.requests:
            room = len(r.pages) * ps - r.device_len + 1  # tokens that its last page will still take
            assert 0 <= room < ps, (r, len(r.pages))
            full[room].append(r)
        return [Lacking.of(those, [1] * len(those)) for those in full]

    @cached_property
    def columns(self) -> tuple[tuple, ...]:
        """What their batches have in common: uids, rows, samples, params, seeds."""
        return columns(self.requests)


def columns(requests: list[Request]) -> tuple[tuple, ...]:
    """What does not change from one of their batches to the next: uids, rows, who samples, params, seeds."""
    return (
        tuple([r.uid for r in requests]),
        tuple([r.row for r in requests]),
        tuple([r.device_len >= r.prefill_len for r in requests]),
        tuple([r.params for r in requests]),
        tuple([r.seed for r in requests]),
    )
