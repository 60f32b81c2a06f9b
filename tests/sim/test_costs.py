"""Cost models: a fit finds what made the times; a roofline follows the data sheet."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import astuple

from minisgl.config import EngineConfig
from minisgl.core import SamplingParams
from minisgl.errors import CostError
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from minisgl.sim.arrival import Arrival
from minisgl.sim.costs import LinearCost, Work
from minisgl.sim.fit import Fitted, fit
from minisgl.sim.roofline import DEVICES, MODELS, ModelShape, capacity, roofline
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Workload

TRUE = LinearCost(constant=0.01, prefill_token=3e-4, decode_request=5e-4, kv_token=1e-6, pair=2e-8)
LOAD = Workload.generate(40, 20.0, prompt=(5, 300), new=(4, 30), shared=40, seed=3)


def recorded(costs=TRUE, workload: Workload = LOAD, **settings) -> Trace:
    simulator = Simulator(EngineConfig(num_pages=4096, max_running_requests=8, **settings), costs)
    with Recorder(simulator) as recorder:
        simulator.run(workload)
    return recorder.trace


class Noisy:
    """Times that are off by a few percent, some of them wildly, as on a machine with neighbours."""

    def __init__(self, noise: float, wild: float) -> None:
        self.noise, self.wild = noise, wild
        self.rng = np.random.default_rng(0)

    def seconds(self, work: Work) -> float:
        factor = 1 + self.noise * self.rng.standard_normal()
        return float(TRUE.seconds(work) * (10 if self.rng.random() < self.wild else factor))


@pytest.mark.parametrize("settings", [{}, {"overlap": True}, {"phase": "mixed", "max_prefill_tokens": 64}])
def test_a_fit_finds_the_prices_that_made_the_times(settings: dict) -> None:
    fitted = fit(recorded(**settings))
    for name in ("constant", "prefill_token", "decode_request", "kv_token", "pair"):
        assert getattr(fitted, name) == pytest.approx(getattr(TRUE, name), rel=1e-3), name
    assert fitted.median_error < 1e-6 and fitted.p90_error < 1e-6 and fitted.r2 == pytest.approx(1)
    assert not fitted.notes


def test_a_fit_is_not_led_astray_by_outliers_and_says_how_far_off_it_is() -> None:
    fitted = fit(recorded(Noisy(0.05, 0.03)))
    work = Work(*np.array([[200, 0, 200, 20_000], [0, 8, 1500, 1500], [64, 4, 900, 9000]]).T)
    assert fitted.seconds(work) == pytest.approx(TRUE.seconds(work), rel=0.05)
    assert 0.02 < fitted.median_error < 0.05 < fitted.p90_error < 0.15
    assert fitted.r2 < 0.9  # outliers are not explained, and are not left out of what is said


def test_prices_are_never_negative() -> None:
    class Falling:
        """The more is read the less it takes: nothing that a price could say."""

        def seconds(self, work: Work) -> float:
            return float(0.1 / (1 + work.kv_tokens / 100))

    fitted = fit(recorded(Falling()))
    prices = (fitted.constant, fitted.prefill_token, fitted.decode_request, fitted.kv_token, fitted.pair)
    assert min(prices) >= 0 < max(prices)
    assert fitted.median_error > 0.1


def test_a_short_record_is_refused_and_a_batch_without_duration_does_not_count() -> None:
    short = Workload((Arrival(0.0, np.array([1, 2, 3], np.int32), SamplingParams(max_tokens=8)),))
    with pytest.raises(CostError, match=r"8 batches .* needs 12: .*roofline"):
        fit(recorded(workload=short))
    with pytest.raises(CostError, match="0 batches"):
        fit(recorded(LinearCost()))


def test_what_a_record_cannot_tell_is_said() -> None:
    """Alone, a request's decodes attend to as many tokens as they read: those two prices are one."""
    alone = Workload((Arrival(0.0, np.array([5], np.int32), SamplingParams(max_tokens=40)),))
    fitted = fit(recorded(workload=alone))  # its prompt of one token looks like a decode
    assert fitted.prefill_token == fitted.decode_request or fitted.prefill_token > 0
    assert "no prefill was seen" in repr(fitted)
    assert (fitted.kv_token == 0) != (fitted.pair == 0)


def test_the_hosts_time_within_a_step_goes_to_the_constant_and_what_lies_between_does_not() -> None:
    trace = recorded()

    def moved(event: ev.Event) -> ev.Event:
        """The same run of somebody who waits 5 s between steps, on a host that takes 2 ms after each forward."""
        changes = {"t": event.t + 5 * event.step + 0.002 * isinstance(event, ev.StepFinished)}
        if isinstance(event, ev.ForwardFinished):
            changes |= {"started": event.started + 5 * event.step, "finished": event.finished + 5 * event.step}
        return type(event)(**{f: getattr(event, f) for f in event.__struct_fields__} | changes)

    slow = copy(trace)
    slow.events = [moved(e) for e in trace.events]
    assert fit(slow).constant == pytest.approx(TRUE.constant + 0.002, rel=1e-3)


def test_a_fitted_cost_is_readable_and_drives_a_simulator() -> None:
    fitted = fit(recorded())
    text = repr(fitted)
    for part in ("10 ms", "300 µs/prefill token", "R² 1.000", "median error 0.0%", "batches"):
        assert part in text, text
    assert isinstance(fitted, Fitted)
    again = recorded(fitted).figures
    assert again.duration == pytest.approx(recorded().figures.duration, rel=1e-4)


# -- roofline ----------------------------------------------------------------------------------------------------------

