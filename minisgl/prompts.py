"""What a user may give as prompts, made plain: texts and lists of token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any

from minisgl.errors import PromptTypeError


def listed(prompts: Any) -> tuple[list[Any], bool]:
    """The prompts as a list, and whether it was one prompt alone: a text, or a row of token ids.

    Lists, tuples, arrays, tensors and generators will do. An empty row is a list of no prompts.
    """
    if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Iterable):
        return [prompts], True
    rows = list(prompts)
    one = bool(rows) and not isinstance(rows[0], (str, bytes)) and _is_scalar(rows[0])
    return ([rows], True) if one else (rows, False)


def tokens_of(prompt: Any, encode: Callable[[str], list[int]]) -> list[int]:
    """A prompt's token ids. Raises PromptTypeError for anything that is not text or whole numbers in a row."""
    if isinstance(prompt, str):
        try:
            return encode(prompt)
        except (TypeError, UnicodeError) as error:  # tokenizers refuse what is no Unicode text, like a lone surrogate
            raise PromptTypeError(f"the text {prompt[:40]!r} cannot be encoded: {error}") from None
    if isinstance(prompt, bytes) or not isinstance(prompt, Iterable):
        raise PromptTypeError(f"{prompt!r:.60} is no prompt; give a text or a list of token ids")
    tokens = []
    for position, token in enumerate(prompt):
        try:
            tokens.append(index(token))
        except TypeError:
            raise PromptTypeError(f"{token!r:.60} at position {position} is no token id; give whole numbers") from None
    return tokens


def _is_scalar(value: Any) -> bool:
    """A number, or an array or tensor without dimensions."""
    return getattr(value, "ndim", 1 if isinstance(value, Iterable) else 0) == 0
