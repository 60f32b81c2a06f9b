"""The differences between two outcomes, in words: each figure before and after, and whether that is better."""

from __future__ import annotations

import math
from html import escape
from typing import Any, NamedTuple

from minisgl.config import EngineConfig
from minisgl.events.table import aligned
from minisgl.sim.outcome import Outcome
from minisgl.sim.whatif import WhatIf


class Figure(NamedTuple):
    name: str  # as in Outcome.figures
    label: str
    unit: str  # "": a count
    better: int  # 1: more is better, -1: less is, 0: neither


FIGURES = (
    Figure("finished", "requests finished", "", 1),
    Figure("refused", "requests refused", "", -1),
    Figure("ttft_mean", "time to first token, mean", "s", -1),
    Figure("ttft_p95", "time to first token, 95th percentile", "s", -1),
    Figure("queue_time_mean", "queue time, mean", "s", -1),
    Figure("queue_time_max", "queue time, longest", "s", -1),
    Figure("tpot_mean", "time per further token, mean", "s", -1),
    Figure("e2e_mean", "time to the end, mean", "s", -1),
    Figure("output_throughput", "output tokens per second", "/s", 1),
    Figure("hit_rate", "prompt tokens found in the cache", "%", 1),
    Figure("retractions", "retractions", "", -1),
    Figure("slots_most", "KV slots occupied, most", "", 0),
    Figure("waiting_most", "requests waiting, most", "", -1),
    Figure("steps", "steps", "", 0),
    Figure("duration", "whole run", "s", -1),
)
VERDICTS = {1: "✓ better", -1: "✕ worse", 0: ""}
SAME = "= same"
HEADS = ("", "as recorded", "now", "change", "")


class Difference(NamedTuple):
    label: str
    before: str
    after: str
    change: str
    verdict: str


def differences(what: WhatIf) -> list[Difference]:
    """One line per figure; refusals and retractions only where there are any.

    Where other requests are refused than before, times are those of other requests too: then nothing is called better.
    """
    before, after = _with_slots(what.before, what.base), _with_slots(what.after, what.config)
    lines, comparable = [], before["refused"] == after["refused"]
    for f in FIGURES:
        old, new = (round(v, 9) if f.unit == "s" else v for v in (before[f.name], after[f.name]))  # whole nanoseconds
        if f.name in ("refused", "retractions") and not (old or new):
            continue
        if old == new or (math.isnan(old) and math.isnan(new)):
            change, verdict = "", SAME
        elif math.isnan(old) or math.isnan(new):
            change, verdict = "", ""
        else:
            change, verdict = _change(f, old, new), VERDICTS[f.better * (1 if new > old else -1)]
            if not comparable and f.name not in ("finished", "refused"):
                verdict = ""
        lines.append(Difference(f.label, say(f.unit, old), say(f.unit, new), change, verdict))
    return lines


def _with_slots(outcome: Outcome, config: EngineConfig) -> dict[str, Any]:
    """The figures, and what was occupied in tokens: pages of two sizes cannot be compared."""
    return outcome.figures | {"slots_most": outcome.figures["occupied_most"] * config.page_size}


def memory(what: WhatIf) -> str:
    """What another page size does to the size of the pool, in one sentence; "" if it stays as large."""
    base, config = what.base, what.config
    assert base.num_pages is not None and config.num_pages is not None
    slots, now = base.num_pages * base.page_size, config.num_pages * config.page_size
    if base.page_size == config.page_size or slots == now:
        return ""
    return (
        f"the pool has room for {now:,} tokens instead of {slots:,}; the same memory would be "
        f"{slots // config.page_size:,} pages of {config.page_size}"
    )


def _change(f: Figure, old: float, new: float) -> str:
    sign = "+" if new > old else "−"
    if f.unit == "%":
        return f"{sign}{abs(new - old) * 100:.1f} points"
    share = f" ({sign}{_percent(abs(new / old - 1))})" if old else ""
    return f"{sign}{say(f.unit, abs(new - old))}{share}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def say(unit: str, value: float) -> str:
    """A figure for people: three digits, and the unit that suits it."""
    if math.isnan(value):
        return "–"
    if unit == "%":
        return f"{value:.1%}"
    if unit == "s":
        if abs(value) >= 120:
            return f"{value / 60:.1f} min"
        return f"{value:.3g} s" if abs(value) >= 1 else f"{value * 1000:.3g} ms"
    if unit == "/s":
        return f"{value:,.1f}"
    return f"{value:,.0f}"


def as_text(lines: list[Difference]) -> str:
    return "\n".join(aligned([HEADS, *lines], left=(0, 4)))


def as_html(lines: list[Difference]) -> str:
    """A plain table, which viewers that drop styles and scripts show as well."""
    head = "".join(f"<th>{escape(h)}</th>" for h in HEADS)
    body = "".join(
        f'<tr><td align="left">{escape(d.label)}</td>'
        + "".join(f'<td align="right">{escape(v)}</td>' for v in d[1:4])
        + f'<td align="left">{escape(d.verdict)}</td></tr>'
        for d in lines
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def refusals(outcome: Outcome) -> str:
    """Who is refused and why, in one sentence; "" if nobody is."""
    errors, all_of = outcome.refusals, len(outcome.workload)
    if not errors:
        return ""
    which = f"{len(errors)} of {all_of} requests" if all_of > 1 else "The request"
    return f"{which} can never be served here. Request {errors[0].uid}: {errors[0]}"
