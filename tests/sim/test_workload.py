"""Workloads: what files say, what is written and read again, what is generated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from minisgl.config import EngineConfig
from minisgl.core import SamplingParams
from minisgl.errors import WorkloadError
from minisgl.sim.arrival import END, Arrival
from minisgl.sim.executor import VOCAB
from minisgl.sim.generate import Lognormal
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Workload
from tests.fakes import Run


def written(folder: Path, name: str, *lines: object) -> Path:
    path = folder / name
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def common(a: np.ndarray, b: np.ndarray) -> int:
    """Tokens that two prompts have in common from the start."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def simulated(workload: Workload, **settings):
    config = {"num_pages": 4096, "max_running_requests": 8} | settings
    return (
        Simulator(
            EngineConfig(**config),
        )
        .run(workload)
        .requests
    )


# -- Azure -----------------------------------------------------------------------------------------------------------

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_azure_tells_times_and_lengths(tmp_path: Path) -> None:
    lines = ("2023-11-16 23:59:59.7500000,374,44", "2023-11-17 00:00:00.2500000,396,109", "")
    w = Workload.azure(written(tmp_path, "conv.csv", AZURE, *lines))
    assert [(a.at, a.prompt_len, a.params.max_tokens) for a in w.arrivals] == [(0.0, 374, 44), (0.5, 396, 109)]
    assert repr(w) == "Workload(conv: 2 requests in 0.5 s, 770 prompt tokens, 153 new at most)"


def test_azure_prompts_share_nothing_and_are_expanded_when_they_arrive(tmp_path: Path) -> None:
    w = Workload.azure(written(tmp_path, "a.csv", AZURE, *[f"2023-11-16 18:00:0{i},40,4" for i in range(8)]))
    assert sum(a.prompt.nbytes for a in w.arrivals) == 8 * 4
    assert {len(a.tokens()) for a in w.arrivals} == {40}
    assert max(common(w.arrivals[0].tokens(), a.tokens()) for a in w.arrivals[1:]) == 0
    requests = simulated(w)
    assert requests.output_tokens.tolist() == [4] * 8 and not requests.cached_tokens.any()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a,b"], r"line 1: .*TIMESTAMP,ContextTokens,GeneratedTokens"),
        ([AZURE, "2023-11-16 18:00:00,5"], "line 2: 2 fields"),
        ([AZURE, "2023-11-16 18:00:00,5,1", "", "yesterday,5,1"], "line 4: 'yesterday' is not a date and time"),
        ([AZURE, "2023-11-16 18:00:00,5,1", "2023-11-16 18:00:00,many,1"], "line 3: 'many' is not a whole number"),
        ([AZURE, "2023-11-16 18:00:00,5,1", "2023-11-16 18:00:00,5,0"], "line 3: GeneratedTokens is 0; leave out"),
    ],
)
def test_what_is_wrong_with_an_azure_file_is_said_by_line(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(WorkloadError, match=rf"a\.csv, {said}"):
        Workload.azure(written(tmp_path, "a.csv", *lines))


# -- Mooncake ----------------------------------------------------------------------------------------------------------


def mooncake(at: float, length: int, hashes: list[int], new: int = 3) -> dict:
    return {"timestamp": at, "input_length": length, "output_length": new, "hash_ids": hashes}


def test_mooncake_prompts_share_exactly_what_their_hashes_say(tmp_path: Path) -> None:
    lines = [
        mooncake(1000, 1300, [0, 1, 2]),
        mooncake(3000, 1536, [0, 1, 9]),
        mooncake(4000, 512, [10**15]),  # a hash may be any number
        mooncake(2000, 1100, [0, 1, 2]),
    ]
    w = Workload.mooncake(written(tmp_path, "m.jsonl", *lines))
    assert [a.at for a in w.arrivals] == [0.0, 1.0, 2.0, 3.0]
    assert [a.prompt_len for a in w.arrivals] == [1300, 1100, 1536, 512]
    first, same, longer, other = (a.tokens() for a in w.arrivals)
    assert list(map(len, (first, same, longer, other))) == [1300, 1100, 1536, 512]
    assert (common(first, same), common(first, longer), common(first, other)) == (1100, 1024, 0)
    assert sum(a.prompt.nbytes for a in w.arrivals) == 10 * 4  # a token per block until it arrives
    assert simulated(w).cached_tokens.tolist() == [0, 1099, 1024, 0]  # never a prompt's last token


def test_no_drawn_token_is_a_token_of_a_file(tmp_path: Path) -> None:
    w = Workload.mooncake(written(tmp_path, "m.jsonl", mooncake(0, 600, [0, 1])))
    assert w.arrivals[0].tokens().min() > VOCAB


def test_blocks_may_have_another_size(tmp_path: Path) -> None:
    path = written(tmp_path, "m.jsonl", mooncake(0, 40, [7, 8, 9]))
    assert Workload.mooncake(path, block=16).arrivals[0].prompt_len == 40
    with pytest.raises(WorkloadError, match="line 1: 3 hash_ids for 40 tokens, and blocks of 512 would be 1"):
        Workload.mooncake(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not JSON", "each line is one request in JSON"),
        ({"timestamp": 0, "input_length": 5, "output_length": 1}, "hash_ids"),
        (mooncake(0, 0, []), "must be at least 1"),
        (mooncake(-5, 5, [1]), "timestamp is -0.005"),
    ],
)
def test_what_is_wrong_with_a_mooncake_file_is_said_by_line(tmp_path: Path, line: object, said: str) -> None:
    with pytest.raises(WorkloadError, match=rf"m\.jsonl, line 3: .*{said}"):
        Workload.mooncake(written(tmp_path, "m.jsonl", mooncake(0, 5, [1]), "", line))


