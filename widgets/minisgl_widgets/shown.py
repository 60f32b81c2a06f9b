"""A view in two forms, text and plain HTML, and the small parts that both are made of.

The HTML has no scripts and no style sheet, and says everything in characters as well, because viewers drop colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from html import escape
from typing import Any

from minisgl.events.table import aligned
from minisgl.events.words import pages as page_runs
from minisgl_widgets import palette

Texts = Mapping[int, str] | None  # what token ids say; without it ids are shown

MOST_ROWS = 50  # of a table
MOST_TEXT = 160  # characters of a text or of a list of pages


@dataclass(frozen=True)
class Shown:
    """A view in its two forms: a cell may end in it, and ``print`` gives its text."""

    text: str = field(repr=False)
    html: str = field(repr=False)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def heading(text: str) -> Shown:
    return Shown(text, f"<p><b>{escape(text)}</b></p>")


def characters(text: str) -> str:
    """HTML in which every character is as wide as another: notebooks give ``pre`` alone the font of prose."""
    return f"<pre><code>{escape(text)}</code></pre>"


def together(*parts: Shown) -> Shown:
    """Views below one another as one."""
    return Shown("\n\n".join(part.text for part in parts), "\n".join(part.html for part in parts))


# -- tables ----------------------------------------------------------------------------------------------------------


class Prose(str):
    """Text to be read, not compared: it stands at the left of its cell."""


class Html(Prose):
    """Prose that is HTML already."""


class Chip(int):
    """A request's number, shown in its colour."""


LEFT = ' style="text-align:left"'  # notebooks put cells to the right; viewers that drop styles lose nothing


def box(text: str, fill: str, title: str = "") -> str:
    hint = f' title="{escape(title)}"' if title else ""
    return f'<td bgcolor="{fill}"{hint}><font color="{palette.ink(fill)}">{escape(text)}</font></td>'


def section(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A heading, and a table if it has rows."""
    heading = f"<b>{escape(title[:1].upper() + title[1:])}</b>"
    if not rows:
        return f"<p>{heading}</p>"
    prose = [isinstance(value, Prose) for value in rows[0]]
    head = "".join(f"<th{LEFT if left else ''}>{escape(h)}</th>" for h, left in zip(heads, prose, strict=True))
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"{heading}<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, Chip):
        return box(str(int(value)), palette.of_uid(value))
    text = value if isinstance(value, Html) else escape("" if value is None else str(value))
    return f"<td{LEFT if isinstance(value, Prose) else ''}>{text}</td>"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Shown:
    """A heading and a table; the first rows if there are many. Prose stands at the left, the rest at the right."""
    listed = rows[:MOST_ROWS]
    title += f" ({len(rows) - MOST_ROWS} more are left out)" if len(rows) > MOST_ROWS else ""
    if not listed:
        return Shown(title, section(title, heads, listed))
    cells = [[str(int(v)) if isinstance(v, Chip) else "" if v is None else str(v) for v in row] for row in listed]
    left = [i for i, v in enumerate(listed[0]) if isinstance(v, Prose)]
    return Shown("\n".join([title, *aligned([heads, *cells], left)]), section(title, heads, listed))


# -- words -----------------------------------------------------------------------------------------------------------


def left_out(rows: Sized) -> str:
    return f" ({len(rows) - MOST_ROWS} earlier ones are left out)" if len(rows) > MOST_ROWS else ""


def middle(text: str, most: int = MOST_TEXT) -> str:
    """A text without its middle, if it is long."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def page_list(pages: Sequence[int]) -> str:
    runs = page_runs(tuple(pages))
    return runs if len(runs) <= MOST_TEXT else f"{middle(runs)} ({len(pages)} in all)"


def plain(tokens: Sequence[int], texts: Texts) -> str:
    """What tokens say, in one line, a long text without its middle; ids where that is not known."""
    if len(tokens) > 2 * MOST_TEXT:  # a token is at least a character, so these are all that could be seen
        head, tail = _joined(tokens[:MOST_TEXT], texts), _joined(tokens[-MOST_TEXT:], texts)
        return f"{head[: MOST_TEXT // 2]} … {tail[-MOST_TEXT // 2 :]}"
    return middle(_joined(tokens, texts))


def _joined(tokens: Sequence[int], texts: Texts) -> str:
    if texts is None:
        return " ".join(map(str, tokens))
    return "".join(texts.get(token, f" #{token}") for token in tokens).replace("\r", "").replace("\n", "⏎")


def said(tokens: Sequence[int], texts: Texts) -> str:
    return repr(plain(tokens, texts)) if texts is not None else plain(tokens, texts)
