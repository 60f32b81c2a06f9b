"""Who may import whom. The map is the design's section on layout; arrows run downwards only."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"minisgl": ROOT / "minisgl", "minisgl_widgets": ROOT / "widgets" / "minisgl_widgets"}

BASE = {"core", "config", "errors", "collector", "progress"}
RUNNER = {"engine", "attention", "layers", "models", "moe", "kernel", "distributed"}
# What each part may import, itself always included. "kvcache.pool" holds tensors and lives with the engine.
_BELOW_SCHEDULER = BASE | {"events", "kvcache"}
_BELOW_LLM = _BELOW_SCHEDULER | {"scheduler", "sim", "kvcache.pool"} | RUNNER
MAY_IMPORT: dict[str, set[str]] = {
    "core": BASE,
    "config": BASE,
    "errors": set(),
    "collector": set(),
    "progress": set(),
    "events": BASE,
    "kvcache": BASE | {"events"},
    "kvcache.pool": BASE,
    "scheduler": _BELOW_SCHEDULER,
    "sim": _BELOW_SCHEDULER | {"scheduler", "prompts"},
    **{part: _BELOW_SCHEDULER | {"scheduler", "kvcache.pool"} | RUNNER for part in RUNNER},
    # within the runner: attention < layers < models < engine
    "attention": BASE | {"kvcache.pool"},
    "layers": BASE | {"attention"},
    "models": BASE | {"attention", "layers", "kvcache.pool"},
    "outputs": BASE | {"events"},  # what LLM gives back; no engine in it
    "prompts": BASE,
    "llm": _BELOW_LLM | {"outputs", "prompts"},
    "server": _BELOW_LLM | {"outputs", "prompts", "llm"},
    # The package itself only hands names on, lazily; the command line stands above everything.
    "": _BELOW_LLM | {"outputs", "prompts", "llm"},
    "cli": BASE | {"events"},  # recorded runs only, so that it works without torch
    "__main__": {"cli"} | _BELOW_LLM | {"outputs", "prompts", "llm", "server", "demo", "minisgl_widgets", ""},
    "demo": _BELOW_LLM | {"outputs", "prompts", "llm", "minisgl_widgets", ""},
    "minisgl_widgets": BASE | {"events", "sim", "outputs", "prompts", "llm", ""},
}
NO_TORCH = {"", "cli", "collector", "core", "config", "errors", "events", "kvcache", "progress", "scheduler", "sim"}
NO_NOTEBOOK = {"anywidget", "ipywidgets", "plotly", "IPython"}


@dataclass(frozen=True)
class Import:
    module: str  # absolute dotted name
    line: int
    typing_only: bool  # under `if TYPE_CHECKING:`
    at_import: bool  # runs when the module is imported, not inside a function


def imports(source: str, module: str, is_package: bool) -> list[Import]:
    """Every import in a source text, relative ones resolved; `from a import b` counts as `a.b`."""
    package = module if is_package else module.rpartition(".")[0]
    found: list[Import] = []

    def visit(node: ast.AST, typing_only: bool, at_import: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, typing_only, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            found.extend(Import(f"{base}.{alias.name}", node.lineno, typing_only, at_import) for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            at_import = False
        elif isinstance(node, ast.If):
            guard = ast.unparse(node.test)
            if guard in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                for child in node.body:
                    visit(child, True, at_import)
                for child in node.orelse:
                    visit(child, typing_only, at_import)
                return
        for child in ast.iter_child_nodes(node):
            visit(child, typing_only, at_import)

    visit(ast.parse(source), False, True)
    return found


def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module in both packages."""
    found = {}
    for package, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def part_of(module: str) -> str:
    """The part of the map that a dotted name belongs to: "minisgl.engine.runner" -> "engine"."""
    head, *rest = module.split(".")
    if head == "minisgl_widgets":
        return "minisgl_widgets"
    if rest[:2] == ["kvcache", "pool"]:
        return "kvcache.pool"
    if not rest or (f"minisgl.{rest[0]}" not in MODULES and not (SOURCES["minisgl"] / rest[0]).is_dir()):
        return ""  # a name of the package itself: `from minisgl import LLM`
    return rest[0]


