"""Bars for what may take long. Nothing of them stays when it is done, in a notebook's stored outputs neither."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

DELAY = 2.0  # seconds; what takes less shows no bar


def progress_bar(what: str, unit: str, items: Iterable | None = None, total: int = 0, show: bool = True) -> Any:
    """A tqdm over ``items``, or of ``total`` that are counted with ``update``, shown after 2 seconds.

    tqdm's own bar for notebooks is a widget: its output stays in the cell, and after reopening an error stands there.
    """
    from tqdm import tqdm

    ipython: Any = sys.modules.get("IPython")  # imported, wherever there is a notebook
    in_notebook = ipython and hasattr(ipython.get_ipython(), "kernel")
    file = _Cell(ipython.display.display) if in_notebook else None
    return tqdm(items, what, total or None, leave=False, file=file, unit=unit, delay=DELAY, disable=not show)


class _Cell:
    """Where tqdm writes in a notebook: one output of the cell at hand. Without data, as in the end, it shows nothing.

    It begins so as well: who runs notebooks and does not follow updates (nbval) sees nothing that could differ.
    """

    encoding = "utf-8"  # tqdm asks whether it may draw blocks

    def __init__(self, display: Any) -> None:
        self._display = display
        self._output: Any = None

    def write(self, text: str) -> None:
        if not text.startswith("\r"):
            return  # a move between lines, where bars stand below each other
        if self._output is None:
            self._output = self._display({}, raw=True, display_id=True)
        self._output.update({"text/plain": text.strip()} if text.strip() else {}, raw=True)

    def flush(self) -> None:
        """Every write is seen at once."""
