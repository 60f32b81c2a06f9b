"""LLM: the offline API. One engine, driven by whoever calls it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minisgl.config import EngineConfig
from minisgl.core import Request, SamplingParams
from minisgl.errors import EngineClosedError, RequestError, SamplingParamsError, UnknownRequestError
from minisgl.events.bus import Subscription
from minisgl.events.snapshot import Snapshot
from minisgl.events.types import Event, StepFinished
from minisgl.outputs import Detokenizer, Output, Outputs, Piece
from minisgl.scheduler import Scheduler

Prompt = str | Sequence[int]


class LLM:
    """A model, its KV pool and its scheduler, in this process.

    Args:
        model: a Hugging Face folder, a ``.gguf`` file, a hub id, or "smollm2-135m" (small, needs no account).
        settings: every field of :class:`minisgl.EngineConfig`, by keyword.

    Raises:
        ModelNotFoundError, ModelFormatError, ConfigError: before anything large is allocated.

    Several may live side by side. All methods may be called from any thread; steps are taken one at a time.
    """

    def __init__(self, model: str | Path = "smollm2-135m", **settings: Any) -> None:
        from minisgl.engine import load_engine  # here, so that `from minisgl import LLM` stays quick

        loaded = load_engine(model, EngineConfig.from_keywords(settings))
        self.model_name = loaded.name
        self.config = loaded.config
        self.model_config = loaded.model_config
        self.tokenizer = loaded.tokenizer
        self.memory = loaded.memory
        self.lock = threading.RLock()
        self._scheduler: Scheduler | None = Scheduler(
            loaded.config, loaded.executor, loaded.model_config.vocab_size, loaded.eos_token_ids
        )
        self._submitted: dict[int, Request] = {}  # by hand, for output(uid)

    # -- prompts in, outputs out -------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: bool = True,
    ) -> Any:
        """Run prompts to their ends.

        Args:
            prompts: one prompt (text or token ids) or a list of them.
            params: one for all, or one each; default ``SamplingParams()``.
            progress: a bar, if it takes longer than two seconds.

        Returns:
            An :class:`Output` for one prompt, :class:`Outputs` (a list, in order) for a list. In a list a prompt that
            can never be served gives ``finish_reason="error"`` with ``.error``; a single one raises.

        Interrupting aborts this call's requests and returns their pages; the next call works.
        """
        one = isinstance(prompts, str) or (len(prompts) > 0 and not isinstance(prompts[0], (str, Sequence)))
        batch: Sequence[Prompt] = [prompts] if one else prompts  # type: ignore[list-item,assignment]
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(batch)
        if len(params) != len(batch):
            raise SamplingParamsError(f"{len(batch)} prompts and {len(params)} SamplingParams: give one, or one each")

        requests: list[Request] = []
        slots: list[Request | Output] = []
        try:
            for prompt, p in zip(batch, params, strict=True):
                try:
                    request = self._submit(prompt, p)
                    requests.append(request)
                    slots.append(request)
                except RequestError as error:
                    if one:
                        raise
                    uid = -1 if error.uid is None else error.uid
                    tokens = [] if isinstance(prompt, str) else list(prompt)
                    slots.append(Output(uid, "", [], tokens, "error", error=error))
            self._run(requests, progress)
        finally:
            self._abandon(requests)
        outputs = Outputs(self._output(s) if isinstance(s, Request) else s for s in slots)
        return outputs[0] if one else outputs

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Piece]:
        """Run one prompt and give its text as it grows. Leaving the loop aborts the request."""
        return self._pieces(self._submit(prompt, params or SamplingParams()))

    def chat(
        self,
        messages: Sequence[dict[str, str]],
        params: SamplingParams | None = None,
        progress: bool = True,
    ) -> Output:
        """Continue a conversation: ``[{"role": "user", "content": "hi"}]``, put into the model's own template."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise RequestError(f"{self.model_name} has no chat template; use generate with a text of your own")
        ids = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
        return self.generate(ids, params, progress)

    # -- by hand -----------------------------------------------------------------------------------------------------

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, client_id: str | None = None) -> int:
        """Queue a prompt for the next step; returns its uid. Raises a RequestError if it could never be served."""
        request = self._submit(prompt, params or SamplingParams(), client_id)
        self._submitted[request.uid] = request
        return request.uid

    def step(self) -> StepFinished | None:
        """One step; None when there is nothing to do. Ctrl-C waits for the step's end."""
        with self.lock, deferred_interrupt():
            return self.scheduler.step()

    def abort(self, uid: int) -> None:
        """End a request in the next step. UnknownRequestError if there never was one with this uid."""
        self.scheduler.abort(uid)

    def run_until_idle(self) -> int:
        """Step until nothing is left to do; the number of steps."""
        steps = 0
        while self.step() is not None:
            steps += 1
        return steps

    def output(self, uid: int) -> Output:
        """What a submitted request has given so far."""
        if uid not in self._submitted:
            raise UnknownRequestError(f"no request with uid {uid} was submitted by hand")
        return self._output(self._submitted[uid])

    @property
    def idle(self) -> bool:
        """Nothing is waiting, running or yet to be announced."""
        return self.scheduler.idle

    # -- watching ----------------------------------------------------------------------------------------------------

    def on(self, event_type: type[Event] | None, fn: Callable[[Any], object]) -> Subscription:
        """Call ``fn(event)`` for every event of a type (None: of all). Use the result in ``with``, or close it."""
        return self.scheduler.bus.on(event_type, fn)

    def after_step(self, fn: Callable[[StepFinished, Callable[[], Snapshot]], None]) -> Subscription:
        """Call ``fn(StepFinished, get_snapshot)`` after every step."""
        return self.scheduler.after_step(fn)

    def snapshot(self) -> Snapshot:
        """The ledgers as they stand between two steps."""
        with self.lock:
            return self.scheduler.snapshot()

    def check_integrity(self) -> None:
        """Raise LedgerError, naming each broken rule, if the books are not sound."""
        with self.lock:
            self.scheduler.check_integrity()

    # -- texts -------------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        if self.tokenizer is None:
            raise RequestError(f"{self.model_name} has no tokenizer; give token ids")
        return self.tokenizer.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids, special tokens left out; ids in a row for a model without a tokenizer."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def token_text(self, token: int) -> str:
        """One token as it reads, special ones by their names."""
        return str(token) if self.tokenizer is None else self.tokenizer.decode([token])

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler:
        if self._scheduler is None:
            raise EngineClosedError("this LLM was closed; make a new one")
        return self._scheduler

    def close(self) -> None:
        """Let go of the model and the pool. Using the LLM afterwards raises EngineClosedError."""
        with self.lock:
            self._scheduler = None

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        c = self.config
        state = "closed" if self._scheduler is None else f"pages={c.num_pages}x{c.page_size}, {c.prefix_cache}"
        return f"LLM({self.model_name!r}, {state}, {c.dtype} on {c.device})"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _submit(self, prompt: Prompt, params: SamplingParams, client_id: str | None = None) -> Request:
        tokens = self.encode(prompt) if isinstance(prompt, str) else prompt
        return self.scheduler.submit(tokens, params, client_id)

    def _run(self, requests: list[Request], progress: bool) -> None:
        from tqdm.auto import tqdm

        with tqdm(total=len(requests), desc="generate", unit="request", delay=2, disable=not progress) as bar:
            while not all(r.finished for r in requests):
                # another thread's step may have been the one that finished them, so only both together are wrong
                if self.step() is None and not all(r.finished for r in requests):
                    raise AssertionError(f"nothing to do, yet unfinished: {requests}")
                bar.update(sum(r.finished for r in requests) - bar.n)
        for request in requests:
            if request.error:
                raise request.error

    def _pieces(self, request: Request) -> Iterator[Piece]:
        text, done = Detokenizer(self.decode), 0
        try:
            while not request.finished:
                self.step()
                tokens = request.output_ids
                said = text.next(tokens, last=request.finished)
                if said or request.finished:
                    yield Piece(said, tuple(tokens[done:]), request.finish_reason)
                    done = len(tokens)
            if request.error:
                raise request.error
        finally:
            self._abandon([request])

    def _abandon(self, requests: list[Request]) -> None:
        """Abort what is unfinished of these and step until their pages are back. Not to be interrupted."""
        if self._scheduler is None or all(r.finished for r in requests):
            return
        with deferred_interrupt():
            for request in requests:
                self.abort(request.uid)
            while not all(r.finished for r in requests):
                self.step()

    def _output(self, r: Request) -> Output:
        return Output(
            uid=r.uid,
            text=self.decode(r.output_ids),
            token_ids=r.output_ids,
            prompt_token_ids=r.token_ids[: r.prompt_len],
            finish_reason=r.finish_reason,
            cached_tokens=r.matched,
            error=r.error,
        )


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Let Ctrl-C wait until the block is over: ledgers cut off in the middle of a step could not be trusted."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple] = []
    signal.signal(signal.SIGINT, lambda *args: held.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])
