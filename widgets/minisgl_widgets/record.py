"""What a browser scrubs: a run as one binary record, and the tails that continue it while it goes on.

A record (version 4) is made of *parts*, each packed JSON (``packed.py``), so that a browser reads only what it needs::

    uint32 length, JSON {"version", "deflated", "parts": [[name, first, count, bytes], ...]}, the parts

    head     what must be known at once: see ``record`` and ``_head``
    answers  what was asked of the run: see ``questions.py``; only where there is no kernel to ask
    steps    the deltas of ``count`` steps, from step number ``first`` on (counted from 0): a packed list of entries
    leap     one delta over all of them: see ``leap.py``
    events   of each of them, the events: {"counts", "types", "uids", "words"}, the last three one entry an event
    changes  who got which page in them: {"steps", "pages", "owners"}

A tail is a message with the same kinds of parts in its buffers; its head holds only what is new. Parts are deflated
when a run is over: a live one is sent as it is, because compressing takes longer than a local socket.
``static/record.js`` is the other side.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from minisgl.events import types as ev
from minisgl.events.state import COUNTERS, Delta
from minisgl.events.words import EMITTERS, describe
from minisgl_widgets.capacity import sizing
from minisgl_widgets.feed import Feed
from minisgl_widgets.leap import STEPS, leap
from minisgl_widgets.packed import pack, pack_each
from minisgl_widgets.questions import QUESTIONS

VERSION = 4
PHASES = ("prefill", "decode", "mixed", "idle")
# what happened in a step, one bit each; a view may stop where one of them is set
FLAGS = (
    *("refusal", "eviction", "split", "retract", "finish", "handoff", "drain", "arrival", "admission"),
    *("broken", "launch"),
)
_FLAG_OF = {
    ev.PagesEvicted: "eviction",
    ev.NodeSplit: "split",
    ev.RequestRetracted: "retract",
    ev.RequestFinished: "finish",
    ev.Handoff: "handoff",
    ev.PipelineDrained: "drain",
    ev.RequestArrived: "arrival",
    ev.RequestRejected: "arrival",
    ev.RequestAdmitted: "admission",
    ev.BatchScheduled: "launch",
}
_BIT = {name: 1 << i for i, name in enumerate(FLAGS)}
_TYPES = {cls: i for i, cls in enumerate(ev.EVENT_TYPES)}
COLUMNS = ("phase", "num_tokens", "violations", "batch", "cost", "flags", *COUNTERS)

Part = tuple[str, int, int, bytes]  # name, first step, how many steps, packed


class Encoder:
    """Encodes one feed for one reader, and remembers what that reader has been sent. One thread at a time.

    ``record()`` is everything so far; ``tail()`` what came since the last of either.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.sent = 0  # steps
        self._sent = {"texts": 0, "marks": 0, "uids": 0, "violations": 0, "leaps": 0}
        history = feed.history
        self._keyframe = history.at(history.first).to_dict()
        self._state = history.at(history.first).to_dict()  # moved by the leaps
        self._leaps: list[bytes] = []
        self._index: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self._uids: list[int] = []  # of all batches, one after the other; index["batch"] says how many a step has
        self._violations: list[tuple[int, Sequence[str]]] = []  # of the steps that have some
        self._marks: list[tuple[str, int, int, str]] = []  # (what, uid, step, detail): see ``_mark``
        self._spoken = {uid for uid, r in self._keyframe["requests"].items() if r["output"]}
        # requests whose prompts are being computed: what they have in a batch is no decode token
        self._entering = {uid for uid, r in self._keyframe["requests"].items() if r["status"] == "prefill"}
        tests = self._keyframe["tests"]
        self._extent = {"tests": len(tests), "nodes": len(self._keyframe["nodes"]), "asked": 0}
        for test in tests:
            self._ask(test["need"], test["reserved"])

    # -- whole and continued -------------------------------------------------------------------------------------------

    def record(self, deflate: bool = True, title: str = "", answers: Mapping[str, str] | None = None) -> bytes:
        """The run so far; the same run gives the same bytes. Its head says, beside what a tail's does, where the run
        began (``keyframe``), ``config`` (every EngineConfig field as it was then; empty: not known), and names for
        numbers.
        ``answers``: to go with it, see ``questions.answers``."""
        self._look()
        self._sent = dict.fromkeys(self._sent, 0)
        self.sent = 0
        whole, steps = self._head(), len(self._index["cost"])
        first = self._keyframe
        whole |= {
            "title": title or self.feed.title,
            "config": self.feed.about.get("config") or {},
            "keyframe": first | {name: _table(first[name]) for name in ("nodes", "requests")},
            "phases": PHASES,
            "flags": FLAGS,
            "types": [cls.__name__ for cls in ev.EVENT_TYPES],
            "emitters": [" or ".join(EMITTERS[cls]) for cls in ev.EVENT_TYPES],
            "questions": [question.head() for question in QUESTIONS],
            "sizing": sizing(self.feed.about),
        }
        parts: list[Part] = [("head", 0, steps, pack(whole))]
        for at in range(0, steps, STEPS):
            parts += self._parts(at, min(at + STEPS, steps))
        parts += self._new_leaps()
        if answers:
            parts.append(("answers", 0, steps, pack(answers)))
        self.sent = steps
        return _contain(parts, deflate)

    def tail(self) -> tuple[dict[str, Any], list[bytes]] | None:
        """What came since, as a message and its buffers; None if no step did."""
        parts = self._since()
        if parts is None:
            return None
        _, first, steps, _ = parts[0]
        message = {"kind": "tail", "first": first, "count": steps, "parts": [list(p[:3]) for p in parts]}
        return message, [p[3] for p in parts]

    def continuation(self) -> bytes | None:
        """The same in a record's form, deflated, for a page that keeps it until it is wanted."""
        parts = self._since()
        return None if parts is None else _contain(parts, deflate=True)

    def _since(self) -> list[Part] | None:
        self._look()
        first, steps = self.sent, len(self._index["cost"])
        if first == steps:
            return None
        parts: list[Part] = [("head", first, steps - first, pack(self._head())), *self._parts(first, steps)]
        parts += self._new_leaps()
        self.sent = steps
        return parts

    def _head(self) -> dict[str, Any]:
        """What is new since ``sent``: ``index`` (a column each of COLUMNS, the numbers after the step; ``batch`` is how
        many of ``uids`` are the step's), ``violations``, ``marks`` for the requests' spans, ``extent`` (most tests in a
        pass, nodes that ever were, pages that a test asked for at most), ``texts`` (ids, and what they say)."""
        texts, known = self.feed.texts, self._sent["texts"]
        new: dict[str, list] = {
            "uids": self._uids[self._sent["uids"] :],
            "violations": self._violations[self._sent["violations"] :],
            "marks": self._marks[self._sent["marks"] :],
            "texts": list(islice(reversed(texts.items()), len(texts) - known))[::-1],
        }
        for name, values in new.items():
            self._sent[name] += len(values)
        return {
            "index": {name: values[self.sent :] for name, values in self._index.items()},
            "uids": new["uids"],
            "violations": new["violations"],
            "marks": _transposed(new["marks"], 4),
            "extent": self._extent,
            "texts": _transposed(new["texts"], 2),
        }

    def _new_leaps(self) -> list[Part]:
        known, self._sent["leaps"] = self._sent["leaps"], len(self._leaps)
        return [("leap", i * STEPS, STEPS, self._leaps[i]) for i in range(known, len(self._leaps))]

    def _parts(self, a: int, b: int) -> list[Part]:
        """Steps ``a`` to ``b``, counted from 0."""
        history = self.feed.history
        deltas = history.deltas[a:b]
        made: dict[str, list] = {"counts": [], "types": [], "uids": [], "words": []}
        for i in range(a, b):
            events = history.steps.events(i)
            made["counts"].append(len(events))
            for event in events:
                made["types"].append(_TYPES[type(event)])
                made["uids"].append(getattr(event, "uid", -1))
                made["words"].append(describe(event))
        changes = _changes(deltas, history.first + a + 1)
        contents = {"steps": pack_each(deltas), "events": pack(made), "changes": pack(changes)}
        return [(name, a, b - a, packed) for name, packed in contents.items()]

    # -- looking at each step once -------------------------------------------------------------------------------------

    def _look(self) -> None:
        history = self.feed.history
        whole = len(history.cost) - 1  # another thread may be feeding the history: this is what it writes last
        for i in range(len(self._index["cost"]), whole):
            self._look_at(history.steps.events(i), history.steps.violations(i), history.cost[i + 1] - history.cost[i])
        while (len(self._leaps) + 1) * STEPS <= len(self._index["cost"]):
            at = len(self._leaps) * STEPS
            self._leaps.append(pack(leap(self._state, history.deltas[at : at + STEPS])))

    def _look_at(self, events: Sequence[ev.Event], violations: Sequence[str], cost: int) -> None:
        end = events[-1]
        assert isinstance(end, ev.StepFinished)
        flags, tests = 0, 0
        for event in events:
            flags |= _BIT.get(_FLAG_OF.get(type(event), ""), 0)
            if isinstance(event, ev.AdmissionTested):
                tests += 1
                flags |= 0 if event.verdict == "admitted" else _BIT["refusal"]
                self._ask(event.need, event.reserved)
            elif isinstance(event, (ev.NodeInserted, ev.NodeSplit)):
                self._extent["nodes"] += 1
            self._mark(event)
        if violations:
            flags |= _BIT["broken"]
            self._violations.append((len(self._index["cost"]), violations))
        self._extent["tests"] = max(self._extent["tests"], tests)
        row = (PHASES.index(end.phase), end.num_tokens, len(violations), len(end.uids), cost, flags)
        for name, value in zip(COLUMNS, (*row, *(getattr(end, c) for c in COUNTERS)), strict=True):
            self._index[name].append(value)
        self._uids += end.uids

    def _ask(self, need: int | None, reserved: int | None) -> None:
        if need is not None and reserved is not None:
            self._extent["asked"] = max(self._extent["asked"], need + reserved)

    def _mark(self, event: ev.Event) -> None:
        """What a request's line in a timeline needs: arrived (tokens of its prompt), refused, admitted, tested (its
        verdict), prefill ("start end": tokens computed), first (token), retracted, finished (its reason). And, of no
        request, settings: what changed, as JSON."""
        what = detail = ""
        if isinstance(event, ev.RequestArrived):
            what, detail = "arrived", str(len(event.prompt))
        elif isinstance(event, ev.RequestRejected):
            what, detail = "refused", event.message
        elif isinstance(event, ev.RequestAdmitted):
            what = "admitted"
            self._entering.add(event.uid)
        elif isinstance(event, ev.AdmissionTested):
            what, detail = "tested", event.verdict
        elif isinstance(event, ev.BatchScheduled):
            for uid, start, end, samples in zip(event.uids, event.starts, event.ends, event.samples, strict=True):
                if uid in self._entering:
                    self._marks.append(("prefill", uid, event.step, f"{start} {end}"))
                if samples:
                    self._entering.discard(uid)
        elif isinstance(event, ev.RequestRetracted):
            what = "retracted"
        elif isinstance(event, ev.RequestFinished):
            what, detail = "finished", event.reason
        elif isinstance(event, ev.SettingsChanged):
            what, detail = "settings", msgspec.json.encode(dict(zip(event.names, event.values, strict=True))).decode()
        elif isinstance(event, ev.TokensSampled):
            for uid, dropped in zip(event.uids, event.dropped, strict=True):
                if not dropped and uid not in self._spoken:
                    self._spoken.add(uid)
                    self._marks.append(("first", uid, event.step, ""))
        if what:
            self._marks.append((what, getattr(event, "uid", -1), event.step, detail))


