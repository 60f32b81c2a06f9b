"""Documents: whatever is shown for good is made the same way, and can be used by everybody."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from minisgl_widgets import Quiz, Replay, SideBySide, Tour, runs
from minisgl_widgets.document import Document
from tests.chromium import skip_or_fail
from tests.widgets.exported import Opened

MADE: dict[str, Callable[[], Document]] = {
    "replay": lambda: Replay(runs.load("five_prompts")),
    "quiz": lambda: Quiz(runs.load("small_cache"), "eviction"),
    "tour": lambda: Tour.of("shared_preface"),
    "pair": lambda: SideBySide(runs.load("reserve"), runs.load("retract")),
}


@pytest.mark.parametrize("kind", MADE)
def test_the_same_content_gives_the_same_page(kind: str, tmp_path: Path) -> None:
    page = MADE[kind]().html()
    assert page == MADE[kind]().export_html(tmp_path / "page.html").read_text("utf-8")
    assert len(page) < 600_000
    assert page.count(' class="record">') == (2 if kind == "pair" else 1)
    (panel,) = re.findall(r'<script type="application/json" id="panel">(.*)</script>', page)
    assert "<" not in panel, "no text of a run can end the script that holds it"
    assert (json.loads(panel) or {"kind": "replay"})["kind"] == kind


@pytest.mark.parametrize("kind", MADE)
def test_a_notebook_keeps_the_whole_page(kind: str) -> None:
    made = MADE[kind]()
    shown = made._repr_mimebundle_()
    assert shown["text/plain"] == repr(made) and repr(made).startswith(f"{type(made).__name__}(")
    srcdoc = shown["text/html"].removeprefix('<iframe srcdoc="').split('"')[0]
    assert unescape(srcdoc) == made.html()
    assert f'title="{repr(made).splitlines()[0]}"' in shown["text/html"]


class Sanitised(HTMLParser):
    """What a reader gets who drops frames, scripts, styles and unknown attributes, as GitHub does."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", MADE)
def test_what_stays_without_frames_is_the_run(kind: str) -> None:
    made = MADE[kind]()
    still = Sanitised(made.still().html)
    assert still.tags.isdisjoint({"iframe", "script", "style", "link", "img", "pattern", "defs"})
    assert not {a for a in still.attributes if a.startswith("on") or a in ("id", "class", "href", "src")}
    if isinstance(made, Quiz):
        answers = re.sub("<details>.*?</details>", "", made.still().html)
        for q in made.questions:
            assert q.prompt in still.text and q.why in still.text
            assert escape(q.why) not in answers and q.why not in repr(made), "only who asks is told"
            assert q.why in made.text()
        return
    sessions = made.sessions if isinstance(made, SideBySide) else [made.session]
    assert made.still().html.count("<svg") == len(sessions)
    for session in sessions:
        n = session.history.last
        for form in (still.text, repr(made)):
            assert f"over steps 1 to {n}" in form and f"steps 1 to {n}, 1 in a character" in form
    if isinstance(made, Tour):
        for form in (still.text, repr(made)):
            assert all(sentence.text in form for sentence in made.sentences)
            assert re.findall(r"\(step (\d+)\)", form)[:6] == ["1", "5", "7", "9", "13", "18"]
    if isinstance(made, SideBySide):
        for trace in (session.trace for session in sessions):
            assert f"{trace.figures.retractions} ({trace.figures.lost_tokens} token" in repr(made)
        assert "conservative" in still.text and "they part in step 1" in repr(made)
        scales = re.findall(r'text-anchor="middle" fill="currentColor">(\d+)<', made.still().html)
        assert scales == ["20", "40", "60", "80"] * 2, "one scale for both"


@pytest.mark.parametrize("kind", MADE)
def test_the_page_in_a_frame_takes_its_place(chromium: Any, kind: str, tmp_path: Path) -> None:
    cell = f"<!doctype html><meta charset=utf-8><title>cell</title><div id=cell>{MADE[kind]()._repr_html_()}</div>"
    (tmp_path / "cell.html").write_text(cell, "utf-8")
    context = chromium.new_context()
    page = context.new_page()
    page.goto((tmp_path / "cell.html").as_uri())
    page.frame_locator("iframe").locator("body[data-ready=true]").wait_for()
    assert page.locator(".msgl-still").count() == 0 and page.locator("#cell > *").count() == 1
    context.close()
    context = chromium.new_context(java_script_enabled=False)  # whoever lets no script run
    page = context.new_page()
    page.goto((tmp_path / "cell.html").as_uri())
    assert page.locator(".msgl-still").is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", MADE)
def test_axe_has_nothing_to_say(chromium: Any, tmp_path: Path, repo_root: Path, kind: str, scheme: str) -> None:
    axe = repo_root / "tests" / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.exists():
        skip_or_fail("axe-core is not installed (make env-js)")
    path = MADE[kind]().export_html(tmp_path / "page.html")
    page = Opened(chromium, path, color_scheme=scheme, bypass_csp=True)
    if kind == "quiz":
        page.page.keyboard.press("1")
        page.page.wait_for_selector(".msgl-quiz[data-state=told]")
    page.page.add_script_tag(path=axe)
    found = page.page.evaluate("async () => (await axe.run(document)).violations")
    said = [f"{v['id']}: {n['html'][:200]}\n  {n['failureSummary']}" for v in found for n in v["nodes"]]
    assert said == [], "\n".join(said)
    assert page.problems == []
    page.context.close()
