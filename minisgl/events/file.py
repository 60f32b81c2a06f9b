"""A run as a file: JSON lines, to be read by people as well; compressed with zstd if the name ends in ``.zst``.

::

    {"format": "minisgl trace", "version": [1, 1], "title": ..., "about": {...}}
    {"keyframe": {...}}                     the state before the first event, as in ``minisgl.events.state``
    {"texts": {"504": " the", ...}}         what each token id in the run says
    {"type": "RequestArrived", ...}         one event a line, with the fields of ``minisgl.events.types``
    {"events": 1234}                        the end, so that a file that was cut short is noticed

A field more is a new minor version, and readers skip what they do not know; a change of what is there is a new major
version. Nothing but the run is written, so the same run gives the same bytes.
"""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Union

import msgspec

from minisgl.collector import no_collection
from minisgl.errors import (
    TraceFormatError,
    TraceNotFoundError,
    TraceVersionError,
    TraceWriteError,
    TruncatedTraceWarning,
    UnknownEventsWarning,
)
from minisgl.events.state import NodeState, RequestState, RowState, entry
from minisgl.events.types import EVENT_TYPES, Event, StepFinished

if TYPE_CHECKING:
    from minisgl.events.trace import Trace

FORMAT = "minisgl trace"
VERSION = (1, 1)
LEVEL = 9  # of zstd; 3 makes files a fifth larger, 12 takes three times as long for 2 %
HEAD = 3  # lines before the first event
ZSTD = b"\x28\xb5\x2f\xfd"  # what a compressed file begins with, whatever its name


class _Stamp(msgspec.Struct):
    """What the first line of every version has."""

    format: str
    version: tuple[int, int]


class _Header(_Stamp):
    title: str
    about: dict[str, Any]


class _Pages(TypedDict):
    owner: list[int]
    node: list[int]
    order: list[int]


class _State(TypedDict):
    """The shape of ``minisgl.events.state``, to give a keyframe back its whole-number keys and its tuples."""

    step: int
    t: float
    num_pages: int
    page_size: int
    pages: _Pages
    queue: dict[str, int]
    nodes: dict[int, NodeState]
    rows: list[RowState]
    requests: dict[int, RequestState]
    waiting: list[int]
    running: list[int]
    counters: dict[str, int]
    flight: list[dict[str, Any]]
    batch: dict[str, Any]
    tests: list[dict[str, Any]]
    handoffs: list[dict[str, Any]]


class _Keyframe(msgspec.Struct):
    keyframe: _State
    checkpoint: dict[str, Any] | None = None


class _Texts(msgspec.Struct):
    texts: dict[int, str]


class _End(msgspec.Struct):
    events: int


_Line = TypeVar("_Line", bound=msgspec.Struct)


class _Tag(msgspec.Struct):
    type: str


_TAGS = {cls.__struct_config__.tag for cls in EVENT_TYPES}
_decode_event = msgspec.json.Decoder(Union[EVENT_TYPES]).decode  # noqa: UP007


