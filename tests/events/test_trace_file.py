"""A run as a file: what is saved comes back, and whatever is wrong with a file is said."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.errors import (
    PoolTooSmallError,
    PromptTooLongError,
    TraceError,
    TraceFormatError,
    TraceNotFoundError,
    TraceVersionError,
    TraceWriteError,
    TruncatedTraceWarning,
    UnknownEventsWarning,
)
from minisgl.events import StepFinished
from minisgl.events.file import VERSION
from minisgl.events.recorder import Recorder
from minisgl.events.state import initial_state
from minisgl.events.trace import Trace
from tests.fakes import Run

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("run.jsonl", "run.jsonl.zst")


def small(last: int | None = None) -> Trace:
    """Shared prefixes, duplicates, an abort, a refusal, an eviction; begins after the run's first step."""
    run = Run(page_size=2, num_pages=16, max_seq_len=32)
    run.submit([1, 2, 3, 4, 5], 6)
    run.scheduler.step()
    with Recorder(run, "small – <b>", last) as recorder:
        requests = [run.submit(prompt, 6, seed=2**70) for prompt in ([1, 2, 3, 4, 5], [1, 2, 9, 9], list(range(20)))]
        with contextlib.suppress(PromptTooLongError):
            run.submit([1] * 32, 1)
        run.scheduler.step()
        run.scheduler.abort(requests[1].uid)
        run.play()
    return recorder.trace


def exact(a: object, b: object) -> bool:
    """Equal, and of the same types all the way down: ``==`` takes 1.0 for 1 and a dict for any other of its order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(exact(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(exact, a, b))
    return a == b


def assert_same(a: Trace, b: Trace) -> None:
    assert exact(a.keyframe, b.keyframe)
    assert a.events == b.events and list(map(type, a.events)) == list(map(type, b.events))
    assert exact(a.texts, b.texts) and a.title == b.title and exact(a.about, b.about)
    assert (a.history.first, a.history.last) == (b.history.first, b.history.last)
    for step in range(a.history.first, a.history.last + 1):
        assert exact(a.at(step).to_dict(), b.at(step).to_dict())


@pytest.fixture(scope="module")
def trace():
    return small()


@pytest.fixture
def plain(trace, tmp_path):
    return trace.save(tmp_path / "run.jsonl")


def edited(path: Path, number: int, **fields: object) -> Path:
    """The file with some fields of its line ``number`` (from 1) set."""
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | fields)
    path.write_text("\n".join(lines) + "\n")
    return path


class TestRoundTrip:
    actions = st.one_of(
        st.tuples(st.just("submit"), st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 20)),
        st.tuples(st.just("abort"), st.integers(0, 9)),
        st.just(("step",)),
    )
    configs = st.fixed_dictionaries(
        {
            "page_size": st.sampled_from([1, 2, 4, 16]),
            "num_pages": st.integers(2, 40),
            "max_running_requests": st.sampled_from([1, 8]),
            "max_prefill_tokens": st.sampled_from([3, 64]),
            "prefix_cache": st.sampled_from(["radix", "naive"]),
            "overlap": st.booleans(),
        }
    )

    @settings(max_examples=60)
    @given(configs, st.lists(actions, max_size=30), st.integers(0, 5), st.sampled_from([None, None, 1, 3]))
    @pytest.mark.parametrize("name", NAMES)
    def test_random_runs(self, tmp_path_factory, name, config, script, before, last):
        run = Run(max_seq_len=min(64, config["num_pages"] * config["page_size"]), **config)
        recorder, requests = Recorder(run, "random", last), []
        for i, (what, *args) in enumerate([*script, ("step",)]):
            if i == min(before, len(script)):
                recorder.start()
            if what == "submit":
                with contextlib.suppress(PoolTooSmallError, PromptTooLongError):
                    requests.append(run.submit(*args))
            elif what == "abort" and requests:
                run.scheduler.abort(requests[args[0] % len(requests)].uid)
            else:
                run.scheduler.step()
        run.play()
        trace = recorder.trace
        path = trace.save(tmp_path_factory.mktemp("runs") / name)
        loaded = Trace.load(path)
        assert_same(trace, loaded)
        assert loaded.save(path.with_name("again" + name)).read_bytes() == path.read_bytes()

    def test_the_commentary_of_a_keyframe_comes_back(self, tmp_path):
        trace = small(last=2)
        whole = small()
        tests = next(k for k in range(whole.history.first, whole.history.last) if whole.at(k).tests[1:])
        state = whole.at(tests).to_dict()
        assert state["batch"] and state["tests"] and state["handoffs"]
        for keyframe in (state, trace.keyframe):
            path = Trace(keyframe, [], {}).save(tmp_path / "state.jsonl")
            assert exact(Trace.load(path).keyframe, keyframe)

    def test_both_forms_hold_the_same(self, trace, tmp_path):
        plain, packed = (trace.save(tmp_path / name) for name in NAMES)
        assert zstandard.ZstdDecompressor().decompress(packed.read_bytes()) == plain.read_bytes()

    def test_it_is_the_content_that_says_whether_it_is_compressed(self, trace, tmp_path):
        packed = trace.save(tmp_path / "run.zst")
        assert_same(trace, Trace.load(packed.rename(tmp_path / "run.jsonl")))

    def test_frames_in_a_row(self, trace, plain, tmp_path):
        """As parallel compressors write them."""
        data, compress = plain.read_bytes(), zstandard.ZstdCompressor().compress
        (tmp_path / "run.zst").write_bytes(compress(data[:5000]) + compress(data[5000:]))
        assert_same(trace, Trace.load(tmp_path / "run.zst"))

    def test_the_same_run_gives_the_same_bytes(self, trace, tmp_path):
        for name in NAMES:
            one, other = trace.save(tmp_path / f"1{name}"), small().save(str(tmp_path / f"2{name}"))
            assert one.read_bytes() == other.read_bytes()

    def test_people_can_read_it(self, plain):
        head, keyframe, texts, *events, end = map(json.loads, plain.read_text().splitlines())
        assert (head["format"], head["version"], head["title"]) == ("minisgl trace", list(VERSION), "small – <b>")
        assert head["about"]["model"] == "hash" and head["about"]["config"]["num_pages"] == 16
        assert head["about"]["machine"].keys() == {"platform", "python", "cpus", "minisgl"}
        assert keyframe["keyframe"]["step"] == 1 and texts["texts"]["5"] == "<5>"
        assert {"RequestArrived", "StepFinished"} <= {e["type"] for e in events} and end == {"events": len(events)}

    def test_the_file_knows_every_part_of_a_state(self):
        from minisgl.events.file import _State

        assert list(_State.__annotations__) == list(initial_state(1, 1, 1))

    def test_the_collector_runs_again_afterwards(self, plain, tmp_path):
        import gc

        Trace.load(plain)
        (tmp_path / "no.jsonl").write_text("nothing")
        with pytest.raises(TraceError):
            Trace.load(tmp_path / "no.jsonl")
        assert gc.isenabled()


class TestElsewhere:
    def test_a_process_without_torch_sees_the_same(self, tmp_path):
        """One process runs and saves, another one loads, with neither torch nor the same order of sets."""
        save = f"""
