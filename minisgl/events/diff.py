"""Diff: where two runs part, and in how many events they differ.

Within each step the two runs' events are aligned at the least cost (edit distance: Wagner and Fischer, 1974), so one
event more does not make everything after it differ. An event that stands on one side alone costs one; two of one type
with different fields cost one together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from minisgl.events import types as ev
from minisgl.events.snapshot import Snapshot
from minisgl.events.words import count, describe

if TYPE_CHECKING:
    from minisgl.events.trace import Trace

# fields that hold a time; what a run decides does not depend on them, and no two real runs agree in them
TIMES: dict[type[ev.Event], tuple[str, ...]] = {
    ev.RequestArrived: ("t", "submitted"),
    ev.RequestRejected: ("t", "submitted"),
    ev.AbortRequested: ("t", "submitted"),
    ev.ForwardFinished: ("t", "started", "finished"),
}
_MOST = 10  # field differences that are told


class Difference(msgspec.Struct, frozen=True):
    """One place where two runs differ: what each did there. None: nothing more in this step.

    ``fields`` are ``(name, this, other)`` of two events of one type; a longer tuple is narrowed down to its first
    difference, ``name[i]``.
    """

    step: int
    this: ev.Event | None
    other: ev.Event | None
    fields: tuple[tuple[str, Any, Any], ...] = ()

    def __str__(self) -> str:
        lines = [f"step {self.step}", f"  this run:  {_words(self.this)}", f"  the other: {_words(self.other)}"]
        lines += [f"    {name}: {a!r}, {b!r}" for name, a, b in self.fields[:_MOST]]
        if len(self.fields) > _MOST:
            lines.append(f"    and {len(self.fields) - _MOST} more fields")
        return "\n".join(lines)

    __repr__ = __str__


class Diff:
    """``len(diff)`` is the number of differing events; ``diff.first`` the first of them, or None.

    ``per_step`` counts them by step; ``config`` has the settings that differ, as ``name: (this, other)``; ``start``
    says where the starting states do. A Diff is true if the events or the starting states differ.
    """

    def __init__(self, this: Trace, other: Trace, times: bool = False) -> None:
        self.per_step: dict[int, int] = {}
        self.first: Difference | None = None
        a, b = _by_step(this.events), _by_step(other.events)
        for step in sorted(a.keys() | b.keys()):
            number, first = _compare(a[step], b[step], times)
            if number:
                self.per_step[step] = number
                self.first = self.first or first
        self._length = sum(self.per_step.values())
        ours, theirs = (t.about.get("config") or {} for t in (this, other))
        self.config: dict[str, tuple[Any, Any]] = {}
        if ours and theirs:  # a run that does not say how it was set differs in nothing that is known
            pairs = {name: (ours.get(name), theirs.get(name)) for name in ours | theirs}
            self.config = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        self._starts = (this.keyframe, other.keyframe)

    @cached_property
    def start(self) -> list[str]:
        """Where the starting states differ, as ``path: this, other``."""
        a, b = self._starts
        return [f"step: {a['step']}, {b['step']}"] * (a["step"] != b["step"]) + Snapshot(a).differences(Snapshot(b))

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return bool(self._length or self.start)

    def __str__(self) -> str:
        lines = [f"{name}: {a!r}, {b!r}" for name, (a, b) in self.config.items()]
        if lines:
            lines.insert(0, "settings differ:")
        if self.start:
            places = (p if len(p) <= 100 else f"{p[:97]}..." for p in self.start[:_MOST])
            lines += ["the runs begin differently:", *places]
            lines += [f"and {len(self.start) - _MOST} more places"] * (len(self.start) > _MOST)
        if self.first is None:
            return "\n".join([*lines, "no event differs"])
        where = f"{count(self._length, 'differing event')} in {count(len(self.per_step), 'step')}"
        return "\n".join([*lines, f"{where}; the first:", str(self.first)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def _by_step(events: Iterable[ev.Event]) -> defaultdict[int, list[ev.Event]]:
    steps: defaultdict[int, list[ev.Event]] = defaultdict(list)
    for event in events:
        steps[event.step].append(event)
    return steps


def _compare(a: list[ev.Event], b: list[ev.Event], times: bool) -> tuple[int, Difference | None]:
    """How many events of one step differ, and the first place."""
    x, y = ([_key(e, times) for e in events] for events in (a, b))
    if x == y:
        return 0, None
    start = next((i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
    end = next(
        (i for i, (p, q) in enumerate(zip(reversed(x[start:]), reversed(y[start:]), strict=False)) if p != q),
        min(len(x), len(y)) - start,
    )
    x, y = (side[start : len(side) - end] for side in (x, y))
    a, b = (side[start : len(side) - end] for side in (a, b))
    ours, theirs, both = _distances(x, y)
    least = min(ours, theirs, both)
    step = (a or b)[0].step
    if both == least or ours == theirs:  # the second: of two types, neither missing more than the other
        fields = tuple(_fields(a[0], b[0], times)) if type(a[0]) is type(b[0]) else ()
        return least, Difference(step, a[0], b[0], fields)
    if ours == least:
        return least, Difference(step, a[0], None)
    return least, Difference(step, None, b[0])


def _distances(x: list[tuple], y: list[tuple]) -> tuple[int, int, int]:
    """The cost of aligning two lists if the first of ``x`` stands alone, if that of ``y`` does, if they are a pair."""
    ids: dict[tuple, int] = {}
    p, q = (np.array([ids.setdefault(key, len(ids)) for key in keys], dtype=np.int64) for keys in (x, y))
    kinds: dict[type, int] = {}
    k, m = (np.array([kinds.setdefault(key[0], len(kinds)) for key in keys], dtype=np.int64) for keys in (x, y))
    row = below = np.arange(len(y), -1, -1)  # row[j]: cost of x[i:] and y[j:], below[j] of x[i + 1:]; here i = len(x)
    for i in range(len(x) - 1, -1, -1):
        below = row
        pair = np.where(p[i] == q, 0, np.where(k[i] == m, 1, 2)) + below[1:]
        row = np.append(np.minimum(pair, below[:-1] + 1), below[-1] + 1)
        # row[j] = min(row[j], row[j + 1] + 1), from the right: a running minimum once the slope is taken out
        slope = np.arange(len(row))
        row = np.minimum.accumulate((row + slope)[::-1])[::-1] - slope
    never = 2 * (len(x) + len(y) + 1)
    ours = int(below[0]) + 1 if x else never
    theirs = int(row[1]) + 1 if y else never
    both = int(below[1]) + (1 if k[0] == m[0] else 2) if x and y else never
    return ours, theirs, both


def _key(event: ev.Event, times: bool) -> tuple:
    """The event as a value to compare: its type and its fields, times left out unless they count."""
    kind = type(event)
    skip = () if times else TIMES.get(kind, ("t",))
    return (kind, *(getattr(event, f) for f in kind.__struct_fields__ if f not in skip))


def _fields(a: ev.Event, b: ev.Event, times: bool) -> Iterator[tuple[str, Any, Any]]:
    """Where two events of one type differ."""
    skip = () if times else TIMES.get(type(a), ("t",))
    for name in a.__struct_fields__:
        x, y = getattr(a, name), getattr(b, name)
        if name in skip or x == y:
            continue
        if isinstance(x, tuple) and isinstance(y, tuple) and max(len(x), len(y)) > 4:
            i = next((i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
            if len(x) != len(y):
                yield f"len({name})", len(x), len(y)
            if i < min(len(x), len(y)):
                yield f"{name}[{i}]", x[i], y[i]
        else:
            yield name, x, y


def _words(event: ev.Event | None) -> str:
    if event is None:
        return "nothing here"
    said = describe(event)
    return f"{type(event).__name__}: {said}" if said else type(event).__name__
