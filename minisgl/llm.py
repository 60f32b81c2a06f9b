"""LLM: the offline API. One engine, driven by whoever calls it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minisgl.config import EngineConfig
from minisgl.core import Request, SamplingParams
from minisgl.errors import EngineClosedError, RequestError, SamplingParamsError, UnknownRequestError
from minisgl.events.bus import Subscription
from minisgl.events.snapshot import Snapshot
from minisgl.events.types import Event, StepFinished
from minisgl.events.until import Condition, Stop, run_until
from minisgl.outputs import Detokenizer, Output, Outputs, Piece
from minisgl.progress import progress_bar
from minisgl.prompts import listed, tokens_of
from minisgl.scheduler import Scheduler
from minisgl.sim.rewind import rewound, steps_up_to

if TYPE_CHECKING:
    from minisgl.engine import EngineExecutor
    from minisgl.events.trace import Trace
    from minisgl.sim.replay import Inputs

Prompt = str | Iterable[int]


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
        self._config = loaded.config
        self.model_config = loaded.model_config
        self.tokenizer = loaded.tokenizer
        self.memory = loaded.memory
        self._kernels = loaded.kernels
        self._stop_tokens = loaded.eos_token_ids
        self._executor: EngineExecutor | None = loaded.executor
        self.lock = threading.RLock()  # held during a step; hold it to look at several things between two steps
        self._scheduler: Scheduler | None = Scheduler(
            loaded.config, loaded.executor, loaded.model_config.vocab_size, loaded.eos_token_ids
        )
        self._submitted: dict[int, Request] = {}  # by hand, for output(uid)

    # -- prompts in, outputs out -------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        params: SamplingParams | Iterable[SamplingParams] | None = None,
        progress: bool = True,
    ) -> Any:
        """Run prompts to their ends.

        Args:
            prompts: one prompt (text or token ids) or a list of them.
            params: one for all, or one each; default ``SamplingParams()``.
            progress: a bar, if it takes longer than two seconds.

        Returns:
            An :class:`Output` for one prompt, :class:`Outputs` (a list, in order) for a list. In a list a request that
            was refused or failed gives ``finish_reason="error"`` with ``.error``; a single one raises.

        Interrupting aborts this call's requests and returns their pages; the next call works.
        """
        rows, one = listed(prompts)
        each = [params or SamplingParams()] * len(rows) if isinstance(params, SamplingParams | None) else list(params)
        if len(each) != len(rows) or not all(isinstance(p, SamplingParams) for p in each):
            kinds = ", ".join(sorted({type(p).__name__ for p in each})) or "nothing"
            raise SamplingParamsError(
                f"{len(rows)} prompts and {len(each)} params ({kinds}): give one SamplingParams for all, or one each"
            )

        results: list[Request | Output] = []
        with deferred_interrupt() as interrupted:
            try:
                for prompt, p in zip(rows, each, strict=True):
                    results.append(self._tried(prompt, p))
                self._run([r for r in results if isinstance(r, Request)], progress, interrupted)
            finally:
                self._abandon([r for r in results if isinstance(r, Request)])
        outputs = Outputs(self._output(r) if isinstance(r, Request) else r for r in results)
        if one and outputs[0].error is not None:
            raise outputs[0].error
        return outputs[0] if one else outputs

    def _tried(self, prompt: Prompt, params: SamplingParams) -> Request | Output:
        """The submitted request, or the output that says why it was refused."""
        tokens: list[int] = []
        try:
            tokens = tokens_of(prompt, self.encode)
            return self.scheduler.submit(tokens, params)
        except RequestError as error:
            return Output(-1 if error.uid is None else error.uid, "", [], tokens, "error", error=error)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Stream:
        """Run one prompt and give its text as it grows.

        Leaving the loop aborts the request, unless you keep the stream: then ``close()`` does.
        """
        return Stream(self, self._submit(prompt, params or SamplingParams()))

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

    def change(self, **settings: Any) -> None:
        """Go on under other settings from the next step on: ``llm.change(order="lpm")``. No token changes with them.

        Raises:
            FixedSettingError: this one cannot change in the middle of a run. Those that can are order, admission,
                eviction, phase and max_prefill_tokens.
            ConfigError: an unknown setting, or a value that cannot be.
        """
        self.scheduler.change(**settings)

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

    def run_until(self, condition: Condition) -> Stop:
        """Step until something happens: "refusal", "free < 8", "finish of request 4", a function of an event ...

        Stops at the end of the step in which it happens, or when nothing is left to do; the Stop says where, and which
        event it was. ``minisgl.events.until`` lists the conditions. Raises ConditionError for one that cannot be read.
        """
        return run_until(self, condition)

    def rewind(self, trace: Trace, step: int) -> Iterator[StepFinished]:
        """Go back to the start of a record of this engine, and run it again up to a step, which is then the last.

        Everything comes as it came: the same requests under the same uids, aborts and settings, in the same steps. What
        runs now is aborted first. Who listened to the run that was (``on``, ``after_step``, a Recorder) hears that and
        nothing that comes after it, so that no record holds two runs: listen anew.

        Args:
            trace: a record of this engine that reaches up to now.
            step: the last step to be run again; the record's first is its start.

        Returns:
            The steps; each is taken when it is asked for, and the engine is where it was when all are.

        Raises:
            TraceError: the record does not hold that step, or not how to go on from its start.
            ForkError: the record is of another engine or ended earlier, or it began with KV that is gone.
        """
        with self.lock, deferred_interrupt():
            steps = steps_up_to(trace, step)
            self._scheduler, coming = rewound(self.scheduler, trace)
            arriving = (m for each in coming[:steps] for m in each.messages if isinstance(m, Request))
            for request in (*self._scheduler.requests.values(), *arriving):
                if request.uid in self._submitted:
                    self._submitted[request.uid] = request
        return self._again(coming[:steps])

    def _again(self, coming: list[Inputs]) -> Iterator[StepFinished]:
        for each in coming:
            with self.lock, deferred_interrupt():
                done = each.feed(self.scheduler, self.scheduler.executor.now())
            if done is not None:
                yield done

    def clear_cache(self) -> None:
        """Empty the prefix cache in the next step, but for what running requests hold: the next prompts start cold."""
        self.scheduler.clear_cache()

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
        """Call ``fn(event)`` for every event of a type (None: of all). Use the result in ``with``, or close it.

        Hooks run on the thread that steps. They may submit and abort, but not step.
        """
        with self.lock:
            return self.scheduler.bus.on(event_type, fn)

    def after_step(self, fn: Callable[[StepFinished, Callable[[], Snapshot]], None]) -> Subscription:
        """Call ``fn(StepFinished, get_snapshot)`` after every step."""
        return self.scheduler.after_step(fn)

    def snapshot(self) -> Snapshot:
        """The ledgers as they stand between two steps."""
        with self.lock:
            return self.scheduler.snapshot()

    def drain(self) -> None:
        """Process the batch in flight, if there is one, and launch nothing; it counts as a step."""
        with self.lock, deferred_interrupt():
            self.scheduler.drain()

    def about(self) -> dict[str, Any]:
        """What a recorded run says of its origin: model, tokenizer, configuration, and the library that computed it.

        ``shape`` is what the size of KV and of the weights depends on: see ``minisgl.size``.
        """
        model = self.model_config
        return {
            "model": self.model_name,
            "tokenizer": type(self.tokenizer).__name__ if self.tokenizer is not None else None,
            "vocab_size": model.vocab_size,
            "shape": {
                "layers": model.num_layers,
                "kv_heads": model.num_kv_heads,
                "head_dim": model.head_dim,
                "params": model.params,
                "int8_bytes": model.int8_bytes,
            },
            "config": asdict(self.config),
            "stop_tokens": list(self._stop_tokens),
            "torch": version("torch"),
            "kernels": self._kernels,
        }

    def checkpoint(self) -> dict[str, Any]:
        """What the snapshot does not show and a replay needs to go on from here."""
        with self.lock:
            return self.scheduler.checkpoint()

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

    @property
    def config(self) -> EngineConfig:
        """The settings, as they are now."""
        return self._config if self._scheduler is None else self._scheduler.config

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler:
        if self._scheduler is None:
            raise EngineClosedError("this LLM was closed; make a new one")
        return self._scheduler

    def close(self) -> None:
        """Let go of the model and the pool. Using the LLM afterwards raises EngineClosedError."""
        with self.lock:
            self._config = self.config
            if self._executor is not None:
                self._executor.close()
            self._scheduler = self._executor = None

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
        return self.scheduler.submit(tokens_of(prompt, self.encode), params, client_id)

    def _run(self, requests: list[Request], progress: bool, interrupted: list) -> None:
        with progress_bar("generate", "request", total=len(requests), show=progress) as bar:
            while not interrupted and not all(r.finished for r in requests):
                # another thread's step may have been the one that finished them, so only both together are wrong
                if self.step() is None and not all(r.finished for r in requests):
                    raise AssertionError(f"nothing to do, yet unfinished: {requests}")
                bar.update(sum(r.finished for r in requests) - bar.n)
        self._settle()

    def _abandon(self, requests: list[Request]) -> None:
        """Abort what is unfinished of these and step until their pages are back. Not to be interrupted."""
        unfinished = [r for r in requests if not r.finished]
        if self._scheduler is None or not unfinished:
            return
        with deferred_interrupt(), self.lock:
            for request in unfinished:
                self.abort(request.uid)
            # inside a step (a hook, or the garbage collector that came by) the abort waits for the next one
            while not self.scheduler.stepping and not all(r.finished for r in unfinished):
                self.step()
            self._settle()

    def _settle(self) -> None:
        """Take the step that overlap leaves behind the last token, unless others still run and will take it."""
        with self.lock:
            while self.scheduler.in_flight and not (self.scheduler.stepping or self.scheduler.requests):
                self.step()

    def _output(self, r: Request) -> Output:
        return Output(
            uid=r.uid,
            text=self.decode(r.output_ids),
            token_ids=list(r.output_ids),
            prompt_token_ids=r.prompt.tolist(),
            finish_reason=r.finish_reason,
            cached_tokens=r.cached_tokens,
            error=r.error,
        )


class Stream:
    """An iterator over the pieces of one request's text. ``close()``, or losing the last reference, aborts it."""

    def __init__(self, llm: LLM, request: Request) -> None:
        self._llm = llm
        self._request = request
        self._text = Detokenizer(llm.decode)
        self._said = 0  # tokens
        self._over = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        request = self._request
        while not self._over:
            try:
                if not request.finished:
                    self._llm.step()
            except BaseException:
                self.close()
                raise
            tokens = list(request.output_ids)
            self._over = request.finished
            if self._over:
                self._llm._settle()
            if self._over and request.error:
                raise request.error
            text = self._text.next(tokens, last=self._over)
            if text or self._over:
                piece = Piece(text, tuple(tokens[self._said :]), request.finish_reason)
                self._said = len(tokens)
                return piece
        raise StopIteration

    def close(self) -> None:
        """Abort what is left; its pages are back when this returns."""
        self._over = True
        self._llm._abandon([self._request])

    __del__ = close

    def __repr__(self) -> str:
        return f"Stream({self._request})"


@contextmanager
def deferred_interrupt() -> Iterator[list[tuple]]:
    """Let Ctrl-C wait until the block is over: ledgers cut off in the middle of a step could not be trusted.

    Gives the list of interrupts that wait, so that a long block can end early.
    """
    handler = signal.getsignal(signal.SIGINT)
    held: list[tuple] = []
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield held
        return
    signal.signal(signal.SIGINT, lambda *args: held.append(args))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])
