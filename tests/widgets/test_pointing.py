"""Pointing: a token leads to its page, a page to its tokens, in every view, against Python's snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl_widgets import runs
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from tests.fakes import Run
from tests.widgets.exported import SMALL, Kernel, Opened, accessible, exported, recorded


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recorded(Run(**SMALL), 12, 5)


@pytest.fixture(scope="module")
def opened(chromium: Any, trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with exported(chromium, trace, tmp_path_factory.mktemp("pointing"), "#view=chart,pagetable") as page:
        yield page


def pages_of(snap: Snapshot, uid: int) -> list[int]:
    """Where a request's tokens are: in its row, or where the tree has the same text."""
    r = snap.requests[uid]
    if r.row >= 0 or r.pages:
        return list(r.pages)
    tokens, pages, ps, node = (*r.prompt, *r.output), [], snap.page_size, 0
    below = snap.tree.children()
    while True:
        at = len(pages) * ps
        fits = [i for i in below[node] if tuple(tokens[at : at + ps]) == tuple(snap.tree[i].tokens[:ps])]
        if not fits:
            return pages
        node = fits[0]
        for k, page in enumerate(snap.tree[node].pages):
            if tuple(tokens[at + k * ps : at + (k + 1) * ps]) != tuple(snap.tree[node].tokens[k * ps : (k + 1) * ps]):
                return pages
            pages.append(page)


def marked(opened: Opened) -> set[tuple[int, int]]:
    """(request, first token) of the pieces of text that are marked."""
    found = opened.data(".msgl-request .msgl-token.msgl-hi[data-of]")
    return {(int(piece["of"]), int(piece["token"])) for piece in found}


def pieces(opened: Opened) -> set[tuple[int, int]]:
    found = opened.data(".msgl-request .msgl-token[data-of]")
    return {(int(piece["of"]), int(piece["token"])) for piece in found}


