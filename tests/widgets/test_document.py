"""Documents: whatever is shown for good is made the same way, and can be used by everybody."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from minisgl_widgets import Quiz, Replay, SideBySide, Tour, runs
from minisgl_widgets.document import Document
from tests.chromium import skip_or_fail
from tests.widgets.test_export import Opened

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
