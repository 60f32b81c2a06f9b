"""Workloads from files: the Azure and Mooncake traces, and JSON lines of our own.

Nothing is expanded before its request arrives: a prompt of which only the length is known is one id that stands for all
its tokens, a prompt told in blocks is one id per block.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from minisgl.core import SamplingParams
from minisgl.errors import WorkloadError
from minisgl.sim.arrival import END, FIRST_ID, Arrival, LengthOnly

AZURE = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]


def read_azure(path: str | Path) -> tuple[Arrival, ...]:
    """See ``Workload.azure``."""
    rows = []
    for number, row in enumerate(csv.reader(_lines(path)), 1):
        if number == 1:
            if [name.strip() for name in row] != AZURE:
                raise _wrong(path, 1, f"the columns are {row}; an Azure LLM trace has {','.join(AZURE)}")
        elif row:
            if len(row) != 3:
                raise _wrong(path, number, f"{len(row)} fields; there should be 3: {','.join(AZURE)}")
            rows.append((number, row))
    numbers, texts = zip(*rows, strict=True) if rows else ((), ())
    at = _column(path, numbers, [t[0] for t in texts], "datetime64[ns]", "a date and time")
    prompts = _column(path, numbers, [t[1] for t in texts], "int64", "a whole number of tokens")
    new = _column(path, numbers, [t[2] for t in texts], "int64", "a whole number of tokens")
    _at_least_one(path, numbers, prompts, AZURE[1])
    _at_least_one(path, numbers, new, AZURE[2])
    if not rows:
        return ()
    seconds = (at - at.min()) / np.timedelta64(1, "s")
    ids = np.arange(FIRST_ID, FIRST_ID + len(rows), dtype=np.int32)
    params = LengthOnly()
    order = np.argsort(seconds, kind="stable").tolist()
    columns = list(zip(seconds.tolist(), prompts.tolist(), new.tolist(), strict=True))
    return tuple([Arrival(columns[i][0], ids[i : i + 1], params(columns[i][2]), repeat=columns[i][1]) for i in order])


def _column(path: str | Path, numbers: Iterable[int], texts: list[str], dtype: str, what: str) -> np.ndarray:
    """Texts as numbers or times. WorkloadError for the first line that is neither."""
    try:
        return np.array(texts, dtype)
    except ValueError:
        for number, text in zip(numbers, texts, strict=True):
            try:
                np.array([text], dtype)
            except ValueError:
                raise _wrong(path, number, f"{text!r} is not {what}") from None
        raise


def _at_least_one(path: str | Path, numbers: Iterable[int], lengths: np.ndarray, what: str) -> None:
    if (lengths < 1).any():
        i = int(np.argmax(lengths < 1))
        raise _wrong(path, list(numbers)[i], f"{what} is {lengths[i]}; leave out requests without tokens")


class _Mooncake(msgspec.Struct):
    timestamp: float  # ms
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_mooncake(path: str | Path, block: int) -> tuple[Arrival, ...]:
    """See ``Workload.mooncake``."""
    decode = msgspec.json.Decoder(_Mooncake).decode
    rows, blocks = [], []
    for number, line in _json_lines(path):
        r = _decoded(decode, path, number, line)
        if r.input_length < 1 or r.output_length < 1:
            raise _wrong(path, number, "input_length and output_length must be at least 1; leave such requests out")
        need = -(-r.input_length // block)
        if len(r.hash_ids) != need:
            raise _wrong(
                path,
                number,
                f"{len(r.hash_ids)} hash_ids for {r.input_length} tokens, and blocks of {block} would be {need}; "
                "give the block size of this trace",
            )
        rows.append((_seconds(path, number, r.timestamp / 1000, "timestamp"), r.input_length, r.output_length, need))
        blocks += r.hash_ids
    # hashes may be any number; what counts is which are equal
    ids = (np.unique(np.array(blocks), return_inverse=True)[1] + FIRST_ID).astype(np.int32)
    start, params, arrivals = min((r[0] for r in rows), default=0.0), LengthOnly(), []
    done = 0
    for at, length, new, n in rows:
        arrivals.append(Arrival(at - start, ids[done : done + n], params(new), repeat=block, length=length))
        done += n
    return in_order(arrivals)


# -- our own -------------------------------------------------------------------------------------------------------

_Tokens = int | list[int | tuple[int | str | None, int]]


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A line of our own format: see ``Workload.jsonl``."""

    at: float
    prompt: _Tokens
    max_tokens: int | None = None
    output: _Tokens | None = None
    abort_at: float | None = None
    id: str | None = None
    params: dict[str, Any] | None = None


