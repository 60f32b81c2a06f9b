"""Answers on runs so small that the true answer is known."""

from __future__ import annotations

import json
import math
import re

import msgspec
import numpy as np
import pytest

from minisgl.config import EngineConfig
from minisgl.core import SamplingParams
from minisgl.errors import ConfigError, ModelNotFoundError, UnknownQuestionError, UnknownRequestError
from minisgl.events import types as ev
from minisgl.events.recorder import Recorder
from minisgl.sim.answers import QUESTIONS, Shape, blame, explain, hits, lens, reservations, size, verify
from minisgl.sim.simulator import Simulator
from minisgl.sim.workload import Arrival, Workload
from tests.fakes import Run, expected


def recorded(*prompts, max_tokens=8, then=(), **settings):
    """A run of all prompts submitted at once, and of those in ``then`` when it is over."""
    run = Run(**settings)
    with Recorder(run) as recorder:
        for batch in (prompts, then):
            for prompt in batch:
                run.submit(prompt, max_tokens)
            run.play()
    return recorder.trace


def distinct(*lengths):
    return [list(range(100 * i, 100 * i + n)) for i, n in enumerate(lengths)]


def rows(answer, *columns):
    return [tuple(row[c] for c in columns) for row in answer.data.rows()]


def oracle():
    """The published admission example: the fifth request waits for the first four."""
    return recorded(*distinct(5, 5, 4, 15, 5), prefix_cache="naive")


