"""Compiled once, found again, and no error where it cannot be."""

from __future__ import annotations

import re

import pytest

from minisgl import LLM, SamplingParams
from minisgl.errors import ConfigError
from minisgl.kernel import build
from tests.engine.conftest import needs_cpp


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A machine that has compiled nothing yet."""
    monkeypatch.setenv("MINISGL_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    build._library.cache_clear()
    yield tmp_path
    build._library.cache_clear()


@needs_cpp
def test_it_says_that_it_compiles_and_does_so_once(fresh, capfd, monkeypatch):
    assert build.library().vector_width() in (4, 8, 16)
    assert "compiling the CPU kernels, once" in capfd.readouterr().err
    build._library.cache_clear()
    assert build.library().vector_width() in (4, 8, 16)
    assert capfd.readouterr().err == ""
    assert [path.suffix for path in (fresh / "kernels").iterdir()] == [".so"]
    monkeypatch.setattr(build, "_cpu", lambda: "flags: another machine over the same cache")
    build._library.cache_clear()
    build.library()
    assert len(list((fresh / "kernels").iterdir())) == 2


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        (None, r"no C\+\+ compiler is installed \(g\+\+, clang\+\+, c\+\+\)"),
        ("/bin/false", "/bin/false failed"),
        ("/no/such/compiler", "the C\\+\\+ compiler could not be run"),
    ],
)
def test_without_a_compiler_torch_computes_and_says_why(fresh, tiny_folder, monkeypatch, compiler, why):
    if compiler is None:
        monkeypatch.setenv("PATH", "")
    else:
        monkeypatch.setenv("CXX", compiler)
    folder = tiny_folder("llama")
    with LLM(folder, device="cpu", num_pages=32) as llm:
        assert llm.config.kernels == "torch"
        assert llm.about()["kernels"].startswith("torch: ")
        assert re.search(why, llm.about()["kernels"])
        assert len(llm.generate([5, 6], SamplingParams(max_tokens=3, ignore_eos=True)).token_ids) == 3
    with pytest.raises(ConfigError, match=f"kernels='cpp': .*{why}"):
        LLM(folder, device="cpu", num_pages=32, kernels="cpp")
    with pytest.raises(ConfigError, match=f"quantize='int8': .*{why}.*; leave quantize out"):
        LLM(folder, device="cpu", num_pages=32, quantize="int8")


def test_a_cache_that_cannot_be_written_leaves_it_to_torch(fresh, tiny_folder, monkeypatch):
    (fresh / "file").write_text("no folder")
    monkeypatch.setenv("MINISGL_CACHE", str(fresh / "file"))
    monkeypatch.setenv("CXX", "/bin/false")
    with LLM(tiny_folder("llama"), device="cpu", num_pages=32) as llm:
        assert llm.about()["kernels"].startswith("torch: the compiled kernels cannot be kept")


def test_what_failed_is_not_tried_again(fresh, monkeypatch, capfd):
    monkeypatch.setenv("CXX", "/bin/false")
    for _ in range(2):
        with pytest.raises(build.KernelsMissingError, match="/bin/false failed"):
            build.library()
    assert capfd.readouterr().err.count("compiling the CPU kernels") == 1


def test_a_library_that_is_none(fresh):
    path = fresh / "broken.so"
    path.write_text("no library")
    with pytest.raises(build.KernelsMissingError, match="cannot be loaded"):
        build.load(path)


def test_half_precision_of_the_other_kind_is_left_to_torch(tiny_folder):
    with LLM(tiny_folder("llama"), device="cpu", num_pages=32, dtype="float16") as llm:
        assert llm.about()["kernels"].startswith("torch: the C++ kernels compute float32 and bfloat16 on a CPU")
