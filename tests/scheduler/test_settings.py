"""Settings that change between two steps: from when, for whom, and which cannot."""

from __future__ import annotations

import pytest

from minisgl.config import EngineConfig
from minisgl.errors import ConfigError, FixedSettingError
from minisgl.events import types as ev
from minisgl.events.words import describe
from minisgl.scheduler.settings import CHANGEABLE, changed
from minisgl.sim.whatif import changed as under_whatif
from minisgl.sim.workload import Workload
from tests.fakes import Run, expected


def test_from_the_next_step_on_and_announced() -> None:
    run = Run(max_running_requests=1)
    for prompt in ([1, 2, 3, 4], [5, 6, 7, 8], [9]):
        run.submit(prompt, 3)
    run.scheduler.step()
    run.scheduler.change(order="shortest", max_prefill_tokens=2)
    assert run.scheduler.config.order == "fcfs" and not run.of(ev.SettingsChanged)
    run.play()
    (event,) = run.of(ev.SettingsChanged)
    assert (event.step, event.names, event.values) == (2, ("order", "max_prefill_tokens"), ("shortest", 2))
    assert describe(event) == "settings change: order=shortest, max_prefill_tokens=2"
    assert [e.uid for e in run.of(ev.RequestAdmitted)] == [0, 2, 1]
    assert max(e.num_tokens for e in run.of(ev.BatchScheduled) if e.step > 1) == 2
    assert (run.scheduler.config.order, run.scheduler.config.max_prefill_tokens) == ("shortest", 2)


def test_a_step_for_it_alone() -> None:
    run = Run()
    run.scheduler.change(phase="mixed")
    assert run.scheduler.step().step == 1 and run.scheduler.step() is None
    run.scheduler.change()
    assert run.scheduler.step() is None


def test_a_policy_put_in_by_hand_stays_if_its_setting_is_not_named() -> None:
    run = Run()
    run.scheduler.prefill.order = last = lambda waiting, matched: len(waiting) - 1
    run.scheduler.change(max_prefill_tokens=2)
    run.scheduler.step()
    assert (run.scheduler.prefill.order, run.scheduler.prefill.budget) == (last, 2)
    run.scheduler.change(order="fcfs")
    run.scheduler.step()
    assert run.scheduler.prefill.order is not last


def test_who_was_refused_is_tested_again() -> None:
    run = Run(num_pages=20, max_seq_len=16)
    first, second = run.submit([1, 2, 3], 12), run.submit([4, 5, 6], 12)
    for _ in range(3):
        run.scheduler.step()
    assert second.row < 0
    run.scheduler.change(admission="optimistic")
    run.scheduler.step()
    assert second.row >= 0 and first.row >= 0
    run.play()
    assert run.of(ev.RequestRetracted)  # nobody promised it anything
    assert second.output_ids == expected([4, 5, 6], 12)


def test_leaves_that_stand_ready_change_places() -> None:
    run = Run(num_pages=6, max_seq_len=6)
    for prompt in ([1, 2], [1, 2], [1, 2], [3, 4]):
        run.submit(prompt, 1)
        run.play()
    kept = {n.tokens: i for i, n in run.snapshot().tree.items()}
    run.scheduler.change(eviction="lfu")
    run.submit([9, 9], 2)
    run.play()
    assert run.of(ev.PagesEvicted)[0].nodes == (kept[3, 4],)  # used once; the other three times, but longer ago


@pytest.mark.parametrize("name", sorted(set(EngineConfig.__dataclass_fields__) - set(CHANGEABLE)))
def test_the_others_are_fixed(name: str) -> None:
    value = {
        "num_pages": 4,
        "page_size": 2,
        "prefix_cache": "naive",
        "overlap": True,
        "dtype": "float16",
        "quantize": "int8",
    }.get(name)
    value = {"kv_gib": 1.0, "max_seq_len": 9, "device": "cpu", "check": True, "poison": True, "kernels": "torch"}.get(
        name, value
    )
    run = Run()
    changes = {name: 3 if value is None else value}
    with pytest.raises(FixedSettingError, match=rf"^{name}: .*cannot change in the middle of a run; ") as refused:
        run.scheduler.change(**changes)
    try:
        under_whatif(run.config, Workload([]), changes)
    except ConfigError:
        assert "make another engine" in str(refused.value)
    else:
        assert f"whatif(trace, {name}=" in str(refused.value)
    assert run.scheduler.step() is None  # nothing was queued


def test_values_are_looked_at_before_anything_is_queued() -> None:
    run = Run()
    for bad in ({"order": "best"}, {"max_prefill_tokens": 0}, {"admission": 2}, {"colour": 1}):
        with pytest.raises(ConfigError):
            run.scheduler.change(**bad)
    assert run.scheduler.step() is None
    assert changed(run.config, {"eviction": "fifo"}).eviction == "fifo"
