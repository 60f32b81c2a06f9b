"""The Makefile's help, its choice of PyTorch build, and the reasons it gives when a stage cannot work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="GNU make is not installed")


def make(*args: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {
        k: v for k, v in os.environ.items() if k not in ("CI", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "TORCH", "TORCH_PIP")
    }
    if path is not None:
        env["PATH"] = path + os.pathsep + env["PATH"]
    command = ["make", "--no-print-directory", *args]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def program(folder: Path, name: str, body: str) -> str:
    """A stand-in program at the front of PATH."""
    (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return str(folder)


def test_help_names_every_target_for_people() -> None:
    done = make()
    assert done.returncode == 0
    listed = re.findall(r"^  ([a-z-]+) +\S", done.stdout, re.M)
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert phony and sorted(listed) == sorted(phony.group(1).split())


@pytest.mark.parametrize(
    ("args", "gpu", "system", "expected"),
    [
        ((), "exit 0", "Linux", "torch"),
        ((), "exit 9", "Linux", "torch --index-url https://download.pytorch.org/whl/cpu"),
        (("TORCH=cpu",), "exit 0", "Linux", "torch --index-url https://download.pytorch.org/whl/cpu"),
        (("TORCH=cuda",), "exit 9", "Linux", "torch"),
        ((), "exit 9", "Darwin", "torch"),
        (("TORCH_PIP=torch==2.9.0",), "exit 9", "Linux", "torch==2.9.0"),
    ],
)
def test_which_torch(tmp_path: Path, args: tuple[str, ...], gpu: str, system: str, expected: str) -> None:
    path = program(tmp_path, "nvidia-smi", gpu)
    program(tmp_path, "uname", f"echo {system}")
    done = make("-n", "env", f"VENV={tmp_path}/venv", *args, path=path)
    assert f"install  {expected} ||" in done.stdout, done.stdout + done.stderr


def test_an_unknown_torch_is_refused() -> None:
    done = make("-n", "env", "TORCH=tpu")
    assert done.returncode != 0 and "TORCH=tpu is not known" in done.stderr


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('case "$1" in -V) echo Python 3.8.1;; *) exit 1;; esac', "is Python 3.8.1, but 3.10 or later is needed"),
        ('case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac', "has no venv module"),
    ],
)
def test_an_unfit_python_is_named(tmp_path: Path, body: str, reason: str) -> None:
    path = program(tmp_path, "oldpython", body)
    done = make("env", f"VENV={tmp_path}/venv", "PYTHON=oldpython", path=path)
    assert done.returncode != 0 and reason in done.stdout
    assert not (tmp_path / "venv").exists()


def test_a_missing_python_is_named(tmp_path: Path) -> None:
    done = make("env", f"VENV={tmp_path}/venv", "PYTHON=no-such-python")
    assert done.returncode != 0 and "there is no 'no-such-python' here" in done.stdout


def test_ci_script_is_sound() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text and "MINISGL_REQUIRE_BROWSER=1" in text
    assert text.rstrip().splitlines()[-1].startswith("exec make test"), "pytest's closing line and exit code come last"
