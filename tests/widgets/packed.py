"""What a browser makes of binary records, in Python: ``static/decode.js`` and ``static/record.js`` do the same."""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

BY_NUMBER = ("nodes", "requests")  # tables whose keys are numbers, and strings in JSON


def unpack(data: bytes) -> Any:
    value, restore, rest = _read(data)
    assert not rest
    return restore(value)


def unpack_each(data: bytes) -> list:
    """A packed list of entries."""
    ends, restore, rest = _read(data)
    assert [0, *ends][-1] == len(rest)
    return [restore(json.loads(rest[a:b])) for a, b in pairwise([0, *ends])]


def _read(data: bytes) -> tuple[Any, Callable[[Any], Any], bytes]:
    """The value, what puts its lists back, and what follows."""
    sizes = struct.unpack_from("<5I", data)
    ends = list(accumulate(sizes, initial=20))
    text, *numbers = (data[a:b] for a, b in pairwise(ends))
    kinds, lengths, firsts, value = json.loads(text)
    sections = {section: array(section, body).tolist() for section, body in zip("dihb", numbers, strict=True)}
    at = dict.fromkeys(sections, 0)
    firsts = iter(firsts)
    lists: list[list] = []

    def take(section: str, n: int) -> list[int]:
        found = sections[section][at[section] : at[section] + n]
        at[section] += n
        return [int(x) for x in found]

    for kind, length in zip(kinds, lengths, strict=True):
        if kind == "t":
            lists.append([x == 1 for x in take("b", length)])
        elif kind.isupper():
            lists.append(list(accumulate(take(kind.lower(), length - 1), initial=next(firsts))))
        else:
            lists.append(take(kind, length))
    assert at == {section: len(body) for section, body in sections.items()}

    def restore(v: Any) -> Any:
        if isinstance(v, dict):
            return lists[v["$"]] if "$" in v else {k: restore(x) for k, x in v.items()}
        return [restore(x) for x in v] if isinstance(v, list) else v

    return value, restore, data[ends[-1] :]


def parts_of(record: bytes) -> list[tuple[str, int, int, Any]]:
    """``(name, first, count, value)`` of every part."""
    (length,) = struct.unpack_from("<I", record)
    directory = json.loads(record[4 : 4 + length])
    assert directory["version"] == 4
    at, parts = 4 + length, []
    for name, first, n, size in directory["parts"]:
        body = record[at : at + size]
        parts.append((name, first, n, read_part(name, zlib.decompress(body) if directory["deflated"] else body)))
        at += size
    assert at == len(record)
    return parts


def read_part(name: str, body: bytes) -> Any:
    return unpack_each(body) if name == "steps" else unpack(body)


def numbered(state: dict) -> dict:
    """A state from JSON, its tables keyed by numbers again."""
    return state | {name: {int(key): entry for key, entry in state[name].items()} for name in BY_NUMBER}
