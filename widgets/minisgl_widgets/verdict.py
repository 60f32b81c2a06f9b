"""Verdict: what comes of a change, in words: lines above WhatIf's picture, the table below it, and static forms."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import ipywidgets as W

from minisgl.sim.whatif import WhatIf
from minisgl_widgets.controls import ALERT
from minisgl_widgets.differences import as_html, as_text, differences, memory
from minisgl_widgets.whatif_still import pool_then_and_now

STYLE = """<style>
.msgl-what-if table { border-collapse: collapse; font-size: 13px; line-height: 1.5; }
.msgl-what-if th, .msgl-what-if td { padding: 1px 14px 1px 4px; border-bottom: 1px solid rgba(128, 128, 128, 0.3); }
.msgl-what-if td { font-variant-numeric: tabular-nums; }
.msgl-what-if th { text-align: right; }
.msgl-knob .widget-readout { min-width: 108px; padding-left: 8px; box-sizing: border-box; text-align: left; }
</style>"""


class Verdict:
    """``status`` says what is tried and ``alert`` what is wrong with it; ``table`` compares."""

    def __init__(self) -> None:
        self.status = W.HTML(layout=W.Layout(margin="4px 0 0 0"))
        self.alert = W.HTML(layout=W.Layout(margin="0"))
        self.table = W.HTML()

    def say(self, what: WhatIf, changes: str, how: str, errors: Sequence[str]) -> None:
        """``changes``: in words, what is tried. ``how``: how that was found out."""
        self.status.value = f'<div role="status"><b>{escape(changes)}</b> · {escape(how)}</div>'
        lines = "<br>".join(f"✕ {escape(line)}" for line in errors)
        self.alert.value = f'<div role="alert" style="{ALERT}">{lines}</div>' if lines else ""
        self.table.value = STYLE + f'<div class="msgl-what-if">{table(what)}</div>'


def notes(what: WhatIf) -> list[str]:
    """What to keep in mind."""
    return [*what.notes, *filter(None, [memory(what)])]


def table(what: WhatIf) -> str:
    """Figure by figure and the notes, as HTML."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes(what))
    return as_html(differences(what)) + (f"<ul>{items}</ul>" if items else "")


def text(what: WhatIf, errors: Sequence[str]) -> str:
    """All of it in characters."""
    changes = ", ".join(f"{n}={v!r}" for n, v in what.changes.items()) or "everything as recorded"
    lines = [f"WhatIf({changes})", *(f"✕ {line}" for line in errors), as_text(differences(what))]
    return "\n".join([*lines, *(f"note: {note}" for note in notes(what))])


def html(what: WhatIf, changes: str, errors: Sequence[str]) -> str:
    """All of it for whoever shows no widgets."""
    wrong = "".join(f"<p>✕ {escape(line)}</p>" for line in errors)
    return f"<p><b>What if {escape(changes)}?</b></p>{wrong}{pool_then_and_now(what)}{table(what)}"
