"""KV events: what entered and left the prefix cache, as vLLM and SGLang publish it to routers and cache indexers.

One ``KVEventBatch`` a line, ``{"ts": ..., "events": [...]}``, each event an object with its type in ``type`` and
fields named as in vLLM's ``distributed/kv_events.py`` and SGLang's ``disaggregation/kv_events.py``. On the wire both
pack batches, and SGLang the events too, as msgpack arrays in the order of the same fields.

A block is a page. Its hash is 63 bits of BLAKE2b over the hash of the block before it and its own tokens, so equal
prefixes have equal hashes in every run.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from minisgl.events import types as ev
from minisgl.events.snapshot import Snapshot

if TYPE_CHECKING:
    from minisgl.events.trace import Trace


def kv_events(trace: Trace) -> bytes:
    """The run's KV events as JSON lines."""
    return b"".join(msgspec.json.encode(batch) + b"\n" for batch in batches(trace))


def batches(trace: Trace) -> Iterator[dict[str, Any]]:
    """One batch for what was cached at the start, if anything was, then one for each step that changed the cache.

    ``ts`` is in seconds since start. Splitting a node changes no block. ``AllBlocksCleared`` is sent only for a clear
    that left nothing; if running requests kept some blocks, ``BlockRemoved`` has named the others.
    """
    blocks = _Blocks(trace.keyframe["page_size"])
    tree = Snapshot(trace.keyframe).tree
    found = [blocks.stored(node, tree[node].parent, tree[node].tokens) for node, _ in tree.walk()]
    if found:
        yield {"ts": trace.keyframe["t"], "events": found}

    found = []
    for e in trace.events:
        if isinstance(e, ev.NodeInserted):
            found.append(blocks.stored(e.node, e.parent, e.tokens))
        elif isinstance(e, ev.NodeSplit):
            blocks.split(e.node, e.upper, e.length)
        elif isinstance(e, ev.PagesEvicted):
            found.append(blocks.removed(e.nodes))
        elif isinstance(e, ev.CacheCleared) and not e.kept:
            found.append({"type": "AllBlocksCleared"})
        elif isinstance(e, ev.StepFinished) and found:
            yield {"ts": e.t, "events": found}
            found = []


class _Blocks:
    """The hashes of every node's blocks."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.of: dict[int, list[int]] = {0: []}

    def stored(self, node: int, parent: int, tokens: Sequence[int]) -> dict[str, Any]:
        before = self.of[parent][-1] if parent else None
        hashes: list[int] = []
        ps = self.page_size
        for start in range(0, len(tokens), ps):
            hashes.append(block_hash(hashes[-1] if hashes else before, tokens[start : start + ps]))
        self.of[node] = hashes
        return {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": before,
            "token_ids": list(tokens),
            "block_size": ps,
            "lora_id": None,
            "medium": None,
            "lora_name": None,
        }

    def split(self, node: int, upper: int, length: int) -> None:
        whole, cut = self.of[node], length // self.page_size
        self.of[upper], self.of[node] = whole[:cut], whole[cut:]

    def removed(self, nodes: Sequence[int]) -> dict[str, Any]:
        hashes = [h for node in nodes for h in self.of.pop(node)]
        return {"type": "BlockRemoved", "block_hashes": hashes, "medium": None}


def block_hash(before: int | None, tokens: Sequence[int]) -> int:
    """The hash of a block of tokens after the block ``before`` (None: the first); fits a signed 64-bit integer."""
    data = struct.pack(f"<{len(tokens) + 1}q", -1 if before is None else before, *tokens)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") >> 1
