"""Do the views keep their budgets? Scrubbing, first paint, size of an export, and what a live run costs the kernel.

The runs come from the simulator: prompts of 512 tokens, half of each one of 20 shared prefaces, 200 new tokens on the
average, 64 rows, pages of 16. The browser is the system's Chromium, without a window and without a GPU, at 1280 x 900,
where views out of sight wait until nothing moves, and so high that all are in sight.

Frames a second are told twice: as they were seen, which says as much about who else was using the machine, and as what
the page's own thread would reach with a core to itself, from the CPU time it took for a frame. The budget is held
against that.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import arguments, print_json, table

from minisgl import EngineConfig, Recorder, SamplingParams, Simulator, Trace, Workload
from minisgl.sim.workload import Arrival

sys.path.append(str(Path(__file__).parent.parent))
from minisgl_widgets import Stage, export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.session import Session

try:
    from tests.chromium import launched
except ModuleNotFoundError as missing:
    sys.exit(f"stage.py needs {missing.name}, one of the test tools: run it in the environment of `make env-dev`")

PROMPT, NEW, ROWS, PAGE_SIZE = 512, 200, 64, 16
WIDTH, HEIGHTS = 1280, {900: "", 2400: "all in sight, "}
FRAMES, EXPORT_MB, PAINT_MS, SHARE = 30, 2.0, 1000, 0.05  # the budgets
LIVE_STEPS, LIVE_RATE, TAIL_RATE = 400, 20, 12  # steps; steps a second; tails a second at most

SCRUB = """async ([from, to, frames]) => {
    const { stage } = document.querySelector("#stage");
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const longest = [];
    await frame();
    const begun = performance.now();
    for (let i = 0; i < frames; i++) {
        const at = from === null ? (i * 7919 * 104729) % to : from + Math.round(((to - from) * i) / frames);
        const before = performance.now();
        stage.goto(stage.store.first + at);
        await frame();
        longest.push(performance.now() - before);
    }
    return [frames / ((performance.now() - begun) / 1000), Math.max(...longest)];
}"""
PAINT = """() => new Promise((done) => {
    const drawn = () => done(performance.now());
    const look = () => requestAnimationFrame(document.querySelector(".msgl[data-step]") ? drawn : look);
    look();
})"""


def recorded(pages: int, steps: int) -> Trace:
    """A run of about that many steps."""
    rng = np.random.default_rng(0)
    n = max(ROWS, steps * ROWS // (NEW + 12))
    prefaces = rng.integers(0, 30_000, (20, PROMPT // 2)).astype(np.int32)
    params = [SamplingParams(max_tokens=int(k), ignore_eos=True) for k in rng.integers(NEW // 2, 3 * NEW // 2, n)]
    arrivals = tuple(
        Arrival(
            at=0.0,
            prompt=np.concatenate((prefaces[rng.integers(20)], rng.integers(0, 30_000, PROMPT // 2, dtype=np.int32))),
            params=params[i],
        )
        for i in range(n)
    )
    config = EngineConfig(num_pages=pages, page_size=PAGE_SIZE, max_running_requests=ROWS, max_seq_len=1024)
    simulator = Simulator(config)
    with Recorder(simulator, f"{pages:,} pages") as recorder:
        simulator.run(Workload(arrivals))
    return recorder.trace


def until(trace: Trace, step: int) -> Trace:
    """The run up to a step."""
    return Trace(trace.keyframe, [e for e in trace.events if e.step <= step], trace.texts, trace.title)


def in_browser(browser: Any, path: Path, steps: int, height: int) -> dict[str, float]:
    """First paint, and frames a second of three ways to scrub."""
    context = browser.new_context(viewport={"width": WIDTH, "height": height})
    page = context.new_page()
    page.set_default_timeout(120_000)
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto(path.as_uri(), wait_until="commit")
    found = {"first paint, ms": page.evaluate(PAINT)}
    page.wait_for_selector("body[data-ready]")
    found["all read, ms"] = page.evaluate("performance.now()")
    ways = {
        "step by step": (steps // 2, steps // 2 + 150, 150),
        "from end to end": (0, steps, 150),
        "jumps": (None, steps, 100),
    }
    for name, way in ways.items():
        browser.start_tracing(page=page, categories=["toplevel"])
        found[f"{name}, seen frames/s"], found[f"{name}, longest ms"] = page.evaluate(SCRUB, list(way))
        found[f"{name}, CPU ms a frame"] = cpu_ms(json.loads(browser.stop_tracing())["traceEvents"]) / way[2]
    assert not problems, problems
    context.close()
    return found


def cpu_ms(events: list[dict[str, Any]]) -> float:
    """CPU time of the page's main thread in a trace of Chromium's, the busiest of that name."""
    mains = [
        (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"
    ]
    spent = dict.fromkeys(mains, 0.0)
    for event in events:
        if event["name"] == "ThreadControllerImpl::RunTask" and (event["pid"], event["tid"]) in spent:
            spent[event["pid"], event["tid"]] += event.get("tdur", 0) / 1000
    return max(spent.values())


def live_share(trace: Trace) -> float:
    """The share of its time that a kernel spends on views, at LIVE_RATE steps a second."""
    feed = Feed(trace.keyframe)
    stage = Stage(feed, live=True)
    each = max(1, LIVE_RATE // TAIL_RATE)
    step = 1
    gc.collect()
    gc.freeze()  # the rest of the run, which a live kernel would not hold yet
    begun = time.process_time()
    for event in trace.events:
        if event.step >= step + each:
            stage.publish()
            step = event.step
        feed.put(event)
    stage.publish()
    spent = time.process_time() - begun
    stage.close()
    return spent / (LIVE_STEPS / LIVE_RATE)


def main() -> None:
    options = arguments(__doc__).parse_args()
    pages, steps = (20_000, 2000) if options.quick else (100_000, 10_000)
    begun = time.perf_counter()
    trace = recorded(pages, steps)
    small = until(recorded(10_000, 500), 500)
    made = time.perf_counter() - begun
    share = live_share(until(trace, LIVE_STEPS))
    begun = time.perf_counter()
    _ = trace.history
    folded = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        begun = time.perf_counter()
        path = export_html(Session(trace), Path(folder) / "run.html")
        written = time.perf_counter() - begun
        found = {}
        for height, said in HEIGHTS.items():
            seen = in_browser(browser, path, len(trace.history.deltas), height)
            found |= {said + what: value for what, value in seen.items()}
        size = path.stat().st_size / 1e6
        export = export_html(small, Path(folder) / "small.html").stat().st_size / 1e6
    slowest = min(60.0, 1000 / max(v for k, v in found.items() if k.endswith("CPU ms a frame")))
    rows = [
        ("scrubbing, frames/s, the slowest way", f"{slowest:.0f}", f">= {FRAMES}", slowest >= FRAMES),
        ("first paint, ms", f"{found['first paint, ms']:.0f}", f"< {PAINT_MS}", found["first paint, ms"] < PAINT_MS),
        ("export of 500 steps x 10,000 pages, MB", f"{export:.2f}", f"< {EXPORT_MB:.0f}", export < EXPORT_MB),
        ("live at 20 steps/s, share of the kernel's time", f"{share:.1%}", f"< {SHARE:.0%}", share < SHARE),
    ]
    print(f"{pages:,} pages, {len(trace.history.deltas):,} steps, {len(trace.events):,} events:")
    print(f"simulated in {made:.1f} s, folded in {folded:.1f} s, written in {written:.1f} s, {size:.1f} MB")
    print(table(["what", "measured", "budget", "kept"], [[*r[:3], "yes" if r[3] else "NO"] for r in rows]))
    print(table(["in the browser", ""], [[k, f"{v:.1f}"] for k, v in found.items()]))
    if options.json:
        print_json({**found, "export MB": export, "live share": share})


if __name__ == "__main__":
    main()
