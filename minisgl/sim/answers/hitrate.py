"""hits: how much of all prompts was found in the prefix cache, how much could have been, and why the rest was not."""

from __future__ import annotations

from typing import Any

from minisgl.events import types as ev
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer, cite
from minisgl.sim.answers.known import Known
from minisgl.sim.answers.missed import LOOKS
from minisgl.sim.answers.pictures import Piece

COLUMNS = {"uid": "request", "step": "step", "asked": "tokens"} | dict.fromkeys(LOOKS, "tokens")


def hits(trace: Trace) -> Answer:
    """The look-ups of all requests that were admitted for the first time, added up; ``explain`` tells of each alone.

    ``data`` has a row per request: the prompt tokens it asked for, how many of them matched, and the others by cause,
    as ``explain(trace, "why missed", uid)`` has them. ``facts`` has the sums, ``hit_rate`` and ``ceiling``: what a
    cache that never forgets would have found (see ``Figures.hit_rate_ceiling``).
    """
    question = "How much of the prompts was found in the cache, and why not more?"
    rows, admissions = _rows(trace)
    table = Table.of_rows("hits", COLUMNS, rows)
    sums = {cause: int(table[cause].sum()) for cause in LOOKS}
    asked = int(table.asked.sum())
    facts: dict[str, Any] = {"requests": len(table), "asked": asked, "hit": sums["matched"]} | sums
    if not asked:
        return Answer(question, ["Nobody was admitted for the first time in this record."], table, facts)
    figures = trace.figures
    facts |= {"hit_rate": figures.hit_rate, "ceiling": figures.hit_rate_ceiling}
    said = [
        f"{count(len(table), 'request')} asked for {asked:,} prompt tokens, and {sums['matched']:,} of them "
        f"({figures.hit_rate:.1%}) were found in the cache; one that never forgets would have found "
        f"{figures.hit_rate_ceiling:.1%}."
    ]
    events: list[ev.Event] = []
    for cause in sorted((c for c in sums if c != "matched" and sums[c]), key=lambda c: -sums[c]):
        worst = int(table[cause].argmax())
        events.append(admissions[worst])
        words = LOOKS[cause].words.partition(": ")[2] or LOOKS[cause].words
        said.append(
            f"{cause}: {sums[cause]:,} token{'' if sums[cause] == 1 else 's'} ({sums[cause] / asked:.1%}): {words}; "
            f"most in request {table.uid[worst]}, {count(int(table[cause][worst]), 'token')} ({cite(events[-1])})."
        )
    pieces, at = [], 0
    for cause, tokens in sums.items():
        if tokens:
            pieces.append(Piece(at, at + tokens, cause, f"{cause}: {count(tokens, 'token')}"))
            at += tokens
    picture = pictures.bars([("prompts", pieces)], LOOKS, ("0 tokens", f"{asked:,} tokens"))
    return Answer(question, said, table, facts, events, picture)


def _rows(trace: Trace) -> tuple[list[tuple], list[ev.RequestAdmitted]]:
    """A row for each first admission, and the admissions."""
    requests = trace.keyframe["requests"]
    seated = {uid for uid, r in requests.items() if r["status"] != "waiting" or r["output"]}  # were admitted before
    prompts = {uid: tuple(r["prompt"]) for uid, r in requests.items()}
    known = Known(trace.keyframe, trace.about.get("config", {}).get("prefix_cache", "radix") == "radix")
    rows, admissions = [], []
    for e in trace.events:
        if isinstance(e, ev.RequestArrived):
            prompts[e.uid] = e.prompt
        elif isinstance(e, ev.RequestAdmitted) and e.uid not in seated:
            seated.add(e.uid)
            causes = known.causes(prompts[e.uid], e.cached_len)
            rows.append((e.uid, e.step, len(prompts[e.uid]), *(causes[cause] for cause in LOOKS)))
            admissions.append(e)
        known.apply(e)
    return rows, admissions