def on_pages(opened: Opened, snap: Snapshot, selected: set[int]) -> set[tuple[int, int]]:
    """The pieces of text in sight that are in one of these pages, by Python."""
    where = {uid: pages_of(snap, uid) for uid in snap.requests}
    k = {(uid, at): at // snap.page_size for uid, at in pieces(opened)}
    return {(uid, at) for (uid, at), i in k.items() if i < len(where[uid]) and where[uid][i] in selected}


def selection(opened: Opened) -> set[int]:
    return set(opened.page.evaluate("[...(document.getElementById('stage').stage.selection?.pages ?? [])]"))


def steps_of(trace: Trace) -> list[int]:
    """Some forwards, some backwards: with requests at work, and at the end."""
    last = trace.history.last
    return [3, last // 2, last, last // 3]


def test_a_token_marks_its_page_everywhere(opened: Opened, trace: Trace) -> None:
    seen = {"row": 0, "cache": 0, "shared": 0, "entry": 0}
    for step in steps_of(trace):
        opened.scrub(step)
        snap = trace.at(step)
        for uid, at in sorted(pieces(opened))[::3]:
            token = opened.page.locator(f".msgl-token[data-of='{uid}'][data-token='{at}']")
            if not token.is_visible():
                continue
            token.hover(force=True, position={"x": 3, "y": 5})
            opened.settle()
            pages, k = pages_of(snap, uid), at // snap.page_size
            wanted = {pages[k]} if k < len(pages) else set()
            assert selection(opened) == wanted, (step, uid, at)
            assert marked(opened) == on_pages(opened, snap, wanted)
            note = opened.text(".msgl-requests h3 .msgl-hint")
            assert f"of request {uid}, “" in note
            assert (f": page {pages[k]}" in note) if wanted else ("in no page" in note)
            nodes = {i for i, n in snap.tree.items() if wanted & set(n.pages)}
            assert {int(n["node"]) for n in opened.data(".msgl-node.msgl-hi")} == nodes
            in_tree = {int(t["onPage"]) for t in opened.data(".msgl-node .msgl-token.msgl-hi[data-on-page]")}
            assert in_tree <= wanted
            entries = {int(e["pages"]) for e in opened.data(".msgl-entry.msgl-hi")}
            assert entries <= wanted
            seen["entry"] += bool(entries)
            seen["row"] += bool(wanted) and snap.requests[uid].row >= 0
            seen["cache"] += bool(wanted) and snap.requests[uid].row < 0
            seen["shared"] += len({who for who, _ in marked(opened)}) > 1
    assert all(n > 2 for n in seen.values()), seen


def test_a_page_marks_its_tokens(opened: Opened, trace: Trace) -> None:
    cells = opened.page.locator(".msgl-cells")
    opened.page.mouse.move(1, 1)
    seen = hidden = 0
    for step in steps_of(trace):
        opened.scrub(step)
        snap = trace.at(step)
        cells.focus()
        opened.press(*["ArrowLeft"] * 30)
        for page in range(snap.num_pages):
            assert marked(opened) == on_pages(opened, snap, {page}), (step, page)
            seen += bool(marked(opened))
            for piece in opened.data(".msgl-node .msgl-token.msgl-hi"):
                held = [list(n.pages).index(page) * 4 for n in snap.tree.values() if page in n.pages]
                assert int(piece["token"]) < held[0] + 4 and held[0] < int(piece["end"]), "or behind the dots"
                assert piece.get("onPage", str(page)) == str(page)
                hidden += "onPage" not in piece
            opened.press("ArrowRight")
        opened.press("Escape")
        cells.evaluate("(el) => el.blur()")
        opened.settle()
        assert marked(opened) == set()
    assert seen > 20 and hidden


def test_text_on_an_edge_of_the_tree_leads_to_its_page(opened: Opened, trace: Trace) -> None:
    step = next(s for s in steps_of(trace) if len(trace.at(s).tree) > 3)
    opened.scrub(step)
    snap = trace.at(step)
    checked = 0
    for piece in opened.page.locator(".msgl-node .msgl-token[data-on-page]").all()[:6]:
        page = int(piece.get_attribute("data-on-page"))
        node = int(piece.evaluate("(el) => el.closest('[data-node]').dataset.node"))
        assert page in snap.tree[node].pages
        piece.hover(force=True)
        opened.settle()
        assert selection(opened) == {page} and marked(opened) == on_pages(opened, snap, {page})
        checked += len(snap.tree[node].pages) > 1
    assert checked, "an edge of several pages"


def test_keys_go_through_a_text_and_hold_a_token(opened: Opened, trace: Trace) -> None:
    step = next(s for s in steps_of(trace) if any(len(r.pages) > 3 for r in trace.at(s).requests.values()))
    opened.scrub(step)
    snap = trace.at(step)
    uid = next(u for u, r in snap.requests.items() if len(r.pages) > 3)
    opened.page.mouse.move(1, 1)
    opened.page.locator(f".msgl-request[data-uid='{uid}']").focus()
    opened.press("Tab")
    for k in (0, 1, 2):
        assert opened.step == step, "arrows in a text go from page to page"
        assert selection(opened) == {snap.requests[uid].pages[k]}
        assert f"page {snap.requests[uid].pages[k]}" in opened.text(".msgl-requests > .msgl-sr")
        opened.press("ArrowRight")
    opened.press("Enter")
    opened.page.mouse.move(1, 1)
    opened.page.evaluate("document.activeElement.blur()")
    opened.settle()
    assert opened.text(".msgl-copy code") == f"trace.at({step}).requests[{uid}].pages[3]"
    assert eval(opened.text(".msgl-copy code"), {"trace": trace}) == snap.requests[uid].pages[3]
    opened.page.wait_for_url(f"**#step={step}&req={uid}&token=12&*")
    for other in (step + 1, trace.history.last, step - 1):
        opened.scrub(other)
        pages = pages_of(trace.at(other), uid)
        assert selection(opened) == set(pages[3:4]), "what is held is followed through time"
    opened.press("Escape")
    assert selection(opened) == set() and marked(opened) == set()


def test_in_a_live_run_too(chromium: Any, trace: Trace, tmp_path: Path) -> None:
    page = Opened(chromium, export_html(trace, tmp_path / "run.html"))
    feed = Feed(trace.keyframe)
    kernel = Kernel(page, feed)
    last = 12
    for event in trace.events:
        if event.step <= last:
            feed.put(event)
    kernel.send()
    snap = trace.at(last)
    uid = next(u for u, r in snap.requests.items() if r.row >= 0)
    page.page.locator(f".msgl-token[data-of='{uid}']").first.hover(force=True, position={"x": 3, "y": 5})
    page.settle()
    assert page.page.evaluate("[...live.selection.pages]") == [snap.requests[uid].pages[0]]
    assert (uid, 0) in marked(page)
    assert page.problems == []
    page.context.close()


def test_a_long_text_keeps_its_width(chromium: Any, tmp_path: Path) -> None:
    """Texts that are cut leave every panel where it was, whatever is pointed at."""
    page = Opened(chromium, export_html(runs.shared_preface, tmp_path / "run.html"), "#step=15")
    boxes = """() => [...document.querySelectorAll(".msgl-panel, .msgl-request")].map(
        (el) => JSON.stringify(el.getBoundingClientRect()))"""
    places = page.page.evaluate(boxes)
    for token in page.page.locator(".msgl-token[data-of]").all()[:8]:
        token.hover(force=True)
        page.settle()
        assert page.page.evaluate(boxes) == places
    page.context.close()


def cell_of(opened: Opened, page: int) -> tuple[float, float]:
    """The middle of a page's cell, in the canvas."""
    where = """(page) => { const { grid, left } = document.getElementById("stage").stage.strip;
    return [left + (page % grid.columns + 0.5) * grid.cell, (Math.floor(page / grid.columns) + 0.5) * grid.cell]; }"""
    return tuple(opened.page.evaluate(where, page))


COLOURS = """([x, y, size]) => { const canvas = document.querySelector(".msgl-cells"), r = devicePixelRatio;
    const copy = new OffscreenCanvas(size * r, size * r), look = copy.getContext("2d", { willReadFrequently: true });
    look.drawImage(canvas, (size / 2 - x) * r, (size / 2 - y) * r);
    return Array.from(look.getImageData(0, 0, size * r, size * r).data).join(" "); }"""


@pytest.mark.parametrize("pages", [26, 1000, 9000])
def test_the_dummy_page_is_the_last_cell_always(chromium: Any, tmp_path: Path, pages: int) -> None:
    trace = recorded(Run(**SMALL | {"num_pages": pages}), 6, 5)
    page = Opened(chromium, export_html(trace, tmp_path / "run.html"), "#view=chart,pagetable")
    page.scrub(0)
    cells = page.page.locator(".msgl-cells")
    box, at, grid = cells.bounding_box(), cell_of(page, pages), page.page.evaluate("stage.stage.strip.grid")
    assert at[0] < box["width"] and at[1] < box["height"]
    side = min(grid["cell"], 20)
    looks, free = (page.page.evaluate(COLOURS, [*cell_of(page, p), side]) for p in (pages, pages - 1))
    assert looks != free, "its own look"
    for step in (5, trace.history.last, 1):
        page.scrub(step)
        assert cells.bounding_box() == box and page.page.evaluate(COLOURS, [*at, side]) == looks, step
        (strip,) = page.data(".msgl-strip")
        assert strip["dummy"] == str(trace.at(step).pages.dummy) == str(pages)
        counted = sum(int(strip[kind]) for kind in ("free", "owned", "evictable", "protected"))
        assert counted == pages, "outside of every count"
    cells.hover(position={"x": at[0], "y": at[1]})
    page.settle()
    assert page.text(".msgl-tip").startswith(f"page {pages}: the dummy")
    assert selection(page) == {pages} and marked(page) == set()
    assert page.page.locator(".msgl-dummyline .msgl-hi").count() == 1, "the dummy request's row"
    cells.click(position={"x": at[0], "y": at[1]})
    page.settle()
    assert eval(page.text(".msgl-copy code"), {"trace": trace}) == pages
    assert page.problems == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, trace: Trace, tmp_path: Path, repo_root: Path, scheme: str) -> None:
    path, step = export_html(trace, tmp_path / "run.html"), trace.history.last // 2
    uid = next(u for u, r in trace.at(step).requests.items() if len(r.pages) > 1)
    fragment = f"#step={step}&req={uid}&token=0&view=chart,pagetable"
    page = Opened(chromium, path, fragment, color_scheme=scheme, bypass_csp=True)
    assert (uid, 0) in marked(page), "an address holds a token"
    accessible(page, repo_root)
    page.context.close()
