"""Each view of a step as text and as plain HTML: for terminals, GitHub, nbconvert, and cells that tests compare.

All are functions of a Snapshot. ``texts`` maps token ids to what they say; without it ids are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from minisgl.events.snapshot import Snapshot
from minisgl_widgets.shown import Texts
from minisgl_widgets.static_decisions import handoff_html, handoff_text, ledger_html, ledger_text
from minisgl_widgets.static_pool import lamp_html, lamp_text, strip_html, strip_text
from minisgl_widgets.static_requests import requests_html, requests_text, tree_html, tree_text

VIEWS = {
    "lamp": (lamp_text, lamp_html),
    "strip": (strip_text, strip_html),
    "ledger": (ledger_text, ledger_html),
    "requests": (requests_text, requests_html),
    "tree": (tree_text, tree_html),
    "handoff": (handoff_text, handoff_html),
}


class View:
    """One view of one snapshot, or "all" of them: a notebook cell may end in it, and ``print`` gives its text."""

    def __init__(self, snap: Snapshot, names: Sequence[str], texts: Texts) -> None:
        self._snap, self._names, self._texts = snap, names, texts

    def __repr__(self) -> str:
        return "\n\n".join(VIEWS[name][0](self._snap, self._texts) for name in self._names)

    def _repr_html_(self) -> str:
        return "\n".join(VIEWS[name][1](self._snap, self._texts) for name in self._names)


def view(snap: Snapshot, name: str = "all", texts: Texts = None) -> View:
    """A view by name: lamp, strip, ledger, requests, tree, handoff, or all."""
    if name != "all" and name not in VIEWS:
        raise ValueError(f"no view {name!r}; the views are {', '.join(VIEWS)} and all")
    return View(snap, list(VIEWS) if name == "all" else [name], texts)
