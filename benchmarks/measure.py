"""What the benchmarks share: runs side by side, medians and ratios, tables.

On a shared machine a single time says little. So variants are run in turns, in an order that rotates, and compared
within each round: a neighbour who slows one round down slows all variants of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

Times = dict[str, list[float]]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser


def interleaved(variants: Mapping[str, Callable[[], float]], rounds: int) -> Times:
    """Call every variant once a round, starting with another one each time; each returns the seconds it took."""
    names = list(variants)
    times: Times = {name: [] for name in names}
    for i in range(rounds):
        turn = i % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(variants[name]())
    return times


def ratio(times: Times, name: str, base: str) -> float:
    """How many times as long ``name`` takes as ``base``: the median of the rounds' own ratios."""
    return median(a / b for a, b in zip(times[name], times[base], strict=True))


def spread(values: Sequence[float]) -> str:
    """Smallest and largest relative to the median, like "-3% +12%"."""
    middle = median(values)
    return f"{min(values) / middle - 1:+.0%} {max(values) / middle - 1:+.0%}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under a head, first column to the left, the others to the right; floats with three digits that count."""
    lines = [list(map(str, head)), *([text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )


def text(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


def print_json(figures: dict[str, Any]) -> None:
    """One line of JSON; a NaN or an infinity is an error here, not a surprise for whoever reads it."""
    print(json.dumps(figures, allow_nan=False))
