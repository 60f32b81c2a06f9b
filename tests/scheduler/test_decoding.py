"""What is reckoned ahead for those who decode is what a look at each of them would have found."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.events.recorder import Recorder
from minisgl.events.types import BatchScheduled
from minisgl.scheduler.cache import Lacking
from minisgl.scheduler.decoding import Decoding
from tests.events.runs import all_seen, configs, enact, longest, scripts, stops
from tests.fakes import Run, expected


def test_every_random_run(monkeypatch):
    saw: Counter[str] = Counter()
    runs: list[Run] = []
    lacking, again = Decoding.lacking, Decoding.again

    def look_lacking(group: Decoding) -> Lacking:
        saw["reckoned"] += 1
        found = lacking(group)
        saw["a page"] += found.total
        assert found == runs[-1].scheduler.cache.lacking(group.requests)
        return found

    def look_again(group: Decoding) -> bool:
        found = again(group)
        scheduler = runs[-1].scheduler
        able = [r for _, r in sorted(scheduler.running.items()) if r.device_len < r.end]
        saw["over"] += not found
        assert not found or able == group.requests
        return found

    monkeypatch.setattr(Decoding, "lacking", look_lacking)
    monkeypatch.setattr(Decoding, "again", look_again)

    @settings(max_examples=200)
    @given(configs, stops, scripts, st.booleans())
    def check(config: dict, stops: tuple[int, ...], script: list, check: bool) -> None:
        runs[:] = [Run(stop_tokens=stops, max_seq_len=longest(config), check=check, **config)]
        enact(runs[0], script, Recorder(runs[0]))
        runs[0].play()
        runs[0].scheduler.check_integrity()

    check()
    all_seen(saw)


def test_a_policy_may_let_some_of_them_wait():
    """What was reckoned for all of them is not what happens."""
    run = Run(num_pages=64, max_seq_len=40)
    turn = iter(range(1_000))

    def all_or_half(prefill, decodable):
        able = decodable()
        return prefill.schedule(prefill.budget) or able[:: 1 + next(turn) % 2]

    run.scheduler.phase = all_or_half
    requests = [run.submit([i, 1, 2], 8 + i) for i in range(4)]
    run.play()
    assert [r.output_ids for r in requests] == [expected([i, 1, 2], 8 + i) for i in range(4)]
    assert {2, 4} <= {len(e.uids) for e in run.of(BatchScheduled) if e.phase == "decode"}
