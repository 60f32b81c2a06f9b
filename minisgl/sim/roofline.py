"""roofline: a cost model from a data sheet, for people who do not have the device.

A batch must read the weights and the KV it attends to, and do the arithmetic; it takes as long as the slower of the two
(Williams, Waterman and Patterson, "Roofline", CACM 2009). Decoding is held back by memory, long prompts by arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from minisgl.errors import CostError
from minisgl.sim.costs import Work

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
GIB = 1 << 30
VISIBLE = 0.98  # of a GPU's memory; the driver keeps the rest (an RTX 4090 shows 23.5 of 24 GiB)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A dense decoder with gated MLP, as far as its cost goes. Norms and biases are left out: below 0.1 %."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool  # the output layer is the embedding table

    @property
    def layer_params(self) -> int:
        """Weights of all layers, each multiplied with every token."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_params(self) -> int:
        """Weights of the output layer, multiplied with the tokens that are sampled from."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        return self.layer_params + self.head_params * (1 if self.tied else 2)

    def kv_bytes_per_token(self, dtype: str = "bfloat16") -> int:
        """K and V of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES[dtype]


@dataclass(frozen=True, slots=True)
class Device:
    """Peak figures of one device.

    Args:
        memory: bytes that an engine can see.
        bandwidth: of that memory, bytes per second.
        flops: by dtype, floating point operations per second; matrix units, dense, products added up in float32.
        link: to the other devices, bytes per second in both directions together.
        source: where the figures are from.
    """

    name: str
    memory: float
    bandwidth: float
    flops: Mapping[str, float] = field(repr=False)
    link: float = 64e9  # PCIe 4.0 x16
    source: str = field(default="", repr=False)


