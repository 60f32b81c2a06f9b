"""EngineConfig: every knob of the engine in one frozen, validated dataclass."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from minisgl.errors import ConfigError

CHOICES = {
    "prefix_cache": ("radix", "naive"),
    "order": ("fcfs", "lpm", "shortest"),
    "eviction": ("lru", "lfu", "fifo"),
    "phase": ("prefill-first", "decode-first", "mixed"),
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "kernels": ("auto", "cpp", "torch"),
    "quantize": (None, "int8"),
}


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The engine's settings; ``LLM(model, **settings)`` takes each by keyword.

    Args:
        num_pages: pages in the KV pool (the dummy page comes on top). None: as many as ``kv_gib`` holds.
        kv_gib: size of the KV pool in GiB when ``num_pages`` is None. None: 1 GiB on a CPU, 80 % of the free memory
            on a GPU.
        page_size: tokens per page.
        max_running_requests: rows of the page table, the dummy row not counted.
        max_seq_len: prompt + output of one request, in tokens. None: what the model allows, at most the pool.
        max_prefill_tokens: tokens one prefill batch may compute; longer prompts are computed in chunks.
        prefix_cache: "radix" shares equal prefixes, "naive" never does.
        order: who is tested for admission next: "fcfs" (first come, first served), "lpm" (longest cached prefix),
            "shortest" (prompt + max_tokens). Nobody is passed over for ever.
        admission: how much of max_tokens is promised when a request is let in: "conservative" (all of it: a running
            request never lacks a page), "optimistic" (none: when pages run out, the last one admitted is retracted and
            computed again later), or a share between 0 and 1.
        eviction: which unlocked leaves of the prefix cache go first: "lru" (used longest ago), "lfu" (used least
            often), "fifo" (made first).
        phase: what a batch is made of: "prefill-first", "decode-first" (nobody is let in while anybody decodes),
            "mixed" (every running request decodes, prompts get the rest of max_prefill_tokens).
        overlap: launch the next batch before the last one's result is read, so that the host books while the device
            computes. Tokens are the same.
        dtype: of weights and KV. "auto": on a CPU bfloat16 if it has instructions for that, else float32; on a GPU
            the model's own.
        quantize: "int8": weights are rounded to 8 bits, one scale an output, and so are a product's inputs, one scale
            for each 32. Half of bfloat16's memory; faster for one request, and for many where
            the CPU has AVX512-VNNI; tokens differ. Needs the C++ kernels.
        device: "cpu", "cuda", "cuda:1" ... "auto": a GPU when there is one.
        kernels: what computes the model: "cpp" (C++ for this very CPU, compiled at the first use), "torch" (the same in
            PyTorch, slower, for any device). "auto": "cpp" on a CPU where a compiler is found.
        threads: how many compute on a CPU; PyTorch's number for the whole process. None: one for each core that this
            process may use.
        seed: base of the seeds of requests that bring none.
        check: compare the folded events with the live ledgers after every step (slow; for tests and for teaching).
        poison: fill the KV of freed pages with NaN and look for it before every read, so that whoever reads a page
            that is not his raises LedgerError at once (slow; finds bugs in engines, not in prompts).
    """

    num_pages: int | None = None
    kv_gib: float | None = None
    page_size: int = 1
    max_running_requests: int = 64
    max_seq_len: int | None = None
    max_prefill_tokens: int = 2048
    prefix_cache: str = "radix"
    order: str = "fcfs"
    admission: str | float = "conservative"
    eviction: str = "lru"
    phase: str = "prefill-first"
    overlap: bool = False
    dtype: str = "auto"
    device: str = "auto"
    quantize: str | None = None
    kernels: str = "auto"
    threads: int | None = None
    seed: int = 0
    check: bool = False
    poison: bool = False

    def __post_init__(self) -> None:
        for name, least in (
            ("num_pages", 2),
            ("page_size", 1),
            ("max_running_requests", 1),
            ("max_seq_len", 2),
            ("max_prefill_tokens", 1),
            ("threads", 1),
        ):
            value = getattr(self, name)
            optional = self.__dataclass_fields__[name].default is None
            if not (value is None and optional) and (type(value) is not int or value < least):
                raise ConfigError(f"{name}={value!r}: must be an integer of at least {least}")
        for name, kind, rule in (
            ("seed", int, "an integer"),
            ("overlap", bool, "True or False"),
            ("check", bool, "True or False"),
            ("poison", bool, "True or False"),
            ("device", str, "a string: 'auto', 'cpu', 'cuda', 'cuda:1' ..."),
        ):
            if type(getattr(self, name)) is not kind:
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be {rule}")
        gib: Any = self.kv_gib
        number = isinstance(gib, (int, float)) and not isinstance(gib, bool)
        if gib is not None and not (number and 0 < gib < math.inf):
            raise ConfigError(f"kv_gib={gib!r}: must be a finite number above 0")
        share: Any = self.admission
        named = share in ("conservative", "optimistic")
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if not named and not (number and 0 <= share <= 1):
            raise ConfigError(
                f"admission={share!r}: must be 'conservative', 'optimistic' or a share of max_tokens, from 0 to 1"
            )
        if self.num_pages is not None and self.kv_gib is not None:
            raise ConfigError(
                f"num_pages={self.num_pages} and kv_gib={self.kv_gib} both size the pool: give one of them"
            )
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be one of {', '.join(map(repr, allowed))}")

    @classmethod
    def from_keywords(cls, settings: dict) -> EngineConfig:
        """Like the constructor, but an unknown name raises :class:`ConfigError` listing the known ones."""
        known = [f.name for f in fields(cls)]
        unknown = [name for name in settings if name not in known]
        if unknown:
            raise ConfigError(f"unknown setting {', '.join(unknown)}; the settings are {', '.join(known)}")
        return cls(**settings)