class TestWaiting:
    def test_for_pages(self):
        answer = explain(oracle(), "why waiting", 4)
        assert rows(answer, "cause", "tested", "steps", "need", "promised", "had", "short") == [
            ("pages", 4, 8, 13, 28, 35, 6)
        ]
        assert "spent 8 steps" in answer.text and "(7 to request 0, 7 to request 1" in answer.text
        assert "then requests 0, 1, 2, 3 ended (step 8, RequestFinished)" in answer.text
        assert "admitted (step 9, RequestAdmitted)" in answer.text
        assert [type(e) for e in answer.events if e.step == 9] == [
            ev.RequestAdmitted,
            ev.AdmissionTested,
            ev.RequestAdmitted,
        ]

    def test_not_at_all(self):
        answer = explain(oracle(), "why waiting", 0)
        assert "did not wait at all" in answer.text and not len(answer.data) and answer.facts["steps"] == 0

    def test_for_a_row(self):
        answer = explain(recorded(*distinct(3, 3), max_tokens=4, max_running_requests=1), "why waiting", 1)
        assert rows(answer, "cause", "tested", "steps") == [("row", 1, 4)]
        assert "all taken by request 0" in answer.text
        assert "request 0 gave its row back (step 4, RowReleased)" in answer.text

    def test_for_the_budget(self):
        answer = explain(recorded(*distinct(5, 5), max_prefill_tokens=5), "why waiting", 1)
        assert rows(answer, "cause", "steps") == [("budget", 1)]

    def test_for_an_unfinished_prompt(self):
        trace = recorded(*distinct(61, 5, 5), max_tokens=3, max_prefill_tokens=16, num_pages=128)
        answer = explain(trace, "why waiting", 1)
        assert rows(answer, "cause", "steps") == [("chunk", 3)]
        assert "an unfinished prompt of request 0 goes first" in answer.text
        # the third waits for the first, and then for what the second left of a batch
        assert rows(explain(trace, "why waiting", 2), "cause", "tested", "steps") == [("chunk", 1, 3), ("chunk", 2, 1)]

    def test_behind_a_large_one_though_it_would_have_fitted(self):
        trace = recorded(*distinct(20, 30, 2), max_tokens=4, num_pages=48)
        answer = explain(trace, "why waiting", 2)
        assert rows(answer, "cause", "tested", "steps") == [("pages", 1, 4)]
        assert "behind request 1, which was refused" in answer.text
        assert "Request 2 itself would have fitted" in answer.text
        assert "itself would have fitted" not in explain(trace, "why waiting", 1).text

    def test_what_ended_it_is_what_came_last(self):
        run = Run(order="shortest", prefix_cache="naive", num_pages=30)
        with Recorder(run) as recorder:
            run.submit(list(range(10)), 4)
            run.submit(list(range(20)), 8)
            run.scheduler.step()
            run.submit([1, 2], 2)  # overtakes, and the second is refused once more
            run.play()
        answer = explain(recorder.trace, "why waiting", 1)
        assert rows(answer, "cause", "tested", "steps") == [("pages", 1, 5)]
        assert "then request 0 ended (step 5, RequestFinished)" in answer.text

    def test_while_others_decode(self):
        run = Run(phase="decode-first")
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 5)
            run.scheduler.step()
            run.submit([4, 5, 6], 5)
            run.play()
        answer = explain(recorder.trace, "why waiting", 1)
        assert rows(answer, "cause", "first_step", "steps") == [("phase", 2, 4)]

    def test_after_a_retraction(self):
        trace = recorded(*distinct(4, 4), max_tokens=8, num_pages=18, admission="optimistic")
        (retracted,) = trace.of(ev.RequestRetracted)
        answer = explain(trace, "why waiting", retracted.uid)
        assert answer.facts["retractions"] == 1
        assert rows(answer, "cause", "first_step")[0] == ("retracted", retracted.step)
        assert f"It was retracted 1 time (step {retracted.step}, RequestRetracted)" in answer.text

    def test_in_vain(self):
        run = Run(max_running_requests=1)
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 9)
            run.submit([4, 5, 6], 9)
            run.scheduler.step()
            run.scheduler.step()
            run.scheduler.abort(1)
            run.play()
        answer = explain(recorder.trace, "why waiting", 1)
        assert "never got in: it ended by abort (step 3, RequestFinished)" in answer.text
        assert rows(answer, "cause", "steps") == [("row", 2)]

    def test_still(self):
        run = Run(max_running_requests=1)
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 9)
            run.submit([4, 5, 6], 9)
            run.scheduler.step()
            run.scheduler.step()
        answer = explain(recorder.trace, "why waiting", 1)
        assert answer.facts["still"] and "waits still at the end of the record" in answer.text

    def test_since_before_the_record(self):
        run = Run(max_running_requests=1)
        run.submit([1, 2, 3], 3)
        run.submit([4, 5, 6], 3)
        run.scheduler.step()
        run.scheduler.step()
        with Recorder(run) as recorder:
            run.play()
        answer = explain(recorder.trace, "why waiting", 1)
        assert rows(answer, "cause", "steps") == [("before", 1)]
        assert "waited when the record began and was admitted (step 4" in answer.text
        assert "how long it had waited is unknown" in explain(recorder.trace, "why waiting", 0).text

    def test_until_it_was_seen(self):
        prompt = np.arange(5, dtype=np.int32)
        params = SamplingParams(max_tokens=4)
        late = Arrival(at=0.001, prompt=prompt + 9, params=params)
        simulator = Simulator(EngineConfig(num_pages=64, max_seq_len=64))
        with Recorder(simulator) as recorder:
            simulator.run(Workload((Arrival(at=0.0, prompt=prompt, params=params), late)))
        trace = recorder.trace
        answer = explain(trace, "why waiting", 1)
        assert rows(answer, "cause", "steps") == [("unseen", 0)]
        assert answer.facts["time"] == trace.requests.queue_time[1] == pytest.approx(trace.steps.t[0] - 0.001)


