"""Answers on random runs, against what snapshots and tables of the same runs say."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import pages_for
from minisgl.events import types as ev
from minisgl.sim.answers import blame, explain, hits, reservations
from minisgl.sim.answers.blaming import _admitted
from minisgl.sim.answers.books import Books
from minisgl.sim.answers.known import Known
from minisgl.sim.answers.missed import LOOKS
from tests.events.runs import record, traces

EXAMPLES = 50
VERDICTS = ("row", "budget", "chunk", "pages")


def uids(trace):
    return [e.uid for e in trace.of(ev.RequestArrived)]


def close(a, b):
    return math.isclose(a, b, abs_tol=1e-9)


@settings(max_examples=EXAMPLES)
@given(traces)
def test_books(trace):
    books, phase = Books(trace.keyframe), trace.about["config"]["phase"]
    for e in trace.events:
        books.apply(e)
        if isinstance(e, ev.AdmissionTested) and e.reserved is not None:
            # a test in a mixed batch also counts the pages that those who decode beside it take unpromised
            beside = phase == "mixed" and e.reserved - sum(books.promised.values())
            assert sum(books.promised.values()) + max(0, beside) == e.reserved
        elif isinstance(e, ev.SettingsChanged):
            phase = dict(zip(e.names, e.values, strict=True)).get("phase", phase)
        elif isinstance(e, ev.StepFinished):
            snap = trace.at(e.step)
            assert books.waiting == list(snap.queue)
            assert books.covers == {u: len(r.pages) for u, r in snap.requests.items() if r.row >= 0}
            assert sum(books.promised.values()) == e.reserved_pages


@settings(max_examples=EXAMPLES)
@given(traces)
def test_waiting(trace):
    requests = {row["uid"]: row for row in trace.requests.rows()}
    queued = [uid for k in range(trace.history.first + 1, trace.history.last + 1) for uid in trace.at(k).queue]
    for uid in uids(trace):
        answer = explain(trace, "why waiting", uid)
        spells = list(answer.data.rows())
        assert answer.facts["steps"] == sum(s["steps"] for s in spells) == queued.count(uid)
        assert close(answer.facts["time"], sum(s["time"] for s in spells))
        if not answer.facts["retractions"] and requests[uid]["admitted_step"] >= 0:
            assert close(answer.facts["time"], requests[uid]["queue_time"])
        for s in spells:
            assert s["steps"] == s["last_step"] - s["first_step"] + 1 or s["cause"] == "unseen"
            if s["cause"] == "pages":
                assert s["short"] == s["need"] + s["promised"] - s["had"] > 0
            refusals = [t for t in trace.of(ev.AdmissionTested) if t.verdict == s["cause"] and t.uid == s["tested"]]
            assert any(t.step <= s["last_step"] for t in refusals) == (
                s["cause"] in ("row", "budget", "chunk", "pages")
            )


def found(snap, prompt):
    """Tokens of a prompt that a snapshot's tree holds, page by page."""
    ps, at, node = snap.page_size, 0, 0
    below = snap.tree.children()
    while True:
        for child in below[node]:
            edge = snap.tree[child].tokens
            same = next((i for i, (a, b) in enumerate(zip(edge, prompt[at:], strict=False)) if a != b), None)
            same = min(len(edge), len(prompt) - at) if same is None else same
            if same >= ps:
                break
        else:
            return at
        at += same // ps * ps
        if same < len(edge):
            return at
        node = child


