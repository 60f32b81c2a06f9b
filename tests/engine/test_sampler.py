"""A sample depends on the logits, the parameters, the seed and the position, and on nothing else."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from minisgl.core import SamplingParams
from minisgl.engine.sampler import sample, uniform
from tests.engine.driver import Driver

LOGITS = torch.log(torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2]))


def draws(params: SamplingParams, count: int = 4000, logits: torch.Tensor = LOGITS) -> Counter[int]:
    """``count`` samples of one distribution, at positions 0, 1, 2 ... of one seed."""
    rows = logits.expand(count, -1)
    return Counter(sample(rows, [params] * count, [11] * count, range(count)).tolist())


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0, top_p=0.9),
        SamplingParams(temperature=0, top_k=3, seed=5),
        SamplingParams(temperature=5.0, top_k=1),
        SamplingParams(temperature=0.7, top_k=1, top_p=0.1),
    ],
)
def test_greedy_is_the_argmax_always(params):
    assert draws(params) == {1: 4000}


def test_a_greedy_row_among_sampled_ones_is_the_argmax():
    logits = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))
    greedy, hot = SamplingParams(top_p=0.9), SamplingParams(temperature=50.0)
    params = [greedy if i % 2 else hot for i in range(9)]
    tokens = sample(logits, params, range(9), [7] * 9)
    assert torch.equal(tokens[1::2], logits[1::2].argmax(-1))
    assert not torch.equal(tokens[::2], logits[::2].argmax(-1))


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        (SamplingParams(temperature=1.0), [0.05, 0.4, 0.1, 0.25, 0.2]),
        (SamplingParams(temperature=1.0, top_k=2), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
        (SamplingParams(temperature=1.0, top_p=0.6), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
        (SamplingParams(temperature=1.0, top_p=0.66), [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85]),
        (SamplingParams(temperature=1.0, top_p=1e-9), [0, 1, 0, 0, 0]),
        # top_p counts what top_k has left: of 0.4, 0.25, 0.2 the first two already hold 0.65 / 0.85
        (SamplingParams(temperature=1.0, top_k=3, top_p=0.7), [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0]),
        (SamplingParams(temperature=0.5), [p**2 / 0.275 for p in [0.05, 0.4, 0.1, 0.25, 0.2]]),
    ],
)
def test_frequencies_follow_the_distribution(params, wanted):
    count = 4000
    found = draws(params, count)
    assert all(found[token] == 0 for token, p in enumerate(wanted) if p == 0)
    chi_square = sum((found[token] - count * p) ** 2 / (count * p) for token, p in enumerate(wanted) if p)
    assert chi_square < 13.3  # 4 degrees of freedom: exceeded by 1 in 100 seeds, and this seed is fixed


@pytest.mark.parametrize("temperature", [1e-320, 1e-30, 1e-4])
def test_a_vanishing_temperature_is_the_argmax(temperature):
    assert draws(SamplingParams(temperature=temperature), 50) == {1: 50}


def test_a_top_k_above_the_vocabulary_is_all_of_it():
    assert set(draws(SamplingParams(temperature=2.0, top_k=1000))) == {0, 1, 2, 3, 4}


def sample_at(number: float, logits: torch.Tensor, params: SamplingParams) -> int:
    """What is drawn when the random number is ``number``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minisgl.engine.sampler.uniform", lambda seed, position: number)
        return int(sample(logits[None], [params], [0], [0])[0])


def test_the_ends_of_the_interval_take_the_first_and_the_last_possible_token():
    logits = torch.tensor([-torch.inf, 0.3, -torch.inf, 0.1, 0.2, -torch.inf])
    for params, last in ((SamplingParams(temperature=0.9), 4), (SamplingParams(temperature=0.9, top_p=0.99), 3)):
        assert sample_at(0.0, logits, params) == 1
        assert sample_at(1 - 2**-52, logits, params) == last


