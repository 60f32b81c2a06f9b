"""Make the packaged runs of ``minisgl_widgets.runs`` again: the same script, model and scheduler give the same bytes.

    python tools/make_runs.py            # run the model and write every file that would change
    python tools/make_runs.py --check    # write nothing, fail where a run would be another

A run is computed by the real model, then replayed step for step on the modelled clock: the events stay, and their times
no longer depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from minisgl import LLM, Recorder, SamplingParams
from minisgl.events.trace import Trace
from minisgl.events.types import RequestArrived
from minisgl.sim.replay import replay
from minisgl_widgets.prompts import PROMPTS
from minisgl_widgets.runs import ABOUT, FOLDER

MODEL = "smollm2-135m"
ORIGIN = ("model", "tokenizer", "vocab_size", "config", "stop_tokens")  # what of ``Trace.about`` no machine changes

PREFACE = "You are a helpful assistant. Answer in one short sentence, and say when you do not know.\n"
QUESTIONS = (
    "What is the capital of Spain?",
    "What is the capital of Peru?",
    "How many legs has a spider?",
    "What is the capital of Spain, and how large is it?",
)
STORIES = (
    "Once upon a time, there was a small robot",
    "The colours of the rainbow are red, orange,",
    "Once upon a time, there was a large dragon",
    "Water boils at a temperature of",
    "In the beginning the universe was",
    "Once upon a time, there was a small robot who",
)
LONG = (
    "A paged KV pool is cut into pages of equal size. A request owns the pages that its tokens fill, and a table says "
    "which page holds which of them, so that they need not lie side by side. When the request ends, its pages go to "
    "the prefix cache or come free."
)
ASKED = tuple(
    f"Q: {question}\nA:"
    for question in (
        "What is the capital of Spain?",
        "What colour is the sky?",
        "What is two plus two?",
        "Who wrote Hamlet?",
        "What do bees make?",
        "Name a large animal.",
    )
)


class Recipe(NamedTuple):
    """``arrivals``: (step after which it is submitted, prompt, max_tokens), in order; or all at once."""

    arrivals: Sequence[tuple[int, str, int]]
    settings: dict[str, Any]
    ignore_eos: bool = True


def together(prompts: Sequence[str], max_tokens: int) -> list[tuple[int, str, int]]:
    return [(0, prompt, max_tokens) for prompt in prompts]


def apart(prompts: Sequence[str], max_tokens: int, every: int) -> list[tuple[int, str, int]]:
    return [(i * every, prompt, max_tokens) for i, prompt in enumerate(prompts)]


SMALL: dict[str, Any] = {"max_seq_len": 128, "max_running_requests": 8}
RECIPES = {
    "five_prompts": Recipe(together(PROMPTS, 8), {"num_pages": 64}),
    "shared_preface": Recipe(apart([PREFACE + q for q in QUESTIONS], 6, 4), {"num_pages": 40, "page_size": 4}),
    "small_cache": Recipe(apart(STORIES, 8, 9), {"num_pages": 36}),
    "chunked_prefill": Recipe(
        [(0, PROMPTS[0], 14), (0, PROMPTS[1], 14), (3, LONG, 6), (4, PROMPTS[2], 6)],
        {"num_pages": 128, "max_prefill_tokens": 16, "phase": "mixed"},
    ),
    "page_size_16": Recipe(together(PROMPTS, 8), {"num_pages": 4, "page_size": 16}),
    "reserve": Recipe(together(ASKED, 28), {"num_pages": 96}, ignore_eos=False),
    "retract": Recipe(together(ASKED, 28), {"num_pages": 96, "admission": "optimistic"}, ignore_eos=False),
}


def make(name: str) -> Trace:
    """Run one recipe with the model."""
    recipe = RECIPES[name]
    settings = SMALL | {"dtype": "float32", "device": "cpu"} | recipe.settings
    llm = LLM(MODEL, **settings)
    waiting = list(recipe.arrivals)
    with Recorder(llm, title=ABOUT[name][0]) as recorder:
        step = 0
        while waiting or not llm.idle:
            while waiting and (waiting[0][0] <= step or llm.idle):
                _, prompt, max_tokens = waiting.pop(0)
                llm.submit(prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=recipe.ignore_eos))
            llm.step()
            step += 1
    real = recorder.trace
    trace = replay(real)
    assert not real.diff(trace), f"{name}: the replay differs from the run"
    trace.about = {key: value for key, value in real.about.items() if key in ORIGIN}
    trace.about["config"] = trace.about["config"] | {"kernels": "auto", "threads": None}  # the machine's, not the run's
    trace.events = [replace(e, submitted=e.t) if isinstance(e, RequestArrived) else e for e in trace.events]
    llm.close()
    return trace


def differences(name: str, trace: Trace) -> str:
    """In what a stored run differs from one made now; "" if in nothing. Compressed bytes are the library's choice."""
    path = FOLDER / f"{name}.jsonl.zst"
    if not path.exists():
        return "there is no file"
    stored = Trace.load(path)
    diff = stored.diff(trace, times=True)
    if diff:
        return str(diff)
    for what in ("title", "texts", "about", "checkpoint"):
        if getattr(stored, what) != getattr(trace, what):
            return f"its {what} is another"
    return ""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the packaged runs again.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a run would be another")
    args = parser.parse_args(argv)
    assert RECIPES.keys() == ABOUT.keys()
    changed = 0
    for name in RECIPES:
        trace = make(name)
        difference = differences(name, trace)
        changed += bool(difference)
        if difference and not args.check:
            path: Path = trace.save(FOLDER / f"{name}.jsonl.zst")
            print(f"{name}: written, {path.stat().st_size / 1000:.1f} kB, {trace}")
        else:
            print(f"{name}: {difference or 'unchanged'}")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
