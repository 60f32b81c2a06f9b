"""Questions about a run's decisions, made of the events that decided them.

Each is asked with the views at the end of the step before, and answered by one event of the next step. What the event
decides is left out of the prompt; what a reader cannot see yet, because it happened earlier in the same step, is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.events.words import WAITS, count, pages
from minisgl_widgets.moment import Moment
from minisgl_widgets.quiz_question import QuizQuestion

VERDICTS = {"admitted": "It is admitted."} | {
    name: f"It waits: {WAITS[name]}." for name in ("pages", "row", "budget", "chunk")
}
FATES = {
    "locked": "Still the cache's: only this request's lock changes.",
    "duplicate": "Freed: the cache has the same tokens in other pages.",
    "inserted": "The cache's from now on.",
    "freed": "Freed: what is there is not worth caching.",
    "kept": "Still the request's own.",
}
POLICIES = {"lru": ": used longest ago", "lfu": ": used least often", "fifo": ": made first"}
LEAVES = 4  # to choose from
CROWD = 12  # requests in a batch that is asked about


def questions(trace: Trace) -> list[QuizQuestion]:
    """Every question that the run can be asked, in the order of its events."""
    moment = Moment(trace)
    found: list[QuizQuestion] = []
    for event in trace.events:
        for make in _MAKERS.get(type(event), ()):
            found += make(moment, event)
        moment.follow(event)
    return found


# -- may it come in, and what must be promised to it? ----------------------------------------------------------------


def _admission(m: Moment, e: ev.AdmissionTested) -> Iterator[QuizQuestion]:
    others = f", after {_requests(m.admitted)} got in" if m.admitted else ""
    here = f"Step {e.step} tests request {e.uid}{others}: {_size(e)}."
    verdict = {"choices": tuple(VERDICTS.values()), "answer": list(VERDICTS).index(e.verdict), "uid": e.uid}
    if e.need is None:
        why = f"The tests go in this order: unfinished chunk, row, budget, pages; this one ended at “{e.verdict}”"
        yield QuizQuestion.of(e, "admission", e.verdict, why, prompt=f"{here}{m.limits} Is it let in?", **verdict)
        return
    assert e.available is not None and e.reserved is not None
    had = e.available if e.available_locked is None else e.available_locked
    lock = e.available - had
    part = f", {lock} of them are part of that beginning" if lock else ""
    left = f"{count(e.free_rows or 0, 'row')} and {count(e.budget or 0, 'token')} of prefill budget are left"
    prompt = (
        f"{here} It asks for room for {e.worst} tokens in all; {_cached(e)}.{m.of_size} {count(e.available, 'page')} "
        f"could be had (free, evictable or pending){part}; {e.reserved} are promised to others. {left}. Is it let in?"
    )
    fits = "is not more than" if e.verdict == "admitted" else "is more than"
    locked = " once its cached beginning is locked" if lock else ""
    why = f"{e.need} needed + {e.reserved} promised = {e.need + e.reserved} {fits} the {had} that could be had{locked}"
    yield QuizQuestion.of(e, "admission", e.verdict, why, prompt=prompt, **verdict)


def _need(m: Moment, e: ev.AdmissionTested) -> Iterator[QuizQuestion]:
    if e.need is None:
        return
    whole = m.config.get("admission") == "conservative" and e.worst == e.prompt_len + e.max_tokens
    room = "" if whole else f" It is to be promised room for {e.worst} tokens."
    prompt = f"Step {e.step} tests request {e.uid}: {_size(e)}; {_cached(e)}.{room}{m.of_size}"
    asked = (
        f"prompt and max_tokens, {e.prompt_len} + {e.max_tokens} = {e.worst} tokens" if whole else f"{e.worst} tokens"
    )
    ps = m.page_size
    sum_ = f"{e.worst} - {e.matched}" if ps == 1 else f"ceil({e.worst} / {ps}) - {e.matched} / {ps}"
    why = f"Room is promised for {asked}, less the pages that the cache has: {sum_} = {e.need}"
    prompt += " How many pages must be promised to it?"
    yield QuizQuestion.of(e, "pages", "need", why, prompt=prompt, unit="page", answer=e.need, uid=e.uid)


def _size(e: ev.AdmissionTested) -> str:
    return f"{count(e.prompt_len, 'prompt token')}, up to {e.max_tokens} new"


def _cached(e: ev.AdmissionTested) -> str:
    return f"the cache has its first {count(e.matched, 'token')}" if e.matched else "nothing of it is in the cache"


# -- how many pages does a batch take? -------------------------------------------------------------------------------


def _taken(m: Moment, e: ev.BatchScheduled) -> Iterator[QuizQuestion]:
    ps = m.page_size
    begins = [uid for uid, start in zip(e.uids, e.starts, strict=True) if start % ps == 0]
    taken = sum(m.taken.counts) if m.taken else 0
    if e.phase != "decode" or len(e.uids) > CROWD or taken != len(begins):
        return
    lengths = ", ".join(f"{start} of request {uid}" for uid, start in zip(e.uids, e.starts, strict=True))
    prompt = (
        f"Step {e.step} decodes the next token of {_requests(e.uids)}. Tokens with KV so far: {lengths}.{m.of_size}"
    )
    if ps == 1:
        why = "A page holds one token, so each of them takes one"
    elif begins:
        why = f"Who stands at a multiple of {ps} begins a page with the next token: {_requests(begins)}"
    else:
        why = f"None of these lengths is a multiple of {ps}, so each next token fits into a page that is there"
    prompt += " How many pages are taken from the pool?"
    yield QuizQuestion.of(m.taken or e, "pages", "taken", why, prompt=prompt, unit="page", answer=taken)


# -- which leaf goes? ------------------------------------------------------------------------------------------------


def _eviction(m: Moment, e: ev.PagesEvicted) -> Iterator[QuizQuestion]:
    nodes, first = m.state["nodes"], e.nodes[0]
    parents = {n["parent"] for n in nodes.values()}
    shown = [i for i in nodes if i not in m.changed and i not in (0, first)]
    # the hardest to tell from the right one come first: free leaves, then locked ones, then nodes with others below
    shown.sort(key=lambda i: (i in parents, nodes[i]["locks"] > 0, nodes[i]["used"], i))
    wrong = shown[: LEAVES - 1]
    if first in m.changed or not wrong:
        return
    policy = m.config.get("eviction", "lru")
    reasons = []
    for i in wrong:
        if i in parents:
            reasons.append(f"node {i} has others below it")
        elif nodes[i]["locks"]:
            reasons.append(f"node {i} is locked by {count(nodes[i]['locks'], 'request')}")
        elif policy == "lru":
            reasons.append(f"node {i} was used later, at tick {nodes[i]['used']}")
        else:
            reasons.append(f"node {i} comes later by the policy")
    tick = f", last used at tick {nodes[first]['used']}" if policy == "lru" else ""
    offered = sorted([first, *wrong])
    yield QuizQuestion.of(
        e,
        "eviction",
        "first",
        f"The first of the unlocked leaves in that order is node {first}{tick}; {'; '.join(reasons)}",
        prompt=f"In step {e.step} the free list is too short, and a leaf of the radix tree must go. The policy is "
        f"“{policy}”{POLICIES.get(policy, '')}. Which goes first?",
        choices=tuple(m.node(i) for i in offered),
        answer=offered.index(first),
    )


# -- what happens to a request's pages? ------------------------------------------------------------------------------


def _handoff(m: Moment, e: ev.Handoff) -> Iterator[QuizQuestion]:
    if not e.finished and (e.step, e.uid) in m.gives_up:
        return  # what happens to its pages now is not what the views show after the step
    ended = "has ended" if e.finished else "has finished its prefill"
    lock = f"it has a lock on its first {e.old_len} tokens there" if e.old_len else "it has no lock there"
    here = (
        f"In step {e.step} request {e.uid} {ended} and offers its KV of {count(e.n, 'token')} to the cache; its row "
        f"covers {_pages(e.pages)}, and {lock}.{m.of_size}"
    )
    parts = {name: (start, end, held) for name, start, end, held in e.segments() if held}
    for name, (start, end, held) in parts.items():
        fate = name if name != "tail" else "freed" if e.finished else "kept"
        prompt = f"{here} What happens to {_pages(held)}, the place of tokens [{start}, {end})?"
        fates = {"choices": tuple(FATES.values()), "answer": list(FATES).index(fate)}
        yield QuizQuestion.of(e, "handoff", fate, _why(e, name), prompt=prompt, uid=e.uid, **fates)
    copies = len(parts["duplicate"][2]) if "duplicate" in parts else 0
    rest = len(parts["tail"][2]) if "tail" in parts and e.finished else 0
    why = f"{copies} of what the cache has in other pages, and {rest} at the end that cannot be cached"
    why += ", as soon as the batch in flight is done" if e.pending and copies + rest else ""
    prompt = f"{here} How many pages does it give back to the pool?"
    yield QuizQuestion.of(e, "handoff", "given up", why, prompt=prompt, unit="page", answer=copies + rest, uid=e.uid)


def _why(e: ev.Handoff, name: str) -> str:
    if name == "locked":
        return f"The cache has had [0, {e.old_len}) all along, and the lock kept it there"
    if name == "duplicate":
        return f"Another request has given the cache [{e.old_len}, {e.hit_len}) meanwhile, and one copy is enough"
    if name == "inserted":
        return f"[{e.hit_len}, {e.new_len}) is new to the cache and fills whole pages"
    reason = "less than a page, and only whole pages can be cached" if e.n > e.new_len else "no KV yet"
    end = "nobody needs it any more" if e.finished else "the request goes on writing there"
    return f"Behind {e.new_len} there is {reason}; {end}"


def _pages(numbers: ev.Ints) -> str:
    return f"page{'' if len(numbers) == 1 else 's'} {pages(numbers)}"


def _requests(uids: list[int] | ev.Ints) -> str:
    return f"request{'' if len(uids) == 1 else 's'} {', '.join(map(str, uids))}"


_MAKERS: dict[type[ev.Event], tuple[Callable[[Moment, Any], Iterator[QuizQuestion]], ...]] = {
    ev.AdmissionTested: (_admission, _need),
    ev.BatchScheduled: (_taken,),
    ev.PagesEvicted: (_eviction,),
    ev.Handoff: (_handoff,),
}