def _table(entries: dict[int, Any]) -> dict[str, Any]:
    """JSON's keys are strings."""
    return {str(key): entry for key, entry in entries.items()}


def _transposed(rows: Sequence[Sequence[Any]], columns: int) -> list[list[Any]]:
    """Rows as columns, which pack better."""
    return [[row[i] for row in rows] for i in range(columns)]


def _changes(deltas: Sequence[Delta], step: int) -> dict[str, list[int]]:
    """Every change of a page's owner, in order; the first delta is that of ``step``."""
    steps: list[int] = []
    pages: list[int] = []
    owners: list[int] = []
    for i, delta in enumerate(deltas):
        for kind, path, *what in delta:
            if kind == "column" and path[:2] == ("pages", "owner"):
                keys, _, news = what
                steps += [step + i] * len(keys)
                pages += keys
                owners += news if isinstance(news, (tuple, list)) else [news] * len(keys)
    return {"steps": steps, "pages": pages, "owners": owners}


def _contain(parts: Sequence[Part], deflate: bool) -> bytes:
    bodies = [zlib.compress(body, 6) if deflate else body for *_, body in parts]
    entries = [[*part[:3], len(body)] for part, body in zip(parts, bodies, strict=True)]
    directory = msgspec.json.encode({"version": VERSION, "deflated": deflate, "parts": entries})
    return b"".join([struct.pack("<I", len(directory)), directory, *bodies])
