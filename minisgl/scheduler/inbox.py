"""Inbox: what comes from outside, on any thread, until the next step takes it in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from minisgl.config import EngineConfig
from minisgl.core import Request, SamplingParams, nobody_writes, pages_for
from minisgl.errors import (
    EmptyPromptError,
    PoolTooSmallError,
    PromptTooLongError,
    RequestError,
    TokenOutOfVocabularyError,
    UnknownRequestError,
)
from minisgl.scheduler.settings import changed


@dataclass(frozen=True, slots=True)
class Refusal:
    """A prompt that can never be served, still to be announced."""

    uid: int
    prompt_len: int
    error: RequestError
    submitted: float  # seconds since start
    client_id: str | None


@dataclass(frozen=True, slots=True)
class Abort:
    uid: int
    submitted: float  # seconds since start


@dataclass(frozen=True, slots=True)
class ClearCache:
    """Somebody wants the prefix cache empty."""


@dataclass(frozen=True, slots=True)
class Change:
    """Settings that are to be others, by name."""

    settings: dict[str, Any]


MOST_TOKENS = 1 << 31  # token ids are int32
REMEMBERED = 1024  # parameters known to be valid
Message = Request | Refusal | Abort | ClearCache | Change


class Inbox:
    """Gives uids (never twice), refuses at once what can never be served, and keeps the rest in order."""

    def __init__(
        self, config: EngineConfig, vocab_size: int | None, stop_tokens: Sequence[int], clock: Callable[[], float]
    ) -> None:
        assert config.num_pages is not None and config.max_seq_len is not None
        self.config = config
        self.num_pages: int = config.num_pages
        self.max_seq_len: int = config.max_seq_len
        self.vocab_size = vocab_size
        self.stop_tokens = tuple(stop_tokens)
        self._clock = clock
        self.next_uid = 0
        self._valid: dict[int, SamplingParams] = {}  # by id, those looked at of late: often the same again
        self._lock = threading.Lock()
        self._messages: SimpleQueue[Message] = SimpleQueue()

    @property
    def empty(self) -> bool:
        return self._messages.empty()

    def take(self) -> Iterator[Message]:
        """All that has come in, oldest first. One thread only."""
        while not self._messages.empty():
            yield self._messages.get_nowait()

    def submit(
        self,
        prompt: Sequence[int] | np.ndarray,
        params: SamplingParams,
        client_id: str | None,
        submitted: float | None = None,
    ) -> Request:
        """Queue a prompt. Raises a RequestError, with its uid, if it could never be served."""
        with self._lock:
            uid = self.next_uid
            self.next_uid += 1
        submitted = self._clock() if submitted is None else submitted
        try:
            if self._valid.get(id(params)) is not params:
                params.validate()
                if len(self._valid) >= REMEMBERED:
                    self._valid.clear()
                self._valid[id(params)] = params
            max_tokens = self._admissible(prompt, params)
        except RequestError as error:
            error.uid = uid
            self._messages.put(Refusal(uid, len(prompt), error, submitted, client_id))
            raise
        request = Request(
            uid=uid,
            prompt=prompt if nobody_writes(prompt) else np.array(prompt, dtype=np.int32),  # the caller's may change
            params=params,
            max_tokens=max_tokens,
            seed=params.seed if params.seed is not None else self.config.seed * 1_000_003 + uid,
            stop_tokens=frozenset(params.stop_token_ids + (() if params.ignore_eos else self.stop_tokens)),
            client_id=client_id,
            submitted=submitted,
        )
        self._messages.put(request)
        return request

    def abort(self, uid: int, submitted: float | None = None) -> None:
        """Queue an abort; it does nothing if the request has ended by then. UnknownRequestError if it never was."""
        if not 0 <= uid < self.next_uid:
            raise UnknownRequestError(f"no request has uid {uid}; the next new one will be {self.next_uid}")
        self._messages.put(Abort(uid, self._clock() if submitted is None else submitted))

    def clear_cache(self) -> None:
        """Queue a wish for an empty prefix cache."""
        self._messages.put(ClearCache())

    def change(self, settings: dict[str, Any]) -> None:
        """Queue a change of settings. FixedSettingError or ConfigError if it cannot be."""
        if not settings:
            return
        changed(self.config, settings)
        self._messages.put(Change(settings))

    def give_uids_from(self, uid: int) -> None:
        """Smaller uids were given before."""
        with self._lock:
            self.next_uid = uid

    def put(self, message: Message) -> None:
        """Queue what was decided elsewhere, as it is: for replays."""
        self._messages.put(message)

    def _admissible(self, prompt: Sequence[int] | np.ndarray, params: SamplingParams) -> int:
        """``max_tokens`` clamped to what fits, or the reason why nothing does."""
        n, longest, vocab = len(prompt), self.max_seq_len, self.vocab_size
        if n == 0:
            raise EmptyPromptError("the prompt has no tokens; give at least one")
        end = MOST_TOKENS if vocab is None else vocab
        if not _within(prompt, end):
            position = next(i for i, token in enumerate(prompt) if not 0 <= token < end)
            raise TokenOutOfVocabularyError(
                f"token {prompt[position]} at position {position}: the vocabulary is 0 to {end - 1}"
            )
        if n >= longest:
            raise PromptTooLongError(
                f"the prompt has {n} tokens and max_seq_len is {longest}, which must also hold what is generated; "
                f"shorten it to {longest - 1} or raise max_seq_len"
            )
        max_tokens = min(params.max_tokens, longest - n)
        ps, pool = self.config.page_size, self.num_pages
        need = pages_for(n + max_tokens, ps)
        if need > pool:
            raise PoolTooSmallError(
                f"{n} prompt tokens and max_tokens={max_tokens} need {need} pages of {ps} and the pool has {pool}; "
                f"lower max_tokens, shorten the prompt or raise num_pages"
            )
        return max_tokens


def _within(tokens: Sequence[int] | np.ndarray, end: int) -> bool:
    """Are all of them in ``[0, end)``?"""
    if isinstance(tokens, np.ndarray):
        if tokens.dtype == np.int32:  # the usual prompt: without a sign a negative number is a huge one
            return np.maximum.reduce(tokens.view(np.uint32)) < end
        return tokens.min() >= 0 and tokens.max() < end
    return min(tokens) >= 0 and max(tokens) < end
