"""size: how much a KV pool holds, and how big it must be. Arithmetic only: no model is loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minisgl.core import pages_for
from minisgl.errors import ConfigError, ModelNotFoundError
from minisgl.events.table import Table
from minisgl.events.words import count
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer
from minisgl.sim.answers.pictures import Look, Piece
from minisgl.sim.roofline import BYTES, GIB, MODELS, ModelShape


class Shape(NamedTuple):
    """What the size of KV depends on, and of the weights: their number, and what they take as int8; 0 where unknown."""

    layers: int
    kv_heads: int
    head_dim: int
    params: int = 0
    int8_bytes: int = 0


LOOKS = {
    "request": Look("r", pictures.SKY, "one request's worst case"),
    "rest": Look("", pictures.PALE, "left over"),
}
COLUMNS = {"figure": "text", "value": "number", "unit": "text"}
MOST_PIECES = 60


def size(
    model: Any,
    *,
    gib: float | None = None,
    page_size: int | None = None,
    requests: int | None = None,
    length: int | None = None,
    dtype: str | None = None,
) -> Answer:
    """What a KV pool holds, or how big it must be; leave out what you want to know.

    Args:
        model: a name in ``minisgl.sim.roofline.MODELS``, spelled in any case; a model's folder; a ModelConfig or a
            ModelShape; or a Shape or tuple ``(layers, kv_heads, head_dim)``. Or a run: an LLM, or a Trace of one, whose
            own pool, page size and dtype then stand for what is left out, and its weights are int8 if it keeps them so.
        gib: the pool's size in GiB. Weights and activations come on top: this is KV alone.
        page_size: tokens per page; 1 if nobody says.
        requests: how many are to run at once, each with its worst case promised.
        length: prompt + new tokens of each, at most.
        dtype: of KV: "bfloat16" (if nobody says), "float16" or "float32".

    With ``gib`` and ``length``: how many at once. With ``requests`` and ``length``: the pool that takes. With ``gib``
    and ``requests``: how long each may be.

    Raises:
        ConfigError: an unknown model or dtype, a run without a model, or a number that cannot be.
        ModelNotFoundError: the folder has no config.json.
    """
    name, shape, run = _of_run(model) if hasattr(model, "about") else (*_shape(model), {})
    page_size = run.get("page_size", 1) if page_size is None else page_size
    dtype = run.get("dtype", "bfloat16") if dtype is None else dtype
    for what, value in (("page_size", page_size), ("requests", requests), ("length", length)):
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigError(f"{what}={value!r}: must be an integer of at least 1")
    if gib is not None and (isinstance(gib, bool) or not isinstance(gib, (int, float)) or not 0 < gib < math.inf):
        raise ConfigError(f"gib={gib!r}: must be a finite number above 0")
    if dtype not in BYTES:
        raise ConfigError(f"dtype={dtype!r}: must be one of {', '.join(map(repr, BYTES))}")
    per_token = 2 * shape.layers * shape.kv_heads * shape.head_dim * BYTES[dtype]
    page = per_token * page_size
    rows: list[tuple[str, int, str]] = [("bytes_per_token", per_token, "bytes"), ("page_bytes", page, "bytes")]
    said = [
        f"{name}: one token's KV takes 2 x {shape.layers} layers x {shape.kv_heads} KV heads x {shape.head_dim} x "
        f"{BYTES[dtype]} bytes = {per_token:,} bytes; a page of {count(page_size, 'token')} {page:,}."
    ]
    pieces: list[Piece] = []
    each = pages_for(length, page_size) if length else None
    if length and each:
        rows.append(("pages_per_request", each, "pages"))
        said.append(f"A request of {length:,} tokens takes {count(each, 'page')} in the worst case.")
    pages = int(gib * GIB) // page if gib is not None else run.get("num_pages")
    if pages is not None:
        rows += [("pages", pages, "pages"), ("tokens", pages * page_size, "tokens"), ("bytes", pages * page, "bytes")]
        pool = f"The pool of {pages * page / GIB:.3g} GiB has" if gib is None else f"{gib:g} GiB hold"
        said.append(f"{pool} {pages:,} pages: {pages * page_size:,} tokens.")
        if each:
            at_once = pages // each
            rows.append(("at_once", at_once, "requests"))
            said.append(
                f"That is {count(at_once, 'such request')} at once, {count(pages - at_once * each, 'page')} left."
            )
            pieces = _pieces(pages, each, at_once)
        if requests and not each:
            longest = pages // requests * page_size
            rows.append(("longest", longest, "tokens"))
            said.append(f"{count(requests, 'request')} at once may have {longest:,} tokens each, prompt and output.")
    if requests and each:
        need = requests * each
        rows += [("pool_pages", need, "pages"), ("pool_bytes", need * page, "bytes")]
        said.append(
            f"{count(requests, 'such request')} at once need {need:,} pages: {need * page:,} bytes, "
            f"{need * page / GIB:.2f} GiB."
        )
        if pages is not None:
            are = "page is" if need - pages == 1 else "pages are"
            said.append("They fit." if need <= pages else f"They do not fit: {need - pages:,} {are} missing.")
    if shape.params:
        int8 = run.get("quantize") == "int8"
        weights = shape.int8_bytes or shape.params if int8 else shape.params * BYTES[dtype]
        rows.append(("weight_bytes", weights, "bytes"))
        scales = " (int8, with their scales)" if shape.int8_bytes else " (int8; their scales come on top)"
        kept = f"weights{scales if int8 else ''}"
        said.append(f"Not part of it: {weights / GIB:.2f} GiB of {kept}, and the activations of a batch.")
    facts = {figure: value for figure, value, _ in rows}
    picture = pictures.bars([("pool", pieces)], LOOKS, ("0 pages", f"{int(pieces[-1].end):,} pages")) if pieces else ""
    return Answer(f"How big is the KV of {name}?", said, Table.of_rows("size", COLUMNS, rows), facts, picture=picture)


def _pieces(pages: int, each: int, at_once: int) -> list[Piece]:
    """The pool as a bar of requests; one piece for all of them where they would be too thin to see."""
    taken = at_once * each
    if at_once > MOST_PIECES:
        pieces = [Piece(0, taken, "request", f"{at_once} requests of {each} pages")]
    else:
        pieces = [Piece(i * each, (i + 1) * each, "request", f"request {i + 1}: {each} pages") for i in range(at_once)]
    if pages > taken:
        pieces.append(Piece(taken, pages, "rest", f"{pages - taken} pages left"))
    return pieces


def shape_of_run(about: dict[str, Any]) -> tuple[str, Shape] | None:
    """Name and shape of the model that a run's ``about`` speaks of; None if it neither says nor names a known one."""
    name, said = str(about.get("model", "this model")), about.get("shape")
    if isinstance(said, Mapping):  # other programs may write records, and later versions other fields
        numbers = [said.get(field, Shape._field_defaults.get(field)) for field in Shape._fields]
        if all(type(n) is int for n in numbers) and min(numbers[:3]) > 0:
            return name, Shape(*numbers)
    known = _known(name)
    return (name, _of_known(known)) if known else None


