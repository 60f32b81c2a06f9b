"""Run notebooks again and store their outputs so that the same run always gives the same bytes.

    python tools/refresh_notebooks.py notebooks              # run and rewrite
    python tools/refresh_notebooks.py --check notebooks      # run, write nothing, fail where bytes would change

Outputs are kept on purpose: pytest --nbval compares them, and without outputs it would compare nothing.
What differs from run to run is removed: timings, ids of live widgets (their text and HTML stay) and editor metadata.
Of exported pages (Replay, Tour, Quiz, SideBySide) the frame with the page goes; text and still picture stay.
A cell that is not compared (tag nbval-ignore-output) keeps the output it has; clear it to store a new one.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
# a whole page, scripts and all: too much to store for what GitHub would not show
PAGE = re.compile(r'<iframe srcdoc="[^"]*"[^>]*></iframe>')
NOT_COMPARED = "nbval-ignore-output"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def normalise(nb: Any) -> Any:
    """Drop from an executed notebook, in place, all that two equal runs would not share."""
    nb.metadata = nbformat.from_dict(METADATA)
    nb.nbformat, nb.nbformat_minor = 4, 5
    taken: set[str] = set()
    for index, cell in enumerate(nb.cells):
        if not cell.get("id") or cell["id"] in taken:
            cell["id"] = f"cell-{index:03d}"
        taken.add(cell["id"])
        kept = {key: cell.metadata[key] for key in ("tags", "jupyter") if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
        if cell.cell_type != "code":
            continue
        merged: list[Any] = []
        for output in cell.outputs:
            output.get("data", {}).pop(WIDGET_VIEW, None)
            if "text/html" in output.get("data", {}):
                output.data["text/html"] = PAGE.sub("", output.data["text/html"])
            output.pop("transient", None)
            if "metadata" in output:
                output["metadata"].pop(WIDGET_VIEW, None)
            if output.output_type in ("display_data", "execute_result") and not output.data:
                continue
            # How a stream is cut into messages depends on timing; one output per stretch does not.
            if merged and output.output_type == "stream" == merged[-1].output_type and output.name == merged[-1].name:
                merged[-1].text += output.text
                continue
            merged.append(output)
        cell.outputs = merged
    return nb


def read(path: Path) -> Any:
    """Read a notebook of any 4.x version; cells without an id get one that depends only on their place."""
    nb = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    if nb.nbformat != 4:
        raise SystemExit(f"{path}: notebook format {nb.nbformat} is not supported, save it as version 4")
    for index, cell in enumerate(nb.cells):
        cell.setdefault("id", f"cell-{index:03d}")
    nb.nbformat_minor = max(nb.nbformat_minor, 5)
    return nb


def refreshed(path: Path, timeout: int) -> str:
    """The text of the notebook at ``path`` after a fresh run in its own folder."""
    nb = read(path)
    stored = [
        (cell, cell.outputs) for cell in nb.cells if NOT_COMPARED in cell.metadata.get("tags", []) and cell.outputs
    ]
    NotebookClient(
        nb,
        timeout=timeout,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    for cell, outputs in stored:
        cell.outputs = outputs
    normalise(nb)
    nbformat.validate(nb)
    return str(nbformat.writes(nb)).rstrip("\n") + "\n"


def find(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
        elif path.suffix == ".ipynb" and path.exists():
            found.append(path)
        else:
            raise SystemExit(f"{path}: neither a notebook nor a folder")
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run notebooks again and store their outputs, byte-stable.")
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("notebooks")])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the bytes would change")
    parser.add_argument("--timeout", type=int, default=120, metavar="SECONDS", help="for one cell (default 120)")
    args = parser.parse_args(argv)

    failed = 0
    for path in find(args.paths):
        before = path.read_text(encoding="utf-8")
        try:
            after = refreshed(path, args.timeout)
        except CellExecutionError as error:
            print(f"{path}: a cell failed\n{error}", file=sys.stderr)
            failed += 1
            continue
        if after == before:
            print(f"{path}: unchanged")
        elif args.check:
            diff = difflib.unified_diff(
                before.splitlines(), after.splitlines(), "committed", "run again", lineterm="", n=1
            )
            print(f"{path}: would change")
            print("\n".join(list(diff)[:40]))
            failed += 1
        else:
            path.write_text(after, encoding="utf-8")
            print(f"{path}: written, {len(after.encode()) / 1000:.1f} kB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
