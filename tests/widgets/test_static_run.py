"""A run over its steps without a browser: pool, batches and events say what the record says."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from minisgl.events import types as ev
from minisgl.events.trace import Trace
from minisgl.events.words import EMITTERS, WAITS, describe
from minisgl_widgets import batch_strip, event_log, pool_picture, runs
from minisgl_widgets.bundle import STATIC
from minisgl_widgets.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP
from minisgl_widgets.static_steps import batches
from tests.fakes import Run
from tests.widgets.exported import recorded

WIDE, HIGH = 640 - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


@pytest.fixture(scope="module")
def overlapping() -> Trace:
    """Pages that are pending, evictions, aborts; more steps than characters fit into a line."""
    return recorded(Run(num_pages=26, page_size=4, max_seq_len=40, max_running_requests=4, overlap=True), 40, 3)


def svg(html: str) -> ElementTree.Element:
    (text,) = re.findall("<svg.*?</svg>", html, re.DOTALL)
    return ElementTree.fromstring(text)


def pool(trace: Trace, step: int) -> tuple[int, int]:
    """(used, promised) pages after a step."""
    c = trace.at(step).counters
    return c["owned_pages"] - c["pending_pages"] + c["protected_pages"], c["reserved_pages"]


@pytest.mark.parametrize("name", runs.names)
def test_the_pool_in_characters(name: str) -> None:
    trace = runs.load(name)
    pages, last = trace.at(0).num_pages, trace.history.last
    title, *lines, signs, numbers = pool_picture(trace).text.splitlines()
    assert title.startswith(f"{pages} pages over steps 1 to {last}") and signs.startswith("# used")
    columns = list(zip(*(line[7:] for line in lines), strict=True))
    rows = len(lines)
    assert len(columns) == last and rows == min(10, pages) and int(lines[0][:6]) == pages
    half = pages / rows / 2 + 1e-9
    for step, column in enumerate(columns, 1):
        used, promised = pool(trace, step)
        assert "".join(column) == "".join(sorted(column, key=".:#".index)), "used below, promised above it"
        assert abs(column.count("#") * pages / rows - used) <= half, step
        assert abs((rows - column.count(".")) * pages / rows - used - promised) <= half, step
    most = max(pool(trace, step)[1] for step in range(1, last + 1))
    assert f"most promised {most} (step" in numbers and numbers.endswith(f"at the end {used} and {promised}")


def test_the_pool_as_a_picture(overlapping: Trace) -> None:
    trace, last = overlapping, overlapping.history.last
    assert any(trace.at(s).counters["pending_pages"] for s in range(last))
    paths = svg(pool_picture(trace).html).findall("{*}path")
    used, line = [p.get("d") for p in paths if p.get("fill") == "#0072b2" or p.get("stroke-width") == "1.5"]
    for path, of in ((used, lambda s: pool(trace, s)[0]), (line, lambda s: sum(pool(trace, s)))):
        heights = [float(y) for y in re.findall(r"V([\d.]+)H", path)][:last]
        assert heights == [round(TOP + HIGH * (1 - of(s) / 26), 1) for s in range(1, last + 1)]
    hatched = next(p.get("d") for p in paths if p.get("stroke-width") == "2")
    for x, low, high in re.findall(r"M(\d+) ([\d.]+)V([\d.]+)", hatched):
        step = min(last, 1 + int((int(x) - LEFT) * last / WIDE))
        assert float(high) < float(low) and pool(trace, step)[1] > 0


def test_no_peak_is_lost_in_a_long_run(overlapping: Trace) -> None:
    last = overlapping.history.last
    assert last > 100
    _, *lines, _, numbers = pool_picture(overlapping).text.splitlines()
    assert {len(line) for line in lines} == {7 + -(-last // 2)}
    most = max(sum(pool(overlapping, s)) for s in range(1, last + 1))
    assert abs(26 * sum(set(line[7:]) != {"."} for line in lines) / 10 - most) <= 1.3
    assert f"most used {max(pool(overlapping, s)[0] for s in range(1, last + 1))} (step" in numbers


def test_one_scale_for_two_runs() -> None:
    trace = runs.load("retract")
    _, *lines, _, _ = pool_picture(trace, steps=98, pages=192).text.splitlines()
    assert lines[0][:6] == "   192" and all(set(line[7:]) == {"."} for line in lines[:5]), "half is beyond the pool"
    assert {len(line) for line in lines} == {7 + 25}, "two steps in a character, as in the longer run"
    paths = svg(pool_picture(trace, steps=98, pages=192).html).findall("{*}path")
    (line,) = [p.get("d") for p in paths if p.get("stroke-width") == "1.5"]
    assert float(line.rpartition("H")[2]) == LEFT + WIDE / 2


@pytest.mark.parametrize("name", runs.names)
def test_batches_are_those_of_the_record(name: str) -> None:
    trace = runs.load(name)
    launched = {e.step: e for e in trace.of(ev.BatchScheduled)}
    found = batches(trace)
    assert [b.step for b in found] == list(range(1, trace.history.last + 1))
    for b in found:
        e = launched.get(b.step)
        assert b.tokens == (e.num_tokens if e else 0)
        uids = [uid for uid, _, _ in b.prompts] + b.decoders
        assert uids == sorted(e.uids if e else (), key=lambda uid: uid in b.decoders)
        assert not b.prompts or b.phase in ("prefill", "mixed")
        assert not b.decoders or b.phase in ("decode", "mixed")
    computed = {uid: 0 for uid in trace.requests.uid.tolist()}
    for b in found:
        for uid, start, end in b.prompts:
            computed[uid] += end - start
    if name != "retract":  # there, some is computed twice
        for r in trace.at(trace.history.last).requests.values():
            assert computed[r.uid] == len(r.prompt) - r.matched


@pytest.mark.parametrize("name", ["chunked_prefill", "retract"])
def test_the_batch_strip(name: str) -> None:
    trace = runs.load(name)
    shown = batch_strip(trace)
    title, _, *lines = shown.text.splitlines()
    spans = [re.match(r"(\d+)(?:-(\d+))? +(\w+) +(\d+)  (.*)", line).groups() for line in lines]
    told = {}
    for first, last, phase, tokens, words in spans:
        told |= {step: (phase, int(tokens), words) for step in range(int(first), int(last or first) + 1)}
    assert told == {b.step: (b.phase, b.tokens, b.words()) for b in batches(trace)}
    prefill = sum(b.tokens - len(b.decoders) for b in batches(trace))
    assert f"{prefill} prompt tokens, {sum(len(b.decoders) for b in batches(trace))} decode tokens" in title
    picture = svg(shown.html)
    boxes = picture.findall("{*}rect")
    names = [box.find("{*}title").text for box in boxes]
    wanted = []
    for b in batches(trace):
        n = len(b.decoders)
        wanted += [f"step {b.step}: {n} decode token{'s' * (n > 1)}"] if n else []
        wanted += [f"step {b.step}: {end - start} prompt tokens of request {uid}" for uid, start, end in b.prompts]
    assert names == wanted
    budget = trace.about["config"]["max_prefill_tokens"]
    dashed = [p for p in picture.findall("{*}path") if p.get("stroke-dasharray")]
    assert len(dashed) == (name == "chunked_prefill") and f"budget {budget}" in title
    scale = max(b.tokens for b in batches(trace))
    for box, said in zip(boxes, names, strict=True):
        tokens = int(re.search(r": (\d+) ", said).group(1))
        assert float(box.get("height")) == pytest.approx(HIGH * tokens / scale, abs=0.06)


@pytest.mark.parametrize("steps", [(None, None), (3, 4), (99, 120)])
def test_the_event_log(steps: tuple[int | None, int | None]) -> None:
    trace = runs.load("chunked_prefill")
    first, last = steps[0] or 1, steps[1] or trace.history.last
    events = [e for e in trace.events if first <= e.step <= last and describe(e)]
    shown = event_log(trace, *steps)
    title, *lines = shown.text.splitlines()
    assert title.startswith(f"{len(events)} events of steps {first} to {last}")
    assert len(lines) == (1 + min(len(events), 50) if events else 0)
    for e, line in zip(events, lines[1:], strict=False):
        assert line.split()[0] == str(e.step) and f" {describe(e)} " in line
        made = line.split()[-1]
        assert any(where.endswith(f".{made}") for where in EMITTERS[type(e)]), line
    assert shown.html.count("<tr>") == len(lines)


def test_a_run_without_a_step_says_so() -> None:
    trace = runs.load("five_prompts")
    empty = Trace(trace.keyframe, [], {})
    assert "no step yet" in repr(pool_picture(empty)) and "no step yet" in repr(batch_strip(empty))
    assert repr(event_log(empty)).startswith("0 events")


def test_browser_and_python_say_the_same_of_a_wait() -> None:
    (said,) = re.findall(r"export const WAITS = \{(.*)\};", (STATIC / "look.js").read_text("utf-8"))
    assert dict(re.findall(r'(\w+): "([^"]*)"', said)) == WAITS