def save(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write a trace, whole or not at all: a file of that name is replaced once the new one is complete.

    Raises TraceWriteError where nothing can be written.
    """
    path = Path(path)
    header = _Header(FORMAT, VERSION, trace.title, trace.about)
    head = (header, {"keyframe": trace.keyframe, "checkpoint": trace.checkpoint}, {"texts": trace.texts})
    lines = [*head, *trace.events, {"events": len(trace.events)}]
    data = msgspec.json.Encoder().encode_lines(lines)
    if path.suffix == ".zst":
        import zstandard

        data = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(data)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        reason = error.strerror if path.parent.is_dir() else f"there is no folder {path.parent}; make it first"
        raise TraceWriteError(f"{path} cannot be written: {reason}") from error
    finally:
        with suppress(OSError):  # there is none, if all went well
            part.unlink()
    return path


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the Trace in a file: ``keyframe, events, texts, title, about, checkpoint``. Nothing is folded.

    Raises TraceNotFoundError, TraceFormatError (not a trace, or damaged), TraceVersionError (a newer major version).
    Warns with TruncatedTraceWarning when the end is missing: what is whole is kept. Warns with UnknownEventsWarning
    when there are events of types that this version does not know: they are left out.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise TraceNotFoundError(f"there is no file {path} (seen from {Path.cwd()})") from error
    whole = True
    if data.startswith(ZSTD):
        data, whole = _decompressed(path, data)
    with no_collection():
        return _Reader(path, data, whole).read()


class _Reader:
    """Goes through the lines of one file."""

    def __init__(self, path: Path, data: bytes, whole: bool) -> None:
        self.path = path
        self.lines = io.BytesIO(data)
        self.whole = whole  # as far as the compression can tell
        self.number = 0  # of the line last read

    def read(self) -> dict[str, Any]:
        header = self._header()
        start = self._head(_Keyframe)
        if header.version < (1, 1):
            _count_uses(start)
        texts = self._head(_Texts).texts
        events, unknown, closed = self._events()
        if not closed or not self.whole:
            steps = sum(isinstance(event, StepFinished) for event in events)
            self._warn(
                TruncatedTraceWarning,
                f"was cut short after line {self.number}: {len(events)} events, {steps} whole steps are kept",
            )
        if unknown:
            version, ours = (".".join(map(str, v)) for v in (header.version, VERSION))
            self._warn(
                UnknownEventsWarning,
                f"has {sum(unknown.values())} events that this minisgl does not know, and leaves out "
                f"({', '.join(sorted(unknown))}): states after them may be incomplete. The file is of version "
                f"{version}, this minisgl writes {ours}; a newer one will read it all",
            )
        return {
            "keyframe": _restored(start.keyframe),
            "events": events,
            "texts": texts,
            "title": header.title,
            "about": header.about,
            "checkpoint": start.checkpoint,
        }

    def _header(self) -> _Header:
        line = self._next()
        try:
            stamp = msgspec.json.decode(line, type=_Stamp)
        except msgspec.DecodeError:
            stamp = _Stamp("", VERSION)
        if stamp.format != FORMAT or not line.endswith(b"\n"):
            raise TraceFormatError(
                f"{self.path} is not a trace that minisgl saved, or its first line is damaged: it begins with "
                f"{line[:40]!r}"
            )
        if stamp.version[0] != VERSION[0]:
            raise TraceVersionError(
                f"{self.path} is of version {stamp.version[0]}.{stamp.version[1]} and this minisgl reads versions "
                f"{VERSION[0]}.x: read it with the minisgl that wrote it, or a newer one"
            )
        return self._decode(line, _Header)

    def _head(self, kind: type[_Line]) -> _Line:
        line = self._next()
        if not line.endswith(b"\n"):
            raise TraceFormatError(
                f"{self.path} was cut short in line {self.number}, before the first event, so nothing of it can be "
                "kept: copy it again"
            )
        return self._decode(line, kind)

    def _events(self) -> tuple[list[Event], Counter[str], bool]:
        """What is known, what is not (by type), and whether the closing line was there."""
        events: list[Event] = []
        unknown: Counter[str] = Counter()
        for line in self.lines:
            if not line.endswith(b"\n"):
                break
            self.number += 1
            try:
                events.append(_decode_event(line))
            except msgspec.DecodeError as error:
                kind = _try(line, _Tag)
                end = _try(line, _End)
                if kind is not None and kind.type not in _TAGS:
                    unknown[kind.type] += 1
                elif end is not None:
                    self._close(end, len(events) + unknown.total())
                    return events, unknown, True
                else:
                    raise self._damaged(error) from error
        return events, unknown, False

    def _close(self, end: _End, found: int) -> None:
        if end.events != found:
            raise TraceFormatError(f"{self.path} says that it has {end.events} events, but {found} are there")
        if self.lines.read(1):
            raise TraceFormatError(f"{self.path} goes on after its closing line, line {self.number}")

    def _next(self) -> bytes:
        self.number += 1
        return self.lines.readline()

    def _decode(self, line: bytes, kind: type[_Line]) -> _Line:
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> TraceFormatError:
        rescue = "" if self.number <= HEAD else ", or cut it off before this line to read what comes before"
        return TraceFormatError(f"{self.path}, line {self.number} is damaged: {error}. Copy the file again{rescue}")

    def _warn(self, kind: type[Warning], text: str) -> None:
        warnings.warn(f"{self.path} {text}", kind, stacklevel=5)  # the line that called Trace.load


def _try(line: bytes, kind: type[_Line]) -> _Line | None:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError:
        return None


def _decompressed(path: Path, data: bytes) -> tuple[bytes, bool]:
    """The text of all frames, and whether the last one is whole."""
    import zstandard

    parts = []
    try:
        while data:
            frame = zstandard.ZstdDecompressor().decompressobj()
            parts.append(frame.decompress(data))
            if not frame.eof:
                return b"".join(parts), False
            data = frame.unused_data
    except zstandard.ZstdError as error:
        raise TraceFormatError(
            f"{path} is damaged, its text cannot be decompressed ({error}): copy it again"
        ) from error
    return b"".join(parts), True


def _restored(state: _State) -> dict[str, Any]:
    """The state as it was folded: plain dicts, and tuples for the columns of events it quotes."""
    return {
        **state,
        "nodes": {i: entry(node) for i, node in state["nodes"].items()},
        "rows": [entry(row) for row in state["rows"]],
        "requests": {uid: entry(request) for uid, request in state["requests"].items()},
        "batch": _columns(state["batch"]),
        "tests": [_columns(row) for row in state["tests"]],
        "handoffs": [_columns(row) for row in state["handoffs"]],
    }


def _count_uses(start: _Keyframe) -> None:
    """In version 1.0 the checkpoint alone said how often a node was used."""
    clocks = (start.checkpoint or {}).get("prefix", {})
    for i, uses in clocks.get("uses", ()):
        start.keyframe["nodes"][i].uses = uses


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    """Events hold tuples; a list is one only of rows, as a handoff's segments are."""

    def restored(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if value and isinstance(value[0], dict):
            return [_columns(v) for v in value]
        return tuple(value)

    return {name: restored(value) for name, value in row.items()}
