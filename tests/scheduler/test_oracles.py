"""The numbers of the published teaching material on the mini-SGLang design."""

from __future__ import annotations

import numpy as np
import pytest

from minisgl.core import Request, SamplingParams, pages_for, slots_of
from minisgl.events import BatchScheduled, Handoff, PagesAllocated
from tests.fakes import Run, expected

LENGTHS = (5, 5, 4, 15, 5)
ADMISSION = [  # step, phase, uids, waiting, free, reserved
    (1, "prefill", (0, 1, 2, 3), 1, 35, 28),
    *((k, "decode", (0, 1, 2, 3), 1, 35 - 4 * (k - 1), 28 - 4 * (k - 1)) for k in range(2, 9)),
    (9, "prefill", (4,), 0, 59, 7),
    *((k, "decode", (4,), 0, 59 - (k - 9), 7 - (k - 9)) for k in range(10, 17)),
]


def columns(run):
    return [(e.step, e.phase, e.uids, e.waiting, e.free_pages, e.reserved_pages) for e in run.of(BatchScheduled)]


def test_admission():
    run = Run(prefix_cache="naive", num_pages=64)
    prompts = [list(range(100 * i, 100 * i + n)) for i, n in enumerate(LENGTHS)]
    requests = [run.submit(p, 8) for p in prompts]
    assert run.play() == 16
    assert columns(run) == ADMISSION
    assert run.scheduler.cache.free == 64
    assert [r.output_ids for r in requests] == [expected(p, 8) for p in prompts]


def test_a_requests_lengths():
    run = Run(prefix_cache="radix")
    run.submit([1, 2], 1)
    run.play()
    request = run.submit([1, 2, 3, 4, 5, 6], 3)
    seen = []
    run.scheduler.bus.on(BatchScheduled, lambda e: seen.append((e.starts[0], e.ends[0])))
    after = []
    while run.scheduler.step():
        after.append((request.cached_len, request.device_len, request.extend_len, request.remain_len))
    assert seen[0] == (2, 6)  # at admission: cached 2, device 6, extend 4
    assert after == [(6, 7, 1, 2), (7, 8, 1, 1), (8, 9, 1, 0)]


def test_remaining_tokens_at_admission():
    request = Request(0, np.arange(6, dtype=np.int32), SamplingParams(max_tokens=3), 3, 0, frozenset())
    request.cached_len, request.device_len = 2, 6
    assert (request.extend_len, request.remain_len) == (4, 3)


def test_allocation():
    run = Run(prefix_cache="naive", page_size=4, num_pages=8, max_seq_len=32)
    request = run.submit([1, 2, 3, 4, 5, 6], 8)
    run.scheduler.step()
    assert request.pages == [0, 1] and run.scheduler.cache.free == 6
    assert run.executor.page_table[0, :8].tolist() == list(range(8))
    run.scheduler.step()  # device_len 7 needs no page
    run.scheduler.step()
    assert run.scheduler.cache.free == 6 and request.device_len == 9
    run.scheduler.step()  # token 8, the ninth, opens one
    assert run.scheduler.cache.free == 5 and len(request.pages) == 3
    assert [e.counts for e in run.of(PagesAllocated)] == [(2,), (1,)]


@pytest.mark.parametrize(("tokens", "page_size", "pages"), [(6, 4, 2), (17, 16, 2), (0, 4, 0), (9, 4, 3)])
def test_pages_for(tokens, page_size, pages):
    assert pages_for(tokens, page_size) == pages


def test_cached_6_device_9_takes_exactly_one_page():
    run = Run(prefix_cache="naive", page_size=4, num_pages=8, max_seq_len=32, max_prefill_tokens=6)
    run.submit(list(range(9)), 2)
    run.scheduler.step()
    run.scheduler.step()
    assert [e.counts for e in run.of(PagesAllocated)] == [(2,), (1,)]


def test_page_table_rows():
    """ps 16: a request with page 2 and 4 slots of page 5 has the row 32..47, 80..83."""
    assert slots_of([2, 5], 16)[:20].tolist() == [*range(32, 48), *range(80, 84)]
    run = Run(page_size=16, num_pages=12, max_seq_len=64, check=False)
    order = [2, 5, *(page for page in range(12) if page not in (2, 5))]  # of the free list
    run.scheduler.cache.allocator.restore([order.index(page) for page in range(12)], taken=0)
    request = run.submit(list(range(20)), 4)
    run.scheduler.step()
    assert request.pages == [2, 5]
    assert run.executor.page_table[0, :20].tolist() == [*range(32, 48), *range(80, 84)]


