"""pytest --nbval compares only what a notebook holds: one without outputs would pass with nothing compared.

So every committed notebook must have been run, keep outputs to compare, and look as tools/refresh_notebooks.py
leaves it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from minisgl_widgets import Quiz, SideBySide, Tour, runs

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb")) if (ROOT / "notebooks").exists() else []

MIN_COMPARED = 2  # cells whose outputs nbval compares
MAX_UNCOMPARED = 2  # cells that ask not to be compared, or not to be run
MAX_BYTES = 300_000
NOT_COMPARED = re.compile(r"^#\s*(?:NBVAL_IGNORE_OUTPUT|NBVAL_SKIP)\s*$", re.M | re.I)
SKIP_TAGS = {"nbval-ignore-output", "nbval-skip"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NOT_LOOKED_AT = {WIDGET_VIEW, "image/png", "image/jpeg"}
ABSOLUTE = re.compile(
    r"(?<![\w.:/<-])/(?:" + "|".join(["home", "Users", "root", "tmp", "usr", "opt", "mnt", "var"]) + ")/"
)


def problems(text: str) -> list[str]:
    """All that is wrong with the notebook of this text, in words."""
    nb: Any = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    raw = json.loads(text)
    found: list[str] = []
    compared = uncompared = 0
    if len(text.encode()) > MAX_BYTES:
        found.append(f"{len(text.encode())} bytes; at most {MAX_BYTES} are allowed")
    if "widgets" in nb.metadata:
        found.append("the state of widgets is stored in the metadata")
    if (nb.nbformat, nb.nbformat_minor) < (4, 5) or not all(cell.get("id") for cell in raw["cells"]):
        found.append("cells have no ids")
    for expected, cell in enumerate((c for c in nb.cells if c.cell_type == "code"), 1):
        where = f"code cell {expected} ({cell.source.splitlines()[0] if cell.source else 'empty'!r})"
        if cell.execution_count != expected:
            found.append(
                f"{where}: execution count {cell.execution_count}, so it was not run, or not from top to bottom"
            )
        if NOT_COMPARED.search(cell.source) or SKIP_TAGS & set(cell.metadata.get("tags", [])):
            uncompared += 1
        elif any(o.output_type == "stream" or set(o.get("data", {})) - NOT_LOOKED_AT for o in cell.outputs):
            compared += 1
        for output in cell.outputs:
            if WIDGET_VIEW in output.get("data", {}):
                found.append(f"{where}: the id of a live widget is stored")
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                found.append(f"{where}: ended in {output.ename}")
    if compared < MIN_COMPARED:
        found.append(f"outputs of {compared} cells would be compared; at least {MIN_COMPARED} must be")
    if uncompared > MAX_UNCOMPARED:
        found.append(f"{uncompared} cells are not compared; at most {MAX_UNCOMPARED} may be")
    for cell in nb.cells:
        texts = [cell.source, *(json.dumps(o) for o in cell.get("outputs", []))]
        found += [f"absolute path in cell {cell.get('id')}: {m.group()}" for t in texts for m in ABSOLUTE.finditer(t)]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_is_honest(path: Path) -> None:
    assert problems(path.read_text(encoding="utf-8")) == []


def test_pages_are_stored_as_they_are_now() -> None:
    """Their cells are not compared, because the frame with the page is not stored; the rest of them is, here."""
    made = {
        "tour": Tour.of("shared_preface"),
        "quiz": Quiz(runs.load("small_cache"), seed=3),
        "pair": SideBySide(runs.load("reserve"), runs.load("retract")),
    }
    stored = {}
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.source in made:
                (stored[cell.source],) = (output.data for output in cell.outputs)
    for name, page in made.items():
        html = f'<div class="msgl-still">{page.still().html}</div>'
        assert stored[name] == {"text/html": html, "text/plain": repr(page)}, "clear the cell, and make notebooks"


def honest() -> Any:
    """A small notebook with nothing wrong."""
    nb: Any = nbformat.v4.new_notebook()
    for count in (1, 2):
        output = nbformat.v4.new_output("stream", name="stdout", text=f"{count}\n")
        nb.cells.append(nbformat.v4.new_code_cell(f"print({count})", execution_count=count, outputs=[output]))
    return nb


def test_nothing_is_wrong_with_an_honest_one() -> None:
    assert problems(nbformat.writes(honest())) == []


def spoil_stripped(nb: Any) -> None:
    for cell in nb.cells:
        cell.execution_count, cell.outputs = None, []


def spoil_order(nb: Any) -> None:
    nb.cells.reverse()


def spoil_ignored(nb: Any) -> None:
    for cell in nb.cells:
        cell.source = "# NBVAL_IGNORE_OUTPUT\n" + cell.source


def spoil_tags(nb: Any) -> None:
    nb.cells += [
        nbformat.v4.new_code_cell("1", execution_count=n, metadata={"tags": ["nbval-skip"]}) for n in (3, 4, 5)
    ]


def spoil_images(nb: Any) -> None:
    nb.cells[1].outputs = [nbformat.v4.new_output("display_data", data={"image/png": "AAAA"})]


def spoil_view(nb: Any) -> None:
    nb.cells[1].outputs.append(nbformat.v4.new_output("display_data", data={WIDGET_VIEW: {"model_id": "0"}}))


def spoil_state(nb: Any) -> None:
    nb.metadata["widgets"] = {}


def spoil_size(nb: Any) -> None:
    nb.cells[0].outputs[0].text = "x" * MAX_BYTES


def spoil_path(nb: Any) -> None:
    nb.cells[0].outputs[0].text = "saved in " + "/".join(["", "home", "someone", "run.jsonl"])


def spoil_error(nb: Any) -> None:
    nb.cells[1].outputs.append(nbformat.v4.new_output("error", ename="KeyError", evalue="4", traceback=[]))


@pytest.mark.parametrize("spoil", [f for name, f in sorted(globals().items()) if name.startswith("spoil_")])
def test_a_dishonest_one_is_seen(spoil: Any) -> None:
    nb = honest()
    spoil(nb)
    assert problems(nbformat.writes(nb)) != []


def test_missing_ids_are_seen() -> None:
    raw = json.loads(nbformat.writes(honest()))
    for cell in raw["cells"]:
        del cell["id"]
    raw["nbformat_minor"] = 4
    assert problems(json.dumps(raw)) != []