# what the models' own pages say they have, in billions
PUBLISHED = {
    "SmolLM2-135M": 0.1345,
    "Qwen3-0.6B": 0.596,
    "Qwen3-8B": 8.19,
    "Qwen3-32B": 32.8,
    "Llama-3.2-1B": 1.24,
    "Llama-3.1-8B": 8.03,
    "Llama-3.1-70B": 70.6,
    "Mistral-7B-v0.3": 7.25,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_shapes_add_up_to_the_published_sizes(name: str) -> None:
    assert MODELS[name].params / 1e9 == pytest.approx(PUBLISHED[name], rel=0.005)


def test_kv_bytes_per_token() -> None:
    assert MODELS["Qwen3-0.6B"].kv_bytes_per_token() == 114_688
    assert MODELS["Llama-3.1-8B"].kv_bytes_per_token() == 131_072
    assert MODELS["Llama-3.1-8B"].kv_bytes_per_token("float32") == 262_144


def test_decodes_wait_for_memory_and_prompts_for_arithmetic() -> None:
    costs = roofline("Llama-3.1-8B", "A100-80GB", compute=1.0, memory=1.0, overhead=0.0)
    read = 2 * (8.03e9 - 128256 * 4096)  # of the embedding table only some rows are read
    assert costs.seconds(Work(0, 1, 0, 0)) == pytest.approx(read / 2039e9, rel=0.01)
    assert costs.seconds(Work(0, 64, 64_000, 64_000)) == pytest.approx((read + 64_064 * 131_072) / 2039e9, rel=0.01)
    assert costs.seconds(Work(8192, 0, 8192, 0)) == pytest.approx(2 * 6.98e9 * 8192 / 312e12, rel=0.01)
    attention = costs.seconds(Work(8192, 0, 8192, 8192**2 // 2)) - costs.seconds(Work(8192, 0, 8192, 0))
    assert attention == pytest.approx(2 * 32 * 8192**2 * 4096 / 312e12, rel=0.01)


def test_a_share_of_the_peak_an_overhead_and_more_devices() -> None:
    decode = Work(0, 8, 8000, 8000)
    base = roofline("Llama-3.1-8B", "H100-SXM", memory=1.0, overhead=0.0).seconds(decode)
    assert roofline("Llama-3.1-8B", "H100-SXM", memory=0.5, overhead=0.0).seconds(decode) == pytest.approx(2 * base)
    assert roofline("Llama-3.1-8B", "H100-SXM", memory=1.0, overhead=0.5).seconds(decode) == pytest.approx(base + 0.5)
    eight = roofline("Llama-3.1-8B", "H100-SXM", tp=8, memory=1.0, overhead=0.0).seconds(decode)
    assert base / 8 < eight < base / 7
    slow_link = replace(DEVICES["H100-SXM"], link=1e9)
    assert roofline("Llama-3.1-8B", slow_link, tp=8, memory=1.0, overhead=0.0).seconds(decode) > eight


def test_many_works_at_once_are_the_same_as_one_by_one() -> None:
    costs = roofline("Qwen3-8B", "L4", tp=2)
    works = [Work(0, 1, 100, 100), Work(4096, 0, 4096, 8_390_656), Work(512, 16, 20_000, 150_000)]
    together = costs.seconds(Work(*np.array([astuple(work) for work in works]).T))
    assert together.tolist() == pytest.approx([costs.seconds(w) for w in works])
    kv = np.arange(1000, 1500, 10)
    assert costs.seconds(Work(0, 10, kv, kv)).shape == kv.shape


def test_every_model_on_every_device_takes_time_and_more_work_more_time() -> None:
    for model in MODELS:
        for device in DEVICES.values():
            for dtype in device.flops:
                costs = roofline(model, device, dtype=dtype)
                some, more = costs.seconds(Work(0, 4, 4000, 4000)), costs.seconds(Work(4096, 4, 8096, 9_000_000))
                assert 0 < some < more and device.source


def test_names_in_any_spelling_and_shapes_of_ones_own() -> None:
    assert roofline("meta-llama/llama-3.1-8b", "rtx 4090") == roofline("Llama-3.1-8B", "RTX-4090")
    tiny = ModelShape("tiny", 2, 64, 4, 2, 16, 128, 1000, True)
    assert "tiny on 1 x L4, bfloat16" in repr(roofline(tiny, "L4"))
    assert roofline(tiny, "T4").dtype == "float16"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("GPT-5", "L4"), "no model 'GPT-5'.*SmolLM2-135M.*Mistral"),
        (("Qwen3-8B", "TPU"), "no device 'TPU'.*A100-40GB.*MI300X"),
        (("Qwen3-8B", "T4", 1, "bfloat16"), "T4 has figures for float16"),
        (("Qwen3-8B", "L4", 3), "tp=3: must divide the 8 KV heads"),
        (("Qwen3-8B", "L4", 1, "auto", 1.5), "compute=1.5"),
        (("Qwen3-8B", "L4", 1, "auto", 0.5, 0.5, float("nan")), "overhead=nan"),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple, said: str) -> None:
    with pytest.raises(CostError, match=said):
        roofline(*arguments)


def test_capacity_is_what_an_engine_found() -> None:
    """vLLM 0.19 reported 2,588 blocks of 16 for Llama-3.1-8B on an RTX 4090, with 90 % of its memory."""
    assert capacity("Llama-3.1-8B", "RTX-4090") == pytest.approx(2588, rel=0.01)
    assert capacity("Llama-3.1-8B", "RTX-4090", page_size=1) == pytest.approx(16 * 2588, rel=0.01)
    assert capacity("Llama-3.1-70B", "H100-SXM", tp=4) > 4 * capacity("Llama-3.1-70B", "H100-SXM", tp=2, use=1.0)
    with pytest.raises(CostError, match=r"141\.1 GB of weights on each of 1 x H100-SXM.*more devices"):
        capacity("Llama-3.1-70B", "H100-SXM")