class TestPagesNotTokens:
    """Where a reservation counted in tokens breaks."""

    def test_three_prompts_of_4(self):  # also case 7
        run = Run(page_size=4, num_pages=5, max_seq_len=20, prefix_cache="naive")
        requests = [run.submit([10 * i + j for j in range(4)], 2) for i in range(3)]
        run.play()
        assert run.of(BatchScheduled)[0].uids == (0, 1)
        assert all(r.finish_reason == "length" for r in requests)

    def test_five_prompts_of_9(self):  # also case 7
        run = Run(page_size=16, num_pages=4, max_seq_len=64, prefix_cache="naive")
        requests = [run.submit([10 * i + j for j in range(9)], 3) for i in range(5)]
        run.play()
        assert run.of(BatchScheduled)[0].uids == (0, 1, 2, 3)
        assert all(len(r.output_ids) == 3 for r in requests)

    def test_the_border_page(self):
        run = Run(page_size=8, num_pages=2, max_seq_len=16, prefix_cache="naive")
        first, second = run.submit([1, 2, 3], 11), run.submit([4, 5, 6, 7, 8], 2)
        run.play()
        batches = run.of(BatchScheduled)
        assert all(e.uids in ((0,), (1,)) for e in batches)
        assert [e.uids for e in batches if e.phase == "prefill"] == [(0,), (1,)]
        assert first.output_ids == expected([1, 2, 3], 11) and second.output_ids == expected([4, 5, 6, 7, 8], 2)

    def test_the_row_is_wide_enough_for_whole_pages(self):  # also case 8
        run = Run(page_size=64, num_pages=4, max_seq_len=90)
        prompt = list(range(70))
        request = run.submit(prompt, 20)
        run.play()
        assert run.executor.page_table.shape[1] == 128
        assert request.output_ids == expected(prompt, 20)


def test_chunked_prefill():
    prompts = [list(range(100, 161)), [1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]

    def run(budget):
        run = Run(num_pages=100, max_prefill_tokens=budget, prefix_cache="naive")
        requests = [run.submit(p, 3) for p in prompts]
        run.play()
        return run, [r.output_ids for r in requests]

    chunked, outputs = run(16)
    whole, alone = run(1000)
    assert outputs == alone == [expected(p, 3) for p in prompts]
    spans = [tuple(zip(e.uids, e.starts, e.ends, strict=True)) for e in chunked.of(BatchScheduled)]
    assert spans[:5] == [
        ((0, 0, 16),),
        ((0, 16, 32),),
        ((0, 32, 48),),
        ((0, 48, 61), (1, 0, 3)),
        ((1, 3, 5), (2, 0, 5)),
    ]
    assert [(e.phase, e.num_tokens) for e in chunked.of(BatchScheduled)][5:] == [("decode", 3), ("decode", 3)]
    assert len(whole.of(BatchScheduled)) == 3


def test_the_same_prompt_twice_computes_one_token():
    run = Run(num_pages=64)
    for _ in range(2):
        run.submit(list(range(20)), 2)
        run.play()
    prefills = [e for e in run.of(BatchScheduled) if e.phase == "prefill"]
    assert [e.num_tokens for e in prefills] == [20, 1]


@pytest.mark.parametrize(("prefix_cache", "computed"), [("naive", 6656), ("radix", 656)])
def test_prefix_reuse_pays(prefix_cache, computed):
    run = Run(prefix_cache=prefix_cache, num_pages=8192, max_seq_len=512, max_running_requests=16, check=False)
    shared = [i % 900 for i in range(400)]
    prompts = [shared + [900 + i] * 16 for i in range(16)]
    first = run.submit(prompts[0], 4)
    run.scheduler.step()
    rest = [run.submit(p, 4) for p in prompts[1:]]
    run.play()
    assert sum(e.num_tokens for e in run.of(BatchScheduled) if e.phase == "prefill") == computed
    assert [r.output_ids for r in (first, *rest)] == [expected(p, 4) for p in prompts]


def test_the_four_segments():
    """Two equal prompts in one batch: the second's copies are freed and its row shows the cache's pages."""
    run = Run(page_size=4, num_pages=16, max_seq_len=32)
    run.submit(list(range(10)), 3)
    second = run.submit(list(range(10)), 3)
    run.scheduler.step()
    handoff = run.of(Handoff)[1]
    assert handoff.segments() == [
        ("locked", 0, 0, ()),
        ("duplicate", 0, 8, (3, 4)),
        ("inserted", 8, 8, ()),
        ("tail", 8, 12, (5,)),
    ]
    assert handoff.replaced == (0, 1)
    assert second.pages == [0, 1, 5]
    run.play()
    assert second.output_ids == expected(list(range(10)), 3)
