"""What each step did, as text and plain HTML: its batch, its events; as the tabs "Batches" and "Events" of a Stage."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import NamedTuple

from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.events.words import EMITTERS, count, describe
from minisgl.sim.answers.pictures import WIDTH
from minisgl_widgets import palette
from minisgl_widgets.plot import LEFT, MOST_COLUMNS, RIGHT, Plot, columns, key
from minisgl_widgets.session import Run, Session
from minisgl_widgets.shown import Chip, Prose, Shown, middle, table

FAR = 3  # a budget so many times higher than any batch is told, not drawn
LONGEST = 300  # characters of a sentence

# -- batches ---------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """What a step computed: of prompts ``(uid, start, end)``, and a token each of those that decode."""

    step: int
    phase: str
    prompts: list[tuple[int, int, int]]
    decoders: list[int]
    budget: int  # prompt tokens at most; 0: not known

    @property
    def tokens(self) -> int:
        return sum(end - start for _, start, end in self.prompts) + len(self.decoders)

    def words(self) -> str:
        said = [f"prompt of {', '.join(f'{uid} [{a}:{b}]' for uid, a, b in self.prompts)}"] if self.prompts else []
        said += [f"one token of {', '.join(map(str, self.decoders))}"] if self.decoders else []
        return "; ".join(said) or "nothing"


def batches(trace: Trace) -> list[Batch]:
    """The batch that each step launched; a step without one computed nothing."""
    entering = {uid for uid, r in trace.keyframe["requests"].items() if r["status"] == "prefill"}
    budget = int(trace.about.get("config", {}).get("max_prefill_tokens", 0))
    found: list[Batch] = []
    launched: ev.BatchScheduled | None = None
    for e in trace.events:
        if isinstance(e, ev.RequestAdmitted):
            entering.add(e.uid)
        elif isinstance(e, ev.RequestRetracted):
            entering.discard(e.uid)
        elif isinstance(e, ev.SettingsChanged):
            budget = int(dict(zip(e.names, e.values, strict=True)).get("max_prefill_tokens", budget))
        elif isinstance(e, ev.BatchScheduled):
            launched = e
        elif isinstance(e, ev.StepFinished):
            prompts, decoders = [], []
            if launched is not None:
                spans = list(zip(launched.uids, launched.starts, launched.ends, strict=True))
                prompts = [span for span in spans if span[0] in entering]
                decoders = [uid for uid, _, _ in spans if uid not in entering]
                entering -= {u for u, sampled in zip(launched.uids, launched.samples, strict=True) if sampled}
            found.append(Batch(e.step, launched.phase if launched else "", prompts, decoders, budget))
            launched = None
    return found


def batch_strip(run: Run) -> Shown:
    """What each step computed: prompt tokens by request, decode tokens, and the budget."""
    trace = Session.of(run).trace
    steps = batches(trace)
    if not steps:
        return Shown("no step yet", "<p>No step yet.</p>")
    biggest = max(steps, key=lambda b: b.tokens)
    budget = max(b.budget for b in steps)
    near = 0 < budget <= FAR * biggest.tokens
    tokens, decoded = sum(b.tokens for b in steps), sum(len(b.decoders) for b in steps)
    said = f"{count(tokens - decoded, 'prompt token')}, {count(decoded, 'decode token')} in {count(len(steps), 'step')}"
    title = f"what each step computed: {said}; at most {biggest.tokens} (step {biggest.step})"
    title += f", budget {budget}" if budget else ""
    rows = []
    for (phase, words), same in groupby(steps, lambda b: (b.phase, b.words())):
        first, *more = same
        span = f"{first.step}-{more[-1].step}" if more else str(first.step)
        rows.append((Prose(span), Prose(phase), first.tokens, Prose(middle(words))))
    listed = table(title, ("step", "phase", "tokens each", "of requests"), rows)
    plot = Plot(steps[0].step - 1, len(steps), max(biggest.tokens, budget if near else 0))
    drawn = []
    for c in columns(len(steps), MOST_COLUMNS):
        b = max(steps[c.start : c.stop], key=lambda b: b.tokens)
        at = len(b.decoders)
        drawn += [plot.box(c, 0, at, palette.DECODE, f"step {b.step}: {count(at, 'decode token')}")] if at else []
        for uid, start, end in b.prompts:
            name = f"step {b.step}: {count(end - start, 'prompt token')} of request {uid}"
            drawn.append(plot.box(c, at, at + end - start, palette.of_uid(uid), name))
            at += end - start
    if near:
        line = f'd="M{LEFT} {plot.y(budget):.1f}H{WIDTH - RIGHT}" stroke="{palette.BAD}"'
        drawn.append(f'<path {line} stroke-width="2" stroke-dasharray="7 4"/>')
    brown = key(palette.DECODE, "decode tokens")
    above = f" &nbsp; budget {budget}: {'the dashed line' if near else 'above this scale'}" if budget else ""
    legend = f"<p>{brown} &nbsp; other colours: prompt tokens, by request{above}</p>"
    heading = f"<b>{escape(title[:1].upper() + title[1:])}</b>"
    details = f"<details><summary>each step</summary>{listed.html}</details>"
    return Shown(listed.text, f"{heading}<br>{plot.svg(drawn, title)}{legend}{details}")


# -- events ----------------------------------------------------------------------------------------------------------


def event_log(run: Run, first: int | None = None, last: int | None = None) -> Shown:
    """Events in words, with the function that made each; of the steps ``first`` to ``last``, by default of all."""
    session = Session.of(run)
    history, trace = session.history, session.trace
    low = history.first + 1 if first is None else first
    high = history.last if last is None else last
    rows = []
    for e in trace.events:
        words = describe(e) if low <= e.step <= high else ""
        if words:
            uid = getattr(e, "uid", None)
            made = ".".join(EMITTERS[type(e)][0].split(".")[-2:])
            rows.append((e.step, "" if uid is None else Chip(uid), Prose(middle(words, LONGEST)), Prose(made)))
    title = f"{count(len(rows), 'event')} of steps {low} to {high}"
    return table(title, ("step", "request", "what happened", "made by"), rows)
