"""The offline API: outputs, errors, streams, interrupts, several engines."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest
import torch

from minisgl import LLM, Recorder, SamplingParams, whatif
from minisgl.errors import (
    ConditionError,
    ConfigError,
    EmptyPromptError,
    EngineClosedError,
    FixedSettingError,
    GhostPageError,
    ModelNotFoundError,
    PoolTooSmallError,
    PromptTooLongError,
    PromptTypeError,
    RequestError,
    SamplingParamsError,
    TokenOutOfVocabularyError,
    UnknownRequestError,
)
from minisgl.events import AbortRequested, BatchScheduled, RequestFinished, RequestRetracted
from minisgl.outputs import Detokenizer, Output
from tests.models.reference import reference_tokens
from tests.models.tiny import EOS, VOCAB_SIZE

FREE = SamplingParams(max_tokens=6, ignore_eos=True)


@pytest.fixture
def folder(tiny_folder):
    return tiny_folder("llama")


@pytest.fixture(params=[False, True], ids=["in turn", "overlap"])
def llm(folder, request):
    settings = {"num_pages": 64, "max_seq_len": 48, "max_running_requests": 4, "overlap": request.param}
    with LLM(folder, device="cpu", dtype="float32", check=True, poison=True, **settings) as llm:
        yield llm


def sound(llm):
    llm.check_integrity()
    c = llm.snapshot().counters
    return llm.idle and c["owned_pages"] == c["reserved_pages"] == c["protected_pages"] == c["running"] == 0


class TestGenerate:
    def test_texts_and_token_lists_in_order(self, llm, folder):
        tokens = llm.encode("hello there")
        outs = llm.generate(["hello there", [5, 6, 7], tokens], FREE)
        want = reference_tokens(folder, tokens, 6)
        assert [o.token_ids for o in outs] == [want, reference_tokens(folder, [5, 6, 7], 6), want]
        assert outs[0].prompt_token_ids == tokens and outs[0].text == llm.decode(want)
        assert [o.finish_reason for o in outs] == ["length"] * 3 and sound(llm)

    def test_one_prompt_gives_one_output(self, llm):
        assert isinstance(llm.generate("hi", FREE), Output)
        assert isinstance(llm.generate([5, 6], FREE), Output)
        assert llm.generate([], FREE) == []

    def test_params_each(self, llm):
        outs = llm.generate([[5, 6]] * 2, [FREE, SamplingParams(max_tokens=3, ignore_eos=True)])
        assert outs[1].token_ids == outs[0].token_ids[:3]
        with pytest.raises(SamplingParamsError, match=r"2 prompts and 1 params \(SamplingParams\)"):
            llm.generate([[5, 6]] * 2, [FREE])

    def test_max_tokens_defaults_to_16(self, llm):
        assert SamplingParams().max_tokens == 16

    def test_the_second_time_is_cached(self, llm):
        prompt = list(range(5, 25))
        first, second = llm.generate(prompt, FREE), llm.generate(prompt, FREE)
        assert (first.cached_tokens, second.cached_tokens) == (0, 19)
        assert first.token_ids == second.token_ids

    def test_end_token_stops_and_is_kept(self, llm, folder):
        prompt = next(
            [p, q] for p in range(2, 60) for q in range(2, 60) if EOS in reference_tokens(folder, [p, q], 12)[1:]
        )
        want = reference_tokens(folder, prompt, 12)
        out = llm.generate(prompt, SamplingParams(max_tokens=12))
        assert (out.token_ids, out.finish_reason) == (want[: want.index(EOS) + 1], "stop")

    def test_a_seed_gives_the_same_tokens_in_any_company(self, llm):
        params = SamplingParams(max_tokens=8, temperature=1.0, top_p=0.95, seed=7, ignore_eos=True)
        alone = llm.generate([5, 6, 7], params).token_ids
        together = llm.generate([[9, 9], [5, 6, 7], [8]], [FREE, params, FREE])
        other = llm.generate([5, 6, 7], SamplingParams(max_tokens=8, temperature=1.0, seed=8, ignore_eos=True))
        assert together[1].token_ids == alone != other.token_ids

    def test_reprs(self, llm):
        outs = llm.generate([[5, 6], []], FREE)
        assert repr(outs[0]).startswith("Output(uid=0, ") and "finish_reason='length'" in repr(outs[0])
        assert "no tokens" in repr(outs[1]) and outs._repr_html_().count("<tr>") == 3
        assert repr(llm).startswith("LLM(") and "pages=64x1, radix, float32 on cpu" in repr(llm)


every_bad_request = pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [
        ([], {}, EmptyPromptError),
        ([VOCAB_SIZE], {}, TokenOutOfVocabularyError),
        (list(range(2, 50)), {}, PromptTooLongError),
        ([5], {"max_tokens": 0}, SamplingParamsError),
        ([5], {"temperature": float("nan")}, SamplingParamsError),
    ],
)


class TestBadInput:
    @every_bad_request
    def test_alone_it_raises(self, llm, prompt, params, error):
        calls = [llm.submit, llm.stream] + [llm.generate] * bool(prompt)  # generate([]) asks for nothing
        for call in calls:
            with pytest.raises(error):
                call(prompt, SamplingParams(**params))
        assert llm.run_until_idle() == 1  # which announces the refusals
        assert sound(llm)

    @every_bad_request
    def test_in_a_list_it_fails_alone(self, llm, folder, prompt, params, error):
        outs = llm.generate([[5, 6], prompt, [7]], [FREE, SamplingParams(**params), FREE])
        assert isinstance(outs[1].error, error) and outs[1].finish_reason == "error" and outs[1].token_ids == []
        assert [outs[0].token_ids, outs[2].token_ids] == [reference_tokens(folder, p, 6) for p in ([5, 6], [7])]

    def test_more_than_the_pool(self, folder):
        llm = LLM(folder, device="cpu", page_size=4, num_pages=2, max_seq_len=48)
        with llm, pytest.raises(PoolTooSmallError, match="need 3 pages of 4 and the pool has 2"):
            llm.generate(list(range(2, 10)), SamplingParams(max_tokens=4))

    def test_unknown_model_and_settings(self, folder, tmp_path):
        with pytest.raises(ModelNotFoundError):
            LLM(tmp_path / "nothing")
        with pytest.raises(ConfigError, match="num_pages=1: must be an integer of at least 2"):
            LLM(folder, num_pages=1)
        with pytest.raises(ConfigError, match="unknown setting pages; the settings are num_pages"):
            LLM(folder, pages=8)

    def test_after_close(self, folder):
        llm = LLM(folder, device="cpu", num_pages=8)
        llm.close()
        with pytest.raises(EngineClosedError):
            llm.generate("hi")


NO_PROMPTS = [None, 5, b"ab", [1.5, 2], [5, "6"], "\ud800", [[5]], [None]]


class TestPrompts:
    @pytest.mark.parametrize("prompt", NO_PROMPTS, ids=repr)
    def test_what_is_none_fails_alone_by_name(self, llm, prompt):
        outs = llm.generate([[5, 6], prompt, "hello"], FREE)
        assert isinstance(outs[1].error, PromptTypeError) and outs[1].finish_reason == "error"
        assert [len(outs[i].token_ids) for i in (0, 2)] == [6, 6] and sound(llm)
        with pytest.raises(PromptTypeError):
            llm.submit(prompt)

    @pytest.mark.parametrize(
        "one",
        [(5, 6), range(5, 7), np.array([5, 6]), torch.tensor([5, 6]), lambda: (t for t in (5, 6)), [np.int64(5), 6]],
    )
    def test_a_row_of_ids_in_any_form_is_one_prompt(self, llm, folder, one):
        one = one() if callable(one) else one  # a generator gives once
        assert llm.generate(one, FREE).token_ids == reference_tokens(folder, [5, 6], 6)

    @pytest.mark.parametrize(
        "many", [np.array([[5, 6]]), [np.array([5, 6])], [torch.tensor([5, 6])], lambda: ([t, 6] for t in (5,))]
    )
    def test_rows_of_rows_are_several(self, llm, folder, many):
        (out,) = llm.generate(many() if callable(many) else many, FREE)
        assert out.token_ids == reference_tokens(folder, [5, 6], 6)

    def test_params_that_are_none(self, llm):
        with pytest.raises(SamplingParamsError, match=r"1 prompts and 1 params \(NoneType\)"):
            llm.generate([[5, 6]], [None])

    def test_a_refused_text_still_tells_its_tokens(self, llm):
        long = "hello " * 40
        assert llm.generate([long], FREE)[0].prompt_token_ids == llm.encode(long)


class TestByHand:
    def test_submit_step_output(self, llm, folder):
        uid = llm.submit([5, 6], FREE)
        assert llm.output(uid).finish_reason is None and not llm.idle
        event = llm.step()
        assert (event.step, event.phase, event.uids) == (1, "prefill", (uid,))
        assert llm.run_until_idle() == 5 + llm.config.overlap and llm.step() is None and llm.idle
        assert llm.output(uid).token_ids == reference_tokens(folder, [5, 6], 6)

    def test_abort(self, llm):
        uid = llm.submit([5, 6], FREE)
        llm.step()
        llm.abort(uid)
        llm.run_until_idle()
        assert llm.output(uid).finish_reason == "abort" and sound(llm)

    @pytest.mark.parametrize("call", ["abort", "output"])
    def test_unknown_uid(self, llm, call):
        with pytest.raises(UnknownRequestError, match="no request"):
            getattr(llm, call)(99)

    def test_generate_finishes_beside_what_was_submitted(self, llm, folder):
        uid = llm.submit([5, 6], SamplingParams(max_tokens=12, ignore_eos=True))
        assert llm.generate([7], FREE).token_ids == reference_tokens(folder, [7], 6)
        llm.run_until_idle()
        assert llm.output(uid).token_ids == reference_tokens(folder, [5, 6], 12)


class TestStream:
    def test_pieces_join_to_the_text(self, llm):
        whole = llm.generate("hello", FREE)
        pieces = list(llm.stream("hello", FREE))
        assert "".join(map(str, pieces)) == whole.text
        assert [t for p in pieces for t in p.token_ids] == whole.token_ids
        assert [p.finish_reason for p in pieces][-1] == "length" and sound(llm)

    @pytest.mark.parametrize("overlap", [False, True])
    def test_nothing_is_said_twice_after_a_retraction(self, folder, overlap):
        settings = {"num_pages": 24, "max_seq_len": 24, "overlap": overlap, "admission": "optimistic", "check": True}
        with LLM(folder, device="cpu", dtype="float32", **settings) as llm, Recorder(llm) as rec:
            first = llm.submit([9, 8, 7], SamplingParams(max_tokens=16, ignore_eos=True))
            pieces = list(llm.stream([5, 6], SamplingParams(max_tokens=14, ignore_eos=True)))
            llm.run_until_idle()
            whole = llm.decode(reference_tokens(folder, [5, 6], 14))
            assert llm.output(first).token_ids == reference_tokens(folder, [9, 8, 7], 16)
        (retracted,) = rec.trace.of(RequestRetracted)
        assert retracted.uid == 1 and retracted.lost > 5
        assert [t for p in pieces for t in p.token_ids] == reference_tokens(folder, [5, 6], 14)
        assert "".join(map(str, pieces)) == whole

    def test_leaving_the_loop_aborts(self, llm):
        with Recorder(llm) as rec:
            stream = llm.stream("hello", SamplingParams(max_tokens=30, ignore_eos=True))
            next(stream)
            stream.close()
        assert [e.reason for e in rec.trace.of(RequestFinished)] == ["abort"] and sound(llm)

    def test_one_that_is_never_begun_takes_nothing(self, llm):
        llm.stream("hello", FREE)
        llm.run_until_idle()
        assert sound(llm)

    def test_a_character_is_never_cut(self):
        """Each byte of a character may be a token of its own."""
        raw = "aé漢😀b".encode()
        detokenizer, said, tokens = Detokenizer(lambda ids: bytes(ids).decode(errors="replace")), [], []
        for i, byte in enumerate(raw):
            tokens.append(byte)
            said.append(detokenizer.next(tokens, last=i == len(raw) - 1))
        assert [s for s in said if s] == ["a", "é", "漢", "😀", "b"]

    def test_an_incomplete_end_is_still_said(self):
        detokenizer = Detokenizer(lambda ids: bytes(ids).decode(errors="replace"))
        assert detokenizer.next(list("é".encode()[:1]), last=True) == "\ufffd"


class TestChat:
    def test_uses_the_models_template(self, llm):
        out = llm.chat([{"role": "user", "content": "hi"}], FREE)
        assert llm.decode(out.prompt_token_ids) == "user: hi\n"

    def test_without_a_template(self, llm):
        llm.tokenizer.chat_template = None
        with pytest.raises(RequestError, match="no chat template"):
            llm.chat([{"role": "user", "content": "hi"}])


class TestFailure:
    """The device breaks during one batch."""

    @pytest.fixture
    def breaks_once(self, llm, monkeypatch):
        executor, launch = llm.scheduler.executor, llm.scheduler.executor.launch

        def broken(batch):
            monkeypatch.setattr(executor, "launch", launch)
            raise RuntimeError("out of memory")

        return lambda: monkeypatch.setattr(executor, "launch", broken)

    def test_one_prompt_raises_and_the_next_call_works(self, llm, folder, breaks_once):
        breaks_once()
        with pytest.raises(RuntimeError, match="out of memory"):
            llm.generate([5, 6], FREE)
        assert sound(llm) and llm.generate([5, 6], FREE).token_ids == reference_tokens(folder, [5, 6], 6)

    def test_a_list_gives_what_it_has(self, llm, folder, breaks_once):
        """Five prompts, four rows: the fifth is not in the batch that breaks."""
        breaks_once()
        outs = llm.generate([[5 + i, 6] for i in range(5)], FREE)
        assert [o.finish_reason for o in outs] == ["error"] * 4 + ["length"]
        assert "out of memory" in str(outs[0].error)
        assert outs[4].token_ids == reference_tokens(folder, [9, 6], 6) and sound(llm)

    def test_a_stream_raises(self, llm, breaks_once):
        breaks_once()
        with pytest.raises(RuntimeError, match="out of memory"):
            list(llm.stream([5, 6], FREE))
        assert sound(llm)


@pytest.fixture
def ctrl_c():
    """Python's own handler: a test run started in the background inherits one that ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
