"""A run as tables and figures, against what its snapshots and events say when nobody is in a hurry."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings

from minisgl.core import SamplingParams
from minisgl.errors import MissingLibraryError
from minisgl.events import types as ev
from minisgl.events.fold import Fold
from minisgl.events.recorder import Recorder
from minisgl.events.state import fresh
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count
from tests.events.runs import traces
from tests.fakes import Run

EXAMPLES = 50


def folded(trace, after=True):
    """``(event, state after it)`` for every event, or before it; the state goes on changing."""
    fold = Fold(fresh(trace.keyframe))
    for event in trace.events:
        if not after:
            yield event, fold.state
        fold.apply(event)
        if after:
            yield event, fold.state


class TestAgainstSnapshots:
    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_pages(self, trace):
        table, first, last = trace.pages, trace.history.first, trace.history.last
        owner = np.full((last - first + 1, trace.keyframe["num_pages"]), -99)
        node, times = owner.copy(), np.zeros_like(owner)
        for row in table.rows():
            span = slice(row["first_step"] - first, row["last_step"] - first + 1)
            owner[span, row["page"]], node[span, row["page"]] = row["owner"], row["node"]
            times[span, row["page"]] += 1
        assert (times == 1).all()  # no gap, no overlap
        for k in range(first, last + 1):
            pages = trace.at(k).pages
            assert owner[k - first].tolist() == pages.owner.tolist()
            assert node[k - first].tolist() == pages.node.tolist()
        joined = (table.page[1:] == table.page[:-1]) & (table.owner[1:] == table.owner[:-1])
        assert not (joined & (table.node[1:] == table.node[:-1])).any()  # an interval lasts as long as it can

    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_steps(self, trace):
        table = trace.steps
        assert table.step.tolist() == list(range(trace.history.first + 1, trace.history.last + 1))
        seen = output_of(trace.at(trace.history.first))
        for row in table.rows():
            snap = trace.at(row["step"])
            c = snap.counters
            assert row["t"] == snap.t
            assert [row[n] for n in ("waiting", "running", "promised", "pending")] == [
                len(snap.queue),
                len(snap.running),
                sum(r.reserved for r in snap.requests.values() if r.status != "finished"),
                c["pending_pages"],
            ]
            states = ("free", "owned", "evictable", "protected")
            assert [row[s] for s in states] == [snap.pages.count(s) for s in states]
            assert sum(row[s] for s in states) == snap.num_pages
            now = output_of(snap)
            assert row["sampled"] == now - seen
            seen = now
        assert table.finished.sum() == len(trace.of(ev.RequestFinished))
        assert table.evicted.sum() == sum(len(e.pages) for e in trace.of(ev.PagesEvicted))
        computed = sum(e.num_tokens for e in trace.of(ev.BatchScheduled))
        assert table.prefill_tokens.sum() + table.decode_tokens.sum() == computed
        launched = table.launched[table.launched >= 0].tolist()
        assert launched == [e.batch for e in trace.of(ev.BatchScheduled)]
        rows = {row["step"]: row for row in table.rows()}
        for event, state in folded(trace, after=False):  # who has a token is decoding, whatever the batch is called
            if isinstance(event, ev.BatchScheduled):
                decodes = [uid for uid in event.uids if state["requests"][uid]["status"] == "running"]
                assert rows[event.step]["decode_tokens"] == len(decodes)
        for step, row in rows.items():
            retracted = [e for e in trace.of(ev.RequestRetracted) if e.step == step]
            assert (row["retractions"], row["lost"]) == (len(retracted), sum(e.lost for e in retracted))

    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_requests(self, trace):
        end = trace.at(trace.history.last).requests
        begun = {uid for uid, r in trace.keyframe["requests"].items() if r["status"] != "finished"}
        table = trace.requests
        assert table.uid.tolist() == sorted(end.keys() | begun)
        most = dict.fromkeys(end, 0)
        for _, state in folded(trace):
            for uid, r in state["requests"].items():
                most[uid] = max(most[uid], len(r["pages"]))
        for row in table.rows():
            r = end[row["uid"]]
            rejected = any(e.uid == r.uid for e in trace.of(ev.RequestRejected))
            assert (row["reason"], row["output_tokens"]) == (r.reason, len(r.output))
            if not rejected:
                assert (row["prompt_tokens"], row["max_tokens"]) == (len(r.prompt), r.max_tokens)
                assert row["pages"] == max(
                    most[r.uid], len(trace.keyframe["requests"].get(r.uid, {"pages": ()})["pages"])
                )
            firsts = [e for e in first_admissions(trace) if e.uid == r.uid]
            admitted = bool(firsts)
            if admitted:
                assert (row["cached_tokens"], row["admitted"]) == (firsts[0].cached_len, firsts[0].t)
            elif r.uid in begun and trace.keyframe["requests"][r.uid]["status"] != "waiting":
                assert row["cached_tokens"] == trace.keyframe["requests"][r.uid]["matched"]
            else:
                assert row["cached_tokens"] == -1
            retracted = [e for e in trace.of(ev.RequestRetracted) if e.uid == r.uid]
            assert (row["retractions"], row["lost"]) == (len(retracted), sum(e.lost for e in retracted))
            assert (row["admitted_step"] >= 0) == admitted == (not math.isnan(row["admitted"]))
            assert math.isnan(row["submitted"]) == (r.uid in begun)
            assert row["refusals"] == sum(
                e.uid == r.uid and e.verdict != "admitted" for e in trace.of(ev.AdmissionTested)
            )
            kept = [
                e
                for e in trace.of(ev.TokensSampled)
                for uid, dropped in zip(e.uids, e.dropped, strict=True)
                if uid == r.uid and not dropped
            ]
            if kept:
                assert row["last_token"] == kept[-1].t
            if kept and not before(trace, r.uid, "output"):
                assert (row["first_token"], row["first_token_step"]) == (kept[0].t, kept[0].step)
                assert math.isnan(row["tpot"]) == (len(kept) < 2)
            else:
                assert math.isnan(row["first_token"]) and math.isnan(row["tpot"])

    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_admissions_and_handoffs(self, trace):
        assert len(trace.admissions) == len(trace.of(ev.AdmissionTested))
        for row, e in zip(trace.admissions.rows(), trace.of(ev.AdmissionTested), strict=True):
            assert all(v == (-1 if getattr(e, c) is None else getattr(e, c)) for c, v in row.items())
        ps = trace.keyframe["page_size"]
        pairs = zip(trace.handoffs.rows(), (x for x in folded(trace) if type(x[0]) is ev.Handoff), strict=True)
        for row, (e, _) in pairs:
            parts = ("locked", "duplicate", "inserted", "tail")
            assert all(row[f"{p}_tokens"] == row[f"{p}_pages"] * ps for p in parts)
            assert sum(row[f"{p}_pages"] for p in parts) == len(e.pages)
            assert row["locked_tokens"] + row["duplicate_tokens"] == e.hit_len
            assert (row["step"], row["uid"], row["finished"], row["n"]) == (e.step, e.uid, e.finished, e.n)

    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_figures(self, trace):
        f = trace.figures
        admitted = first_admissions(trace)
        assert f.cached_tokens == sum(e.cached_len for e in admitted)
        assert f.prompt_tokens == sum(len(trace.at(trace.history.last).requests[e.uid].prompt) for e in admitted)
        if admitted:
            assert 0 <= f.hit_rate <= f.hit_rate_ceiling < 1
            assert f.hit_rate_ceiling == pytest.approx(ceiling(trace) / f.prompt_tokens)
        batches = trace.of(ev.BatchScheduled)
        if batches:
            assert f.occupied.mean + f.evictable.mean + f.free.mean == pytest.approx(f.num_pages)
            assert f.promised.most == max(e.reserved_pages for e in batches)
        assert f.output_tokens == trace.requests.output_tokens.sum() - sum(
            len(r["output"]) for r in trace.keyframe["requests"].values() if r["status"] != "finished"
        )
        assert f.retractions == len(trace.of(ev.RequestRetracted)) == trace.requests.retractions.sum()
        assert f.lost_tokens == sum(e.lost for e in trace.of(ev.RequestRetracted)) == trace.requests.lost.sum()
        assert str(f.num_requests) in repr(f) and "<pre>" in f._repr_html_()


def before(trace, uid, what):
    """A list of a request's at the start of the record; empty if it came later."""
    return trace.keyframe["requests"].get(uid, {what: []})[what]


