"""An engine taken back and run again: the same events on the same device, or an error that says what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import Request, SamplingParams
from minisgl.errors import ForkError, TraceError
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.sim.rewind import rewound, steps_up_to
from tests.events.runs import all_seen, configs, enact, longest, scripts, stops
from tests.fakes import Run, expected


def rewind(run: Run, trace: Trace, step: int) -> Iterator[ev.StepFinished]:
    """What an LLM does: see ``LLM.rewind``."""
    steps = steps_up_to(trace, step)
    run.scheduler, coming = rewound(run.scheduler, trace)
    return (done for each in coming[:steps] if (done := each.feed(run.scheduler, run.executor.now())))


def again(run: Run, trace: Trace, step: int) -> Trace:
    """Rewind, record that, and compare."""
    taking = rewind(run, trace, step)
    with Recorder(run) as recorder:
        assert [e.step for e in taking] == list(range(trace.keyframe["step"] + 1, step + 1))
    events = [e for e in trace.events if e.step <= step]
    first = Trace(trace.keyframe, events, trace.texts, about=trace.about, checkpoint=trace.checkpoint)
    diff = first.diff(recorder.trace)
    assert not diff and not diff.config, diff
    return recorder.trace


SHARES = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])


def test_every_random_run() -> None:
    saw: Counter[str] = Counter()

    @settings(max_examples=150)
    @given(configs, stops, scripts, SHARES, st.booleans(), st.integers(0, 1000))
    def check(config: dict, stops: tuple[int, ...], script: list, share: float, to_end: bool, adversary: int) -> None:
        run = Run(stop_tokens=stops, max_seq_len=longest(config), adversary=adversary, **config)
        recorder = Recorder(run).start()
        enact(run, [action for action in script if action[0] not in ("record", "break")], recorder)
        if to_end:
            run.play()
        recorder.stop()
        trace = recorder.trace
        busy = not run.scheduler.idle
        step = round(share * trace.history.last)
        once = again(run, trace, step)
        assert not once.check()
        more = run.submit([1, 0, 1], 2)
        assert more.uid not in trace.requests.uid.tolist()
        run.play()
        assert more.output_ids == expected([1, 0, 1], 2, frozenset(stops))[: len(more.output_ids)]
        run.scheduler.check_integrity()
        saw["runs"] += 1
        saw["busy"] += busy
        saw["in the middle"] += 0 < step < trace.history.last
        saw["in flight"] += bool(trace.at(step).flight)
        saw["evicted"] += bool(once.of(ev.PagesEvicted))
        saw["aborted"] += bool(once.of(ev.AbortRequested))
        saw["changed"] += bool(once.of(ev.SettingsChanged))

    check()
    all_seen(saw)


def recorded(run: Run, *prompts: list[int], max_tokens: int = 4) -> Trace:
    with Recorder(run) as recorder:
        for prompt in prompts:
            run.submit(prompt, max_tokens)
        run.play()
    return recorder.trace


def test_twice() -> None:
    run = Run()
    first = recorded(run, [1, 2, 3], [1, 2, 4])
    second = again(run, first, 3)
    again(run, second, 2)


def test_a_used_cache_that_kept_its_pages_will_do() -> None:
    run = Run(num_pages=64)
    recorded(run, [1, 2, 3])
    trace = recorded(run, [1, 2, 3, 4])
    assert trace.requests.cached_tokens.tolist() == [3]
    again(run, trace, trace.history.last)


def test_a_used_cache_that_gave_pages_up_will_not() -> None:
    run = Run(num_pages=12, max_seq_len=12)
    recorded(run, [1, 2, 3, 4, 5], [6, 7, 8])
    trace = recorded(run, [9, 10, 11, 12], [20, 21])
    assert trace.of(ev.PagesEvicted)
    with pytest.raises(ForkError, match=r"its pages .* were given to others since: call llm.clear_cache\(\)"):
        rewind(run, trace, 9)
    run.scheduler.clear_cache()  # the remedy
    run.scheduler.step()
    trace = recorded(run, [9, 10, 11, 12], [20, 21])
    again(run, trace, trace.keyframe["step"] + 3)


def test_requests_that_were_there_before() -> None:
    run = Run()
    run.submit([1, 2, 3])
    run.scheduler.step()
    trace = recorded(run, [4, 5])
    with pytest.raises(ForkError, match=r"1 request \(0\) had begun before the record did.*while the engine is idle"):
        rewind(run, trace, 2)


def test_who_only_waited_when_the_record_began_has_no_kv_to_lose() -> None:
    run = Run(max_running_requests=1)
    first, second = run.submit([1, 2, 3], 1), run.submit([4, 5, 6], 3)
    run.scheduler.step()
    assert first.finished and second.status == "waiting"
    trace = recorded(run)
    assert trace.keyframe["requests"][second.uid]["status"] == "waiting"
    again(run, trace, trace.history.last)


def test_what_comes_while_others_are_ended_ends_as_well() -> None:
    run = Run()
    with Recorder(run) as recorder:
        run.submit([1, 2, 3], 30)
        run.scheduler.step()
    late: list[Request] = []
    with run.scheduler.bus.on(ev.RequestFinished, lambda e: late or late.append(run.submit([7, 8, 9], 30))):
        again(run, recorder.trace, 1)
    assert late[0].finish_reason == "abort"


def test_pages_that_are_lost_while_others_are_ended() -> None:
    run = Run(num_pages=12, max_seq_len=12)
    recorded(run, [1, 2, 3, 4, 5], [6, 7, 8])
    with Recorder(run) as recorder:
        run.submit([1, 2, 3, 4, 5, 6], 2)
        run.scheduler.step()
    with (
        run.scheduler.bus.on(ev.RequestFinished, lambda e: e.uid < 3 and run.submit([9] * 8, 4)),
        pytest.raises(ForkError, match="were given to others since"),
    ):
        rewind(run, recorder.trace, recorder.trace.keyframe["step"])
    run.scheduler.check_integrity()


def test_who_submits_meanwhile_is_not_lost() -> None:
    run = Run()
    trace, before = recorded(run, [1, 2, 3]), run.scheduler
    again(run, trace, 1)
    late = before.submit([7, 8, 9], SamplingParams(max_tokens=2))  # a thread that had the scheduler in hand
    other = run.submit([7, 8, 9], 2)
    run.play()
    assert (late.uid, other.uid) == (1, 2)
    assert late.finished and other.finished


def test_free_pages_are_poisoned_again() -> None:
    run = Run(num_pages=16, poison=True)
    trace, batches = recorded(run, [1, 2, 3]), len(run.executor.batches)
    again(run, trace, 1)
    assert sorted(run.executor.batches[batches].poison) == list(range(16))


def test_the_engine_has_gone_on_since() -> None:
    run = Run()
    trace = recorded(run, [1, 2, 3])
    recorded(run, [1, 2, 3])
    with pytest.raises(ForkError, match="not where this record ends"):
        rewind(run, trace, 2)
    with pytest.raises(ForkError, match="not where this record ends"):
        rewind(Run(), trace, 2)
    with pytest.raises(TraceError, match="steps 0 to 4"):
        rewind(run, trace, 5)


def test_what_nobody_has_received_yet_ends_as_well() -> None:
    run = Run()
    trace = recorded(run, [1, 2, 3])
    with Recorder(run) as after:
        late: Request = run.submit([7, 8, 9])
        again(run, trace, 2)
    assert late.finish_reason == "abort"
    assert not after.trace.of(ev.PagesAllocated)  # it did not even begin: KV that is needed might have been there
    assert run.scheduler.inbox.next_uid == 2


def test_a_record_without_its_beginning() -> None:
    run = Run()
    run.submit([1, 2, 3], 30)
    with Recorder(run, last=8) as recorder:
        run.play()
    with pytest.raises(TraceError, match="no checkpoint"):
        rewind(run, recorder.trace, recorder.trace.history.last)


def test_a_record_that_cannot_be_run_again_ends_nothing() -> None:
    run = Run()
    with Recorder(run) as recorder:
        running = run.submit([1, 2, 3], 30)
        run.scheduler.step()
    trace = recorder.trace
    trace.about = trace.about | {"config": trace.about["config"] | {"colour": "blue"}}
    with pytest.raises(TraceError, match="unknown setting colour"):
        rewind(run, trace, 1)
    run.play()
    assert running.finish_reason == "length"