from tests.events.test_trace_file import small
trace = small()
trace.save({str(tmp_path / "run.jsonl.zst")!r})
"""
        load = f"""
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"{{name}} is out of bounds here", name=name)
sys.meta_path.insert(0, Blocked())
from minisgl import Trace
trace = Trace.load({str(tmp_path / "run.jsonl.zst")!r})
"""
        show = """
import json
print(json.dumps([trace.at(k).to_dict() for k in range(trace.history.first, trace.history.last + 1)]))
"""
        said = []
        for seed, script in (("1", save), ("2", load)):
            done = subprocess.run(
                [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}{show}"],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                env={"PYTHONHASHSEED": seed},
            )
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
        assert said[0] == said[1] and len(json.loads(said[0])) > 5
        assert (tmp_path / "run.jsonl.zst").read_bytes() == small().save(tmp_path / "here.zst").read_bytes()


class TestVersions:
    def test_a_newer_minor_version_is_read(self, trace, plain):
        edited(plain, 1, version=[VERSION[0], VERSION[1] + 7], colour="blue")
        edited(plain, 2, more={})
        assert_same(trace, Trace.load(plain))

    def test_version_1_0_kept_the_uses_of_nodes_in_the_checkpoint(self, trace, plain):
        line = json.loads(plain.read_text().splitlines()[1])
        nodes = line["keyframe"]["nodes"]
        for node in nodes.values():
            del node["uses"]
        line["checkpoint"]["prefix"]["uses"] = [[int(i), 5 + int(i)] for i in nodes]
        edited(plain, 1, version=[1, 0])
        edited(plain, 2, **line)
        loaded = Trace.load(plain)
        assert {i: n["uses"] for i, n in loaded.keyframe["nodes"].items()} == {int(i): 5 + int(i) for i in nodes}
        assert loaded.checkpoint == line["checkpoint"] and len(nodes) > 1

    @pytest.mark.parametrize("version", [[VERSION[0] + 1, 0], [0, 9]])
    def test_another_major_version_is_not(self, plain, version):
        edited(plain, 1, version=version, title={"now": "a dict"})
        with pytest.raises(TraceVersionError, match=rf"version {version[0]}.{version[1]} and .* reads versions 1.x"):
            Trace.load(plain)

    def test_unknown_fields_are_passed_over(self, trace, plain):
        lines = plain.read_text().splitlines()
        for number in range(4, len(lines) + 1, 3):
            edited(plain, number, new_field=[1, {"a": 2}])
        keyframe = json.loads(lines[1])["keyframe"]
        keyframe["colours"] = []
        for part in ("requests", "nodes"):
            for row in keyframe[part].values():
                row["new_field"] = 7
        edited(plain, 2, keyframe=keyframe)
        assert_same(trace, Trace.load(plain))

    def test_unknown_events_are_counted_and_left_out(self, trace, plain):
        lines = plain.read_text().splitlines()
        lines[-1] = json.dumps({"events": len(trace) + 3})
        for number, kind in ((10, "Sneezed"), (20, "Coughed"), (20, "Sneezed")):
            lines.insert(number, json.dumps({"type": kind, "step": 1, "t": 0.5}))
        plain.write_text("\n".join(lines) + "\n")
        with pytest.warns(UnknownEventsWarning, match=r"3 events .* \(Coughed, Sneezed\)") as caught:
            assert_same(trace, Trace.load(plain))
        assert len(caught) == 1 and caught[0].filename == __file__


class TestTruncated:
    def test_at_every_line(self, trace, plain):
        lines = plain.read_bytes().splitlines(keepends=True)
        for count in range(len(lines)):
            plain.write_bytes(b"".join(lines[:count]))
            self.check(trace, plain, count)

    def test_anywhere(self, trace, plain):
        data, rng = plain.read_bytes(), random.Random(0)
        for end in [*rng.sample(range(len(data)), 300), len(data) - 1]:
            plain.write_bytes(data[:end])
            self.check(trace, plain, data[:end].count(b"\n"))

    def test_compressed_anywhere(self, trace, tmp_path):
        packed = tmp_path / "run.zst"
        trace.save(packed)
        data = packed.read_bytes()
        for end in range(len(data)):
            packed.write_bytes(data[:end])
            if end < 4:  # not even enough to say that it is compressed
                with pytest.raises(TraceFormatError, match="not a trace"):
                    Trace.load(packed)
            else:
                text = zstandard.ZstdDecompressor().decompressobj().decompress(data[:end])
                self.check(trace, packed, text.count(b"\n"))

    def test_compressed_in_many_blocks(self, trace, plain, tmp_path):
        """The run above fits into one block of the format; what was whole before the cut must be there."""
        data, packed = plain.read_bytes(), tmp_path / "run.zst"
        stream = zstandard.ZstdCompressor().compressobj()
        cut = b""
        for start in range(0, len(data) // 2, 1000):
            cut += stream.compress(data[start : start + 1000]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        packed.write_bytes(cut)
        held = data[: start + 1000].count(b"\n")
        assert held > 20
        self.check(trace, packed, held)

    def check(self, trace: Trace, path: Path, lines: int) -> None:
        """A file with so many whole lines and no end gives all that they hold, and says so, or why it cannot."""
        if lines < 3:
            says = "not a trace" if lines == 0 else f"cut short in line {lines + 1}, before the first event"
            with pytest.raises(TraceFormatError, match=says):
                Trace.load(path)
            return
        kept = trace.events[: lines - 3]
        steps = sum(isinstance(event, StepFinished) for event in kept)
        with pytest.warns(TruncatedTraceWarning, match=rf"line \d+: {len(kept)} events, {steps} whole steps are kept"):
            loaded = Trace.load(path)
        assert loaded.events == kept and exact(loaded.keyframe, trace.keyframe)
        if steps:
            last = loaded.history.last
            assert exact(loaded.at(last).to_dict(), trace.at(last).to_dict())


class TestDamaged:
    @pytest.mark.parametrize(
        ("line", "old", "new", "says"),
        [
            (1, '"title":"', '"title":5,"x":"', "line 1 is damaged"),
            (1, '"about"', '"abuot"', "line 1 is damaged: .*about"),
            (2, '"owner":[', '"owner":["x",', r"line 2 is damaged: Expected `int`, got `str` .*\.owner\[0\]"),
            (2, '"requests"', '"request5"', "line 2 is damaged: .*requests"),
            (3, "<5>", '"', "line 3 is damaged: JSON is malformed"),
            (9, '"step":', '"setp":', "line 9 is damaged: .*missing required field `step`"),
            (9, '"step":', '"step":x', "line 9 is damaged"),
            (9, '"type"', '"tpye"', "line 9 is damaged"),
            (9, "{", "", "line 9 is damaged: .* or cut it off before this line"),
            (9, "{", "\n{", "line 9 is damaged"),
            (9, "\n", "", "line 9 is damaged"),
            (-1, '{"events":', '{"events":1', "says that it has 1.* events, but .* are there"),
            (-1, "}\n", '}\n{"type":"more"}\n', "goes on after its closing line"),
        ],
    )
    def test_the_line_is_named(self, plain, line, old, new, says):
        lines = plain.read_text().splitlines(keepends=True)
        at = line - 1 if line > 0 else line
        assert old in lines[at]
        lines[at] = lines[at].replace(old, new, 1)
        plain.write_text("".join(lines))
        with pytest.raises(TraceFormatError, match=says):
            Trace.load(plain)

    def test_a_lost_line_is_missed(self, plain):
        lines = plain.read_text().splitlines(keepends=True)
        plain.write_text("".join(lines[:8] + lines[9:]))
        with pytest.raises(TraceFormatError, match=f"has {len(lines) - 4} events, but {len(lines) - 5} are there"):
            Trace.load(plain)

    @pytest.mark.parametrize("name", NAMES)
    def test_any_flipped_bit(self, trace, tmp_path, name):
        """It is refused, or else only a value changed: then all lines and types are there. Compressed, none gets by."""
        path = trace.save(tmp_path / name)
        data, rng, refused = path.read_bytes(), random.Random(1), 0
        for _ in range(400):
            flipped = bytearray(data)
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(flipped)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    loaded = Trace.load(path)
                except TraceError as error:
                    assert str(path) in str(error)
                    refused += 1
                    continue
            if name.endswith(".zst"):
                assert_same(trace, loaded)
            elif not said:
                assert len(loaded) == len(trace)
        assert refused > 50

    @pytest.mark.parametrize("data", [b"", b"\n", b"hello\n", b"[1, 2]\n", b"{}\n", b"\x80\x81\xff" * 50, b"\x28\xb5"])
    def test_something_else(self, tmp_path, data):
        (tmp_path / "other").write_bytes(data)
        with pytest.raises(TraceFormatError, match="not a trace that minisgl saved"):
            Trace.load(tmp_path / "other")

    def test_something_else_compressed(self, tmp_path):
        (tmp_path / "other.zst").write_bytes(zstandard.ZstdCompressor().compress(b"hello\n"))
        with pytest.raises(TraceFormatError, match="not a trace that minisgl saved"):
            Trace.load(tmp_path / "other.zst")

    def test_nothing_there(self, tmp_path):
        with pytest.raises(TraceNotFoundError, match="there is no file .*gone.jsonl") as caught:
            Trace.load(tmp_path / "gone.jsonl")
        assert isinstance(caught.value, FileNotFoundError)


class TestUnwritable:
    def test_no_folder(self, trace, tmp_path):
        with pytest.raises(TraceWriteError, match=r"cannot be written: there is no folder .*away; make it first"):
            trace.save(tmp_path / "away" / "run.jsonl")

    def test_a_folder_in_its_place(self, trace, tmp_path):
        (tmp_path / "run.jsonl").mkdir()
        with pytest.raises(TraceWriteError, match="cannot be written"):
            trace.save(tmp_path / "run.jsonl")
        assert [p.name for p in tmp_path.iterdir()] == ["run.jsonl"]

    def test_what_was_there_stays_until_the_new_one_is_whole(self, trace, tmp_path, monkeypatch):
        path = trace.save(tmp_path / "run.jsonl")
        before = path.read_bytes()
        monkeypatch.setattr(Path, "write_bytes", _full)
        with pytest.raises(TraceWriteError, match="cannot be written: No space left on device"):
            small().save(path)
        assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def _full(path: Path, data: bytes) -> int:
    with path.open("wb") as file:
        file.write(data[: len(data) // 2])
    raise OSError(28, "No space left on device")
