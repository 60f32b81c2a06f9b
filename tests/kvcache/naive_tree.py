"""A prefix cache so simple that it can be believed: a dict from every cached prefix, in whole pages, to its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Prefix = tuple[int, ...]


@dataclass
class Page:
    number: int
    used: int
    uses: int = 1
    locks: int = 0


class NaiveTree:
    """What :class:`minisgl.kvcache.RadixPrefixCache` must do, each thing by the slowest way there is.

    ``pages`` has an entry for every prefix of whole pages, ``ends`` the id of the node for each prefix where one ends.
    A cache that never shares is one whose page never gets full.
    """

    def __init__(self, page_size: int, eviction: str = "lru") -> None:
        self.page_size = page_size
        self.eviction = eviction
        self.pages: dict[Prefix, Page] = {}
        self.ends: dict[Prefix, int] = {}
        self.tick = 0
        self._next_id = 1

    def prefixes(self, tokens: Prefix) -> list[Prefix]:
        """Every beginning of ``tokens`` in whole pages, shortest first."""
        return [tokens[:n] for n in range(self.page_size, len(tokens) + 1, self.page_size)]

    def cached(self, tokens: Prefix) -> list[Prefix]:
        return [p for p in self.prefixes(tokens) if p in self.pages]

    def numbers(self, tokens: Prefix) -> list[int]:
        return [self.pages[p].number for p in self.cached(tokens)]

    def path(self, tokens: Prefix) -> tuple[int, ...]:
        """Ids of the nodes from the root to the prefix ``tokens``, the root left out."""
        return tuple(self.ends[p] for p in self.prefixes(tokens) if p in self.ends)

    def _end(self, prefix: Prefix) -> None:
        if prefix and prefix not in self.ends:
            self.ends[prefix] = self._next_id
            self._next_id += 1

    def use(self, tokens: Prefix) -> Prefix:
        """The longest cached prefix, just used; a node ends there from now on."""
        hits = self.cached(tokens)
        self._end(hits[-1] if hits else ())
        self.tick += 1
        for prefix in hits:
            self.pages[prefix].used = self.tick
            self.pages[prefix].uses += 1
        return hits[-1] if hits else ()

    def insert(self, tokens: Prefix, numbers: Sequence[int]) -> tuple[int, Prefix]:
        """Tokens that were there already, and the whole prefix that is there now."""
        hit = len(self.use(tokens))
        whole = self.prefixes(tokens)
        for prefix, number in zip(whole, numbers, strict=False):
            self.pages.setdefault(prefix, Page(number, self.tick))
        self._end(whole[-1] if whole else ())
        return hit, whole[-1] if whole else ()

    def lock(self, prefix: Prefix, by: int) -> None:
        for p in self.prefixes(prefix):
            self.pages[p].locks += by

    @property
    def evictable(self) -> int:
        return sum(not page.locks for page in self.pages.values())

    @property
    def protected(self) -> int:
        return len(self.pages) - self.evictable

    def edge(self, end: Prefix) -> list[Prefix]:
        """The prefixes that lie on the edge into the node that ends here."""
        edge: list[Prefix] = []
        for prefix in reversed(self.prefixes(end)):
            if edge and prefix in self.ends:
                break
            edge.insert(0, prefix)
        return edge

    def key(self, page: Page) -> int:
        return {"lru": page.used, "lfu": page.uses, "fifo": 0}[self.eviction]

    def evict(self, n: int) -> list[int]:
        """Whole leaves, until there are ``n`` pages: who goes first says ``key``, and of those the oldest node."""
        gone: list[int] = []
        while len(gone) < n:
            leaves = [
                (self.key(self.pages[end]), node, end)
                for end, node in self.ends.items()
                if not self.pages[end].locks
                and not any(len(other) > len(end) and other[: len(end)] == end for other in self.ends)
            ]
            if not leaves:
                break
            end = min(leaves)[2]
            edge = self.edge(end)
            del self.ends[end]
            gone += [self.pages.pop(prefix).number for prefix in edge]
        return gone

    def nodes(self) -> dict[int, dict]:
        """As ``PrefixCache.nodes`` gives them."""
        found = {0: {"parent": -1, "tokens": (), "pages": (), "locks": 0, "used": 0, "uses": 1}}
        for end, node in self.ends.items():
            edge = self.edge(end)
            above = edge[0][: -self.page_size]
            found[node] = {
                "parent": self.ends.get(above, 0),
                "tokens": end[len(above) :],
                "pages": tuple(self.pages[p].number for p in edge),
                "locks": self.pages[end].locks,
                "used": self.pages[end].used,
                "uses": self.pages[end].uses,
            }
        return found
