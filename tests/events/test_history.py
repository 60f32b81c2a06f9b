"""Listeners, the fold, histories, and the checks that a state is sound."""

from __future__ import annotations

import copy
import gc
import json
import pickle

import pytest

from minisgl.errors import LedgerError, TraceError
from minisgl.events import EVENT_TYPES, AdmissionTested, History, Snapshot, StepFinished, describe, types
from minisgl.events.fold import Fold
from minisgl.events.integrity import violations
from minisgl.events.recorder import Recorder
from minisgl.events.state import RequestState, apply_delta, initial_state, touched, undo_delta
from tests.fakes import Run


@pytest.fixture
def run():
    """Shared prefixes, duplicates, a refusal and an eviction."""
    run = Run(page_size=2, num_pages=16, max_seq_len=32)
    run.history = History(run.scheduler.snapshot().to_dict())
    run.scheduler.bus.on(None, run.history.feed)
    for prompt in ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 9, 9], list(range(20))):
        run.submit(prompt, 6)
    return run


class TestBus:
    @pytest.mark.parametrize("listening", [False, True])
    def test_no_event_is_made_when_nobody_listens(self, monkeypatch, listening):
        run = Run(record=False, check=False)
        made = []
        for cls in EVENT_TYPES:  # emit makes them through the name its caller gives, so that is what is counted
            if cls is not StepFinished:
                monkeypatch.setattr(types, cls.__name__, _counting(cls, made))
        if listening:
            for cls in EVENT_TYPES:
                counted = getattr(types, cls.__name__)
                run.scheduler.bus._listeners[counted] = (lambda e: None,)
        run.submit([1, 2, 3], 4)
        run.play()
        assert bool(made) is bool(run.scheduler.bus) is listening

    def test_one_type_and_its_end(self, run):
        seen = []
        with run.scheduler.bus.on(AdmissionTested, seen.append):
            run.scheduler.step()
        run.play()
        assert seen and {type(e) for e in seen} == {AdmissionTested} and {e.step for e in seen} == {1}

    def test_a_hook_that_raises_is_reported_once_and_detached(self, run, capsys):
        calls = []

        def hook(event):
            calls.append(event)
            raise ValueError("my own bug")

        run.scheduler.bus.on(StepFinished, hook)
        run.play()
        assert len(calls) == 1
        assert capsys.readouterr().err.count("ValueError: my own bug") == 1

    def test_after_step_gets_a_snapshot_on_request(self, run):
        seen = []
        run.scheduler.after_step(lambda event, snapshot: seen.append((event.step, snapshot().step)))
        run.play()
        assert seen and all(a == b for a, b in seen)

    def test_unknown_type(self, run):
        with pytest.raises(TypeError, match="is not an event type; the event types are RequestArrived"):
            run.scheduler.bus.on(int, print)


def _counting(cls, made):
    def make(**fields):
        made.append(cls)
        return cls(**fields)

    return make


def keyframes_every(apart: int, run: Run) -> History:
    class Dense(History):
        def _due(self) -> bool:
            return self.last % apart == 0

    history = Dense(run.history.at(0).to_dict())
    for event in run.events:
        history.feed(event)
    return history