class TestPoison:
    def test_a_page_freed_too_early_is_named_at_the_next_read(self, llm):
        uid = llm.submit([5, 6, 7], FREE)
        llm.step()
        llm.scheduler.cache._poison.append(1)  # as if page 1, which holds the second token, had been freed
        says = rf"request {uid}, row 0, is about to read the KV of its token 1 from page 1, .* \(1 such token\)"
        with pytest.raises(GhostPageError, match=says):
            llm.run_until_idle()

    def test_what_nobody_owns_is_nan_and_what_somebody_owns_is_not(self, llm):
        llm.generate([[5, 6, 7], [5, 6, 8, 9]], FREE, progress=False)
        llm.generate([[40]], SamplingParams(max_tokens=1), progress=False)  # carries the last fills
        free = llm.snapshot().pages.owner == -1
        nan = llm.scheduler.executor.pool.data[:, :, :-1].isnan().flatten(3).all(-1).all(0).all(0).squeeze(-1).numpy()
        assert free.any() and not free.all() and (nan == free).all()


class TestInterrupt:
    def test_every_page_comes_back_and_the_next_call_is_right(self, llm, folder):
        """Ctrl-C in the middle of a forward: the step ends, the call's requests are aborted, then it is raised."""
        calls = []

        def interrupt(event):
            calls.append(event)
            if len(calls) == 3:
                signal.raise_signal(signal.SIGINT)

        with llm.on(BatchScheduled, interrupt), pytest.raises(KeyboardInterrupt):
            llm.generate([[5, 6, 7], [8, 9]], SamplingParams(max_tokens=30, ignore_eos=True))
        assert len(calls) == 3 and sound(llm)
        assert llm.generate([5, 6, 7], FREE).token_ids == reference_tokens(folder, [5, 6, 7], 6)

    def test_only_what_is_unfinished_is_aborted(self, llm):
        def interrupt(event):
            if event.step == 4:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)  # impatience changes nothing

        params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (2, 20)]
        aborted = []
        both = llm.on(BatchScheduled, interrupt), llm.on(AbortRequested, aborted.append)
        with both[0], both[1], pytest.raises(KeyboardInterrupt):
            llm.generate([[5], [6]], params)
        assert [e.uid for e in aborted] == [1] and sound(llm)

    def test_while_prompts_are_handed_in(self, llm, monkeypatch):
        encode = llm.encode
        monkeypatch.setattr(llm, "encode", lambda text: signal.raise_signal(signal.SIGINT) or encode(text))
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["one", "two"], FREE)
        assert sound(llm) and llm.step() is None

    def test_in_the_middle_of_a_stream(self, llm):
        with llm.on(BatchScheduled, lambda e: signal.raise_signal(signal.SIGINT) if e.step == 3 else None):
            stream = llm.stream([5, 6], SamplingParams(max_tokens=30, ignore_eos=True))
            with pytest.raises(KeyboardInterrupt):
                for _ in stream:
                    pass
        assert sound(llm)

    def test_a_step_by_hand_is_not_cut(self, llm):
        uid = llm.submit([5, 6], FREE)
        with llm.on(BatchScheduled, lambda e: signal.raise_signal(signal.SIGINT)), pytest.raises(KeyboardInterrupt):
            llm.step()
        assert llm.snapshot().requests[uid].status == "running" and llm.scheduler.steps == 1
        llm.run_until_idle()
        assert sound(llm)