def wrong_arrows(module: str, source: str, is_package: bool) -> list[str]:
    part = part_of(module)
    if part not in MAY_IMPORT:
        return [f"{module}: not on the map; add {part!r} to MAY_IMPORT and to the design's layout"]
    wrong = []
    for found in imports(source, module, is_package):
        if found.module.split(".")[0] not in SOURCES:
            continue
        target = part_of(found.module)
        if target != part and target not in MAY_IMPORT[part]:
            wrong.append(f"{module}:{found.line} imports {found.module}, which is not below it")
    return wrong


def wrong_outsiders(module: str, source: str, is_package: bool) -> list[str]:
    """Torch where only books are kept; notebook packages in the engine."""
    part, wrong = part_of(module), []
    for found in imports(source, module, is_package):
        top = found.module.split(".")[0]
        if part in NO_TORCH and top == "torch" and not found.typing_only:
            wrong.append(f"{module}:{found.line} imports torch, but {part or 'minisgl'} only keeps books")
        if part not in ("minisgl_widgets", "__main__", "demo") and top in NO_NOTEBOOK:
            wrong.append(f"{module}:{found.line} imports {top}; the engine must run without notebooks")
        if part == "" and top in SOURCES and found.at_import and not found.typing_only:
            wrong += [f"{module}:{found.line} imports {found.module} at once; `import minisgl` must stay lazy"] * (
                part_of(found.module) not in BASE
            )
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_downwards(module: str) -> None:
    path = MODULES[module]
    source, is_package = path.read_text(encoding="utf-8"), path.name == "__init__.py"
    assert wrong_arrows(module, source, is_package) + wrong_outsiders(module, source, is_package) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("minisgl.kvcache.radix", "from minisgl.scheduler.executor import Executor"),
        ("minisgl.kvcache.radix", "def f():\n    from minisgl import scheduler"),
        ("minisgl.scheduler.scheduler", "from minisgl.kvcache import pool"),
        ("minisgl.scheduler.scheduler", "if True:\n    from ..kvcache.pool import KVPool"),
        ("minisgl.scheduler.scheduler", "import minisgl.models.hub"),
        ("minisgl.kvcache.pool", "from minisgl.models.config import ModelConfig"),
        ("minisgl.layers.rotary", "from minisgl.models.config import RopeConfig"),
        ("minisgl.core", "from .events import Recorder"),
        ("minisgl_widgets.grid", "from minisgl.scheduler.executor import Executor"),
        ("minisgl_widgets.grid", "from minisgl.kvcache.radix import Node"),
        ("minisgl.brand_new", "import os"),
    ],
)
def test_a_wrong_arrow_is_seen(module: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (module, "minisgl.scheduler", "minisgl.kvcache", "minisgl.models", "minisgl.events"):
        monkeypatch.setitem(MODULES, name, Path())
    assert wrong_arrows(module, source, is_package=False)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("minisgl.core", "import torch"),
        ("minisgl.events.fold", "def f():\n    from torch import tensor"),
        ("minisgl.llm", "import plotly.graph_objects as go"),
    ],
)
def test_a_wrong_outsider_is_seen(module: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("minisgl.events", "minisgl.llm"):
        monkeypatch.setitem(MODULES, name, Path())
    assert wrong_outsiders(module, source, is_package=False)


def test_books_are_kept_without_torch() -> None:
    """In a fresh interpreter that has no torch, everything that only keeps books can be imported."""
    books = [
        name
        for name in MODULES
        if part_of(name) in NO_TORCH and name.split(".")[0] == "minisgl" and not name.endswith("__main__")
    ]
    script = f"""
import importlib, sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"{{name}} is out of bounds here", name=name)
sys.meta_path.insert(0, NoTorch())
for name in {["minisgl", *books]!r}:
    importlib.import_module(name)
assert "torch" not in sys.modules
"""
    paths = [str(ROOT), str(ROOT / "widgets")]
    code = f"import sys; sys.path[:0] = {paths!r}\n{script}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_import_minisgl_is_lazy() -> None:
    """`import minisgl` loads neither torch nor transformers, although both are installed."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import minisgl; "
        "print(sorted({'torch', 'transformers', 'ipywidgets', 'plotly'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
