"""The browser's side: the modules as Node runs them, the bundle, and an exported page in a real Chromium."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minisgl.config import EngineConfig
from minisgl.core import SamplingParams
from minisgl.events.history import History
from minisgl.events.trace import Trace
from minisgl.events.types import PagesEvicted
from minisgl.events.words import count, describe
from minisgl.scheduler import Scheduler
from minisgl_widgets import runs
from minisgl_widgets.bundle import STATIC, bundle, order
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.palette import luminance
from minisgl_widgets.replay import Replay
from minisgl_widgets.session import Session
from tests.chromium import skip_or_fail
from tests.fakes import HashExecutor
from tests.script import finish_early, overlapped, release
from tests.widgets.exported import TEXTS, Kernel, Opened, accessible
from tests.widgets.tokens import tokens


def node() -> str:
    return shutil.which("node") or skip_or_fail("no node was found")


# -- runs to show ----------------------------------------------------------------------------------------------------


def run(prompts: list[list[int]], max_tokens: int, every: int = 0, **settings: Any) -> History:
    """A run's history; with ``every``, that many steps pass between two submissions."""
    config = EngineConfig(**settings)
    scheduler = Scheduler(config, HashExecutor(config))
    history = History(scheduler.snapshot().to_dict())
    scheduler.bus.on(None, history.feed)
    for prompt in prompts:
        scheduler.submit(prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True))
        for _ in range(every):
            scheduler.step()
    while not scheduler.idle:
        scheduler.step()
    return history


@pytest.fixture(scope="module")
def oracle() -> History:
    """The admission oracle: 64 pages of one token, five requests, the last of which has to wait."""
    lengths = (5, 5, 4, 15, 5)
    return run(
        [list(range(10 * i, 10 * i + n)) for i, n in enumerate(lengths)],
        max_tokens=8,
        num_pages=64,
        page_size=1,
        max_running_requests=8,
        max_seq_len=64,
        prefix_cache="naive",
    )


@pytest.fixture(scope="module")
def shared() -> History:
    """Shared prefixes on pages of four tokens in a small pool: hits, splits, duplicates, evictions."""
    system = list(range(1, 10))
    tails = [20, 21, 22, 23, 24], [20, 21, 22, 30, 31, 32], [40] * 7, [20, 21, 22, 23, 24]
    prompts = [system + tail for tail in tails]
    prompts += [[50 + i for i in range(12)], [*system, 60, 61, 62], [70 + i for i in range(14)], prompts[0]]
    pool = {"num_pages": 20, "page_size": 4, "max_running_requests": 3, "max_seq_len": 40, "prefix_cache": "radix"}
    return run(prompts, max_tokens=6, every=2, **pool)


# -- without a browser -----------------------------------------------------------------------------------------------


