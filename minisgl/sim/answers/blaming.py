"""blame: who kept a request out, proven by leaving each of them out and replaying."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from minisgl.events import types as ev
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.progress import progress_bar
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer, Told, cite, refused, requests, seconds
from minisgl.sim.answers.books import Books
from minisgl.sim.answers.pictures import Look, Piece
from minisgl.sim.replay import resume

MOST = 16  # candidates that are tried, each by a replay: first those that held or wanted most pages for longest
LOOKS = {
    "waits": Look("w", pictures.ORANGE, "steps it would still wait"),
    "earlier": Look("e", pictures.GREEN, "steps earlier without that request"),
}
COLUMNS = {
    "left_out": "request",
    "pages": "pages",
    "promised": "pages",
    "admitted_step": "step",
    "steps_earlier": "steps",
    "time_earlier": "s",
}


@dataclass
class _Suspect:
    """Somebody who held something, or stood at the head of the queue, while the request waited."""

    uid: int
    pages: int = 0  # the most its row covered then
    promised: int = 0  # the most promised to it beyond that
    weight: int = 0  # pages held and promised, or wanted at the head of the queue, batch by batch


def blame(trace: Trace, uid: int) -> Answer:
    """Who kept a request out: for each candidate, when it would have been admitted had that one never come.

    Candidates are those who held a row while it waited, and those who were refused before it. Each is left out alone,
    and the rest of the record's requests are replayed, every arrival in the step that it had. Steps are exact; times
    are those of the record's own steps. One that was alive at the record's start is aborted in its first step instead.
    Batches that broke in the record do not break in the replays.

    Effects are not additive: two requests may each be enough to keep it out, and then neither alone helps.

    Raises:
        UnknownRequestError: the record has no such request.
        TraceError: the record does not say how to go on from its start.
    """
    question = f"Who kept request {uid} out?"
    told = Told(trace, uid)
    empty = Table.of_rows("left out, one at a time", COLUMNS, [])
    if told.rejected:
        return refused(told, question, empty)
    arrived, admitted, suspects = _suspects(trace, uid)
    left = told.ended.step if told.ended else told.last_step + 1
    was = admitted.step if admitted else left
    facts = {"admitted_step": admitted.step if admitted else -1, "steps": was - arrived}
    if was == arrived or not suspects:
        nobody = "Nobody held a row or went first while it was in the queue."
        if admitted:
            nobody = f"Nobody: request {uid} was admitted in the step that first saw it ({cite(admitted)})."
        return Answer(question, [nobody], empty, facts, [admitted] if admitted else [])
    tried = sorted(suspects, key=lambda s: (-s.weight, s.uid))[:MOST]
    ends = {trace.keyframe["step"]: trace.keyframe["t"]} | {e.step: e.t for e in trace.of(ev.StepFinished)}
    rows = []
    for suspect in progress_bar("replaying", "replay", tried):
        when = _admitted(trace, uid, [suspect.uid])
        earlier = 0 if when is None else was - when
        time = ends[was - 1] - ends[was - earlier - 1] if was - earlier - 1 in ends else float("nan")
        rows.append((suspect.uid, suspect.pages, suspect.promised, -1 if when is None else when, earlier, time))
    rows.sort(key=lambda row: (-row[4], row[0]))
    when = _admitted(trace, uid, [s.uid for s in tried])
    facts |= {"together": 0 if when is None else was - when, "candidates": len(suspects), "tried": len(tried)}
    said = _said(uid, admitted, told, rows, facts)
    picture = _picture(rows, facts["steps"])
    events = [e for e in (told.arrived, admitted) if e]
    return Answer(question, said, Table.of_rows("left out, one at a time", COLUMNS, rows), facts, events, picture)


def _suspects(trace: Trace, uid: int) -> tuple[int, ev.RequestAdmitted | None, list[_Suspect]]:
    """The step that first saw the request, its first admission, and who was there while it waited."""
    books = Books(trace.keyframe)
    found: dict[int, _Suspect] = {}
    head: _Suspect | None = None  # who was refused last, and the pages it wanted
    wanted = 0
    waits, arrived = uid in books.waiting, trace.keyframe["step"] + 1
    for e in trace.events:
        books.apply(e)
        if isinstance(e, ev.RequestArrived) and e.uid == uid:
            waits, arrived = True, e.step
        elif isinstance(e, ev.RequestAdmitted) and e.uid == uid:
            return arrived, e, list(found.values())
        elif isinstance(e, ev.RequestFinished) and e.uid == uid:
            return arrived, None, list(found.values())
        elif not waits:
            continue
        elif isinstance(e, ev.AdmissionTested) and e.verdict != "admitted" and e.uid != uid:
            head = found.setdefault(e.uid, _Suspect(e.uid))
            wanted = e.need or 0
        elif isinstance(e, ev.BatchScheduled):
            for other, pages in books.covers.items():
                suspect = found.setdefault(other, _Suspect(other))
                suspect.pages = max(suspect.pages, pages)
                suspect.promised = max(suspect.promised, books.promised.get(other, 0))
                suspect.weight += pages + books.promised.get(other, 0)
            if head and head.uid in books.waiting:
                head.weight += wanted
    return arrived, None, list(found.values())


def _admitted(trace: Trace, uid: int, without: Collection[int]) -> int | None:
    """The step of the record in which it would have been admitted; steps go on beyond the record's end if need be.

    None: never, because it is aborted before.
    """
    scheduler, _, inputs = resume(trace, without=without)
    admitted: list[ev.RequestAdmitted] = []
    scheduler.bus.on(ev.RequestAdmitted, lambda e: admitted.append(e) if e.uid == uid else None)
    # counted here: without a request the engine may have nothing to do in some steps, and count fewer itself
    step = trace.keyframe["step"]
    for each in inputs:
        step += 1
        each.feed(scheduler)
        if admitted:
            return step
    while not admitted and scheduler.step():
        step += 1
    return step if admitted else None


def _said(uid: int, admitted: ev.RequestAdmitted | None, told: Told, rows: list[tuple], facts: dict) -> list[str]:
    fate = f"was admitted after {count(facts['steps'], 'step')} ({cite(admitted)})" if admitted else "never got in"
    said = [f"Request {uid} {fate}; {count(facts['candidates'], 'request')} held rows or went first meanwhile."]
    guilty = [row for row in rows if row[4] > 0]
    for other, pages, promised, when, earlier, time in guilty[:8]:
        after = f"{seconds(time)} " if time == time else ""
        said.append(
            f"Without request {other} (up to {count(pages, 'page')} and {promised} promised) it would have been "
            f"admitted in step {when}: {count(earlier, 'step')}, {after}earlier."
        )
    if len(guilty) < len(rows):
        useless = [row[0] for row in rows if row[4] <= 0]
        said.append(f"Leaving out any one of {requests(useless)} alone would not have helped.")
    if len(rows) > 1:
        alone = sum(row[4] for row in guilty)
        everybody = requests(sorted(uid for uid, *_ in rows))
        said.append(
            f"Effects are not additive: one by one they come to {count(alone, 'step')}, with {everybody} left out "
            f"together it is {facts['together']}."
        )
    if facts["tried"] < facts["candidates"]:
        tried = f"the {facts['tried']} that held or wanted most pages for longest were tried"
        said.append(f"Of {facts['candidates']} candidates {tried}.")
    return said


def _picture(rows: list[tuple], waited: int) -> str:
    bars = []
    for other, _, _, when, earlier, _ in rows:
        left = min(max(0, waited - earlier), waited)
        title = f"without request {other}: admitted in step {when}"
        pieces = [Piece(0, left, "waits", title), Piece(left, waited, "earlier", title)]
        bars.append((f"without {other}", [p for p in pieces if p.end > p.start]))
    return pictures.bars(bars, LOOKS, ("0 steps", f"{waited} steps in the queue"))
