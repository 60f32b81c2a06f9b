"""reservations: what admission promised, and how much of it was ever used."""

from __future__ import annotations

from dataclasses import dataclass

from minisgl.core import pages_for
from minisgl.errors import CostError
from minisgl.events import types as ev
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer, cite, seconds
from minisgl.sim.answers.books import Books
from minisgl.sim.answers.pictures import Look
from minisgl.sim.costs import DEFAULT, CostModel
from minisgl.sim.fit import fit
from minisgl.sim.whatif import whatif

LOOKS = {
    "occupied": Look("o", pictures.SKY, "pages occupied by requests"),
    "both": Look("p", pictures.ORANGE, "occupied + promised"),
    "unused": Look("u", pictures.RED, "promised, and never used"),
}
COLUMNS = {
    "uid": "request",
    "step": "step",
    "prompt_tokens": "tokens",
    "max_tokens": "tokens",
    "output_tokens": "tokens",
    "promised": "pages",
    "used": "pages",
    "unused": "pages",
    "end": "text",
}
OVER_TIME = {"step": "step", "occupied": "pages", "promised": "pages", "unused": "pages"}
MOST_SAID = 3  # promises told one by one


@dataclass
class Stay:
    """From an admission (or the record's start) to the end or a retraction; in pages."""

    uid: int
    step: int
    promised: int
    used: int = 0
    output: int = 0  # tokens it had put out at its end
    end: ev.RequestFinished | ev.RequestRetracted | None = None

    @property
    def unused(self) -> int:
        """Negative if it took more than it was promised, which the optimistic policy allows."""
        return self.promised - self.used

    @property
    def reason(self) -> str:
        if self.end is None:
            return ""
        return self.end.reason if isinstance(self.end, ev.RequestFinished) else "retracted"


def reservations(trace: Trace) -> Answer:
    """What was promised and never used, request by request and over time, and who else would have fitted.

    ``data`` has one row per admission (a retracted request has several): the pages it was promised beyond those found
    in the cache, the pages it took, and the difference. ``facts["over_time"]`` is a table with a row per batch: pages
    occupied, pages promised and not yet taken, and those among them that nobody will ever take.

    ``facts["would_have_fitted"]`` is, at the worst refusal for pages, how many of those waiting would have found room
    and rows had every request been promised what it came to use. What promising less gains is found by running the same
    requests under ``admission="optimistic"`` (see ``whatif``).
    """
    question = "What was promised and never used?"
    prompts = {uid: (len(r["prompt"]), r["max_tokens"]) for uid, r in trace.keyframe["requests"].items()}
    prompts |= {e.uid: (len(e.prompt), e.max_tokens) for e in trace.of(ev.RequestArrived)}
    stays = _stays(trace)
    over_time, best, test = _over_time(trace, stays, prompts)
    rows = [(s.uid, s.step, *prompts[s.uid], s.output, s.promised, s.used, s.unused, s.reason) for s in stays]
    ended = [s for s in stays if s.end]
    facts = {
        "promised": sum(s.promised for s in ended),
        "used": sum(s.used for s in ended),
        "unused": sum(s.unused for s in ended),
        "would_have_fitted": best,
        "over_time": over_time,
    }
    said, events = _said(trace, ended, prompts, facts)
    if test:
        fate = f"{count(best, 'waiting request')} would have fitted then" if best else "it would not have fitted either"
        said.append(
            f"Request {test.uid} was refused for pages ({cite(test)}). Counted by what everybody came to use, {fate}."
        )
        events.append(test)
    else:
        said.append("Nobody was ever refused for pages: promises kept nobody out.")
    said += _optimistic(trace, facts)
    both = [a + b for a, b in zip(over_time.occupied.tolist(), over_time.promised.tolist(), strict=True)]
    series = [("both", both), ("occupied", over_time.occupied.tolist()), ("unused", over_time.unused.tolist())]
    picture = pictures.curves(series, LOOKS, _ends(over_time), "pages") if both else ""
    return Answer(question, said, Table.of_rows("promises", COLUMNS, rows), facts, events, picture)


def _stays(trace: Trace) -> list[Stay]:
    """Every stay of the record, with what it took in all."""
    output = {uid: len(r["output"]) for uid, r in trace.keyframe["requests"].items()}
    seated = [r for r in trace.keyframe["requests"].values() if r["row"] >= 0 and r["status"] != "finished"]
    now = {r["uid"]: Stay(r["uid"], trace.keyframe["step"], r["reserved"]) for r in seated}
    stays = list(now.values())
    for e in trace.events:
        if isinstance(e, ev.RequestAdmitted):
            now[e.uid] = Stay(e.uid, e.step, e.reserved)
            stays.append(now[e.uid])
        elif isinstance(e, ev.PagesAllocated):
            for uid, n in zip(e.uids, e.counts, strict=True):
                now[uid].used += n
        elif isinstance(e, ev.TokensSampled):
            for uid, dropped in zip(e.uids, e.dropped, strict=True):
                output[uid] = output.get(uid, 0) + (not dropped)
        elif isinstance(e, (ev.RequestFinished, ev.RequestRetracted)) and e.uid in now:
            now[e.uid].end, now[e.uid].output = e, output.get(e.uid, 0)
            del now[e.uid]
    for uid, stay in now.items():
        stay.output = output.get(uid, 0)
    return stays


