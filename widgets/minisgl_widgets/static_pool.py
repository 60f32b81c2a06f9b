"""The pool after a step: its counters in a line, the strip of pages, the lamp."""

from __future__ import annotations

from html import escape

from minisgl.events.integrity import violations
from minisgl.events.snapshot import Snapshot
from minisgl_widgets import palette
from minisgl_widgets.shown import Texts, box, characters, middle

PER_LINE = 64  # pages in one line of the strip
MOST_PAGES = 4096  # shown one by one; a larger pool is told in numbers
MOST_BOXES = 1024  # of them as boxes in HTML, where each costs a hundred bytes; up to MOST_PAGES as text
SIGNS = {"free": ".", "evictable": "+", "protected": "#"}  # an owned page shows the last digit of its request's uid


def summary(snap: Snapshot) -> str:
    """The counters in one line: ``step=9, free=59, owned=5, cached=0 (0 locked), ...``; all but the first in pages."""
    c = snap.counters
    return (
        f"step={snap.step}, free={c['free_pages']}, owned={c['owned_pages']}{pending(snap)}, "
        f"cached={c['evictable_pages'] + c['protected_pages']} ({c['protected_pages']} locked), "
        f"promised={c['reserved_pages']}, pages={snap.num_pages}x{snap.page_size}, "
        f"running={c['running']}, waiting={c['waiting']}"
    )


def pending(snap: Snapshot) -> str:
    n = snap.counters["pending_pages"]
    return f" ({n} pending)" if n else ""


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
        f"{count_of('free')} free (.), {count_of('owned')} owned{pending(snap)} (last digit of the request)"
        f"{' - ' + middle(', '.join(owned)) if owned else ''}, {count_of('evictable')} cached and evictable (+), "
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
            f"<tr><th>{at}</th>{''.join(box(*cell) for cell in cells[at : at + width])}</tr>"
            for at in range(0, len(cells), width)
        ]
        lines.append(f"<table>{''.join(rows)}</table>")
    elif snap.num_pages <= MOST_PAGES:
        lines.append(characters("\n".join(_strip_lines(snap))))
    return "\n".join([*lines, f"<p>{escape(_strip_legend(snap))}</p>"])


def lamp_text(snap: Snapshot, texts: Texts = None) -> str:
    """``sound`` and the sum that holds, or every broken rule."""
    broken = violations(snap.to_dict())
    if broken:
        return f"broken after step {snap.step}: " + "; ".join(broken)
    n = snap.pages.count
    parts = f"{n('free')} free + {n('owned')} owned{pending(snap)} + {n('evictable') + n('protected')} cached"
    return f"sound after step {snap.step}: {parts} = {snap.num_pages} pages"


def lamp_html(snap: Snapshot, texts: Texts = None) -> str:
    text = lamp_text(snap)
    return f"<p><b>{'✓' if text.startswith('sound') else '✕'}</b> {escape(text)}</p>"
