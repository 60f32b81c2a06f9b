"""The text of a tour: sentences, the places they speak of, and what they claim.

A line is a sentence, an empty line ends a paragraph. ``[words | step 3 req 2]`` in it is a link, ``[step 3]`` alone one
whose words are the place itself. A place names any of::

    step 3     the player goes there
    req 2, page 7, node 4    held, so that it lights up everywhere
    view ledger    a view to look at: the name of a tab, or strip, words, ledger, handoff, requests, tree

``{...}`` at the end of a sentence is what it claims, as a Python expression that no reader sees. In it ``trace`` is the
run, ``at(k)`` its state after step k, ``of(Type, ...)`` all events of some types, ``step(k, Type, ...)`` those of a
step (without a type: all), and every event type has its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from minisgl.errors import TourError
from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.events.words import pages as ranges
from minisgl_widgets.bundle import STATIC

FIXED = ("strip", "words", "ledger", "handoff", "requests", "tree")  # views that are always there

_SENTENCE = re.compile(r"^(?P<text>.*?)\s*(?:\{(?P<claim>.*)\})?\s*$")
_LINK = re.compile(r"\[(?P<words>[^\]|]+)(?:\|(?P<place>[^\]]+))?\]")


class Sentence(msgspec.Struct, frozen=True):
    """``parts`` are (words, place), the place "" for plain text; ``place`` is where the whole sentence stands. Places
    are ends of an address: ``step=3&req=2&view=ledger``. ``claim`` is "" for a sentence that claims nothing."""

    paragraph: int
    parts: tuple[tuple[str, str], ...]
    place: str
    claim: str = ""

    @property
    def text(self) -> str:
        return "".join(words for words, _ in self.parts)

    def holds(self, trace: Trace) -> bool:
        """Is what it claims true of this run? Runs Python from the text: only for texts that you trust."""
        return not self.claim or bool(eval(self.claim, _names(trace)))


def sentences(text: str, trace: Trace) -> list[Sentence]:
    """Read a tour's text. TourError where a place is none, or is not in the run."""
    found: list[Sentence] = []
    there = _numbers(trace)
    paragraph, step = 0, trace.keyframe["step"]
    views: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            paragraph += bool(found) and found[-1].paragraph == paragraph
            continue
        match = _SENTENCE.match(line)
        assert match is not None
        parts: list[tuple[str, str]] = []
        held: dict[str, int] = {}
        end = 0
        said = match["text"]
        for link in _LINK.finditer(said):
            named = _place(link["place"] or link["words"], number, there)
            step, views = named.pop("step", step), named.pop("view", views)
            held = named or held
            parts += [(said[end : link.start()], ""), (link["words"].strip(), _fragment(step, named, views))]
            end = link.end()
        parts.append((said[end:], ""))
        kept = tuple(part for part in parts if part[0])
        found.append(Sentence(paragraph, kept, _fragment(step, held, views), match["claim"] or ""))
    if not found:
        raise TourError("the text of this tour has no sentence")
    return found


def _numbers(trace: Trace) -> dict[str, Sequence[int]]:
    """What a place can name in this run, by kind, in order; of requests and nodes, all that ever were."""
    nodes = {*trace.keyframe["nodes"], *(e.node for e in trace.of(ev.NodeInserted))}
    nodes |= {e.upper for e in trace.of(ev.NodeSplit)}
    return {
        "step": range(trace.history.first, trace.history.last + 1),
        "req": sorted(trace.requests.uid.tolist()),
        "page": range(trace.keyframe["num_pages"]),
        "node": sorted(nodes),
    }


def _place(text: str, line: int, there: dict[str, Sequence[int]]) -> dict[str, Any]:
    """``step 3 req 2 view tree`` as a dict; at most one of what can be held."""
    words = text.replace("=", " ").split()
    if len(words) % 2:
        raise TourError(f"line {line}: {text.strip()!r} is no place; one reads like 'step 3 req 2 view tree'")
    place: dict[str, Any] = {}
    for kind, what in zip(words[::2], words[1::2], strict=True):
        if kind == "view":
            place["view"] = [*place.get("view", []), what]
            if what not in FIXED and what not in tabs():
                raise TourError(f"line {line}: there is no view {what!r}; there are {', '.join((*FIXED, *tabs()))}")
        elif kind in there and what.isdecimal():
            place[kind] = int(what)
            if place[kind] not in there[kind]:
                raise TourError(f"line {line}: {kind} {what} is not in this run: it holds {ranges(tuple(there[kind]))}")
        else:
            raise TourError(f"line {line}: {kind} {what} is no place; there are step, req, page, node, view")
    return place


def _fragment(step: int, held: dict[str, int], views: list[str]) -> str:
    parts = [f"step={step}", *(f"{kind}={n}" for kind, n in held.items())]
    return "&".join([*parts, f"view={','.join(views)}"] if views else parts)


@cache
def tabs() -> tuple[str, ...]:
    """The names of the views that have a tab, from the files that hold them."""
    named = re.compile(r'static id = "([\w-]+)"')
    return tuple(sorted(name for path in STATIC.glob("*.js") for name in named.findall(path.read_text("utf-8"))))


def _names(trace: Trace) -> dict[str, Any]:
    def step(k: int, *kinds: type[ev.Event]) -> list[Any]:
        return [e for e in trace.events if e.step == k and (not kinds or isinstance(e, kinds))]

    return {cls.__name__: cls for cls in ev.EVENT_TYPES} | {
        "trace": trace,
        "at": trace.at,
        "of": trace.of,
        "step": step,
    }
