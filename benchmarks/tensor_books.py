"""The usual way of keeping books, to compare with: a few small tensor operations for every running request.

Written after how engines of this kind tend to look (ids that grow by ``cat``, an ``arange`` of positions for each
request, tokens read with ``item``), not taken from any of them. It decodes and does nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Running:
    row: int
    ids: Tensor  # int32 [tokens]
    cached_len: int
    device_len: int
    max_len: int


class TensorBooks:
    """``running`` requests of ``prompt`` tokens that decode together, one slot a token.

    Args:
        running: how many.
        prompt: tokens that each has already.
        steps: how many will be taken at most.
        page_size: tokens per page.
    """

    def __init__(self, running: int, prompt: int, steps: int, page_size: int) -> None:
        self.page_size = page_size
        width = prompt + steps + page_size
        self.free_pages = torch.arange(running * (width // page_size + 2), dtype=torch.int32)
        self.page_table = torch.zeros(running, width + page_size, dtype=torch.int32)
        self.requests = []
        for row in range(running):
            request = Running(row, torch.full((prompt,), 7, dtype=torch.int32), 0, prompt, prompt + steps)
            self._extend(request)
            request.cached_len, request.device_len = prompt, prompt + 1
            request.ids = torch.cat((request.ids, request.ids[:1]))
            self.requests.append(request)

    def _extend(self, request: Running) -> None:
        """Take the pages of tokens ``[cached_len, device_len)`` and write their slots into the row."""
        ps = self.page_size
        first, last = -(-request.cached_len // ps), -(-request.device_len // ps)
        if first == last:
            return
        pages, self.free_pages = self.free_pages[: last - first], self.free_pages[last - first :]
        slots = (pages[:, None] * ps + torch.arange(ps, dtype=torch.int32)).flatten()
        self.page_table[request.row, first * ps : last * ps] = slots

    def step(self) -> tuple[Tensor, Tensor, Tensor]:
        """One decode step, but for the model: positions, slots to write, tokens of the batch."""
        for request in self.requests:
            self._extend(request)
        positions = torch.cat([torch.arange(r.cached_len, r.device_len, dtype=torch.int32) for r in self.requests])
        places = torch.cat([self.page_table[r.row, r.cached_len : r.device_len] for r in self.requests])
        tokens = torch.cat([r.ids[r.cached_len : r.device_len] for r in self.requests])
        sampled = torch.full_like(tokens, 7)
        for i, request in enumerate(self.requests):
            request.cached_len, request.device_len = request.device_len, request.device_len + 1
            request.ids = torch.cat((request.ids, sampled[i : i + 1]))
            if sampled[i].item() == 0 or len(request.ids) >= request.max_len:
                raise AssertionError("nobody ends here")
        return positions, places, tokens