class TestHistory:
    def test_every_step_equals_the_live_ledgers(self, run):
        live = {0: run.scheduler.snapshot()}
        run.scheduler.after_step(lambda event, snapshot: live.__setitem__(event.step, snapshot()))
        run.play()
        assert run.history.last == len(live) - 1 > 10
        for step, snapshot in live.items():
            assert run.history.at(step).differences(snapshot) == []

    def test_forwards_and_backwards_through_json(self, run):
        run.play()
        deltas = json.loads(json.dumps(run.history.deltas))
        state, states = json.loads(json.dumps(run.history.at(0).to_dict())), []
        for delta in deltas:
            states.append(copy.deepcopy(state))
            apply_delta(state, delta)
        for delta, before in zip(reversed(deltas), reversed(states), strict=True):
            undo_delta(state, delta)
            assert state == before

    @pytest.mark.parametrize("apart", [1, 3, 5])
    def test_keyframes_do_not_change_the_answer(self, run, apart):
        """However many there are, and whether a step is reached forwards or backwards from the nearest."""
        run.play()
        assert len(run.history._keyframes) == 1
        many = keyframes_every(apart, run)
        assert len(many._keyframes) == 1 + many.last // apart
        for _ in range(2):  # the second time, nothing that the first gave may have changed
            for step in range(many.last + 1):
                assert many.at(step) == run.history.at(step)

    def test_nobody_changes_what_snapshots_share(self, run):
        run.play()
        history = keyframes_every(4, run)
        steps = range(history.last + 1)
        whole = [copy.deepcopy(history.at(step).to_dict()) for step in steps]
        for step in steps:
            snap = history.at(step)
            state = snap.to_dict()
            for delta in reversed(history.deltas[:step]):
                undo_delta(state, delta)
            assert state == whole[0]
            snap.requests.get(0, RequestState(uid=0)).pages.append(99)
            snap.counters["free_pages"] = 99
            snap.waiting.append(99)
            for rows in (snap.tests, snap.handoffs):
                rows.clear()
        assert [history.at(step).to_dict() for step in steps] == whole

    def test_snapshots_share_what_has_ended(self, run):
        run.play()
        history = keyframes_every(4, run)
        ended = history.at(history.last)._state["requests"]
        assert history.at(history.last - 1)._state["requests"][0] is ended[0]

    def test_a_snapshot_does_not_move_with_the_run(self, run):
        run.scheduler.step()
        first = run.history.at(1)
        kept = copy.deepcopy(first.to_dict())
        run.play()
        assert first.to_dict() == kept == run.history.at(1).to_dict()

    @pytest.mark.parametrize("step", [-1, 999])
    def test_a_step_that_is_not_there(self, run, step):
        run.play()
        with pytest.raises(TraceError, match=f"step {step} is not in this run: it holds steps 0 to"):
            run.history.at(step)

    def test_every_event_can_be_told(self, run):
        run.scheduler.abort(run.submit([5, 5], 3).uid)
        run.play()
        silent = {type(e).__name__ for e in run.events if not describe(e)}
        assert silent <= {
            "ForwardStarted",
            "ForwardFinished",
            "StepFinished",
            "NodeLocked",
            "NodeUnlocked",
            "PrefixMatched",
        }


CHANGES = {
    "an entry": ("set", ("c", "x"), 1, 2),
    "a new entry": ("set", ("c", "z"), None, {"deep": [1]}),
    "an entry that goes": ("set", ("c", "y"), 2, None),
    "an element": ("set", ("list", 1), 6, 0),
    "a column": ("column", ("list", None), (2, 0), (7, 5), (70, 50)),
    "a column of one value": ("column", ("c", None), ("x", "y"), (1, 2), 9),
    "a field of entries": ("column", ("rows", None, "n"), (0, 1), 3, (4, 5)),
    "appended": ("append", ("rows", None, "has"), (1, 0, 1), ("a", "b", "c")),
    "spliced in": ("splice", ("list",), 1, (), (8, 9)),
    "spliced out": ("splice", ("list",), 0, (5, 6), ()),
    "exchanged": ("splice", ("rows", 0, "has"), 0, (1,), (2, 3, 4)),
}