# From each model's config.json on huggingface.co.
MODELS = {
    m.name: m
    for m in (
        ModelShape("SmolLM2-135M", 30, 576, 9, 3, 64, 1536, 49152, True),
        ModelShape("Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, True),
        ModelShape("Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, True),
        ModelShape("Qwen3-8B", 36, 4096, 32, 8, 128, 12288, 151936, False),
        ModelShape("Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, False),
        ModelShape("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, True),
        ModelShape("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, False),
        ModelShape("Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, False),
        ModelShape("Mistral-7B-v0.3", 32, 4096, 32, 8, 128, 14336, 32768, False),
    )
}


def _gpu(
    name: str, gigabytes: float, bandwidth: float, teraflops: float, link: float, source: str, bf16: bool = True
) -> Device:
    """GiB, GB/s, TFLOPS of float16 (and bfloat16, if it has that), GB/s."""
    flops = dict.fromkeys(("bfloat16", "float16") if bf16 else ("float16",), teraflops * 1e12)
    return Device(name, gigabytes * GIB * VISIBLE, bandwidth * 1e9, flops, link * 1e9, source)


_NVIDIA = "https://www.nvidia.com/en-us/"
_RTX = "https://images.nvidia.com/aem-dam/Solutions/geforce/"
# Data sheets often print what "structured sparsity" would give; these are the dense figures, half of that.
DEVICES = {
    d.name: d
    for d in (
        _gpu("A100-40GB", 40, 1555, 312, 600, _NVIDIA + "data-center/a100/"),
        _gpu("A100-80GB", 80, 2039, 312, 600, _NVIDIA + "data-center/a100/"),
        _gpu("H100-SXM", 80, 3350, 989, 900, _NVIDIA + "data-center/h100/"),
        _gpu("H100-PCIe", 80, 2000, 756, 600, _NVIDIA + "data-center/h100/"),
        _gpu("H200", 141, 4800, 989, 900, _NVIDIA + "data-center/h200/"),
        _gpu("B200", 180, 8000, 2250, 1800, _NVIDIA + "data-center/dgx-b200/"),
        _gpu("L4", 24, 300, 121, 64, _NVIDIA + "data-center/l4/"),
        _gpu("L40S", 48, 864, 362, 64, _NVIDIA + "data-center/l40s/"),
        _gpu("T4", 16, 320, 65, 32, _NVIDIA + "data-center/tesla-t4/", bf16=False),
        # the white papers of GA102, AD102 and RTX PRO Blackwell; with sums in float32, as engines do
        _gpu(
            "RTX-3090",
            24,
            936,
            71,
            64,
            "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf",
        ),
        _gpu("RTX-4090", 24, 1008, 165, 64, _RTX + "ada/nvidia-ada-gpu-architecture.pdf"),
        _gpu(
            "RTX-PRO-6000",
            96,
            1792,
            504,
            128,
            _NVIDIA + "products/workstations/professional-desktop-gpus/rtx-pro-6000/",
        ),
        _gpu("MI300X", 192, 5300, 1307, 896, "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html"),
        # Measured, not from a data sheet: the best of some runs on 2 shared x86-64 cores with AVX-512, PyTorch 2.13;
        # a product of 2,048 x 2,048 matrices, and of a vector with 256 MB
        Device("CPU-2-cores", 16e9, 16e9, {"float32": 65e9, "bfloat16": 150e9}, source="measured"),
    )
}


class _Prices(NamedTuple):
    """Seconds of arithmetic per token, sample and attention pair; of reading; of adding up between devices."""

    token: float
    sample: float
    pair: float
    weights: float
    kv_token: float
    reduced: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The cost model that ``roofline`` makes; see there."""

    model: ModelShape
    device: Device
    tp: int
    dtype: str
    compute: float
    memory: float
    overhead: float
    _prices: _Prices = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        model, size = self.model, BYTES[self.dtype]
        operation = 1 / (self.tp * self.device.flops[self.dtype] * self.compute)
        byte = 1 / (self.tp * self.device.bandwidth * self.memory)
        # two all-reduces a layer, each a ring: every device sends and receives 2 (tp - 1) / tp of what is added up
        reduced = 2 * model.layers * model.hidden * size * 2 * (self.tp - 1) / self.tp
        prices = _Prices(
            token=2 * model.layer_params * operation,
            sample=2 * model.head_params * operation,
            pair=4 * model.layers * model.heads * model.head_dim * operation,
            weights=(model.layer_params + model.head_params) * size * byte,
            kv_token=model.kv_bytes_per_token(self.dtype) * byte,
            reduced=reduced / (self.device.link / 2),
        )
        object.__setattr__(self, "_prices", prices)

    def seconds(self, work: Work) -> Any:
        p, tokens = self._prices, work.prefill_tokens + work.decode_requests
        # only the last token of a prompt is sampled from, and Work does not say how many prompts there are
        arithmetic = p.token * tokens + p.sample * work.decode_requests + p.pair * work.pairs
        reading = p.weights + p.kv_token * (work.kv_tokens + tokens)
        return np.maximum(arithmetic, reading) + (p.reduced * tokens + self.overhead)

    def __repr__(self) -> str:
        return (
            f"Roofline({self.model.name} on {self.tp} x {self.device.name}, {self.dtype}, {self.compute:.0%} of peak "
            f"arithmetic, {self.memory:.0%} of peak bandwidth, {self.overhead * 1e3:.3g} ms a batch)"
        )


def roofline(
    model: str | ModelShape,
    device: str | Device,
    tp: int = 1,
    dtype: str = "auto",
    compute: float = 0.6,
    memory: float = 0.8,
    overhead: float = 0.002,
) -> Roofline:
    """How long batches take on a device, from its peak figures: a guess, for want of a record to ``fit``.

    How good a guess: mean latencies of three recorded vLLM runs came out 18 % too long (Llama-3.1-8B on an RTX 4090),
    16 % too short (the same on an RTX PRO 6000) and 39 % too short (Qwen3-32B on two of them, over PCIe).

    ``seconds`` = max(weights and KV / bandwidth, operations / peak) + all-reduces + overhead.

    Args:
        model: a name of ``MODELS``, or a shape.
        device: a name of ``DEVICES``, or one with figures of your own.
        tp: devices that share every layer (tensor parallel).
        dtype: of weights and KV; "auto": the first that the device has figures for.
        compute, memory: the share of the peak that is reached. Good engines get 50 to 70 % in long prefills, and 70 to
            90 % of the bandwidth when they decode.
        overhead: seconds per batch for launches, sampling and the scheduler.

    Raises:
        CostError: an unknown model, device or dtype (it lists the known ones), or a share that is none.
    """
    shape, unit = _known("model", model, MODELS), _known("device", device, DEVICES)
    dtype = next(iter(unit.flops)) if dtype == "auto" else dtype
    if dtype not in unit.flops:
        raise CostError(f"dtype={dtype!r}: {unit.name} has figures for {', '.join(unit.flops)}")
    if type(tp) is not int or tp < 1 or shape.kv_heads % tp:
        raise CostError(f"tp={tp!r}: must divide the {shape.kv_heads} KV heads of {shape.name}")
    for name, share in (("compute", compute), ("memory", memory)):
        if not 0 < share <= 1:
            raise CostError(f"{name}={share!r}: must be a share of the peak, above 0 and at most 1")
    if not 0 <= overhead < np.inf:
        raise CostError(f"overhead={overhead!r}: must be a finite number of seconds, 0 or more")
    return Roofline(shape, unit, tp, dtype, compute, memory, overhead)


def capacity(
    model: str | ModelShape,
    device: str | Device,
    page_size: int = 16,
    tp: int = 1,
    dtype: str = "auto",
    use: float = 0.9,
    workspace: float = 1.25e9,
) -> int:
    """Pages of KV that fit beside the weights: what to give an engine as ``num_pages``.

    Args:
        use: share of the memory that the engine may take.
        workspace: bytes per device for activations and CUDA graphs; this is what vLLM 0.19 keeps for Llama-3.1-8B
            and batches of 2,048 tokens.

    Raises:
        CostError: unknown names, or nothing fits.
    """
    costs = roofline(model, device, tp, dtype)
    shape, unit = costs.model, costs.device
    weights = shape.params * BYTES[costs.dtype] / tp
    room = unit.memory * use - weights - workspace
    pages = int(room // (page_size * shape.kv_bytes_per_token(costs.dtype) / tp))
    if pages < 2:
        raise CostError(
            f"{shape.name} in {costs.dtype} has {weights / 1e9:.1f} GB of weights on each of {tp} x {unit.name}, which "
            f"may use {use:.0%} of {unit.memory / 1e9:.1f} GB: no room for KV; take more devices or a smaller model"
        )
    return pages


def _known(kind: str, name: Any, table: Mapping[str, Any]) -> Any:
    """An entry by its name, spelled in any case and with or without an organisation before it."""
    if not isinstance(name, str):
        return name
    wanted = name.rpartition("/")[2].lower().replace(" ", "-")
    for key, value in table.items():
        if key.lower() == wanted:
            return value
    raise CostError(f"no {kind} {name!r} in the table; it has {', '.join(table)}; or give a {kind} of your own")