class TestMissed:
    def parts(self, trace, uid):
        return rows(explain(trace, "why missed", uid), "cause", "start", "end")

    def test_never_seen(self):
        assert self.parts(recorded([1, 2, 3, 4]), 0) == [("new", 0, 3), ("last", 3, 4)]

    def test_the_last_token(self):
        trace = recorded([1, 2, 3, 4], then=[[1, 2, 3, 4]])
        assert self.parts(trace, 1) == [("matched", 0, 3), ("last", 3, 4)]

    def test_the_last_token_takes_its_page_along(self):
        prompt = list(range(8))
        trace = recorded(prompt, then=[prompt], page_size=4)
        assert self.parts(trace, 1) == [("matched", 0, 4), ("last", 4, 8)]
        assert "the whole page of 4" in explain(trace, "why missed", 1).text

    def test_less_than_a_page_in_common(self):
        trace = recorded([1, 2, 3, 4, 5, 6], then=[[1, 2, 3, 9, 9, 9, 9, 9, 9]], page_size=4)
        assert self.parts(trace, 1) == [("rounding", 0, 3), ("new", 3, 8), ("last", 8, 9)]
        answer = explain(trace, "why missed", 1)
        assert "the shared part ends 3 tokens into a page of 4" in answer.text
        assert "its token 3 is 9 ('<9>'), where request 0 has 4 ('<4>')" in answer.text
        assert "found 0 of its 9 prompt tokens in the cache (0%)" in answer.text

    def test_evicted(self):
        prompt = list(range(8))
        run = Run(num_pages=16, max_seq_len=16)
        with Recorder(run) as recorder:
            for each in (prompt, list(range(500, 510)), prompt):
                run.submit(each, 4)
                run.play()
        trace = recorder.trace
        answer = explain(trace, "why missed", 2)
        (part,) = [r for r in answer.data.rows() if r["cause"] == "evicted"]
        (eviction,) = [e for e in trace.of(ev.PagesEvicted) if part["node"] in e.nodes]
        assert (part["start"], part["end"], part["other"], part["step"]) == (0, 7, 1, eviction.step)
        assert trace.at(eviction.step - 1).tree[part["node"]].tokens == tuple(prompt)
        assert f"evicted to make room for request 1 (step {eviction.step}, PagesEvicted)" in answer.text

    def test_cleared(self):
        run = Run()
        with Recorder(run) as recorder:
            run.submit([1, 2, 3, 4], 2)
            run.play()
            run.scheduler.clear_cache()
            run.submit([1, 2, 3, 4], 2)
            run.play()
        assert self.parts(recorder.trace, 1) == [("evicted", 0, 3), ("last", 3, 4)]
        assert "when somebody cleared the cache" in explain(recorder.trace, "why missed", 1).text

    def test_twins_in_one_step(self):
        trace = recorded([1, 2, 3, 4], [1, 2, 3, 4])
        assert self.parts(trace, 1) == [("in flight", 0, 3), ("last", 3, 4)]
        assert "request 0, admitted in the same step (step 1, RequestAdmitted)" in explain(trace, "why missed", 1).text

    def test_a_twin_that_is_not_done_yet(self):
        run = Run(overlap=True)
        with Recorder(run) as recorder:
            run.submit([1, 2, 3, 4], 2)
            run.scheduler.step()
            run.submit([1, 2, 3, 4], 2)
            run.play()
        assert self.parts(recorder.trace, 1) == [("in flight", 0, 3), ("last", 3, 4)]
        assert "admitted before it (step 1, RequestAdmitted)" in explain(recorder.trace, "why missed", 1).text

    def test_given_up(self):
        prompt = list(range(16))
        run = Run(overlap=True, page_size=4, max_prefill_tokens=8)
        with Recorder(run) as recorder:
            run.submit(prompt, 2)
            run.scheduler.step()
            run.scheduler.abort(0)  # its first half is being computed
            run.play()
            run.submit(prompt, 2)
            run.play()
        assert self.parts(recorder.trace, 1) == [("given up", 0, 8), ("new", 8, 15), ("last", 15, 16)]
        assert rows(hits(recorder.trace), "asked", "matched", "given up", "new", "last")[1] == (16, 0, 8, 7, 1)

    def test_naive(self):
        trace = recorded([1, 2, 3, 4], then=[[1, 2, 3, 4]], prefix_cache="naive")
        assert self.parts(trace, 1) == [("naive", 0, 3), ("last", 3, 4)]

    def test_output_of_another_request_counts(self):
        prompt = [1, 2, 3]
        longer = [*prompt, *expected(prompt, 4), 7, 7]
        trace = recorded(prompt, then=[longer], max_tokens=4)
        # the last token put out has no KV: it is the first that had not been computed
        assert self.parts(trace, 1) == [("matched", 0, 6), ("new", 6, 8), ("last", 8, 9)]
        assert "request 0 has not come further" in explain(trace, "why missed", 1).text

    def test_the_look_up(self):
        run = Run()
        with Recorder(run) as recorder:
            for prompt in ([1, 2, 3, 4], [1, 2, 5, 6], [1, 2, 5, 7, 8]):
                run.submit(prompt, 1)
                run.play()
        text = explain(recorder.trace, "why missed", 2).text
        (match,) = [e for e in recorder.trace.of(ev.PrefixMatched) if e.uid == 2]
        a, b = match.path
        assert f"The look-up: root -> node {a} [0:2] -> node {b} [2:3]; it broke at token 3" in text

    def test_never_admitted(self):
        run = Run(max_running_requests=1)
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 9)
            run.submit([4, 5, 6], 9)
            run.scheduler.step()
        assert "never got in" in explain(recorder.trace, "why missed", 1).text


