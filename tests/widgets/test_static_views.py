"""Views without a browser say the numbers of the admission oracle, in text and in HTML alike."""

from __future__ import annotations

import re

import pytest

from minisgl.events import History, Snapshot
from minisgl.events.recorder import Recorder
from minisgl_widgets import palette, view
from minisgl_widgets.bundle import STATIC, styles
from minisgl_widgets.static_pool import lamp_text, summary
from minisgl_widgets.static_views import VIEWS
from tests.script import finish_early, overlapped, release
from tests.widgets.fake_llm import ORACLE, ORACLE_PARAMS, FakeLLM
from tests.widgets.tokens import tokens


def run(**settings) -> tuple[History, dict[int, str]]:
    llm = FakeLLM(**settings)
    with Recorder(llm) as recorder:
        llm.generate(ORACLE, ORACLE_PARAMS)
    return recorder.trace.history, recorder.trace.texts


NAIVE, TEXTS = run(prefix_cache="naive")
RADIX, _ = run(prefix_cache="radix")


def lines(snap: Snapshot, name: str, texts: dict[int, str] | None = None) -> list[str]:
    return repr(view(snap, name, texts)).splitlines()


def cells(html: str) -> list[list[str]]:
    """A table's rows, tags taken off."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [[re.sub(r"<.*?>", "", c) for c in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row)] for row in rows]


@pytest.mark.parametrize(
    ("step", "signs", "legend"),
    [
        (1, "0" * 5 + "1" * 5 + "2" * 4 + "3" * 15 + "." * 35, "35 free (.), 29 owned"),
        (8, "." * 64, "64 free (.), 0 owned"),
        (9, "." * 57 + "4" * 5 + "..", "59 free (.), 5 owned"),
    ],
)
def test_strip(step: int, signs: str, legend: str) -> None:
    shown = lines(NAIVE.at(step), "strip")
    assert shown[1].split() == ["0", signs]
    assert shown[2].startswith(legend) and shown[2].endswith("the dummy page is page 64")
    html = view(NAIVE.at(step), "strip")._repr_html_()
    assert "".join("".join(row[1:]) for row in cells(html)) == signs
    assert legend in html


def test_strip_of_cached_pages() -> None:
    assert lines(RADIX.at(1), "strip")[1].split()[1] == "#" * 29 + "." * 35
    assert lines(RADIX.at(8), "strip")[1].split()[1] == "+" * 57 + "." * 7
    assert lines(RADIX.at(9), "strip")[1].split()[1] == "+" * 57 + "#" * 5 + ".."


def test_what_waits_for_a_batch_in_flight() -> None:
    say = overlapped()
    finish_early(say)
    release(say)
    held, after = say.history.at(3), say.history.at(4)
    assert "owned (1 pending)" in repr(view(held, "strip")) and "pending" not in repr(view(after, "strip"))
    assert "page 8: request 0, pending: free when the batch in flight is done" in view(held, "strip")._repr_html_()
    assert "2 owned (1 pending) + 4 cached = 16 pages" in lamp_text(held)
    assert "owned=2 (1 pending)" in summary(held) and "owned=1, " in summary(after)
    first, second = (line.split() for line in lines(held, "requests")[2:4])
    assert first == ["0", "finished:", "stop", "3", "0", "2/3", "5", "0", "5", "(1", "pending)", "0"]
    assert second[-3:] == ["1", "4", "2"]
    assert lines(held, "handoff")[-1].endswith("pages 8 are freed after the batch in flight")
    assert lines(say.history.at(2), "handoff")[-2].endswith(
        "pages 3-5 are freed after the batch in flight; the cache's 0-2 take their place"
    )


def test_a_huge_pool_is_told_in_numbers() -> None:
    snap = FakeLLM(num_pages=100_000, check=False).snapshot()
    assert len(repr(view(snap, "strip"))) < 300 and "100000 free" in view(snap, "strip")._repr_html_()


@pytest.mark.parametrize(
    ("step", "last"),
    [
        (1, ["  request 4 waits: needs 13, 61 promised, 64 in all", "    13 + 61 = 74 >  64 + 0 + 0 = 64"]),
        (8, ["  request 4 waits: needs 13, 28 promised, 35 in all", "    13 + 28 = 41 >  35 + 0 + 0 = 35"]),
        (9, ["  request 4 is admitted: needs 13, 0 promised, 64 in all", "    13 + 0 = 13 <= 64 + 0 + 0 = 64"]),
    ],
)
def test_ledger(step: int, last: list[str]) -> None:
    assert lines(NAIVE.at(step), "ledger")[-2:] == last
    html = view(NAIVE.at(step), "ledger")._repr_html_()
    assert cells(html)[-1][-1] == last[0].strip()
    assert cells(html)[-1][1] == ("admitted" if "admitted" in last[0] else "waits: pages")


def test_ledger_before_and_after_the_lock() -> None:
    llm = FakeLLM(num_pages=16, max_seq_len=16)
    with Recorder(llm) as recorder:
        llm.generate([[1, 2, 3, 4, 5, 6]], ORACLE_PARAMS)
        llm.generate([[1, 2, 3, 4, 5, 6]], ORACLE_PARAMS)
    first, second = (recorder.trace.at(step) for step in (1, 9))
    assert "prefix locked" not in repr(view(first, "ledger"))
    assert lines(second, "ledger")[1:] == [
        "  request 1 is admitted: needs 9, 0 promised, 11 in all, 5 tokens already cached",
        "    9 + 0 = 9 <= 3 + 13 + 0 = 16",
        "    9 + 0 = 9 <= 3 + 8 + 0 = 11, prefix locked",
    ]


@pytest.mark.parametrize(
    ("step", "row", "status"),
    [
        (1, 4, "waiting: pages 5 0 0/8 0 0 0"),
        (8, 0, "finished: length 5 0 8/8 12 0 0"),
        (9, 4, "running 5 0 1/8 5 0 5 7"),
    ],
)
def test_requests(step: int, row: int, status: str) -> None:
    shown = lines(NAIVE.at(step), "requests", TEXTS)
    assert shown[2 + row].split() == [str(row), *status.split()]
    assert shown[7].startswith("  0:  w100 w101 w102 w103 w104 | ")
    html = view(NAIVE.at(step), "requests", TEXTS)._repr_html_()
    assert " ".join(cells(html)[1 + row]).startswith(f"{row} {status.split()[0]}")


def test_requests_mark_what_was_cached_and_what_was_refused() -> None:
    llm = FakeLLM()
    with Recorder(llm) as recorder:
        llm.generate([[1, 2, 3]], ORACLE_PARAMS)
        llm.generate([[1, 2, 3]], ORACLE_PARAMS)
        with pytest.raises(ValueError, match="no tokens"):
            llm.submit([])
        llm.step()
    snap, texts = recorder.trace.at(recorder.trace.history.last), recorder.trace.texts
    assert "  1: [ w1 w2] w3 | " in repr(view(snap, "requests", texts))
    assert "<u> w1 w2</u> w3" in view(snap, "requests", texts)._repr_html_()
    assert "the prompt has no tokens" in repr(view(snap, "requests", texts))


def test_tree() -> None:
    assert lines(NAIVE.at(9), "tree") == ["prefix cache after step 9: nothing cached"]
    shown = lines(RADIX.at(9), "tree", TEXTS)
    assert shown[0] == "prefix cache after step 9: 62 pages in 9 nodes"
    assert shown[1] == "  [1] ' w100 w101 w102 w103 w104'  pages 0-4, locks 0, last used 9"
    assert shown[2].startswith("    [5] ") and "pages 29, 33, 37, 41, 45, 49, 53" in shown[2]
    assert shown[-1] == "  [9] ' w500 w501 w502 w503 w504'  pages 57-61, locks 1, last used 14"
    assert [row[3] for row in cells(view(RADIX.at(9), "tree")._repr_html_())][1] == "0-4"


def test_handoff() -> None:
    assert lines(NAIVE.at(8), "handoff")[1:3] == [
        "  request 0 has ended: KV of [0, 12)",
        "    tail      [0, 12)  pages 0-4, 29, 33, 37, 41, 45, 49, 53 are freed",
    ]
    assert lines(RADIX.at(8), "handoff")[2:4] == [
        "    locked    [0, 5)  pages 0-4 stay the cache's; the lock is dropped",
        "    inserted  [5, 12)  pages 29, 33, 37, 41, 45, 49, 53 become the cache's",
    ]
    paged, _ = run(page_size=4)
    assert "    tail      [4, 8), filled to 5  pages 1 stay the request's" in lines(paged.at(1), "handoff")
    assert lines(RADIX.at(0), "handoff") == ["handoffs: none yet"]


def test_lamp() -> None:
    assert lamp_text(RADIX.at(1)) == "sound after step 1: 35 free + 0 owned + 29 cached = 64 pages"
    state = NAIVE.at(1).to_dict()
    state["pages"]["owner"][40] = 3
    broken = lamp_text(Snapshot(state))
    assert broken.startswith("broken after step 1: ") and "page 40 belongs to request 3" in broken
    assert "✕" in view(Snapshot(state), "lamp")._repr_html_()


@pytest.mark.parametrize("step", [0, 1, 8, 9, 16])
def test_all_of_them_are_plain_and_repeat(step: int) -> None:
    shown = view(RADIX.at(step), "all", TEXTS)
    assert repr(shown) == repr(view(RADIX.at(step), "all", TEXTS))
    html = shown._repr_html_()
    assert html == view(RADIX.at(step), "all", TEXTS)._repr_html_()
    assert set(re.findall(r' style="(.*?)"', html)) <= {"text-align:left"}
    assert not re.search(r"<script|<style|class=|\bon\w+=", html)
    assert len(html) < 30_000
    for name in VIEWS:
        assert repr(view(RADIX.at(step), name, TEXTS)) in repr(shown)


def test_texts_are_escaped() -> None:
    texts = dict.fromkeys(range(1000), "<b>&\n")
    html = view(RADIX.at(9), "all", texts)._repr_html_()
    assert "<b>&\n" not in html and "&lt;b&gt;&amp;⏎" in html


def test_long_things_are_cut_and_say_so() -> None:
    llm = FakeLLM(num_pages=4000, max_seq_len=1024, max_running_requests=80, check=False)
    with Recorder(llm) as recorder:
        llm.generate([[i, *range(100, 900)] for i in range(3)], ORACLE_PARAMS)
        llm.generate([[i, 7] for i in range(70)], ORACLE_PARAMS)
    trace = recorder.trace
    snap = trace.at(trace.history.last)
    shown = view(snap, "all", trace.texts)
    text, html = repr(shown), shown._repr_html_()
    assert "(23 earlier ones are left out)" in text and "(23 earlier ones are left out)" in html
    assert re.search(r"and \d+ more nodes", text) and "more nodes" in html
    assert len(view(trace.at(1), "all", trace.texts)._repr_html_()) < 15_000 and len(html) < 80_000
    assert " w0 w100 w101" in repr(view(trace.at(1), "requests", trace.texts))
    assert " … " in repr(view(trace.at(1), "requests", trace.texts))


def test_an_unknown_view_is_named() -> None:
    with pytest.raises(ValueError, match="strip, ledger"):
        view(NAIVE.at(1), "stripe")


def test_the_style_sheet_has_the_same_colours() -> None:
    said = tokens("light")
    assert tuple(said[f"u{i}"] for i in range(len(palette.UIDS))) == palette.UIDS
    assert f"u{len(palette.UIDS)}" not in said
    for kind in ("free", "evictable", "protected"):
        assert said[kind] == palette.KINDS[kind]
    assert (said["line"], said["bad"]) == (palette.LINE, palette.BAD)
    long = {"#000": palette.BLACK, "#fff": palette.WHITE}
    assert [long[said[f"u{i}-ink"]] for i in range(7)] == [palette.ink(colour) for colour in palette.UIDS]
    assert f"var(--msgl-decode) {45}%, var(--msgl-bg)" in styles()
    mixed = [round(0.45 * int(said["decode"][i : i + 2], 16) + 0.55 * 255) for i in (1, 3, 5)]
    assert "#" + "".join(f"{channel:02x}" for channel in mixed) == palette.DECODE


def test_every_colour_is_said_once() -> None:
    css = re.sub(r"/\*.*?\*/", "", styles(), flags=re.DOTALL)
    said = re.findall(r"(--msgl-[\w-]+):", css)
    twice = {name for name in said if said.count(name) > 1}
    assert twice == {"--msgl-light", "--msgl-dark"}, "only which of the two it is"
    page = (STATIC / "export.html").read_text("utf-8")
    assert not re.findall(r"#[0-9a-f]{6}\b", page), "the page around has the views' colours"