class TestChanges:
    def state(self):
        return {"list": [5, 6, 7], "c": {"x": 1, "y": 2}, "rows": [{"n": 3, "has": [1]}, {"n": 3, "has": []}]}

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    def test_there_and_back(self, change):
        state = self.state()
        apply_delta(state, [change])
        assert state != self.state()
        undo_delta(state, [change])
        assert state == self.state()

    def test_what_they_do(self):
        state = self.state()
        apply_delta(state, CHANGES.values())
        assert state == {
            "list": [9, 0, 70],
            "c": {"x": 9, "y": 9, "z": {"deep": [1]}},
            "rows": [{"n": 4, "has": [2, 3, 4, "b"]}, {"n": 5, "has": ["a", "c"]}],
        }

    def test_what_they_touch(self):
        deltas = [
            [("column", ("requests", None, "cached_len"), (3, 4), (0, 0), (1, 1)), ("set", ("step",), 0, 1)],
            [("set", ("nodes", 7, "parent"), 0, 1), ("splice", ("requests", 5, "pages"), 0, (), (1,))],
            [
                ("append", ("requests", None, "output"), (3, 6), (9, 9)),
                ("column", ("pages", "owner", None), (8,), -1, 3),
            ],
        ]
        assert touched(deltas) == {"requests": {3, 4, 5, 6}, "nodes": {7}}

    def test_what_goes_in_is_copied(self):
        value = {"x": [1]}
        state: dict = {}
        apply_delta(state, [("set", ("n",), None, value)])
        state["n"]["x"].append(2)
        assert value == {"x": [1]}

    def test_every_kind_occurs(self, run):
        run.play()
        assert {change[0] for delta in run.history.deltas for change in delta} == {"set", "column", "append", "splice"}


class TestSnapshot:
    def test_arrays(self, run):
        run.scheduler.step()
        snap = run.history.at(1)
        pages = snap.pages
        counts = {s: pages.count(s) for s in ("free", "owned", "evictable", "protected")}
        assert sum(counts.values()) == 16 and pages.dummy == 16
        assert counts["free"] == snap.counters["free_pages"] and counts["owned"] == snap.counters["owned_pages"]
        assert (pages.owner[pages.state == 1] >= 0).all() and (pages.owner[pages.state == 3] == -2).all()
        assert snap.queue == tuple(snap.waiting) and repr(snap).startswith("Snapshot(step=1, free=")
        assert snap.tree.depth(max(snap.tree)) > 0 and "root" in snap.text()
        assert "step 1" in snap._repr_html_()

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
    def test_copies(self, run, copied):
        run.scheduler.step()
        snap = run.history.at(1)
        assert copied(snap) == snap and copied(snap).pages.count("free") == snap.pages.count("free")

    def test_a_deep_or_wide_tree_is_printed_short(self):
        state = initial_state(4, 1, 1)
        for i in range(1, 3000):
            state["nodes"][i] = {"parent": i - 1 if i < 2000 else 0, "tokens": (i,), "pages": (), "locks": 0, "used": i}
        tree = Snapshot(state).tree
        assert len(list(tree.walk())) == 2999 and repr(tree).endswith("... and 2799 more nodes")

    def test_unknown_names_say_what_there_is(self):
        snap = Snapshot(initial_state(4, 1, 1))
        with pytest.raises(AttributeError, match="it has batch, counters"):
            _ = snap.nothing
        assert "pages" in dir(snap)

    def test_differences_name_the_place(self, run):
        run.scheduler.step()
        a = run.history.at(1)
        other = a.to_dict()
        other["pages"]["owner"][3] = 99
        assert a.differences(Snapshot(other)) == [f"pages.owner.3: {a.pages.owner[3]}, 99"]


