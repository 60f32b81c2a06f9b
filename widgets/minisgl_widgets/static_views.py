"""Each view as text and as a plain HTML table: for terminals, GitHub, nbconvert, and cells that tests compare.

All are functions of a Snapshot. ``texts`` maps token ids to what they say; without it ids are shown. The HTML has no
scripts and no style sheet, and says everything in characters as well, because viewers drop colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from html import escape
from typing import Any

from minisgl.events.integrity import violations
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import RequestState
from minisgl.events.types import AdmissionTested, Handoff
from minisgl.events.words import count, describe
from minisgl.events.words import pages as page_runs
from minisgl_widgets import palette

Texts = Mapping[int, str] | None

PER_LINE = 64  # pages in one line of the strip
MOST_PAGES = 4096  # shown one by one; a larger pool is told in numbers
MOST_BOXES = 1024  # of them as boxes in HTML, where each costs a hundred bytes; up to MOST_PAGES as text
MOST_ROWS = 50  # requests, tests, handoffs, nodes: the last ones are shown
MOST_TEXT = 160  # characters of a text or of a list of pages
SIGNS = {"free": ".", "evictable": "+", "protected": "#"}  # an owned page shows the last digit of its request's uid


def summary(snap: Snapshot) -> str:
    """The counters in one line: ``step=9, free=59, owned=5, cached=0 (0 locked), ...``; all but the first in pages."""
    c = snap.counters
    return (
        f"step={snap.step}, free={c['free_pages']}, owned={c['owned_pages']}{_pending(snap)}, "
        f"cached={c['evictable_pages'] + c['protected_pages']} ({c['protected_pages']} locked), "
        f"promised={c['reserved_pages']}, pages={snap.num_pages}x{snap.page_size}, "
        f"running={c['running']}, waiting={c['waiting']}"
    )


def _pending(snap: Snapshot) -> str:
    n = snap.counters["pending_pages"]
    return f" ({n} pending)" if n else ""


# -- page strip ----------------------------------------------------------------------------------------------------


def _cells(snap: Snapshot) -> list[tuple[str, str, str]]:
    """(character, colour, title) of every page."""
    cells = []
    pending = {page for r in snap.requests.values() for page in r.pending}
    for page, (owner, node, locks) in enumerate(
        zip(snap.pages.owner.tolist(), snap.pages.node.tolist(), snap.pages.locks.tolist(), strict=True)
    ):
        if owner >= 0:
            waits = ", pending: free when the batch in flight is done" if page in pending else ""
            cells.append((str(owner % 10), palette.of_uid(owner), f"page {page}: request {owner}{waits}"))
        elif owner == -1:
            cells.append((SIGNS["free"], palette.KINDS["free"], f"page {page}: free"))
        else:
            kind = "protected" if locks else "evictable"
            held = f"locked by {locks}" if locks else "evictable"
            cells.append((SIGNS[kind], palette.KINDS[kind], f"page {page}: cached in node {node}, {held}"))
    return cells


def _strip_legend(snap: Snapshot) -> str:
    count_of = snap.pages.count
    owned = [f"request {uid}: {n}" for uid, n in _owned(snap)]
    return (
        f"{count_of('free')} free (.), {count_of('owned')} owned{_pending(snap)} (last digit of the request)"
        f"{' - ' + _short(', '.join(owned)) if owned else ''}, {count_of('evictable')} cached and evictable (+), "
        f"{count_of('protected')} cached and locked (#); the dummy page is page {snap.pages.dummy}"
    )


def _owned(snap: Snapshot) -> list[tuple[int, int]]:
    """(uid, pages it owns), by uid."""
    owners: dict[int, int] = {}
    for owner in snap.pages.owner.tolist():
        if owner >= 0:
            owners[owner] = owners.get(owner, 0) + 1
    return sorted(owners.items())


def _strip_lines(snap: Snapshot) -> list[str]:
    signs = "".join(sign for sign, _, _ in _cells(snap))
    return [f"{at:5d} {signs[at : at + PER_LINE]}" for at in range(0, len(signs), PER_LINE)]


def strip_text(snap: Snapshot, texts: Texts = None) -> str:
    """One character per page, 64 a line, each line with its first page's number."""
    shown = _strip_lines(snap) if snap.num_pages <= MOST_PAGES else []
    return "\n".join([f"pages after step {snap.step}", *shown, _strip_legend(snap)])


