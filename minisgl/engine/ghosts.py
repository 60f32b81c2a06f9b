"""Ghost pages: KV that is read although nobody owns its page any more."""

from __future__ import annotations

import numpy as np

from minisgl.attention import AttentionMetadata
from minisgl.core import Batch
from minisgl.errors import GhostPageError
from minisgl.kvcache.pool import KVPool


def check_reads(pool: KVPool, metadata: AttentionMetadata, batch: Batch) -> None:
    """Raise GhostPageError if a request is about to read KV that is NaN: of the tokens before its ``start``.

    With ``EngineConfig.poison`` that is the KV of every freed page until it is written again. One number of each
    token's first layer is looked at: a page is poisoned as a whole.
    """
    keys, _ = pool.layer(0)
    bad = keys[:, 0, 0].isnan().index_select(0, metadata.kv_indices).cpu().numpy()
    if not bad.any():
        return
    page_size = pool.data.shape[3]
    slots = metadata.kv_indices.cpu().numpy()
    for i, uid in enumerate(batch.uids):
        begin = metadata.kv_indptr[i]
        ghosts = np.flatnonzero(bad[begin : begin + batch.starts[i]])  # what lies beyond, this forward writes itself
        if len(ghosts):
            position = int(ghosts[0])
            raise GhostPageError(
                f"batch {batch.number}: request {uid}, row {batch.rows[i]}, is about to read the KV of its token "
                f"{position} from page {slots[begin + position] // page_size}, whose KV is gone: it was freed and not "
                f"written since ({len(ghosts)} such tokens)"
            )
