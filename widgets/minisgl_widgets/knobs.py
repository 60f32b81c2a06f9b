"""The knobs of WhatIf: what can be turned, over which values, and how each is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minisgl.config import CHOICES, EngineConfig
from minisgl.core import pages_for
from minisgl.events.words import count
from minisgl.sim.whatif import OF_THE_WORKLOAD
from minisgl.sim.workload import Workload

POSITIONS = 40  # of a slider at most, about; the curve has a point at each


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting, by the name that ``whatif`` takes.

    ``values`` are in order, the recorded one among them; ``ordered`` ones get a slider, others a list to choose from.
    """

    name: str
    recorded: Any
    values: tuple[Any, ...]
    tooltip: str
    unit: str = ""  # what is counted, in the singular
    ordered: bool = True

    def say(self, value: Any) -> str:
        """A value as people read it: "64 pages", "× 2", "30 % promised"."""
        if (self.name, value) in WORDS:
            return WORDS[self.name, value]
        if self.name == "admission":
            return f"{value:.0%} promised"
        if self.unit == "×":
            return f"× {value:g}"
        return count(value, self.unit) if self.unit else str(value)

    def short(self, value: Any) -> str:
        """A value as an axis names it: "64", "lru"."""
        if self.name == "admission":
            return f"{SHARES.get(value, value):.0%}"
        return f"{value:g}" if self.unit else str(value)


SHARES: dict[Any, float] = {"optimistic": 0.0, "conservative": 1.0}  # what two names of admission promise
AS_RECORDED = "as recorded"  # of ignore_eos: each request has its own
# Values that would say too little by themselves.
WORDS: dict[tuple[str, Any], str] = {
    ("admission", "conservative"): "all promised",
    ("admission", "optimistic"): "none promised",
    ("ignore_eos", True): "yes",
    ("ignore_eos", False): "no",
    ("overlap", False): "off",
    ("overlap", True): "on",
}
# Scales in proportion; 1 is as recorded.
RATES = (0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0, 20.0, 50.0)
LENGTHS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
TOOLTIPS = {
    "num_pages": "Pages in the KV pool.",
    "page_size": "Tokens in a page, the unit of allocation and of prefix sharing. Bigger pages in the same number are "
    "more memory: the button beside it keeps the memory as recorded.",
    "max_running_requests": "Rows of the page table: requests that run at the same time at most.",
    "max_prefill_tokens": "Tokens that one prefill batch may compute; longer prompts are computed in chunks.",
    "rate": "Requests arrive so many times as fast.",
    "max_tokens": "Requests may generate so many times as many tokens.",
    "admission": "How much of max_tokens is promised when a request is let in. All of it: a running request never "
    "lacks a page. Less: more run at once, and when pages run out one is retracted and computed again later.",
    "prefix_cache": "radix shares equal prefixes; naive shares nothing.",
    "order": "Who is tested for admission next. fcfs: who came first; lpm: who has the longest cached prefix; "
    "shortest: who has the least prompt + max_tokens.",
    "eviction": "Which unlocked leaves of the prefix cache go first. lru: used longest ago; lfu: used least often; "
    "fifo: made first.",
    "phase": "What a batch is made of. prefill-first: whoever can be let in, is; decode-first: nobody is let in while "
    "anybody decodes; mixed: every running request decodes, prompts get the rest of max_prefill_tokens.",
    "overlap": "Launch the next batch before the last one's result is read.",
    "ignore_eos": "Go on where the model would end, up to max_tokens.",
}


def knobs_of(base: EngineConfig, workload: Workload) -> dict[str, Knob]:
    """Every knob with the range that makes sense for a record, sliders first."""
    assert base.num_pages is not None
    need = min(pages_for(workload.longest, base.page_size), base.num_pages)
    least = max(2, need - need // 4)  # a few positions at which the longest request is refused
    half = max(2, base.num_pages // 2)
    sizes = tuple(1 << i for i in range(7))
    chunks = tuple(1 << i for i in range(3, max(10, base.max_prefill_tokens.bit_length() + 1)))
    shares = ("optimistic", *(i / 10 for i in range(1, 10)), "conservative")
    ranges: dict[str, tuple[Any, tuple[Any, ...], str]] = {
        "num_pages": (
            base.num_pages,
            spaced(least, 2 * base.num_pages, need, half, base.num_pages),
            "page",
        ),
        "page_size": (base.page_size, sizes, "token"),
        "max_running_requests": (
            base.max_running_requests,
            spaced(1, max(8, 2 * base.max_running_requests), base.max_running_requests),
            "row",
        ),
        "max_prefill_tokens": (base.max_prefill_tokens, chunks, "token"),
        "admission": (base.admission, shares, ""),
        "rate": (OF_THE_WORKLOAD["rate"], RATES, "×"),
        "max_tokens": (OF_THE_WORKLOAD["max_tokens"], LENGTHS, "×"),
    }
    knobs = [
        Knob(name, now, with_value(values, now), TOOLTIPS[name], unit) for name, (now, values, unit) in ranges.items()
    ]
    choices: dict[str, tuple[Any, ...]] = {n: CHOICES[n] for n in ("prefix_cache", "order", "eviction", "phase")}
    choices |= {"overlap": (False, True), "ignore_eos": (AS_RECORDED, True, False)}
    for name, values in choices.items():
        now = getattr(base, name, AS_RECORDED)
        knobs.append(Knob(name, now, values, TOOLTIPS[name], ordered=False))
    return {knob.name: knob for knob in knobs}


def spaced(least: int, most: int, *through: int) -> tuple[int, ...]:
    """Whole numbers from ``least`` to ``most``, each about so many per cent above the one before.

    Those of ``through`` are among them, in place of neighbours less than half a position away.
    """
    grid = np.unique(np.round(np.geomspace(least, most, POSITIONS)).astype(int))
    half = np.log(most / least) / (POSITIONS - 1) / 2
    near = (np.abs(np.log(grid[:, None] / np.array(through))) < half).any(axis=1)
    return tuple(sorted({*grid[~near].tolist(), *through}))


def with_value(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """The values with one more, in its place: names of shares stand where their share is."""
    if value in values:
        return values
    return tuple(sorted((*values, value), key=lambda v: SHARES.get(v, v)))
