"""The packaged runs: small, sound, what today's scheduler does, and there without torch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minisgl.errors import TraceNotFoundError
from minisgl.sim.replay import replay
from minisgl_widgets import runs
from minisgl_widgets.replay import Replay


def test_they_are_small_and_listed() -> None:
    files = sorted(runs.FOLDER.glob("*.zst"))
    assert [f.name.split(".")[0] for f in files] == sorted(runs.names)
    assert sum(f.stat().st_size for f in runs.FOLDER.iterdir() if f.is_file()) < 300_000
    assert set(runs.names) <= set(dir(runs))
    assert runs.five_prompts is runs.load("five_prompts")
    assert runs.about("five_prompts").startswith("Five prompts, 64 pages\nFour requests fit")
    with pytest.raises(TraceNotFoundError, match="no packaged run is called 'six'; there are five_prompts, shared"):
        runs.load("six")
    with pytest.raises(AttributeError, match="no packaged run 'six'"):
        _ = runs.six


@pytest.mark.parametrize("name", runs.names)
def test_a_run_is_sound_and_todays_scheduler_makes_it_again(name: str) -> None:
    trace = runs.load(name)
    assert trace.title == runs.ABOUT[name][0]
    assert trace.check() == []
    assert not trace.diff(replay(trace), times=False)
    assert "machine" not in trace.about and trace.about["model"] == "smollm2-135m"
    assert all(f".{w}" not in str(trace.about) for w in ("cache", "local")), "nothing of the machine it was made on"
    assert trace.requests.queue_time.min() >= 0


def test_the_pair_has_the_same_prompts_and_tokens() -> None:
    a, b = runs.load("reserve"), runs.load("retract")
    assert [e["prompt"] for e in _requests(a)] == [e["prompt"] for e in _requests(b)]
    assert [e["output"] for e in _requests(a)] == [e["output"] for e in _requests(b)]
    assert a.diff(b).config == {"admission": ("conservative", "optimistic")}


def _requests(trace: Any) -> list[dict]:
    return [{"prompt": r.prompt, "output": r.output} for r in trace.at(trace.history.last).requests.values()]


def test_one_opens_without_torch() -> None:
    code = (
        "import sys; from minisgl_widgets import runs, Replay, Tour, Quiz, SideBySide\n"
        "Replay(runs.five_prompts).html(); Tour.of('five_prompts').html(); Quiz(runs.five_prompts).html()\n"
        "SideBySide(runs.reserve, runs.retract).html()\n"
        "print(sorted({'torch', 'anywidget', 'plotly'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_a_replay_of_one_stores_its_page() -> None:
    replayed = Replay(runs.load("five_prompts"))
    assert repr(replayed).startswith("Replay(steps 0 to 16")
    shown = replayed._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "16 steps, 64 pages of 1 token" in shown


@pytest.mark.slow
def test_the_script_makes_the_same_runs(repo_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("make_runs", repo_root / "tools" / "make_runs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert module.main(["--check"]) == 0, capsys.readouterr().out