# prompts that are mostly the same, one after the other on a small pool, so that much is found, and much evicted
_common = [0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0]
_alike = st.builds(
    lambda n, own, new: ("submit", _common[:n] + own, new),
    st.integers(0, 12),
    st.lists(st.integers(0, 1), min_size=1, max_size=3),
    st.integers(1, 4),
)
shared_traces = st.builds(
    lambda ps, pages, overlap, script: record(
        {"page_size": ps, "num_pages": pages * 4 // ps, "overlap": overlap, "check": False}, (), script
    ),
    st.sampled_from([1, 2, 4]),
    st.integers(5, 7),
    st.booleans(),
    st.lists(st.one_of(_alike, *[st.just(("step",))] * 5), min_size=15, max_size=40),
)


@settings(max_examples=EXAMPLES)
@given(st.one_of(traces, shared_traces))
def test_missed(trace):
    requests = {row["uid"]: row for row in trace.requests.rows()}
    radix = trace.about["config"]["prefix_cache"] == "radix"
    ps, first = trace.keyframe["page_size"], {}
    for e in trace.of(ev.RequestAdmitted):
        first.setdefault(e.uid, e)
    for e in trace.of(ev.RequestArrived):
        answer = explain(trace, "why missed", e.uid)
        if e.uid not in first:
            assert not len(answer.data)
            continue
        parts = list(answer.data.rows())
        assert parts[0]["start"] == 0 and parts[-1]["end"] == len(e.prompt)
        assert all(a["end"] == b["start"] and a["tokens"] > 0 for a, b in itertools.pairwise(parts))
        facts = answer.facts
        assert facts["matched"] == first[e.uid].cached_len
        if not [r for r in trace.of(ev.RequestRetracted) if r.uid == e.uid]:
            assert facts["matched"] == requests[e.uid]["cached_tokens"]
        assert facts["matched"] + facts["computed"] == len(e.prompt) and facts["last"] >= 1
        assert bool(facts["naive"]) <= (not radix) and facts["rounding"] < ps
        # what the cache ever held of it, up to the last-but-one token, is neither new nor rounded away
        ever = [found(trace.at(k), e.prompt[:-1]) for k in range(trace.history.first, first[e.uid].step)]
        covered = sum(facts[cause] for cause in ("matched", "evicted", "in flight", "given up", "naive"))
        assert covered % ps == 0 and max(ever) <= covered
        gone = [p for p in parts if p["cause"] == "evicted"]
        assert all(p["end"] <= max(ever) and p["step"] <= first[e.uid].step for p in gone)


@settings(max_examples=EXAMPLES)
@given(traces)
def test_slow(trace):
    requests = {row["uid"]: row for row in trace.requests.rows()}
    for uid in uids(trace):
        row, answer = requests[uid], explain(trace, "why slow", uid)
        facts, parts = answer.facts, list(answer.data.rows())
        assert close(facts["time"], sum(p["time"] for p in parts))
        assert facts["steps"] == sum(p["steps"] for p in parts)
        if row["reason"]:
            assert close(facts["time"], row["e2e"])
            assert facts["steps"] == row["finished_step"] - row["arrived_step"] + 1
        if row["admitted_step"] >= 0 and not facts["retractions"]:
            assert close(facts["queue_time"], row["queue_time"])
            assert not facts["recompute_time"] and not facts["requeued_time"]
        seen = {p["part"]: p["steps"] for p in parts}
        sampled = [e for e in trace.of(ev.TokensSampled) if uid in e.uids]
        assert seen.get("decode", 0) + seen.get("mixed", 0) <= len(sampled)


@settings(max_examples=EXAMPLES)
@given(traces)
def test_reservations(trace):
    answer = reservations(trace)
    requests = {row["uid"]: row for row in trace.requests.rows()}
    retracted = {e.uid for e in trace.of(ev.RequestRetracted)}
    admitted = {e.uid: e for e in trace.of(ev.RequestAdmitted)}
    ps = trace.keyframe["page_size"]
    for row in answer.data.rows():
        assert row["unused"] == row["promised"] - row["used"]
        uid = row["uid"]
        if uid in admitted and uid not in retracted:
            assert row["used"] == requests[uid]["pages"] - admitted[uid].cached_len // ps
            assert row["output_tokens"] == requests[uid]["output_tokens"] or not row["end"]
            if trace.about["config"]["admission"] == "conservative" and not trace.of(ev.SettingsChanged):
                worst = pages_for(row["prompt_tokens"] + row["max_tokens"], ps)
                assert row["promised"] == worst - admitted[uid].cached_len // ps and row["unused"] >= 0
    over_time = answer.facts["over_time"]
    assert (over_time.unused <= over_time.promised).all() and (over_time.unused >= 0).all()


@settings(max_examples=25)
@given(traces)
def test_blame(trace):
    for e in trace.of(ev.RequestAdmitted)[-2:]:
        if e.uid not in uids(trace) or any(r.uid == e.uid for r in trace.of(ev.RequestRetracted)):
            continue
        if any(f.error for f in trace.of(ev.ForwardFinished)):  # what broke does not break in a replay
            continue
        assert _admitted(trace, e.uid, []) == e.step  # nobody left out: as it was
        later = [a.uid for a in trace.of(ev.RequestArrived) if a.step > e.step]
        assert _admitted(trace, e.uid, later) == e.step  # who came later cannot be to blame
        answer = blame(trace, e.uid)
        assert e.uid not in answer.data.left_out.tolist()
        for row in answer.data.rows():
            assert row["admitted_step"] == e.step - row["steps_earlier"] > 0


def test_hits_are_the_sum_of_every_single_look_up():
    saw: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES * 4)
    @given(traces)
    def check(trace):
        answer = hits(trace)
        assert answer.facts["asked"] == trace.figures.prompt_tokens
        assert answer.facts["hit"] == trace.figures.cached_tokens
        for row in answer.data.rows():
            one = explain(trace, "why missed", row["uid"]).facts
            assert {cause: row[cause] for cause in LOOKS} == {cause: one[cause] for cause in LOOKS}, row["uid"]
            assert row["asked"] == one["prompt"] == sum(row[cause] for cause in LOOKS)
        saw.update(cause for cause in LOOKS if answer.facts[cause])
        json.dumps(answer.to_dict(), allow_nan=False)

    check()
    assert set(saw) >= set(LOOKS) - {"evicted", "given up"}, saw  # rare here; test_answers has them


@settings(max_examples=EXAMPLES)
@given(traces)
def test_known_keeps_nothing_of_pages_where_nobody_ends(trace):
    known = Known(trace.keyframe)
    for e in trace.events:
        known.apply(e)
        assert all(known._ends.values())
    assert trace.keyframe["page_size"] > 1 or not known._ends