class TestSlow:
    def test_a_long_prompt_freezes_decoding(self):
        run = Run(max_prefill_tokens=8, num_pages=128)
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 6)
            run.scheduler.step()
            run.submit(list(range(100, 132)), 2)
            run.play()
        answer = explain(recorder.trace, "why slow", 0)
        assert sorted(rows(answer, "part", "steps")) == [("decode", 5), ("others", 4), ("prefill", 1)]
        assert "the longest stretch was steps 2 to 5" in answer.text and "32 tokens of request 1" in answer.text

    def test_mixed_batches_go_on_decoding(self):
        run = Run(max_prefill_tokens=8, num_pages=128, phase="mixed")
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 12)
            run.scheduler.step()
            run.submit(list(range(100, 114)), 2)
            run.play()
        assert sorted(rows(explain(recorder.trace, "why slow", 0), "part", "steps")) == [
            ("decode", 9),
            ("mixed", 2),
            ("prefill", 1),
        ]

    def test_a_retraction(self):
        trace = recorded(*distinct(4, 4), max_tokens=8, num_pages=18, admission="optimistic")
        (retracted,) = trace.of(ev.RequestRetracted)
        answer = explain(trace, "why slow", retracted.uid)
        assert answer.facts["lost"] == retracted.lost > 0
        assert answer.facts["requeued_time"] > 0 and answer.facts["recompute_time"] > 0
        assert f"Retracted (step {retracted.step}, RequestRetracted)" in answer.text
        other = explain(trace, "why slow", 1 - retracted.uid)
        assert other.facts["retractions"] == other.facts["recompute_time"] == 0

    def test_the_queue(self):
        answer = explain(oracle(), "why slow", 4)
        assert rows(answer, "part", "steps") == [("queue", 8), ("decode", 7), ("prefill", 1)]
        assert "Request 4 took 16.0 ms and 16 steps" in answer.text


class TestBlame:
    def test_the_one_who_held_the_pages(self):
        answer = blame(recorded(*distinct(40, 3, 20), max_tokens=8), 2)
        assert rows(answer, "left_out", "admitted_step", "steps_earlier") == [(0, 1, 8), (1, 9, 0)]
        assert "Without request 0" in answer.text and "any one of request 1 alone would not have helped" in answer.text

    def test_effects_are_not_additive(self):
        answer = blame(oracle(), 4)
        assert [r[1] for r in rows(answer, "left_out", "steps_earlier")] == [8, 8, 8, 8]
        assert (
            answer.facts["together"] == 8
            and "they come to 32 steps, with requests 0, 1, 2, 3 left out together it is 8" in answer.text
        )

    def test_two_who_are_each_enough(self):
        answer = blame(recorded(*distinct(24, 24, 24), max_tokens=8, num_pages=64, max_running_requests=1), 2)
        assert [r[1] for r in rows(answer, "left_out", "steps_earlier")] == [8, 8]
        assert answer.facts["together"] == 16

    def test_a_large_one_ahead_in_the_queue(self):
        trace = recorded(*distinct(20, 30, 2), max_tokens=4, num_pages=48)
        assert (1, 4) in rows(blame(trace, 2), "left_out", "steps_earlier")

    def test_one_who_was_there_at_the_start(self):
        run = Run(max_running_requests=1)
        run.submit([1, 2, 3], 6)
        run.scheduler.step()
        with Recorder(run) as recorder:
            run.submit([4, 5, 6], 3)
            run.play()
        assert rows(blame(recorder.trace, 1), "left_out", "admitted_step", "steps_earlier") == [(0, 2, 5)]

    def test_steps_without_anything_to_do_still_count(self):
        run = Run(max_running_requests=1)
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 6)
            for _ in range(3):
                run.scheduler.step()
            run.submit([4, 5, 6], 3)
            run.play()
        assert rows(blame(recorder.trace, 1), "left_out", "admitted_step", "steps_earlier") == [(0, 4, 3)]

    def test_nobody(self):
        answer = blame(oracle(), 0)
        assert answer.text.startswith("Nobody") and not len(answer.data)

    def test_never_admitted(self):
        run = Run(max_running_requests=1)
        with Recorder(run) as recorder:
            run.submit([1, 2, 3], 9)
            run.submit([4, 5, 6], 9)
            run.scheduler.step()
            run.scheduler.abort(1)
            run.play()
        answer = blame(recorder.trace, 1)
        assert "never got in" in answer.text and rows(answer, "left_out", "steps_earlier") == [(0, 1)]