# -- our own lines -----------------------------------------------------------------------------------------------------


def test_lines_written_by_hand(tmp_path: Path) -> None:
    w = Workload.jsonl(
        written(
            tmp_path,
            "hand.jsonl",
            {"at": 1.5, "prompt": [["system", 20], [None, 5]], "max_tokens": 10, "output": 4, "id": "late"},
            {"at": 0, "prompt": 30, "max_tokens": 2},
            {"at": 0.5, "prompt": [["system", 12], 7, 8], "output": [5, 6, [9, 2]], "abort_at": 9},
        )
    )
    plain, spelled, late = w.arrivals
    assert [a.at for a in w.arrivals] == [0.0, 0.5, 1.5]
    assert [a.prompt_len for a in w.arrivals] == [30, 14, 25]
    assert common(spelled.tokens(), late.tokens()) == 12 and common(plain.tokens(), late.tokens()) == 0
    assert spelled.tokens()[12:].tolist() == [7, 8] and spelled.output.tolist() == [5, 6, 9, 9]
    assert spelled.params.max_tokens == 4 and spelled.abort_at == 9 and late.client_id == "late"
    requests = simulated(w)
    assert requests.reason.tolist() == ["length", "length", "stop"]
    assert requests.output_tokens.tolist() == [2, 4, 4] and requests.cached_tokens.tolist() == [0, 0, 12]


