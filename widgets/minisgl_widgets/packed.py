"""Packed JSON: JSON whose long lists of whole numbers stand outside of it, each in the narrowest binary form.

Most of a record is lists of pages, tokens and uids; as text they cost five times their size and a browser's time to
read them. A packed value is::

    five lengths, uint32: of what follows, in bytes
    JSON                 [kinds, lengths, firsts, value]; in the value, {"$": i} stands for list number i
    float64, int32, int16, int8     the lists' numbers, one after the other

A packed list of entries is the same, but that its value says where in the text behind the numbers each entry ends: who
wants one of them need not read the others::

    five lengths; JSON [kinds, lengths, firsts, ends]; the lists' numbers; the entries as JSON, one after the other

``kinds`` has a letter a list: d i h b say where its numbers are; a capital says that they are differences, after a
first number that is in ``firsts``; t is a list of booleans, kept as 0 and 1 among the int8. Equal lists are written
once, so whoever reads them must not change them. All numbers are little-endian. ``static/decode.js`` reads it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any

import msgspec

SECTIONS = "dihb"  # float64 holds whole numbers up to 2**53
LONG = 5  # numbers that make a list worth taking out
_WIDTHS = (("b", 1 << 7), ("h", 1 << 15), ("i", 1 << 31))


def pack(value: Any) -> bytes:
    """A JSON-ready value (dicts, lists, tuples, strings, numbers, booleans, None) as packed JSON."""
    lists = _Lists()
    return lists.packed(lists.strip(value))


def pack_each(values: Iterable[Any]) -> bytes:
    """JSON-ready values as a packed list of entries; they share their lists of numbers."""
    lists = _Lists()
    texts = [msgspec.json.encode(lists.strip(value)) for value in values]
    return lists.packed(list(accumulate(map(len, texts)))) + b"".join(texts)


class _Lists:
    """The lists that are taken out of a value, in the order in which they are met."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.lengths: list[int] = []
        self.firsts: list[int] = []
        self.numbers = {section: bytearray() for section in SECTIONS}
        self._known: dict[tuple[bool, tuple], dict[str, int]] = {}

    def strip(self, value: Any) -> Any:
        kind = type(value)
        if kind is tuple or kind is list:
            if len(value) >= LONG and type(value[0]) in (int, bool):
                found = self._taken_out(value)
                if found:
                    return found
            return [self.strip(v) if type(v) in _CONTAINERS else v for v in value]
        if kind is dict:
            return {k: self.strip(v) if type(v) in _CONTAINERS else v for k, v in value.items()}
        return value

    def packed(self, value: Any) -> bytes:
        """A value whose lists are taken out, and the lists."""
        text = msgspec.json.encode(("".join(self.kinds), self.lengths, self.firsts, value))
        parts: list[bytes | bytearray] = [text, *(self.numbers[section] for section in SECTIONS)]
        return b"".join([struct.pack("<5I", *map(len, parts)), *parts])

    def _taken_out(self, value: Any) -> dict[str, int] | None:
        truth = type(value[0]) is bool  # in a dict, (True, False) is (1, 0)
        key = (truth, tuple(value))
        found = self._known.get(key)
        if found is None:
            try:
                kind, written = ("t", _bytes("b", value)) if truth else _narrowest(value, min(value), max(value))
            except TypeError:  # something else is among the numbers
                return None
            if kind.isupper():
                self.firsts.append(value[0])
            self.numbers["b" if truth else kind.lower()] += written
            self._known[key] = found = {"$": len(self.kinds)}
            self.kinds.append(kind)
            self.lengths.append(len(value))
        return found


_CONTAINERS = {tuple, list, dict}


def _narrowest(numbers: Any, low: int, high: int) -> tuple[str, bytes]:
    """The numbers, or their differences where those are narrower."""
    plain = _section(low, high)
    if plain == "b":
        return plain, _bytes(plain, numbers)
    steps = [b - a for a, b in pairwise(numbers)]
    differences = _section(min(steps), max(steps))
    if SECTIONS.index(differences) > SECTIONS.index(plain):
        return differences.upper(), _bytes(differences, steps)
    return plain, _bytes(plain, numbers)


def _section(low: int, high: int) -> str:
    for section, limit in _WIDTHS:
        if -limit <= low and high < limit:
            return section
    return "d"


def _bytes(section: str, numbers: Any) -> bytes:
    packed = array(section, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
