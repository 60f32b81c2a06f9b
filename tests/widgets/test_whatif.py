"""WhatIf: sliders, picture, curve and table say what ``whatif`` and ``sweep`` say."""

from __future__ import annotations

import gc
import re
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("plotly", reason="WhatIf needs the extra [lab]")

from plotly.basedatatypes import Undefined

from minisgl.errors import ConfigError, TraceError
from minisgl.events.trace import Trace
from minisgl.sim.costs import LinearCost
from minisgl.sim.replay import replay
from minisgl.sim.simulator import Simulator
from minisgl.sim.whatif import sweep, whatif
from minisgl_widgets import WhatIf
from minisgl_widgets.differences import differences, say
from minisgl_widgets.knobs import spaced
from minisgl_widgets.plot import BOTTOM, HEIGHT, MOST_COLUMNS, TOP
from minisgl_widgets.static_run import counters
from minisgl_widgets.this_cell import ThisCell
from minisgl_widgets.whatif_picture import POINTS, thin
from tests.fakes import thirty

COSTS = LinearCost(constant=0.01, prefill_token=0.001, decode_request=0.0001)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return thirty()


@pytest.fixture
def what(trace) -> WhatIf:
    return WhatIf(trace, COSTS)


def line(what: WhatIf, name: str, whose: str) -> tuple[list[float], list[float]]:
    drawn = what._picture._trace(name, whose)
    return list(drawn.x), list(drawn.y)


def test_the_knobs_are_every_setting_and_begin_as_recorded(what, trace):
    assert list(what.knobs) == [
        *("num_pages", "page_size", "max_running_requests", "max_prefill_tokens", "admission", "rate", "max_tokens"),
        *("prefix_cache", "order", "eviction", "phase", "overlap", "ignore_eos"),
    ]
    assert what.changes == {} and len(what.result.diff) == 0 and what.errors == []
    for name, knob in what.knobs.items():
        control = what._controls.each[name]
        assert control.value == knob.recorded and control.tooltip and knob.recorded in knob.values
        labels = [knob.say(v) for v in knob.values]
        assert len(set(labels)) == len(labels), "two positions of a slider look the same"
        if name != "ignore_eos":  # all positions are settings that whatif takes
            for value in knob.values:
                whatif(trace, COSTS, **{name: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"num_pages": 32},
        {"num_pages": 33},  # between two positions
        {"page_size": 4, "num_pages": 16},
        {"max_running_requests": 2, "rate": 2.0},
        {"order": "lpm", "phase": "mixed"},
        {"admission": "optimistic", "eviction": "lfu"},
        {"admission": 0.55},
        {"max_tokens": 0.5, "overlap": True, "prefix_cache": "naive"},
        {"ignore_eos": True, "max_prefill_tokens": 8},
    ],
    ids=str,
)
def test_turning_knobs_by_hand_gives_the_numbers_of_whatif(what, trace, changes):
    there = whatif(trace, COSTS, **changes)
    assert what.set(**changes) is what
    assert what.changes == changes and what.diff_table == there.table
    assert what.outcome.figures == there.after.figures and what.before.figures == there.before.figures
    assert {n: what._controls.each[n].value for n in changes} == changes
    assert what.reset().changes == {} and what.outcome is what.before


def test_a_slider_moves_picture_and_table(what):
    for pages in (50, 40, 32):  # as a drag does: nobody waits
        what._controls.each["num_pages"].value = pages
    what._thread.wait(what._thread._asked)
    curve = what.outcome.curve
    assert what.result.changes == {"num_pages": 32} and len(curve) <= POINTS
    assert line(what, "occupied", "after") == (curve.t.tolist(), curve.occupied.tolist())
    assert line(what, "spoken_for", "after")[1] == (curve.occupied + curve.promised).tolist()
    assert line(what, "waiting", "before") == (what.before.curve.t.tolist(), what.before.curve.waiting.tolist())
    assert line(what, "pool", "after")[1] == [32, 32] and line(what, "pool", "before")[1] == [64, 64]
    ttft = say("s", what.outcome.figures["ttft_mean"])
    assert ttft in what._verdict.table.value and "num_pages = 32 pages" in what._verdict.status.value
    x, y = line(what, "curve", "here")
    assert what.knobs["num_pages"].values[int(x[0])] == 32 and y == [what.outcome.figures["ttft_mean"]]


def test_no_line_is_sent_in_part(what, monkeypatch):
    """Of a message in which some lines have another x and others another y, a browser loses what is left out."""
    sent: list[dict] = []
    monkeypatch.setattr(what._picture.widget, "_send_update_msg", lambda restyle_data, **_: sent.append(restyle_data))
    what.set(max_prefill_tokens=8)
    what.set(rate=2.0, max_prefill_tokens=what.knobs["max_prefill_tokens"].recorded).curve()
    values = [value for restyle in sent for column in restyle.values() for value in column]
    assert len(values) > 20 and not any(value is Undefined for value in values)


