"""The scheduler with its events cut out of the source: what "nobody listens" is compared with."""

from __future__ import annotations

import ast
import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any

EMITTERS = ("minisgl.kvcache", "minisgl.scheduler")  # every module that emits lives in one of these


class _Cut(ast.NodeTransformer):
    """Remove ``if [self.]bus ...:`` blocks and statements that call ``bus.emit`` or ``bus.deliver``."""

    def __init__(self) -> None:
        self.removed = 0

    def visit_If(self, node: ast.If) -> ast.AST:
        asked = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        if any(ast.unparse(part).endswith("bus") for part in asked):
            self.removed += 1
            return ast.Pass()
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith(("bus.emit", "bus.deliver")):
            self.removed += 1
            return ast.Pass()
        return node


class _Loader(SourceFileLoader):
    removed = 0

    def get_code(self, fullname: str) -> Any:
        """From the source each time, so that no bytecode of a cut module is ever stored."""
        path = self.get_filename(fullname)
        cut = _Cut()
        tree = cut.visit(ast.parse(self.get_data(path), path))
        _Loader.removed += cut.removed
        return compile(ast.fix_missing_locations(tree), path, "exec")


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(EMITTERS):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


def scheduler_without_events() -> type:
    """A ``Scheduler`` class, apart from the installed one, that never looks at its bus."""

    def ours() -> dict[str, Any]:
        return {name: module for name, module in sys.modules.items() if name.startswith(EMITTERS)}

    importlib.import_module("minisgl.scheduler")
    kept, finder = ours(), _Finder()
    package = sys.modules["minisgl"]
    attributes = {name.split(".")[1]: getattr(package, name.split(".")[1]) for name in EMITTERS}
    for name in kept:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        cut = importlib.import_module("minisgl.scheduler").Scheduler
    finally:
        sys.meta_path.remove(finder)
        for name in ours():
            del sys.modules[name]
        sys.modules |= kept
        for name, module in attributes.items():
            setattr(package, name, module)
    assert _Loader.removed >= 10, f"only {_Loader.removed} emit sites found: do they look different now?"
    return cut
