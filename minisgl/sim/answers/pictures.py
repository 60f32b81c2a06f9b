"""Small pictures for answers: plain SVG, no scripts, no style sheet.

Lines and letters take the colour of the text around them, so a picture suits light and dark. Fills are hues of Okabe
and Ito that people with any of the common colour blindnesses can tell apart, all but blue light enough for black
letters, and a fill is never the only sign: it carries a letter, and the legend says what it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

# Stated here for all of Python; ``minisgl_widgets.palette`` says what they stand for in the views.
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
SKY, RED, YELLOW = "#56b4e9", "#d55e00", "#f0e442"
GREY, PALE = "#b8b8b8", "#e8e8e8"

WIDTH, LEFT, BAR = 640, 90, 22
MOST_POINTS = 400  # of a curve


class Look(NamedTuple):
    letter: str
    fill: str
    words: str


Looks = Mapping[str, Look]


class Piece(NamedTuple):
    """A stretch of a bar, ``kind`` a key of its looks."""

    start: float
    end: float
    kind: str
    title: str


def bars(rows: Sequence[tuple[str, Sequence[Piece]]], looks: Looks, ends: tuple[str, str] = ("", "")) -> str:
    """Bars under one another on a common scale, each a label and its pieces; ``ends`` label the axis's two ends."""
    pieces = [p for _, row in rows for p in row]
    if not pieces:
        return ""
    low, high = min(p.start for p in pieces), max(p.end for p in pieces)
    scale = (WIDTH - LEFT - 10) / ((high - low) or 1)
    height = len(rows) * (BAR + 4) + 18
    out = []
    for i, (label, row) in enumerate(rows):
        y = i * (BAR + 4)
        out.append(text(LEFT - 6, y + 15, label, "end"))
        for p in row:
            x, wide = LEFT + (p.start - low) * scale, max(0.5, (p.end - p.start) * scale)
            look = looks[p.kind]
            out.append(
                f'<g><title>{escape(p.title)}</title> <rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}" '
                f'fill="{look.fill}" stroke="currentColor" stroke-width="0.5"/>'
                + (text(x + wide / 2, y + 15, look.letter, "middle", "#000") if wide >= 10 else "")
                + "</g>"
            )
    y = height - 4
    out.append(text(LEFT, y, ends[0], "start"))
    out.append(text(WIDTH - 10, y, ends[1], "end"))
    return svg(height, out) + legend(looks, {p.kind for p in pieces})


def curves(series: Sequence[tuple[str, Sequence[float]]], looks: Looks, ends: tuple[str, str], unit: str) -> str:
    """Lines over the same steps, drawn from 0 up; ``series`` are ``(kind, values)``."""
    most = max((max(values) for _, values in series if len(values)), default=0)
    if not most:
        return ""
    tall = 120
    out = [text(LEFT - 6, 12, f"{most:g} {unit}", "end"), text(LEFT - 6, tall, "0", "end")]
    out.append(f'<path d="M{LEFT} 2V{tall}H{WIDTH - 10}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>')
    for i, (kind, values) in enumerate(series):
        stride = -(-len(values) // MOST_POINTS)
        shown = [max(values[k : k + stride]) for k in range(0, len(values), stride)]
        wide = (WIDTH - LEFT - 10) / len(shown)
        path = "".join(
            f"{'V' if k else f'M{LEFT} '}{tall - (tall - 4) * v / most:.1f}H{LEFT + (k + 1) * wide:.1f}"
            for k, v in enumerate(shown)
        )
        dash = ("", ' stroke-dasharray="6 3"', ' stroke-dasharray="2 3"')[i % 3]
        title = f"<title>{escape(looks[kind].words)}</title>"
        out.append(f'<g>{title}<path d="{path}" fill="none" stroke="{looks[kind].fill}" stroke-width="2.5"{dash}/></g>')
        k = len(shown) * (i + 1) // (len(series) + 1)  # letters stand apart, each on its own line
        at = tall - (tall - 4) * shown[k] / most
        out.append(text(LEFT + (k + 0.5) * wide, max(12, at - 4), looks[kind].letter, "middle"))
    out += [text(LEFT, tall + 16, ends[0], "start"), text(WIDTH - 10, tall + 16, ends[1], "end")]
    return svg(tall + 20, out) + legend(looks, {kind for kind, _ in series})


def legend(looks: Looks, kinds: Iterable[str]) -> str:
    kinds = set(kinds)
    said = [
        f'<span style="background:{look.fill};color:#000;padding:0 4px">{look.letter}</span> {escape(look.words)}'
        for kind, look in looks.items()
        if kind in kinds
    ]
    return f"<div>{' &nbsp; '.join(said)}</div>"


def text(x: float, y: float, words: str, anchor: str, fill: str = "currentColor") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'


def svg(height: int, inside: Sequence[str], label: str = "") -> str:
    """A picture ``WIDTH`` wide; ``label``: what it says, for those who do not see it."""
    said = f' aria-label="{escape(label)}"' if label else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"{said} font-family="sans-serif" font-size="14">{drawn(inside)}</svg>'
    )


def drawn(inside: Sequence[str]) -> str:
    """What is in an SVG picture.

    Viewers that trust nobody (GitHub, a notebook that was opened and not run) drop the picture and keep the words in
    it. So others stand around them, which a picture does not show, and spaces between.
    """
    said = "<desc>[A picture is left out here until the cell is run; the words in it:</desc>"
    return " ".join((said, *inside, "<desc>]</desc>"))
