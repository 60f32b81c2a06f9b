"""The fixture itself: it runs cells, sees widgets live, and notices what must not happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat


def write(path: Path, *cells: str) -> Path:
    nb: Any = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    path.write_text(nbformat.writes(nb), encoding="utf-8")
    return path


def test_a_live_widget_answers(open_notebook: Any, tmp_path: Path) -> None:
    page = open_notebook(
        write(
            tmp_path / "slider.ipynb",
            "import ipywidgets as w\n"
            "slider, label = w.IntSlider(value=3, max=10), w.Label('at 3')\n"
            "slider.observe(lambda change: setattr(label, 'value', f\"at {change['new']}\"), 'value')\n"
            "w.HBox([slider, label])",
            "import minisgl, minisgl_widgets",
        )
    )
    assert page.trouble() == []
    page.locator(".noUi-handle").focus()
    page.keyboard.press("End")
    page.wait_for_selector("text=at 10")
    assert page.trouble() == []


def test_trouble_is_noticed(open_notebook: Any, tmp_path: Path) -> None:
    script = (
        "const image = new Image(); image.src = 'https://example.invalid/pixel.png';"
        "setTimeout(() => { throw new Error('nobody catches this') }, 0);"
    )
    page = open_notebook(
        write(tmp_path / "trouble.ipynb", f'from IPython.display import Javascript\nJavascript("{script}")', "1 / 0")
    )
    page.wait_for_timeout(500)
    assert page.requests == ["https://example.invalid/pixel.png"]
    assert any("nobody catches this" in error for error in page.errors)
    assert page.cell_errors == ["ZeroDivisionError: division by zero"]
    assert len(page.trouble()) == 3