def test_steps_instead_of_seconds(what):
    what._controls.axis.value = "step"
    what._thread.wait(what._thread._asked)
    assert line(what, "running", "after")[0] == what.outcome.curve.step.tolist()


def test_the_curve_is_the_sweep_and_is_computed_once(what, trace, monkeypatch):
    what.set(prefix_cache="naive").set(num_pages=32)
    points = what.curve()
    naive = whatif(trace, COSTS, prefix_cache="naive").trace
    there = sweep(naive, COSTS, num_pages=[p.value for p in points])
    assert [p.figures["ttft_mean"] for p in points] == pytest.approx(
        [o.figures["ttft_mean"] for o in there.outcomes], nan_ok=True
    )
    shown = [n.text for n in what._picture.widget.layout.annotations]
    assert "<b>cliff: between<br>{} and {} pages</b>".format(*there.between) in shown
    refused = [p.value for p in points if p.figures["refused"]]
    assert refused == [p.value for p in points if p.value < 19] != []
    assert len(line(what, "curve", "refusing")[0]) == len(refused)

    monkeypatch.setattr(Simulator, "run", lambda *_: pytest.fail("it was known already"))
    assert what.curve() == points


def test_a_position_that_cannot_be_is_drawn_as_such_and_the_rest_of_the_curve_is_whole(what, trace):
    what._wait(what._turn({"num_pages": 1}))  # as if a slider had such a position
    assert "num_pages=1: must be an integer of at least 2" in what._verdict.alert.value
    points = what.set(num_pages=32).curve()
    assert [p.value for p in points if p.figures is None] == [1]
    layout = what._picture.widget.layout
    assert layout.xaxis2.title.text == "num_pages", "nothing is still being computed"
    shown = [n.text for n in layout.annotations]
    there = sweep(trace, COSTS, num_pages=[p.value for p in points])
    assert "<b>cliff: between<br>{} and {} pages</b>".format(*there.between) in shown and "| cannot be" in shown
    mark = next(n for n in layout.annotations if "cliff" in n.text)
    assert points[int(mark.x)].value == there.cliff and mark.bgcolor, "lines do not shine through"
    assert line(what, "curve", "impossible") == ([0], [0])
    assert what._picture._trace("curve", "impossible").text == ("num_pages=1: must be an integer of at least 2",)
    what.set(order="lpm")
    what.curve()
    assert line(what, "curve", "impossible") == ([], [])


def test_no_tool_bar_lies_on_the_curves_title(what):
    assert what._picture.widget._config == {"displayModeBar": False}


def test_a_setting_without_order_has_a_curve_without_cliff(what):
    what.set(order="shortest")
    assert [p.value for p in what.curve()] == ["fcfs", "lpm", "shortest"]
    assert what._picture._trace("curve", "all").mode == "markers"
    assert not any("cliff" in n.text for n in what._picture.widget.layout.annotations)


def test_what_cannot_be_is_said_and_nothing_is_turned(what):
    for changes, says in (({"pages": 3}, "no knob here; there are num_pages"), ({"num_pages": 1}, "at least 2")):
        with pytest.raises(ConfigError, match=says):
            what.set(**changes, order="lpm")
    assert what.changes == {} and what._controls.each["order"].value == "fcfs"


def test_a_pool_too_small_is_a_sentence(what):
    what.set(num_pages=16)
    (sentence,) = what.errors
    assert sentence.startswith("30 of 30 requests can never be served here. Request 0: 7 prompt tokens")
    assert "need 19 pages of 1 and the pool has 16" in sentence
    for said in (repr(what), what._repr_html_(), what._verdict.alert.value):
        assert "need 19 pages of 1" in said and "Traceback" not in said
    verdicts = {d.label: d.verdict for d in differences(what.result)}
    assert verdicts["requests refused"] == "✕ worse" and verdicts["whole run"] == ""
    assert what.set(num_pages=64).errors == [] and what._verdict.alert.value == ""


def test_a_page_size_changes_the_memory_and_a_button_keeps_it(what):
    what.set(page_size=4)
    assert any("256 tokens instead of 64; the same memory would be 16 pages of 4" in n for n in what.notes)
    assert line(what, "pool", "before")[1] == [16, 16], "the recorded pool in pages of the new size"
    what.same_memory()
    assert what.changes == {"page_size": 4, "num_pages": 16} and len(what.notes) == 1


def test_every_page_is_recorded_and_shown(what):
    with pytest.raises(LookupError, match="show_pages"):
        what.stage  # noqa: B018
    stage = what.set(num_pages=32).show_pages()
    assert stage is what.stage and stage.history.last == what.outcome.steps
    shown = stage.session.trace
    assert shown.about["config"]["num_pages"] == 32
    assert replay(shown).diff(shown).first is None, "it can be run again like any record"
    assert stage.at(5).pages.owner.tolist() == what.trace.at(5).pages.owner.tolist()
    assert "num_pages=32" in what._pages.note.value and what._pages.progress.layout.display == "none"
    what.set(num_pages=40).show_pages()
    assert stage.comm is None and what.stage.at(0).num_pages == 40