def strip_html(snap: Snapshot, texts: Texts = None) -> str:
    lines = [f"<b>Pages after step {snap.step}</b>"]
    if snap.num_pages <= MOST_BOXES:
        cells, width = _cells(snap), PER_LINE // 2
        rows = [
            f"<tr><th>{at}</th>{''.join(_box(*cell) for cell in cells[at : at + width])}</tr>"
            for at in range(0, len(cells), width)
        ]
        lines.append(f"<table>{''.join(rows)}</table>")
    elif snap.num_pages <= MOST_PAGES:
        lines.append("<pre>" + "\n".join(_strip_lines(snap)) + "</pre>")
    return "\n".join([*lines, f"<p>{escape(_strip_legend(snap))}</p>"])


# -- admission ledger ----------------------------------------------------------------------------------------------

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


def _ledger_title(snap: Snapshot) -> str:
    if not snap.tests:
        return "admission: no request has been tested yet"
    rule = "needs + promised must fit into free + evictable + pending, in pages"
    return f"admission, tests of step {snap.tests[0]['step']}{_left_out(snap.tests)}: {rule}"


def ledger_text(snap: Snapshot, texts: Texts = None) -> str:
    """Every test of the last admission pass: the inequality with its numbers, and the verdict in words."""
    lines = [_ledger_title(snap)]
    for test in tests_of(snap)[-MOST_ROWS:]:
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
    return "\n".join(lines)


def _fits(asked: int, had: int | None) -> str:
    return "<=" if had is not None and asked <= had else "> "


def ledger_html(snap: Snapshot, texts: Texts = None) -> str:
    rows = []
    for t in tests_of(snap)[-MOST_ROWS:]:
        asked = None if t.need is None else t.need + (t.reserved or 0)
        held = (t.free, t.evictable, t.pending, t.available, t.available_locked)
        verdict = _Prose(t.verdict if t.verdict == "admitted" else f"waits: {t.verdict}")
        rows.append((_Chip(t.uid), verdict, t.need, t.reserved, asked, *held, _Prose(describe(t))))
    return _section(_ledger_title(snap), LEDGER_HEADS, rows)


# -- radix tree ----------------------------------------------------------------------------------------------------


def _tree_title(snap: Snapshot, nodes: int) -> str:
    pages = sum(len(n.pages) for n in snap.tree.values())
    what = f"{count(pages, 'page')} in {count(nodes, 'node')}" if nodes else "nothing cached"
    return f"prefix cache after step {snap.step}: {what}"


def tree_text(snap: Snapshot, texts: Texts = None) -> str:
    """The prefix cache, one node a line, indented: the text on its edge, its pages, locks and last use."""
    branches = list(snap.tree.walk())
    lines = [_tree_title(snap, len(branches))]
    for node, depth in branches[:MOST_ROWS]:
        n = snap.tree[node]
        edge = f"{'  ' * min(depth + 1, 30)}[{node}] {_said(n.tokens, texts)}"
        lines.append(f"{edge}  pages {_pages(n.pages)}, locks {n.locks}, last used {n.used}")
    if len(branches) > MOST_ROWS:
        lines.append(f"  and {len(branches) - MOST_ROWS} more nodes")
    return "\n".join(lines)


def tree_html(snap: Snapshot, texts: Texts = None) -> str:
    rows: list[tuple] = []
    branches = list(snap.tree.walk())
    for node, depth in branches[:MOST_ROWS]:
        n = snap.tree[node]
        edge = "\u00a0\u00a0\u00a0\u00a0" * min(depth, 30) + ("└ " if depth else "") + _said(n.tokens, texts)
        rows.append((node, _Prose(edge), len(n.tokens), _Prose(_pages(n.pages)), n.locks, n.used))
    if len(branches) > MOST_ROWS:
        rows.append(("", _Prose(f"and {len(branches) - MOST_ROWS} more nodes"), "", "", "", ""))
    heads = ("node", "text on its edge", "tokens", "pages", "locks", "last used")
    return _section(_tree_title(snap, len(branches)), heads, rows)


# -- handoff -------------------------------------------------------------------------------------------------------


def handoffs_of(snap: Snapshot) -> list[Handoff]:
    """The handoffs of the last step that had any, as the events they were."""
    return [Handoff(t=0.0, **{k: v for k, v in row.items() if k != "segments"}) for row in snap.handoffs]


