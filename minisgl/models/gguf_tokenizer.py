"""The tokenizer inside a GGUF file, written as ``tokenizer.json`` and ``tokenizer_config.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from minisgl.errors import ModelFormatError

CONTROL, USER_DEFINED = 3, 4  # GGUF's token types

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _byte_level(*before: Any, use_regex: bool) -> Any:
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return pre_tokenizers.Sequence([*before, level])


def _split(pattern: str) -> Any:
    return _byte_level(pre_tokenizers.Split(Regex(pattern), behavior="isolated"), use_regex=False)


# GGUF names only the kind of splitting done before the merges (tokenizer.ggml.pre); these are what the names stand for.
PRE_TOKENIZERS: dict[str, Any] = {
    "gpt-2": _byte_level(use_regex=True),
    "smollm": _byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
    "llama-bpe": _split(_WORDS + r"\p{N}{1,3}" + _REST),
    "qwen2": _split(_WORDS + r"\p{N}" + _REST),
}


class Metadata(Protocol):
    """The one thing asked of the file: a value by its key."""

    def get(self, key: str, default: Any = None) -> Any: ...


def write_tokenizer(metadata: Metadata, folder: Path, max_length: int) -> None:
    """Write both tokenizer files, chat template included, into ``folder``.

    Raises:
        ModelFormatError: a tokenizer or a splitting this converter does not know. It never guesses: a wrong split
            still gives text, only not the model's.
    """
    tokens: list[str] = metadata.get("tokenizer.ggml.tokens")

    def special(kind: str) -> str | None:
        index = metadata.get(f"tokenizer.ggml.{kind}_token_id")
        return None if index is None else tokens[index]

    build_tokenizer(metadata).save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special("bos"),
        "eos_token": special("eos"),
        "pad_token": special("padding") or special("eos"),
        "unk_token": special("unknown"),
        "chat_template": metadata.get("tokenizer.chat_template"),
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    content = json.dumps({k: v for k, v in config.items() if v is not None}, indent=1, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(content, encoding="utf-8")


def build_tokenizer(metadata: Metadata) -> Tokenizer:
    """The file's byte-level BPE as a ``tokenizers.Tokenizer``; raises ModelFormatError like :func:`write_tokenizer`."""
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2":
        raise ModelFormatError(f"GGUF tokenizer {kind!r} is not supported; supported is 'gpt2' (byte-level BPE)")
    if pre not in PRE_TOKENIZERS:
        raise ModelFormatError(
            f"GGUF pre-tokenizer {pre!r} (tokenizer.ggml.pre) is not known; known are {', '.join(PRE_TOKENIZERS)}"
        )
    tokens: list[str] = metadata.get("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in metadata.get("tokenizer.ggml.merges")]
    vocab = {token: index for index, token in enumerate(tokens)}
    # Llama 3 takes a word that is a token as that token, even if no merges lead there
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]
    tokenizer.decoder = decoders.ByteLevel()
    steps: list[Any] = [processors.ByteLevel(trim_offsets=False)]
    if metadata.get("tokenizer.ggml.add_bos_token"):
        index = metadata.get("tokenizer.ggml.bos_token_id")
        steps.append(
            processors.TemplateProcessing(
                single=f"{tokens[index]} $A",
                pair=f"{tokens[index]} $A {tokens[index]} $B",
                special_tokens=[(tokens[index], index)],
            )
        )
    tokenizer.post_processor = processors.Sequence(steps)
    for token, token_type in zip(tokens, metadata.get("tokenizer.ggml.token_type"), strict=True):
        if token_type in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=token_type == CONTROL, normalized=False)])
    return tokenizer