class TestReservations:
    def trace(self):
        """Request 0 may generate 40 tokens and stops after 3; request 1 waits for it."""
        run = Run(num_pages=64, prefix_cache="naive")
        prompt = [1, 2, 3, 4]
        with Recorder(run) as recorder:
            run.submit(prompt, 40, stop_token_ids=(expected(prompt, 3)[-1],))
            run.submit([5, 6, 7, 8], 30)
            run.submit([5, 6, 7, 9], 10)
            run.play()
        return recorder.trace

    def test_by_request(self):
        answer = reservations(self.trace())
        assert rows(answer, "uid", "output_tokens", "promised", "used", "unused", "end") == [
            (0, 3, 44, 6, 38, "stop"),
            (1, 30, 34, 33, 1, "length"),
            (2, 10, 14, 13, 1, "length"),
        ]
        assert (answer.facts["promised"], answer.facts["used"], answer.facts["unused"]) == (92, 52, 40)
        assert (
            "Request 0 was promised 44 and took 6: stop after 3 of 40 tokens (step 3, RequestFinished)" in answer.text
        )

    def test_over_time(self):
        over_time = reservations(self.trace()).facts["over_time"]
        assert next(over_time.rows()) == {"step": 1, "occupied": 4, "promised": 39, "unused": 37}

    def test_who_would_have_fitted(self):
        answer = reservations(self.trace())
        # 64 - 6 leave 58 pages: room for 33 and 13
        assert answer.facts["would_have_fitted"] == 2
        assert "2 waiting requests would have fitted" in answer.text
        assert answer.facts["optimistic_queue_time_mean"] < answer.facts["modelled_queue_time_mean"]

    def test_nobody_was_kept_out(self):
        answer = reservations(recorded([1, 2, 3], max_tokens=4))
        assert "promises kept nobody out" in answer.text and answer.facts["would_have_fitted"] == 0

    def test_optimistic_takes_more_than_it_promises(self):
        answer = reservations(recorded([1, 2, 3], max_tokens=8, admission="optimistic"))
        assert rows(answer, "promised", "used", "unused") == [(4, 10, -6)]
        assert "more than promised" in answer.text and "optimistic already" in answer.text