def fate_of(handoff: Handoff, segment: str) -> str:
    """What becomes of a segment's pages."""
    later = " after the batch in flight" if handoff.pending else ""
    instead = f"; the cache's {_pages(handoff.replaced)} take their place" if handoff.replaced else ""
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
    return f"handoffs of step {snap.handoffs[0]['step']}{_left_out(snap.handoffs)}"


def handoff_text(snap: Snapshot, texts: Texts = None) -> str:
    """The four segments of each handoff of the last step that had any; empty segments are left out."""
    lines = [_handoff_title(snap)]
    for h in handoffs_of(snap)[-MOST_ROWS:]:
        lines.append(f"  request {h.uid} {'has ended' if h.finished else 'has its prompt computed'}: KV of [0, {h.n})")
        for name, a, b, pages in h.segments():
            if b > a:
                lines.append(f"    {name:9s} {span_of(h, a, b)}  pages {_pages(pages)} {fate_of(h, name)}")
    return "\n".join(lines)


def handoff_html(snap: Snapshot, texts: Texts = None) -> str:
    rows = [
        (_Chip(h.uid), _Prose(name), span_of(h, a, b), _Prose(_pages(pages)), _Prose(fate_of(h, name) if pages else ""))
        for h in handoffs_of(snap)[-MOST_ROWS:]
        for name, a, b, pages in h.segments()
        if b > a
    ]
    return _section(_handoff_title(snap), ("request", "segment", "tokens", "pages", "what becomes of them"), rows)


# -- requests ------------------------------------------------------------------------------------------------------

REQUEST_HEADS = ("request", "status", "prompt", "cached", "output", "KV", "row", "pages", "promised")


def _request_title(snap: Snapshot) -> str:
    return f"requests after step {snap.step}{_left_out(snap.requests)}" + ("" if snap.requests else ": none yet")


def _listed(snap: Snapshot) -> list[RequestState]:
    return list(snap.requests.values())[-MOST_ROWS:]


def _request_rows(snap: Snapshot) -> list[tuple]:
    rows = []
    for r in _listed(snap):
        why = r.reason or (r.verdict if r.status == "waiting" and r.verdict != "admitted" else "")
        status = f"{r.status}: {why}" if why else r.status
        row = "" if r.row < 0 else r.row
        pages = f"{len(r.pages)} ({len(r.pending)} pending)" if r.pending else len(r.pages)
        output = f"{len(r.output)}/{r.max_tokens}"
        rows.append((r.uid, status, len(r.prompt), r.matched, output, r.cached_len, row, pages, r.reserved))
    return rows


def requests_text(snap: Snapshot, texts: Texts = None) -> str:
    """One line per request, and its text: ``prompt | output``, the part found in the cache in [brackets]."""
    lines = [_request_title(snap)]
    if not snap.requests:
        return lines[0]
    table = [REQUEST_HEADS, *_request_rows(snap)]
    widths = [max(len(str(row[i])) for row in table) for i in range(len(REQUEST_HEADS))]
    lines += ["  " + "  ".join(str(v).rjust(w) for v, w in zip(row, widths, strict=True)) for row in table]
    for r in _listed(snap):
        if r.error:
            lines.append(f"  {r.uid}: {r.error}")
            continue
        cached = f"[{_plain(r.prompt[: r.matched], texts)}]" if r.matched else ""
        lines.append(f"  {r.uid}: {cached}{_plain(r.prompt[r.matched :], texts)} | {_plain(r.output, texts)}".rstrip())
    return "\n".join(lines)


def requests_html(snap: Snapshot, texts: Texts = None) -> str:
    rows: list[tuple] = []
    for r, row in zip(_listed(snap), _request_rows(snap), strict=True):
        cached = f"<u>{escape(_plain(r.prompt[: r.matched], texts))}</u>" if r.matched else ""
        prompt = _Html(cached + escape(r.error or _plain(r.prompt[r.matched :], texts)))
        rows.append((_Chip(r.uid), _Prose(row[1]), *row[2:], prompt, _Prose(_plain(r.output, texts))))
    heads = (*REQUEST_HEADS, "prompt (underlined: found in the cache)", "output so far")
    return _section(_request_title(snap), heads, rows)


# -- invariant lamp ------------------------------------------------------------------------------------------------


def lamp_text(snap: Snapshot, texts: Texts = None) -> str:
    """``sound`` and the sum that holds, or every broken rule."""
    broken = violations(snap.to_dict())
    if broken:
        return f"broken after step {snap.step}: " + "; ".join(broken)
    n = snap.pages.count
    parts = f"{n('free')} free + {n('owned')} owned{_pending(snap)} + {n('evictable') + n('protected')} cached"
    return f"sound after step {snap.step}: {parts} = {snap.num_pages} pages"


