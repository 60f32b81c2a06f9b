"""The capacity card: the same numbers as ``minisgl.size``, computed in the browser."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minisgl import size
from minisgl.events.trace import Trace
from minisgl.sim.roofline import BYTES, MODELS
from minisgl_widgets import runs
from minisgl_widgets.capacity import sizing
from minisgl_widgets.export import export_html
from minisgl_widgets.feed import Feed
from minisgl_widgets.record import Encoder
from tests.widgets.exported import Opened, accessible
from tests.widgets.packed import parts_of

RUN = runs.shared_preface

FILL = """(fields) => { for (const [name, value] of Object.entries(fields)) {
    const [model, width] = document.querySelectorAll(".msgl-capwho select");
    const el = name === "model" ? model : name === "dtype" ? width : document.querySelector(`.msgl-cap-${name}`);
    el.value = value;
    el.dispatchEvent(new Event(el === model || el === width ? "change" : "input"));
} }"""


@pytest.fixture(scope="module")
def opened(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    page = Opened(chromium, export_html(RUN, tmp_path_factory.mktemp("card") / "run.html"), "#view=capacity,events")
    yield page
    assert page.problems == []
    page.context.close()


def test_the_runs_own_model_comes_first() -> None:
    assert [m["name"] for m in sizing(RUN.about)["models"]] == ["smollm2-135m", *MODELS]
    assert sizing({}) == sizing(RUN.about) | {"own": False, "models": sizing(RUN.about)["models"][1:]}
    shape = {"layers": 2, "kv_heads": 3, "head_dim": 4, "params": 0, "int8_bytes": 0}
    assert sizing({"model": "mine", "shape": shape})["models"][0] == {"name": "mine"} | shape


def test_a_record_of_another_program_is_shown_all_the_same() -> None:
    shape = {"layers": 2, "kv_heads": 3, "head_dim": 4}
    abouts = [{"shape": shape}, {"shape": shape | {"experts": 8}, "model": "moe"}, {"shape": {"layers": 2}}]
    found = []
    for about in abouts:
        trace = Trace(RUN.keyframe, RUN.events, RUN.texts, about=about | {"config": None})
        found.append(parts_of(Encoder(Feed.of(trace)).record())[0][3]["sizing"])
    assert [(s["own"], s["models"][0]["name"]) for s in found] == [
        *((True, "this model"), (True, "moe"), (False, next(iter(MODELS)))),
    ]


@pytest.mark.parametrize("int8_bytes", [0, 135 * 10**6])  # records from before there was such a number have none
def test_the_weights_of_an_int8_run_are_those_of_size(chromium: Any, tmp_path: Path, int8_bytes: int) -> None:
    shape = sizing(RUN.about)["models"][0] | {"int8_bytes": int8_bytes}
    about = RUN.about | {"shape": shape, "config": RUN.about["config"] | {"quantize": "int8"}}
    run = Trace(RUN.keyframe, RUN.events, RUN.texts, RUN.title, about)
    page = Opened(chromium, export_html(run, tmp_path / "run.html"), "#view=capacity,events")
    said = page.text(".msgl-capbeside")
    assert "int8" in said and said in size(run).text
    page.page.evaluate(FILL, {"model": 1})
    name = next(iter(MODELS))
    dtype = RUN.about["config"]["dtype"]
    said = page.text(".msgl-capbeside")
    assert "int8" not in said and said in size(name, dtype=dtype, gib=1).text, "it is another model's"
    page.context.close()


def shown(opened: Opened) -> dict[str, int]:
    (card,) = opened.data(".msgl-capacity")
    return {name: int(value) for name, value in card.items() if name not in ("model", "dtype")}


def test_it_begins_with_the_runs_own_pool(opened: Opened) -> None:
    longest = max(len(r.prompt) + r.max_tokens for r in RUN.at(RUN.history.last).requests.values())
    facts = size(RUN, length=longest).facts
    card = shown(opened)
    assert (card["pages"], card["pageSize"], card["length"]) == (40, 4, longest)
    assert (card["perToken"], card["pageBytes"], card["bytes"], card["atOnce"]) == (
        *(facts["bytes_per_token"], facts["page_bytes"], facts["bytes"], facts["at_once"]),
    )


def test_every_number_is_that_of_size(opened: Opened) -> None:
    rng = random.Random(18)
    several = 0
    for i in range(80):
        model, dtype = rng.choice(list(MODELS)), rng.choice(list(BYTES))
        page_size, length = rng.choice((1, 3, 16, 64)), rng.randrange(1, 5000)
        given = ("gib", "pages", "tokens", "requests")[i % 4]
        value = (
            rng.choice((0.3, 1, 40, round(rng.uniform(0.001, 200), 3))) if given == "gib" else rng.randrange(1, 9000)
        )
        fields = {"model": list(MODELS).index(model) + 1, "dtype": dtype, "pageSize": page_size, "length": length}
        opened.page.evaluate(FILL, fields | {given: value})
        card, code = shown(opened), opened.page.locator(".msgl-capcode").text_content()
        given_to = {"page_size": page_size, "length": length, "dtype": dtype}
        if given == "gib":
            facts = size(model, gib=value, **given_to).facts
        elif given == "requests":
            asked = size(model, requests=value, **given_to).facts
            assert (card["pages"], card["bytes"]) == (asked["pool_pages"], asked["pool_bytes"]), fields
            facts = size(model, gib=asked["pool_bytes"] / 2**30, **given_to).facts
            assert card["atOnce"] == value
        else:
            pages = value if given == "pages" else -(-value // page_size)
            page = size(model, page_size=page_size, dtype=dtype).facts["page_bytes"]
            facts = size(model, gib=pages * page / 2**30, **given_to).facts
            assert card["pages"] == pages
        names = {
            "perToken": "bytes_per_token",
            "pageBytes": "page_bytes",
            "each": "pages_per_request",
            "pages": "pages",
        }
        names |= {"tokens": "tokens", "bytes": "bytes", "atOnce": "at_once"}
        for name, fact in names.items():
            assert card[name] == facts[fact], (fields, given, value, name)
        assert card["left"] == facts["pages"] - facts["at_once"] * facts["pages_per_request"]
        said = eval(code, {"size": size})
        assert said.facts.get("pool_pages", said.facts.get("pages")) == card["pages"], code
        shares = opened.page.locator(".msgl-capshare").count()
        assert shares == (card["atOnce"] if card["atOnce"] <= 60 else 1)
        several += shares > 1
    assert several > 5


def test_a_number_that_cannot_be_says_so_and_changes_nothing(opened: Opened) -> None:
    opened.page.evaluate(FILL, {"gib": 2, "length": 100})
    before = shown(opened)
    for name, value in [("length", ""), ("length", "0"), ("length", "1.5"), ("gib", "-1"), ("gib", ""), ("pages", "0")]:
        field = opened.page.locator(f".msgl-cap-{name}")
        field.fill(value)
        assert field.get_attribute("aria-invalid") == "true" and shown(opened) == before, (name, value)
        assert "number" in opened.text(".msgl-capsaid")
        opened.page.evaluate(FILL, {"gib": 2, "length": 100})
    assert "requests at once" in opened.text(".msgl-capsaid")


def test_keys_in_a_field_are_the_fields(opened: Opened) -> None:
    step = opened.step
    opened.page.evaluate(FILL, {"pages": 40})
    opened.page.locator(".msgl-cap-pages").focus()
    opened.press("ArrowUp")
    assert shown(opened)["pages"] == 41 and opened.step == step
    opened.scrub(step + 2)
    assert shown(opened)["pages"] == 41, "what was asked does not depend on the step"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, tmp_path: Path, repo_root: Path, scheme: str) -> None:
    path = export_html(RUN, tmp_path / "run.html")
    page = Opened(chromium, path, "#step=9&view=capacity,events", color_scheme=scheme, bypass_csp=True)
    accessible(page, repo_root)
    page.context.close()