def test_what_goes_wrong_is_said_and_the_next_wish_served(what, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(Simulator, "run", lambda *_: 1 / 0)
        what._turn({"num_pages": 32})
        what._thread.wait(what._thread._asked)
    assert "ZeroDivisionError" in what._verdict.alert.value
    what.set(num_pages=32)  # asked again, it is tried again
    assert what.errors == [] and what.outcome.num_pages == 32


def test_less_than_a_nanosecond_is_no_difference(what, monkeypatch):
    what.set(num_pages=32)
    monkeypatch.setitem(what.before.figures, "queue_time_mean", 2e-16)  # of sums that ought to be equal
    monkeypatch.setitem(what.outcome.figures, "queue_time_mean", 0.002)
    (line,) = [d for d in differences(what.result) if d.label == "queue time, mean"]
    assert (line.before, line.after, line.change) == ("0 ms", "2 ms", "+2 ms")


def test_static_forms(what):
    what.set(num_pages=32)
    text, html = repr(what), what._repr_html_()
    assert text.startswith("WhatIf(num_pages=32)\n") and "✕ worse" in text and "note: steps are exact" in text
    assert "What if num_pages = 32 pages?" in html and "<table>" in html and "<script" not in html
    bundle = what._repr_mimebundle_()
    assert bundle["text/plain"] == text and bundle["text/html"] == html
    assert "replayed in" not in text + html, "the wall clock would make it another text each time"


def test_the_picture_without_scripts_has_both_runs(what):
    """In tokens, so that a pool of as many tokens in larger pages is as high."""
    what.set(num_pages=8, page_size=4)
    html = what._repr_html_()
    both = re.findall(r'd="(M[^"]*)" fill="none" stroke="#\w+"', html)
    exact = []
    for trace, size in ((what.result.record, 1), (what.result.trace, 4)):
        c = counters(trace)
        pages = zip(c["owned_pages"], c["protected_pages"], c["reserved_pages"], strict=True)
        exact.append([size * sum(parts) for parts in pages])
    most = max(map(max, exact))
    assert f"at most {max(exact[1])}, as recorded {max(exact[0])}" in html
    for path, tokens in zip(both, exact, strict=True):
        drawn = [float(y) for y in re.findall(r"V([\d.]+)H", path)]
        if len(tokens) > MOST_COLUMNS:  # the most of each two steps
            tokens = [max(tokens[i : i + 2]) for i in range(0, len(tokens), 2)]
        assert drawn == [round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - n / most), 1) for n in tokens]


def test_a_cell_that_is_run_again_replaces_its_sliders(trace, monkeypatch):
    import minisgl_widgets.whatif as module

    runs = iter([ThisCell("a", "1"), ThisCell("a", "1"), ThisCell("b", "2"), ThisCell("a", "3")])
    monkeypatch.setattr(module, "this_cell", lambda: next(runs))
    made = [WhatIf(trace, COSTS) for _ in range(4)]
    assert [w.closed for w in made] == [True, True, False, False]


def test_sliders_that_cannot_be_made_leave_nothing_behind(trace, monkeypatch):
    complaints = []
    monkeypatch.setattr("sys.unraisablehook", complaints.append)
    with pytest.raises(TraceError):
        WhatIf(Trace(trace.keyframe, trace.events, trace.texts))
    gc.collect()
    assert not complaints


def test_thinning_keeps_every_peak():
    y = np.zeros(10_000)
    y[4321], y[-1], y[777] = 5, 2, -1
    kept = thin(y)
    assert {0, 777, 4321, 9999} <= set(kept.tolist()) and len(kept) <= 2 * POINTS + 2
    assert thin(y[:10]).tolist() == list(range(10))


@pytest.mark.parametrize(
    ("unit", "value", "said"),
    [
        ("s", 0.0123, "12.3 ms"),
        ("s", 2.5, "2.5 s"),
        ("s", 300, "5.0 min"),
        ("s", float("nan"), "–"),
        ("%", 0.485, "48.5%"),
        ("/s", 1234.5, "1,234.5"),
        ("", 14144, "14,144"),
    ],
)
def test_figures_for_people(unit, value, said):
    assert say(unit, value) == said


def test_positions_of_a_slider_are_spread_evenly_and_go_through_the_values_that_matter():
    values = spaced(26, 384, 34, 96, 192)
    assert {26, 34, 96, 192, 384} <= set(values) and 35 <= len(values) <= 45
    assert all(1.02 < b / a < 1.13 for a, b in pairwise(values))
    assert spaced(1, 8, 4) == (1, 2, 3, 4, 5, 6, 7, 8)
