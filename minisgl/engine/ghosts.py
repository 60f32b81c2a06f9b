"""Ghost pages: KV that is read although nobody owns its page any more."""

from __future__ import annotations

from torch import Tensor

from minisgl.core import Batch
from minisgl.errors import GhostPageError
from minisgl.events.words import count
from minisgl.kvcache.pool import KVPool


def check_reads(pool: KVPool, page_table: Tensor, batch: Batch) -> None:
    """Raise GhostPageError if a request is about to read KV that is NaN: of the tokens before its ``start``.

    With ``EngineConfig.poison`` that is the KV of every freed page until it is written again. One number of each
    token's first layer is looked at: a page is poisoned as a whole.
    """
    gone = pool.layer(0)[0][:, 0, 0].isnan()
    for uid, row, start in zip(batch.uids, batch.rows, batch.starts, strict=True):
        slots = page_table[row, :start]  # what lies beyond, this forward writes itself
        ghosts = gone.index_select(0, slots).nonzero().flatten().tolist()
        if ghosts:
            page = int(slots[ghosts[0]]) // pool.data.shape[3]
            raise GhostPageError(
                f"batch {batch.number}: request {uid}, row {row}, is about to read the KV of its token {ghosts[0]} "
                f"from page {page}, whose KV is gone: it was freed and not written since "
                f"({count(len(ghosts), 'such token')})"
            )
