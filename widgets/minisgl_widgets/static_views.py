"""Each view as text and as a plain HTML table: for terminals, GitHub, nbconvert, and cells that tests compare.

All are functions of a Snapshot. ``texts`` maps token ids to what they say; without it ids are shown. The HTML has no
scripts and no style sheet, and says everything in characters as well, because viewers drop colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from minisgl.events.integrity import violations
from minisgl.events.snapshot import Snapshot
from minisgl.events.types import AdmissionTested, Handoff
from minisgl.events.words import count, describe
from minisgl.events.words import pages as page_runs
from minisgl_widgets import palette

Texts = Mapping[int, str] | None

PER_LINE = 64  # pages in one line of the strip
MOST_PAGES = 4096  # drawn one by one; a larger pool is told in numbers
MOST_ROWS = 50  # requests, tests, handoffs shown
SIGNS = {"free": ".", "evictable": "+", "protected": "#"}  # an owned page shows the last digit of its request's uid


def summary(snap: Snapshot) -> str:
    """The counters in one line: ``step=9, free=59, owned=5, cached=0 (0 locked), ...``; all but the first in pages."""
    c = snap.counters
    return (
        f"step={snap.step}, free={c['free_pages']}, owned={c['owned_pages']}, "
        f"cached={c['evictable_pages'] + c['protected_pages']} ({c['protected_pages']} locked), "
        f"promised={c['reserved_pages']}, pages={snap.num_pages}x{snap.page_size}, "
        f"running={c['running']}, waiting={c['waiting']}"
    )


# -- page strip ----------------------------------------------------------------------------------------------------


def _cells(snap: Snapshot) -> list[tuple[str, str, str]]:
    """(character, colour, title) of every page."""
    cells = []
    for page, (owner, node, locks) in enumerate(
        zip(snap.pages.owner.tolist(), snap.pages.node.tolist(), snap.pages.locks.tolist(), strict=True)
    ):
        if owner >= 0:
            cells.append((str(owner % 10), palette.of_uid(owner), f"page {page}: request {owner}"))
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
        f"{count_of('free')} free (.), {count_of('owned')} owned (last digit of the request)"
        f"{' - ' + ', '.join(owned) if owned else ''}, {count_of('evictable')} cached and evictable (+), "
        f"{count_of('protected')} cached and locked (#); the dummy page is page {snap.pages.dummy}"
    )


def _owned(snap: Snapshot) -> list[tuple[int, int]]:
    """(uid, pages it owns), by uid."""
    owners: dict[int, int] = {}
    for owner in snap.pages.owner.tolist():
        if owner >= 0:
            owners[owner] = owners.get(owner, 0) + 1
    return sorted(owners.items())


def strip_text(snap: Snapshot, texts: Texts = None) -> str:
    """One character per page, 64 a line, each line with its first page's number."""
    lines = [f"pages after step {snap.step}"]
    if snap.num_pages <= MOST_PAGES:
        signs = "".join(sign for sign, _, _ in _cells(snap))
        lines += [f"{at:5d} {signs[at : at + PER_LINE]}" for at in range(0, len(signs), PER_LINE)]
    return "\n".join([*lines, _strip_legend(snap)])


