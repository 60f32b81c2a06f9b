"""PrefixCache: who may reuse which pages. The scheduler knows only this interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from minisgl.events.bus import EventBus
from minisgl.events.state import NodeState, entry


class Handle(NamedTuple):
    """A matched or inserted prefix: its length in tokens (whole pages) and its tree node. Lock it to keep it."""

    length: int
    node: Any


class Inserted(NamedTuple):
    """What ``insert`` found and made: ``hit_len`` tokens were there already; ``handle`` covers all it now holds.

    The nodes of ``path`` were stamped with ``tick``.
    """

    hit_len: int
    handle: Handle
    path: tuple[int, ...]
    tick: int


class PrefixCache(ABC):
    """Pages in, pages out; every count is in pages, every length in tokens.

    ``peek`` only looks. ``match`` and ``insert`` count as use and may split nodes. ``evictable + protected`` is what
    the cache owns. Callers keep ownership straight: ``insert`` takes over exactly the pages beyond ``hit_len``.
    """

    evictable: int = 0
    protected: int = 0
    shares: ClassVar[bool] = True  # does it ever look at tokens?

    def __init__(self, page_size: int, bus: EventBus, eviction: str = "lru") -> None:
        self.page_size = page_size
        self.bus = bus

    @abstractmethod
    def peek(self, tokens: np.ndarray) -> int:
        """How many leading tokens are cached, in whole pages. Changes nothing."""

    @abstractmethod
    def match(self, tokens: np.ndarray, uid: int) -> Handle:
        """The longest cached prefix, for request ``uid`` to use; the caller locks it before anything is evicted."""

    @abstractmethod
    def pages(self, handle: Handle) -> list[int]:
        """The cache's pages of a handle, first token first."""

    @abstractmethod
    def insert(self, tokens: np.ndarray, pages: Sequence[int], uid: int) -> Inserted:
        """Offer whole pages of KV. ``tokens`` int32 [n], ``pages`` [>= n // page_size]; both are copied."""

    @abstractmethod
    def lock(self, handle: Handle, uid: int) -> None: ...

    @abstractmethod
    def unlock(self, handle: Handle, uid: int) -> None: ...

    @abstractmethod
    def evict(self, n: int) -> list[int]:
        """Give up ``n`` pages or more, whole leaves in the policy's order; fewer if no more are unlocked."""

    @abstractmethod
    def reorder(self, eviction: str) -> None:
        """Let leaves go in another policy's order from now on."""

    @abstractmethod
    def nodes(self) -> dict[int, dict[str, Any]]:
        """The tree as data: id -> parent, tokens, pages, locks, used, uses; 0 is the root."""

    @abstractmethod
    def clocks(self) -> dict[str, Any]:
        """What ``nodes`` does not show and ``restore`` needs, as plain data."""

    @abstractmethod
    def restore(self, nodes: dict[int, dict[str, Any]], clocks: dict[str, Any]) -> dict[int, Handle]:
        """Be as ``nodes`` and ``clocks`` were read; the handle of every node, by id."""


class NaivePrefixCache(PrefixCache):
    """Never shares: every look-up is a miss and every page stays the request's."""

    shares = False
    _nothing = Handle(0, None)

    def peek(self, tokens: np.ndarray) -> int:
        return 0

    def match(self, tokens: np.ndarray, uid: int) -> Handle:
        return self._nothing

    def pages(self, handle: Handle) -> list[int]:
        return []

    def insert(self, tokens: np.ndarray, pages: Sequence[int], uid: int) -> Inserted:
        return Inserted(0, self._nothing, (), 0)

    def lock(self, handle: Handle, uid: int) -> None:
        pass

    def unlock(self, handle: Handle, uid: int) -> None:
        pass

    def evict(self, n: int) -> list[int]:
        return []

    def reorder(self, eviction: str) -> None:
        pass

    def nodes(self) -> dict[int, dict[str, Any]]:
        return {0: entry(NodeState(parent=-1))}

    def clocks(self) -> dict[str, Any]:
        return {}

    def restore(self, nodes: dict[int, dict[str, Any]], clocks: dict[str, Any]) -> dict[int, Handle]:
        return {0: self._nothing}
