"""Progress bars: seen while something takes long, gone without a trace afterwards."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from minisgl import progress
from minisgl.progress import progress_bar


def test_a_notebook_keeps_nothing_of_them(tiny_folder: Any) -> None:
    load = f"LLM({str(tiny_folder('llama'))!r}, num_pages=16, device='cpu')"
    source = f"""
from minisgl import LLM, SamplingParams, progress
progress.DELAY = 0.0
print("loads")
llm = {load}
llm.generate([[5, 6], [7]], SamplingParams(max_tokens=2))
print("done")
"""
    nb: Any = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_code_cell(source)]
    shown: list[tuple[str, str]] = []

    class Client(NotebookClient):
        def process_message(self, msg: Any, *args: Any) -> Any:
            if msg["msg_type"] in ("display_data", "update_display_data"):
                shown.append((msg["msg_type"], msg["content"]["data"].get("text/plain", "")))
            return super().process_message(msg, *args)

    Client(nb, kernel_name="python3", timeout=120).execute()
    for what in ("loading weights", "generate"):
        assert any(text.startswith(f"{what}:   0%") for _, text in shown)
    assert not any(text for kind, text in shown if kind == "display_data"), "who follows no updates would compare it"
    kept = [output.get("data", output.get("text")) for output in nb.cells[0].outputs]
    assert kept == ["loads\n", {}, {}, "done\n"]


@pytest.mark.parametrize("show", [True, False])
def test_on_a_terminal_the_line_is_wiped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], show: bool
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    assert list(progress_bar("counting", "number", range(3), show=show)) == [0, 1, 2]
    written = capsys.readouterr().err.split("\r")
    assert ("counting:   0%" in "".join(written)) == show
    assert not written[-1] and not "".join(written[-2:]).strip()


def test_what_is_quick_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    list(progress_bar("counting", "number", range(3)))
    assert not capsys.readouterr().err
