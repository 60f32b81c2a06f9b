"""NativeDecoder and NativeRunner: a decoder's weights laid out for the C++ kernels, and the forward pass over them."""

from __future__ import annotations

import ctypes
from typing import cast
from weakref import finalize

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from minisgl.core import Batch
from minisgl.kernel.build import library
from minisgl.kvcache.pool import KVPool, huge_zeros
from minisgl.layers import Linear
from minisgl.models.decoder import Decoder, DecoderLayer, Embedding

DTYPES = (torch.float32, torch.bfloat16)
Pointer, Int = ctypes.c_void_p, ctypes.c_int32


class _Linear(ctypes.Structure):
    _fields_ = (("panels", Pointer), ("bias", Pointer), ("inputs", Int), ("outputs", Int))


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
        *((name, Pointer) for name in ("rows", "starts", "ends", "samples", "page_table", "token_pool", "logits")),
    )


class NativeDecoder:
    """The weights of ``decoder``, taken over one by one as packed panels, so that they exist once.

    ``decoder`` is of no use afterwards. A tied output layer and embedding share one copy. Engines may share one.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.config = decoder.config
        self.dtype = decoder.norm.weight.dtype
        self.rotary = decoder.rotary
        self._kept: list[Tensor] = []  # what the structures point to
        self._width = library().vector_width()
        self.layers = (_Layer * self.config.num_layers)()
        for to, layer in zip(self.layers, cast("list[DecoderLayer]", decoder.layers), strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            to.qkv, to.output = self._linear(attention.qkv_proj), self._linear(attention.o_proj)
            gate_up = mlp.gate_up_proj
            self._interleave(gate_up)
            to.gate_up, to.down = self._linear(gate_up), self._linear(mlp.down_proj)
            to.input_norm = self._vector(layer.input_layernorm.weight)
            to.post_norm = self._vector(layer.post_attention_layernorm.weight)
            if attention.q_norm is not None and attention.k_norm is not None:
                to.q_norm, to.k_norm = self._vector(attention.q_norm.weight), self._vector(attention.k_norm.weight)
        self.norm = self._vector(decoder.norm.weight)
        self.embedding = self._linear(decoder.embed_tokens)
        self.head = self.embedding if decoder.tied else self._linear(decoder.lm_head)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(t.numel() * t.element_size() for t in self._kept)

    def _linear(self, module: Linear | Embedding) -> _Linear:
        """Its weight ``[out, in]`` as panels ``[out / panel, units of in, panel]``; a unit is 32 bits."""
        outputs, inputs = module.weight.shape
        packed = pack(module.weight.data, 2 * self._width)
        self._kept.append(packed)
        module.weight.data = module.weight.new_empty(0)
        bias = getattr(module, "bias", None)
        return _Linear(packed.data_ptr(), self._vector(bias) if bias is not None else None, inputs, outputs)

    def _interleave(self, gate_up: Linear) -> None:
        """Let a panel hold a vector of gates and the vector of ups that belongs to it."""

        def together(both: Tensor) -> Tensor:
            parts = both.view(2, -1, *both.shape[1:])
            short = -parts.shape[1] % self._width
            parts = F.pad(parts, (0, 0) * (both.dim() - 1) + (0, short))
            return parts.unflatten(1, (-1, self._width)).transpose(0, 1).reshape(-1, *both.shape[1:])

        gate_up.weight.data = together(gate_up.weight.data)
        if gate_up.bias is not None:
            gate_up.bias.data = together(gate_up.bias.data)

    def _vector(self, values: Tensor) -> int:
        """Float32, filled up to whole panels with zeros."""
        kept = F.pad(values.data.float(), (0, -len(values) % (2 * self._width)))
        self._kept.append(kept)
        return kept.data_ptr()


def pack(weight: Tensor, panel: int) -> Tensor:
    """``[out, in]`` of float32 or bfloat16 -> int32 ``[out / panel, units of in, panel]``, filled up with zeros."""
    per_unit = 4 // weight.element_size()
    if short := -weight.shape[1] % per_unit:
        weight = F.pad(weight, (0, short))
    units = weight.view(torch.int32)
    whole, rest = divmod(len(units), panel)
    packed = huge_zeros(whole + bool(rest), units.shape[1], panel, dtype=torch.int32)
    packed[:whole].copy_(units[: whole * panel].view(whole, panel, -1).transpose(1, 2))
    if rest:
        packed[whole, :, :rest] = units[whole * panel :].T
    return packed


class NativeRunner:
    """Computes batches with the kernels; see :class:`minisgl.engine.runner.TorchRunner` for what that means.

    A token's logits are the same bit for bit whatever else is in the batch, however its prompt is cut into chunks, and
    wherever its pages lie: every sum is taken in an order that only the token's own history decides.

    Args:
        decoder: the weights.
        pool: on the CPU, of the weights' dtype.
        max_seq_len: the longest row, in tokens.
        threads: how many compute.
    """

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
        wanted = np.cumsum(batch.samples, dtype=np.int32) - 1
        samples = int(wanted[-1]) + 1
        wanted[~np.array(batch.samples)] = -1
        if len(self._logits) < samples:
            self._logits = torch.empty(samples, self._logits.shape[1])
        columns = [np.array(column, np.int32) for column in (batch.rows, batch.starts, batch.ends)] + [wanted]
        plan = _Batch(
            len(batch.rows),
            page_table.shape[1],
            *(column.ctypes.data for column in columns),
            *(tensor.data_ptr() for tensor in (page_table, token_pool, self._logits)),
        )
        self._lib.forward(self._handle, self._bf16, ctypes.byref(plan), self.threads)
        return self._logits[:samples]
