"""The shape of a run's state, and the changes that move it.

The state is nested dicts and lists of plain values, so it is comparable, goes to JSON as it is, and a browser can hold
the same thing. It moves by *changes* ``(path, old, new)``; the changes of one step are its *delta*, applied forwards
with ``new``, and backwards, in reverse order, with ``old``. Whoever can apply a delta can scrub: the browser does.

::

    step, t              the last step folded; seconds since start
    pages.owner[p]       a uid, -1 free, -2 the prefix cache
    pages.node[p]        the tree node that holds page p, or -1
    pages.order[p]       place of a free page in the free list's endless queue (taken from the low end), or -1
    queue.taken, .added  how many pages ever left and joined that queue
    nodes[id]            NodeState; node 0 is the root
    rows[r]              uid (-1 free), generation
    requests[uid]        RequestState; finished ones stay
    waiting, running     uids in order
    counters             those of the last BatchScheduled or StepFinished
    batch                the last batch scheduled
    tests, handoffs      the admission tests and handoffs of the last step that had any, with that step's number
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from minisgl.events.types import Counters, Ints

FREE, CACHE = -1, -2  # owners that are not a uid
COUNTERS = tuple(f for f in Counters.__struct_fields__ if f not in ("step", "t", "phase", "uids", "num_tokens"))

Path = tuple[Any, ...]
Change = tuple[Path, Any, Any]


class RequestState(msgspec.Struct, kw_only=True):
    """What is known of a request; lengths in tokens. ``pages`` are those its row covers, ``node`` the one it locks."""

    uid: int
    status: str = "waiting"  # waiting | prefill | running | finished
    reason: str = ""  # stop | length | abort | error
    error: str = ""
    prompt: Ints = ()
    output: list[int] = []
    max_tokens: int = 0
    matched: int = 0
    cached_len: int = 0
    device_len: int = 0
    row: int = -1
    pages: list[int] = []
    pending: list[int] = []
    node: int = 0
    reserved: int = 0  # pages promised and not yet taken
    verdict: str = ""  # of its last admission test


class NodeState(msgspec.Struct, kw_only=True):
    """A node of the radix tree: the tokens on its edge, their pages, how many hold it, when it was last used."""

    parent: int
    tokens: Ints = ()
    pages: Ints = ()
    locks: int = 0
    used: int = 0


class RowState(msgspec.Struct, kw_only=True):
    uid: int = -1
    generation: int = 0


entry = msgspec.structs.asdict  # how any of the three is written into the state


def initial_state(num_pages: int, page_size: int, num_rows: int) -> dict:
    """The state before step 1: all pages free, in order."""
    return {
        "step": 0,
        "t": 0.0,
        "num_pages": num_pages,
        "page_size": page_size,
        "pages": {"owner": [FREE] * num_pages, "node": [-1] * num_pages, "order": list(range(num_pages))},
        "queue": {"taken": 0, "added": num_pages},
        "nodes": {0: entry(NodeState(parent=-1))},
        "rows": [entry(RowState()) for _ in range(num_rows)],
        "requests": {},
        "waiting": [],
        "running": [],
        "counters": dict.fromkeys(COUNTERS, 0) | {"free_pages": num_pages},
        "batch": {},
        "tests": [],
        "handoffs": [],
    }


def fresh(value: Any) -> Any:
    """A copy of a state, or of a value on its way into one: a delta must not change when the state moves on."""
    if isinstance(value, dict):
        return {k: fresh(v) for k, v in value.items()}
    if isinstance(value, list):
        return [fresh(v) for v in value] if value and isinstance(value[0], (dict, list)) else value[:]
    return value


def assign(state: Any, path: Path, value: Any) -> None:
    """Set the entry at ``path``. None removes a dict's entry or a list's last one; a list grows by one at its end.

    The browser's counterpart is the same few lines.
    """
    *parents, key = path
    for part in parents:
        state = state[part]
    if value is None and isinstance(state, list):
        assert key == len(state) - 1, path
        state.pop()
    elif value is None:
        state.pop(key, None)
    elif isinstance(state, list) and key == len(state):
        state.append(fresh(value))
    else:
        state[key] = fresh(value)


def lookup(state: Any, path: Path) -> Any:
    """The entry at ``path``, None when there is none."""
    for part in path:
        if isinstance(state, list):
            state = state[part] if part < len(state) else None
        else:
            state = state.get(part)
    return state


def apply_delta(state: dict, delta: Iterable[Change]) -> None:
    for path, _, new in delta:
        assign(state, path, new)


def undo_delta(state: dict, delta: list[Change]) -> None:
    for path, old, _ in reversed(delta):
        assign(state, path, old)
