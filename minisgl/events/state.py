"""The shape of a run's state, and the changes that move it.

The state is nested dicts and lists of plain values, so it is comparable, goes to JSON as it is, and a browser can hold
the same thing. It moves by *changes*; the changes of one step are its *delta*, applied forwards, and undone in reverse
order. Whoever can do both can scrub: the browser does. A change speaks of a whole batch where it can::

    ("set", path, old, new)                  one entry of a dict or list; None: the dict has no such entry
    ("column", path, keys, olds, news)       one entry for each of keys, which stand where the path says None; olds and
                                             news are lists as long as keys, or the one value that all have
    ("append", path, keys, values)           values[i] goes to the end of the list at the path, None read as keys[i]
    ("splice", path, at, removed, inserted)  inside one list, from index ``at`` on

A column's values are numbers and strings. The state::

    step, t              the last step folded; seconds since start
    pages.owner[p]       a uid, -1 free, -2 the prefix cache
    pages.node[p]        the tree node that holds page p, or -1
    pages.order[p]       place of a free page in the free list's endless queue (taken from the low end), or -1
    queue.taken, .added  how many pages ever left and joined that queue
    nodes[id]            NodeState; node 0 is the root
    rows[r]              uid (-1 free), generation
    requests[uid]        RequestState; finished ones stay, and may hold a row or pages for a while
    waiting, running     uids in order
    counters             those of the last BatchScheduled or StepFinished
    flight               batches launched and not yet processed: number, uids
    batch                the last batch scheduled
    tests, handoffs      the admission tests and handoffs of the last step that had any, with that step's number
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from minisgl.events.types import Counters, Ints

FREE, CACHE = -1, -2  # owners that are not a uid
COUNTERS = tuple(f for f in Counters.__struct_fields__ if f not in ("step", "t", "phase", "uids", "num_tokens"))

Path = tuple[Any, ...]
Change = tuple[Any, ...]  # one of the four above
Delta = Sequence[Change]


class RequestState(msgspec.Struct, kw_only=True):
    """What is known of a request; lengths in tokens. ``pages`` are those its row covers, ``node`` the one it locks.

    ``pending`` pages were given up, but a batch in flight may still name them: they stay its own until that is done.
    """

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
    """A node of the radix tree: the tokens on its edge, their pages, how many hold it, when it was last used (a tick of
    the cache's clock), and how often: each match and each insertion that goes through it is a use."""

    parent: int
    tokens: Ints = ()
    pages: Ints = ()
    locks: int = 0
    used: int = 0
    uses: int = 1


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
        "flight": [],
        "batch": {},
        "tests": [],
        "handoffs": [],
    }


def holds(request: dict) -> bool:
    """Is a request alive in the ledgers? A finished one is, while its row or some pages wait for a batch in flight."""
    return request["status"] != "finished" or request["row"] >= 0 or bool(request["pending"])


# -- moving --------------------------------------------------------------------------------------------------------


def apply_delta(state: dict, delta: Delta) -> None:
    for change in delta:
        apply(state, change)


def undo_delta(state: dict, delta: Delta) -> None:
    for change in reversed(delta):
        undo(state, change)


# ``apply`` and ``undo`` have one counterpart, in the browser: static/change.js


def apply(state: dict, change: Change) -> None:
    kind, path, *what = change
    if kind == "set":
        _set(state, path, what[1])
    elif kind == "column":
        _fill(state, path, what[0], what[2])
    elif kind == "append":
        for values, value in zip(column(state, path, what[0]), what[1], strict=True):
            values.append(value)
    else:
        at, removed, inserted = what
        lookup(state, path)[at : at + len(removed)] = inserted


def undo(state: dict, change: Change) -> None:
    kind, path, *what = change
    if kind == "set":
        _set(state, path, what[0])
    elif kind == "column":
        _fill(state, path, what[0], what[1])
    elif kind == "append":
        for values in column(state, path, what[0]):
            values.pop()
    else:
        at, removed, inserted = what
        lookup(state, path)[at : at + len(inserted)] = removed


def size(delta: Delta) -> int:
    """How many values a delta changes: what it costs to walk."""
    total = 0
    for kind, _, *what in delta:
        total += 1 if kind == "set" else len(what[1]) + len(what[2]) if kind == "splice" else len(what[0])
    return total


def lookup(state: Any, path: Path) -> Any:
    for part in path:
        state = state[part]
    return state


def column(state: dict, path: Path, keys: Collection) -> tuple:
    """The values of a column: the entries at ``path`` with None read as each of ``keys``."""
    table, field = _table(state, path)
    return tuple([table[k] for k in keys] if field is None else [table[k][field] for k in keys])


def _table(state: Any, path: Path) -> tuple[Any, Any]:
    """What is at the None of a path, and the one part behind it, if any."""
    hole = path.index(None)
    assert len(path) <= hole + 2, path
    return lookup(state, path[:hole]), path[hole + 1] if hole + 1 < len(path) else None


def _fill(state: dict, path: Path, keys: Collection, values: Any) -> None:
    table, field = _table(state, path)
    if not isinstance(values, (tuple, list)):
        values = (values,) * len(keys)
    if field is None:
        for key, value in zip(keys, values, strict=True):
            table[key] = value
    else:
        for key, value in zip(keys, values, strict=True):
            table[key][field] = value


def _set(state: Any, path: Path, value: Any) -> None:
    table = lookup(state, path[:-1])
    if value is None:
        del table[path[-1]]
    else:
        table[path[-1]] = fresh(value)


# -- copying -------------------------------------------------------------------------------------------------------


def fresh(value: Any) -> Any:
    """A copy of a state, or of a value on its way into one: a delta must not change when the state moves on."""
    if isinstance(value, dict):
        return {k: fresh(v) for k, v in value.items()}
    if isinstance(value, list):
        return [fresh(v) for v in value] if value and isinstance(value[0], (dict, list)) else value[:]
    return value


ENTRIES = ("requests", "nodes")  # the tables that grow with a run, and of which a step changes little
Touched = dict[str, set[int]]


def touched(deltas: Iterable[Delta]) -> Touched:
    """The requests and nodes that some deltas change."""
    found: Touched = {name: set() for name in ENTRIES}
    for delta in deltas:
        for _, path, *what in delta:
            if path[0] in ENTRIES:
                found[path[0]].update(what[0] if path[1] is None else path[1:2])
    return found


def branch(state: dict, private: Touched, common: dict | None = None) -> dict:
    """A copy of a state that has only its ``private`` requests and nodes for itself; the others are ``common``'s.

    ``common`` is the state itself, or an earlier copy that nobody changes. Whoever moves the copy by deltas that touch
    nothing but what is private changes nobody else's.
    """
    common = common or state
    copy = {}
    for name, part in state.items():
        if name in ENTRIES:
            own, shared = private[name], common[name]
            copy[name] = {key: fresh(e) if key in own else shared[key] for key, e in part.items()}
        elif name == "pages":
            copy[name] = {key: list(values) for key, values in part.items()}  # a packed one has arrays
        elif name in ("tests", "handoffs"):
            copy[name] = part[:]  # what they list never changes
        else:
            copy[name] = fresh(part)
    return copy


def pack(state: dict) -> dict:
    """The same state with its page table in arrays: for many copies that are only kept, half the size of lists."""
    return state | {"pages": {key: _packed(values) for key, values in state["pages"].items()}}


def _packed(values: list[int]) -> array:
    try:
        return array("i", values)
    except OverflowError:  # ``order`` counts every page that was ever freed
        return array("q", values)