def strip_html(snap: Snapshot, texts: Texts = None) -> str:
    lines = [f"<b>Pages after step {snap.step}</b>"]
    if snap.num_pages <= MOST_PAGES:
        cells = _cells(snap)
        rows = []
        for at in range(0, len(cells), PER_LINE // 2):
            drawn = "".join(_box(sign, fill, title) for sign, fill, title in cells[at : at + PER_LINE // 2])
            rows.append(f"<tr><th>{at}</th>{drawn}</tr>")
        lines.append(f"<table>{''.join(rows)}</table>")
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


def _ledger_rows(snap: Snapshot) -> list[tuple]:
    return [
        (
            test.uid,
            test.verdict,
            test.need,
            test.reserved,
            None if test.need is None else test.need + (test.reserved or 0),
            test.free,
            test.evictable,
            test.pending,
            test.available,
            test.available_locked,
            describe(test),
        )
        for test in tests_of(snap)
    ]


def _ledger_title(snap: Snapshot) -> str:
    when = f"tests of step {snap.tests[0]['step']}" if snap.tests else "no request has been tested yet"
    return f"admission, {when}: needs + promised must fit into free + evictable + pending, in pages"


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
    rows = _ledger_rows(snap)[-MOST_ROWS:]
    return f"<b>{escape(_ledger_title(snap).capitalize())}</b>" + (_table(LEDGER_HEADS, rows) if rows else "")


# -- radix tree ----------------------------------------------------------------------------------------------------


def _branches(snap: Snapshot) -> list[tuple[int, int]]:
    """(node, depth) in reading order, the root left out; without recursion, trees can be deep."""
    below: dict[int, list[int]] = {}
    for node, n in snap.tree.items():
        if node:
            below.setdefault(n.parent, []).append(node)
    found, stack = [], [(node, 0) for node in sorted(below.get(0, ()), reverse=True)]
    while stack:
        node, depth = stack.pop()
        found.append((node, depth))
        stack += [(child, depth + 1) for child in sorted(below.get(node, ()), reverse=True)]
    return found


def tree_text(snap: Snapshot, texts: Texts = None) -> str:
    """The prefix cache, one node a line, indented: the text on its edge, its pages, locks and last use."""
    title = f"prefix cache after step {snap.step}: "
    branches = _branches(snap)
    if not branches:
        return title + "nothing cached"
    lines = [
        title + f"{count(sum(len(n.pages) for n in snap.tree.values()), 'page')} in {count(len(branches), 'node')}"
    ]
    for node, depth in branches:
        n = snap.tree[node]
        lines.append(
            f"{'  ' * (depth + 1)}[{node}] {_said(n.tokens, texts)}  pages {page_runs(n.pages)}, "
            f"locks {n.locks}, last used {n.used}"
        )
    return "\n".join(lines)


def tree_html(snap: Snapshot, texts: Texts = None) -> str:
    branches = _branches(snap)
    title = f"<b>Prefix cache after step {snap.step}</b>"
    if not branches:
        return f"{title}<p>nothing cached</p>"
    rows = []
    for node, depth in branches:
        n = snap.tree[node]
        edge = "\u00a0\u00a0\u00a0\u00a0" * depth + ("└ " if depth else "") + _said(n.tokens, texts)
        rows.append((node, edge, len(n.tokens), page_runs(n.pages), n.locks or "", n.used))
    return title + _table(("node", "text on its edge", "tokens", "pages", "locks", "last used"), rows)


# -- handoff -------------------------------------------------------------------------------------------------------


def handoffs_of(snap: Snapshot) -> list[Handoff]:
    """The handoffs of the last step that had any, as the events they were."""
    return [Handoff(t=0.0, **{k: v for k, v in row.items() if k != "segments"}) for row in snap.handoffs]


def fate_of(handoff: Handoff, segment: str) -> str:
    """What becomes of a segment's pages."""
    return {
        "locked": "stay the cache's; " + ("the lock is dropped" if handoff.finished else "the lock moves on"),
        "duplicate": f"are freed; the cache's {page_runs(handoff.replaced)} take their place",
        "inserted": "become the cache's",
        "tail": "are freed" if handoff.finished else "stay the request's",
    }[segment]


def _handoff_rows(snap: Snapshot) -> list[tuple]:
    return [
        (h.uid, name, f"[{a}, {b})", page_runs(pages), fate_of(h, name) if pages else "")
        for h in handoffs_of(snap)[-MOST_ROWS:]
        for name, a, b, pages in h.segments()
        if b > a
    ]


def _handoff_title(snap: Snapshot) -> str:
    return f"handoffs of step {snap.handoffs[0]['step']}" if snap.handoffs else "handoffs: none yet"


def handoff_text(snap: Snapshot, texts: Texts = None) -> str:
    """The four segments of each handoff of the last step that had any; empty segments are left out."""
    lines = [_handoff_title(snap)]
    for h in handoffs_of(snap)[-MOST_ROWS:]:
        lines.append(f"  request {h.uid} {'has ended' if h.finished else 'has its prompt computed'}: KV of [0, {h.n})")
        for name, a, b, pages in h.segments():
            if b > a:
                lines.append(f"    {name:9s} [{a}, {b})  pages {page_runs(pages)} {fate_of(h, name)}")
    return "\n".join(lines)


def handoff_html(snap: Snapshot, texts: Texts = None) -> str:
    title = f"<b>{_handoff_title(snap).capitalize()}</b>"
    rows = _handoff_rows(snap)
    return title + (_table(("request", "segment", "tokens", "pages", "what becomes of them"), rows) if rows else "")


# -- requests ------------------------------------------------------------------------------------------------------

REQUEST_HEADS = ("request", "status", "prompt", "cached", "output", "KV", "row", "pages", "promised")


def _request_rows(snap: Snapshot) -> list[tuple]:
    rows = []
    for r in list(snap.requests.values())[-MOST_ROWS:]:
        why = r.reason or (r.verdict if r.status == "waiting" and r.verdict != "admitted" else "")
        status = f"{r.status}: {why}" if why else r.status
        row = "" if r.row < 0 else r.row
        output = f"{len(r.output)}/{r.max_tokens}"
        rows.append((r.uid, status, len(r.prompt), r.matched, output, r.cached_len, row, len(r.pages), r.reserved))
    return rows


def requests_text(snap: Snapshot, texts: Texts = None) -> str:
    """One line per request, and its text: ``prompt | output``, the part found in the cache in [brackets]."""
    lines = [f"requests after step {snap.step}"]
    table = [REQUEST_HEADS, *_request_rows(snap)]
    widths = [max(len(str(row[i])) for row in table) for i in range(len(REQUEST_HEADS))]
    lines += ["  " + "  ".join(str(v).rjust(w) for v, w in zip(row, widths, strict=True)) for row in table]
    for r in list(snap.requests.values())[-MOST_ROWS:]:
        if r.error:
            lines.append(f"  {r.uid}: {r.error}")
            continue
        cached = f"[{_plain(r.prompt[: r.matched], texts)}]" if r.matched else ""
        lines.append(f"  {r.uid}: {cached}{_plain(r.prompt[r.matched :], texts)} | {_plain(r.output, texts)}".rstrip())
    return "\n".join(lines)


def requests_html(snap: Snapshot, texts: Texts = None) -> str:
    rows: list[tuple] = []
    listed = list(snap.requests.values())[-MOST_ROWS:]
    for r, row in zip(listed, _request_rows(snap), strict=True):
        cached = f"<u>{escape(_plain(r.prompt[: r.matched], texts))}</u>" if r.matched else ""
        prompt = _Html(cached + escape(r.error or _plain(r.prompt[r.matched :], texts)))
        rows.append((_Chip(r.uid), *row[1:], prompt, _plain(r.output, texts)))
    heads = (*REQUEST_HEADS, "prompt (underlined: found in the cache)", "output so far")
    return f"<b>Requests after step {snap.step}</b>{_table(heads, rows)}"


# -- invariant lamp ------------------------------------------------------------------------------------------------


def lamp_text(snap: Snapshot, texts: Texts = None) -> str:
    """``sound`` and the sum that holds, or every broken rule."""
    broken = violations(snap.to_dict())
    if broken:
        return f"broken after step {snap.step}: " + "; ".join(broken)
    n = snap.pages.count
    parts = f"{n('free')} free + {n('owned')} owned + {n('evictable') + n('protected')} cached"
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


class _Html(str):
    """Text that is HTML already."""


class _Chip(int):
    """A request's number, shown in its colour."""


def _box(text: str, fill: str, title: str = "", tag: str = "td") -> str:
    hint = f' title="{escape(title)}"' if title else ""
    return f'<{tag} bgcolor="{fill}"{hint}><font color="{palette.ink(fill)}">{escape(text)}</font></{tag}>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, _Chip):
        return _box(str(int(value)), palette.of_uid(value))
    return f"<td>{value if isinstance(value, _Html) else escape('' if value is None else str(value))}</td>"


def _plain(tokens: Sequence[int], texts: Texts) -> str:
    """What tokens say, in one line; ids where that is not known."""
    if texts is None:
        return " ".join(map(str, tokens))
    return "".join(texts.get(token, f" #{token}") for token in tokens).replace("\r", "").replace("\n", "⏎")


def _said(tokens: Sequence[int], texts: Texts) -> str:
    return repr(_plain(tokens, texts)) if texts is not None else _plain(tokens, texts)
