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
# no step depends on these; the pool's size comes out of kv_gib once, as num_pages
NOT_OF_THE_SCHEDULER = ("dtype", "device", "quantize", "kernels", "threads", "kv_gib", "check", "poison", "seed")


def changed(config: EngineConfig, changes: Mapping[str, Any]) -> EngineConfig:
    """The configuration with changes that can be made in the middle of a run.

    Raises:
        FixedSettingError: one of them cannot; the message says why, and what can be done instead.
        ConfigError: an unknown setting, or a value that cannot be.
    """
    EngineConfig.from_keywords(dict(changes))  # names and values
    for name, value in changes.items():
        if name not in CHANGEABLE:
            whatif = f"whatif(trace, {name}={value!r}) runs a record's requests under it from their beginning"
            instead = "make another engine" if name in NOT_OF_THE_SCHEDULER else whatif
            raise FixedSettingError(
                f"{name}: {FIXED.get(name, OF_THE_ENGINE)}, so it cannot change in the middle of a run; {instead}. "
                f"What can change is {', '.join(CHANGEABLE)}"
            )
    return replace(config, **changes)


def apply(s: Scheduler, changes: Mapping[str, Any]) -> None:
    """Let a scheduler go on under changed settings. What is promised already stays promised."""
    s.config = config = changed(s.config, changes)
    if "phase" in changes:  # what is not named stays, also if it was put in by hand
        s.phase = PHASES[config.phase]
    if "order" in changes:
        s.prefill.order = ORDERS[config.order]
    if "admission" in changes:
        s.prefill.share = promised_share(config.admission)
    if "max_prefill_tokens" in changes:
        s.prefill.budget = config.max_prefill_tokens
    if "eviction" in changes:
        s.cache.prefix.reorder(config.eviction)
    s.prefill.retest = True  # who was refused may get in now
