"""Figures hold the oracle's numbers, are small, and are the same bytes each time."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("plotly", reason="charts need the extra [lab]")

from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.events.types import AdmissionTested
from minisgl_widgets import admission_chart, pool_chart
from minisgl_widgets.static_run import counters
from tests.script import finish_early, overlapped, release
from tests.widgets.fake_llm import ORACLE, ORACLE_PARAMS, FakeLLM


def oracle(cache: str) -> Trace:
    llm = FakeLLM(prefix_cache=cache)
    with Recorder(llm) as recorder:
        llm.generate(ORACLE, ORACLE_PARAMS)
    return recorder.trace


def test_counters_are_the_oracle() -> None:
    seen = counters(oracle("naive"), scheduled=True)
    assert seen["step"] == list(range(1, 17))
    assert seen["free_pages"] == [35, 31, 27, 23, 19, 15, 11, 7, 59, 58, 57, 56, 55, 54, 53, 52]
    assert seen["reserved_pages"] == [28, 24, 20, 16, 12, 8, 4, 0, 7, 6, 5, 4, 3, 2, 1, 0]
    assert seen["waiting"] == [1] * 8 + [0] * 8
    assert counters(oracle("naive"))["free_pages"][7] == 64  # at the step's end


@pytest.mark.parametrize("cache", ["naive", "radix"])
@pytest.mark.parametrize("scheduled", [False, True])
def test_counters_at_the_end_of_each_step_are_the_snapshots(cache: str, scheduled: bool) -> None:
    trace = oracle(cache)
    seen = counters(trace.history, scheduled)
    from minisgl.events import BatchScheduled, StepFinished

    for i, event in enumerate(trace.of(BatchScheduled if scheduled else StepFinished)):
        assert {name: column[i] for name, column in seen.items()} == {name: getattr(event, name) for name in seen}


def test_pool_chart() -> None:
    trace = oracle("radix")
    chart = pool_chart(trace, title="five prompts")
    areas = chart.data[:4]
    assert [sum(ys) for ys in zip(*(a.y for a in areas), strict=True)] == [64] * 16
    assert {a.stackgroup for a in areas} == {"pool"} and chart.layout.title.text == "five prompts"
    assert list(chart.data[4].y) == [57] * 7 + [0] + [12] * 7 + [0]
    assert len(chart.to_json()) < 10_000
    assert pool_chart(trace.history, title="five prompts").to_json() == chart.to_json()


def test_pages_that_wait_for_a_batch_in_flight_are_not_spoken_for() -> None:
    say = overlapped()
    finish_early(say)
    release(say)
    seen, line = counters(say.history), pool_chart(say.history).data[4].y
    assert (seen["owned_pages"][2], seen["pending_pages"][2]) == (2, 1)
    assert line[2] == 1 + seen["protected_pages"][2] + seen["reserved_pages"][2]


def bars_of(chart) -> dict[str, list[int]]:
    """What each kind of pages adds to the bars, by bar; a part that no bar has is left out."""
    labels = chart.layout.yaxis.ticktext
    for part in chart.data:
        assert part.y == chart.layout.yaxis.tickvals and part.orientation == "h" and len(part.x) == len(labels)
    return {part.name: list(part.x) for part in chart.data}


def test_admission_chart() -> None:
    trace = oracle("naive")
    chart = admission_chart(trace.at(1))
    bars = bars_of(chart)
    assert bars["need"] == [13, 0, 0, 13, 0, 0, 12, 0, 0, 23, 0, 0, 13, 0]
    assert bars["promised"] == [0, 0, 0, 13, 0, 0, 26, 0, 0, 38, 0, 0, 61, 0]
    assert bars["free"] == [0, 64, 64] * 4 + [0, 64]
    assert set(bars) == {"need", "promised", "free"}
    assert chart.layout.yaxis.ticktext[-2:] == ("request 4, step 1 (waits): asked", "to be had")
    assert len(chart.to_json()) < 10_000
    assert admission_chart(trace.at(1)).to_json() == chart.to_json()


def test_a_request_tested_again_has_bars_of_its_own() -> None:
    tests = [t for t in oracle("naive").of(AdmissionTested) if t.uid == 4]
    chart = admission_chart(tests)
    labels, bars = chart.layout.yaxis.ticktext, bars_of(chart)
    asked = [i for i, label in enumerate(labels) if label.endswith("asked")]
    verdicts = [(1, "waits"), (2, "waits"), (9, "admitted")]
    assert [labels[i] for i in asked] == [f"request 4, step {step} ({verdict}): asked" for step, verdict in verdicts]
    assert labels[asked[-1] :] == ("request 4, step 9 (admitted): asked", "to be had", "once locked")
    assert [(bars["need"][i], bars["promised"][i]) for i in asked] == [(t.need, t.reserved) for t in tests]
    assert [bars["free"][i + 1] for i in asked] == [t.free for t in tests]
    places = chart.layout.yaxis.tickvals
    assert all(a + 1 <= b for a, b in pairwise(places)), "bars overlap"
    assert chart.layout.height > admission_chart(tests[:1]).layout.height
    assert len(admission_chart([]).data) == 0


def test_refusals_before_the_page_test_are_left_out() -> None:
    llm = FakeLLM(max_running_requests=1)
    with Recorder(llm) as recorder:
        llm.generate([[1, 2], [3, 4]], ORACLE_PARAMS)
    chart = admission_chart(recorder.trace.at(1))
    assert chart.layout.yaxis.ticktext == ("request 0, step 1 (admitted): asked", "to be had", "once locked")
