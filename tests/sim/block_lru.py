"""A prefix cache of blocks so simple that it can be believed: an ordered dict, oldest first. Independent of minisgl.

What it says of the Mooncake traces is listed in the project's oracles, and was found there by another program. Its
arguments turn the rules of that oracle, one by one, into those of a real engine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """One request: the hashes of its prompt's blocks, the last of which may be short, and its lengths in tokens."""

    blocks: Sequence[int]
    tokens: int
    new: int


def hit_rate(
    requests: Iterable[Asked],
    capacity: float,
    block: int = 512,
    fifo: bool = False,
    last_token: bool = False,
    outputs: bool = False,
) -> float:
    """Tokens found / prompt tokens over the second half of the requests, which come one after another.

    Hits are consecutive blocks from the start. One block at a time goes, the one used longest ago; of a request's
    blocks the last one counts as the oldest.

    Args:
        capacity: blocks.
        fifo: a block's age is that of its first use.
        last_token: as an engine matches: whole blocks only, and never the prompt's last token, which must be computed
            to have something to sample from.
        outputs: what is generated needs blocks as well, and they stay.
    """
    requests = list(requests)
    cache: OrderedDict[object, None] = OrderedDict()
    found = asked = 0
    for i, r in enumerate(requests):
        blocks: list[object] = list(r.blocks)
        if last_token:
            del blocks[r.tokens // block :]
        matchable = (r.tokens - 1) // block if last_token else len(blocks)
        hits = 0
        while hits < matchable and blocks[hits] in cache:
            hits += 1
        if i >= len(requests) // 2:
            found += min(hits * block, r.tokens)
            asked += r.tokens
        if outputs:  # the last token generated has no KV
            blocks += [("output", i, j) for j in range(len(blocks), (r.tokens + r.new - 1) // block)]
        for b in reversed(blocks):
            if b not in cache or not fifo:
                cache[b] = None
                cache.move_to_end(b)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return found / asked
