"""One JavaScript module out of the files in ``static``: anywidget and the exported page load a single string.

There is no bundler. Each file imports only names from its neighbours, top-level names are unique across files, and
``widget.js`` alone has a default export; so joining the files in the order of their imports, without the import lines
and the ``export`` keywords, gives the same program.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
ENTRY = "widget.js"

_IMPORT = re.compile(r"""^import\s*\{[^}]*\}\s*from\s*["']\./(?P<file>[\w-]+\.js)["'];?[ \t]*\n""", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default\b)", re.MULTILINE)


def order(entry: str = ENTRY, folder: Path = STATIC) -> list[str]:
    """The files ``entry`` needs and ``entry`` itself, each after what it imports."""
    found: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"the files import each other in a circle: {' -> '.join((*above, name))}")
        if name in found:
            return
        for match in _IMPORT.finditer((folder / name).read_text("utf-8")):
            visit(match["file"], (*above, name))
        found.append(name)

    visit(entry, ())
    return found


@cache
def bundle() -> str:
    """The views as one module, for ``anywidget.AnyWidget._esm``."""
    parts = []
    for name in order():
        text = _EXPORT.sub("", _IMPORT.sub("", (STATIC / name).read_text("utf-8")))
        parts.append(f"// {name}\n{text.replace('// @ts-check', '', 1).strip()}\n")
    return "\n".join(parts)


@cache
def styles() -> str:
    """The views' style sheets, ``stage.css`` first, for ``anywidget.AnyWidget._css``."""
    files = sorted(STATIC.glob("*.css"), key=lambda path: (path.name != "stage.css", path.name))
    return "\n".join(path.read_text("utf-8") for path in files)