def _over_time(
    trace: Trace, stays: list[Stay], prompts: dict[int, tuple[int, int]]
) -> tuple[Table, int, ev.AdmissionTested | None]:
    """Promises batch by batch; and the refusal for pages at which most would have fitted, with how many."""
    books, ps = Books(trace.keyframe), trace.keyframe["page_size"]
    coming: dict[int, list[Stay]] = {}
    for stay in reversed(stays):
        coming.setdefault(stay.uid, []).append(stay)
    now: dict[int, Stay] = {uid: coming[uid].pop() for uid in books.promised}
    rows, best, test = [], 0, None

    def future(uid: int) -> int:
        """Pages that it will take yet; one that outlives the record may take all that it is promised."""
        stay = now[uid]
        return stay.used - books.taken[uid] if stay.end else books.promised[uid]

    for e in trace.events:
        books.apply(e)
        if isinstance(e, ev.RequestAdmitted):
            now[e.uid] = coming[e.uid].pop()
        elif isinstance(e, ev.BatchScheduled):
            unused = sum(max(0, n - future(uid)) for uid, n in books.promised.items())
            rows.append((e.step, e.owned_pages + e.protected_pages, e.reserved_pages, unused))
        elif isinstance(e, ev.AdmissionTested) and e.verdict == "pages":
            had = e.available if e.available_locked is None else e.available_locked
            room = (had or 0) - sum(future(uid) for uid in books.promised)
            fitted = 0
            for uid in [e.uid, *(u for u in books.waiting if u != e.uid)][: e.free_rows]:
                room -= coming[uid][-1].used if coming.get(uid) else pages_for(sum(prompts[uid]), ps)
                if room < 0:
                    break
                fitted += 1
            if test is None or fitted > best:
                best, test = fitted, e
    return Table.of_rows("promises over time", OVER_TIME, rows), best, test


def _said(
    trace: Trace, ended: list[Stay], prompts: dict[int, tuple[int, int]], facts: dict
) -> tuple[list[str], list[ev.Event]]:
    promised, used, over_time = facts["promised"], facts["used"], facts["over_time"]
    were = "was" if len(ended) == 1 else "were"
    most = f"{count(len(ended), 'admission')} {were} promised {count(promised, 'page')} beyond what was cached"
    if used <= promised:
        share = f" ({(promised - used) / promised:.0%})" if promised else ""
        said = [f"{most} and took {used}: {count(promised - used, 'page')}{share} never used."]
    else:
        said = [f"{most} and took {used}: more than promised, which this policy allows."]
    events: list[ev.Event] = []
    for s in sorted(ended, key=lambda s: (-s.unused, s.uid))[:MOST_SAID]:
        if s.unused > 1 and s.end:
            said.append(
                f"Request {s.uid} was promised {s.promised} and took {s.used}: {s.reason} after {s.output} of "
                f"{prompts[s.uid][1]} tokens ({cite(s.end)})."
            )
            events.append(s.end)
    if len(over_time) and over_time.unused.max() > 0:
        at = int(over_time.unused.argmax())
        step = int(over_time.step[at])
        said.append(
            f"In step {step} (BatchScheduled) {over_time.promised[at]} pages were promised and not yet taken beside "
            f"{over_time.occupied[at]} occupied, of {trace.keyframe['num_pages']}; {over_time.unused[at]} of them were "
            f"never taken."
        )
        events += [e for e in trace.of(ev.BatchScheduled) if e.step == step][:1]
    return said, events


def _optimistic(trace: Trace, facts: dict) -> list[str]:
    """What the same requests do when nothing but the prompt is promised."""
    if "config" not in trace.about or not trace.of(ev.RequestArrived):
        return []
    if trace.about["config"].get("admission") == "optimistic":
        return ["This run was optimistic already: it promised no more than the prompt."]
    try:
        costs: CostModel = fit(trace)
        modelled = "times modelled on this run's own"
    except CostError:
        costs, modelled = DEFAULT, "times of a default model, because this run is too short to fit one"
    what = whatif(trace, costs, admission="optimistic")
    before, after = what.before.figures, what.after.figures
    names = ("queue_time_mean", "duration", "retractions")
    facts |= {f"optimistic_{n}": after[n] for n in names} | {f"modelled_{n}": before[n] for n in names}
    return [
        f"Optimistic admission ({modelled}): {seconds(after['queue_time_mean'])} in the queue on average "
        f"instead of {seconds(before['queue_time_mean'])}, all done in {seconds(after['duration'])} instead of "
        f"{seconds(before['duration'])}, {count(after['retractions'], 'retraction')}."
    ]


def _ends(over_time: Table) -> tuple[str, str]:
    return f"step {over_time.step[0]}", f"step {over_time.step[-1]}"
