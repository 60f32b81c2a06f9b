"""The command line: what it prints, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import msgspec
import pytest

from minisgl import cli
from minisgl.errors import TraceError
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from tests.fakes import Run

ROOT = Path(__file__).resolve().parents[1]


def played(**settings) -> Trace:
    run = Run(**({"num_pages": 16, "page_size": 2, "max_seq_len": 32} | settings))
    with Recorder(run, title="Four prompts") as recorder:
        for prompt in ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 9, 9], list(range(20))):
            run.submit(prompt, 6)
        run.play()
    return recorder.trace


@pytest.fixture(autouse=True)
def files(monkeypatch, tmp_path):
    """Names that load: a run, the same in a bigger pool, and one that leaks pages."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    run, bigger = played(), played(num_pages=20)
    events = [e for e in run.events if not isinstance(e, ev.PagesFreed)]
    known = {"run": run, "same": played(), "bigger": bigger, "leaks": Trace(run.keyframe, events, {})}

    def load(path):
        if path == "damaged":
            raise TraceError("damaged: line 3 is not an event;\nthe first 2 are whole")
        if path == "short":
            warnings.warn("short was cut after line 8", stacklevel=2)
            path = "run"
        if path not in known:
            raise FileNotFoundError(2, "No such file or directory", path)
        return known[path]

    monkeypatch.setattr(Trace, "load", staticmethod(load), raising=False)
    return known


def run(*args: str) -> int:
    return cli.main(["trace", *args])


class TestShow:
    def test_overview(self, capsys):
        assert run("show", "run") == 0
        out = capsys.readouterr().out
        assert out.startswith("Four prompts: Trace(steps 1 to 13, ") and "page_size=2" in out
        assert "4 requests, 4 finished, in 13 steps" in out and "hit rate: 5.9%" in out
        assert "\nuid  prompt_tokens  cached_tokens" in out and "decode" in out and "more" not in out

    def test_long_runs_are_cut(self, capsys, files):
        long = Run(num_pages=64)
        with Recorder(long) as recorder:
            for i in range(30):
                long.submit([i], 30)
            long.play()
        files["long"] = recorder.trace
        assert run("show", "long") == 0
        out = capsys.readouterr().out
        assert "... and 10 more rows" in out and f"... and {len(recorder.trace.steps) - 20} more batches" in out

    def test_one_step(self, capsys, files):
        assert run("show", "run", "--step", "3") == 0
        assert capsys.readouterr().out == files["run"].at(3).text() + "\n"
        assert run("show", "run", "--step", "3", "--json") == 0
        assert json.loads(capsys.readouterr().out)["step"] == 3

    @pytest.mark.parametrize("name", cli.TABLES)
    def test_tables(self, capsys, files, name):
        table = getattr(files["run"], name)
        assert run("show", "run", f"--{name}") == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 100, "as wide as the terminal"
        said = out.replace(",\n    ", ", ").replace("\n    ", " ")
        assert all(re.search(rf"\b{column}\b", said) for column in table), "what has no room is named"
        if name == "pages":
            assert " free " in out and " cache " in out and "-2" not in out
        else:
            assert out == table.text(width=100) + "\n"
        assert run("show", "run", f"--{name}", "--csv") == 0
        rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
        assert rows == [list(table), *([str(v) for v in row.values()] for row in table.rows())]
        assert run("show", "run", f"--{name}", "--json") == 0
        assert len(json.loads(capsys.readouterr().out)) == len(table)

    def test_figures_as_json(self, capsys, files):
        assert run("show", "run", "--json") == 0
        assert json.loads(capsys.readouterr().out) == files["run"].figures.to_dict()

    def test_csv_of_what(self, capsys):
        with pytest.raises(SystemExit) as stop:
            run("show", "run", "--csv")
        assert stop.value.code == 2 and "--csv needs a table: --requests" in capsys.readouterr().err