class TestCompany:
    def test_engines_of_one_model_share_its_weights(self, llm, folder):
        with LLM(folder, device="cpu", dtype="float32", num_pages=16, page_size=4) as second:
            runners = [each.scheduler.executor.runner for each in (llm, second)]
            weights = [getattr(runner, "decoder", None) or runner.model for runner in runners]
            assert weights[0] is weights[1]
            assert second.generate([5, 6], FREE).token_ids == llm.generate([5, 6], FREE).token_ids

    def test_two_engines_in_one_process(self, llm, folder, tiny_folder):
        other = tiny_folder("qwen3")
        with LLM(other, device="cpu", num_pages=64, page_size=4, check=True) as second:
            a, b = llm.submit([5, 6], FREE), second.submit([5, 6], FREE)
            while llm.step() or second.step():
                pass
            second.run_until_idle()
            assert llm.output(a).token_ids == reference_tokens(folder, [5, 6], 6)
            assert second.output(b).token_ids == reference_tokens(other, [5, 6], 6)

    def test_a_recorder_beside_another_thread_misses_nothing(self, llm):
        stop = threading.Event()

        def work():
            while not stop.is_set():
                llm.generate([[5, 6], [7]], FREE, progress=False)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(30):
                with Recorder(llm) as rec:
                    llm.generate([8], SamplingParams(max_tokens=2, ignore_eos=True), progress=False)
                steps = rec.trace.steps.step.tolist()
                assert steps == list(range(rec.trace.keyframe["step"] + 1, steps[-1] + 1))
        finally:
            stop.set()
            thread.join(60)

    def test_several_threads_on_one_engine(self, llm, folder):
        prompts = [[5 + i, 6] for i in range(6)]
        results: dict[int, list[int]] = {}

        def work(i):
            results[i] = llm.generate(prompts[i], FREE, progress=False).token_ids

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert [results[i] for i in range(6)] == [reference_tokens(folder, p, 6) for p in prompts] and sound(llm)