class TestSize:
    @pytest.mark.parametrize(
        ("model", "per_token", "gib", "tokens"),
        [
            ("Qwen/Qwen3-0.6B", 114_688, 4, 37_449),
            ("qwen3-0.6b", 114_688, 40, 374_491),
            ("meta-llama/Llama-3.1-8B", 131_072, 64, 524_288),
            ((32, 8, 128), 131_072, 64, 524_288),
        ],
    )
    def test_published_figures(self, model, per_token, gib, tokens):
        facts = size(model, gib=gib).facts
        assert (facts["bytes_per_token"], facts["tokens"]) == (per_token, tokens)

    def test_how_many_at_once(self):
        answer = size("llama-3.1-8b", gib=1, page_size=16, length=1000)
        assert answer.facts["pages"] == 512 and answer.facts["pages_per_request"] == 63
        assert answer.facts["at_once"] == 8 and "8 such requests at once, 8 pages left" in answer.text
        assert answer.picture.count("<rect") == 9

    def test_how_big(self):
        facts = size("llama-3.1-8b", page_size=16, length=1000, requests=20).facts
        assert facts["pool_pages"] == 1260 and facts["pool_bytes"] == 1260 * 16 * 131_072
        assert "pages" not in facts

    def test_how_long(self):
        assert size("llama-3.1-8b", gib=1, page_size=16, requests=5).facts["longest"] == 512 // 5 * 16

    def test_everything_given(self):
        assert "They fit." in size("llama-3.1-8b", gib=1, page_size=16, requests=8, length=1000).text
        assert "55 pages are missing" in size("llama-3.1-8b", gib=1, page_size=16, requests=9, length=1000).text

    def test_shapes(self, tmp_path):
        raw = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
        (tmp_path / "config.json").write_text(json.dumps(raw))
        for model in (tmp_path, str(tmp_path), Shape(4, 2, 8), (4, 2, 8)):
            assert size(model, dtype="float32").facts["bytes_per_token"] == 2 * 4 * 2 * 8 * 4

    @pytest.mark.parametrize(
        ("model", "given", "says"),
        [
            ("gpt-9", {}, "'gpt-9' is no model whose shape is known"),
            (None, {}, "None is no model"),
            ("qwen3-0.6b", {"gib": math.nan}, "gib=nan: must be a finite number above 0"),
            ("qwen3-0.6b", {"gib": True}, "gib=True"),
            ("qwen3-0.6b", {"page_size": 0}, "page_size=0: must be an integer of at least 1"),
            ("qwen3-0.6b", {"requests": 0}, "requests=0"),
            ("qwen3-0.6b", {"length": 2.5}, "length=2.5"),
            ("qwen3-0.6b", {"dtype": "int3"}, "dtype='int3': must be one of"),
        ],
    )
    def test_mistakes(self, model, given, says):
        with pytest.raises(ConfigError, match=says):
            size(model, **given)

    def test_folders_that_say_nothing(self, tmp_path):
        with pytest.raises(ModelNotFoundError, match="has no config.json"):
            size(tmp_path)
        for text in ("{", "[]", "{}", '{"num_attention_heads": 0, "hidden_size": 8}'):
            (tmp_path / "config.json").write_text(text)
            with pytest.raises(ConfigError, match="does not say the model's shape"):
                size(tmp_path)


class TestAnswer:
    def test_forms(self):
        answer = explain(oracle(), "why waiting", 4)
        html = answer._repr_html_()
        assert repr(answer).splitlines()[0] == "Why did request 4 wait?"
        assert all(f"  {said}" in repr(answer) and f"<li>{said}</li>" in html for said in answer.text.splitlines())
        assert html.count("<svg") == html.count("</svg>") == 1 and "<table>" in html and "<script" not in html
        assert 'fill="currentColor"' in answer.picture  # it must be readable on dark and on light

    def test_where_its_picture_is_dropped_the_words_left_over_stand_apart_and_are_explained(self):
        answer = explain(oracle(), "why waiting", 4)
        left = re.sub("<[^>]*>", "", answer.picture)  # what a viewer that trusts nobody keeps
        assert left.startswith(
            "[A picture is left out here until the cell is run; the words in it: request 4 Steps 1 to 8"
        )
        assert " p step 1 step 8, after " in left and " ]p not enough pages" in left

    def test_texts_are_escaped(self):
        html = explain(recorded([1, 2, 3], then=[[1, 9, 9]]), "why missed", 1)._repr_html_()
        assert "<9>" not in html and "&lt;9&gt;" in html

    def test_cited_events_are_the_records_own(self):
        trace = oracle()
        for question in QUESTIONS:
            answer = explain(trace, question, 4)
            assert answer.events and all(e in trace.events for e in answer.events)

    def test_unknown_questions(self):
        with pytest.raises(UnknownQuestionError, match="'why not' .* 'why waiting', 'why missed', 'why slow'"):
            explain(oracle(), "why not", 4)

    @pytest.mark.parametrize("ask", [*(lambda t, u, q=q: explain(t, q, u) for q in QUESTIONS), blame])
    def test_unknown_and_refused_requests(self, ask):
        run = Run(num_pages=8, max_seq_len=32)
        with Recorder(run) as recorder:
            with pytest.raises(ValueError, match="need"):
                run.submit([1, 2, 3], 20)
            run.submit([1, 2, 3], 2)
            run.play()
        with pytest.raises(UnknownRequestError, match="no request of this record has uid 7; it holds 0, 1"):
            ask(recorder.trace, 7)
        answer = ask(recorder.trace, 0)
        assert "refused when it was submitted (step 1, RequestRejected)" in answer.text and answer.facts["rejected"]

    def test_names_of_the_package(self):
        import minisgl

        for name in ("explain", "blame", "reservations", "size"):
            assert getattr(minisgl, name).__module__.startswith("minisgl.sim.answers") and name in dir(minisgl)