def _of_run(run: Any) -> tuple[str, Shape, dict[str, Any]]:
    """The model's name and shape, and the configuration, of an engine or a record of one."""
    about = run.about() if callable(run.about) else run.about
    found = shape_of_run(about)
    if found is None:
        raise ConfigError(
            f"this run ({about.get('model', 'of unknown origin')}) does not say its model's shape; name a model: "
            f"size('Qwen3-0.6B', ...)"
        )
    return *found, about.get("config") or {}


def _known(model: Any) -> ModelShape | None:
    """The model of that name, spelled in any case, with or without its owner."""
    return MODELS.get({name.lower(): name for name in MODELS}.get(str(model).rpartition("/")[2].lower(), ""))


def _of_known(known: ModelShape) -> Shape:
    return Shape(known.layers, known.kv_heads, known.head_dim, known.params)


def _shape(model: Any) -> tuple[str, Shape]:
    """A model's name and shape."""
    numbers = isinstance(model, tuple) and 3 <= len(model) <= len(Shape._fields)
    if numbers and all(type(n) is int and n > 0 for n in model[:3]):
        return "this shape", Shape(*model)
    if all(hasattr(model, name) for name in ("num_layers", "num_kv_heads", "head_dim")):
        return "this model", Shape(model.num_layers, model.num_kv_heads, model.head_dim)
    known = model if isinstance(model, ModelShape) else _known(model)
    if known:
        return known.name, _of_known(known)
    if isinstance(model, (str, Path)) and Path(model).expanduser().is_dir():
        return Path(model).name, _from_folder(Path(model).expanduser())
    raise ConfigError(
        f"{model!r} is no model whose shape is known; give one of {', '.join(MODELS)}, a model's folder, or a tuple "
        f"(layers, kv_heads, head_dim)"
    )


def _from_folder(folder: Path) -> Shape:
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        heads = raw["num_attention_heads"]
        dim = raw.get("head_dim") or raw["hidden_size"] // heads
        return Shape(raw["num_hidden_layers"], raw.get("num_key_value_heads") or heads, dim)
    except FileNotFoundError:
        raise ModelNotFoundError(f"{folder} has no config.json: it is not a Hugging Face model folder") from None
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ConfigError(f"{path} does not say the model's shape: {type(error).__name__}: {error}") from None