class TestLiveControl:
    def test_run_until(self, llm):
        for prompt in ([5, 6, 7], [5, 6, 8]):
            llm.submit(prompt, FREE)
        stop = llm.run_until("finish of request 1")
        assert (stop.event.uid, stop.end.step) == (1, llm.snapshot().step)
        assert llm.run_until("eviction").event is None and llm.idle
        with pytest.raises(ConditionError, match="'free < 8'"):
            llm.run_until("free <")

    def test_settings_change_between_steps_and_no_token_does(self, llm, folder):
        llm.submit([5, 6, 7], FREE)
        llm.step()
        with Recorder(llm) as recorder:
            llm.change(order="lpm", phase="mixed")
            uid = llm.submit([5, 6, 7, 8], FREE)
            assert llm.config.order == "fcfs"  # not before the next step
            llm.run_until_idle()
        assert llm.output(uid).token_ids == reference_tokens(folder, [5, 6, 7, 8], 6)
        assert (llm.config.order, llm.config.phase) == ("lpm", "mixed")
        assert recorder.trace.about["config"]["order"] == "fcfs" and len(whatif(recorder.trace).diff) == 0
        with pytest.raises(FixedSettingError, match="laid out when the engine starts"):
            llm.change(num_pages=128)

    def test_rewind_gives_the_same_events_and_then_goes_another_way(self, llm, folder):
        hot = SamplingParams(max_tokens=6, temperature=1.0, ignore_eos=True)
        with Recorder(llm) as recorder:
            uids = [llm.submit(prompt, hot) for prompt in ([5, 6, 7], [5, 6, 8], [9] * 8)]
            llm.run_until_idle()
        trace, before = recorder.trace, [llm.output(uid).token_ids for uid in uids]
        taking = llm.rewind(trace, 3)
        with Recorder(llm) as again:
            assert [e.step for e in taking] == [1, 2, 3]
            assert len(llm.output(uids[0]).token_ids) in (2, 3)  # overlap knows one less
            llm.submit([5, 6, 7], FREE)
            llm.run_until_idle()
        assert again.trace.diff(trace).first.step == 4
        assert [llm.output(uid).token_ids for uid in uids] == before  # who sits beside it changes nothing
        assert sound(llm)

    def test_rewind_ends_what_runs(self, llm):
        with Recorder(llm) as recorder:
            running = llm.stream([5, 6, 7], FREE)
            next(running)
        late = llm.submit([1, 2], FREE)
        for _ in llm.rewind(recorder.trace, 1):
            pass
        assert llm.output(late).finish_reason == "abort"
        assert llm.snapshot().step == 1 and list(llm.snapshot().requests) == [0]
        llm.run_until_idle()
        assert sound(llm)
