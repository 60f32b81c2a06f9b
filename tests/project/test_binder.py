"""The Binder folder cannot be built here, but it can be read, and must name what pyproject.toml names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
BINDER = ROOT / "binder"
CONDA_NAME = {"torch": "pytorch-cpu"}  # the build without CUDA
SCRIPTS = ["postBuild", "start"]


def conda_names() -> set[str]:
    environment = yaml.safe_load((BINDER / "environment.yml").read_text(encoding="utf-8"))
    return {re.split(r"[<>=!~ ]", entry, maxsplit=1)[0] for entry in environment["dependencies"]}


def test_environment_names_what_pyproject_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(r).name for r in [*project["dependencies"], *project["optional-dependencies"]["lab"]]]
    assert conda_names() == {"python", "pip"} | {CONDA_NAME.get(name, name) for name in wanted}


def test_environment_is_complete_in_itself() -> None:
    environment = yaml.safe_load((BINDER / "environment.yml").read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert "python=3.11" in environment["dependencies"]
    # With a binder folder these would be ignored in silence, or fight with the environment.
    assert not (BINDER / "requirements.txt").exists() and not (BINDER / "runtime.txt").exists()


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_can_run(name: str) -> None:
    script = BINDER / name
    assert os.access(script, os.X_OK), f"chmod +x binder/{name}"
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)


def test_post_build_stops_at_the_first_error() -> None:
    """Binder ignores a failed line unless the script says otherwise."""
    assert "set -euo pipefail" in (BINDER / "postBuild").read_text(encoding="utf-8").splitlines()


def test_start_hands_over_to_the_server() -> None:
    done = subprocess.run(
        [str(BINDER / "start"), "bash", "-c", "echo $OMP_NUM_THREADS"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout == "1\n"
