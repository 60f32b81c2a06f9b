"""NativeDecoder and NativeRunner: a decoder's weights laid out for the C++ kernels, and the forward pass over them."""

from __future__ import annotations

import ctypes
import math
from typing import cast
from weakref import finalize

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minisgl.core import Batch
from minisgl.kernel.build import library
from minisgl.kvcache.pool import KVPool, huge_zeros
from minisgl.layers import FusedLinear, Linear
from minisgl.models.config import ModelConfig
from minisgl.models.decoder import Decoder, DecoderLayer, Embedding

DTYPES = (torch.float32, torch.bfloat16)
GROUP = 32  # inputs that are quantized together, as in csrc/product.h
PARTS = (
    "embedding", "norms", "q, k, v", "rotation, KV stored", "attention", "output", "gate, up", "down", "logits",
    "rounding to int8", "waiting",
)  # fmt: skip
Pointer, Int = ctypes.c_void_p, ctypes.c_int32


class _Linear(ctypes.Structure):
    _fields_ = (("panels", Pointer), ("bias", Pointer), ("scale", Pointer), ("inputs", Int), ("outputs", Int))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Linear) for name in ("qkv", "output", "gate_up", "down")),
        *((name, Pointer) for name in ("input_norm", "post_norm", "q_norm", "k_norm")),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        *((n, Int) for n in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")),
        ("eps", ctypes.c_float),
        ("layer", ctypes.POINTER(_Layer)),
        ("norm", Pointer),
        ("embedding", _Linear),
        ("head", _Linear),
        ("cosine", Pointer),
        ("sine", Pointer),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("requests", Int),
        ("width", Int),
        *((name, Pointer) for name in ("rows", "starts", "ends", "samples")),
        *((name, Pointer) for name in ("page_table", "token_pool", "logits", "seconds")),
    )


