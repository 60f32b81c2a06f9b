"""What other tools get to read: valid by their rules, and true to the run."""

from __future__ import annotations

import json
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given, settings

from minisgl.events import types as ev
from minisgl.events.export import FORMATS, export, kv_events, perfetto
from minisgl.events.export.kv_events import block_hash
from minisgl.events.recorder import Recorder
from minisgl.events.trace import Trace
from tests.events.runs import traces
from tests.events.test_tables import overlapped
from tests.fakes import Run

EXAMPLES = 50


# -- KV events, as a consumer would read them: the fields of vLLM's and of SGLang's, neither knowing the other's -------


class VllmStored(msgspec.Struct, tag="BlockStored", kw_only=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class VllmRemoved(msgspec.Struct, tag="BlockRemoved", kw_only=True):
    block_hashes: list[int]
    medium: str | None


class SglangStored(msgspec.Struct, tag="BlockStored", kw_only=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None


class SglangRemoved(msgspec.Struct, tag="BlockRemoved", kw_only=True):
    block_hashes: list[int]


class Cleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class VllmBatch(msgspec.Struct):
    ts: float
    events: list[VllmStored | VllmRemoved | Cleared]


class SglangBatch(msgspec.Struct):
    ts: float
    events: list[SglangStored | SglangRemoved | Cleared]


def read(trace: Trace, batch: type = VllmBatch) -> list:
    return [msgspec.json.decode(line, type=batch) for line in kv_events(trace).splitlines()]


class Cache:
    """What a router knows: every block by its hash, with all tokens up to its end."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[int, ...]] = {}

    def take(self, event) -> None:
        if isinstance(event, VllmStored):
            before = self.blocks[event.parent_block_hash] if event.parent_block_hash is not None else ()
            assert len(event.token_ids) == len(event.block_hashes) * event.block_size
            for i, block in enumerate(event.block_hashes):
                before += tuple(event.token_ids[i * event.block_size : (i + 1) * event.block_size])
                assert block not in self.blocks
                self.blocks[block] = before
        elif isinstance(event, VllmRemoved):
            for block in event.block_hashes:
                del self.blocks[block]
        else:
            self.blocks.clear()


def tree_prefixes(snap) -> list[tuple[int, ...]]:
    """All tokens up to the end of each page in the tree."""
    ends, found = {0: ()}, []
    for node, _ in snap.tree.walk():
        before, tokens = ends[snap.tree[node].parent], snap.tree[node].tokens
        ends[node] = before + tokens
        found += [before + tokens[:i] for i in range(snap.page_size, len(tokens) + 1, snap.page_size)]
    return sorted(found)


class TestKvEvents:
    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_a_replay_equals_the_tree_at_every_step(self, trace):
        cache, batches = Cache(), read(trace)
        start = trace.history.first
        if any(trace.keyframe["nodes"][i]["tokens"] for i in trace.keyframe["nodes"]):
            for event in batches.pop(0).events:
                cache.take(event)
        assert sorted(cache.blocks.values()) == tree_prefixes(trace.at(start))
        changes = {e.step for e in trace.of(ev.NodeInserted, ev.PagesEvicted)}
        changes |= {e.step for e in trace.of(ev.CacheCleared) if not e.kept}
        for step in range(start + 1, trace.history.last + 1):
            if step in changes:
                batch = batches.pop(0)
                assert batch.ts == trace.at(step).t
                for event in batch.events:
                    cache.take(event)
            assert sorted(cache.blocks.values()) == tree_prefixes(trace.at(step))
        assert batches == []
        assert len(read(trace, SglangBatch)) == len(read(trace))

    def test_equal_prefixes_have_equal_hashes_in_every_run(self):
        first, other = (overlap_free(prompts) for prompts in ([[1, 2, 3, 4, 5]], [[7, 7, 7], [1, 2, 3, 4, 9]]))
        a, b = (
            {
                (e.parent_block_hash, tuple(e.token_ids[:2])): e.block_hashes[0]
                for batch in read(t)
                for e in batch.events
            }
            for t in (first, other)
        )
        assert a[None, (1, 2)] == b[None, (1, 2)] == block_hash(None, (1, 2)) < 2**63
        assert block_hash(a[None, (1, 2)], (3, 4)) != block_hash(None, (3, 4)) != block_hash(None, (4, 3))

    @pytest.mark.parametrize("kept", [0, 1])
    def test_clearing(self, kept):
        trace = overlap_free([[1, 2, 3, 4, 5]])
        end = trace.at(trace.history.last)
        gone = tuple(i for i in end.tree if i)
        pages = tuple(p for i in gone for p in end.tree[i].pages)
        step, t = trace.history.last + 1, 9.0
        last = msgspec.structs.replace(trace.of(ev.StepFinished)[-1], step=step, t=t)
        trace.events += [
            ev.PagesEvicted(step=step, t=t, nodes=gone, pages=pages),
            ev.CacheCleared(step=step, t=t, evicted=len(pages), kept=kept),
            last,
        ]
        batch = read(trace)[-1]
        assert [type(e) for e in batch.events] == [VllmRemoved, Cleared][: 2 - kept] and batch.ts == 9.0
        assert len(batch.events[0].block_hashes) == len(pages)


def overlap_free(prompts) -> Trace:
    run = Run(page_size=2, num_pages=16, max_seq_len=16)
    with Recorder(run, title="a run") as recorder:
        for prompt in prompts:
            run.submit(prompt, 3)
        run.play()
    return recorder.trace


# -- the timeline ------------------------------------------------------------------------------------------------------


def timeline(trace: Trace) -> dict:
    return json.loads(perfetto(trace))


def of(shown: dict, ph: str) -> list[dict]:
    return [e for e in shown["traceEvents"] if e["ph"] == ph]


class TestPerfetto:
    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_the_formats_rules(self, trace):
        shown = timeline(trace)
        assert shown["displayTimeUnit"] == "ms"
        lanes = defaultdict(list)
        named = {(e["pid"], e["tid"]) for e in of(shown, "M") if e["name"] == "thread_name"}
        processes = {e["pid"] for e in of(shown, "M") if e["name"] == "process_name"}
        for e in shown["traceEvents"]:
            assert {"ph", "name", "pid", "tid", "ts"} <= e.keys() and e["ph"] in "XiCM"
            assert e["pid"] in processes and e["ts"] >= 0
            if e["ph"] in "Xi":
                assert (e["pid"], e["tid"]) in named
            if e["ph"] == "X":
                assert e["dur"] >= 0
                lanes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
            if e["ph"] == "i":
                assert e["s"] in "gpt"
            if e["ph"] == "C":
                assert e["args"] and all(isinstance(v, int) for v in e["args"].values())
        for spans in lanes.values():  # one after another: slices of a thread may nest, but not cross
            assert all(a[1] <= b[0] + 1e-6 for a, b in zip(sorted(spans), sorted(spans)[1:], strict=False))
        threads = [tid for _, tid in named]
        assert len(set(threads)) == len(threads)

    @settings(max_examples=EXAMPLES)
    @given(traces)
    def test_what_is_in_it(self, trace):
        shown = timeline(trace)
        lanes = defaultdict(list)
        for e in of(shown, "X"):
            lanes[e["pid"], e["tid"]].append(e)
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in of(shown, "M") if e["name"] == "thread_name"}
        by_name = {names[lane]: events for lane, events in lanes.items()}
        assert [e["name"] for e in by_name.get("host: steps", [])] == trace.steps.phase.tolist()
        forwards = by_name.get("device: forwards", [])
        assert [e["args"]["batch"] for e in forwards] == [e.batch for e in trace.of(ev.ForwardFinished)]
        assert sorted(set(names.values())) == sorted(
            ["host: steps", "device: forwards", *(f"request {uid}" for uid in trace.requests.uid)]
        )
        for row in trace.requests.rows():
            spans = by_name[f"request {row['uid']}"]
            length = sum(e["dur"] for e in spans) / 1e6
            if row["e2e"] == row["e2e"]:
                assert length == pytest.approx(row["e2e"], abs=1e-8)
            elif row["reason"] and row["arrived_step"] >= 0:  # rejected as it arrived
                assert length == pytest.approx(row["arrived"] - row["submitted"], abs=1e-8)
            assert [e["name"] for e in spans] == [
                n for n in ("waiting", "prefill", "decode") if n in {e["name"] for e in spans}
            ]
        pool = [e["args"] for e in of(shown, "C") if e["name"] == "pages"]
        assert all(sum(args.values()) == trace.keyframe["num_pages"] for args in pool)
        assert len(pool) == len(trace.of(ev.BatchScheduled, ev.StepFinished))
        said = [e["name"] for e in of(shown, "i")]
        assert said.count("eviction") == len(trace.of(ev.PagesEvicted))
        assert said.count("refusal") == trace.steps.refused.sum()

    def test_lanes_of_an_overlapped_run(self):
        shown = timeline(overlapped())
        spans = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in of(shown, "X") if e["pid"] == 1]
        assert [s for s in spans if s[0] == 12] == [
            (12, "prefill 1", 1_000_000, 250_000),
            (12, "decode 2", 1_500_000, 500_000),
        ]
        life = [(e["name"], e["ts"], e["dur"]) for e in of(shown, "X") if e["pid"] == 2]
        assert life == [("waiting", 500_000, 500_000), ("prefill", 1_000_000, 1_000_000)]

    def test_a_drain_is_told(self):
        trace = overlapped()
        drain = ev.PipelineDrained(step=2, t=2.0, batch=1, reason="pages", short=2, pending=3)
        trace.events.insert(5, drain)
        (told,) = [e for e in of(timeline(trace), "i") if e["name"] == "drain"]
        assert told["args"]["step"] == 2 and told["args"]["says"].startswith("batch 1 is waited for")

    def test_where_it_is_from(self):
        assert timeline(overlap_free([[1, 2]]))["otherData"]["title"] == "a run"


@pytest.mark.parametrize("format", FORMATS)
def test_files(tmp_path, format):
    trace = overlap_free([[1, 2, 3, 4, 5], [1, 2, 3]])
    path = export(trace, tmp_path / "out", format)
    assert path.read_bytes() == FORMATS[format](trace) == FORMATS[format](trace)
    assert path.stat().st_size > 100


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_run(format):
    FORMATS[format](Trace(Run().snapshot().to_dict(), [], {}))
