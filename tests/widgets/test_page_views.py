"""Views of pages over time and space: life lines, evictions to come, page table, two moments, breakpoints, pictures."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from minisgl.events import types as ev
from minisgl.events.history import History
from minisgl.events.trace import Trace
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.page_views import compare, eviction_order, evictions, life_lines, page_table
from minisgl_widgets.session import Session
from tests.chromium import skip_or_fail
from tests.fakes import Run
from tests.widgets.exported import SMALL, TEXTS, Kernel, Opened, accessible, exported, recorded

JS = Path(__file__).parent.parent / "js"


# -- who goes next: without a browser --------------------------------------------------------------------------------


@pytest.mark.parametrize("eviction", ["lru", "lfu", "fifo"])
@pytest.mark.parametrize("overlap", [False, True])
def test_what_goes_is_what_was_foretold(eviction: str, overlap: bool, tmp_path: Path) -> None:
    """The preview's order begins with the leaves that the real cache evicts next, and asks for as many."""
    node = shutil.which("node") or skip_or_fail("no node was found")
    seen = 0
    for seed, page_size in enumerate((1, 4, 4)):
        run = Run(**SMALL | {"page_size": page_size, "num_pages": 100 // page_size}, eviction=eviction, overlap=overlap)
        trace = recorded(run, 40, seed)
        (tmp_path / "record").write_bytes(Session(trace).record())
        evicted = [(i, e) for i, e in enumerate(run.events) if isinstance(e, ev.PagesEvicted)]
        taken = [next(e for e in run.events[i:] if isinstance(e, ev.PagesAllocated)) for i, _ in evicted]
        asked = json.dumps([len(e.pages) for e in taken])
        done = subprocess.run([node, JS / "evicts.mjs", tmp_path / "record", asked], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for told, (_, event) in zip(json.loads(done.stdout), evicted, strict=True):
            assert told["gone"] == list(event.nodes) == told["order"][: len(event.nodes)], event
            assert told["pushed"]["pages"] == list(event.pages) and told["pushed"]["short"] == 0
            seen += len(told["order"]) > len(event.nodes)
    assert seen > 20, "evictions that had a choice"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recorded(Run(**SMALL), 30, 5)


# -- as text and HTML ------------------------------------------------------------------------------------------------


def test_life_lines_as_text(trace: Trace) -> None:
    shown, last = repr(life_lines(trace, columns=200, rows=26)).splitlines(), trace.history.last
    assert shown[0] == f"26 pages over steps 1 to {last}" and len(shown) == 28
    for step in range(1, last + 1):
        signs = [line[6 + step] for line in shown[1:-1]]
        assert signs == [{-1: ".", -2: "+"}.get(o, str(o % 10)) for o in trace.at(step).pages.owner.tolist()], step
    small = life_lines(trace.history, columns=5, rows=4)
    assert [len(line) for line in repr(small).splitlines()[1:-1]] == [12] * 4
    root = ElementTree.fromstring(re.search("<svg.*</svg>", small._repr_html_()).group())
    bars = root.findall("{*}rect")
    assert sum(int(bar.get("width")) for bar in bars) == 4 * int(root.get("width"))
    assert {bar.find("{*}title").text.split(":")[0] for bar in bars} == {
        *("pages 0 to 5", "pages 6 to 12", "pages 13 to 18", "pages 19 to 25")
    }


def test_evictions_as_text(trace: Trace) -> None:
    step = next(s for s in range(trace.history.last) if len(eviction_order(trace.at(s))) > 3)
    snap = trace.at(step)
    order, free = eviction_order(snap), snap.pages.count("free")
    first = len(snap.tree[order[0]].pages)
    head, _, *lines = repr(evictions(snap, free + first)).splitlines()
    assert f"pushes out {first} page" in head
    assert [line.split()[1] == "goes" for line in lines] == [True] + [False] * (len(order) - 1)
    assert "more could not be had" in repr(evictions(snap, 1000))
    assert len(re.findall("<tr>", evictions(snap)._repr_html_())) == len(order) + 1
    with pytest.raises(ValueError, match="unknown policy 'mru'; the policies are lru, lfu, fifo"):
        evictions(snap, policy="mru")


def test_the_page_table_as_text(trace: Trace) -> None:
    step = next(s for s in range(5, trace.history.last) if {r.uid >= 0 for r in trace.at(s).rows} == {True, False})
    snap = trace.at(step)
    _, _, *lines = repr(page_table(snap, per_page=True)).splitlines()
    for row, line in zip(snap.rows, lines, strict=True):
        if row.uid < 0:
            assert line.split()[2] == "free"
            continue
        r = snap.requests[row.uid]
        assert line.split()[2:4] == [str(row.uid), str(r.matched)]
        assert re.findall(r"\d+", line)[4:] == list(map(str, r.pages))
    slots = repr(page_table(snap)).splitlines()
    r = max((r for r in snap.requests.values() if r.row >= 0), key=lambda r: r.uid)
    wanted = [page * 4 + j for page in r.pages for j in range(4)]
    assert re.findall(r"\d+", slots[2 + r.row])[4:] == list(map(str, wanted))
    assert ("[" in slots[2 + r.row]) == (r.cached_len < len(wanted))


def test_two_moments_as_text(trace: Trace) -> None:
    a, b = trace.at(trace.history.last // 3), trace.at(trace.history.last // 2)
    text = repr(compare(a, b))
    assert text.startswith(f"from step {a.step} to step {b.step}\n")
    assert re.search(rf"^free_pages +{a.counters['free_pages']} +{b.counters['free_pages']}", text, re.MULTILINE)
    moved = sum(x != y and -1 not in (x, y) for x, y in zip(a.pages.owner, b.pages.owner, strict=True))
    assert re.search(rf"^changed owner +{moved} ", text, re.MULTILINE)
    new = [int(i) for i in re.findall(r"^ *(\d+) +new ", text, re.MULTILINE)]
    assert new == [i for i in b.tree if i not in a.tree]
    for uid, r in b.requests.items():
        if uid not in a.requests:
            assert re.search(rf"^ *{uid}  new, {r.status}", text, re.MULTILINE)
    assert "0 requests changed" in repr(compare(a, a)) and "0 tree nodes changed" in compare(a, a)._repr_html_()


# -- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(chromium: Any, trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with exported(chromium, trace, tmp_path_factory.mktemp("pages")) as page:
        yield page
    assert [url for url in page.requests if not url.startswith(("file:", "blob:", "data:"))] == []


def ways(trace: Trace) -> list[int]:
    """Some steps forwards, some backwards."""
    steps = list(range(trace.history.first, trace.history.last + 1, 7))
    return [*steps, *reversed(steps), trace.history.last, trace.history.first]


def show(opened: Opened, view: str) -> None:
    opened.page.locator(f".msgl-tab[data-view={view}]").click()
    opened.settle()


def look(opened: Opened, view: str, body: str, argument: Any = None) -> Any:
    """Evaluate something of a view that is shown."""
    found = opened.page.evaluate(
        f"""(argument) => {{ const {{ stage }} = document.querySelector("#stage");
        const view = stage.docks.map((dock) => dock.made.get("{view}")).find(Boolean); {body} }}""",
        argument,
    )
    opened.settle()
    return found


NAMES = {-1: "free", -2: "cached"}


def test_a_life_line_says_who_had_a_page_when(opened: Opened, trace: Trace) -> None:
    show(opened, "lifelines")
    opened.page.locator(".msgl-lifecells").scroll_into_view_if_needed()
    box = opened.page.locator(".msgl-lifecells").bounding_box()
    shown = opened.data(".msgl-lifelines")[0]
    assert shown == {"stepFrom": "1", "stepTo": str(trace.history.last), "pageFrom": "0", "pageTo": "25", "drawn": "1"}
    last = trace.history.last
    owners = {s: trace.at(s).pages.owner.tolist() for s in range(trace.history.first, trace.history.last + 1)}
    wide, high = box["width"] - 46 - 8, box["height"] - 4 - 20
    for step, page in [(1, 0), (last // 2, 13), (last // 3, 25), (last, 7), (12, 1)]:
        at = (46 + wide * (step - 0.5) / trace.history.last, 4 + high * (page + 0.5) / 26)
        opened.page.mouse.move(box["x"] + at[0], box["y"] + at[1])
        opened.settle()
        said = opened.data(".msgl-lifenote")[0]
        owner = owners[step][page]
        assert said["owner"] == str(owner) and (said["page"], said["step"]) == (str(page), str(step))
        a, b = int(said["from"]), int(said["to"])
        assert a <= step <= b and all(owners[s][page] == owner for s in range(a, b + 1))
        assert a == trace.history.first or owners[a - 1][page] != owner
        assert b == trace.history.last or owners[b + 1][page] != owner
        assert opened.text(".msgl-lifenote").startswith(f"page {page}: {NAMES.get(owner, f'request {owner}')} from")
        assert opened.page.evaluate("() => document.querySelector('#stage').stage.pointer.page") == page
    opened.page.mouse.click(box["x"] + at[0], box["y"] + at[1])
    opened.settle()
    assert opened.step == 12, "a click goes there"
    assert opened.text(".msgl-copy code") == "trace.at(12).pages.owner[1]"
    opened.press("Escape")


def test_life_lines_zoom_and_select(opened: Opened, trace: Trace) -> None:
    show(opened, "lifelines")
    opened.scrub(20)
    opened.page.locator(".msgl-lifecells").scroll_into_view_if_needed()
    box = opened.page.locator(".msgl-lifecells").bounding_box()
    for key in ["+", "+", "PageDown"]:
        opened.page.locator(".msgl-lifecells").press(key)
    opened.settle()
    shown = {k: int(v) for k, v in opened.data(".msgl-lifelines")[0].items()}
    assert shown["stepFrom"] <= 20 <= shown["stepTo"] < trace.history.last
    assert 0 < shown["pageFrom"] < shown["pageTo"] < 25
    opened.scrub(trace.history.last)
    assert int(opened.data(".msgl-lifelines")[0]["stepTo"]) == trace.history.last, "the player's step stays in sight"
    opened.page.locator(".msgl-lifecells").press("0")
    mouse = opened.page.mouse
    mouse.move(box["x"] + 60, box["y"] + 20)
    mouse.down()
    mouse.move(box["x"] + 200, box["y"] + 90, steps=3)
    mouse.up()
    mouse.move(box["x"], box["y"] - 60)
    opened.settle()
    said = opened.text(".msgl-lifenote")
    found = re.match(r"pages (\d+) to (\d+) in steps (\d+) to (\d+): (.*) (\d+) %", said)
    assert found, said
    y0, y1, x0, x1 = map(int, found.groups()[:4])
    all_of_them = [trace.at(s).pages.owner[p] for s in range(x0, x1 + 1) for p in range(y0, y1 + 1)]
    most = max(set(all_of_them), key=all_of_them.count)
    share = round(100 * all_of_them.count(most) / len(all_of_them))
    assert f": {NAMES.get(most, f'request {most}')} {share} %" in said
    opened.page.locator(".msgl-lifecells").press("z")
    opened.settle()
    shown = opened.data(".msgl-lifelines")[0]
    assert [int(shown[name]) for name in ("pageFrom", "pageTo", "stepFrom", "stepTo")] == [y0, y1, x0, x1]
    opened.page.locator(".msgl-lifecells").press("0")
    opened.press("Escape")


def test_life_lines_follow_a_live_run(chromium: Any, trace: Trace, tmp_path: Path) -> None:
    page = Opened(chromium, export_html(trace, tmp_path / "pages.html"))
    feed = Feed(trace.keyframe)
    kernel = Kernel(page, feed)
    page.page.locator(".msgl-tab[data-view=lifelines]").click()
    for step in range(1, trace.history.last + 1):
        for event in trace.history.steps.events(step - 1):
            feed.put(event)
        kernel.send()
        if step % 10 == 0:
            page.page.wait_for_selector(f".msgl-lifelines[data-step-to='{step}'][data-drawn='1']")
    owner = trace.at(70).pages.owner
    said = page.page.evaluate(
        """() => { const { lives } = live.docks[0].made.get("lifelines");
        return Array.from({ length: lives.pages }, (_, p) => {
            let i = lives.at[p];
            while (i + 1 < lives.at[p + 1] && lives.steps[i + 1] <= 70) i++;
            return lives.owners[i];
        }); }"""
    )
    assert said == owner.tolist()
    assert page.problems == []
    page.context.close()


def test_who_goes_next(opened: Opened, trace: Trace) -> None:
    show(opened, "eviction")
    pushed = 0
    for step in ways(trace):
        opened.scrub(step)
        for asked in (1, 9, 26):
            look(opened, "eviction", "view._ask(argument)", asked)
            snap, shown = trace.at(step), opened.data(".msgl-eviction")[0]
            free = snap.pages.count("free")
            assert (shown["policy"], shown["free"], shown["missing"]) == ("lru", str(free), str(max(0, asked - free)))
            order = [int(n) for n in shown["order"].split()]
            assert sorted(order) == sorted(i for i, n in snap.tree.items() if i and not n.locks)
            assert order == eviction_order(snap), "Python foretells the same"
            goes = order[: int(shown["leaves"])]
            pages = [p for i in goes for p in snap.tree[i].pages]
            assert int(shown["pushed"]) == len(pages)
            assert len(pages) >= asked - free or int(shown["short"]) == asked - free - len(pages) > 0
            marked = opened.data(".msgl-leaf[data-goes='1']")
            assert [int(m["node"]) for m in marked] == goes[: len(marked)]
            assert opened.data(".msgl-evictask")[0]["pages"] == " ".join(map(str, pages))
            pushed += bool(pages)
    assert pushed > 5
    opened.page.locator(".msgl-evictpages").focus()
    opened.press("Enter")
    assert opened.page.evaluate("document.getElementById('stage').stage.pinned") is None, "a field is no page to hold"
    step = next(
        s for s in range(trace.history.last // 2, trace.history.last) if trace.at(s).pages.count("evictable") > 3
    )
    opened.scrub(step)
    opened.page.locator(".msgl-evictpages").fill(str(trace.at(step).pages.count("free") + 3))
    opened.page.locator(".msgl-pushed").hover()
    opened.settle()
    selected = look(opened, "eviction", "return [...stage.selection.pages].sort((a, b) => a - b);")
    assert selected == sorted(map(int, opened.data(".msgl-evictask")[0]["pages"].split())), (
        "pointing marks what would go"
    )


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("lfu", "lfu: used least often first, then the oldest node"),
        ("fifo", "fifo: made first, first out"),
        (None, "the policy is not in the record; this is the order of lru"),
    ],
)
def test_the_policy_decides_who_goes_next(chromium: Any, tmp_path: Path, policy: str | None, words: str) -> None:
    run = Run(**SMALL, eviction=policy or "lru")
    other = recorded(run, 20, 5)
    if policy is None:
        other.about = {}
    page = Opened(chromium, export_html(other, tmp_path / "other.html"), "#view=eviction")
    counted, unlike_lru = 0, 0
    for step in ways(other):
        page.scrub(step)
        snap = other.at(step)
        order = eviction_order(snap, policy or "lru")
        assert page.data(".msgl-eviction")[0]["order"] == " ".join(map(str, order))
        for rank, leaf in enumerate(page.data(".msgl-leaf")[:9], 1):
            node = snap.tree[int(leaf["node"])]
            assert (leaf["rank"], leaf["uses"], leaf["used"]) == (str(rank), str(node.uses), str(node.used))
            counted += node.uses > 1
        if len(snap.tree) > 1:
            assert words in page.text(".msgl-evictnote")
        if policy == "lfu" and order:
            said = page.text(f".msgl-leaf[data-node='{order[0]}']")
            assert f"{snap.tree[order[0]].uses} use" in said
        unlike_lru += order != eviction_order(snap)
    assert counted > 5 and (unlike_lru > 0) == (policy == "lfu")
    assert page.problems == []
    page.context.close()


def test_the_page_table_is_that_of_the_rows(opened: Opened, trace: Trace) -> None:
    show(opened, "pagetable")
    kinds = set()
    for per_page in (False, True):
        look(opened, "pagetable", "view._choose(argument)", per_page)
        for step in ways(trace):
            opened.scrub(step)
            snap = trace.at(step)
            lines = opened.data(".msgl-tableline")
            assert [(line["request"], line["generation"]) for line in lines] == [
                (str(row.uid), str(row.generation)) for row in snap.rows
            ]
            for line in lines:
                uid = int(line["request"])
                if uid < 0:
                    assert "free" in opened.text(f".msgl-tableline[data-row='{line['row']}']")
                    continue
                r = snap.requests[uid]
                shown = opened.data(f".msgl-tableline[data-row='{line['row']}'] .msgl-entry")
                assert int(line["entries"]) == len(r.pages) * (1 if per_page else 4)
                assert shown, "its beginning is in sight"
                for cell in shown:
                    at, kind = int(cell["at"]), cell["kind"]
                    start = at * 4 if per_page else at
                    value = r.pages[at] if per_page else r.pages[at // 4] * 4 + at % 4
                    assert (cell["value"], cell["pages"]) == (str(value), str(r.pages[start // 4]))
                    assert kind == ("cached" if start < r.matched else "computed" if start < r.cached_len else "ahead")
                    kinds.add(kind)
    assert kinds == {"cached", "computed", "ahead"}
    opened.scrub(next(s for s in range(5, trace.history.last) if any(row.uid >= 0 for row in trace.at(s).rows)))
    cell = opened.page.locator(".msgl-entry").first
    cell.hover()
    opened.settle()
    assert cell.get_attribute("title").startswith("entry 0: page ")
    assert opened.data(".msgl-entry.msgl-hi"), "pointing at an entry marks it"
    look(opened, "pagetable", "view._choose(false)")


def test_two_moments_are_compared(opened: Opened, trace: Trace) -> None:
    show(opened, "chart")
    opened.scrub(trace.history.last // 2)
    opened.page.locator(".msgl-range").focus()
    opened.press("a")
    assert opened.page.locator(".msgl-tab[data-view=compare]").get_attribute("aria-selected") == "true"
    a = trace.at(trace.history.last // 2)
    for step in [*ways(trace), trace.history.last // 2]:
        opened.scrub(step)
        b, shown = trace.at(step), opened.data(".msgl-compare")[0]
        both = list(zip(a.pages.owner.tolist(), b.pages.owner.tolist(), strict=True))
        assert (shown["a"], shown["b"]) == (str(a.step), str(step))
        assert int(shown["came"]) == sum(x == -1 != y for x, y in both)
        assert int(shown["went"]) == sum(x != -1 == y for x, y in both)
        assert int(shown["moved"]) == sum(x != y and -1 not in (x, y) for x, y in both)
        counters = {c["counter"]: (int(c["before"]), int(c["after"])) for c in opened.data(".msgl-counter")}
        assert counters == {name: (n, b.counters[name]) for name, n in a.counters.items()}
        nodes: dict[str, set[int]] = {"new": set(), "gone": set(), "split": set(), "joined": set(), "locks": set()}
        for m in opened.data(".msgl-move[data-node]"):
            nodes[m["what"]].add(int(m["node"]))
        assert nodes["new"] == set(b.tree) - set(a.tree) and nodes["gone"] == set(a.tree) - set(b.tree)
        common = set(a.tree) & set(b.tree)
        assert nodes["split"] == {i for i in common if len(b.tree[i].tokens) < len(a.tree[i].tokens)}
        changed = {int(m["movedRequest"]) for m in opened.data(".msgl-move[data-moved-request]")}
        parts = ("status", "output", "pages", "cached_len", "row")
        for uid in set(a.requests) | set(b.requests):
            x, y = (snap.requests.get(uid) for snap in (a, b))
            same = x is not None and y is not None and all(getattr(x, n) == getattr(y, n) for n in parts)
            assert same or uid in changed or (x and y and len(x.pages) == len(y.pages) and x.status == y.status)
    assert "A is this step" in opened.text(".msgl-between")


# -- breakpoints -----------------------------------------------------------------------------------------------------

KINDS = {"eviction": ev.PagesEvicted, "split": ev.NodeSplit, "finish": ev.RequestFinished, "handoff": ev.Handoff}


@pytest.mark.parametrize("kind", [*KINDS, "refusal", "free"])
def test_next_and_previous(opened: Opened, trace: Trace, kind: str) -> None:
    if kind == "free":
        free = [trace.at(s).pages.count("free") for s in range(trace.history.first, trace.history.last + 1)]
        wanted = [trace.history.first + i for i in range(1, len(free)) if free[i] < 3 <= free[i - 1]]
    elif kind == "refusal":
        tests = [e for e in trace.events if isinstance(e, ev.AdmissionTested) and e.verdict != "admitted"]
        wanted = sorted({e.step for e in tests})
    else:
        wanted = sorted({e.step for e in trace.events if isinstance(e, KINDS[kind])})
    assert len(wanted) > 1
    opened.page.locator(".msgl-breakkind").select_option(kind)
    if kind == "free":
        opened.page.locator(".msgl-breakbelow").fill("3")
    opened.page.locator(".msgl-range").focus()
    opened.press("Home")
    assert [opened.press("n") for _ in wanted] == wanted
    assert opened.press("n") == wanted[-1], "there is no further one"
    assert opened.data(".msgl-breaks")[0] == {"steps": str(len(wanted)), "at": str(len(wanted))}
    assert [opened.press("p") for _ in wanted[:-1]] == wanted[-2::-1]
    opened.press("End")
    opened.page.locator(".msgl-previous").click()
    opened.settle()
    assert opened.step == (wanted[-1] if wanted[-1] < trace.history.last else wanted[-2])


# -- ghosts ----------------------------------------------------------------------------------------------------------


def haunted() -> tuple[Trace, int, int, int]:
    """A run in which an engine that is wrong frees a page of a request at work; the step, the page and the request."""
    run = Run(**SMALL, check=False, poison=False)
    start = run.snapshot().to_dict()
    for i in range(3):
        run.submit([*range(1, 10), 30 + i], 9)
    for _ in range(5):
        run.scheduler.step()
    snap = run.snapshot()
    uid = snap.running[-1]
    page = snap.requests[uid].pages[-1]
    at = max(i for i, e in enumerate(run.events) if isinstance(e, ev.StepFinished))
    end = run.events[at]
    run.events.insert(at, ev.PagesFreed(step=end.step, t=end.t, pages=(page,), uids=(uid,)))
    run.play()
    return Trace(start, run.events, TEXTS, "haunted", run.about()), end.step, page, uid


def test_a_ghost_is_outlined_the_moment_it_happens(chromium: Any, tmp_path: Path) -> None:
    trace, step, page, uid = haunted()
    assert trace.at(step).pages.owner[page] == -1 and page in trace.at(step).requests[uid].pages
    opened = Opened(chromium, export_html(trace, tmp_path / "ghost.html"), f"#step={step - 1}&view=lifelines")
    assert opened.data(".msgl-strip")[0]["suspects"] == ""
    assert opened.data(".msgl-lamp")[0]["sound"] == "true"
    opened.page.locator(".msgl-breakkind").select_option("broken")
    opened.page.locator(".msgl-range").focus()
    assert opened.press("n") == step
    assert str(page) in opened.data(".msgl-strip")[0]["suspects"].split()
    opened.page.locator(".msgl-cells").focus()
    opened.press(*["ArrowRight"] * page)
    ghost = f"page {page} is free, but request {uid}'s row names it"
    assert ghost in opened.text(".msgl-tip")
    assert ghost in opened.text(".msgl-lifenote"), "the life line says the same"
    assert f"page {page} is freed, but request {uid}" in opened.text(".msgl-lamp")
    broken = look(opened, "lifelines", "return view.broken[0];")
    assert (broken["step"], broken["page"]) == (step, page)
    assert opened.problems == []
    opened.context.close()


# -- pictures --------------------------------------------------------------------------------------------------------


PIXELS = """async (address) => {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    window.colours = (x, y, wide) => {
        const { data } = context.getImageData(x, y, wide, 1);
        return Array.from({ length: wide }, (_, i) => data[4 * i] * 65536 + data[4 * i + 1] * 256 + data[4 * i + 2]);
    };
    return [image.width, image.height];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_frame_is_saved(chromium: Any, trace: Trace, tmp_path: Path, scheme: str) -> None:
    path = export_html(trace, tmp_path / "pages.html")
    step = trace.history.last // 2
    page = Opened(chromium, path, f"#step={step}&view=lifelines,pagetable", color_scheme=scheme)
    files = {}
    for kind in ("svg", "png"):
        with page.page.expect_download() as waiting:
            page.page.locator(f".msgl-save-{kind}").click()
        files[kind] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(files[kind])
        assert files[kind].name == f"pages-step-{step}.{kind}"
    box = page.page.locator(".msgl").bounding_box()
    root = ElementTree.parse(files["svg"]).getroot()
    assert root.get("width") == str(-int(-box["width"] // 1))
    text = "".join(root.itertext())
    assert f"step {step} of {trace.history.last}" in text and "who had it" not in text
    assert len(root.findall(".//{http://www.w3.org/1999/xhtml}img")) == page.page.locator("canvas").count()
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", files["svg"].read_text("utf-8")), "it needs nothing else"
    address = "data:image/png;base64," + base64.b64encode(files["png"].read_bytes()).decode()
    size = page.page.evaluate(PIXELS, address)
    assert size == [2 * int(root.get("width", 0)), 2 * int(root.get("height", 0))]
    (ground,) = page.page.evaluate("colours(4, 4, 1)")
    assert ground == (0xFFFFFF if scheme == "light" else 0x181C20)
    strip = page.page.locator(".msgl-cells").bounding_box()
    middle = [2 * (strip["x"] - box["x"]), 2 * (strip["y"] - box["y"]) + strip["height"], 2 * strip["width"]]
    shown = page.page.evaluate("(where) => colours(...where)", list(map(int, middle)))
    assert len(set(shown)) > 3, "the strip is in it, with its colours"
    assert page.problems == []
    page.context.close()


def test_a_run_without_a_step_says_what_will_appear(chromium: Any, tmp_path: Path) -> None:
    empty = History(Run(**SMALL).snapshot().to_dict())
    page = Opened(chromium, export_html(empty, tmp_path / "empty.html"), "#view=lifelines,eviction")
    assert "a line for each page" in page.text(".msgl-lifenote")
    assert "will be listed here" in page.text(".msgl-evictnote")
    show(page, "compare")
    show(page, "pagetable")
    assert "Mark a step" in page.text(".msgl-compare > .msgl-empty")
    assert "free, never taken" in page.text(".msgl-tablecells")
    assert page.problems == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("views", ["lifelines,eviction", "compare,pagetable"])
def test_axe_finds_nothing(
    chromium: Any, trace: Trace, tmp_path: Path, repo_root: Path, views: str, scheme: str
) -> None:
    path = export_html(trace, tmp_path / "pages.html")
    step = trace.history.last // 2
    page = Opened(chromium, path, f"#step={step}&view={views}", color_scheme=scheme, bypass_csp=True)
    if "compare" in views:
        look(page, "compare", "view.mark(argument)", 3)
    accessible(page, repo_root)
    page.context.close()