def test_the_modules_pass_their_own_tests(repo_root: Path) -> None:
    tests = sorted(str(p) for p in (repo_root / "tests" / "js").glob("*.test.mjs"))
    assert tests
    done = subprocess.run([node(), "--test", *tests], cwd=repo_root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_modules_keep_their_types(repo_root: Path) -> None:
    tsc = repo_root / "tests" / "js" / "node_modules" / "typescript" / "bin" / "tsc"
    if not tsc.exists():
        skip_or_fail("TypeScript is not installed (make env-js)")
    command = [node(), tsc, "--noEmit", "--project", repo_root / "tests" / "js"]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_bundle_is_one_module_in_the_order_of_its_imports(tmp_path: Path) -> None:
    names = order()
    assert names[-1] == "widget.js"
    assert sorted(names) == sorted(p.name for p in STATIC.glob("*.js")), "a file that nothing imports"
    assert names.index("look.js") < names.index("pages.js")
    text = bundle()
    assert not re.search(r"^import\b", text, re.MULTILINE)
    assert re.findall(r"^export .*", text, re.MULTILINE) == ["export default () => {"]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing is loaded from anywhere"
    module = tmp_path / "bundle.mjs"
    module.write_text(text, "utf-8")
    done = subprocess.run([node(), "--check", str(module)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_top_level_names_are_unique() -> None:
    names = re.findall(r"^(?:async )?(?:const|let|class|function) (\w+)", bundle(), re.MULTILINE)
    assert len(names) > 40
    assert len(set(names)) == len(names), sorted({n for n in names if names.count(n) > 1})


def test_a_circle_of_imports_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\n')
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\n')
    with pytest.raises(ValueError, match=r"circle: a.js -> b.js -> a.js"):
        order("a.js", tmp_path)


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("scheme", "jupyterlab"), [("light", "#ffffff"), ("dark", "#111111")])
def test_text_keeps_the_contrast_of_wcag_aa(scheme: str, jupyterlab: str) -> None:
    said = {k: "#" + "".join(2 * c for c in v[1:]) if len(v) == 4 else v for k, v in tokens(scheme).items()}
    said["lab"] = jupyterlab
    pairs = [(f"u{i}", f"u{i}-ink") for i in range(7)] + [(k, f"{k}-ink") for k in ("evictable", "protected")]
    texts = ("ink", "muted", "good", "bad", "prefill", "decode")
    pairs += [(ground, text) for ground in ("bg", "lab", "soft") for text in texts]
    pairs += [("free", "ink"), ("tint", "ink"), ("bad", "bg")]
    for ground, text in pairs:
        assert contrast(said[ground], said[text]) >= 4.5, (ground, text, contrast(said[ground], said[text]))


def test_the_same_record_gives_the_same_bytes(shared: History, tmp_path: Path) -> None:
    run = Session(shared, TEXTS, "A run <of> minisgl")
    a, b = (export_html(run, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert a == b
    assert len(a) < 450_000, "the views and a short run"
    assert b"<title>A run &lt;of&gt; minisgl</title>" in a
    assert b"Another" in export_html(run, str(tmp_path / "c.html"), title="Another").read_bytes()


# -- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(chromium: Any, shared: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    path = export_html(Session(shared, TEXTS, "Shared prefixes"), tmp_path_factory.mktemp("export") / "shared run.html")
    page = Opened(chromium, path)
    yield page
    page.context.close()


def test_the_page_says_what_python_says_at_every_step_both_ways(opened: Opened, shared: History) -> None:
    assert any(x["segments"][1]["pages"] for s in range(1, shared.last + 1) for x in shared.at(s).handoffs), (
        "a duplicate"
    )
    assert any("evicted" in w for s in shared.steps for w in s["words"])
    assert any("split" in w for s in shared.steps for w in s["words"])
    steps = range(shared.first, shared.last + 1)
    for step in [*steps, *reversed(steps), shared.last // 2, shared.first, shared.last, 3]:
        opened.scrub(step)
        opened.check(shared, step)
    assert opened.problems == []
    assert [url for url in opened.requests if not url.startswith(("file:", "blob:"))] == []


def test_nothing_moves_while_scrubbing(opened: Opened, shared: History) -> None:
    boxes = """() => [...document.querySelectorAll(".msgl-panel, .msgl-player > *, .msgl canvas")].map((el) => {
        const { x, y, width, height } = el.getBoundingClientRect(); return [el.className, x, y, width, height]; })"""
    opened.scrub(shared.first)
    places = opened.page.evaluate(boxes)
    for step in range(shared.first, shared.last + 1):
        opened.scrub(step)
        assert opened.page.evaluate(boxes) == places, step


@pytest.mark.parametrize("i", range(5))
def test_nothing_moves_whatever_the_tabs_show(chromium: Any, shared: History, tmp_path: Path, i: int) -> None:
    page = Opened(chromium, export_html(Session(shared, TEXTS), tmp_path / "run.html"), "")
    for side in ("left", "right"):
        tabs = page.page.locator(f".msgl-dock-{side} .msgl-tab")
        tabs.nth(min(i, tabs.count() - 1)).click()
    boxes = """() => [...document.querySelectorAll(".msgl-panel, .msgl-tab, .msgl-dockbody, .msgl-dockview")].map(
        (el) => [el.className, JSON.stringify(el.getBoundingClientRect())])"""
    page.scrub(shared.first)
    places = page.page.evaluate(boxes)
    for step in range(shared.first, shared.last + 1, 2):
        page.scrub(step)
        assert page.page.evaluate(boxes) == places, step
    assert page.problems == []
    page.context.close()


def test_keys_move_and_the_play_button_plays(opened: Opened, shared: History) -> None:
    opened.page.locator(".msgl-range").focus()
    assert opened.press("Home") == shared.first
    assert opened.press("ArrowRight", "ArrowRight") == shared.first + 2
    assert opened.press("ArrowLeft") == shared.first + 1
    assert opened.press("Shift+ArrowRight") == shared.first + 11
    assert opened.press("End") == shared.last
    assert opened.press("ArrowRight") == shared.last
    opened.page.locator(".msgl-first").click()
    opened.page.locator(".msgl-speed").select_option("60")
    opened.page.locator(".msgl-play").click()
    opened.page.wait_for_selector(f".msgl[data-step='{shared.last}']")
    opened.page.wait_for_selector(".msgl-play[aria-pressed=false]")
    opened.page.locator(".msgl-back").click()
    opened.settle()
    assert opened.step == shared.last - 1


def test_what_is_out_of_sight_waits_until_nothing_moves(chromium: Any, oracle: History, tmp_path: Path) -> None:
    path = export_html(Session(oracle, {}, "Five requests"), tmp_path / "oracle.html")
    page = Opened(chromium, path)
    page.page.set_viewport_size({"width": 1280, "height": 300})
    page.scrub(1)
    shown = page.page.evaluate(
        """async (steps) => {
            const { stage } = document.querySelector("#stage");
            const { strip, requests } = stage;
            const drawn = { strip: 0, requests: 0 };
            for (const [name, view] of Object.entries({ strip, requests })) {
                const { draw } = view;
                view.draw = (frame) => (drawn[name]++, draw.call(view, frame));
            }
            const seen = [];
            for (const step of steps) {
                stage.goto(step);
                await new Promise((done) => requestAnimationFrame(done));
                seen.push([stage.root.dataset.step, drawn.strip, drawn.requests]);
            }
            return seen;
        }""",
        list(range(2, 9)),
    )
    assert shown == [[str(step), step - 1, 0] for step in range(2, 9)]
    page.settle()
    page.check(oracle, 8)
    page.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.settle()
    page.scrub(9)
    page.check(oracle, 9)
    assert page.problems == []
    page.context.close()


def test_pointing_at_one_thing_marks_it_everywhere(opened: Opened, shared: History) -> None:
    step = next(s for s in range(shared.last) if any(n.locks for n in shared.at(s).tree.values()))
    snap = shared.at(step)
    opened.scrub(step)
    uid = next(u for u, r in snap.requests.items() if r.node)
    row = opened.page.locator(f".msgl-request[data-uid='{uid}']")
    beside_the_words = {"x": 33, "y": 13}
    row.hover(position=beside_the_words)
    opened.settle()
    marked = opened.data(".msgl-hi")
    path, node_id = set(), snap.requests[uid].node
    while node_id > 0:
        path.add(str(node_id))
        node_id = snap.tree[node_id].parent
    assert {m["node"] for m in marked if "node" in m} == path
    assert {m["uid"] for m in marked if "uid" in m} == {str(uid)}
    row.click(position=beside_the_words)  # holds it
    opened.page.locator("h1").hover()
    opened.settle()
    assert {m["node"] for m in opened.data(".msgl-hi") if "node" in m} == path
    opened.press("Escape")
    assert opened.data(".msgl-hi") == []


def test_the_strip_tells_a_page_in_words(opened: Opened, shared: History) -> None:
    step = next(s for s in range(shared.last) if shared.at(s).pages.count("owned"))
    opened.scrub(step)
    page = shared.at(step).pages.owner.tolist().index(max(shared.at(step).pages.owner))
    opened.page.locator(".msgl-cells").focus()
    opened.press(*["ArrowLeft"] * 20, *["ArrowRight"] * page)
    assert opened.step == step, "arrows on the strip move from page to page, not from step to step"
    assert opened.text(".msgl-tip").startswith(f"page {page}: owned by request {shared.at(step).pages.owner[page]}")
    opened.press("Escape")


def test_the_address_says_where_to_start(chromium: Any, oracle: History, tmp_path: Path) -> None:
    path = export_html(Session(oracle, {}, "Five requests"), tmp_path / "oracle.html")
    page = Opened(chromium, path, "#step=5&req=3", color_scheme="dark")
    page.check(oracle, 5)
    assert {m["uid"] for m in page.data(".msgl-request.msgl-hi")} == {"3"}
    page.scrub(1)
    assert "waits: needs 13, 61 promised, 64 in all" in page.text(".msgl-ledger")
    page.page.wait_for_url("**#step=1&req=3&view=chart,events")
    page.page.evaluate("location.hash = '#step=9'")
    page.page.wait_for_selector(".msgl[data-step='9']")
    page.check(oracle, 9)
    assert page.page.locator("h1").all_inner_texts() == ["Five requests"]
    assert page.problems == []
    page.context.close()


def test_a_broken_rule_turns_the_lamp_red_and_names_the_page(
    chromium: Any, oracle: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "page 3 belongs to request 0, whose row does not name it: leaked"
    monkeypatch.setattr(oracle.steps, "violations", lambda i: (sentence,) if i == 3 else ())
    page = Opened(chromium, export_html(Session(oracle, {}, "Broken"), tmp_path / "broken.html"), "#step=4")
    assert page.data(".msgl-lamp") == [{"sound": "false", "violations": "1"}]
    assert sentence in page.text(".msgl-lamp")
    page.scrub(5)
    assert page.data(".msgl-lamp") == [{"sound": "true", "violations": "0"}]
    page.context.close()


def test_what_waits_for_a_batch_in_flight_is_marked(chromium: Any, tmp_path: Path) -> None:
    say = overlapped()
    finish_early(say)
    release(say)
    page = Opened(chromium, export_html(Session(say.history, {}, "In flight"), tmp_path / "flight.html"), "#step=3")
    page.check(say.history, 3)
    assert page.data(".msgl-strip")[0]["pending"] == "1"
    assert "2 owned by a request, 1 pending (slashed)" in page.text(".msgl-legend")
    assert "2 owned (1 pending)" in page.text(".msgl-lamp")
    ended = page.data(".msgl-request")[0]
    assert (ended["status"], ended["row"], ended["pending"]) == ("finished", "0", "1")
    page.page.locator(".msgl-cells").focus()
    page.press(*["ArrowRight"] * 8)
    assert "page 8: owned by request 0, pending: free when the batch in flight is done" in page.text(".msgl-tip")
    page.scrub(4)
    assert page.data(".msgl-strip")[0]["pending"] == "0" and "pending" not in page.text(".msgl-legend")
    assert page.problems == []
    page.context.close()


def test_a_run_without_a_step_is_shown(chromium: Any, tmp_path: Path) -> None:
    config = EngineConfig(num_pages=8, max_seq_len=8)
    state = Scheduler(config, HashExecutor(config)).snapshot().to_dict()
    page = Opened(chromium, export_html(History(state), tmp_path / "empty.html"))
    page.check(History(state), 0)
    assert count(8, "page") in page.text(".msgl-strip")
    assert page.problems == []
    page.context.close()


def test_a_record_opens_at_its_first_step_and_is_not_live(chromium: Any, oracle: History, tmp_path: Path) -> None:
    page = Opened(chromium, export_html(Session(oracle, {}, "Five requests"), tmp_path / "oracle.html"))
    page.check(oracle, 1)
    assert not page.page.locator(".msgl-live").is_visible()
    page.page.set_viewport_size({"width": 1280, "height": 720})
    assert page.page.locator("kbd").first.bounding_box()["y"] < 100, "how to play is said in sight"
    page.context.close()


def test_a_live_stage_follows_and_keeps_new_requests_in_sight(chromium: Any, tmp_path: Path) -> None:
    pool = {"num_pages": 400, "max_seq_len": 16, "max_running_requests": 4}
    many = run([[i, 1, 2] for i in range(40)], max_tokens=4, every=2, **pool)
    page = Opened(chromium, export_html(Session(many, {}, "Many"), tmp_path / "many.html"))
    feed = Feed(many.at(0).to_dict())
    kernel = Kernel(page, feed)
    body = page.page.locator(".msgl-tbody")

    def arrive(steps: int) -> int:
        """How far the request table is scrolled after so many more steps."""
        for i in range(feed.history.last, feed.history.last + steps):
            for event in many.steps.events(i):
                feed.put(event)
        kernel.send()
        page.settle()
        page.settle()
        return body.evaluate("(el) => el.scrollTop")

    assert page.page.locator(".msgl-live").inner_text() == "● live"
    assert arrive(10) == 0 and page.step == 10
    at = arrive(20)
    assert page.step == 30 and at > 0
    in_sight = body.evaluate("(el) => [el.scrollTop / 26, (el.scrollTop + el.clientHeight) / 26]")
    live = [uid for uid, r in many.at(30).requests.items() if r.status != "finished"]
    assert in_sight[0] <= max(live) < in_sight[1]
    page.page.evaluate("live.goto(5)")
    assert arrive(10) == at and page.step == 5, "whoever looks back is left alone"
    page.page.evaluate("live.goto(40)")
    assert arrive(0) > at and page.step == 40
    body.evaluate("(el) => { el.scrollTop = 30; }")
    page.settle()
    assert arrive(10) == 30 and page.step == 50, "so is who scrolled by hand"
    body.evaluate("(el) => { el.scrollTop = el.scrollHeight; }")
    page.settle()
    assert arrive(10) > at
    assert page.problems == []
    page.context.close()


# -- where one is ----------------------------------------------------------------------------------------------------


def test_an_address_leads_back_to_what_was_seen(chromium: Any, shared: History, tmp_path: Path) -> None:
    path = export_html(Session(shared, TEXTS), tmp_path / "run.html")
    page = Opened(chromium, path, "#step=9&node=2&view=chart,events")
    page.check(shared, 9)
    assert "2" in {m.get("node") for m in page.data(".msgl-node.msgl-hi")}
    page.page.locator(".msgl-request[data-uid='1']").click(position={"x": 33, "y": 13})  # beside the words
    page.page.wait_for_url("**#step=9&req=1&view=chart,events")
    again = Opened(chromium, path, "#step=9&req=1&view=chart,events")
    assert {m["uid"] for m in again.data(".msgl-request.msgl-hi")} == {"1"}
    strange = Opened(chromium, path, "#step=99999&req=x&view=nothing,,&what=1")
    strange.check(shared, shared.last)
    for opened in (page, again, strange):
        assert opened.problems == []
        opened.context.close()


def test_the_path_of_what_is_held_is_python(opened: Opened, shared: History) -> None:
    step = next(s for s in range(shared.last) if len(shared.at(s).tree) > 1 and shared.at(s).running)
    snap, trace = shared.at(step), Session(shared).trace
    opened.press("Escape")
    opened.scrub(step)

    def held(pointer: dict[str, Any] | None) -> Any:
        opened.page.evaluate("(pointer) => document.querySelector('#stage').stage.look(undefined, pointer)", pointer)
        opened.settle()
        return eval(opened.text(".msgl-copy code"), {"trace": trace})

    uid, node = snap.running[0], max(snap.tree)
    page = snap.requests[uid].pages[-1]
    assert held(None) == snap
    assert held({"kind": "uid", "uid": uid}) == snap.requests[uid]
    assert held({"kind": "node", "node": node}) == snap.tree[node]
    assert held({"kind": "page", "page": page}) == snap.pages.owner[page]
    assert held({"kind": "pages", "pages": [page, 0], "uid": uid}).tolist() == snap.pages.owner[[page, 0]].tolist()
    assert held({"kind": "uid", "uid": 9999}) == snap, "what is not there at this step is left out"
    assert held(None) == snap
    opened.page.locator(".msgl-copy").click()
    opened.page.locator(".msgl-copy [role=status]", has_text=f"copied trace.at({step})").wait_for(state="attached")


# -- the docks -------------------------------------------------------------------------------------------------------


def test_the_chart_has_the_numbers_of_every_step(opened: Opened, shared: History) -> None:
    for step in range(shared.first, shared.last + 1):
        opened.scrub(step)
        c = shared.at(step).counters
        used = c["owned_pages"] - c["pending_pages"] + c["protected_pages"]
        (shown,) = opened.data(".msgl-pool-chart")
        wanted = (used, c["reserved_pages"], 20 - used - c["reserved_pages"])
        assert (shown["used"], shown["promised"], shown["rest"]) == tuple(map(str, wanted)), step


def test_dragging_over_the_chart_moves_the_step(opened: Opened, shared: History) -> None:
    chart = opened.page.locator(".msgl-chart")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    opened.page.mouse.down()
    opened.settle()
    assert abs(opened.step - shared.last / 2) < 3
    opened.page.mouse.move(box["x"] + box["width"] + 40, box["y"] + 50)
    opened.settle()
    assert opened.step == shared.last
    opened.page.mouse.move(box["x"] - 40, box["y"] + 50)
    opened.page.mouse.up()
    opened.settle()
    assert opened.step == shared.first + 1


def test_the_log_has_every_event_and_leads_to_its_step(opened: Opened, shared: History) -> None:
    events = [e for i in range(len(shared.steps)) for e in shared.steps.events(i)]
    note, rows = opened.page.locator(".msgl-filter .msgl-hint"), opened.page.locator(".msgl-event")
    opened.scrub(shared.first + 1)
    assert opened.text(".msgl-filter .msgl-hint") == count(sum(bool(describe(e)) for e in events), "event")
    opened.page.locator(".msgl-types").select_option("*")
    opened.settle()
    assert note.inner_text() == count(len(events), "event")
    opened.page.locator(".msgl-types").select_option("PagesEvicted")
    opened.settle()
    evicted = [e for e in events if isinstance(e, PagesEvicted)]
    assert note.inner_text() == count(len(evicted), "event")
    assert rows.first.get_attribute("data-made") == "minisgl.kvcache.radix.RadixPrefixCache.evict"
    rows.first.click()
    opened.settle()
    assert opened.step == evicted[0].step
    assert rows.first.get_attribute("class") == "msgl-event msgl-now"
    opened.page.locator(".msgl-types").select_option("")
    search = opened.page.locator(".msgl-search")
    search.fill("REQUEST 2 is admitted")
    opened.settle()
    assert [row["step"] for row in opened.data(".msgl-event")] == [
        str(e.step) for e in events if "request 2 is admitted" in describe(e)
    ]
    at = opened.step
    assert opened.press("ArrowLeft", "Home", " ") == at, "keys in a field are the field's"
    search.fill("")
    opened.settle()


def test_another_run_is_noticed_by_a_tab_that_was_hidden(chromium: Any, tmp_path: Path) -> None:
    short, long = runs.load("retract"), runs.load("reserve")
    page = Opened(chromium, export_html(short, tmp_path / "run.html"), "#step=3&view=events")

    def logs(trace: Trace) -> None:
        page.page.wait_for_function(
            "(note) => document.querySelector('.msgl-filter .msgl-hint').textContent === note",
            arg=count(sum(bool(describe(e)) for e in trace.events), "event"),
        )

    logs(short)
    page.page.locator(".msgl-tab[data-view=batch]").click()
    page.settle()
    page.page.evaluate(
        """(record) => document.getElementById("stage").stage.store
            .load(Uint8Array.from(atob(record), (c) => c.charCodeAt(0)))""",
        base64.b64encode(Session(long).record()).decode(),
    )
    page.page.locator(".msgl-tab[data-view=events]").click()
    logs(long)
    assert page.problems == []
    page.context.close()


def test_tabs_are_chosen_by_keys(chromium: Any, shared: History, tmp_path: Path) -> None:
    page = Opened(chromium, export_html(Session(shared, TEXTS), tmp_path / "run.html"))
    docks = page.page.evaluate(
        """() => [...document.querySelectorAll(".msgl-dock:not([hidden])")].map((dock) => {
            const tabs = [...dock.querySelectorAll("[role=tab]")], list = dock.querySelector("[role=tablist]");
            const found = [];
            tabs[0].focus();
            for (let i = 0; i <= tabs.length; i++) {
                const now = document.activeElement, on = tabs.filter((t) => t.ariaSelected === "true");
                const panel = document.getElementById(now.getAttribute("aria-controls"));
                found.push([on.length === 1 && on[0] === now, now.tabIndex === 0, panel.role, panel.children.length,
                    panel.getAttribute("aria-labelledby") === now.id, panel.clientHeight, now.dataset.view]);
                now.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
            }
            return found;
        })"""
    )
    page.settle()
    assert page.step == 1, "arrows on the tabs move from tab to tab, not from step to step"
    assert len(docks) == 2
    for found in docks:
        assert {tuple(f[:6]) for f in found} == {(True, True, "tabpanel", 1, True, docks[0][0][5])}
        assert found[0][6] == found[-1][6]
    assert page.problems == []
    page.context.close()


def test_a_replay_takes_over_what_surrounds_it(chromium: Any, oracle: History, tmp_path: Path) -> None:
    outside = tmp_path / "notebook.html"
    frame = Replay(Session(oracle, {}, "Five requests"))._repr_html_()
    dark = '<body data-jp-theme-light="false" style="--jp-layout-color0: #111111">'
    outside.write_text(f"<!doctype html><html>{dark}{frame}</body></html>", "utf-8")
    context = chromium.new_context(viewport={"width": 1200, "height": 700})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: m.type in ("error", "warning") and problems.append(m.text))
    page.goto(outside.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator("body[data-ready]").wait_for()
    inside.locator(".msgl[data-step='1']").wait_for()
    inside.locator(".msgl-forward").click()
    inside.locator(".msgl[data-step='2']").wait_for()
    ground = "(el) => getComputedStyle(el).backgroundColor"
    assert inside.locator(".msgl").evaluate(ground) == "rgb(17, 17, 17)"
    page.evaluate(
        """() => { document.body.style.setProperty("--jp-layout-color0", "#fefefe");
        document.body.dataset.jpThemeLight = "true"; }"""
    )
    inside.locator("body[data-jp-theme-light='true']").wait_for()
    assert inside.locator(".msgl").evaluate(ground) == "rgb(254, 254, 254)"
    sizes = "(el) => [el.clientHeight, el.contentDocument.documentElement.scrollHeight]"
    page.wait_for_function("(() => { const f = document.querySelector('iframe'); return f.clientHeight !== 900; })()")
    high, inner = page.locator("iframe").evaluate(sizes)
    assert high == inner, "all of it is seen, without a bar to scroll"
    assert page.url == outside.as_uri() and problems == []
    context.close()


@pytest.mark.parametrize("views", ["chart,events", "timeline,batch", "timeline,questions"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_nothing_to_say(
    chromium: Any, shared: History, tmp_path: Path, repo_root: Path, scheme: str, views: str
) -> None:
    path = export_html(Session(shared, TEXTS, "Shared prefixes"), tmp_path / "run.html")
    page = Opened(chromium, path, f"#step=9&req=1&view={views}", color_scheme=scheme, bypass_csp=True)
    accessible(page, repo_root)
    page.context.close()
