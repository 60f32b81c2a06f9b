"""The independent block cache, by hand; and the scheduler's prefix cache beside it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from minisgl.config import EngineConfig
from minisgl.sim.costs import LinearCost
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Workload
from tests.sim.block_lru import Asked, hit_rate

A, B, C = Asked((1, 2), 8, 1), Asked((3, 4), 8, 1), Asked((1, 5), 6, 1)


@pytest.mark.parametrize(
    ("requests", "capacity", "rules", "rate"),
    [
        ([A, A], 2, {}, 1.0),
        ([A, A], 1, {}, 0.5),  # the last block goes first
        ([A, B, A, A], 2, {}, 0.5),  # half are counted: the third finds nothing, the fourth all
        ([A, C], 9, {}, 4 / 6),
        ([A, B, A, A], 3, {}, 12 / 16),  # [3, 4] pushed 2 out, not 1
        ([A, A], 2, {"last_token": True}, 0.5),  # the second block holds the last token
        ([A, Asked((1, 2), 6, 1)], 2, {"last_token": True}, 4 / 6),
        ([A, A], 2, {"last_token": True, "outputs": True}, 0.5),
        ([Asked((1, 2), 8, 9), B, A], 4, {}, 0.5),
        ([Asked((1, 2), 8, 9), A, A], 2, {"outputs": True}, 1.0),
    ],
)
def test_by_hand(requests: list[Asked], capacity: int, rules: dict, rate: float) -> None:
    assert hit_rate(requests, capacity, block=4, **rules) == pytest.approx(rate)


def chains(n: int, seed: int) -> list[Asked]:
    """Conversations of some blocks that come back again and again, their hashes as in the Mooncake traces."""
    random = Random(seed)
    made: list[list[int]] = []
    asked, fresh = [], 0
    for _ in range(n):
        if made and random.random() < 0.7:
            blocks = list(random.choice(made[-30:]))[: random.randint(1, 12)]
        else:
            blocks = []
        for _ in range(random.randint(1, 4)):
            blocks.append(fresh)
            fresh += 1
        made.append(blocks)
        asked.append(Asked(tuple(blocks), 16 * len(blocks) - random.choice([0, 3, 15]), random.randint(1, 20)))
    return asked


def scheduler_rate(folder: Path, asked: list[Asked], pool: int) -> float:
    lines = [
        {"timestamp": 1e6 * i, "input_length": r.tokens, "output_length": r.new, "hash_ids": r.blocks}
        for i, r in enumerate(asked)
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    workload = Workload.mooncake(folder / "t.jsonl", block=16)
    config = EngineConfig(num_pages=pool, page_size=16, max_running_requests=1, max_seq_len=workload.longest)
    requests = Simulator(config, LinearCost(constant=1e-3)).run(workload).requests
    half = len(asked) // 2
    return requests.cached_tokens[half:].sum() / requests.prompt_tokens[half:].sum()


def test_with_room_for_all_the_scheduler_finds_exactly_what_there_is(tmp_path: Path) -> None:
    asked = chains(300, seed=1)
    assert scheduler_rate(tmp_path, asked, 5000) == hit_rate(asked, 5000, 16, last_token=True, outputs=True)


@pytest.mark.parametrize("pool", [20, 30, 45])
def test_in_a_tight_pool_the_scheduler_is_close(tmp_path: Path, pool: int) -> None:
    """What is left of the difference: whole leaves are evicted, and a running request needs its last, short page."""
    asked = chains(300, seed=2)
    oracle = hit_rate(asked, pool, 16, last_token=True, outputs=True)
    assert 0.1 < oracle < hit_rate(asked, 5000, 16, last_token=True, outputs=True) - 0.02
    assert scheduler_rate(tmp_path, asked, pool) == pytest.approx(oracle, abs=0.05)
