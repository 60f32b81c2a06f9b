"""What if: nothing changes, something changes, and what cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from minisgl import Recorder
from minisgl.core import SamplingParams
from minisgl.errors import ConfigError, TraceError
from minisgl.events import RequestFinished
from minisgl.events.trace import Trace
from minisgl.sim.costs import LinearCost
from minisgl.sim.simulator import Simulator
from minisgl.sim.whatif import sweep, whatif
from minisgl.sim.workload import Workload
from tests.fakes import Run, thirty

COSTS = LinearCost(constant=0.01, prefill_token=0.001, decode_request=0.0001)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return thirty()


def test_no_change_no_difference(trace):
    what = whatif(trace, COSTS)
    assert len(what.diff) == 0 and what.trace.events != []
    assert what.before.figures == what.after.figures and (what.table.change[~np.isnan(what.table.change)] == 0).all()


def test_a_smaller_pool_takes_longer_and_gives_the_same_tokens(trace):
    what = whatif(trace, COSTS, num_pages=32)
    assert len(what.diff) > 0 and what.trace.about["config"]["num_pages"] == 32
    assert what.after.figures["queue_time_mean"] > what.before.figures["queue_time_mean"]
    before, after = ({u: r.output for u, r in t.at(t.history.last).requests.items()} for t in (trace, what.trace))
    assert before == after
    assert not what.trace.check()
    row = next(r for r in what.table.rows() if r["figure"] == "steps")
    assert row["change"] == row["after"] - row["before"] > 0
    assert "num_pages=32" in repr(what) and "modelled" in what._repr_html_()


@pytest.mark.parametrize(
    "changes",
    [
        {"page_size": 4, "num_pages": 16},
        {"max_running_requests": 2},
        {"max_prefill_tokens": 8},
        {"prefix_cache": "naive"},
        {"order": "lpm"},
        {"order": "shortest"},
        {"admission": "optimistic"},
        {"admission": 0.5},
        {"eviction": "fifo", "num_pages": 32},
        {"phase": "mixed"},
        {"phase": "decode-first"},
        {"overlap": True},
        {"rate": 4.0},
        {"max_tokens": 0.5},
        {"ignore_eos": True},
    ],
    ids=str,
)
def test_every_knob(trace, changes):
    what = whatif(trace, COSTS, **changes)
    assert what.after.figures["finished"] == 30 and len(what.trace.of(RequestFinished)) == 30
    assert not what.trace.check()
    # the record of it and the run without a record agree, step by step and second by second
    times = what.trace.requests
    assert what.after.steps == len(what.trace.steps)
    assert np.allclose(times.ttft, what.after.requests.ttft) and np.allclose(times.e2e, what.after.requests.e2e)
    assert what.after.figures["hit_rate"] == pytest.approx(what.trace.figures.hit_rate)


def test_max_tokens_beyond_the_record_are_drawn_and_said_so(trace):
    what = whatif(trace, COSTS, max_tokens=2.0, max_seq_len=64)
    assert what.after.figures["output_tokens"] == 720
    assert any("drawn" in note for note in what.notes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pages": 3}, "pages: nothing that a scheduler could change; there are num_pages"),
        ({"dtype": "float16"}, "dtype: nothing that a scheduler could change"),
        ({"rate": 0}, "rate=0: must be a finite number above 0"),
        ({"num_pages": 1}, "num_pages=1: must be an integer of at least 2"),
        ({"order": "random"}, "order='random'"),
    ],
)
def test_what_cannot_be(trace, changes, says):
    with pytest.raises(ConfigError, match=says):
        whatif(trace, COSTS, **changes)


def test_a_record_without_its_configuration():
    with pytest.raises(TraceError, match="under which configuration"):
        whatif(Trace({}, [], {}), COSTS, num_pages=3)


def test_a_record_of_a_later_version_that_set_what_this_one_does_not_know(trace):
    about = trace.about | {"config": trace.about["config"] | {"colour": "blue"}}
    later = Trace(trace.keyframe, trace.events, trace.texts, "", about, trace.checkpoint)
    for changes in ({}, {"num_pages": 20}):
        with pytest.raises(TraceError, match=r"unknown setting colour;.*later version"):
            whatif(later, COSTS, **changes)
    with pytest.raises(TraceError, match=r"unknown setting colour;.*later version"):
        sweep(later, COSTS, num_pages=(10, 20))


def test_a_sweep_finds_the_cliff(trace):
    curve = sweep(trace, COSTS, num_pages=range(10, 100, 10))
    assert curve.values == list(range(10, 100, 10)) and curve.table.num_pages.tolist() == curve.values
    assert curve.table.refused[0] == 30 and curve.table.finished[1:].tolist() == [30] * 8
    ttft = curve.table.ttft_mean
    assert ttft[1] > ttft[-1] and curve.cliff in curve.values[1:]
    low, high = curve.between
    assert low == curve.cliff < high == curve.values[curve.values.index(low) + 1], "the best is among the large pools"
    assert f"cliff between num_pages={low} and {high})" in repr(curve)
    other_way = sweep(trace, COSTS, num_pages=curve.values[::-1])
    assert (other_way.cliff, other_way.between) == (low, (high, low))


def test_a_sweep_of_names_and_of_what_cannot_be(trace):
    curve = sweep(trace, COSTS, order=["fcfs", "random", "lpm"])
    assert curve.values == ["fcfs", "lpm"] and list(curve.refused) == ["random"]
    with pytest.raises(ConfigError, match="one setting, not of 2"):
        sweep(trace, COSTS, order=["fcfs"], num_pages=[3])


def test_another_change_of_the_same_record_shares_the_run_as_it_was(trace):
    first = whatif(trace, COSTS, num_pages=32)
    second = first.change(num_pages=16)
    assert second.before is first.before and second.change().after is first.before
    assert second.after.figures == whatif(trace, COSTS, num_pages=16).after.figures


def test_a_watched_run_can_be_given_up(trace):
    what, seen = whatif(trace, COSTS, num_pages=32), []

    def watch(now: float) -> None:
        seen.append(now)
        if now > what.before.figures["duration"] / 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        Simulator(what.config, COSTS).run(what.workload, watch)
    assert seen[0] == 0.0 and seen == sorted(seen) and len(seen) > 2


def test_as_html_the_change_has_a_line_of_its_own(trace):
    html = whatif(trace, COSTS, num_pages=32)._repr_html_()
    assert html.startswith("<p><b>num_pages=32</b></p><b>what if</b>: ")


def test_who_is_refused_and_why(trace):
    after = whatif(trace, COSTS, num_pages=10).after
    assert [e.uid for e in after.refusals] == after.requests.uid.tolist() == list(range(30))
    assert "need 19 pages of 1 and the pool has 10" in str(after.refusals[0])
    assert whatif(trace, COSTS).after.refusals == []


def test_requests_submitted_to_an_idle_engine_arrive_together():
    run = Run(num_pages=64, max_seq_len=40)
    with Recorder(run) as recorder:
        for begin in (0.0, 1.0):
            for i in range(3):
                run.scheduler.submit([i, i + 1], SamplingParams(max_tokens=4), submitted=begin + i * 1e-5)
            run.play()
    trace = recorder.trace
    at = [a.at for a in Workload.from_trace(trace).arrivals]
    assert at[0] == at[1] == at[2] == 0 and at[3] == at[4] == at[5] > 0
    assert whatif(trace, COSTS).before.steps == len(trace.steps)
