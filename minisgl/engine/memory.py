"""How many pages the KV pool gets, and what memory a loaded engine takes."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from minisgl.config import EngineConfig
from minisgl.errors import ConfigError
from minisgl.models.config import ModelConfig

GIB = 1 << 30
DEFAULT_CPU_GIB = 1.0
DEFAULT_GPU_SHARE = 0.8  # of the memory still free once the weights are loaded


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Where the memory goes: weights once, and a pool of pages. Sizes in bytes; the dummy page is not in ``tokens``."""

    weight_bytes: int
    kv_bytes_per_token: int
    page_size: int
    num_pages: int

    @property
    def page_bytes(self) -> int:
        return self.kv_bytes_per_token * self.page_size

    @property
    def tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def pool_bytes(self) -> int:
        """The pool's tensor, dummy page included."""
        return (self.num_pages + 1) * self.page_bytes

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("weights", human_bytes(self.weight_bytes)),
            ("KV per token", human_bytes(self.kv_bytes_per_token)),
            ("page", f"{self.page_size} tokens, {human_bytes(self.page_bytes)}"),
            ("pool", f"{self.num_pages:,} pages, {self.tokens:,} tokens, {human_bytes(self.pool_bytes)}"),
        ]

    def __repr__(self) -> str:
        return "MemoryReport(" + "; ".join(f"{name}: {value}" for name, value in self._lines()) + ")"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in self._lines())
        return f"<table><caption>Memory</caption>{rows}</table>"


def human_bytes(count: float) -> str:
    """Bytes in the largest binary unit that keeps the number at or above 1: ``112.0 KiB``."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def size_pool(model: ModelConfig, config: EngineConfig, dtype: str, device: torch.device) -> int:
    """Pages for the KV pool: ``num_pages`` if given, else what ``kv_gib`` (or its default) holds.

    Call it when the weights are loaded, so that the free memory it looks at is what is really left.

    Raises:
        ConfigError: fewer than 2 pages would fit, or the device has not enough memory for the pool.
    """
    page_bytes = model.kv_bytes_per_token(dtype) * config.page_size
    free = free_memory(device)
    if config.num_pages is not None:
        num_pages = config.num_pages
    else:
        if config.kv_gib is not None:
            budget = int(config.kv_gib * GIB)
        else:
            budget = int(DEFAULT_CPU_GIB * GIB) if device.type == "cpu" else int(free * DEFAULT_GPU_SHARE)
        num_pages = budget // page_bytes
        if num_pages < 2:
            raise ConfigError(
                f"a KV pool of {human_bytes(budget)} has no room for 2 pages of {human_bytes(page_bytes)} "
                f"({config.page_size} tokens each): raise kv_gib or lower page_size"
            )
    if (num_pages + 1) * page_bytes > free:
        raise ConfigError(
            f"{num_pages} pages of {human_bytes(page_bytes)} take {human_bytes((num_pages + 1) * page_bytes)} and "
            f"{device} has {human_bytes(free)}: lower num_pages or kv_gib"
        )
    return num_pages


def free_memory(device: torch.device) -> int:
    """Bytes to spend: what a GPU reports as free; on a CPU all physical memory, as caches give way when asked."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
