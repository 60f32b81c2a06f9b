"""KVPool: the one tensor that holds every token's K and V."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

HUGE = 2 << 20  # bytes; the size of a huge page on x86 and on most ARM systems

SMALL = 1 << 16  # bytes; not worth a mapping of its own


class KVPool:
    """K and V of all layers, allocated once: ``[2, layers, num_pages + 1, page_size, kv_heads, head_dim]``.

    The page after the last, ``num_pages``, is the dummy page: padding lanes write there, and nobody reads it.
    Slot ``s`` lies in page ``s // page_size`` at offset ``s % page_size``.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        shape = (2, num_layers, num_pages + 1, page_size, num_kv_heads, head_dim)
        # zeros and not empty: whatever reads ahead of its data must find finite numbers
        if torch.device(device).type == "cpu":
            self.data = huge_zeros(*shape, dtype=dtype)
        else:
            self.data = torch.zeros(shape, dtype=dtype, device=device)
        self._flat = self.data.flatten(2, 3)

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of one layer, each a view ``[(num_pages + 1) * page_size, kv_heads, head_dim]`` indexed by slot."""
        return self._flat[0, layer], self._flat[1, layer]

    def store(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Write ``k`` and ``v``, each ``[tokens, kv_heads, head_dim]``, at ``slots`` ``[tokens]`` of one layer."""
        keys, values = self.layer(layer)
        keys.index_copy_(0, slots, k)
        values.index_copy_(0, slots, v)

    def poison(self, pages: Sequence[int]) -> None:
        """Fill the KV of pages that nobody owns with NaN, so that a stale read cannot go unnoticed."""
        if pages:
            self.data[:, :, torch.as_tensor(pages, device=self.data.device)] = torch.nan


def huge_zeros(*shape: int, dtype: torch.dtype) -> Tensor:
    """Zeros on the CPU, in memory that goes back to the system at once when it is let go (malloc keeps much of it).

    What is below 64 KiB comes from malloc all the same: a mapping of its own, in pages of 2 MiB, would waste more.
    Reading memory from end to end, a CPU looks up every 4 KiB page's address anew; with pages of 2 MiB one core read
    1.8 times as fast (measured in a virtual machine, where such a look-up is dearest). Pages that are never touched
    take no memory.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < SMALL:
        return torch.zeros(shape, dtype=dtype)
    area = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # the tensor keeps it alive
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel that was built without them
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(area, dtype=torch.uint8)
    begin = -whole.data_ptr() % HUGE
    return whole[begin : begin + size].view(dtype).view(shape)
