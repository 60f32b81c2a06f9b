"""The device's mirrors follow the host's writes, and results come back in launch order."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from minisgl.config import EngineConfig
from minisgl.core import PageWrites, slots_of
from minisgl.engine import load_engine
from minisgl.engine.executor import last_writes, scatter_pages, scatter_tokens
from tests.engine.driver import Driver
from tests.models.reference import reference_tokens

FLOAT32 = {"device": "cpu", "dtype": "float32"}


@pytest.fixture
def driver(tiny_folder) -> Driver:
    config = EngineConfig(num_pages=32, page_size=4, max_running_requests=3, max_seq_len=18, **FLOAT32)
    return Driver(load_engine(tiny_folder("llama"), config).executor)


def test_tables_are_whole_pages_wide_with_a_dummy_row_last(driver):
    executor = driver.executor
    assert executor.page_table.shape == executor.token_pool.shape == (4, 20)
    assert executor.page_table.dtype == executor.token_pool.dtype == torch.int32
    assert executor.page_table.unique().tolist() == [32 * 4]  # whatever names no token yet names the dummy page


def test_writes_land_before_the_forward_and_samples_after(driver):
    driver.admit(1, [5, 6, 7])
    driver.run({1: (0, 3)})
    row = driver.executor.token_pool[1].tolist()
    assert row[:4] == [5, 6, 7, driver.tokens[1][3]]
    assert driver.executor.page_table[1, :4].tolist() == slots_of(driver.pages[1], 4).tolist()[:4]


def test_a_chunk_leaves_the_token_pool_alone(driver):
    driver.admit(0, [5, 6, 7, 8, 9])
    assert driver.run({0: (0, 2)}).tokens == [-1]
    assert driver.executor.token_pool[0, :5].tolist() == [5, 6, 7, 8, 9]


def test_a_row_is_filled_to_its_end_and_a_sample_past_it_never_reaches_the_next_row(driver, tiny_folder):
    prompt = list(range(40, 58))
    driver.admit(0, prompt)
    driver.admit(1, [77])
    driver.prefill(0)
    driver.decode(0)
    assert driver.output(0) == reference_tokens(tiny_folder("llama"), prompt, 2)
    assert driver.executor.token_pool[0, 18:].tolist() == driver.output(0)
    with pytest.raises(AssertionError, match=r"samples for positions \[20\], and rows hold 20 tokens"):
        driver.decode(0)
    assert driver.executor.token_pool[1, 0] == 77


def test_results_are_collected_in_launch_order(driver):
    driver.admit(0, [5, 6, 7])
    driver.admit(1, [9])
    first, second = driver.launch({0: (0, 3)}), driver.launch({1: (0, 1), 0: (3, 4)})
    results = [driver.executor.collect(), driver.executor.collect()]
    assert [r.number for r in results] == [first.number, second.number]
    assert [len(r.tokens) for r in results] == [1, 2]
    assert 0 <= results[0].started <= results[0].finished <= results[1].started <= results[1].finished
    assert results[1].finished <= driver.executor.now()


def test_a_decode_takes_its_input_from_the_token_pool_before_the_host_has_read_it(driver, tiny_folder):
    driver.admit(0, [5, 6, 7])
    for start, end in [(0, 3), (3, 4), (4, 5)]:
        driver.launch({0: (start, end)})
    tokens = [driver.executor.collect().tokens[0] for _ in range(3)]
    assert tokens == reference_tokens(tiny_folder("llama"), [5, 6, 7], 3)


def test_the_later_of_two_writes_wins():
    pool, table = torch.zeros(2, 3, 6, dtype=torch.int32)
    runs = [(0, 1, [1, 2, 3]), (2, 0, [4]), (0, 2, [8, 9, 10]), (1, 5, []), (0, 2, [11])]
    scatter_tokens(pool, [(row, start, np.array(run, np.int32)) for row, start, run in runs])
    assert pool.tolist() == [[0, 1, 11, 9, 10, 0], [0] * 6, [4, 0, 0, 0, 0, 0]]
    scatter_pages(table, [PageWrites((0, 2), (1, 0), (2, 1), (1, 2, 3)), PageWrites([0], [1], [1], [9])], page_size=2)
    assert table.tolist() == [[0, 0, 18, 19, 4, 5], [0] * 6, [6, 7, 0, 0, 0, 0]]
    place, values = last_writes(np.array([4, 2, 4, 0, 2]), np.array([1, 2, 3, 4, 5]))  # what a GPU is sent
    assert dict(zip(place.tolist(), values.tolist(), strict=True)) == {0: 4, 2: 5, 4: 3}


class TestRunningAhead:
    """With overlap, a CPU computes in a worker thread while the host goes on."""

    @pytest.fixture
    def driver(self, tiny_folder):
        settings = {"max_running_requests": 3, "max_seq_len": 20, "overlap": True}
        config = EngineConfig(num_pages=32, page_size=4, **settings, **FLOAT32)
        driver = Driver(load_engine(tiny_folder("llama"), config).executor)
        yield driver
        driver.executor.close()

    def test_launch_does_not_wait_and_collect_does(self, driver, tiny_folder, monkeypatch):
        may_go, own = threading.Event(), driver.executor.runner.logits

        def slow(*args):
            assert may_go.wait(60)
            return own(*args)

        monkeypatch.setattr(driver.executor.runner, "logits", slow)
        driver.admit(0, [5, 6, 7])
        driver.launch({0: (0, 3)})
        driver.launch({0: (3, 4)})  # reads the token that the first has yet to sample
        assert not may_go.is_set()
        may_go.set()
        tokens = [driver.executor.collect().tokens[0] for _ in range(2)]
        assert tokens == reference_tokens(tiny_folder("llama"), [5, 6, 7], 2)

    def test_what_fails_in_the_worker_is_raised_by_collect(self, driver, monkeypatch):
        driver.admit(0, [5, 6, 7])
        monkeypatch.setattr(driver.executor.runner, "logits", None)
        driver.launch({0: (0, 3)})
        with pytest.raises(TypeError):
            driver.executor.collect()
