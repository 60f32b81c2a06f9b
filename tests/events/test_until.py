"""Conditions by name: what they find in a record, where a live run stops for them, and what they say when they err."""

from __future__ import annotations

import pytest

from minisgl.config import EngineConfig
from minisgl.errors import ConditionError
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.events.until import COUNTERS, NAMES, OPERATORS, Until, run_until
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Workload
from tests.fakes import Run


class Stepped(Run):
    """A run as something that can be run until."""

    def step(self):
        return self.scheduler.step()


def busy() -> Stepped:
    """Everything happens in it: two of its requests fill twelve pages, promised to nobody."""
    run = Stepped(num_pages=12, max_seq_len=12, admission="optimistic", overlap=True, max_running_requests=3)
    for prompt in ([1, 2, 3], [1, 2, 4], [5, 6, 7], [1, 2, 3, 4]):
        run.submit(prompt, 7)
    return run


def recorded() -> Trace:
    with Recorder(run := busy()) as recorder:
        run.play()
    return recorder.trace


HAPPENS = ["arrival", "admission", "refusal", "hit", "eviction", "split", "handoff", "retract", "drain", "finish"]


@pytest.mark.parametrize("name", HAPPENS)
def test_a_live_run_stops_at_the_end_of_the_step_where_the_record_has_it(name: str) -> None:
    event = recorded().find(name)
    assert event is not None and isinstance(event, NAMES[name][0])
    run = busy()
    stop = run_until(run, name)
    assert stop.end is not None and stop.end.step == run.scheduler.steps == event.step
    assert stop.event == event
    assert repr(stop).startswith(f"Stop(after step {event.step}: {name} (step {event.step}, {type(event).__name__})")


def test_nobody_listens_before_or_after() -> None:
    run = Stepped(check=False, record=False)
    run.submit([1, 2, 3])
    for condition in ("finish", "free < 8", lambda e: False):
        run_until(run, condition)
        assert not run.scheduler.bus


def test_every_name_is_tried() -> None:
    assert {*HAPPENS, "failure"} == set(NAMES)
    run = busy()
    run.executor.fail_at = 3
    stop = run_until(run, "failure")
    assert isinstance(stop.event, ev.ForwardFinished) and stop.event.batch == 3


def test_going_on_finds_the_next() -> None:
    trace, run = recorded(), busy()
    stops, after = [], -1
    while (event := trace.find("finish", after)) is not None:
        stops.append(run_until(run, "finish").event)
        assert stops[-1] == event
        after = event.step
    assert len(stops) == 4 and run_until(run, "finish").event is None


def test_of_one_request() -> None:
    trace = recorded()
    assert [trace.find(f"finish of request {uid}").uid for uid in range(4)] == [0, 1, 2, 3]
    assert trace.find("refusal of request 3") == next(e for e in trace.of(ev.AdmissionTested) if e.uid == 3)
    assert trace.find("finish of request 9") is None


def test_counters_are_those_of_launched_batches_and_of_steps() -> None:
    trace = recorded()
    counted = trace.of(ev.BatchScheduled, ev.StepFinished)
    for name, field in COUNTERS.items():
        for sign, compare in OPERATORS.items():
            for number in (0, 2, 5):
                expected = next((e for e in counted if compare(getattr(e, field), number)), None)
                assert trace.find(f"{name} {sign} {number}") == trace.find(f"{name}{sign}{number}") == expected


def test_a_step_and_a_function() -> None:
    run = busy()
    assert run_until(run, " step  3 ").end.step == 3
    assert run_until(run, lambda e: e.step == 5).event.step == 5
    assert run_until(run, "step 2").event is None and run.scheduler.idle  # it is over: nothing is left to do
    assert repr(run_until(run, "step 2")) == "Stop(before any step: nothing was left to do)"


def test_what_a_function_raises_comes_out_after_the_step() -> None:
    run = busy()
    with pytest.raises(ZeroDivisionError):
        run_until(run, lambda e: e.step == 4 and 1 / 0)
    assert run.scheduler.steps == 4
    assert run_until(run, "step 6").end.step == 6  # nothing is broken, nothing is left listening


@pytest.mark.parametrize(
    "condition, said",
    [
        ("evicted", "eviction"),
        ("free < eight", "'free < 8'"),
        ("pages < 8", "evictable"),
        ("eviction of request 3", "leave out 'of request"),
        ("", "step 17"),
        (17, "a function of an event"),
    ],
)
def test_what_cannot_be_read_says_what_can(condition, said) -> None:
    with pytest.raises(ConditionError, match=said):
        Until(condition)
    run = busy()
    with pytest.raises(ConditionError):
        run_until(run, condition)
    assert run.scheduler.steps == 0


def test_a_simulated_workload_stops_and_goes_on() -> None:
    workload = Workload.generate(20, rate=50.0, prompt=12, new=6, seed=1)
    config = EngineConfig(num_pages=40, max_running_requests=4)
    whole = Simulator(config).run(workload)
    simulator = Simulator(config)
    assert simulator.step() is None
    simulator.begin(workload)
    stop = simulator.run_until("finish")
    assert stop.event.uid == 0 and 0 < stop.end.step < whole.steps
    while (event := simulator.step()) is not None:
        end = event
    assert end.step == whole.steps and simulator.scheduler.idle
