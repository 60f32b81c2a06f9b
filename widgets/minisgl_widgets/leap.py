"""A leap: many steps' deltas as one, so that a browser crosses a long run in a few of them.

It is a delta like any other (``minisgl.events.state``): applied, it moves the state over all the steps at once; undone,
it moves it back. What changed and changed back in between is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minisgl.events.state import ENTRIES, Change, Delta, apply_delta, fresh, touched

STEPS = 128  # that a leap takes


def leap(state: dict, deltas: Sequence[Delta]) -> Delta:
    """Move ``state`` by ``deltas``, and give what that changed in all."""
    entries = touched(deltas)
    pages = _pages_touched(deltas)
    old_pages = {field: [state["pages"][field][p] for p in keys] for field, keys in pages.items()}
    old_entries = {name: {i: fresh(state[name][i]) for i in entries[name] if i in state[name]} for name in ENTRIES}
    old_rest = {name: fresh(part) for name, part in state.items() if name not in (*ENTRIES, "pages")}
    for delta in deltas:
        apply_delta(state, delta)
    changes: list[Change] = []
    for field, keys in pages.items():
        news = [state["pages"][field][p] for p in keys]
        changes += _column(("pages", field, None), keys, old_pages[field], news)
    for name in ENTRIES:
        changes += _entries(name, sorted(entries[name]), old_entries[name], state[name])
    for name, old in old_rest.items():
        changes += _rows(old, state["rows"]) if name == "rows" else _value((name,), old, state[name])
    return tuple(changes)


def _pages_touched(deltas: Sequence[Delta]) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for delta in deltas:
        for _, path, *what in delta:
            if path[0] == "pages":
                found.setdefault(path[1], set()).update(what[0])
    return {field: sorted(keys) for field, keys in found.items()}


def _column(path: tuple, keys: Sequence, olds: Sequence, news: Sequence) -> list[Change]:
    at = [i for i, (old, new) in enumerate(zip(olds, news, strict=True)) if old != new]
    if not at:
        return []
    return [("column", path, *([values[i] for i in at] for values in (keys, olds, news)))]


def _entries(name: str, keys: list[int], olds: dict[int, dict], table: dict[int, dict]) -> list[Change]:
    """Requests or nodes that came, went, or have other values: numbers and strings as one column a field."""
    changes: list[Change] = []
    stayed = []
    for key in keys:
        if key in olds and key in table:
            stayed.append(key)
        elif key in olds or key in table:
            changes.append(("set", (name, key), olds.get(key), fresh(table.get(key))))
    for field in table[stayed[0]] if stayed else ():
        if isinstance(olds[stayed[0]][field], (list, tuple)):
            for key in stayed:
                changes += _value((name, key, field), olds[key][field], table[key][field])
        else:
            columns = ([entries[key][field] for key in stayed] for entries in (olds, table))
            changes += _column((name, None, field), stayed, *columns)
    return changes


def _rows(olds: list[dict], news: list[dict]) -> list[Change]:
    changes: list[Change] = []
    for field in ("uid", "generation"):
        columns = ([row[field] for row in rows] for rows in (olds, news))
        changes += _column(("rows", None, field), range(len(olds)), *columns)
    return changes


def _value(path: tuple, old: Any, new: Any) -> list[Change]:
    """One value; of a list only what lies behind their common beginning."""
    if old == new:
        return []
    if not isinstance(old, list):
        return [("set", path, old, fresh(new))]
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return [("splice", path, same, old[same:], new[same:])]
