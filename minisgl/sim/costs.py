"""Cost models: how long a batch takes. Steps are exact, milliseconds are modelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from minisgl.core import Batch
from minisgl.events.types import BatchScheduled


class Work(msgspec.Struct, frozen=True, gc=False):
    """What a batch computes: the terms that its time is made of. Numbers, or arrays of many batches."""

    prefill_tokens: Any  # tokens of requests that compute more than one
    decode_requests: Any  # requests that compute one
    kv_tokens: Any  # tokens whose KV is read
    pairs: Any  # (query token, key token) pairs of the attention


def work_of(batch: Batch | BatchScheduled) -> Work:
    prefill = decodes = pairs = 0
    for start, end in zip(batch.starts, batch.ends, strict=True):
        n = end - start
        if n == 1:
            decodes += 1
        else:
            prefill += n
        pairs += n * start + n * (n + 1) // 2
    return Work(prefill, decodes, sum(batch.ends), pairs)


class CostModel(Protocol):
    """Seconds of a batch; of a ``Work`` of arrays, an array (or one number, if nothing in it differs)."""

    def seconds(self, work: Work) -> Any: ...


@dataclass(frozen=True, slots=True)
class LinearCost:
    """A constant and a price for each term of ``Work``, in seconds; what ``fit`` gives."""

    constant: float = 0.0
    prefill_token: float = 0.0
    decode_request: float = 0.0
    kv_token: float = 0.0
    pair: float = 0.0

    def seconds(self, work: Work) -> Any:
        return (
            self.constant
            + self.prefill_token * work.prefill_tokens
            + self.decode_request * work.decode_requests
            + self.kv_token * work.kv_tokens
            + self.pair * work.pairs
        )


# A small model on two CPU cores, so that a simulation without any record has a plausible clock.
DEFAULT = LinearCost(constant=0.015, prefill_token=0.0005, decode_request=0.001, kv_token=2e-7, pair=1e-8)
