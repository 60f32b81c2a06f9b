"""The functions that are said to make events make them, and no others do."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from minisgl.events.types import EVENT_TYPES
from minisgl.events.words import EMITTERS


def sites(folder: Path) -> dict[str, set[str]]:
    """Event type -> the functions in the sources that emit it: ``bus.emit(ev.X, ...)``, or ``ev.X(...)`` delivered."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.with_suffix("").relative_to(folder.parent).parts)
        body = ast.parse(path.read_text("utf-8")).body
        scopes = [(module, body), *((f"{module}.{n.name}", n.body) for n in body if isinstance(n, ast.ClassDef))]
        for scope, inside in scopes:
            for function in [n for n in inside if isinstance(n, ast.FunctionDef)]:
                calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
                named = [c.func.attr for c in calls if isinstance(c.func, ast.Attribute)]
                for call in calls:
                    if not isinstance(call.func, ast.Attribute):
                        continue
                    made = call.func
                    if made.attr == "emit" and isinstance(call.args[0], ast.Attribute):
                        made = call.args[0]
                    elif "deliver" not in named:
                        continue
                    if made.attr in {t.__name__ for t in EVENT_TYPES}:
                        found[made.attr].add(f"{scope}.{function.name}")
    return found


def test_each_event_names_the_functions_that_make_it(repo_root: Path) -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for package in ("scheduler", "kvcache", "engine", "sim"):
        for name, functions in sites(repo_root / "minisgl" / package).items():
            found[name] |= {f"minisgl.{f}" for f in functions}
    assert dict(found) == {cls.__name__: set(functions) for cls, functions in EMITTERS.items()}
    assert set(EMITTERS) == set(EVENT_TYPES)
