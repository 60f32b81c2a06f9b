"""What the last step decided: admission tests, and handoffs of KV to the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence

from minisgl.events.snapshot import Snapshot
from minisgl.events.types import AdmissionTested, Handoff
from minisgl.events.words import describe
from minisgl_widgets.shown import MOST_ROWS, Chip, Prose, Shown, Texts, left_out, page_list, section

# -- admission ledger ------------------------------------------------------------------------------------------------

LEDGER_HEADS = (
    "request",
    "verdict",
    "needs",
    "promised",
    "asked in all",
    "free",
    "evictable",
    "pending",
    "to be had",
    "to be had, prefix locked",
    "in words",
)


def tests_of(snap: Snapshot) -> list[AdmissionTested]:
    """The admission tests of the last pass that had any, as the events they were."""
    return [AdmissionTested(t=0.0, **row) for row in snap.tests]


def ledger_text(snap: Snapshot, texts: Texts = None) -> str:
    """Every test of the last admission pass: the inequality with its numbers, and the verdict in words."""
    return ledger(tests_of(snap)).text


def ledger_html(snap: Snapshot, texts: Texts = None) -> str:
    return ledger(tests_of(snap)).html


def ledger(tests: Sequence[AdmissionTested]) -> Shown:
    """The same of any tests, in the order in which they were made."""
    title = _ledger_title(tests)
    return Shown(
        "\n".join([title, *_sums(tests[-MOST_ROWS:])]), section(title, LEDGER_HEADS, _rows(tests[-MOST_ROWS:]))
    )


def _ledger_title(tests: Sequence[AdmissionTested]) -> str:
    if not tests:
        return "admission: no request has been tested yet"
    rule = "needs + promised must fit into free + evictable + pending, in pages"
    first, last = tests[0].step, tests[-1].step
    when = f"step {first}" if first == last else f"steps {first} to {last}"
    return f"admission, tests of {when}{left_out(tests)}: {rule}"


def _sums(tests: Sequence[AdmissionTested]) -> list[str]:
    lines = []
    for test in tests:
        lines.append(f"  {describe(test)}")
        if test.need is None:
            continue
        asked, reserved = test.need + (test.reserved or 0), test.reserved
        held = f"{test.free} + {test.evictable} + {test.pending} = {test.available}"
        lines.append(f"    {test.need} + {reserved} = {asked} {_fits(asked, test.available)} {held}")
        if test.available_locked is not None and test.available_locked != test.available:
            locked = f"{test.free} + {test.evictable_locked} + {test.pending} = {test.available_locked}"
            lines.append(
                f"    {test.need} + {reserved} = {asked} {_fits(asked, test.available_locked)} {locked}, prefix locked"
            )
    return lines


def _fits(asked: int, had: int | None) -> str:
    return "<=" if had is not None and asked <= had else "> "


def _rows(tests: Sequence[AdmissionTested]) -> list[tuple]:
    rows: list[tuple] = []
    for t in tests:
        asked = None if t.need is None else t.need + (t.reserved or 0)
        held = (t.free, t.evictable, t.pending, t.available, t.available_locked)
        verdict = Prose(t.verdict if t.verdict == "admitted" else f"waits: {t.verdict}")
        rows.append((Chip(t.uid), verdict, t.need, t.reserved, asked, *held, Prose(describe(t))))
    return rows


# -- handoff ---------------------------------------------------------------------------------------------------------


def handoffs_of(snap: Snapshot) -> list[Handoff]:
    """The handoffs of the last step that had any, as the events they were."""
    return [Handoff(t=0.0, **{k: v for k, v in row.items() if k != "segments"}) for row in snap.handoffs]


def fate_of(handoff: Handoff, segment: str) -> str:
    """What becomes of a segment's pages."""
    later = " after the batch in flight" if handoff.pending else ""
    instead = f"; the cache's {page_list(handoff.replaced)} take their place" if handoff.replaced else ""
    return {
        "locked": "stay the cache's; " + ("the lock moves on" if handoff.node else "the lock is dropped"),
        "duplicate": f"are freed{later}{instead}",
        "inserted": "become the cache's",
        "tail": f"are freed{later}" if handoff.finished else "stay the request's",
    }[segment]


def span_of(handoff: Handoff, start: int, end: int) -> str:
    """A segment's places, and how far they are filled: only the tail can have room left."""
    if end <= handoff.n:
        return f"[{start}, {end})"
    return f"[{start}, {end}), " + (f"filled to {handoff.n}" if start < handoff.n else "not filled yet")


def _handoff_title(snap: Snapshot) -> str:
    if not snap.handoffs:
        return "handoffs: none yet"
    return f"handoffs of step {snap.handoffs[0]['step']}{left_out(snap.handoffs)}"


def handoff_text(snap: Snapshot, texts: Texts = None) -> str:
    """The four segments of each handoff of the last step that had any; empty segments are left out."""
    lines = [_handoff_title(snap)]
    for h in handoffs_of(snap)[-MOST_ROWS:]:
        lines.append(f"  request {h.uid} {'has ended' if h.finished else 'has its prompt computed'}: KV of [0, {h.n})")
        for name, a, b, pages in h.segments():
            if b > a:
                lines.append(f"    {name:9s} {span_of(h, a, b)}  pages {page_list(pages)} {fate_of(h, name)}")
    return "\n".join(lines)


def handoff_html(snap: Snapshot, texts: Texts = None) -> str:
    rows = [
        (Chip(h.uid), Prose(name), span_of(h, a, b), Prose(page_list(pages)), Prose(fate_of(h, name) if pages else ""))
        for h in handoffs_of(snap)[-MOST_ROWS:]
        for name, a, b, pages in h.segments()
        if b > a
    ]
    return section(_handoff_title(snap), ("request", "segment", "tokens", "pages", "what becomes of them"), rows)
