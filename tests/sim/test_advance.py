"""Steps taken at once leave behind what the same steps leave behind one by one."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.config import EngineConfig
from minisgl.core import SamplingParams
from minisgl.events import StepFinished
from minisgl.kvcache.radix import Node
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Arrival, Workload

STOP = 7

configs = st.fixed_dictionaries(
    {
        "page_size": st.sampled_from([1, 2, 4, 16]),
        "num_pages": st.integers(6, 60),
        "max_running_requests": st.sampled_from([2, 4, 8]),
        "max_prefill_tokens": st.sampled_from([3, 8, 64]),
        "prefix_cache": st.sampled_from(["radix", "radix", "naive"]),
        "order": st.sampled_from(["fcfs", "lpm", "shortest"]),
        "admission": st.sampled_from(["conservative", "optimistic", 0.3]),
        "eviction": st.sampled_from(["lru", "lfu", "fifo"]),
        "phase": st.sampled_from(["prefill-first", "decode-first", "mixed"]),
    }
)
arrivals = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.01, 0.1, 1.0]),  # after the one before it, seconds
        st.lists(st.integers(0, 2), min_size=1, max_size=20),  # prompt
        st.lists(st.integers(0, 40), max_size=40),  # output
        st.integers(1, 40),  # max_tokens
        st.booleans(),  # may stop
        st.none() | st.floats(0, 1),  # aborted so long after it came
    ),
    min_size=1,
    max_size=12,
)


def workload(rows) -> Workload:
    made, at = [], 0.0
    for after, prompt, output, max_tokens, stops, abort in rows:
        at += after
        params = SamplingParams(max_tokens=max_tokens, stop_token_ids=(STOP,) if stops else ())
        tokens, known = (np.array(x, dtype=np.int32) for x in (prompt, output))
        made.append(Arrival(at, tokens, params, known, abort_at=None if abort is None else at + abort))
    return Workload(tuple(made))


def run(config, rows, at_once: bool):
    longest = min(60, config["num_pages"] * config["page_size"])
    simulator = Simulator(EngineConfig(max_seq_len=longest, **config))
    if not at_once:
        simulator.scheduler.advance = lambda n, until, ends: [e for e in [simulator.scheduler.step()] if e]
    outcome = simulator.run(workload(rows))
    simulator.scheduler.check_integrity()
    state = simulator.snapshot().to_dict()
    return outcome, state, simulator.checkpoint()


@settings(max_examples=300, deadline=None)
@given(configs, arrivals)
def test_at_once_or_one_by_one(config, rows):
    (once, state, hidden), (single, wanted, hidden_too) = run(config, rows, True), run(config, rows, False)
    assert state.pop("t") == pytest.approx(wanted.pop("t"))
    assert (state, hidden, once.steps) == (wanted, hidden_too, single.steps)
    for name, column in once.requests.items():
        other = single.requests[name]
        equal = np.allclose(column, other, equal_nan=True) if column.dtype.kind == "f" else (column == other).all()
        assert equal, (name, column, other)


def test_a_long_decode_is_one_step_to_take():
    rows = [(0.0, [1, 2, 3], [], 500, False, None)]
    simulator = Simulator(EngineConfig(num_pages=600, max_seq_len=600))
    outcome = simulator.run(workload(rows))
    assert outcome.steps == 500 and len(outcome.curve) == 3  # the prefill, all the rest, and its end


def test_an_arrival_is_not_overrun():
    """Nobody waits for the end of a run of steps that could have been cut short."""
    rows = [(0.0, [1, 2, 3], [], 500, False, None), (1.0, [4, 5], [], 2, False, None)]
    outcome = Simulator(EngineConfig(num_pages=600, max_seq_len=600)).run(workload(rows))
    tpot = outcome.requests.tpot[0]
    assert 0 <= outcome.requests.queue_time[1] < 2 * tpot


def test_with_a_listener_every_step_is_announced():
    rows = [(0.0, [1, 2, 3], [], 50, False, None)]
    simulator = Simulator(EngineConfig(num_pages=600, max_seq_len=600))
    seen: list[int] = []
    with simulator.on(StepFinished, lambda e: seen.append(e.step)):
        simulator.run(workload(rows))
    assert seen == list(range(1, 51))


FOUR = [(0.0, [i] * 10, [], 50 * (i + 1), False, None) for i in range(4)]


def test_the_pools_fullest_moment_does_not_depend_on_who_listens():
    def most(listen: bool) -> int:
        simulator = Simulator(EngineConfig(num_pages=600, max_seq_len=300))
        if listen:
            simulator.on(StepFinished, lambda e: None)
        return simulator.run(workload(FOUR)).figures["occupied_most"]

    assert most(False) == most(True)


def test_a_step_by_hand_tells_of_the_state_that_it_leaves():
    simulator = Simulator(EngineConfig(num_pages=600, max_seq_len=300))
    simulator.begin(workload(FOUR))
    taken = 0
    while (event := simulator.step()) is not None:
        snapshot, taken = simulator.snapshot(), taken + 1
        assert (snapshot.step, snapshot.t, len(snapshot.running)) == (event.step, event.t, event.running)
    assert taken < 20  # not one by one


def test_a_simulation_that_is_over_needs_no_look_through_the_heap():
    """The tree is freed with its cache, though nodes and parents name each other."""

    def nodes() -> int:
        return sum(type(thing) is Node for thing in gc.get_objects())

    before = nodes()
    simulator = Simulator(EngineConfig(num_pages=600, max_seq_len=300))
    simulator.run(workload(FOUR))
    assert nodes() > before
    gc.disable()
    try:
        del simulator
        assert nodes() == before
    finally:
        gc.enable()
