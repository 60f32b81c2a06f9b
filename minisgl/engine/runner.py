"""What computes a batch's logits: the runner's protocol, and the one on plain torch."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from minisgl.attention import AttentionBackend, build_metadata
from minisgl.core import Batch
from minisgl.models.decoder import Decoder


class Runner(Protocol):
    """Computes batches: one call each, in launch order."""

    def logits(self, batch: Batch, page_table: Tensor, token_pool: Tensor) -> Tensor:
        """Compute the batch's tokens, write their K and V to the pool, and give the logits of those who sample.

        Tokens and slots are found in ``token_pool`` and ``page_table``, int32 ``[rows, width]``. Logits are
        ``[samples, vocab_size]``, in the order of the batch's requests, valid until the next call.
        """
        ...


class TorchRunner:
    """The decoder on torch, on any device; the reference for the others."""

    def __init__(self, model: Decoder, attention: AttentionBackend) -> None:
        self.model = model
        self.attention = attention

    def logits(self, batch: Batch, page_table: Tensor, token_pool: Tensor) -> Tensor:
        metadata = build_metadata(page_table, batch.rows, batch.starts, batch.ends)
        self.attention.prepare(metadata)
        token_ids = token_pool.view(-1).index_select(0, metadata.token_index)
        hidden = self.model(token_ids, metadata.positions, self.attention)
        last = torch.from_numpy(metadata.qo_indptr[1:][list(batch.samples)] - 1).to(hidden.device)
        return self.model.logits(hidden.index_select(0, last))
