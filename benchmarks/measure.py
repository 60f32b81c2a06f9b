"""What the benchmarks share: runs side by side, medians and ratios, tables.

On a shared machine a single time says little. So variants are run in turns, in an order that rotates, and compared
within each round: a neighbour who slows one round down slows all variants of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Times = dict[str, list[float]]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument(
        "--patience", type=float, default=0, metavar="SECONDS", help="wait before each run for a quiet machine (Linux)"
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser


def interleaved(variants: Mapping[str, Callable[[], float]], rounds: int, patience: float = 0) -> Times:
    """Call every variant once a round, starting with another one each time; each returns the seconds it took.

    Before each call it waits, at most ``patience`` seconds, for the machine to be quiet.
    """
    names = list(variants)
    times: Times = {name: [] for name in names}
    for i in range(rounds):
        if sys.stderr.isatty():
            print(f"\rround {i + 1} of {rounds} ", end="\n" if i + 1 == rounds else "", file=sys.stderr, flush=True)
        turn = i % len(names)
        for name in names[turn:] + names[:turn]:
            wait_for_quiet(patience)
            times[name].append(variants[name]())
    return times


def wait_for_quiet(patience: float) -> None:
    """Return when others leave nine tenths of the CPUs idle for half a second, or patience ends. Linux only."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        before = _cpu_ticks()
        time.sleep(0.5)
        idle, total = (b - a for a, b in zip(before, _cpu_ticks(), strict=True))
        if idle > 0.9 * total:
            return


def _cpu_ticks() -> tuple[int, int]:
    """Idle and all ticks of all CPUs since the machine started."""
    ticks = list(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
    return ticks[3] + ticks[4], sum(ticks)


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
