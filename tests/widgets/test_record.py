"""What Python writes for browsers, Node reads: every state, every event, forwards, backwards and by jumps."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from minisgl.events import types as ev
from minisgl.events.history import History
from minisgl.events.integrity import counts
from minisgl.events.recorder import Recorder
from minisgl.events.state import apply_delta, undo_delta
from minisgl.events.words import EMITTERS, describe
from minisgl_widgets import leap as leaps
from minisgl_widgets import record as records
from minisgl_widgets.feed import Feed
from minisgl_widgets.leap import leap
from minisgl_widgets.packed import pack, pack_each
from minisgl_widgets.record import FLAGS, Encoder
from minisgl_widgets.session import Session
from tests.chromium import skip_or_fail
from tests.fakes import Run
from tests.widgets.packed import parts_of, unpack, unpack_each

JS = Path(__file__).parent.parent / "js"


@pytest.fixture(scope="module")
def run() -> Run:
    """Shared prefixes in a small pool, retracted requests, an abort, a refusal, with a batch in flight."""
    run = Run(num_pages=14, page_size=4, max_seq_len=40, max_running_requests=4, overlap=True, admission="optimistic")
    rng = random.Random(3)
    system = list(range(1, 10))
    for i in range(50):
        run.submit(system[: rng.randrange(2, 10)] + [rng.randrange(20, 23) for _ in range(rng.randrange(1, 9))], 20)
        for _ in range(rng.randrange(6)):
            run.scheduler.step()
        if i % 11 == 0:
            run.scheduler.abort(i)
    run.play()
    return run


@pytest.fixture(scope="module")
def history(run: Run) -> History:
    return fold(Run(num_pages=14, page_size=4, max_seq_len=40, max_running_requests=4).snapshot().to_dict(), run.events)


@pytest.fixture(scope="module")
def states(history: History) -> dict[int, Any]:
    """The state after each step, as JSON has it."""
    return {s: plain(history.at(s).to_dict()) for s in range(history.first, history.last + 1)}


def fold(keyframe: dict, events: Iterable[ev.Event]) -> History:
    history = History(keyframe)
    for event in events:
        history.feed(event)
    return history


def plain(state: dict) -> Any:
    return json.loads(json.dumps(state))


def in_node(*arguments: Any) -> list[Any]:
    node = shutil.which("node") or skip_or_fail("no node was found")
    done = subprocess.run([node, JS / "reads.mjs", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def ways(history: History) -> list[int]:
    """Every step forwards, every step backwards, and jumps."""
    steps = list(range(history.first, history.last + 1))
    return [*steps, *reversed(steps), *random.Random(1).choices(steps, k=60)]


# -- packed JSON -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2], "b": ["x", None, True, 1.5], "": {}},
        [[5] * 9, list(range(300)), [0, 127, -128, 3, 4], [1000, -1000, 4, 5, 6], [2**31 - 1] * 5, [2**40] * 5],
        [
            [1, 2, 3, 4, 5.5],
            [1, 2, 3, 4, None],
            [True] * 9,
            [True, False] * 4,
            [1, 0] * 4,
            list("abcdefg"),
            [[1] * 8, [1] * 8],
        ],
        [[70_000, 70_001, 70_002, 70_003, 70_009], [2**52, 2**52 + 1, 2**52 + 2, 2**52 + 5, 2**52]],
        {"deep": [{"x": [{"y": [9] * 40}]}]},
    ],
)
def test_packing_gives_back_what_went_in(value: Any) -> None:
    assert unpack(pack(value)) == value
    entries = value if isinstance(value, list) else [value]
    assert unpack_each(pack_each(entries)) == entries


def test_a_packed_list_of_entries_may_hold_any_text_and_may_be_empty() -> None:
    entries = ["é⏎", {"a": ["ß" * 9] * 3}, [], [7] * 9]
    assert unpack_each(pack_each(entries)) == entries
    assert unpack_each(pack_each([])) == []


def test_equal_lists_are_written_once_and_differences_where_they_are_narrower() -> None:
    pages = list(range(50_000, 51_000))
    once, twice = pack([pages]), pack([pages, tuple(pages)])
    assert len(twice) - len(once) < 20
    assert len(once) < 1100, "a byte a page, not four"


# -- whole records ---------------------------------------------------------------------------------------------------


def test_the_run_has_what_is_to_be_read(run: Run, history: History) -> None:
    assert history.last > 2 * leaps.STEPS
    kinds = {type(event) for event in run.events}
    assert {ev.RequestRetracted, ev.NodeSplit, ev.PagesEvicted, ev.RequestFinished, ev.PipelineDrained} <= kinds


def test_a_leap_is_its_deltas_both_ways(history: History) -> None:
    rng = random.Random(2)
    for _ in range(40):
        a, b = sorted(rng.sample(range(len(history.deltas) + 1), 2))
        state = history.at(history.first + a).to_dict()
        whole = leap(state, history.deltas[a:b])
        assert state == history.at(history.first + b).to_dict()
        undo_delta(state, whole)
        assert state == history.at(history.first + a).to_dict()
        apply_delta(state, whole)
        assert state == history.at(history.first + b).to_dict()
        assert len(whole) <= sum(map(len, history.deltas[a:b])) + 20


@pytest.mark.parametrize("deflate", [True, False])
def test_node_reads_what_python_writes(history: History, states: dict[int, Any], tmp_path: Path, deflate: bool) -> None:
    texts = {i: f" w{i}" for i in range(1000)}
    (tmp_path / "record").write_bytes(Encoder(Feed.of(history, texts, "a run")).record(deflate))
    steps = ways(history)
    *read, known = in_node(tmp_path / "record", steps)
    for step, state in zip(steps, read, strict=True):
        assert state == states[step], step
    check_known(known, history, states)
    assert known["title"] == "a run" and known["texts"]["7"] == " w7"
    assert known["leaps"] == len(history.deltas) // leaps.STEPS


def check_known(known: dict, history: History, states: dict[int, Any]) -> None:
    """What the store tells beside the states, against the events and the states themselves."""
    assert len(known["each"]) == len(history.deltas)
    owner = history.at(history.first).pages.owner.tolist()
    at = 0
    changes = known["changes"]
    for i, entry in enumerate(known["each"]):
        step = history.first + 1 + i
        state, events, told = states[step], history.steps.events(i), history.steps[i]
        assert entry["uids"] == list(told["uids"])
        assert (entry["phase"], entry["num_tokens"]) == (told["phase"], told["num_tokens"])
        assert {name: known["index"][name][i] for name in state["counters"]} == state["counters"]
        assert flagged(entry["flags"], known["flags"]) == happened(events)
        assert [(e["type"], e["words"]) for e in known["events"][i]] == [
            (type(e).__name__, describe(e)) for e in events
        ]
        assert [e["uid"] for e in known["events"][i]] == [getattr(e, "uid", -1) for e in events]
        assert all(e["made"] == " or ".join(EMITTERS[type(x)]) for e, x in zip(known["events"][i], events, strict=True))
        while at < len(changes["steps"]) and changes["steps"][at] == step:
            owner[changes["pages"][at]] = changes["owners"][at]
            at += 1
        assert owner == state["pages"]["owner"], step
    assert at == len(changes["steps"])
    last = history.at(history.last)
    assert known["uids"] == list(last.requests)
    check_spans({span["uid"]: span for span in known["spans"]}, history, states)
    assert known["extent"]["tests"] == max(len(state["tests"]) for state in states.values())


def flagged(flags: int, names: list[str]) -> set[str]:
    return {name for bit, name in enumerate(names) if flags >> bit & 1}


def happened(events: Iterable[ev.Event]) -> set[str]:
    kinds = {ev.PagesEvicted: "eviction", ev.NodeSplit: "split", ev.RequestRetracted: "retract", ev.Handoff: "handoff"}
    kinds |= {ev.RequestFinished: "finish", ev.PipelineDrained: "drain", ev.RequestAdmitted: "admission"}
    kinds |= {ev.RequestArrived: "arrival", ev.RequestRejected: "arrival"}
    kinds |= {ev.BatchScheduled: "launch"}
    found = {kinds[type(e)] for e in events if type(e) in kinds}
    return found | {"refusal" for e in events if isinstance(e, ev.AdmissionTested) and e.verdict != "admitted"}


def check_spans(spans: dict[int, dict], history: History, states: dict[int, Any]) -> None:
    """Each request's marks are where its state first shows them."""
    seen: dict[int, dict[str, Any]] = {}
    for step in range(history.first + 1, history.last + 1):
        for uid, r in states[step]["requests"].items():
            mine = seen.setdefault(int(uid), {"arrived": step})
            if r["output"]:
                mine.setdefault("first", step)
            if r["status"] == "finished":
                mine.setdefault("finished", step)
    for uid, mine in seen.items():
        assert {name: spans[uid][name] for name in mine} == mine, uid
        assert spans[uid]["reason"] == history.at(history.last).requests[uid].reason
    events = [e for i in range(len(history.steps)) for e in history.steps.events(i)]
    for uid, span in spans.items():
        assert span["retracted"] == [e.step for e in events if isinstance(e, ev.RequestRetracted) and e.uid == uid]
        admitted = [e.step for e in events if isinstance(e, ev.RequestAdmitted) and e.uid == uid]
        assert [s for s in [span["admitted"], *span["readmitted"]] if s >= 0] == admitted
        verdicts = [(e.step, e.verdict) for e in events if isinstance(e, ev.AdmissionTested) and e.uid == uid]
        new = [v for k, v in enumerate(verdicts) if k == 0 or verdicts[k - 1][1] != v[1]]
        assert [tuple(v) for v in span["verdicts"]] == new


