"""What no committed file may hold: paths of the machine it was written on, and what must not be committed at all."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Folders that exist on one machine only. Put together here, so that this file does not hold what it looks for.
MACHINE_FOLDERS = ["home", "Users", "root", "mnt", "work", "workspace", "private", "tmp", "opt"]
MACHINE_PATH = re.compile(r"(?<![\w.:/<>$})*-])/(?:" + "|".join(MACHINE_FOLDERS) + r")/[\w.-]+|\b[A-Z]:\\Users\\")
# A tool's own well-known places, not somebody's machine.
ALLOWED = re.compile(r"/(?:home/jovyan|opt/conda|opt/homebrew)\b")
MAX_BYTES = 2_000_000


def committed() -> list[Path]:
    """Files that git holds or would add; without git, all files of a fresh copy."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
        return sorted(p for name in set(listed.split("\0")) - {""} if (p := ROOT / name).is_file())
    hidden = {".venv", ".git", "__pycache__"}
    return sorted(p for p in ROOT.rglob("*") if p.is_file() and not hidden & set(p.relative_to(ROOT).parts))


FILES = committed()


def machine_paths(text: str) -> list[str]:
    return [m.group() for m in MACHINE_PATH.finditer(text) if not ALLOWED.match(m.group())]


def test_no_file_names_a_machine() -> None:
    found = {}
    for path in FILES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or a compressed trace
        paths = machine_paths(text) + ([str(ROOT)] if len(ROOT.parts) > 2 and str(ROOT) in text else [])
        if paths:
            found[str(path.relative_to(ROOT))] = sorted(set(paths))
    assert found == {}


@pytest.mark.parametrize("folder", MACHINE_FOLDERS)
def test_a_machine_path_is_seen(folder: str) -> None:
    path = "/".join(["", folder, "someone", "file.py"])
    assert machine_paths(f'File "{path}", line 3') and machine_paths(path)


@pytest.mark.parametrize("text", ["https://example.org/home/page", "/v1/completions", "tests/tmp/x", "$(HOME)/some/x"])
def test_other_slashes_are_let_through(text: str) -> None:
    assert machine_paths(text) == []


def test_files_are_small_enough_to_read() -> None:
    assert {str(p.relative_to(ROOT)): p.stat().st_size for p in FILES if p.stat().st_size > MAX_BYTES} == {}


def test_weights_are_not_committed() -> None:
    weights = {".gguf", ".safetensors", ".bin", ".pt", ".pth"}
    assert [str(p.relative_to(ROOT)) for p in FILES if p.suffix in weights] == []
