"""Settings that can be changed between two steps of a run, and why the others cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minisgl.config import EngineConfig
from minisgl.errors import FixedSettingError
from minisgl.scheduler.policies import ORDERS, PHASES, promised_share

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler

CHANGEABLE = ("order", "admission", "eviction", "phase", "max_prefill_tokens")
FIXED = {
    "num_pages": "the pool is laid out when the engine starts",
    "kv_gib": "the pool is laid out when the engine starts",
    "page_size": "every page and every tree node is cut to it",
    "max_running_requests": "the page table's rows are laid out when the engine starts",
    "max_seq_len": "the page table's rows are that long",
    "prefix_cache": "the requests that run hold pages of the cache that there is",
    "overlap": "what is launched and not yet processed depends on it",
}
OF_THE_ENGINE = "it is set when the engine is made"


def changed(config: EngineConfig, changes: Mapping[str, Any]) -> EngineConfig:
    """The configuration with changes that can be made in the middle of a run.

    Raises:
        FixedSettingError: one of them cannot; the message says why, and what can be done instead.
        ConfigError: an unknown setting, or a value that cannot be.
    """
    EngineConfig.from_keywords(dict(changes))  # names and values
    for name, value in changes.items():
        if name not in CHANGEABLE:
            raise FixedSettingError(
                f"{name}: {FIXED.get(name, OF_THE_ENGINE)}, so it cannot change in the middle of a run; "
                f"whatif(trace, {name}={value!r}) runs a record's requests under it from their beginning. "
                f"What can change is {', '.join(CHANGEABLE)}"
            )
    return replace(config, **changes)


def apply(s: Scheduler, changes: Mapping[str, Any]) -> None:
    """Let a scheduler go on under changed settings. What is promised already stays promised."""
    s.config = config = changed(s.config, changes)
    s.phase = PHASES[config.phase]
    s.prefill.order, s.prefill.share = ORDERS[config.order], promised_share(config.admission)
    s.prefill.budget = config.max_prefill_tokens
    s.prefill.retest = True  # who was refused may get in now
    s.cache.prefix.reorder(config.eviction)
