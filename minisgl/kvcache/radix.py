"""RadixPrefixCache: a tree keyed by token ids, so that prompts with the same beginning share its pages.

The idea is RadixAttention's (Zheng et al., SGLang, 2023). A node's edge carries whole pages: their tokens and page
numbers. Nodes are found page by page, so an edge never breaks inside a page.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minisgl.errors import LedgerError
from minisgl.events import types as ev
from minisgl.events.bus import EventBus
from minisgl.kvcache.base import Handle, Inserted, PrefixCache

EVICTIONS: dict[str, Callable[[Node], int]] = {  # leaves go smallest first, among equals the oldest node
    "lru": lambda node: node.used,
    "lfu": lambda node: node.uses,
    "fifo": lambda node: 0,
}


class Node:
    __slots__ = ("children", "id", "locks", "pages", "parent", "tokens", "used", "uses")

    def __init__(self, id: int, parent: Node | None, tokens: np.ndarray, pages: list[int], used: int) -> None:
        self.id = id
        self.parent = parent
        self.tokens = tokens  # int32, the edge into this node
        self.pages = pages
        self.used: int = used  # logical time of the last use; the wall clock would make runs differ
        self.uses: int = 1
        self.locks = 0
        self.children: dict[bytes, Node] = {}  # by the bytes of their first page's tokens

    def __repr__(self) -> str:
        return f"Node({self.id}, tokens={self.tokens.tolist()}, locks={self.locks}, used={self.used})"


class RadixPrefixCache(PrefixCache):
    def __init__(self, page_size: int, bus: EventBus, eviction: str = "lru") -> None:
        super().__init__(page_size, bus)
        self.key = EVICTIONS[eviction]
        self.root = Node(0, None, np.empty(0, np.int32), [], 0)
        self.tick = 0
        self.visited = 0  # heap entries looked at by evict: what its cost is measured by
        self._next_id = 1
        self._size = 1
        self._leaves: list[tuple[int, int, Node]] = []  # heap of (key, id, node); stale entries are skipped

    # -- looking up --------------------------------------------------------------------------------------------------

    def _walk(self, tokens: np.ndarray) -> tuple[list[tuple[Node, int]], int]:
        """The nodes that ``tokens`` run through, with the tokens matched in each (short only in the last)."""
        ps, done, node, path = self.page_size, 0, self.root, []
        end = len(tokens) // ps * ps
        while done < end:
            child = node.children.get(tokens[done : done + ps].tobytes())
            if child is None:
                break
            matched = _common(child.tokens, tokens[done:end]) // ps * ps
            path.append((child, matched))
            done += matched
            node = child
            if matched < len(child.tokens):
                break
        return path, done

    def peek(self, tokens: np.ndarray) -> int:
        return self._walk(tokens)[1]

    def match(self, tokens: np.ndarray, uid: int) -> Handle:
        node, length, path = self._use(tokens)
        if self.bus:
            self.bus.emit(ev.PrefixMatched, uid=uid, length=length, path=path, tick=self.tick)
        return Handle(length, node)

    def _use(self, tokens: np.ndarray) -> tuple[Node, int, tuple[int, ...]]:
        """Walk, split the last node where the match ends, and stamp the path with a new tick."""
        steps, length = self._walk(tokens)
        nodes = [node for node, _ in steps]
        if steps and steps[-1][1] < len(nodes[-1].tokens):
            nodes[-1] = self._split(*steps[-1])
        self.tick += 1
        for node in nodes:
            node.used = self.tick
            node.uses += 1
        last = nodes[-1] if nodes else self.root
        self._offer(last)
        return last, length, tuple(node.id for node in nodes)

    def pages(self, handle: Handle) -> list[int]:
        runs = []
        node = handle.node
        while node is not self.root:
            runs.append(node.pages)
            node = node.parent
        return [page for run in reversed(runs) for page in run]

    # -- changing the tree -------------------------------------------------------------------------------------------

    def _new(self, parent: Node, tokens: np.ndarray, pages: list[int], used: int) -> Node:
        node = Node(self._next_id, parent, tokens, pages, used)
        self._next_id += 1
        self._size += 1
        parent.children[tokens[: self.page_size].tobytes()] = node
        return node

    def _split(self, node: Node, length: int) -> Node:
        """Cut an edge after ``length`` tokens. ``node`` keeps its id, its end and so its handles; the first part is
        a new node above it, held by the same locks, and used as recently until somebody uses it."""
        cut = length // self.page_size
        assert node.parent is not None and 0 < length < len(node.tokens)
        upper = self._new(node.parent, node.tokens[:length], node.pages[:cut], node.used)
        upper.locks, upper.uses = node.locks, node.uses
        node.parent, node.tokens, node.pages = upper, node.tokens[length:], node.pages[cut:]
        upper.children[node.tokens[: self.page_size].tobytes()] = node
        if self.bus:
            self.bus.emit(ev.NodeSplit, node=node.id, upper=upper.id, length=length)
        return upper

    def insert(self, tokens: np.ndarray, pages: Sequence[int], uid: int) -> Inserted:
        ps = self.page_size
        end = len(tokens) // ps * ps
        node, hit_len, path = self._use(tokens[:end])
        if hit_len < end:
            # a copy: a view would keep the request's whole prompt alive as long as the node
            new = np.array(tokens[hit_len:end], dtype=np.int32)
            node = self._new(node, new, list(pages[hit_len // ps : end // ps]), self.tick)
            self.evictable += len(node.pages)
            self._offer(node)
            path = (*path, node.id)
            if self.bus:
                self.bus.emit(
                    ev.NodeInserted,
                    node=node.id,
                    parent=node.parent.id,  # type: ignore[union-attr]
                    tokens=tuple(new.tolist()),
                    pages=tuple(node.pages),
                    uid=uid,
                )
        return Inserted(hit_len, Handle(end, node), path, self.tick)

    def lock(self, handle: Handle, uid: int) -> None:
        node = handle.node
        while node is not self.root:
            if node.locks == 0:
                self.evictable -= len(node.pages)
                self.protected += len(node.pages)
            node.locks += 1
            node = node.parent
        if self.bus and handle.node is not self.root:
            self.bus.emit(ev.NodeLocked, node=handle.node.id, uid=uid)

    def unlock(self, handle: Handle, uid: int) -> None:
        node = handle.node
        while node is not self.root:
            if node.locks == 0:
                raise LedgerError(f"unlock of node {node.id}, which nobody holds")
            node.locks -= 1
            if node.locks == 0:
                self.protected -= len(node.pages)
                self.evictable += len(node.pages)
                self._offer(node)
            node = node.parent
        if self.bus and handle.node is not self.root:
            self.bus.emit(ev.NodeUnlocked, node=handle.node.id, uid=uid)

    # -- eviction ----------------------------------------------------------------------------------------------------

    def _offer(self, node: Node) -> None:
        """Put a node on the heap if it may be evicted now. Every way to become so, or to be used, ends here."""
        if node.children or node.locks or node is self.root:
            return
        heapq.heappush(self._leaves, (self.key(node), node.id, node))
        if len(self._leaves) > 2 * self._size + 64:  # mostly stale: a long-lived cache must not grow by use alone
            self._leaves = [entry for entry in self._leaves if self._valid(entry)]
            heapq.heapify(self._leaves)

    def _valid(self, entry: tuple[int, int, Node]) -> bool:
        key, _, node = entry
        return node.parent is not None and self.key(node) == key and not node.locks and not node.children

    def evict(self, n: int) -> list[int]:
        pages: list[int] = []
        gone: list[int] = []
        while len(pages) < n and self._leaves:
            entry = heapq.heappop(self._leaves)
            self.visited += 1
            if not self._valid(entry):
                continue
            node = entry[2]
            parent = node.parent
            assert parent is not None
            del parent.children[node.tokens[: self.page_size].tobytes()]
            node.parent = None
            self._size -= 1
            self.evictable -= len(node.pages)
            pages += node.pages
            gone.append(node.id)
            self._offer(parent)
        if gone and self.bus:
            self.bus.emit(ev.PagesEvicted, nodes=tuple(gone), pages=tuple(pages))
        return pages

    def reorder(self, eviction: str) -> None:
        self.key, self._leaves = EVICTIONS[eviction], []
        for node in self._nodes().values():
            self._offer(node)

    # -- as data -----------------------------------------------------------------------------------------------------

    def _nodes(self) -> dict[int, Node]:
        found: dict[int, Node] = {}
        stack = [self.root]
        while stack:
            node = stack.pop()
            found[node.id] = node
            stack.extend(node.children.values())
        return found

    def nodes(self) -> dict[int, dict[str, Any]]:
        return {
            i: {
                "parent": n.parent.id if n.parent else -1,
                "tokens": tuple(n.tokens.tolist()),
                "pages": tuple(n.pages),
                "locks": n.locks,
                "used": n.used,
                "uses": n.uses,
            }
            for i, n in self._nodes().items()
        }

    def clocks(self) -> dict[str, Any]:
        uses = [[i, n.uses] for i, n in self._nodes().items()]  # in ``nodes`` as well: readers of version 1.0 look here
        return {"tick": self.tick, "next_id": self._next_id, "uses": uses}

    def restore(self, nodes: dict[int, dict[str, Any]], clocks: dict[str, Any]) -> dict[int, Handle]:
        made = {0: self.root}
        handles = {0: Handle(0, self.root)}
        below: dict[int, list[int]] = {}
        for i, n in sorted(nodes.items()):
            below.setdefault(n["parent"], []).append(i)
        stack = below.get(0, [])
        while stack:
            i = stack.pop()
            n = nodes[i]
            parent = made[n["parent"]]
            node = Node(i, parent, np.array(n["tokens"], np.int32), list(n["pages"]), n["used"])
            node.locks, node.uses = n["locks"], n["uses"]
            parent.children[node.tokens[: self.page_size].tobytes()] = made[i] = node
            handles[i] = Handle(handles[n["parent"]].length + len(node.tokens), node)
            if node.locks:
                self.protected += len(node.pages)
            else:
                self.evictable += len(node.pages)
            stack += below.get(i, [])
        self.tick, self._next_id, self._size = clocks["tick"], clocks["next_id"], len(made)
        for node in made.values():
            self._offer(node)
        return handles

    def __del__(self) -> None:
        """Nodes and parents name each other: without this only a look through the whole heap would free them."""
        nodes = self._nodes()
        while nodes:
            nodes.popitem()[1].parent = None

    def __repr__(self) -> str:
        return f"RadixPrefixCache(nodes={self._size - 1}, evictable={self.evictable}, protected={self.protected})"


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the common beginning."""
    n = min(len(a), len(b))
    different = a[:n] != b[:n]
    first = int(different.argmax()) if n else 0
    return first if n and different[first] else n