class _Ids:
    """Gives the texts of a file their token ids: names always the same, nameless ones each their own."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.next = FIRST_ID

    def fresh(self) -> int:
        self.next += 1
        return self.next - 1

    def named(self, name: str) -> int:
        if name not in self.names:
            self.names[name] = self.fresh()
        return self.names[name]

    def runs(self, tokens: _Tokens) -> tuple[np.ndarray, int | np.ndarray]:
        """Ids and how many tokens each stands for. ValueError says what is wrong."""
        if isinstance(tokens, int):
            tokens = [(None, tokens)]
        if all(isinstance(item, int) for item in tokens):
            return _int32(tokens), 1
        ids, counts = [], []
        for item in tokens:
            what, n = (item, 1) if isinstance(item, int) else item
            if n < 1:
                raise ValueError(f"a run of {n} tokens")
            ids.append(self.fresh() if what is None else self.named(what) if isinstance(what, str) else what)
            counts.append(n)
        return _int32(ids), np.array(counts)


def read_jsonl(path: str | Path) -> tuple[Arrival, ...]:
    """See ``Workload.jsonl``."""
    decode = msgspec.json.Decoder(_Line).decode
    ids, arrivals = _Ids(), []
    lines = [(number, _decoded(decode, path, number, line)) for number, line in _json_lines(path)]
    # ids that the file spells out must not be met by those given to its names
    ids.next = max([FIRST_ID, *(_highest(r.prompt) + 1 for _, r in lines), *(_highest(r.output) + 1 for _, r in lines)])
    for number, r in lines:
        try:
            prompt, repeat = ids.runs(r.prompt)
            output = np.repeat(*ids.runs(r.output)) if r.output is not None else _int32([])
            if not len(prompt):
                raise ValueError("the prompt has no tokens")
            params = msgspec.convert({"max_tokens": r.max_tokens or len(output)} | (r.params or {}), SamplingParams)
            params.validate()
        except (ValueError, msgspec.ValidationError) as error:
            raise _wrong(path, number, str(error)) from None
        if isinstance(r.output, int) and len(output) < params.max_tokens:  # it ends by itself
            output[-1:] = END
            params = msgspec.structs.replace(params, stop_token_ids=(*params.stop_token_ids, END))
        at = _seconds(path, number, r.at, "at")
        abort_at = None if r.abort_at is None else _seconds(path, number, r.abort_at, "abort_at")
        arrivals.append(Arrival(at, prompt, params, output, abort_at, r.id, repeat))
    return in_order(arrivals)


def write_jsonl(path: str | Path, arrivals: Iterable[Arrival]) -> None:
    """See ``Workload.save``."""
    plain = msgspec.to_builtins(SamplingParams())
    encode = msgspec.json.Encoder().encode
    with _opened(path, "wb") as file:
        for a in arrivals:
            params = {k: v for k, v in msgspec.to_builtins(a.params).items() if v != plain[k] and k != "max_tokens"}
            line = _Line(
                at=a.at,
                prompt=_written(a.tokens()),
                max_tokens=a.params.max_tokens,
                output=_written(a.output) if len(a.output) else None,
                abort_at=a.abort_at,
                id=a.client_id,
                params=params or None,
            )
            file.write(encode(line) + b"\n")


def _written(tokens: np.ndarray) -> list[int | tuple[int | str | None, int]]:
    """Token ids, equal neighbours as one run."""
    starts = np.flatnonzero(np.diff(tokens, prepend=tokens[0] - 1))
    counts = np.diff(starts, append=len(tokens)).tolist()
    pairs = zip(tokens[starts].tolist(), counts, strict=True)
    return [token if n == 1 else (token, n) for token, n in pairs]


def _highest(tokens: _Tokens | None) -> int:
    """The highest token id that is spelled out."""
    if not isinstance(tokens, list):
        return -1
    spelled = (item if isinstance(item, int) else item[0] for item in tokens)
    return max((token for token in spelled if isinstance(token, int)), default=-1)


# -- lines -----------------------------------------------------------------------------------------------------------


def in_order(arrivals: list[Arrival]) -> tuple[Arrival, ...]:
    return tuple(sorted(arrivals, key=lambda a: a.at))


def _opened(path: str | Path, mode: str) -> Any:
    try:
        return open(path, mode)  # the caller closes it
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}; give the path of a workload's file") from None


def _lines(path: str | Path) -> Iterator[str]:
    with _opened(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise _wrong(path, number, "this is not UTF-8 text; unpack the file if it is compressed") from None


def _json_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(_lines(path), 1) if line.strip())


def _decoded(decode: Any, path: str | Path, number: int, line: str) -> Any:
    try:
        return decode(line)
    except msgspec.MsgspecError as error:
        raise _wrong(path, number, f"{error}; each line is one request in JSON") from None


def _seconds(path: str | Path, number: int, value: float, name: str) -> float:
    if not 0 <= value < math.inf:
        raise _wrong(path, number, f"{name} is {value}; it must be a finite time, 0 or later")
    return value


def _int32(ids: Any) -> np.ndarray:
    array = np.array(ids, dtype=np.int64)
    if len(array) and not (array.min() >= 0 and array.max() < 1 << 31):
        raise ValueError("token ids must be 0 or more and below 2**31")
    return array.astype(np.int32)


def _wrong(path: str | Path, number: int, what: str) -> WorkloadError:
    return WorkloadError(f"{path}, line {number}: {what}")
