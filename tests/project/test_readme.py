"""The README's Python runs as printed; its commands and links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.S | re.M)


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "widgets")])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def after_the_python(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess]:
    """The folder in which all the Python was run, and what came of it."""
    folder = tmp_path_factory.mktemp("readme")
    return folder, python("-c", "\n".join(blocks("python")), folder=folder)  # each goes on where the last one stopped


@pytest.mark.slow
def test_the_python_runs(after_the_python: tuple[Path, subprocess.CompletedProcess]) -> None:
    _, done = after_the_python
    assert done.returncode == 0, done.stderr
    for said in (
        *("Paris", "Snapshot(step=3", "request 1 is admitted: needs 9, 0 promised, 64 in all"),
        *("cliff between num_pages=64 and 72", "Request 2 spent 15 steps", "Without request 0", "never used"),
        *("\n  2        16            60", "settings change: order=shortest"),  # the fork: request 2 comes in later
    ):
        assert said in done.stdout, said


@pytest.mark.slow
def test_the_commands_say_what_is_printed(after_the_python: tuple[Path, subprocess.CompletedProcess]) -> None:
    folder, _ = after_the_python
    said = re.findall(r"^\$ python (.*)\n((?:(?!\$ ).*\n)+)", "".join(blocks("console")), re.M)
    assert len(said) == 3
    for command, output in said:
        done = python(*command.split(), folder=folder)
        assert done.stdout == output, done.stderr


@pytest.mark.slow
def test_the_other_commands_work(after_the_python: tuple[Path, subprocess.CompletedProcess]) -> None:
    folder, _ = after_the_python
    rows = re.findall(r"^\| `(trace [^`]*)` \|(.*)", README, re.M)
    assert len(rows) == 5
    for command, about in rows:
        for option in re.findall(r"`(--[a-z]+)`", about) or [""]:
            if option in ("--csv", "--json"):
                option = f"--steps {option}"
            words = f"{command} {option}".replace("FILE", "run.jsonl.zst").replace("OTHER", "overlap.jsonl.zst")
            done = python("-m", "minisgl", *words.replace("OUT", "out").split(), folder=folder)
            assert done.returncode == ("diff" in words) and done.stdout and not done.stderr, (words, done)


def test_the_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", README, re.M))
    assert {name for pair in named for name in pair if name} - targets == set()


def test_the_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
