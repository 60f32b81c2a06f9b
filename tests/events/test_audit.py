"""Every rule that an event can break: it is named with the event, its step, the page and both owners."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from minisgl.events import History, types
from minisgl.events.fold import Fold
from minisgl.events.integrity import violations
from minisgl.events.state import fresh, undo_delta
from tests.fakes import Run
from tests.script import finish_early, overlapped, release


@pytest.fixture(scope="module")
def sound():
    """A run with shared prefixes, a duplicate, chunks, an abort and evictions: its first state and its events."""
    run = Run(page_size=2, num_pages=16, max_seq_len=32, max_prefill_tokens=12)
    start = run.scheduler.snapshot().to_dict()
    for prompt in ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 9, 9], list(range(20)), [1, 2, 3, 4, 5, 6, 7]):
        run.submit(prompt, 6)
    run.scheduler.step()
    run.scheduler.step()
    run.scheduler.abort(run.submit([7, 7, 7], 9).uid)
    run.scheduler.abort(2)
    run.play()
    return start, run.events


def fold(start: dict, events: list) -> History:
    history = History(start)
    for event in events:
        history.feed(event)
    return history


def test_a_sound_run_has_no_findings(sound):
    start, events = sound
    history = fold(start, events)
    assert {type(e).__name__ for e in events} >= {"PagesEvicted", "NodeSplit", "PagesFreed", "AbortRequested"}
    assert [s["violations"] for s in history.steps] == [()] * len(history.steps)
    for step in range(history.last + 1):
        assert violations(history.at(step).to_dict()) == []


# -- one wrong event after a sound beginning -------------------------------------------------------------------------


@dataclass
class Wrong:
    """The first event of a type that ``fits`` is changed, or followed by another; what is then said, as a pattern."""

    kind: type
    change: Callable[[Any, dict], Any]  # event, state before it -> fields to replace, or the event that comes before it
    says: str
    fits: Callable[[Any, dict], bool] = lambda e, s: True


def owned_by_another(e, s):
    return next(p for p, uid in enumerate(s["pages"]["owner"]) if uid >= 0 and uid not in e.uids)


def cached(s):
    return s["pages"]["owner"].index(-2)


def free(s):
    return s["pages"]["owner"].index(-1)


def another(e, kind, **fields):
    return kind(step=e.step, t=e.t, **fields)


def runner(s):
    return s["requests"][s["running"][0]]


def locked(s):
    return next((i for i, n in s["nodes"].items() if n["locks"]), None)


def has_children(s):
    parents = {n["parent"] for n in s["nodes"].values()}
    return next((i for i, n in s["nodes"].items() if i and i in parents and not n["locks"]), None)


def evicted(e, s, node):
    return another(e, types.PagesEvicted, nodes=(node,), pages=s["nodes"][node]["pages"])


def same_pages(e, page):
    return {"pages": (page, *e.pages[1:])}


WRONG = {
    "a page of another request is taken": Wrong(
        types.PagesAllocated,
        lambda e, s: same_pages(e, owned_by_another(e, s)),
        r"page (\d+) goes to request \d+, but it belongs to request \d+",
        lambda e, s: any(uid >= 0 and uid not in e.uids for uid in s["pages"]["owner"]),
    ),
    "a cached page is taken": Wrong(
        types.PagesAllocated,
        lambda e, s: same_pages(e, cached(s)),
        r"page \d+ goes to request \d+, but it belongs to the prefix cache",
        lambda e, s: -2 in s["pages"]["owner"],
    ),
    "the dummy page is taken": Wrong(
        types.PagesAllocated, lambda e, s: same_pages(e, 16), r"page 16 is the dummy page"
    ),
    "a free page is taken out of turn": Wrong(
        types.PagesAllocated,
        lambda e, s: {"pages": e.pages[::-1]},
        r"page \d+ is taken out of turn: the free list goes on with \[\d+\]",
        lambda e, s: len(e.pages) > 1,
    ),
    "pages for nobody": Wrong(
        types.PagesAllocated, lambda e, s: {"uids": (99,) * len(e.uids)}, "there is no request 99"
    ),
    "a free page is freed": Wrong(
        types.PagesFreed,
        lambda e, s: same_pages(e, free(s)),
        r"page \d+ is freed by request \d+, but it belongs to nobody \(free\)",
        lambda e, s: -1 in s["pages"]["owner"],
    ),
    "another's page is freed": Wrong(
        types.PagesFreed,
        lambda e, s: same_pages(e, owned_by_another(e, s)),
        r"page \d+ is freed by request \d+, but it belongs to request \d+",
        lambda e, s: any(uid >= 0 and uid not in e.uids for uid in s["pages"]["owner"]),
    ),
    "a page is freed twice": Wrong(
        types.PagesFreed,
        lambda e, s: {"pages": e.pages + e.pages[:1], "uids": e.uids + e.uids[:1]},
        r"freed twice: \[\d+\]",
    ),
    "a page in use is freed": Wrong(
        types.StepFinished,
        lambda e, s: another(e, types.PagesFreed, pages=(runner(s)["pages"][-1],), uids=(runner(s)["uid"],)),
        r"page \d+ is freed, but request \d+, which is at work, has it in its row",
        lambda e, s: bool(s["running"]) and s["pages"]["owner"][runner(s)["pages"][-1]] >= 0,
    ),
    "somebody else's page is cached": Wrong(
        types.NodeInserted,
        lambda e, s: {"uid": e.uid + 1},
        r"page \d+ passes to the prefix cache from request 1, but it belongs to request 0",
    ),
    "a locked node is evicted": Wrong(
        types.StepFinished,
        lambda e, s: evicted(e, s, locked(s)),
        r"tree node \d+ is evicted, but requests? [\d, ]+ locks? it",
        lambda e, s: locked(s) is not None,
    ),
    "an inner node is evicted": Wrong(
        types.StepFinished,
        lambda e, s: another(
            e, types.PagesEvicted, nodes=(has_children(s),), pages=s["nodes"][has_children(s)]["pages"]
        ),
        r"tree node \d+ is evicted, but [12] nodes hang below it",
        lambda e, s: has_children(s) is not None,
    ),
    "a page is evicted that is not the node's": Wrong(
        types.PagesEvicted,
        lambda e, s: same_pages(e, next(p for p, uid in enumerate(s["pages"]["owner"]) if uid >= 0)),
        r"page \d+ is evicted from the prefix cache, but it belongs to request \d+",
        lambda e, s: max(s["pages"]["owner"]) >= 0,
    ),
    "a node is unlocked that nobody holds": Wrong(
        types.StepFinished,
        lambda e, s: another(e, types.NodeUnlocked, node=1, uid=0),
        "tree node 1 is unlocked for request 0, but nobody holds it",
        lambda e, s: 1 in s["nodes"] and not s["nodes"][1]["locks"],
    ),
    "a node is unlocked for who does not hold it": Wrong(
        types.NodeUnlocked,
        lambda e, s: {"uid": 4},
        r"tree node \d+ is unlocked for request 4, but requests? [\d, ]+ locks? it",
        lambda e, s: e.uid == 0,
    ),
    "a row in use is given out": Wrong(
        types.RequestAdmitted,
        lambda e, s: {"row": 0, "generation": s["rows"][0]["generation"] + 1},
        "row 0 goes to request 1, but it belongs to request 0",
        lambda e, s: e.uid == 1,
    ),
    "a generation is skipped": Wrong(
        types.RequestAdmitted, lambda e, s: {"generation": 5}, "row 0 goes to request 0 as generation 5, after 0"
    ),
    "a row begins with another prefix": Wrong(
        types.RequestAdmitted,
        lambda e, s: {"pages": e.pages[:-1]},
        r"request 4's row begins with pages \[.*\], but it locks \[.*\] \(node \d+\)",
        lambda e, s: e.uid == 4 and bool(e.pages),
    ),
    "an admission of who does not wait": Wrong(
        types.AdmissionTested,
        lambda e, s: {"uid": s["running"][0]},
        r"request \d is tested, but it does not wait",
        lambda e, s: bool(s["running"]),
    ),
    "a page of a request is taken for the cache's": Wrong(
        types.Handoff,
        lambda e, s: {"replaced": (e.pages[-1], *e.replaced[1:])},
        r"page \d+ enters as the prefix cache's the row of request 1, but it belongs to request 1",
        lambda e, s: bool(e.replaced),
    ),
    "a row hands over what it has not": Wrong(
        types.Handoff,
        lambda e, s: {"pages": e.pages[::-1]},
        r"request 0 hands over pages \[.*\], but its row has \[.*\]",
    ),
    "somebody else's row is given back": Wrong(
        types.RowReleased,
        lambda e, s: {"row": next(i for i, row in enumerate(s["rows"]) if i != e.row and row["uid"] >= 0)},
        r"row \d is given back by request \d, but it belongs to request \d",
    ),
    "a batch leaves tokens out": Wrong(
        types.BatchScheduled,
        lambda e, s: {"starts": (e.starts[0] + 1, *e.starts[1:]), "ends": (e.ends[0] + 1, *e.ends[1:])},
        r"request \d+ computes \[\d+, \d+\), but its KV reaches to \d+",
        lambda e, s: e.phase == "decode",
    ),
    "a batch runs out of its pages": Wrong(
        types.BatchScheduled,
        lambda e, s: {"ends": (99, *e.ends[1:])},
        r"request 0 computes up to 99, but its row has \d pages of 2",
    ),
    "a batch computes for who waits": Wrong(
        types.BatchScheduled, lambda e, s: {"uids": (3, *e.uids[1:])}, "request 3 is computed, but it has no row"
    ),
    "a counter is wrong at launch": Wrong(
        types.BatchScheduled, lambda e, s: {"reserved_pages": 1}, r"reserved_pages says 1, counting gives \d+"
    ),
    "a counter is wrong at the end": Wrong(
        types.StepFinished, lambda e, s: {"free_pages": e.free_pages - 1}, r"free_pages says \d+, counting gives \d+"
    ),
    "more is promised than there is": Wrong(
        types.StepFinished, lambda e, s: {"reserved_pages": 17}, r"17 pages are promised, but \d+ could be had"
    ),
    "a step is missing": Wrong(types.StepFinished, lambda e, s: {"step": 9}, "it follows step 0"),
    "a token is dropped": Wrong(
        types.TokensSampled,
        lambda e, s: {"dropped": (True,) * len(e.tokens)},
        "a token of request 0, which goes on, is dropped",
        lambda e, s: bool(e.tokens),
    ),
    "a token is kept": Wrong(
        types.StepFinished,
        lambda e, s: another(e, types.TokensSampled, batch=1, uids=(2,), tokens=(5,), dropped=(False,)),
        "a token of request 2, which had ended, is kept",
        lambda e, s: 2 in s["requests"] and s["requests"][2]["status"] == "finished",
    ),
    "a request arrives twice": Wrong(
        types.RequestArrived, lambda e, s: {"uid": 0}, "request 0 has been here before", lambda e, s: e.uid == 1
    ),
    "a request ends twice": Wrong(
        types.StepFinished,
        lambda e, s: another(e, types.RequestFinished, uid=2, reason="stop", num_output=0),
        "request 2 has ended",
        lambda e, s: 2 in s["requests"] and s["requests"][2]["status"] == "finished",
    ),
    "a batch is done that never was": Wrong(
        types.ForwardFinished, lambda e, s: {"batch": 77}, "batch 77 is done, but it was not in flight"
    ),
    "a node that is not there": Wrong(
        types.NodeLocked, lambda e, s: {"node": 77}, r"something that is not there \(KeyError: 77\)"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_event_is_named(sound, name):
    start, events = sound
    wrong, book = WRONG[name], Fold(fresh(start))
    place = 0
    while not (type(events[place]) is wrong.kind and wrong.fits(events[place], book.state)):
        book.apply(events[place])
        place += 1
    event = events[place]
    changed = wrong.change(event, book.state)
    if isinstance(changed, dict):
        spoiled = [*events[:place], msgspec.structs.replace(event, **changed), *events[place + 1 :]]
    else:
        spoiled = [*events[:place], changed, *events[place:]]

    verdicts = [s["violations"] for s in fold(start, spoiled).steps]
    first = next(i for i, found in enumerate(verdicts) if found)
    assert first == event.step - 1
    assert any(re.search(rf"step \d+, \w+: .*{wrong.says}", found) for found in verdicts[first]), verdicts[first]
    assert all(verdicts[first:]), "what is broken stays broken"


def test_later_steps_say_since_when(sound):
    start, events = sound
    at = next(i for i, e in enumerate(events) if type(e) is types.StepFinished)
    spoiled = [*events[:at], msgspec.structs.replace(events[at], waiting=9), *events[at + 1 :]]
    steps = fold(start, spoiled).steps
    said = f"step 1, StepFinished: waiting says 9, counting gives {events[at].waiting}"
    assert list(steps[0]["violations"]) == [said]
    assert list(steps[-1]["violations"]) == [f"broken since step 1: {said}"]


def test_a_record_that_begins_broken_says_so(sound):
    start, events = sound
    state = fresh(start)
    state["pages"]["owner"][15] = 5
    (said,) = fold(state, events).steps[-1]["violations"]
    assert said.startswith(
        "broken since step 0, where the record begins: page 15 belongs to request 5 but is in the free"
    )


def test_an_event_that_cannot_be_folded_is_a_finding_and_the_rest_is_kept(sound):
    start, events = sound
    lost = types.RequestAdmitted(step=1, t=0.0, uid=55, row=0, generation=1, cached_len=0, pages=(), node=0, reserved=1)
    history = fold(start, [lost, *events])
    assert "there is no request 55" in history.steps[0]["violations"][0]
    assert "cannot be folded" in " ".join(history.steps[0]["violations"])
    state = history.at(history.last).to_dict()
    for delta in reversed(history.deltas):
        undo_delta(state, delta)
    assert state == start


# -- a batch in flight -----------------------------------------------------------------------------------------------


@pytest.fixture
def say():
    return overlapped()


def test_duplicates_wait_for_the_batch_in_flight(say):
    request = say.state["requests"][1]
    assert request["pages"] == [0, 1, 2, 7] and request["pending"] == [3, 4, 5]
    assert [say.state["pages"]["owner"][p] for p in (3, 4, 5)] == [1, 1, 1]
    assert say.state["counters"]["pending_pages"] == 3 and say.state["counters"]["owned_pages"] == 5
    say.done(2, (0, 1), (9, 9), (False, False))
    say(types.PagesFreed, pages=(3, 4, 5), uids=(1, 1, 1))
    say.end(None, 2)
    assert request["pending"] == [] and say.state["counters"]["free_pages"] == 11
    assert not any(s["violations"] for s in say.history.steps)


def test_a_finished_request_holds_its_row_until_the_batch_is_done(say):
    finish_early(say)
    request, snap = say.state["requests"][0], say.history.at(3)
    assert (request["status"], request["row"], request["node"]) == ("finished", 0, 2)
    assert request["pages"] == [0, 1, 2, 6, 8] and request["pending"] == [8] and request["reserved"] == 0
    assert 0 in snap.ledgers()["requests"] and say.state["running"] == [1]

    release(say)
    assert (request["row"], request["node"], request["pages"], request["pending"]) == (-1, 0, [], [])
    assert 0 not in say.history.at(4).ledgers()["requests"] and request["output"] == [8, 9]
    assert not any(s["violations"] for s in say.history.steps)


@pytest.mark.parametrize("what", ["pages", "row"])
def test_nothing_is_given_back_while_a_batch_in_flight_names_it(say, what):
    if what == "pages":
        say(types.PagesFreed, pages=(3, 4, 5), uids=(1, 1, 1))
        said = "step 3, PagesFreed: pages [3, 4, 5] are freed, but batch 2, in flight, still names request 1"
    else:
        kept = {"old_len": 3, "hit_len": 3, "new_len": 3, "page_size": 1, "pages": (0, 1, 2, 6), "replaced": ()}
        say(types.NodeUnlocked, node=1, uid=0)
        say(types.Handoff, uid=0, finished=True, n=3, node=0, path=(1,), tick=3, **kept)
        say(types.RequestFinished, uid=0, reason="abort", num_output=1)
        say(types.RowReleased, uid=0, row=0, generation=1)
        said = "step 3, RowReleased: row 0 is given back, but batch 2, in flight, still names request 0"
    assert said in say.history._found


def test_an_error_ends_a_batch_in_flight(say):
    row = (0, 1, 2, 6)
    kept = {"old_len": 3, "hit_len": 3, "new_len": 3, "page_size": 1, "pages": row, "replaced": ()}
    say(types.NodeUnlocked, node=1, uid=0)
    say(types.Handoff, uid=0, finished=True, n=3, node=0, path=(1,), tick=3, **kept)
    say(types.ForwardFinished, batch=2, started=1.0, finished=1.0, error="the device is gone")
    say(types.RequestFinished, uid=0, reason="error", num_output=1, error="the device is gone")
    say(types.RowReleased, uid=0, row=0, generation=1)
    say(types.PagesFreed, pages=(6, 3, 4, 5), uids=(0, 1, 1, 1))
    say.end(None, 2)
    assert not any(s["violations"] for s in say.history.steps)
