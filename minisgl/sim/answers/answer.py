"""Answer: text, numbers and picture in one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from minisgl.errors import UnknownRequestError
from minisgl.events import types as ev
from minisgl.events.table import Table
from minisgl.events.trace import Trace

MOST_UIDS = 8  # named in one sentence


class Answer:
    """What was found out, for people and for programs.

    Attributes:
        question: what was asked.
        sentences: the answer in words; those that speak of a moment name its step and event.
        data: the table the sentences are made of.
        facts: the numbers that stand for the whole, by name.
        events: the events it rests on, in the order of the sentences.
        picture: an HTML fragment with an SVG; it takes the colour of the text around it, so it suits light and dark.
    """

    def __init__(
        self,
        question: str,
        sentences: Sequence[str],
        data: Table,
        facts: Mapping[str, Any],
        events: Iterable[ev.Event] = (),
        picture: str = "",
    ) -> None:
        self.question = question
        self.sentences = list(sentences)
        self.data = data
        self.facts = dict(facts)
        self.events = list(events)
        self.picture = picture

    @property
    def text(self) -> str:
        """The sentences, one a line."""
        return "\n".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, ready for JSON; what is no number of its kind (NaN) is None.

        ``question``, ``sentences``, ``facts`` (a Table among them as its rows), ``columns`` (name -> unit), ``rows`` of
        ``data``, ``events`` as ``{"step", "type"}``, ``picture``.
        """
        return {
            "question": self.question,
            "sentences": self.sentences,
            "facts": {name: _plain(value) for name, value in self.facts.items()},
            "columns": self.data.units,
            "rows": _plain(self.data),
            "events": [{"step": e.step, "type": type(e).__name__} for e in self.events],
            "picture": self.picture,
        }

    def __repr__(self) -> str:
        return f"{self.question}\n" + "\n".join(f"  {sentence}" for sentence in self.sentences)

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences)
        table = self.data._repr_html_() if len(self.data) else ""
        return f"<b>{escape(self.question)}</b><ul>{said}</ul>{self.picture}{table}"


def _plain(value: Any) -> Any:
    if isinstance(value, Table):
        return [{name: _plain(v) for name, v in row.items()} for row in value.rows()]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cite(event: ev.Event) -> str:
    """Where to look it up: ``step 9, RequestFinished``."""
    return f"step {event.step}, {type(event).__name__}"


def seconds(t: float) -> str:
    """A time in the unit that suits it."""
    return f"{t:.2f} s" if abs(t) >= 1 else f"{t * 1000:.1f} ms"


def requests(uids: Iterable[int]) -> str:
    """``request 3``, ``requests 1, 2``; of many the first few."""
    uids = list(uids)
    more = f" and {len(uids) - MOST_UIDS} more" if len(uids) > MOST_UIDS else ""
    return f"request{'' if len(uids) == 1 else 's'} {', '.join(map(str, uids[:MOST_UIDS]))}{more}"


def steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


def token(trace: Trace, number: int) -> str:
    """A token as the run's tokenizer says it, and its number."""
    said = trace.texts.get(number, "")
    return f"{number} ({said!r})" if said and said != str(number) else str(number)


class Told:
    """What a record says of one request: how it came, and how it ended."""

    def __init__(self, trace: Trace, uid: int) -> None:
        self.uid = uid
        self.before = trace.keyframe["requests"].get(uid)  # its state at the record's start
        if self.before and self.before["status"] == "finished":
            self.before = None
        self.arrived: ev.RequestArrived | None = None
        self.rejected: ev.RequestRejected | None = None
        self.ended: ev.RequestFinished | None = None
        self.begin = trace.keyframe["t"]
        self.last_step, self.last_t = trace.keyframe["step"], self.begin
        others = {u for u, r in trace.keyframe["requests"].items() if r["status"] != "finished"}
        for e in trace.of(ev.RequestArrived, ev.RequestRejected, ev.RequestFinished, ev.StepFinished):
            if isinstance(e, ev.StepFinished):
                self.last_step, self.last_t = e.step, e.t
                continue
            others.add(e.uid)
            if e.uid != uid:
                continue
            if isinstance(e, ev.RequestArrived):
                self.arrived = e
            elif isinstance(e, ev.RequestRejected):
                self.rejected = e
            else:
                self.ended = e
        if not (self.before or self.arrived or self.rejected):
            known = sorted(others)
            listed = ", ".join(map(str, known[:20])) + (f" ... {known[-1]}" if len(known) > 20 else "")
            raise UnknownRequestError(f"no request of this record has uid {uid}; it holds {listed or 'none'}")

    @property
    def prompt(self) -> tuple[int, ...]:
        if self.arrived:
            return self.arrived.prompt
        return tuple(self.before["prompt"]) if self.before else ()

    @property
    def max_tokens(self) -> int:
        if self.arrived:
            return self.arrived.max_tokens
        return self.before["max_tokens"] if self.before else 0

    @property
    def since(self) -> float:
        """When it was submitted; if it was there at the record's start, that."""
        return self.arrived.submitted if self.arrived else self.begin


def refused(told: Told, question: str, data: Table) -> Answer:
    """The answer to any question about a request that was turned away."""
    e = told.rejected
    assert e
    said = f"Request {e.uid} was never in the queue: it was refused when it was submitted ({cite(e)}): {e.message}."
    return Answer(question, [said], data, {"rejected": True}, [e])
