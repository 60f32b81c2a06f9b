"""tools/refresh_notebooks.py: two runs give the same bytes, and what they give is honest."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def refresh() -> Any:
    spec = importlib.util.spec_from_file_location("refresh_notebooks", ROOT / "tools" / "refresh_notebooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write(path: Path, *cells: str) -> Path:
    nb: Any = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    nb.cells[0].metadata["collapsed"] = True
    path.write_text(nbformat.writes(nb), encoding="utf-8")
    return path


def test_two_runs_give_the_same_bytes(refresh: Any, tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.ipynb",
        "import sys, time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.05)",
        "import ipywidgets\nipywidgets.IntSlider(value=7)",
        "1 + 1",
    )
    assert refresh.main(["--check", str(path)]) == 1, "not run yet, so a run must change it"
    assert refresh.main([str(path)]) == 0
    once = path.read_bytes()
    assert refresh.main([str(tmp_path)]) == 0
    assert path.read_bytes() == once
    assert refresh.main(["--check", str(path)]) == 0

    nb: Any = nbformat.reads(once.decode(), as_version=4)
    assert [cell.execution_count for cell in nb.cells] == [1, 2, 3]
    assert [output.text for output in nb.cells[0].outputs] == ["0\n1\n2\n"]
    assert set(nb.cells[1].outputs[0].data) == {"text/plain"}
    assert all(not cell.metadata for cell in nb.cells) and "widgets" not in nb.metadata
    assert once.endswith(b"}\n")


def test_of_a_page_what_needs_no_script_stays(refresh: Any, tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.ipynb",
        "from minisgl_widgets import Replay, runs\nreplay = Replay(runs.five_prompts)\nlen(replay._repr_html_())",
        "replay",
    )
    assert refresh.main([str(path)]) == 0
    nb: Any = nbformat.read(path, as_version=4)
    (output,) = nb.cells[1].outputs
    assert output.data["text/plain"].startswith("Replay(steps 0 to 16: step=16, free=6, owned=0")
    assert output.data["text/html"].startswith('<div class="msgl-still"><p><b>Five prompts')
    assert "<svg" in output.data["text/html"] and "iframe" not in output.data["text/html"]
    assert len(path.read_text("utf-8")) < 30_000 < int(nb.cells[0].outputs[0].data["text/plain"])


def test_what_is_not_compared_stays_as_it_was_stored(refresh: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "import time\ntime.time_ns()", "time.time_ns()")
    nb: Any = nbformat.read(path, as_version=4)
    nb.cells[0].metadata["tags"] = ["nbval-ignore-output"]
    nbformat.write(nb, path)
    texts = []
    for _ in range(2):
        assert refresh.main([str(path)]) == 0
        read: Any = nbformat.read(path, as_version=4)
        texts.append([cell.outputs[0].data["text/plain"] for cell in read.cells])
    assert texts[0][0] == texts[1][0] and texts[0][1] != texts[1][1]


def test_a_changed_number_is_seen(refresh: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.ipynb", "2 + 2")
    assert refresh.main([str(path)]) == 0
    path.write_text(path.read_text(encoding="utf-8").replace('"4"', '"5"'), encoding="utf-8")
    assert refresh.main(["--check", str(path)]) == 1
    assert "would change" in capsys.readouterr().out


def test_a_failing_cell_is_reported_and_nothing_written(refresh: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "raise KeyError(4)")
    before = path.read_bytes()
    assert refresh.main([str(path)]) == 1
    assert path.read_bytes() == before


def test_cells_without_ids_get_the_same_ones_each_time(refresh: Any, tmp_path: Path) -> None:
    nb: Any = nbformat.v4.new_notebook(nbformat_minor=4)
    nb.cells = [{"cell_type": "code", "source": "1", "metadata": {}, "outputs": [], "execution_count": None}]
    path = tmp_path / "old.ipynb"
    import json

    path.write_text(json.dumps(nb), encoding="utf-8")
    assert refresh.main([str(path)]) == 0
    read: Any = nbformat.read(path, as_version=4)
    assert [cell.id for cell in read.cells] == ["cell-000"]
