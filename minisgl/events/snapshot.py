"""Snapshot: the state of a run after one step, as arrays and plain objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import islice
from typing import Any

import numpy as np

from minisgl.events.state import CACHE, NodeState, RequestState, RowState, fresh, holds

STATES = ("free", "owned", "evictable", "protected")  # what pages.state's numbers mean

# what the ledgers know; the rest of a state is commentary that only events carry
LEDGERS = (
    *("num_pages", "page_size", "pages", "queue", "nodes", "rows", "requests", "waiting", "running", "flight"),
    "counters",
)


@dataclass(frozen=True)
class Pages:
    """The pool, page by page; the dummy page is number ``num_pages`` and in none of the arrays.

    ``owner`` int64: a uid, -1 free, -2 prefix cache. ``node`` int64: the tree node or -1. ``locks`` int64: how many
    requests hold the page through the tree. ``state`` uint8: an index into ``STATES``.
    """

    owner: np.ndarray
    node: np.ndarray
    locks: np.ndarray
    state: np.ndarray

    @property
    def dummy(self) -> int:
        return len(self.owner)

    def count(self, state: str) -> int:
        """Pages in one of ``STATES``."""
        return int((self.state == STATES.index(state)).sum())

    def __repr__(self) -> str:
        return f"Pages({', '.join(f'{s}={self.count(s)}' for s in STATES)}, dummy=#{self.dummy})"


class Tree(dict[int, NodeState]):
    """The radix tree: node id -> NodeState; node 0 is the root."""

    MOST = 200  # nodes that are printed

    def children(self) -> dict[int, list[int]]:
        """Node -> its children, by id."""
        below: dict[int, list[int]] = {i: [] for i in self}
        for i in sorted(self):
            if i:
                below[self[i].parent].append(i)
        return below

    def walk(self) -> Iterator[tuple[int, int]]:
        """``(node, depth)`` in reading order, the root left out, its children at 0. No recursion: trees can be deep."""
        below = self.children()
        stack = [(i, 0) for i in reversed(below[0])]
        while stack:
            node, depth = stack.pop()
            yield node, depth
            stack += [(i, depth + 1) for i in reversed(below[node])]

    def depth(self, node: int) -> int:
        """Tokens from the root to this node's end."""
        total = 0
        while node > 0:
            total += len(self[node].tokens)
            node = self[node].parent
        return total

    def __repr__(self) -> str:
        lines = ["root"]
        for node, depth in islice(self.walk(), self.MOST):
            n = self[node]
            pages = f"pages {list(n.pages)} locks {n.locks} used {n.used}"
            lines.append(f"{'  ' * (depth + 1)}[{node}] {list(n.tokens)} {pages}")
        if len(self) - 1 > self.MOST:
            lines.append(f"  ... and {len(self) - 1 - self.MOST} more nodes")
        return "\n".join(lines)


class Snapshot:
    """Everything the ledgers held after one step. Pure data: compare it, print it, save ``to_dict()``.

    The state that it is given may be shared with other snapshots: nobody may change it, and what is asked for is given
    as a copy.
    """

    def __init__(self, state: dict) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        """``step, t, num_pages, page_size, running, counters, batch, tests, handoffs`` as they stand in the state."""
        if name.startswith("_"):  # copy and pickle ask before there is a state
            raise AttributeError(name)
        if name not in self._state:
            raise AttributeError(f"a Snapshot has no {name!r}; it has {', '.join(self.__dir__())}")
        return fresh(self._state[name])

    def __dir__(self) -> list[str]:
        return sorted({*self._state, "pages", "tree", "rows", "queue", "requests", "to_dict", "text"} - {"nodes"})

    @cached_property
    def pages(self) -> Pages:
        table = self._state["pages"]
        owner, node = (np.array(table[k], dtype=np.int64) for k in ("owner", "node"))
        locks = np.zeros_like(node)
        for n in self._state["nodes"].values():
            if n["locks"]:
                locks[list(n["pages"])] = n["locks"]
        state = np.where(owner >= 0, 1, np.where(owner == CACHE, np.where(locks > 0, 3, 2), 0)).astype(np.uint8)
        return Pages(owner, node, locks, state)

    @cached_property
    def tree(self) -> Tree:
        return Tree({i: NodeState(**n) for i, n in self._state["nodes"].items()})

    @cached_property
    def requests(self) -> dict[int, RequestState]:
        return {uid: RequestState(**fresh(r)) for uid, r in self._state["requests"].items()}

    @cached_property
    def rows(self) -> list[RowState]:
        return [RowState(**r) for r in self._state["rows"]]

    @property
    def queue(self) -> tuple[int, ...]:
        """Uids that wait, in order."""
        return tuple(self._state["waiting"])

    def to_dict(self) -> dict:
        """Plain nested dicts and lists, the shape described in ``minisgl.events.state``."""
        return fresh(self._state)

    def ledgers(self) -> dict:
        """The part that live ledgers can confirm: no commentary, no verdicts, no requests that hold nothing."""
        part = {name: self._state[name] for name in LEDGERS}
        part["requests"] = {
            uid: {k: v for k, v in r.items() if k != "verdict"}
            for uid, r in self._state["requests"].items()
            if holds(r)
        }
        return part

    def differences(self, other: Snapshot) -> list[str]:
        """Where two snapshots' ledgers differ, as ``path: this, that``; empty when they agree."""
        return list(_differences((), self.ledgers(), other.ledgers()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._state == other._state

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        c = self._state["counters"]
        cached = c["evictable_pages"] + c["protected_pages"]
        return (
            f"Snapshot(step={self.step}, free={c['free_pages']}, owned={c['owned_pages']}, cached={cached}, "
            f"of={self.num_pages} pages of {self.page_size}, running={len(self.running)}, waiting={len(self.queue)})"
        )

    def text(self) -> str:
        """The snapshot for a terminal: counters, one line per request, the tree."""
        lines = [repr(self)]
        lines += [
            f"  request {r.uid}: {r.reason or r.status}, prompt {len(r.prompt)} ({r.matched} cached), "
            f"output {len(r.output)}/{r.max_tokens}, pages {r.pages}"
            for r in self.requests.values()
        ]
        return "\n".join([*lines, str(self.tree)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(k.removesuffix('_pages'))}</th>" for k in self.counters)
        body = "".join(f"<td>{v}</td>" for v in self.counters.values())
        return f"<b>step {self.step}</b><table><tr>{head}</tr><tr>{body}</tr></table><pre>{escape(self.text())}</pre>"


def _differences(path: tuple, a: Any, b: Any) -> Iterator[str]:
    if a == b:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(k for k in b if k not in a)]:
            yield from _differences((*path, key), a.get(key), b.get(key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences((*path, i), x, y)
    else:
        yield f"{'.'.join(map(str, path))}: {a!r}, {b!r}"