def test_settings_that_change_are_marks_of_no_request() -> None:
    run = Run()
    with Recorder(run) as recorder:
        run.submit([1, 2, 3], 4)
        run.scheduler.step()
        run.scheduler.change(eviction="fifo", max_prefill_tokens=2)
        run.play()
    marks = zip(*parts_of(Session(recorder.trace).record())[0][3]["marks"], strict=True)
    settings = [mark for mark in marks if mark[0] == "settings"]
    assert settings == [("settings", -1, 2, '{"eviction":"fifo","max_prefill_tokens":2}')]


# -- tails -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 60])
def test_tails_are_read_like_a_record(
    run: Run, history: History, states: dict[int, Any], tmp_path: Path, every: int
) -> None:
    feed = Feed(history.at(history.first).to_dict(), lambda token: f" w{token}")
    encoder = Encoder(feed)
    ends = [i for i, e in enumerate(run.events) if isinstance(e, ev.StepFinished)]
    cuts = [0, *(end + 1 for end in ends[every - 1 : -1 : every]), len(run.events)]
    record, files = b"", []
    for n, (a, b) in enumerate(pairwise(cuts)):
        for event in run.events[a:b]:
            feed.put(event)
        if n == 0:
            record = encoder.record(deflate=False)  # a record that the tails continue
            continue
        tail = encoder.tail()
        assert tail is not None
        message, buffers = tail
        files.append(tmp_path / f"{n}.json")
        files[-1].write_text(
            json.dumps({"message": message, "buffers": [base64.b64encode(x).decode() for x in buffers]})
        )
    assert encoder.tail() is None
    (tmp_path / "record").write_bytes(record)
    steps = ways(history)
    *read, known = in_node(tmp_path / "record", steps, *files)
    for step, state in zip(steps, read, strict=True):
        assert state == states[step], step
    check_known(known, history, states)
    assert known["leaps"] == len(history.deltas) // leaps.STEPS
    assert known["texts"] == {str(k): v for k, v in feed.texts.items()}


