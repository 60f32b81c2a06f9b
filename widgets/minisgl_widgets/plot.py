"""A plot over steps as plain SVG: scales, frame and ticks, as ``static/chart.js`` draws them.

Lines and letters take the colour of the text around them, so that it suits light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from minisgl.sim.answers.pictures import WIDTH, svg, text

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 46, 8, 8, 22, 180  # pixels
MOST_COLUMNS = (WIDTH - LEFT - RIGHT) // 2  # of what is drawn of a long run


class Plot(NamedTuple):
    """Scales: ``steps`` across, the first of them the one after ``first``; values from 0 to ``most`` up."""

    first: int
    steps: int
    most: int

    def x(self, at: float) -> float:
        """Where a place between steps is: 0 before the first."""
        return LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, self.steps)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / max(1, self.most))

    def outline(self, columns: Sequence[range], values: Sequence[float]) -> str:
        """An SVG path: at its value through each column."""
        pairs = zip(columns, values, strict=True)
        path = "".join(f"V{self.y(v):.1f}H{self.x(c.stop):.1f}" for c, v in pairs)
        return f"M{self.x(0):.1f} {self.y(values[0]) if values else self.y(0):.1f}{path}"

    def area(self, columns: Sequence[range], values: Sequence[float], fill: str) -> str:
        down = f"V{self.y(0):.1f}H{LEFT}Z"
        return f'<path d="{self.outline(columns, values)}{down}" fill="{fill}"/>'

    def box(self, at: range, low: float, high: float, fill: str, title: str) -> str:
        """A piece of a bar, named when it is pointed at."""
        x, y = self.x(at.start), self.y(high)
        wide, high = self.x(at.stop) - x, self.y(low) - y
        return (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{fill}" '
            f'stroke="currentColor" stroke-width="0.5"><title>{escape(title)}</title></rect>'
        )

    def svg(self, inside: Sequence[str], label: str) -> str:
        """The picture, with its axes."""
        marks = []
        for n in range(0, self.most + 1, tick(self.most)):
            line = f'<path d="M{LEFT} {self.y(n):.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity="0.2"/>'
            marks += [line, text(LEFT - 6, self.y(n) + 5, str(n), "end")]
        each = tick(self.steps / 2)
        for n in range(-(-(self.first + 1) // each) * each, self.first + self.steps + 1, each):
            if self.x(n - self.first - 0.5) < WIDTH - 14:  # another would be cut
                marks.append(text(self.x(n - self.first - 0.5), HEIGHT - 5, str(n), "middle"))
        high, wide = HEIGHT - TOP - BOTTOM, WIDTH - LEFT - RIGHT
        frame = (
            f'<path d="M{LEFT} {TOP}h{wide}v{high}h-{wide}z" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
        )
        return svg(HEIGHT, [*marks, *inside, frame], label)


def columns(steps: int, most: int) -> list[range]:
    """Steps, counted from 0, in at most so many stretches of the same length."""
    each = max(1, -(-steps // most))
    return [range(at, min(at + each, steps)) for at in range(0, steps, each)]


def tick(span: float) -> int:
    """A round number of about a third of it."""
    rough = max(1.0, span / 3)
    power = 1
    while power * 10 <= rough:
        power *= 10
    return next(f * power for f in (1, 2, 5, 10) if f * power >= rough)


def key(fill: str, words: str) -> str:
    """A line of the legend; the box is a character, for viewers that drop styles."""
    return f'<span style="color:{fill}">■</span> {escape(words)}'
