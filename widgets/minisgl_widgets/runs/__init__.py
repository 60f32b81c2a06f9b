"""Recorded runs that come with the package: ``runs.load("five_prompts")`` opens at once, without a model or torch.

Prompts and tokens are those of SmolLM2-135M-Instruct, which wrote them greedily; the scheduler is the engine's own.
Times are modelled (``minisgl.sim.costs.DEFAULT``), so that ``tools/make_runs.py`` makes the same files
wherever it runs. ``runs.names`` lists them; each is also ``runs.five_prompts`` and so on, which a notebook completes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from minisgl.errors import TraceNotFoundError
from minisgl.events.trace import Trace

FOLDER = Path(__file__).parent

# name: (title, what there is to see)
ABOUT = {
    "five_prompts": (
        "Five prompts, 64 pages",
        "Four requests fit into the pool, the fifth waits: its worst case is promised before it may come in. Two "
        "prompts begin alike, but arrive together, so both compute that beginning and one gives its copies back.",
    ),
    "shared_preface": (
        "A shared preface: the radix tree splits and hits",
        "Four questions with one preface, one after another, on pages of four tokens. The second finds the preface in "
        "the prefix cache, the tree splits where they part, and each later one computes only its own end.",
    ),
    "small_cache": (
        "A cache too small: leaves go, and come back",
        "Six requests one after another in a pool that cannot keep them all. What was used longest ago is evicted, and "
        "whoever comes back for it computes it again.",
    ),
    "chunked_prefill": (
        "A long prompt in chunks",
        "A prompt of 61 tokens comes while two requests decode. At most 16 tokens fit into a batch, so it is computed "
        "in chunks beside them, and nobody else may begin before it is done.",
    ),
    "page_size_16": (
        "Pages of 16 tokens: what rounding up costs",
        "The five prompts again, in as many slots, but on pages of 16 tokens. A page belongs to one request however "
        "little of it is filled, and only whole pages can be shared: two requests wait where one did, and no beginning "
        "is ever found in the cache.",
    ),
    "reserve": (
        "Conservative: the worst case is promised",
        "Six questions of up to 28 new tokens in 96 pages. Each is let in only when all its pages are promised. Two "
        "answers end early, and what was promised to them is never used.",
    ),
    "retract": (
        "Optimistic: nothing is promised, and some must go back",
        "The same six questions, let in as long as their prompts fit. All begin at once; when pages run out, the last "
        "one admitted gives everything back, waits, and computes it again.",
    ),
}
names = tuple(ABOUT)


@cache
def load(name: str) -> Trace:
    """A packaged run; the same object each time. TraceNotFoundError for a name that is none of ``names``."""
    if name not in ABOUT:
        raise TraceNotFoundError(f"no packaged run is called {name!r}; there are {', '.join(names)}")
    return Trace.load(FOLDER / f"{name}.jsonl.zst")


def about(name: str) -> str:
    """A packaged run's title and what there is to see in it. TraceNotFoundError for an unknown name."""
    return "\n".join((load(name).title, ABOUT[name][1]))


def tour(name: str) -> str:
    """The text of a packaged run's tour: see ``minisgl_widgets.tour``. TraceNotFoundError for an unknown name."""
    load(name)
    return (FOLDER / f"{name}.txt").read_text("utf-8")


def __getattr__(name: str) -> Trace:
    if name not in ABOUT:
        raise AttributeError(f"there is no packaged run {name!r}; there are {', '.join(names)}")
    return load(name)


def __dir__() -> list[str]:
    return ["about", "load", "names", "tour", *names]