def test_the_nucleus_of_a_large_vocabulary_is_the_one_a_full_sort_gives():
    logits = 3 * torch.randn(5000, generator=torch.Generator().manual_seed(3))
    ordered, ids = logits.double().softmax(0).sort(descending=True)
    for top_p in (0.05, 0.5, 0.9, 0.999):
        size = int((ordered.cumsum(0) < top_p).sum()) + 1
        found = draws(SamplingParams(temperature=1.0, top_p=top_p), 200, logits)
        assert set(found) <= set(ids[:size].tolist())
        # the random number just below 1 reaches the nucleus's last token
        edge = sample_at(1 - 2**-52, logits, SamplingParams(temperature=1.0, top_p=top_p))
        assert edge == ids[size - 1]


def test_a_sample_does_not_depend_on_its_batch():
    logits = torch.randn(16, 200, generator=torch.Generator().manual_seed(1))
    params = [SamplingParams(temperature=0.5 + i / 8, top_k=-1 if i % 3 else 20, top_p=1 - i / 40) for i in range(16)]
    seeds, positions = list(range(100, 116)), list(range(16))
    together = sample(logits, params, seeds, positions).tolist()
    alone = [sample(logits[i : i + 1], [params[i]], [seeds[i]], [positions[i]]).item() for i in range(16)]
    order = torch.randperm(16, generator=torch.Generator().manual_seed(2)).tolist()
    shuffled = sample(logits[order], *([column[i] for i in order] for column in (params, seeds, positions))).tolist()
    assert together == alone
    assert shuffled == [together[i] for i in order]


BROKEN = {
    "a NaN": [0.1, torch.nan, 0.3, 0.2],
    "all NaN": [torch.nan] * 4,
    "an infinity": [0.1, 0.3, torch.inf, 0.2],
    "nothing possible": [-torch.inf] * 4,
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("options", [{}, {"top_p": 0.8}, {"top_k": 2}, {"top_k": 3, "top_p": 0.5}])
def test_a_broken_row_gets_its_argmax_and_leaves_its_neighbours_alone(broken, options):
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(4))
    params = [SamplingParams(temperature=1.5, **options)] * 3
    for seed in range(20):
        wanted = sample(logits, params, [seed] * 3, [5, 6, 7]).tolist()
        hurt = logits.clone()
        hurt[1] = torch.tensor(broken)
        wanted[1] = int(hurt[1].argmax())
        assert sample(hurt, params, [seed] * 3, [5, 6, 7]).tolist() == wanted


def test_uniform_is_a_fixed_function_of_seed_and_position():
    assert uniform(0, 0) == uniform(0, 0)
    assert len({uniform(seed, position) for seed in range(50) for position in range(50)}) == 2500
    assert all(0 <= uniform(seed, 3) < 1 for seed in (-1, -(2**70), 2**64, 2**200))


def test_uniform_fills_the_interval_evenly_along_seeds_and_positions():
    for numbers in ([uniform(s, 5) for s in range(10_000)], [uniform(5, p) for p in range(10_000)]):
        counts = Counter(int(number * 10) for number in numbers)
        assert sum((counts[i] - 1000) ** 2 / 1000 for i in range(10)) < 21.7  # 9 degrees of freedom, 1 in 100


def test_tokens_of_a_sampled_request_are_the_same_alone_and_in_a_batch(tiny_folder):
    from minisgl.config import EngineConfig
    from minisgl.engine import load_engine

    params = SamplingParams(temperature=0.8, top_p=0.95)
    outputs = []
    for others in ([], [0, 2, 3]):
        config = EngineConfig(num_pages=256, max_running_requests=4, device="cpu")
        driver = Driver(load_engine(tiny_folder("qwen3"), config).executor)
        for row in sorted([1, *others]):
            driver.admit(row, [7 * row + i for i in range(5 + row)], params=params)
        driver.prefill(*sorted([1, *others]))
        driver.decode(*sorted([1, *others]), steps=20)
        outputs.append(driver.output(1))
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0])) > 5
