"""Why slow: where a request's time went, from submission to its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from minisgl.events import types as ev
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer, Told, cite, refused, requests, seconds, steps
from minisgl.sim.answers.pictures import Look, Piece

LOOKS = {
    "queue": Look("q", pictures.ORANGE, "in the queue"),
    "prefill": Look("p", pictures.SKY, "its own prompt was computed"),
    "decode": Look("d", pictures.GREEN, "it decoded"),
    "mixed": Look("m", pictures.YELLOW, "it decoded in a batch that computed prompts as well"),
    "others": Look("o", pictures.RED, "it stood by while other prompts were computed"),
    "pipeline": Look("w", pictures.PALE, "its batch waited for the one before it"),
    "requeued": Look("t", pictures.PINK, "retracted, in the queue again"),
    "recompute": Look("r", pictures.GREY, "what a retraction lost was computed again"),
}
COLUMNS = {"part": "text", "steps": "steps", "time": "s", "share": "%", "first_step": "step", "last_step": "step"}


@dataclass
class Stretch:
    """Time spent in one way without a break; ``who`` are the others whose prompts were computed."""

    part: str
    began: float
    first_step: int
    last_step: int
    time: float = 0.0
    steps: int = 0
    who: tuple[int, ...] = ()
    tokens: int = 0


class Life:
    """A request's time cut into stretches, which add up to it; ``end`` is None if it lives on after the record.

    A step that ends while the request is seated belongs to the batch that was processed in it, because that is what
    it took time for; every step counts once.
    """

    def __init__(self, trace: Trace, told: Told) -> None:
        self.uid = told.uid
        self.stretches: list[Stretch] = []
        self.retractions: list[ev.RequestRetracted] = []
        self.end: ev.RequestFinished | None = None
        self.admitted: ev.RequestAdmitted | None = None
        self.first_token: ev.TokensSampled | None = None
        self._clock = told.since
        self._prompt = len(told.prompt)
        before = told.before
        self._seated = bool(before and before["row"] >= 0)
        self._computed = before["cached_len"] if before else 0
        self._alive = before is not None
        batches: dict[int, ev.BatchScheduled] = {}
        processed: ev.BatchScheduled | None = None
        for e in trace.events:
            if isinstance(e, ev.BatchScheduled):
                batches[e.batch] = e
            elif isinstance(e, ev.ForwardFinished):
                processed = batches.pop(e.batch, None)
            elif isinstance(e, ev.StepFinished):
                if self._alive:
                    self._spend(e, processed, whole=True)
                processed = None
            elif isinstance(e, ev.TokensSampled) and self.first_token is None and self.uid in e.uids:
                self.first_token = e
            elif getattr(e, "uid", None) == self.uid:
                if isinstance(e, ev.RequestArrived):
                    self._alive = True
                elif isinstance(e, ev.RequestAdmitted):
                    self._spend(e, processed)
                    self._seated = True
                    self.admitted = self.admitted or e
                elif isinstance(e, ev.RequestRetracted):
                    self._spend(e, processed)
                    self._seated = False
                    self.retractions.append(e)
                elif isinstance(e, ev.RequestFinished):
                    self._spend(e, processed, whole=True)
                    self._alive, self.end = False, e
                    return

    def _spend(self, e: ev.Event, processed: ev.BatchScheduled | None, whole: bool = False) -> None:
        """The time up to this event, and the step if it is over (for this request)."""
        part, others, tokens = self._part(processed)
        last = self.stretches[-1] if self.stretches else None
        if last is None or (last.part, last.who) != (part, others):
            if e.t == self._clock and not whole:
                return
            last = Stretch(part, self._clock, e.step, e.step, who=others)
            self.stretches.append(last)
        last.time += e.t - self._clock
        if whole or not last.steps:
            last.last_step = e.step
        last.steps += whole
        last.tokens += tokens * whole
        self._clock = e.t

    def _part(self, batch: ev.BatchScheduled | None) -> tuple[str, tuple[int, ...], int]:
        """How the time was spent, with whose prompts, and their tokens."""
        if not self._seated:
            return ("requeued" if self.retractions else "queue"), (), 0
        if batch is None:
            return "pipeline", (), 0
        columns = zip(batch.uids, batch.starts, batch.ends, strict=True)
        spans = {uid: (start, end) for uid, start, end in columns}
        prompts = {} if batch.phase == "decode" else {u: b - a for u, (a, b) in spans.items() if u != self.uid}
        if batch.phase == "mixed":  # those that decode come first, the prompts after them
            prompts = {u: n for u, n in prompts.items() if n > 1}
        if self.uid not in spans:
            return ("others", tuple(prompts), sum(prompts.values())) if prompts else ("pipeline", (), 0)
        start, end = spans[self.uid]
        again, self._computed = start < self._computed, max(end, self._computed)
        if again:
            return "recompute", (), end - start
        if end <= self._prompt:
            return "prefill", (), end - start
        return ("mixed", tuple(prompts), sum(prompts.values())) if prompts else ("decode", (), 1)

    @property
    def time(self) -> float:
        return sum(s.time for s in self.stretches)

    @property
    def steps(self) -> int:
        return sum(s.steps for s in self.stretches)


def why_slow(trace: Trace, uid: int) -> Answer:
    """A request's time from submission to its end: queue, its own prompt, decoding, others' prompts, retractions."""
    question = f"Why was request {uid} slow?"
    told = Told(trace, uid)
    if told.rejected:
        return refused(told, question, _table([]))
    life = Life(trace, told)
    rows = _parts(life)
    facts = {"time": life.time, "steps": life.steps, "retractions": len(life.retractions)}
    facts |= {f"{part}_time": 0.0 for part in LOOKS} | {f"{row[0]}_time": row[2] for row in rows}
    facts["lost"] = sum(e.lost for e in life.retractions)
    said, events = _summary(life, told)
    said += [_line(life, row) for row in rows]
    for e in life.retractions:
        lost = f"{count(len(e.pages), 'page')} taken back, KV of {count(e.lost, 'token')} lost"
        said.append(f"Retracted ({cite(e)}): {lost}.")
        events.append(e)
    pieces = [Piece(s.began, s.began + s.time, s.part, _title(s)) for s in life.stretches]
    picture = pictures.bars([(f"request {uid}", pieces)], LOOKS, _ends(life)) if life.time else ""
    return Answer(question, said, _table(rows), facts, events, picture)


def _summary(life: Life, told: Told) -> tuple[list[str], list[ev.Event]]:
    since = "its submission" if told.arrived else "the record's start"
    until = f"its end by {life.end.reason} ({cite(life.end)})" if life.end else "the end of the record"
    said = [f"Request {life.uid} took {seconds(life.time)} and {count(life.steps, 'step')} from {since} to {until}."]
    if life.first_token and told.arrived:
        said.append(
            f"Its first token came after {seconds(life.first_token.t - told.since)} ({cite(life.first_token)})."
        )
    return said, [e for e in (told.arrived, life.admitted, life.first_token, life.end) if e]


def _parts(life: Life) -> list[tuple]:
    """Rows of the table, the largest first."""
    rows = []
    for part in LOOKS:
        own = [s for s in life.stretches if s.part == part]
        if own:
            time = sum(s.time for s in own)
            share = round(100 * time / life.time) if life.time else 0
            rows.append((part, sum(s.steps for s in own), time, share, own[0].first_step, own[-1].last_step))
    return sorted(rows, key=lambda row: -row[2])


def _line(life: Life, row: tuple) -> str:
    part, n, time, share, first, last = row
    own = [s for s in life.stretches if s.part == part]
    said = f"{share}%, {seconds(time)}, {count(n, 'step')} ({steps(first, last)}): {LOOKS[part].words}"
    if part in ("others", "mixed"):
        worst = max(own, key=lambda s: s.time)
        total: Counter[int] = Counter()
        for s in own:
            for uid in s.who:
                total[uid] += 1
        said += (
            f"; the longest stretch was {steps(worst.first_step, worst.last_step)}, {seconds(worst.time)}, "
            f"{count(worst.tokens, 'token')} of {requests(worst.who)}; {count(len(total), 'request')} in all"
        )
    elif part in ("prefill", "recompute"):
        said += f", {count(sum(s.tokens for s in own), 'token')}"
    return said + "."


def _title(s: Stretch) -> str:
    who = f": {requests(s.who)}" if s.who else ""
    return f"{LOOKS[s.part].words}{who}, {steps(s.first_step, s.last_step)}, {seconds(s.time)}"


def _ends(life: Life) -> tuple[str, str]:
    first, last = life.stretches[0], life.stretches[-1]
    return f"step {first.first_step}", f"step {last.last_step}, after {seconds(life.time)}"


def _table(rows: list[tuple]) -> Table:
    return Table.of_rows("where the time went", COLUMNS, rows)