def first_admissions(trace):
    """Without those of requests that come back after a retraction, here or before the start."""
    known = trace.keyframe["requests"].values()
    seen, firsts = {r["uid"] for r in known if r["status"] != "waiting" or r["output"]}, []
    for e in trace.of(ev.RequestAdmitted):
        if e.uid not in seen:
            firsts.append(e)
        seen.add(e.uid)
    return firsts


def output_of(snap):
    return sum(len(r.output) for r in snap.requests.values())


def shared(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def ceiling(trace):
    """Prompt tokens that a cache with no bounds could have had, by comparing each prompt with everything before it."""
    ps = trace.keyframe["page_size"]
    start = trace.at(trace.history.first)
    known = [r.prompt for r in start.requests.values() if r.status in ("prefill", "running")]
    for node in start.tree:
        path, at = (), node
        while at > 0:
            path, at = start.tree[at].tokens + path, start.tree[at].parent
        known.append(path)
    total, firsts = 0, {id(e) for e in first_admissions(trace)}
    for event, state in folded(trace):
        if id(event) in firsts:
            prompt = state["requests"][event.uid]["prompt"]
            total += max((shared(k, prompt[:-1]) // ps * ps for k in known), default=0)
            known.append(prompt)
        elif isinstance(event, ev.Handoff):
            r = state["requests"][event.uid]
            known.append((*r["prompt"], *r["output"])[: event.n])
    return total


@pytest.fixture(scope="module")
def trace() -> Trace:
    run = Run(num_pages=8, max_seq_len=8, prefix_cache="naive")
    with Recorder(run) as recorder:
        run.submit([1, 2, 3], 3)  # needs 6 pages: prefill in step 1, tokens at 1, 2 and 3 ms
        run.submit([4, 5], 2)  # needs 4: waits for those, then tokens at 4 and 5 ms
        run.play()
        run.scheduler.submit([6], SamplingParams(max_tokens=1), client_id="last")  # at 5 ms, token at 6 ms
        run.play()
    return recorder.trace


class TestKnownTimes:
    """The fake's clock stands still but for the 1 ms that each launch takes."""

    def test_requests(self, trace):
        t = trace.requests
        assert t.output_tokens.tolist() == [3, 2, 1] and t.refusals.tolist() == [0, 2, 0]  # again after the handoff
        assert t.client_id.tolist() == ["", "", "last"] and t.pages.tolist() == [5, 3, 1]
        ms = {c: (a * 1000).round(6).tolist() for c, a in t.items() if t.units[c] == "s"}
        assert ms["submitted"] == [0, 0, 5] and ms["admitted"] == [0, 3, 5]
        assert ms["queue_time"] == [0, 3, 0]
        assert ms["first_token"] == [1, 4, 6] and ms["last_token"] == ms["finished"] == [3, 5, 6]
        assert ms["ttft"] == [1, 4, 1] and ms["e2e"] == [3, 5, 1]
        assert ms["tpot"][:2] == [1, 1] and math.isnan(ms["tpot"][2])
        assert t.admitted_step.tolist() == [1, 4, 6] and t.finished_step.tolist() == [3, 5, 6]

    def test_steps(self, trace):
        t = trace.steps
        assert t.phase.tolist() == ["prefill", "decode", "decode", "prefill", "decode", "prefill"]
        assert t.prefill_tokens.tolist() == [3, 0, 0, 2, 0, 1] and t.decode_tokens.tolist() == [0, 1, 1, 0, 1, 0]
        assert t.arrived.tolist() == [2, 0, 0, 0, 0, 1] and t.refused.tolist() == [1, 1, 0, 0, 0, 0]
        assert t.finished.tolist() == [0, 0, 1, 0, 1, 1] and t.forward.tolist() == [0] * 6
        assert t.promised.tolist() == [2, 1, 0, 1, 0, 0] and t.free.tolist() == [5, 4, 8, 6, 8, 8]

    def test_figures(self, trace):
        f = trace.figures
        assert f.ttft.mean == pytest.approx(0.002) and f.ttft.max == pytest.approx(0.004)
        assert f.queue_time.p50 == 0 and f.tpot.count == 2 and f.e2e.count == 3
        assert f.duration == pytest.approx(0.006) and f.output_throughput == pytest.approx(1000)
        assert f.total_throughput == pytest.approx(2000) and f.hit_rate == f.hit_rate_ceiling == 0
        assert (f.occupied.most, f.free.least, f.promised.most, f.num_pages) == (5, 3, 2, 8)
        told = f.to_dict()
        assert told["ttft"]["count"] == 3 and told["retractions"] == 0
        assert "3 requests, 3 finished, in 6 steps and 6 ms" in repr(f)


def test_a_retraction_loses_what_was_computed_and_is_no_hit():
    run = Run(num_pages=6, max_seq_len=6, admission="optimistic")
    with Recorder(run) as recorder:
        run.submit([1, 2], 4)  # both are let in, and after one token more each 5 of 6 pages are taken ...
        run.submit([3], 4)
        run.play()
    t, f = recorder.trace.requests, recorder.trace.figures
    (event,) = recorder.trace.of(ev.RequestRetracted)
    assert (event.uid, event.step, event.lost, len(event.pages)) == (1, 3, 1, 1)  # ... so the prompt alone is cached
    assert t.retractions.tolist() == [0, 1] and t.lost.tolist() == [0, 1]
    assert t.cached_tokens.tolist() == [0, 0] and t.admitted_step.tolist() == [1, 1] and t.pages.tolist() == [5, 4]
    assert (f.retractions, f.lost_tokens, f.hit_rate, f.prompt_tokens) == (1, 1, 0, 3)
    assert "1 retraction (1 token lost)" in repr(f)
    s = recorder.trace.steps
    assert s.retractions.tolist() == [0, 0, 1, *[0] * (len(s) - 3)] and s.lost.sum() == 1
    again = recorder.trace.of(ev.RequestAdmitted)[-1]
    assert (again.uid, again.cached_len) == (1, 1)
    (row,) = [r for r in s.rows() if r["step"] == again.step]
    assert (row["admitted"], row["prefill_tokens"]) == (1, 2)  # what it had generated


def test_a_mixed_batch_is_counted_by_what_its_requests_do():
    run = Run(phase="mixed", max_prefill_tokens=4)
    run.submit([1], 6)
    run.scheduler.step()
    with Recorder(run) as recorder:
        run.submit(list(range(10, 18)), 2)
        run.play()
    s = recorder.trace.steps
    assert s.phase.tolist()[:3] == ["mixed"] * 3
    assert s.prefill_tokens.tolist()[:4] == [3, 3, 2, 0] and s.decode_tokens.tolist()[:4] == [1, 1, 1, 2]


def test_what_a_rejected_a_waiting_and_a_known_request_have():
    run = Run(num_pages=8, max_seq_len=8)
    run.submit([1, 2, 3], 3)
    run.scheduler.step()
    with Recorder(run) as recorder:
        with pytest.raises(Exception, match="token 5000"):
            run.submit([5000], 2)
        run.submit([7, 7, 7], 3)
        run.scheduler.step()
    known, rejected, waiting = recorder.trace.requests.rows()
    assert (known["output_tokens"], known["cached_tokens"], known["arrived_step"]) == (2, 0, -1)
    assert all(math.isnan(known[c]) for c in ("submitted", "first_token", "ttft", "tpot", "e2e"))
    assert rejected["reason"] == "error" and rejected["error"].startswith("TokenOutOfVocabularyError: token 5000")
    assert (rejected["prompt_tokens"], rejected["max_tokens"], rejected["finished_step"]) == (1, -1, -1)
    assert math.isnan(rejected["e2e"]) and not math.isnan(rejected["arrived"])
    assert (waiting["reason"], waiting["cached_tokens"], waiting["refusals"]) == ("", -1, 1)
    assert math.isnan(waiting["queue_time"]) and not math.isnan(waiting["submitted"])


def test_the_ceiling_knows_outputs_once_their_request_has_ended():
    """A second turn: all of the first is known, but for its last token, whose KV was never computed."""
    run = Run()
    with Recorder(run) as recorder:
        first = run.submit([1, 2, 3], 3)
        run.play()
        run.submit([*first.token_ids, 8, 9], 1)
        run.play()
    f = recorder.trace.figures
    assert f.cached_tokens == 5 and f.hit_rate == f.hit_rate_ceiling == 5 / 11


def test_the_ceiling_knows_requests_that_were_alive_at_the_start():
    run = Run(prefix_cache="naive", page_size=2)
    run.submit([1, 2, 3, 4, 5], 3)
    run.scheduler.step()
    with Recorder(run) as recorder:
        run.submit([1, 2, 3, 4, 5], 3)
        run.play()
    f = recorder.trace.figures
    assert (f.hit_rate, f.hit_rate_ceiling) == (0, 4 / 5)


def test_a_batch_is_joined_by_its_number_not_by_its_step():
    """As with overlap: launched in one step, processed in the next, with a sample that came too late."""
    trace = overlapped()
    t = trace.steps
    assert t.launched.tolist() == [1, 2, -1] and t.processed.tolist() == [-1, 1, 2]
    assert t.prefill_tokens.tolist() == [2, 0, 0] and t.decode_tokens.tolist() == [0, 1, 0]
    assert np.isnan(t.forward[0]) and t.forward[1:].tolist() == [0.25, 0.5]
    assert t.sampled.tolist() == [0, 1, 0] and t.dropped.tolist() == [0, 0, 1]
    assert t.pending.tolist() == [0, 3, 0]
    (row,) = trace.requests.rows()
    assert (row["output_tokens"], row["first_token"], row["last_token"], row["finished"]) == (1, 2.0, 2.0, 2.0)
    assert (row["first_token_step"], row["pages"]) == (2, 3)
    assert trace.figures.dropped_samples == 1 and trace.figures.output_tokens == 1
    assert trace.pages.owner.tolist() == [-1, 0, -1] * 3 + [-1]
    assert trace.pages.last_step.tolist() == [0, 2, 3] * 2 + [1, 2, 3] + [3]


def overlapped() -> Trace:
    """A request that stops at its first token, which is seen when its second is already being computed."""
    keyframe = Run(num_pages=4, max_seq_len=4, prefix_cache="naive").snapshot().to_dict()
    base = {"waiting": 0, "running": 1, "evictable_pages": 0, "protected_pages": 0, "pending_pages": 0, "uids": (0,)}

    def pool(free, reserved=0, **more):
        return base | {"free_pages": free, "owned_pages": 4 - free, "reserved_pages": reserved} | more

    def batch(step, number, phase, start, end, free):
        return ev.BatchScheduled(
            step=step,
            t=float(step),
            batch=number,
            phase=phase,
            num_tokens=end - start,
            starts=(start,),
            ends=(end,),
            samples=(True,),
            reserved=(0,),
            **pool(free),
        )

    def end(step, launched, processed, phase, n, **counters):
        uids = () if processed is None else (0,)
        ends = {"launched": launched, "processed": processed, "processed_uids": uids}
        return ev.StepFinished(step=step, t=float(step), phase=phase, num_tokens=n, **ends, **counters)

    def admitted():
        fields = {"row": 0, "generation": 1, "cached_len": 0, "pages": (), "node": 0, "reserved": 3}
        return ev.RequestAdmitted(step=1, t=1.0, uid=0, **fields)

    sampling = SamplingParams(max_tokens=2)
    events = [
        ev.RequestArrived(
            step=1, t=1.0, uid=0, prompt=(1, 2), max_tokens=2, params=sampling, seed=0, stop_tokens=(9,), submitted=0.5
        ),
        admitted(),
        ev.PagesAllocated(step=1, t=1.0, uids=(0,), counts=(2,), pages=(0, 1)),
        batch(1, 1, "prefill", 0, 2, 2),
        end(1, 1, None, "prefill", 2, **pool(2)),
        ev.PagesAllocated(step=2, t=2.0, uids=(0,), counts=(1,), pages=(2,)),
        batch(2, 2, "decode", 2, 3, 1),
        ev.ForwardFinished(step=2, t=2.0, batch=1, started=1.0, finished=1.25),
        ev.TokensSampled(step=2, t=2.0, batch=1, uids=(0,), tokens=(9,), dropped=(False,)),
        ev.RequestFinished(step=2, t=2.0, uid=0, reason="stop", num_output=1),
        end(2, 2, 1, "decode", 1, **pool(1, running=0, pending_pages=3)),
        ev.ForwardFinished(step=3, t=3.0, batch=2, started=1.5, finished=2.0),
        ev.TokensSampled(step=3, t=3.0, batch=2, uids=(0,), tokens=(5,), dropped=(True,)),
        ev.PagesFreed(step=3, t=3.0, pages=(0, 1, 2), uids=(0, 0, 0)),
        ev.RowReleased(step=3, t=3.0, uid=0, row=0, generation=1),
        end(3, None, 2, "decode", 1, **pool(4, running=0)),
    ]
    return Trace(keyframe, events, {})


class TestTable:
    @pytest.fixture
    def table(self) -> Table:
        units = {"uid": "request", "ttft": "s", "reason": "text", "done": "flag"}
        return Table.of_rows("things", units, [(i, i / 4, "stop" if i else "", i > 0) for i in range(3)])

    def test_columns(self, table):
        assert list(table) == list(table.keys()) == ["uid", "ttft", "reason", "done"] and len(table) == 3
        assert len(table.keys()) == len(table.items()) == len(table.values()) == 4
        assert [a.dtype.kind for a in table.values()] == ["i", "f", "U", "b"]
        assert table.uid is table["uid"] and table.ttft[2] == 0.5 and "uid" in table
        assert table._ipython_key_completions_() == list(table) and "ttft" in dir(table)
        with pytest.raises(AttributeError, match="things has no column 'tpot'; it has uid, ttft, reason, done"):
            _ = table.tpot
        with pytest.raises(KeyError):
            _ = table["tpot"]

    def test_rows_are_plain(self, table):
        first, *_ = table.rows()
        assert first == {"uid": 0, "ttft": 0.0, "reason": "", "done": False}
        assert [type(v) for v in first.values()] == [int, float, str, bool]

    def test_equal(self, table):
        units = table.units
        rows = [tuple(r.values()) for r in table.rows()]
        assert table == Table.of_rows("things", units, rows) != Table.of_rows("things", units, rows[:2])
        rows[0] = (0, float("nan"), "", False)
        assert Table.of_rows("things", units, rows) == Table.of_rows("things", units, rows) != table

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
    def test_copies(self, table, copied):
        assert copied(table) == table

    def test_an_empty_one(self, table):
        empty = Table.of_rows("things", table.units, [])
        assert len(empty) == 0 and list(empty.rows()) == [] and empty.ttft.dtype == np.float64
        assert repr(empty) == "things: 0 rows of 4 columns\nuid  ttft  reason  done"

    def test_a_terminals_head(self, table):
        assert (
            table.text()
            == "uid  ttft  reason  done\n  0     0            no\n  1  0.25  stop     yes\n  2   0.5  stop     yes"
        )
        assert table.text(most=1, width=10).splitlines() == [
            "uid  ttft",
            "  0     0",
            "... and 2 more rows",
            "... and columns reason, done",
        ]

    def test_one_of_something_is_not_called_several(self):
        one = Table.of_rows("things", {"uid": "request"}, [(7,)])
        assert repr(one).startswith("things: 1 row of 1 column\n") and "<b>things</b>: 1 row<" in one._repr_html_()
        two = Table.of_rows("things", {"uid": "request"}, [(7,), (8,)])
        assert two.text(most=1).endswith("... and 1 more row")
        assert (count(1, "batch", "batches"), count(2, "batch", "batches")) == ("1 batch", "2 batches")

    def test_html_is_escaped(self):
        table = Table.of_rows("x", {"error": "text"}, [("<b>",)] * 12)
        html = table._repr_html_()
        assert "&lt;b&gt;" in html and "<td><b>" not in html and "2 more rows" in html

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_frames(self, table, monkeypatch, library):
        monkeypatch.setitem(sys.modules, library, SimpleNamespace(DataFrame=lambda columns: columns))
        frame = getattr(table, f"to_{library}")()
        assert list(frame) == list(table) and all(frame[c] is table[c] for c in table)
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(MissingLibraryError, match=f"{library} is not installed.*pip install {library}"):
            getattr(table, f"to_{library}")()


def test_an_empty_run():
    keyframe = Run().snapshot().to_dict()
    trace = Trace(keyframe, [], {})
    assert [len(t) for t in (trace.requests, trace.steps, trace.admissions, trace.handoffs)] == [0] * 4
    assert len(trace.pages) == 64 and set(trace.pages.owner.tolist()) == {-1}
    assert math.isnan(trace.figures.hit_rate) and trace.figures.ttft.count == 0 and "0 requests" in repr(trace.figures)
    assert trace.check() == []


class TestCheck:
    def test_a_sound_run(self, trace):
        assert trace.check() == []

    def test_a_page_that_nobody_gave_back(self, trace):
        events = [e for e in trace.events if not (isinstance(e, ev.PagesFreed) and e.step == 3)]
        found = Trace(trace.keyframe, events, {}).check()
        assert found[0][0] == 3 and any("page 0" in said for _, said in found)
        assert len({said for _, said in found}) == len(found)  # each once, though it lasts to the end