def lamp_html(snap: Snapshot, texts: Texts = None) -> str:
    text = lamp_text(snap)
    return f"<p><b>{'✓' if text.startswith('sound') else '✕'}</b> {escape(text)}</p>"


# -- any view as an object ------------------------------------------------------------------------------------------

VIEWS = {
    "lamp": (lamp_text, lamp_html),
    "strip": (strip_text, strip_html),
    "ledger": (ledger_text, ledger_html),
    "requests": (requests_text, requests_html),
    "tree": (tree_text, tree_html),
    "handoff": (handoff_text, handoff_html),
}


class View:
    """One view of one snapshot, or "all" of them: a notebook cell may end in it, and ``print`` gives its text."""

    def __init__(self, snap: Snapshot, names: Sequence[str], texts: Texts) -> None:
        self._snap, self._names, self._texts = snap, names, texts

    def __repr__(self) -> str:
        return "\n\n".join(VIEWS[name][0](self._snap, self._texts) for name in self._names)

    def _repr_html_(self) -> str:
        return "\n".join(VIEWS[name][1](self._snap, self._texts) for name in self._names)


def view(snap: Snapshot, name: str = "all", texts: Texts = None) -> View:
    """A view by name: lamp, strip, ledger, requests, tree, handoff, or all."""
    if name != "all" and name not in VIEWS:
        raise ValueError(f"no view {name!r}; the views are {', '.join(VIEWS)} and all")
    return View(snap, list(VIEWS) if name == "all" else [name], texts)


# -- small parts ----------------------------------------------------------------------------------------------------


class _Prose(str):
    """Text to be read, not compared: it stands at the left of its cell."""


class _Html(_Prose):
    """Prose that is HTML already."""


class _Chip(int):
    """A request's number, shown in its colour."""


LEFT = ' style="text-align:left"'  # notebooks put cells to the right; viewers that drop styles lose nothing


def _box(text: str, fill: str, title: str = "") -> str:
    hint = f' title="{escape(title)}"' if title else ""
    return f'<td bgcolor="{fill}"{hint}><font color="{palette.ink(fill)}">{escape(text)}</font></td>'


def _section(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A heading, and a table if it has rows."""
    heading = f"<b>{escape(title[:1].upper() + title[1:])}</b>"
    if not rows:
        return f"<p>{heading}</p>"
    prose = [isinstance(value, _Prose) for value in rows[0]]
    head = "".join(f"<th{LEFT if left else ''}>{escape(h)}</th>" for h, left in zip(heads, prose, strict=True))
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"{heading}<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, _Chip):
        return _box(str(int(value)), palette.of_uid(value))
    text = value if isinstance(value, _Html) else escape("" if value is None else str(value))
    return f"<td{LEFT if isinstance(value, _Prose) else ''}>{text}</td>"


def _left_out(rows: Sized) -> str:
    return f" ({len(rows) - MOST_ROWS} earlier ones are left out)" if len(rows) > MOST_ROWS else ""


def _short(text: str) -> str:
    """A text without its middle, if it is long."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT // 2]} … {text[-MOST_TEXT // 2 :]}"


def _pages(pages: Sequence[int]) -> str:
    runs = page_runs(tuple(pages))
    return runs if len(runs) <= MOST_TEXT else f"{_short(runs)} ({len(pages)} in all)"


def _plain(tokens: Sequence[int], texts: Texts) -> str:
    """What tokens say, in one line, a long text without its middle; ids where that is not known."""
    if len(tokens) > 2 * MOST_TEXT:  # a token is at least a character, so these are all that could be seen
        head, tail = _joined(tokens[:MOST_TEXT], texts), _joined(tokens[-MOST_TEXT:], texts)
        return f"{head[: MOST_TEXT // 2]} … {tail[-MOST_TEXT // 2 :]}"
    return _short(_joined(tokens, texts))


def _joined(tokens: Sequence[int], texts: Texts) -> str:
    if texts is None:
        return " ".join(map(str, tokens))
    return "".join(texts.get(token, f" #{token}") for token in tokens).replace("\r", "").replace("\n", "⏎")


def _said(tokens: Sequence[int], texts: Texts) -> str:
    return repr(_plain(tokens, texts)) if texts is not None else _plain(tokens, texts)