class Engine:
    """What ``size`` asks of an LLM."""

    def about(self):
        return {
            "model": "tiny",
            "shape": {"layers": 2, "kv_heads": 4, "head_dim": 2, "params": 1000},
            "config": {"num_pages": 64, "page_size": 4, "dtype": "float32"},
        }


class TestSizeOfARun:
    def test_its_own_pool(self):
        answer = size(Engine(), length=10)
        facts = answer.facts
        assert (facts["bytes_per_token"], facts["page_bytes"]) == (2 * 2 * 4 * 2 * 4, 512)
        assert (facts["pages"], facts["tokens"], facts["bytes"]) == (64, 256, 64 * 512)
        assert (facts["pages_per_request"], facts["at_once"], facts["weight_bytes"]) == (3, 21, 4000)
        assert "tiny: one token's KV takes 2 x 2 layers x 4 KV heads x 2 x 4 bytes = 128 bytes" in answer.text
        assert "The pool of 3.05e-05 GiB has 64 pages: 256 tokens." in answer.text

    def test_what_is_given_goes_first(self):
        facts = size(Engine(), gib=1, page_size=1, dtype="float16").facts
        assert (facts["bytes_per_token"], facts["pages"]) == (64, (1 << 30) // 64)
        assert "They do not fit: 1 page is missing." in size(Engine(), requests=13, length=20).text

    def test_a_record(self):
        trace = oracle()
        with pytest.raises(ConfigError, match=r"this run \(hash\) does not say its model's shape; name a model"):
            size(trace)
        trace.about["shape"] = Engine().about()["shape"]
        trace.about["config"]["dtype"] = "bfloat16"
        assert size(trace).facts["bytes"] == 64 * 64

    def test_int8_weights_take_a_byte_each(self):
        trace = oracle()
        trace.about |= Engine().about()
        trace.about["config"]["quantize"] = "int8"
        answer = size(trace, length=10)
        assert (answer.facts["weight_bytes"], answer.facts["bytes_per_token"]) == (1000, 128)
        assert "GiB of weights (int8; their scales come on top)" in answer.text  # an older record does not know them
        trace.about["shape"] |= {"int8_bytes": 1100}
        answer = size(trace, length=10)
        assert answer.facts["weight_bytes"] == 1100 and "GiB of weights (int8, with their scales)" in answer.text
        trace.about["config"]["quantize"] = None
        assert size(trace).facts["weight_bytes"] == 4000

    def test_a_record_of_another_program(self):
        trace = oracle()
        shape = {"layers": 2, "kv_heads": 4, "head_dim": 2}
        trace.about = {"shape": shape | {"experts": 8}, "config": None}
        assert "this model: one token's KV takes 2 x 2 layers x 4 KV heads x 2 x 2 bytes" in size(trace, gib=1).text
        trace.about = {"model": "Qwen3-0.6B", "shape": {"layers": "many"}}
        assert "x 28 layers" in size(trace, gib=1).text
        for about in ({"shape": shape | {"layers": None}}, {"shape": 7}, {"shape": {}, "model": None}):
            trace.about = about
            with pytest.raises(ConfigError, match="does not say its model's shape"):
                size(trace, gib=1)


class TestHits:
    def test_known_look_ups(self):
        trace = recorded([1, 2, 3, 4, 5, 6], then=[[1, 2, 3, 4, 9, 9, 9, 9, 9]], page_size=4)
        answer = hits(trace)
        columns = ("uid", "asked", "matched", "rounding", "new", "last")
        assert rows(answer, *columns) == [(0, 6, 0, 0, 5, 1), (1, 9, 4, 0, 4, 1)]
        assert (answer.facts["hit"], answer.facts["asked"], answer.facts["new"]) == (4, 15, 9)
        assert answer.text.startswith("2 requests asked for 15 prompt tokens, and 4 of them (26.7%)")
        assert (
            "new: 9 tokens (60.0%): never computed before; most in request 0, 5 tokens (step 1, RequestAdm"
            in answer.text
        )
        assert answer.picture.count("<rect") == 3

    def test_evicted(self):
        prompt = list(range(8))
        run = Run(num_pages=16, max_seq_len=16)
        with Recorder(run) as recorder:
            for each in (prompt, list(range(500, 510)), prompt):
                run.submit(each, 4)
                run.play()
        assert rows(hits(recorder.trace), "uid", "matched", "evicted", "last")[2] == (2, 0, 7, 1)

    def test_nobody(self):
        run = Run()
        with Recorder(run) as recorder:
            run.scheduler.clear_cache()
            run.play()
        assert hits(recorder.trace).facts["asked"] == 0


class TestVerify:
    def test_a_true_record(self):
        answer = verify(oracle())
        assert answer.facts == {"differences": 0, "steps": 16, "events": len(oracle())}
        assert answer.text.startswith("0 differences in ") and not answer.events

    def test_one_that_lies(self):
        trace = oracle()
        at = next(i for i, e in enumerate(trace.events) if isinstance(e, ev.AdmissionTested) and e.step == 9)
        trace.events[at] = msgspec.structs.replace(trace.events[at], need=99)
        answer = verify(trace)
        assert answer.facts["differences"] == 1 and rows(answer, "step", "differences") == [(9, 1)]
        assert "the first in step 9, AdmissionTested" in answer.text and "need: 99, 13" in answer.text
        assert answer.to_dict()["events"] == [{"step": 9, "type": "AdmissionTested"}]


class TestLens:
    def test_tails_and_tables_are_arithmetic(self):
        trace = recorded(*distinct(5, 6), max_tokens=4, num_pages=64)  # 8 and 9 tokens of KV at their ends
        answer = lens(trace, [1, 2, 4, 8])
        columns = ("page_size", "pages", "kept", "tail", "table", "longest")
        assert rows(answer, *columns) == [
            (1, 64, 17, 0, 17, 9),
            (2, 32, 17, 1, 9, 5),
            (4, 16, 17, 3, 5, 3),
            (8, 8, 17, 7, 3, 2),
        ]
        assert answer.facts["page_size"] == 1 and answer.facts["table"] == 17
        assert "Pages of 1 (as recorded): 0 tokens" in answer.text

    def test_prefixes_lost_to_rounding(self):
        trace = recorded([1, 2, 3, 4, 5, 6], then=[[1, 2, 3, 4, 5, 9]])
        assert rows(lens(trace, [1, 2, 4, 8]), "found", "lost") == [(5, 0), (4, 1), (4, 1), (0, 5)]
        assert [row["page_size"] for row in lens(trace).data.rows()] == [
            1,
            2,
            4,
            8,
            16,
            32,
        ]

    def test_sizes_that_cannot_be(self):
        for sizes in ([], [0], [64]):
            with pytest.raises(ConfigError):
                lens(oracle(), sizes)


def test_every_answer_is_plain_data_as_well():
    trace = oracle()
    answers = [explain(trace, question, 4) for question in QUESTIONS]
    answers += [blame(trace, 4), reservations(trace), hits(trace), lens(trace), verify(trace), size("Qwen3-4B", gib=1)]
    for answer in answers:
        plain = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
        assert plain["sentences"] == answer.sentences and plain["question"] == answer.question
        assert len(plain["rows"]) == len(answer.data) and list(plain["columns"]) == list(answer.data)
        assert set(plain["facts"]) == set(answer.facts)
