"""Why waiting: a request's time in the queue, cause by cause."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from minisgl.core import pages_for
from minisgl.events import types as ev
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import WAITS, count
from minisgl.scheduler.policies import promised_share
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer, Told, cite, refused, requests, seconds, steps
from minisgl.sim.answers.books import Books
from minisgl.sim.answers.pictures import Look, Piece

LOOKS = {
    "unseen": Look("n", pictures.PALE, "not seen yet: a step was under way"),
    "row": Look("r", pictures.PINK, WAITS["row"]),
    "pages": Look("p", pictures.ORANGE, WAITS["pages"]),
    "budget": Look("b", pictures.YELLOW, WAITS["budget"]),
    "chunk": Look("c", pictures.SKY, WAITS["chunk"]),
    "phase": Look("d", pictures.GREEN, "nobody was let in while others decoded"),
    "retracted": Look("t", pictures.RED, "just retracted"),
    "before": Look("?", pictures.GREY, "refused before the record began"),
}
COLUMNS = {
    "cause": "text",
    "tested": "request",
    "first_step": "step",
    "last_step": "step",
    "steps": "steps",
    "time": "s",
    "need": "pages",
    "promised": "pages",
    "had": "pages",
    "short": "pages",
}
MOST_SAID = 8  # spells told one by one
MOST_HOLDERS = 6  # named in one sentence


@dataclass
class Spell:
    """A stretch of the wait with one cause: the verdict of a test, and whose test it was."""

    cause: str
    tested: int  # the request that was refused; -1: no test
    began: float
    first_step: int
    test: ev.AdmissionTested | None = None  # the latest one
    holders: dict[int, int] = field(default_factory=dict)  # uid -> pages promised to it, at that test
    seated: tuple[int, ...] = ()  # who had the rows
    chunk: int | None = None  # whose prompt was unfinished
    passed_by: bool = False  # it would have fitted itself
    last_step: int = 0
    steps: int = 0
    time: float = 0.0
    ended_by: list[ev.Event] = field(default_factory=list)

    @property
    def had(self) -> int:
        """Pages that could be had, the matched prefix locked if that was reached."""
        assert self.test
        locked = self.test.available_locked
        return (self.test.available or 0) if locked is None else locked

    @property
    def short(self) -> int:
        assert self.test and self.test.need is not None and self.test.reserved is not None
        return self.test.need + self.test.reserved - self.had


class Wait:
    """A request's stays in the queue, put together event by event.

    ``spells`` add up to its time there: their times to ``time``, their steps to ``steps`` (a step counts if it ends
    with the request in the queue). After a retraction the request waits again, and those spells follow.
    """

    def __init__(self, trace: Trace, told: Told) -> None:
        self.told = told
        self._set(trace.about.get("config", {}))
        self._page_size: int = trace.keyframe["page_size"]
        self._books = Books(trace.keyframe)
        self.spells: list[Spell] = []
        self.admissions: list[tuple[ev.AdmissionTested, ev.RequestAdmitted]] = []
        self.retractions: list[ev.RequestRetracted] = []
        self._clock = told.begin
        self._waits = bool(told.before and told.before["status"] == "waiting")
        self._refusal: ev.AdmissionTested | None = None
        self._admitted: ev.AdmissionTested | None = None
        self._holders: dict[int, int] = {}
        self._seated: tuple[int, ...] = ()
        self._since: list[ev.Event] = []  # what may have made room since the last refusal
        self._fresh = False  # retracted, and nobody was tested since
        for t in trace.keyframe["tests"]:
            if t["verdict"] != "admitted":
                self._refusal = ev.AdmissionTested(t=told.begin, **t)
        chunk: int | None = None
        for e in trace.events:
            self._books.apply(e)
            if isinstance(e, ev.AdmissionTested):
                self._test(e)
            elif isinstance(e, ev.BatchScheduled):
                chunk = next((u for u, samples in zip(e.uids, e.samples, strict=True) if not samples), None)
            elif isinstance(e, ev.StepFinished):
                if self._waits:
                    self._step(e, chunk)
                chunk = None
            elif isinstance(e, ev.SettingsChanged):
                self._set(self._config | dict(zip(e.names, e.values, strict=True)))
            elif getattr(e, "uid", None) == told.uid:
                self._own(e)
            if isinstance(e, (ev.RequestFinished, ev.RequestRetracted, ev.Handoff, ev.RowReleased, ev.RequestAdmitted)):
                self._since.append(e)

    @property
    def steps(self) -> int:
        return sum(s.steps for s in self.spells)

    @property
    def time(self) -> float:
        return sum(s.time for s in self.spells)

    @property
    def still(self) -> bool:
        """Does it wait at the end of the record?"""
        return self._waits

    def _set(self, config: dict[str, Any]) -> None:
        """The settings from here on."""
        self._config = config
        self._closed = config.get("phase") == "decode-first"
        self._share = promised_share(config.get("admission", "conservative"))

    def _own(self, e: ev.Event) -> None:
        if isinstance(e, ev.RequestArrived):
            self._waits, self._clock = True, e.t
            if e.t > e.submitted:
                self.spells.append(Spell("unseen", -1, e.submitted, e.step, last_step=e.step, time=e.t - e.submitted))
        elif isinstance(e, ev.RequestRetracted):
            self._waits, self._clock, self._fresh = True, e.t, True
            self.retractions.append(e)
        elif isinstance(e, (ev.RequestAdmitted, ev.RequestFinished)) and self._waits:
            if self.spells and e.t > self._clock:
                self.spells[-1].time += e.t - self._clock
            self._waits = False
            if isinstance(e, ev.RequestAdmitted):
                assert self._admitted
                self.admissions.append((self._admitted, e))

    def _test(self, e: ev.AdmissionTested) -> None:
        last = self.spells[-1] if self._waits and self.spells else None
        if last and not last.ended_by and (e.verdict == "admitted" or (e.verdict, e.uid) != (last.cause, last.tested)):
            last.ended_by = list(self._since)
        self._fresh = False
        if e.verdict == "admitted":
            self._admitted = e
            return
        self._refusal = e
        self._holders = {uid: n for uid, n in sorted(self._books.promised.items()) if n}
        self._seated = tuple(sorted(self._books.covers))
        self._since = []

    def _step(self, e: ev.StepFinished, chunk: int | None) -> None:
        test = None
        if self._closed and e.launched is not None and e.phase == "decode":
            cause = "phase"
        elif self._fresh:
            cause = "retracted"
        elif self._refusal is None:
            cause = "before"
        else:
            test = self._refusal
            cause = test.verdict
        tested = test.uid if test else -1
        last = self.spells[-1] if self.spells else None
        if last is None or (last.cause, last.tested) != (cause, tested) or last.last_step != e.step - 1:
            last = Spell(cause, tested, self._clock, e.step)
            self.spells.append(last)
        last.last_step, last.steps, last.time = e.step, last.steps + 1, last.time + e.t - self._clock
        last.ended_by = []
        last.chunk = chunk if chunk is not None else last.chunk
        if test:
            last.test, last.holders, last.seated = test, self._holders, self._seated
            last.passed_by |= cause == "pages" and tested != self.told.uid and self._fits(last)
        self._clock = e.t

    def _fits(self, spell: Spell) -> bool:
        """Would this request have fitted where the one tested did not, even with nothing of it cached?"""
        worst = len(self.told.prompt) + max(1, math.ceil(self._share * self.told.max_tokens))
        test = spell.test
        assert test and test.reserved is not None and test.available is not None
        return pages_for(worst, self._page_size) + test.reserved <= test.available


def why_waiting(trace: Trace, uid: int) -> Answer:
    """The whole time that a request spent in the queue: every cause, how long it lasted, and what ended it."""
    question = f"Why did request {uid} wait?"
    told = Told(trace, uid)
    if told.rejected:
        return refused(told, question, _table([]))
    wait = Wait(trace, told)
    facts = {"steps": wait.steps, "time": wait.time, "still": wait.still, "retractions": len(wait.retractions)}
    said, events = _summary(wait)
    for spell in wait.spells[:MOST_SAID]:
        said.append(_said(spell, uid))
        events += [spell.test] if spell.test else []
        events += spell.ended_by
    if len(wait.spells) > MOST_SAID:
        said.append(f"And {len(wait.spells) - MOST_SAID} more stretches: they are in the table.")
    if wait.admissions and wait.steps:
        test, admitted = wait.admissions[-1]
        had = test.available if test.available_locked is None else test.available_locked
        said.append(
            f"Then it needed {count(test.need or 0, 'page')}, beside {test.reserved} promised, of {had} to be had: "
            f"admitted ({cite(admitted)})."
        )
        events += [test, admitted]
    pieces = [Piece(s.began, s.began + s.time, s.cause, _said(s, uid)) for s in wait.spells]
    picture = pictures.bars([(f"request {uid}", pieces)], LOOKS, _ends(wait)) if wait.time else ""
    return Answer(question, said, _table(wait.spells), facts, events, picture)


def _ends(wait: Wait) -> tuple[str, str]:
    first, last = wait.spells[0], wait.spells[-1]
    return f"step {first.first_step}", f"step {last.last_step}, after {seconds(wait.time)}"


def _summary(wait: Wait) -> tuple[list[str], list[ev.Event]]:
    told, who = wait.told, f"Request {wait.told.uid}"
    if told.before and told.before["row"] >= 0 and not wait.retractions:
        return [f"{who} was running when the record began; how long it had waited is unknown."], []
    came = f"It arrived ({cite(told.arrived)})" if told.arrived else "It waited when the record began"
    end: ev.Event | None = None
    if wait.still:
        fate = "and waits still at the end of the record"
    elif wait.admissions:
        end = wait.admissions[0][1]
        fate = f"and was admitted ({cite(end)})"
    else:
        end = told.ended
        fate = f"and never got in: it ended by {told.ended.reason} ({cite(told.ended)})" if told.ended else ""
    spent = f"spent {count(wait.steps, 'step')} and {seconds(wait.time)} in the queue"
    if not wait.steps:
        spent = f"waited for nobody, {seconds(wait.time)} in all" if wait.time else "did not wait at all"
    said = [f"{who} {spent}. {came} {fate}."]
    if wait.retractions:
        cites = ", ".join(map(cite, wait.retractions))
        said.append(f"It was retracted {count(len(wait.retractions), 'time')} ({cites}) and waited again each time.")
    return said, [e for e in (told.arrived, end, *wait.retractions) if e]


def _said(spell: Spell, uid: int) -> str:
    t = spell.test
    who = "" if spell.tested in (uid, -1) else f"behind request {spell.tested}, which was refused: "
    if spell.cause == "unseen":
        why = "submitted while a step was under way; the next one sees it"
    elif spell.cause == "phase":
        why = "decode-first: nobody is let in while anybody decodes"
    elif spell.cause == "retracted":
        why = "just retracted; the next step tests it again"
    elif spell.cause == "before":
        why = "refused before the record began, and nothing has changed since that could help"
    elif spell.cause == "row":
        why = f"{WAITS['row']}, all taken by {requests(spell.seated)}"
    elif spell.cause == "budget":
        why = f"{WAITS['budget']} by prompts before it"
    elif spell.cause == "chunk":
        of = f"of request {spell.chunk}" if spell.chunk is not None else "of another request"
        why = f"an unfinished prompt {of} goes first, chunk by chunk"
    else:
        assert t
        largest = sorted(spell.holders.items(), key=lambda held: (-held[1], held[0]))[:MOST_HOLDERS]
        owed = ", ".join(f"{n} to request {u}" for u, n in largest)
        if len(spell.holders) > len(largest):
            owed += f", the rest to {len(spell.holders) - len(largest)} more"
        owed = f" ({owed})" if owed else ""
        locked = "" if spell.had == t.available else f" ({spell.had} once its prefix is locked)"
        why = (
            f"needs {count(t.need or 0, 'page')}; {t.free} free + {t.evictable} evictable + {t.pending} pending "
            f"= {t.available} to be had{locked}, {t.reserved} of them promised{owed}: {spell.short} short"
        )
    tested = f" ({cite(t)})" if t else ""
    span = steps(spell.first_step, spell.last_step).replace("s", "S", 1)
    length = f"{count(spell.steps, 'step')}, " if spell.steps else ""
    more = f". Request {uid} itself would have fitted" if spell.passed_by else ""
    return f"{span} ({length}{seconds(spell.time)}): {who}{why}{tested}{more}{_ended(spell)}."


def _ended(spell: Spell) -> str:
    """What made room, in words."""
    by: dict[str, list[ev.Event]] = {}
    for e in spell.ended_by:
        by.setdefault(type(e).__name__, []).append(e)
    wanted = {
        "pages": ("RequestFinished", "RequestRetracted", "Handoff"),
        "row": ("RowReleased",),
    }.get(spell.cause, ())
    verbs = {
        "RequestFinished": "ended",
        "RequestRetracted": "was retracted",
        "Handoff": "handed its prompt over to the cache",
        "RowReleased": "gave its row back",
    }
    for name in wanted:
        if name in by:
            uids = [getattr(e, "uid", -1) for e in by[name]]
            verb = verbs[name] if len(uids) == 1 else verbs[name].replace("was", "were").replace("its", "their")
            return f"; then {requests(uids)} {verb} ({cite(by[name][-1])})"
    return ""


def _table(spells: list[Spell]) -> Table:
    rows = []
    for s in spells:
        terms = (s.test.need, s.test.reserved, s.had, s.short) if s.test and s.cause == "pages" else (-1,) * 4
        rows.append((s.cause, s.tested, s.first_step, s.last_step, s.steps, s.time, *terms))
    return Table.of_rows("time in the queue", COLUMNS, rows)