def test_ids_of_names_are_not_ids_that_the_file_spells_out(tmp_path: Path) -> None:
    lines = [{"at": 0, "prompt": [["a", 3]], "max_tokens": 1}, {"at": 0, "prompt": [END + 1, END + 2], "max_tokens": 1}]
    named, spelled = (set(a.tokens().tolist()) for a in Workload.jsonl(written(tmp_path, "x.jsonl", *lines)).arrivals)
    assert named.isdisjoint(spelled)


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    params = SamplingParams(max_tokens=7, stop_token_ids=(3,), ignore_eos=True, temperature=0.5, seed=4)
    tokens = np.array([1, 1, 1, 2], np.int32)
    own = Workload((Arrival(0.25, tokens, params, output=tokens, abort_at=3.0, client_id="me"),))
    generated = Workload.chats(3, max_tokens=40)
    for w in (own, generated):
        w.save(tmp_path / "saved.jsonl")
        again = Workload.jsonl(tmp_path / "saved.jsonl")
        assert len(again) == len(w)
        for a, b in zip(w.arrivals, again.arrivals, strict=True):
            assert (a.at, a.params, a.abort_at, a.client_id) == (b.at, b.params, b.abort_at, b.client_id)
            assert a.tokens().tolist() == b.tokens().tolist() and a.output.tolist() == b.output.tolist()
    assert (tmp_path / "saved.jsonl").stat().st_size < 200 * len(generated)  # runs, not tokens


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"prompt": 5, "max_tokens": 1}, "missing required field `at`"),
        ({"at": 0, "prompt": 5, "max_tokens": 1, "prio": 2}, "unknown field `prio`"),
        ({"at": 0, "prompt": 5}, "max_tokens=0"),
        ({"at": 0, "prompt": 0, "max_tokens": 1}, "a run of 0 tokens"),
        ({"at": 0, "prompt": [], "max_tokens": 1}, "the prompt has no tokens"),
        ({"at": 0, "prompt": [-3], "max_tokens": 1}, "token ids must be 0 or more"),
        ({"at": 0, "prompt": 5, "max_tokens": 1, "params": {"top_p": 7}}, "top_p=7"),
        ({"at": -1, "prompt": 5, "max_tokens": 1}, "at is -1"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(tmp_path: Path, line: dict, said: str) -> None:
    with pytest.raises(WorkloadError, match=rf"w\.jsonl, line 1: .*{said}"):
        Workload.jsonl(written(tmp_path, "w.jsonl", line))


def test_files_that_cannot_be_opened_or_are_no_text(tmp_path: Path) -> None:
    for read in (Workload.azure, Workload.mooncake, Workload.jsonl):
        with pytest.raises(WorkloadError, match="nowhere.*give the path"):
            read(tmp_path / "nowhere")
        (tmp_path / "packed").write_bytes(b"\x28\xb5\x2f\xfd\x00\xff")
        with pytest.raises(WorkloadError, match="packed, line 1: .*unpack"):
            read(tmp_path / "packed")
    with pytest.raises(WorkloadError, match="nowhere"):
        Workload.generate(1).save(tmp_path / "nowhere" / "w.jsonl")


# -- generated ---------------------------------------------------------------------------------------------------------


def described(w: Workload) -> list:
    return [(a.at, a.tokens().tolist(), a.params, a.output.tolist()) for a in w.arrivals]


@pytest.mark.parametrize("make", [Workload.generate, Workload.chats, Workload.agents])
def test_a_seed_gives_the_same_workload_and_another_one_another(make) -> None:
    assert described(make(20, seed=1)) == described(make(20, seed=1)) != described(make(20, seed=2))
    assert all(a.at <= b.at for a, b in zip(make(20).arrivals, make(20).arrivals[1:], strict=False))


def test_arrivals_come_at_their_rate_and_as_evenly_as_they_should() -> None:
    variation = {}
    for kind in ("poisson", "bursty"):
        gaps = np.diff([a.at for a in Workload.generate(20_000, 50.0, arrivals=kind, prompt=1, new=1).arrivals])
        assert 1 / gaps.mean() == pytest.approx(50, rel=0.1)
        variation[kind] = gaps.std() / gaps.mean()
    assert variation["poisson"] == pytest.approx(1, rel=0.05) and variation["bursty"] == pytest.approx(4, rel=0.15)
    assert {a.at for a in Workload.generate(9, arrivals="together").arrivals} == {0.0}


def test_lengths_are_drawn_as_asked() -> None:
    w = Workload.generate(5000, prompt=Lognormal(100, 1.0, 1000), new=(3, 5))
    prompts, new = np.array([a.prompt_len for a in w.arrivals]), [a.params.max_tokens for a in w.arrivals]
    assert np.median(prompts) == pytest.approx(100, rel=0.05) and prompts.max() == 1000
    assert (prompts > 100 * np.e).mean() == pytest.approx(0.159, abs=0.02)  # one sigma above the median
    assert set(new) == {3, 4, 5}
    assert {a.prompt_len for a in Workload.generate(5, prompt=7).arrivals} == {7}


def test_prompts_share_the_way_that_they_take_through_the_tree() -> None:
    w = Workload.generate(400, prompt=10, shared=[(2, 30), (3, 20)], new=1)
    prompts = [a.tokens() for a in w.arrivals]
    assert {len(p) for p in prompts} == {60}
    shared = {common(a, b) for a in prompts[:60] for b in prompts[60:]}
    assert shared == {0, 30, 50}
    assert len({int(p[0]) for p in prompts}) == 2 and len({int(p[30]) for p in prompts}) == 6
    assert {common(prompts[0], p) for p in prompts[1:]} <= {0, 30, 50}
    everybody = Workload.generate(5, prompt=10, shared=100)
    assert {common(everybody.arrivals[0].tokens(), a.tokens()) for a in everybody.arrivals[1:]} == {100}


def test_a_skewed_tree_has_favourites() -> None:
    def share_of_first(skew: float) -> float:
        w = Workload.generate(4000, prompt=1, new=1, shared=[(4, 1)], skew=skew)
        firsts = [int(a.prompt[0]) for a in w.arrivals]
        return firsts.count(min(firsts)) / len(firsts)

    assert share_of_first(0) == pytest.approx(0.25, abs=0.03)
    assert share_of_first(1) == pytest.approx(1 / (1 + 1 / 2 + 1 / 3 + 1 / 4), abs=0.03)


def test_a_turn_is_the_whole_conversation_so_far() -> None:
    w = Workload.chats(1, turns=3, prompt=10, new=6, shared=20, think=5.0, pace=0.5)
    first, second, third = w.arrivals
    assert [a.prompt_len for a in w.arrivals] == [30, 46, 62]
    for before, after in ((first, second), (second, third)):
        so_far = np.concatenate((before.tokens(), before.output))
        assert common(so_far, after.tokens()) == len(so_far)
        assert after.at - before.at >= 6 * 0.5  # the answer has been read
    requests = simulated(w)
    # the answer's last token never got its KV
    assert requests.cached_tokens.tolist() == [0, 35, 51]


def test_who_asks_for_more_than_is_generated_is_stopped() -> None:
    w = Workload.chats(2, turns=2, prompt=5, new=(1, 9), shared=0, max_tokens=8)
    assert {a.params.max_tokens for a in w.arrivals} == {8}
    requests = simulated(w)
    assert requests.output_tokens.tolist() == [len(a.output) for a in w.arrivals]
    assert {"stop"} <= set(requests.reason.tolist()) <= {"stop", "length"}
    again = simulated(w.change(ignore_eos=True))
    assert again.output_tokens.tolist() == [8] * 4


def test_agents_reuse_their_long_prompt() -> None:
    w = Workload.agents(4, shared=500, steps=3, result=50, task=20, new=10)
    requests = simulated(w, num_pages=20_000)
    assert len(w) == 12 and (np.sort(requests.cached_tokens)[1:] >= 500).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"requests": 0}, "requests or sessions=0"),
        ({"rate": 0.0}, "rate=0.0"),
        ({"arrivals": "sometimes"}, "'poisson', 'bursty', 'together'"),
        ({"prompt": 0}, "prompt=0"),
        ({"new": (5, 3)}, "upper end of new=3"),
        ({"prompt": Lognormal(0.5)}, "median of prompt=0.5"),
        ({"shared": [(0, 5)]}, "branches of a shared prefix=0"),
        ({"skew": -1}, "skew=-1"),
        ({"max_tokens": 0}, "max_tokens=0"),
    ],
)
def test_numbers_that_make_no_sense(wrong: dict, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        Workload.generate(**wrong)


def test_a_prompt_is_the_arrivals_own_and_copied_no_second_time():
    tokens = np.array([5, 6, 7], np.int32)
    arrival = Arrival(0.0, tokens, SamplingParams())
    tokens[0] = 9
    assert arrival.tokens().tolist() == [5, 6, 7]
    request = Run().scheduler.submit(arrival.tokens(), arrival.params)
    assert np.shares_memory(request.prompt, arrival.prompt)
    many = Arrival(0.0, tokens, SamplingParams(), repeat=2, length=5).tokens()
    assert np.shares_memory(Run().scheduler.submit(many, SamplingParams()).prompt, many)


def test_a_prompt_of_one_token_again_and_again_takes_no_memory():
    arrival = Arrival(0.0, np.array([7], np.int32), SamplingParams(max_tokens=2), repeat=1_000, length=999)
    tokens = arrival.tokens()
    assert tokens.tolist() == [7] * 999 and not tokens.flags.writeable
    assert np.shares_memory(tokens, arrival.prompt) and len(arrival.prompt) == 1
    run = Run(num_pages=1_100, page_size=1, max_seq_len=1_100)
    for cached in (0, 998):  # the radix cache takes it and finds it like any other
        request = run.scheduler.submit(tokens, arrival.params)
        assert np.shares_memory(request.prompt, arrival.prompt)
        run.play()
        assert request.cached_tokens == cached
