"""Views of pages over time and space as text and plain HTML: life lines, who goes next, page table, two moments.

They say the same as the tabs of a Stage, for terminals, GitHub and nbconvert. Each gives a ``Shown``: a cell may end in
it, and ``print`` gives its text.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from html import escape

import numpy as np

from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.state import CACHE, FREE, NodeState, RequestState
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.sim.answers.pictures import drawn
from minisgl_widgets import palette
from minisgl_widgets.shown import Chip, Prose, Shown, Texts, middle, page_list, plain, table

COLUMNS, ROWS = 96, 32  # cells of the life lines: steps across, pages down
CELL = 7  # pixels
POLICIES: Mapping[str, Callable[[NodeState], int]] = {  # as EVICTIONS in minisgl/kvcache/radix.py
    "lru": lambda node: node.used,
    "lfu": lambda node: node.uses,
    "fifo": lambda node: 0,
}
ENTRIES = 240  # characters of a page table's row
COMPARED = ("status", "reason", "verdict", "row", "cached_len")


# -- life lines ------------------------------------------------------------------------------------------------------


def life_lines(run: Trace | History, columns: int = COLUMNS, rows: int = ROWS) -> Shown:
    """Who had which page when. Steps across, pages down; where there are more of them than cells, a cell shows one step
    of several, and the owner that most of its pages had then."""
    history = run if isinstance(run, History) else run.history
    n, pages = max(1, history.last - history.first), history.at(history.first).num_pages
    across, down = min(columns, n), min(rows, pages)
    steps = [min(history.last, history.first + 1 + (i * n + n // 2) // across) for i in range(across)]
    starts = [row * pages // down for row in range(down + 1)]
    cells = np.empty((down, across), np.int64)
    for i, step in enumerate(steps):
        owner = history.at(step).pages.owner
        for row in range(down):
            who, often = np.unique(owner[starts[row] : starts[row + 1]], return_counts=True)
            cells[row, i] = who[often.argmax()]
    title = f"{count(pages, 'page')} over steps {history.first + 1} to {history.last}"
    lines = [f"{starts[row]:6d} " + "".join(map(_sign, cells[row].tolist())) for row in range(down)]
    legend = "free (.), cached (+), owned (last digit of the request)"
    return Shown("\n".join([title, *lines, legend]), _svg(cells, title, starts) + f"<p>{escape(legend)}</p>")


def _sign(owner: int) -> str:
    return {FREE: ".", CACHE: "+"}.get(owner, str(owner % 10))


def _fill(owner: int) -> str:
    return {FREE: palette.KINDS["free"], CACHE: palette.KINDS["evictable"]}.get(owner, palette.of_uid(owner))


def _svg(cells: np.ndarray, title: str, starts: list[int]) -> str:
    """Equal cells of a line are one bar, whose title names it: a viewer shows it when pointed at."""
    down, across = cells.shape
    bars = []
    for row, line in enumerate(cells.tolist()):
        at = 0
        while at < across:
            end = at
            while end < across and line[end] == line[at]:
                end += 1
            x, y, wide, owner = at * CELL, row * CELL, (end - at) * CELL, line[at]
            name = {FREE: "free", CACHE: "cached"}.get(owner, f"request {owner}")
            where = f"pages {starts[row]} to {starts[row + 1] - 1}: {name}"
            place = f'x="{x}" y="{y}" width="{wide}" height="{CELL}"'
            bars.append(f'<rect {place} fill="{_fill(owner)}"><title>{where}</title></rect>')
            at = end
    size = f'width="{across * CELL}" height="{down * CELL}"'
    return (
        f'<b>{escape(title)}</b><br><svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="{escape(title)}">{drawn(bars)}</svg>'
    )


# -- who goes next ---------------------------------------------------------------------------------------------------


def eviction_order(snap: Snapshot, policy: str = "lru") -> list[int]:
    """The nodes that could be evicted, in the order in which they would be; ValueError for an unknown policy."""
    if policy not in POLICIES:
        raise ValueError(f"unknown policy {policy!r}; the policies are {', '.join(POLICIES)}")
    key, tree = POLICIES[policy], snap.tree
    children = Counter(node.parent for node in tree.values())
    heap = [(key(node), i) for i, node in tree.items() if i and not node.locks and not children[i]]
    heapq.heapify(heap)
    order = []
    while heap:
        _, i = heapq.heappop(heap)
        order.append(i)
        parent = tree[i].parent
        children[parent] -= 1
        if parent and not children[parent] and not tree[parent].locks:
            heapq.heappush(heap, (key(tree[parent]), parent))
    return order


def evictions(snap: Snapshot, pages: int = 0, policy: str = "lru", texts: Texts = None) -> Shown:
    """Who goes next, and what a request of so many pages would push out."""
    free, given = snap.pages.count("free"), 0
    rows: list[tuple] = []
    for place, i in enumerate(eviction_order(snap, policy), 1):
        node = snap.tree[i]
        goes = given < pages - free
        given += len(node.pages) if goes else 0
        said = Prose(plain(node.tokens, texts))
        rows.append((place, "goes" if goes else "", i, said, Prose(page_list(node.pages)), node.used, node.uses))
    lack = max(0, pages - free - given)
    asked = f"a request of {count(pages, 'page')}, {free} of them free, pushes out {count(given, 'page')}"
    title = f"who goes next after step {snap.step} ({policy})" + (f"; {asked}" if pages else "")
    title += f"; {lack} more could not be had" if lack else ""
    heads = ("", "", "node", "tokens", "pages", "last used", "uses")
    return table(title, heads, rows)


# -- page table ------------------------------------------------------------------------------------------------------


def page_table(snap: Snapshot, per_page: bool = False, texts: Texts = None) -> Shown:
    """The page table's rows: of each token its slot, or of each page its number. What is ahead is in brackets."""
    rows: list[tuple] = []
    for number, row in enumerate(snap.rows):
        if row.uid < 0:
            rows.append((number, row.generation, "free", "", Prose("")))
            continue
        r = snap.requests[row.uid]
        written = -(-r.cached_len // snap.page_size) if per_page else r.cached_len
        entries = list(r.pages) if per_page else _slots(r, snap.page_size)
        done, ahead = (" ".join(map(str, part)) for part in (entries[:written], entries[written:]))
        said = f"{middle(done, ENTRIES)} [{middle(ahead, ENTRIES)}]" if ahead else middle(done, ENTRIES)
        rows.append((number, row.generation, Chip(row.uid), r.matched, Prose(said)))
    what = "pages" if per_page else f"slots (page × {snap.page_size} + place)"
    return table(
        f"page table after step {snap.step}: {what}", ("row", "generation", "request", "cached", "entries"), rows
    )


def _slots(request: RequestState, page_size: int) -> list[int]:
    return [page * page_size + j for page in request.pages for j in range(page_size)]


# -- two moments -----------------------------------------------------------------------------------------------------


def compare(a: Snapshot, b: Snapshot, texts: Texts = None) -> Shown:
    """What moved, appeared and went between two states of a run: counters, pages, requests, tree nodes."""
    before, after = a.pages.owner, b.pages.owner
    moved = before != after
    parts = {
        "came into use": moved & (before == FREE),
        "went free": moved & (after == FREE),
        "changed owner": moved & (before != FREE) & (after != FREE),
    }
    title = f"from step {a.step} to step {b.step}"
    rows: list[tuple] = [(name, a.counters[name], n, _change(n - a.counters[name])) for name, n in b.counters.items()]
    rows += [(name, "", int(which.sum()), page_list(np.flatnonzero(which).tolist())) for name, which in parts.items()]
    sections = [table(title, ("", "before", "after", ""), [tuple(map(Prose, map(str, row))) for row in rows])]
    changed = [uid for uid in b.requests if _differs(a.requests.get(uid), b.requests[uid])]
    requests = [(Chip(uid), Prose(_moved(a.requests.get(uid), b.requests[uid]))) for uid in changed]
    sections.append(table(f"{count(len(changed), 'request')} changed", ("request", "how"), requests))
    nodes = [(i, "new", Prose(plain(b.tree[i].tokens, texts))) for i in b.tree if i not in a.tree]
    nodes += [(i, "gone", Prose(plain(a.tree[i].tokens, texts))) for i in a.tree if i not in b.tree]
    nodes += [
        (i, "split", Prose(f"{len(a.tree[i].tokens)} tokens, now {len(b.tree[i].tokens)}"))
        for i in b.tree
        if i in a.tree and len(b.tree[i].tokens) < len(a.tree[i].tokens)
    ]
    sections.append(table(f"{count(len(nodes), 'tree node')} changed", ("node", "what", "tokens"), nodes))
    return Shown("\n".join(s.text for s in sections), "\n".join(s.html for s in sections))


def _change(by: int) -> str:
    return f"{by:+d}" if by else "="


def _differs(a: RequestState | None, b: RequestState) -> bool:
    if a is None:
        return True
    same = all(getattr(a, name) == getattr(b, name) for name in COMPARED)
    return not same or len(a.output) != len(b.output) or len(a.pages) != len(b.pages)


def _moved(a: RequestState | None, b: RequestState) -> str:
    end = f"{b.status}{': ' + b.reason if b.reason else ''}"
    if a is None:
        return f"new, {end}, {count(len(b.pages), 'page')}, {count(len(b.output), 'token')}"
    said = [f"{a.status} to {end}"] if a.status != b.status else []
    said += [f"{_change(len(b.pages) - len(a.pages))} pages"] if len(a.pages) != len(b.pages) else []
    said += [f"{_change(len(b.output) - len(a.output))} tokens"] if len(a.output) != len(b.output) else []
    said += [f"KV {a.cached_len} to {b.cached_len}"] if a.cached_len != b.cached_len else []
    return ", ".join(said) or "another verdict or row"
