"""Runs to show, and exported pages in a real Chromium that show them: what tests of views have in common."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minisgl.events.history import History
from minisgl.events.snapshot import Snapshot
from minisgl.events.trace import Trace
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.record import Encoder
from tests.chromium import skip_or_fail
from tests.fakes import Run

TEXTS = {i: f" w{i}" for i in range(1000)} | {20: "\n", 21: " <b>", 22: "</script>", 23: "é"}
SMALL = {"num_pages": 26, "page_size": 4, "max_seq_len": 40, "max_running_requests": 4}


def recorded(run: Run, requests: int, seed: int) -> Trace:
    """Prompts with shared beginnings, a few steps apart."""
    start = run.snapshot().to_dict()
    rng = random.Random(seed)
    system = list(range(1, 25))
    for i in range(requests):
        run.submit(system[: rng.randrange(2, 25)] + [rng.randrange(30, 35) for _ in range(rng.randrange(1, 6))], 9)
        for _ in range(rng.randrange(4)):
            run.scheduler.step()
        if i % 9 == 8:
            run.scheduler.abort(i)
    run.play()
    return Trace(start, run.events, TEXTS, "pages", run.about())


class Opened:
    """An exported page, and what it says."""

    def __init__(self, browser: Any, path: Path, fragment: str = "", **options: Any) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.problems.append(m.text))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector("body[data-ready]")
        self.settle()

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def scrub(self, step: int) -> None:
        self.page.evaluate(
            """(step) => { const range = document.querySelector(".msgl-range");
            range.value = step; range.dispatchEvent(new Event("input")); }""",
            step,
        )
        self.settle()

    def press(self, *keys: str) -> int:
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()
        return self.step

    @property
    def step(self) -> int:
        return int(self.page.locator(".msgl").get_attribute("data-step"))

    def data(self, selector: str) -> list[dict[str, str]]:
        """The data attributes of every match."""
        return self.page.eval_on_selector_all(selector, "(all) => all.map((el) => ({ ...el.dataset }))")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def check(self, history: History, step: int) -> None:
        """Every number that the page shows is the one of the Python state."""
        snap = history.at(step)
        assert self.step == step
        assert self.text(".msgl-number") == f"step {step} of {history.last}"
        (strip,) = self.data(".msgl-strip")
        for kind in ("free", "owned", "evictable", "protected"):
            assert strip[kind] == str(snap.pages.count(kind)), (step, kind)
        assert f"{snap.pages.count('free')} free" in self.text(".msgl-legend")
        (lamp,) = self.data(".msgl-lamp")
        assert lamp == {"sound": "true", "violations": "0"}
        self._check_ledger(snap)
        self._check_requests(snap)
        self._check_tree(snap)
        handoffs = [(str(x["uid"]), " ".join(map(str, s["pages"]))) for x in snap.handoffs for s in x["segments"]]
        shown = [(x["of"], x["pages"]) for x in self.data(".msgl-hocell")]
        assert shown == handoffs
        words = history.steps[step - history.first - 1]["words"] if step > history.first else []
        shown_words = self.page.locator(".msgl-sentences li:not(.msgl-empty)").all_inner_texts()
        assert [re.sub(r"\s+", " ", w) for w in shown_words] == words

    def _check_ledger(self, snap: Snapshot) -> None:
        shown = self.data(".msgl-test")
        assert len(shown) == len(snap.tests)
        for row, test in zip(shown, snap.tests, strict=True):
            assert (row["uid"], row["verdict"]) == (str(test["uid"]), test["verdict"])
            for name in ("need", "reserved", "free", "evictable", "pending"):
                assert row.get(name) == (None if test[name] is None else str(test[name])), name
        for line, test in zip(self.page.locator(".msgl-verdict").all_inner_texts(), snap.tests, strict=True):
            if test["verdict"] == "pages":
                assert f"waits: needs {test['need']}, {test['reserved']} promised," in line
            assert ("tested in step" in line) == (test["verdict"] != "admitted" and test["step"] < snap.step)

    def _check_requests(self, snap: Snapshot) -> None:
        shown = {int(row["uid"]): row for row in self.data(".msgl-request[data-uid]")}
        assert sorted(shown) == sorted(snap.requests)
        for uid, r in snap.requests.items():
            row = shown[uid]
            assert (row["status"], row["reason"]) == (r.status, r.reason)
            numbers = (r.matched, len(r.output), len(r.pages), r.reserved, r.cached_len)
            names = ("matched", "output", "pagesHeld", "reserved", "cachedLen")
            assert tuple(row[name] for name in names) == tuple(map(str, numbers)), uid

    def _check_tree(self, snap: Snapshot) -> None:
        shown = {int(n["node"]): n for n in self.data(".msgl-node") if n["mark"] != "evicted"}
        assert sorted(shown) == sorted(set(snap.tree) - {0})
        for i, n in shown.items():
            assert (n["locks"], n["used"]) == (str(snap.tree[i].locks), str(snap.tree[i].used))


@contextmanager
def exported(browser: Any, trace: Trace, folder: Path, fragment: str = "") -> Iterator[Opened]:
    """A run's page; nothing may have gone wrong in it in the end."""
    page = Opened(browser, export_html(trace, folder / "run.html"), fragment)
    yield page
    assert page.problems == []
    page.context.close()


LIVE = """(record) => {
    const el = document.querySelector("#stage"), { stage } = el, { store } = stage;
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const fresh = new store.constructor();
    fresh.load(bytes(record));
    el.replaceChildren();
    window.sent = [];
    window.live = new stage.constructor(el, fresh, { live: true, send: (message) => sent.push(message) });
    window.more = (tail, buffers) => fresh.append(tail, buffers.map(bytes));
}"""


class Kernel:
    """Makes an opened page's stage a live one, ``live`` in the page, that follows ``feed``."""

    def __init__(self, page: Opened, feed: Feed) -> None:
        self.page, self.encoder = page.page, Encoder(feed)
        self.page.evaluate(LIVE, base64.b64encode(self.encoder.record(deflate=False)).decode())
        page.settle()
        self.settle = page.settle

    def send(self) -> None:
        """What the feed has learned since."""
        tail = self.encoder.tail()
        if tail:
            message, buffers = tail
            parts = [base64.b64encode(part).decode() for part in buffers]
            assert self.page.evaluate("([tail, buffers]) => more(tail, buffers)", [message, parts]), (
                "a tail was missing"
            )
        self.settle()

    def heard(self) -> list[dict]:
        """What the page said to it since it was asked last."""
        return self.page.evaluate("sent.splice(0)")


def accessible(page: Opened, repo_root: Path) -> None:
    """Fail with what axe finds; the page must have been opened with ``bypass_csp``."""
    axe = repo_root / "tests" / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.exists():
        skip_or_fail("axe-core is not installed (make env-js)")
    page.page.add_script_tag(path=axe)
    found = page.page.evaluate("async () => (await axe.run(document)).violations")
    said = [f"{v['id']}: {v['help']}\n  {n['html'][:200]}\n  {n['failureSummary']}" for v in found for n in v["nodes"]]
    assert said == [], "\n".join(said)