BREAKS = {
    "in 2 tree nodes": lambda s: s["nodes"][1].update(pages=s["nodes"][1]["pages"] * 2),
    "in the tree but belongs to nobody": lambda s: _own(s, s["nodes"][1]["pages"][0], -1),
    "in the tree but belongs to request 0": lambda s: _own(s, s["nodes"][1]["pages"][0], 0),
    "belongs to the cache but no tree node has it": lambda s: _own(s, s["pages"]["owner"].index(-1), -2),
    "is in the free list": lambda s: _own(s, s["pages"]["owner"].index(-1), 0),
    "is not in the free list": lambda s: s["pages"]["order"].__setitem__(s["pages"]["owner"].index(-1), -1),
    "which belongs to nobody": lambda s: s["requests"][0]["pages"].append(s["pages"]["owner"].index(-1)),
    "tokens but only": lambda s: s["requests"][0]["pages"].clear(),
    "whose row does not name it": lambda s: s["requests"][0]["pages"].pop(),
    "locks pages": lambda s: s["requests"][0].update(pages=s["requests"][0]["pages"][::-1]),
    "locks but": lambda s: s["nodes"][1].update(locks=7),
    "free_pages says": lambda s: s["counters"].update(free_pages=99),
    "reserved_pages says": lambda s: s["requests"][0].update(reserved=99),
    "waiting says": lambda s: s["waiting"].append(5),
    "has pages []": lambda s: s["queue"].update(added=s["queue"]["added"] + 1),
    "of the free list, which runs from": lambda s: s["pages"]["order"].__setitem__(
        s["pages"]["owner"].index(-1), s["queue"]["added"] - 1
    ),
    "names page 16, which is the dummy page": lambda s: s["requests"][0]["pages"].append(16),
    "row 0 belongs to request 1, which does not have it": lambda s: s["rows"][0].update(uid=1),
    "has row 1, which belongs to request 1": lambda s: s["requests"][0].update(row=1),
    "at work but has no row": lambda s: s["requests"][0].update(row=-1),
    "has given up page": lambda s: s["requests"][0].update(pending=s["requests"][0]["pages"][-1:]),
    "pending, which belongs to nobody": lambda s: s["requests"][0].update(pending=[s["pages"]["owner"].index(-1)]),
    "pending_pages says 0, counting gives 1": lambda s: s["requests"][0].update(pending=s["requests"][0]["pages"][-1:]),
    "more pages are promised": lambda s: s["counters"].update(reserved_pages=99),
}


def _own(state, page, owner):
    state["pages"]["owner"][page] = owner


@pytest.mark.parametrize("says", BREAKS)
def test_each_broken_rule_is_named(run, says):
    run.scheduler.step()
    state = run.history.at(1).to_dict()
    assert violations(state) == []
    BREAKS[says](state)
    assert any(says in v for v in violations(state)), violations(state)


def test_the_engines_own_check_sees_a_stale_row(run):
    run.scheduler.step()
    request = run.scheduler.running[0]
    request.pages[0] = run.scheduler.cache.num_pages - 1
    with pytest.raises(LedgerError, match="differ at requests.0.pages.0: 0, 15"):
        run.scheduler.check_integrity()


def test_the_engines_own_check_sees_a_lost_row(run):
    run.scheduler.step()
    run.scheduler.table.free_rows.pop()
    with pytest.raises(LedgerError, match="rows in use do not add up"):
        run.scheduler.check_integrity()


def test_the_engines_own_check_sees_an_event_that_was_not_sent(run):
    run.scheduler.step()
    run.scheduler.cache.reserve(run.scheduler.running[0], 1)
    with pytest.raises(LedgerError, match=r"events and ledgers differ at requests\.0\.reserved"):
        run.scheduler.check_integrity()


def test_a_recorder_keeps_what_lies_between(run):
    run.scheduler.step()
    recorder = Recorder(run, "middle")
    with pytest.raises(RuntimeError, match="nothing recorded"):
        _ = recorder.trace
    with recorder:
        run.scheduler.step()
        run.scheduler.step()
    run.play()
    trace = recorder.trace
    assert trace.steps.step.tolist() == [2, 3] and trace.history.first == 1
    assert trace.at(3).differences(run.history.at(3)) == [] and gc.isenabled()
    assert trace.texts[1] == "<1>" and trace.title == "middle"
    assert repr(trace) == f"Trace(steps 2 to 3, {len(trace)} events)"
    assert "decode" in trace.table() and "decode" in trace._repr_html_()


def test_the_fold_reads_every_event_type():
    assert all(hasattr(Fold, f"_{cls.__name__}") for cls in EVENT_TYPES)