def test_a_record_after_tails_is_the_record(run: Run, history: History) -> None:
    """Asked again, an encoder that has sent tails writes what a new one writes."""
    feed = Feed(history.at(history.first).to_dict(), str)
    encoder = Encoder(feed)
    for event in run.events:
        feed.put(event)
        if isinstance(event, ev.StepFinished):
            encoder.tail()
    assert encoder.record() == Encoder(feed).record()


def test_a_run_that_is_under_way_when_the_record_begins(run: Run, history: History, tmp_path: Path) -> None:
    middle = next(s for s in range(100, history.last) if history.at(s).running and history.at(s).queue)
    late = fold(history.at(middle).to_dict(), [e for e in run.events if e.step > middle])
    (tmp_path / "record").write_bytes(Session(late).record())
    *read, known = in_node(tmp_path / "record", ways(late))
    assert read == [plain(history.at(step).to_dict()) for step in ways(late)]
    spans = {span["uid"]: span for span in known["spans"]}
    for uid, r in history.at(middle).requests.items():
        assert spans[uid]["before"] and spans[uid]["arrived"] == middle
        assert (spans[uid]["finished"] == middle) == (r.status == "finished")


def test_a_broken_step_says_so(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.steps, "violations", lambda i: ("page 3 is lost",) if i == 4 else ())
    head = parts_of(Session(history).record())[0][3]
    assert head["violations"] == [[4, ["page 3 is lost"]]]
    assert [i for i, n in enumerate(head["index"]["violations"]) if n] == [4]
    assert [i for i, f in enumerate(head["index"]["flags"]) if f >> FLAGS.index("broken") & 1] == [4]


def test_phases_and_columns_are_all_there(history: History) -> None:
    assert set(records.PHASES) >= {history.steps[i]["phase"] for i in range(len(history.steps))}
    assert set(records.COLUMNS) >= set(counts(history.at(0).to_dict()))
