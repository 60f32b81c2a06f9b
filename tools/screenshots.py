"""Take the pictures: every view of packaged runs in light and dark, and those that the README shows.

    python tools/screenshots.py [--out screenshots]

Needs Chromium and Playwright, no model. The pictures of the README go to ``docs/``, all others to ``--out``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "widgets")]

from minisgl_widgets import Quiz, Replay, SideBySide, Tour, runs  # noqa: E402
from minisgl_widgets.document import Document  # noqa: E402
from tests.chromium import launched  # noqa: E402

SIZE = {"width": 1280, "height": 720}  # a projector's
SCHEMES = ("light", "dark")

OTHERS: dict[str, Callable[[], Document]] = {  # pages that are not a packaged run by itself
    "tour": lambda: Tour.of("shared_preface"),
    "quiz": lambda: Quiz(runs.load("small_cache"), seed=3),
    "side-by-side": lambda: SideBySide(runs.load("reserve"), runs.load("retract")),
}
# (page, address, name, keys to press): where each view has something to show
SHOTS = (
    ("five_prompts", "#step=7&req=2", "stage"),
    ("shared_preface", "#step=6&node=2&view=chart,events", "used-and-events"),
    ("retract", "#step=26&req=4&view=timeline,questions", "timeline-and-questions"),
    ("retract", "#step=30&view=lifelines,batch", "life-lines-and-batches"),
    ("small_cache", "#step=24&view=compare,eviction", "compare-and-who-goes-next"),
    ("chunked_prefill", "#step=4&view=timeline,pagetable", "page-table"),
    ("five_prompts", "#step=7&view=capacity,eviction", "capacity"),
    ("tour", "", "tour", "nnnn"),
    ("quiz", "", "quiz"),
    ("side-by-side", "#step=30", "side-by-side"),
)
README = {  # name of a shot -> the scheme in which docs/ has it, and what of the page: None is what a projector shows
    "stage": ("light", ""),
    "timeline-and-questions": ("light", ".msgl-docks"),
    "life-lines-and-batches": ("dark", ".msgl-docks"),
    "tour": ("light", None),
    "quiz": ("light", None),
    "side-by-side": ("dark", None),
}


def take(browser: Any, page: Path, address: str, keys: str, scheme: str, pictures: dict[Path, str | None]) -> None:
    """Pictures of a page once it has settled: of an element, of what fits on a screen (None), or of all ("")."""
    context = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
    tab = context.new_page()
    tab.goto(page.as_uri() + address)
    tab.wait_for_selector("body[data-ready=true]")
    for key in keys:
        tab.keyboard.press(key)
    tab.wait_for_timeout(600)  # what is read in the background
    for path, part in pictures.items():
        if part:
            tab.locator(part).screenshot(path=path)
        else:
            tab.screenshot(path=path, full_page=part is not None)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots", help="folder for all of them")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        for page, address, name, *keys in SHOTS:
            html = Path(folder) / f"{page}.html"
            if not html.exists():
                (OTHERS[page]() if page in OTHERS else Replay(runs.load(page))).export_html(html)
            for scheme in SCHEMES:
                pictures: dict[Path, str | None] = {out / f"{name}-{scheme}.png": ""}
                shown, part = README.get(name, ("", None))
                if shown == scheme:
                    pictures[ROOT / "docs" / f"{name}.png"] = part
                take(browser, html, address, "".join(keys), scheme, pictures)
                print(*pictures)


if __name__ == "__main__":
    main()
