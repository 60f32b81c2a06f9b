"""TorchAttention: paged attention out of plain PyTorch, for the CPU and as the reference on any device."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from minisgl.attention.metadata import AttentionMetadata
from minisgl.kvcache.pool import KVPool


class TorchAttention:
    """Gathers K and V through the slots and runs scaled-dot-product attention on them.

    Prefill runs one SDPA per request; decode runs one for the whole batch, each request's slots padded to the longest.
    Padding repeats the request's own last slot instead of the dummy page: a mask turns a padded score into weight 0,
    but 0 * NaN is NaN, so nothing that is not the request's own may even be read.
    """

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self.metadata: AttentionMetadata | None = None
        self.padded_slots: Tensor | None = None  # [requests * longest]
        self.padding_mask: Tensor | None = None  # [requests, 1, 1, longest], True is attended to
        self.prefix_masks: list[Tensor | None] = []  # per request [new, all], True is attended to; None: causal

    def prepare(self, metadata: AttentionMetadata) -> None:
        """Take the batch's metadata and build what all layers share: padded slots and their mask, or prefix masks."""
        self.metadata = metadata
        if metadata.decode:
            columns = np.arange(metadata.ends.max())[None]
            last = metadata.ends[:, None] - 1
            index = np.minimum(columns, last) + metadata.kv_indptr[:-1, None]
            slots = metadata.kv_indices
            self.padded_slots = slots.index_select(0, torch.from_numpy(index.ravel()).to(slots.device))
            self.padding_mask = torch.from_numpy(columns <= last).to(slots.device)[:, None, None]
            self.prefix_masks = []
        else:
            device = metadata.slots.device
            # with a prefix, new token i sees the keys up to start + i, which SDPA's own causal flag does not say
            self.prefix_masks = [
                torch.ones(end - start, end, dtype=torch.bool, device=device).tril(start) if start else None
                for start, end in zip(metadata.starts.tolist(), metadata.ends.tolist(), strict=True)
            ]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Store ``k`` and ``v`` ``[tokens, kv_heads, head_dim]``, attend with ``q`` ``[tokens, heads, head_dim]``."""
        assert self.metadata is not None, "forward before prepare"
        self.pool.store(layer, self.metadata.slots, k, v)
        keys, values = self.pool.layer(layer)
        q = q.unflatten(1, (k.shape[1], -1))  # query heads of one KV head side by side: [tokens, kv_heads, group, dim]
        attend = self._decode if self.metadata.decode else self._prefill
        return attend(self.metadata, q, keys, values).flatten(1, 2)

    def _decode(self, metadata: AttentionMetadata, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The group's heads act as query rows of their KV head, so K and V are not repeated."""
        assert self.padded_slots is not None
        shape = (len(metadata.ends), -1, *keys.shape[1:])
        k = keys.index_select(0, self.padded_slots).view(shape).transpose(1, 2)
        v = values.index_select(0, self.padded_slots).view(shape).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.padding_mask)

    def _prefill(self, metadata: AttentionMetadata, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """KV heads are the batch, the group's heads share K and V by a stride of 0."""
        outputs = []
        for i, mask in enumerate(self.prefix_masks):
            slots = metadata.kv_indices[metadata.kv_indptr[i] : metadata.kv_indptr[i + 1]]
            rows = q[metadata.qo_indptr[i] : metadata.qo_indptr[i + 1]].permute(1, 2, 0, 3)
            k, v = (
                side.index_select(0, slots).transpose(0, 1).unsqueeze(1).expand(-1, rows.shape[1], -1, -1)
                for side in (keys, values)
            )
            out = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask, is_causal=mask is None)
            outputs.append(out.permute(2, 0, 1, 3))
        return torch.cat(outputs)