class NativeDecoder:
    """The weights of a decoder as the kernels read them: packed panels, side by side in one piece of memory.

    Load with :meth:`take` as :func:`minisgl.models.weights.load_model`'s ``filled``, then give the model to
    :meth:`finish`; it is of no use otherwise. A tied output layer and embedding share one copy. Engines may share one.

    Args:
        config: the model's shape.
        dtype: of activations and KV, and of the weights unless they are int8.
        int8: keep the weights as int8, each output's with a scale of its own.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, int8: bool = False) -> None:
        self.config, self.dtype, self.int8 = config, dtype, int8
        self._width = library().vector_width()
        model = Decoder(config, dtype, "cpu")  # shapes only
        sizes = [self._panels(*m.weight.shape) for m in model.modules() if isinstance(m, (Linear, Embedding))]
        self._free = huge_zeros(sum(map(math.prod, sizes)), dtype=torch.int32)  # a tied head's share is never touched
        self._linears: dict[nn.Module, _Linear] = {}
        self._kept: list[Tensor] = []  # what the structures point to

    def take(self, module: nn.Module) -> None:
        """Move a module's weights into the panels."""
        if not isinstance(module, (Linear, Embedding)) or module.weight.data_ptr() == 0:
            return  # a norm, or a head whose embedding was taken
        weight, bias = module.weight.data, getattr(module, "bias", None)
        gated = isinstance(module, FusedLinear) and "gate_proj" in module.parts
        outputs, inputs = weight.shape
        panels = self._panels(outputs, inputs)
        to = self._free[: math.prod(panels)].view(panels)
        self._free = self._free[math.prod(panels) :]
        scale = None
        if self.int8:
            weight, scale = quantize(weight, 4 * panels[1])
        pack(weight, to, gated)
        self._kept.append(to)
        linear = _Linear(to.data_ptr(), None, None, inputs, panels[0] * panels[2] if gated else outputs)
        for name, values in (("bias", bias), ("scale", scale)):
            if values is not None:
                column = torch.zeros(panels[0], 1, panels[2], dtype=torch.int32)
                pack(values.data.float()[:, None], column, gated)
                self._kept.append(column)
                setattr(linear, name, column.data_ptr())
        self._linears[module] = linear
        module.weight.data = module.weight.new_empty(0)

    def finish(self, model: Decoder) -> None:
        """Note where everything lies, now that all modules were taken."""
        self.rotary = model.rotary
        self.layers = (_Layer * self.config.num_layers)()
        for to, layer in zip(self.layers, cast("list[DecoderLayer]", model.layers), strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            to.qkv, to.output = self._linears[attention.qkv_proj], self._linears[attention.o_proj]
            to.gate_up, to.down = self._linears[mlp.gate_up_proj], self._linears[mlp.down_proj]
            to.input_norm = self._vector(layer.input_layernorm.weight)
            to.post_norm = self._vector(layer.post_attention_layernorm.weight)
            if attention.q_norm is not None and attention.k_norm is not None:
                to.q_norm, to.k_norm = self._vector(attention.q_norm.weight), self._vector(attention.k_norm.weight)
        self.norm = self._vector(model.norm.weight)
        self.embedding = self._linears[model.embed_tokens]
        self.head = self._linears.get(model.lm_head, self.embedding)
        self._linears.clear()

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(t.numel() * t.element_size() for t in self._kept)

    def _panels(self, outputs: int, inputs: int) -> tuple[int, int, int]:
        """Shape of a weight when packed: ``[panels, units of inputs, outputs of a panel]``; a unit is 32 bits."""
        panel = 2 * self._width
        units = -(-inputs // GROUP) * GROUP // 4 if self.int8 else -(-inputs * self.dtype.itemsize // 4)
        return -(-outputs // panel), units, panel

    def _vector(self, values: Tensor) -> int:
        """Float32, filled up to whole panels with zeros."""
        kept = F.pad(values.data.float(), (0, -len(values) % (2 * self._width)))
        self._kept.append(kept)
        return kept.data_ptr()


def quantize(weight: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """``[out, in]`` as integers with 128 added, uint8 ``[out, width]``, and what 1 of them stands for, ``[out]``."""
    outputs, inputs = weight.shape
    integers, scale = huge_zeros(outputs, width, dtype=torch.uint8).fill_(128), torch.empty(outputs)
    scratch = huge_zeros(min(outputs, 1024), inputs, dtype=torch.float32)  # some rows at a time: 4 bytes a weight
    for begin in range(0, outputs, len(scratch)):
        rows = slice(begin, begin + len(scratch))
        part = scratch[: len(weight[rows])].copy_(weight[rows])
        scale[rows] = torch.linalg.vector_norm(part, math.inf, dim=1) / 127
        integers[rows, :inputs] = part.div_(scale[rows, None].clamp(min=1e-30)).round_().add_(128)
    return integers, scale


def pack(weight: Tensor, to: Tensor, gated: bool = False) -> None:
    """Write ``[out, in]``, float32, bfloat16 or uint8, to int32 ``[panels, units of in, outputs of a panel]``.

    What fills up the last panel is 0. A ``gated`` weight has all gates before all ups; in the panels half a panel of
    these stands beside half a panel of those.
    """
    panels, steps, panel = to.shape
    if odd := weight.shape[1] % (4 // weight.element_size()):
        weight = F.pad(weight, (0, odd))
    units = weight.view(torch.int32).unflatten(0, (2 if gated else 1, -1))
    if short := panels * panel // len(units) - units.shape[1]:
        units = F.pad(units, (0, 0, 0, short))
    halves = (2, panels, panel // 2, steps) if gated else (panels, 2, panel // 2, steps)
    order = (1, 3, 0, 2) if gated else (0, 3, 1, 2)
    to.view(panels, steps, 2, panel // 2).copy_(units.reshape(halves).permute(order))


class NativeRunner:
    """Computes batches with the kernels; see :class:`minisgl.engine.runner.TorchRunner` for what that means.

    A token's logits are the same bit for bit whatever else is in the batch, however its prompt is cut into chunks, and
    wherever its pages lie: every sum is taken in an order that only the token's own history decides.

    Args:
        decoder: the weights.
        pool: on the CPU, of the weights' dtype.
        max_seq_len: the longest row, in tokens.
        threads: how many compute.

    Attributes:
        seconds: None; or float64 ``[threads, len(PARTS)]``, to which every call adds what each thread's time went to.
            The last part is the wait for other threads.
    """

    seconds: np.ndarray | None = None

    def __init__(self, decoder: NativeDecoder, pool: KVPool, max_seq_len: int, threads: int) -> None:
        c = decoder.config
        self.decoder, self.pool, self.threads = decoder, pool, threads
        cosine, sine = decoder.rotary(torch.arange(max_seq_len), torch.float32)
        half = c.head_dim // 2
        self._angles = [t[:, 0, :half].contiguous() for t in (cosine, sine)]
        self._model = _Model(
            c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim, c.intermediate_size, c.vocab_size,
            c.rms_norm_eps, decoder.layers, decoder.norm, decoder.embedding, decoder.head,
            *(t.data_ptr() for t in self._angles),
        )  # fmt: skip
        self._bf16 = decoder.dtype == torch.bfloat16
        self._lib = library()
        slots = pool.data.shape[2] * pool.data.shape[3]
        self._handle = self._lib.new_decoder(ctypes.byref(self._model), pool.data.data_ptr(), slots, self._bf16)
        self._end = finalize(self, self._lib.delete_decoder, self._handle, self._bf16)
        self._logits = torch.empty(0, c.vocab_size)

    def logits(self, batch: Batch, page_table: Tensor, token_pool: Tensor) -> Tensor:
        """Compute the batch's tokens; float32 ``[samples, vocab_size]``, valid until the next call."""
        order = iter(range(len(batch.samples)))
        wanted = [next(order) if sampled else -1 for sampled in batch.samples]
        samples = next(order, len(batch.samples))
        if self._logits.shape[0] < samples:
            self._logits = torch.empty(samples, self._logits.shape[1])
        columns = np.array((batch.rows, batch.starts, batch.ends, wanted), np.int32)
        requests = len(batch.rows)
        plan = _Batch(
            requests,
            page_table.shape[1],
            *(columns.ctypes.data + 4 * requests * i for i in range(4)),
            *(tensor.data_ptr() for tensor in (page_table, token_pool, self._logits)),
            None if self.seconds is None else self.seconds.ctypes.data,
        )
        self._lib.forward(self._handle, self._bf16, ctypes.byref(plan), self.threads)
        return self._logits[:samples]
