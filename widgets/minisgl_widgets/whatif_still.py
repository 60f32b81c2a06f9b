"""What if, as a picture without scripts: the pool over the steps as recorded, and as it would be."""

from __future__ import annotations

import numpy as np

from minisgl.config import EngineConfig
from minisgl.sim.outcome import Outcome
from minisgl.sim.whatif import WhatIf
from minisgl_widgets import palette
from minisgl_widgets.plot import MOST_COLUMNS, Plot, columns, key


def pool_then_and_now(what: WhatIf) -> str:
    """Occupied and promised tokens after each step, dashed as recorded; tokens, so that pages of two sizes compare."""
    before, after = _tokens(what.before, what.base), _tokens(what.after, what.config)
    if not len(before) or not len(after):
        return ""
    plot = Plot(0, max(len(before), len(after)), int(max(before.max(), after.max(), 1)))
    title = f"tokens occupied or promised over {plot.steps} steps: at most {after.max()}, as recorded {before.max()}"
    lines = [
        _line(plot, before, f'"{palette.GREY}" stroke-dasharray="5 3"'),
        _line(plot, after, f'"{palette.KINDS["owned"]}"'),
    ]
    legend = f"<p>{key(palette.KINDS['owned'], 'now')} &nbsp; {key(palette.GREY, 'as recorded, dashed')}</p>"
    return f"<b>{title[:1].upper()}{title[1:]}</b><br>{plot.svg(lines, title)}{legend}"


def _tokens(outcome: Outcome, config: EngineConfig) -> np.ndarray:
    """After each step. Of those that were taken together only the last has a row: decoding turns promises into pages,
    so until then the sum is what it was before."""
    curve = outcome.curve
    at = np.maximum(0, np.searchsorted(curve.step, np.arange(1, outcome.steps + 1), side="right") - 1)
    return (curve.occupied + curve.promised)[at] * config.page_size


def _line(plot: Plot, values: np.ndarray, stroke: str) -> str:
    shown = columns(len(values), MOST_COLUMNS)
    path = plot.outline(shown, [int(values[c.start : c.stop].max()) for c in shown])
    return f'<path d="{path}" fill="none" stroke={stroke} stroke-width="2.5"/>'