@pytest.mark.parametrize(("args", "commands"), [([], ["trace"]), (["trace"], ["show", "diff", "check", "export"])])
def test_without_a_command_it_says_which_there_are(capsys, args, commands):
    assert cli.main(args) == 2
    out = capsys.readouterr().out
    assert all(re.search(rf"^    {command}\b", out, re.M) for command in commands)


class TestDiff:
    def test_same(self, capsys):
        assert run("diff", "run", "same", "--times") == 0
        assert capsys.readouterr().out == "no event differs\n"

    def test_other(self, capsys):
        assert run("diff", "run", "bigger") == 1
        out = capsys.readouterr().out
        assert "num_pages: 16, 20" in out and "the first:\nstep 1\n" in out

    def test_times_alone(self, capsys, files):
        later = played()
        later.events[0] = msgspec.structs.replace(later.events[0], submitted=-1.0)
        files["later"] = later
        assert run("diff", "run", "later") == 0
        assert run("diff", "run", "later", "--times") == 1
        assert "submitted: 0.0, -1.0" in capsys.readouterr().out


class TestCheck:
    def test_sound(self, capsys):
        assert run("check", "run") == 0
        assert "sound, every page had one owner at every step" in capsys.readouterr().out

    def test_leaks(self, capsys):
        assert run("check", "leaks") == 1
        out = capsys.readouterr().out
        assert out.startswith("step ") and "leaked" in out and "broken rules" in out


class TestExport:
    @pytest.mark.parametrize("format", ["perfetto", "kv-events"])
    def test_file(self, capsys, format):
        assert run("export", "run", "out.json", "--format", format) == 0
        assert capsys.readouterr().out == f"out.json: {Path('out.json').stat().st_size} bytes\n"
        for line in Path("out.json").read_text().splitlines():
            json.loads(line)

    def test_nowhere(self, capsys):
        assert run("export", "run", "no/such/folder", "--format", "perfetto") == 2
        assert capsys.readouterr().err == "minisgl: no/such/folder: No such file or directory\n"

    def test_unknown_format(self, capsys):
        with pytest.raises(SystemExit) as stop:
            run("export", "run", "out", "--format", "xml")
        assert stop.value.code == 2 and "perfetto" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("show", "nothing"), "nothing: No such file or directory"),
        (("check", "nothing"), "nothing: No such file or directory"),
        (("diff", "run", "nothing"), "nothing: No such file or directory"),
        (("show", "damaged"), "damaged: line 3 is not an event; the first 2 are whole"),
        (("show", "run", "--step", "99"), "step 99 is not in this run: it holds steps 0 to 13"),
    ],
)
def test_what_cannot_be_done_is_one_line(capsys, args, says):
    assert run(*args) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"minisgl: {says}\n")


def test_a_warning_is_one_line(capsys):
    assert run("check", "short") == 0
    assert capsys.readouterr().err == "minisgl: short was cut after line 8\n"


def python(code: str, **more) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=pipe, stderr=pipe, text=True, **more)


def test_a_pipe_that_closes_early():
    code = """
import sys
from minisgl import cli
from minisgl.events.trace import Trace
from tests.fakes import Run
from minisgl.events.recorder import Recorder
run = Run(num_pages=64)
with Recorder(run) as recorder:
    run.submit([1], 60)
    run.play()
trace = recorder.trace
trace.events = trace.events * 100
Trace.load = staticmethod(lambda path: trace)
sys.exit(cli.main(["trace", "show", "run", "--steps"]))
"""
    process = python(code)
    assert process.stdout.readline().startswith("step")
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(60) == cli.SIGPIPE
    process.stderr.close()


def test_it_needs_neither_torch_nor_a_model():
    code = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import runpy
sys.argv = ["minisgl", "trace", "--help"]
runpy.run_module("minisgl", run_name="__main__")
"""
    process = python(code)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert all(word in out for word in ("show", "diff", "check", "export", "python -m minisgl trace"))
