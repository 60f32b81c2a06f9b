"""Tour: what it says is true, and each sentence takes the reader to what it speaks of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from minisgl.errors import TourError
from minisgl_widgets import runs
from minisgl_widgets.markup import FIXED, sentences, tabs
from minisgl_widgets.tour import Tour
from tests.widgets.exported import Opened

NUMBER = re.compile(r"\d|\b(one|two|three|four|five|six|seven|eight|once|all|none|no|nothing|nobody|each|only)\b", re.I)


@pytest.mark.parametrize("name", runs.names)
def test_what_a_packaged_tour_says_is_true(name: str) -> None:
    tour = Tour.of(name)
    assert tour.check() == []
    numbers = [s.text for s in tour.sentences if NUMBER.search(s.text) and not s.claim]
    assert numbers == [], "a number that nobody checks"
    assert 7 <= len(tour.sentences) <= 20
    assert all(len(s.text) < 220 for s in tour.sentences), "a sentence too long to follow"


def test_a_claim_that_does_not_hold_is_found() -> None:
    tour = Tour(runs.load("five_prompts"), "It waits. {at(1).queue == (4,)}\nIt does not. {at(1).queue == ()}\nHm.")
    assert [s.text for s in tour.check()] == ["It does not."]


def test_a_text_is_read_into_sentences_and_places() -> None:
    read = sentences(
        "In [step 3] it\n[waits | req 4 view ledger view chart], as [page 7 | page 7 step 2] says.\n\n\nSo it is.\n",
        runs.load("five_prompts"),
    )
    assert [s.paragraph for s in read] == [0, 0, 1]
    assert read[0].parts == (("In ", ""), ("step 3", "step=3"), (" it", ""))
    assert read[1].parts[0] == ("waits", "step=3&req=4&view=ledger,chart")
    assert read[1].place == "step=2&page=7&view=ledger,chart", "what is said last"
    assert read[2].place == "step=2&view=ledger,chart", "step and view stay; what was held is let go"
    assert [s.text for s in read][1] == "waits, as page 7 says."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no sentence"),
        ("See [step 99].", "line 1: step 99 is not in this run: it holds 0-16"),
        ("See [it | req 5].", "line 1: req 5 is not in this run: it holds 0-4"),
        ("See [it | page 64].", "line 1: page 64 is not in this run: it holds 0-63"),
        ("See [it | step 3 node 99].", "line 1: node 99 is not in this run: it holds 0"),
        ("Fine.\nSee [it | view nowhere].", "line 2: there is no view 'nowhere'; there are strip"),
        ("See [this].", "line 1: 'this' is no place; one reads like 'step 3 req 2 view tree'"),
        ("See [it | request 4].", "line 1: request 4 is no place; there are step, req, page, node, view"),
        ("See [it | step three].", "line 1: step three is no place"),
    ],
)
def test_a_place_that_is_none_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(TourError, match=re.escape(message)):
        Tour(runs.load("five_prompts"), text)


def test_tabs_are_those_of_the_views() -> None:
    assert {"chart", "events"} <= set(tabs()) and not set(FIXED) & set(tabs())


def test_sentences_move_the_player_both_ways(chromium: Any, tmp_path: Path) -> None:
    trace = runs.load("five_prompts")
    tour = Tour.of("five_prompts")
    page = Opened(chromium, tour.export_html(tmp_path / "tour.html"))

    def stands(i: int) -> None:
        place = dict(part.split("=") for part in tour.sentences[i].place.split("&"))
        page.page.wait_for_selector(f".msgl-tour[data-sentence='{i}']")
        page.settle()
        page.check(trace.history, int(place["step"]))
        (current,) = page.data(".msgl-sentence[aria-current]")
        assert current["number"] == str(i)
        lit = page.page.eval_on_selector_all(".msgl-lit", "(all) => all.map((el) => el.className)")
        assert len(lit) == len(place["view"].split(","))
        held = {m["uid"] for m in page.data(".msgl-request.msgl-hi")}
        assert held == ({place["req"]} if "req" in place else held & set() if "page" not in place else held)
        assert page.page.locator(".msgl-lit").first.evaluate("(el) => el.getBoundingClientRect().bottom > 200")

    last = len(tour.sentences) - 1
    stands(0)
    page.page.keyboard.press("a")  # the stage's keys work with the focus on the page's body
    page.settle()
    assert "compare" in {tab["view"] for tab in page.data(".msgl-tab[aria-selected=true]")}
    page.page.keyboard.press("p")
    for i in range(1, last + 1):
        page.page.keyboard.press("n")
        stands(i)
    page.page.keyboard.press("n")
    stands(last)
    for i in (last - 1, last - 2):
        page.page.locator(".msgl-before").click()
        stands(i)
    page.page.keyboard.press("n")  # with the focus inside: the tour's, not the player's
    stands(last - 1)
    page.page.locator(".msgl-sentence[data-number='3'] .msgl-link").click()
    stands(3)
    assert page.press("ArrowRight") == 2, "the player is the reader's too"
    page.page.locator(".msgl-prose").focus()
    page.press("ArrowDown")
    stands(4)
    assert page.problems == []
    page.context.close()
