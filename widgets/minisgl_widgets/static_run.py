"""The pool over all steps of a run, as text and plain HTML; as the tab "Used, promised, free" of a Stage."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from minisgl.events.history import History
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.sim.answers.pictures import WIDTH
from minisgl_widgets import palette
from minisgl_widgets.plot import LEFT, MOST_COLUMNS, RIGHT, Plot, columns, key
from minisgl_widgets.session import Run, Session
from minisgl_widgets.shown import Shown

COLUMNS, ROWS = 96, 10  # of the pool in characters
HATCH = 6  # pixels between two lines


def counters(run: Trace | History, scheduled: bool = False) -> dict[str, list[int]]:
    """The counters of every step from 1 on, and ``step`` itself.

    ``scheduled``: as BatchScheduled saw them (after allocation, before processing), instead of at the step's end; a
    step that scheduled nothing keeps those of its end.
    """
    history = run if isinstance(run, History) else run.history
    now = dict(history.at(history.first).counters)
    found: dict[str, list[int]] = {"step": []} | {name: [] for name in now}
    for index, delta in enumerate(history.deltas):
        at_launch = None
        for kind, path, *what in delta:
            if kind == "column" and path[0] == "counters":
                names, _, news = what
                now |= dict(zip(names, news if isinstance(news, (tuple, list)) else [news] * len(names), strict=True))
            elif path == ("batch",):
                at_launch = dict(now)
        found["step"].append(history.first + index + 1)
        for name, value in (at_launch if scheduled and at_launch else now).items():
            found[name].append(value)
    return found


def pool_picture(run: Run, scheduled: bool = False, steps: int = 0, pages: int = 0) -> Shown:
    """Pages used, promised and left over the steps: the price of promising the worst case is the hatched gap.

    A column that stands for several steps shows the one with most pages used or promised. ``scheduled``: as each batch
    saw it, see ``counters``. ``steps`` across and ``pages`` up at least, so that pictures of two runs can be compared.
    """
    history = Session.of(run).history
    n, whole = history.last - history.first, history.at(history.first).num_pages
    title = f"{count(whole, 'page')} over steps {history.first + 1} to {history.last}: used, promised, left to promise"
    if not n:
        return Shown("no step yet", "<p>No step yet.</p>")
    c = counters(history, scheduled)
    parts = zip(c["owned_pages"], c["pending_pages"], c["protected_pages"], strict=True)
    used = [owned - pending + locked for owned, pending, locked in parts]
    both = [u + promised for u, promised in zip(used, c["reserved_pages"], strict=True)]

    def most(of: Sequence[int]) -> str:
        return f"{max(of)} (step {history.first + 1 + of.index(max(of))})"

    promised = [b - u for b, u in zip(both, used, strict=True)]
    numbers = f"most used {most(used)}, most promised {most(promised)}; at the end {used[-1]} and {promised[-1]}"
    lines = _in_characters(used, both, max(whole, pages), max(n, steps))
    signs = "# used (owned, or cached and locked), : promised, not taken yet, . left to promise"
    plot = Plot(history.first, max(n, steps), max(whole, pages))
    shown = columns(n, MOST_COLUMNS)
    peaks = [max(c, key=lambda i: both[i]) for c in shown]
    low, high = [used[i] for i in peaks], [both[i] for i in peaks]
    drawn = [
        _hatched(plot, shown, low, high),
        plot.area(shown, low, palette.KINDS["owned"]),
        f'<path d="{plot.outline(shown, high)}" fill="none" stroke="currentColor" stroke-width="1.5"/>',
    ]
    blue = key(palette.KINDS["owned"], "used (owned, or cached and locked)")
    legend = f"<p>{blue} &nbsp; ▥ promised, not taken yet &nbsp; the rest: left to promise<br>{escape(numbers)}</p>"
    picture = plot.svg(drawn, f"{title}; {numbers}")
    return Shown("\n".join([title, *lines, signs, numbers]), f"<b>{escape(title)}</b><br>{picture}{legend}")


def _in_characters(used: list[int], both: list[int], pages: int, steps: int) -> list[str]:
    rows, n = min(ROWS, pages), len(used)
    peaks = [max(c[: n - c.start], key=lambda i: both[i]) for c in columns(steps, COLUMNS) if c.start < n]
    lines = []
    for row in reversed(range(rows)):
        at = (row + 0.5) * pages / rows
        line = "".join("#" if used[i] > at else ":" if both[i] > at else "." for i in peaks)
        lines.append(f"{(row + 1) * pages // rows:6d} {line}")
    return lines


def _hatched(plot: Plot, shown: Sequence[range], low: list[int], high: list[int]) -> str:
    """Lines upwards, where something is promised: one path, so that nothing in the page needs a name."""
    path, at = "", 0
    for x in range(LEFT + HATCH // 2, WIDTH - RIGHT, HATCH):
        while at < len(shown) and plot.x(shown[at].stop) < x:
            at += 1
        if at < len(shown) and high[at] > low[at]:
            path += f"M{x} {plot.y(low[at]):.1f}V{plot.y(high[at]):.1f}"
    return f'<path d="{path}" stroke="currentColor" stroke-opacity="0.6" stroke-width="2"/>'
