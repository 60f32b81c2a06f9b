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


@pytest.mark.slow
def test_the_python_runs(tmp_path: Path) -> None:
    code = "\n".join(blocks("python"))  # each goes on where the last one stopped
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "widgets")])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for said in ("Paris", "Snapshot(step=3", "request 1 is admitted: needs 9, 0 promised, 64 in all"):
        assert said in done.stdout


def test_the_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", README, re.M))
    assert {name for pair in named for name in pair if name} - targets == set()


def test_the_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
