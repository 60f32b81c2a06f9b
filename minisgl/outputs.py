"""What the offline API returns: outputs, lists of them, and pieces of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape


@dataclass
class Output:
    """One prompt's result. ``finish_reason``: stop | length | abort | error; None while it runs.

    ``cached_tokens`` of the prompt came from the prefix cache; ``error`` is what was wrong with the request.
    """

    uid: int
    text: str
    token_ids: list[int]
    prompt_token_ids: list[int] = field(repr=False)
    finish_reason: str | None
    cached_tokens: int = 0
    error: Exception | None = None

    def __repr__(self) -> str:
        said = f"error={self.error}" if self.error else repr(_short(self.text))
        return (
            f"Output(uid={self.uid}, {said}, tokens={len(self.token_ids)}, prompt={len(self.prompt_token_ids)}, "
            f"cached={self.cached_tokens}, finish_reason={self.finish_reason!r})"
        )

    def _repr_html_(self) -> str:
        return Outputs([self])._repr_html_()


class Outputs(list[Output]):
    """The outputs of one ``generate`` call, one per prompt, in order."""

    def _repr_html_(self) -> str:
        heads = ("uid", "prompt tokens", "cached", "new", "finish", "text")
        rows = [
            (o.uid, len(o.prompt_token_ids), o.cached_tokens, len(o.token_ids), o.finish_reason, o.error or o.text)
            for o in self
        ]
        head = "".join(f"<th>{h}</th>" for h in heads)
        body = "".join("<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row) + "</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True)
class Piece:
    """A bit of a stream: text that is whole characters, and the tokens behind it. ``str(piece)`` is the text."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None

    def __str__(self) -> str:
        return self.text


class Detokenizer:
    """Turns a growing list of tokens into text, piece by piece, never cutting a character in half.

    A token may hold only part of a UTF-8 character, and some tokenizers join neighbours differently than apart; so the
    text of a window that starts a little earlier is compared with and without the new tokens.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._start = 0  # the window's first token
        self._said = 0  # tokens whose text was given out

    def next(self, tokens: list[int], last: bool) -> str:
        """The text that ``tokens`` gained; "" while a character is incomplete and this is not the ``last`` call."""
        before = self._decode(tokens[self._start : self._said])
        now = self._decode(tokens[self._start :])
        if not last and (now.endswith("\ufffd") or len(now) <= len(before)):
            return ""
        self._start, self._said = self._said, len(tokens)
        return now[len(before) :]


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
