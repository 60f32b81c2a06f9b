"""Table: equally long columns with units, for a terminal, a notebook, and whatever computes on arrays."""

from __future__ import annotations

import textwrap
from collections.abc import Container, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from html import escape
from importlib import import_module
from typing import Any

import numpy as np

from minisgl.errors import MissingLibraryError
from minisgl.events.words import count

HEAD, WIDTH = 10, 110  # rows that a repr shows, and characters of a line


class Table(Mapping[str, np.ndarray]):
    """Columns by name: ``table["uid"]`` or ``table.uid``; iterating gives names, ``len`` counts rows, as in pandas.

    ``units`` maps each column to what it counts, which decides its type as well: "s" float64, "text" str, "flag"
    bool, anything else int64. What is unknown or does not exist is NaN seconds, the integer -1, or an empty text.
    """

    def __init__(self, name: str, units: Mapping[str, str], columns: Sequence[Sequence[Any] | np.ndarray]) -> None:
        assert len({len(column) for column in columns}) == 1, (name, [len(column) for column in columns])
        self.name = name
        self.units = dict(units)
        self._columns = {c: _array(v, unit) for (c, unit), v in zip(self.units.items(), columns, strict=True)}

    @classmethod
    def of_rows(cls, name: str, units: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> Table:
        return cls(name, units, list(zip(*rows, strict=True)) or [()] * len(units))

    # -- columns -----------------------------------------------------------------------------------------------------

    def __getitem__(self, column: str) -> np.ndarray:
        return self._columns[column]

    def __getattr__(self, column: str) -> np.ndarray:
        if column.startswith("_"):  # copy and pickle ask before there are columns
            raise AttributeError(column)
        if column not in self._columns:
            raise AttributeError(f"{self.name} has no column {column!r}; it has {', '.join(self._columns)}")
        return self._columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    # the mixins of Mapping would count rows where these count columns
    def keys(self) -> KeysView[str]:
        return self._columns.keys()

    def values(self) -> ValuesView[np.ndarray]:
        return self._columns.values()

    def items(self) -> ItemsView[str, np.ndarray]:
        return self._columns.items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table) or self.units != other.units or len(self) != len(other):
            return False
        return all(np.array_equal(a, other[c], equal_nan=a.dtype.kind == "f") for c, a in self.items())

    __hash__ = None  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._columns)

    # -- rows --------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row as a dict of plain Python values."""
        names = list(self._columns)
        for values in zip(*(a.tolist() for a in self.values()), strict=True):
            yield dict(zip(names, values, strict=True))

    # -- elsewhere ---------------------------------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``. MissingLibraryError without pandas."""
        return _library("pandas", self.name).DataFrame(dict(self._columns))

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``. MissingLibraryError without polars."""
        return _library("polars", self.name).DataFrame(dict(self._columns))

    # -- for people --------------------------------------------------------------------------------------------------

    def text(self, most: int | None = None, width: int | None = None) -> str:
        """Aligned columns under their names: at most ``most`` rows, and only columns that fit into ``width``."""
        shown = self._shown(most)
        cells = {c: [c, *(_cell(v) for v in a[:shown].tolist())] for c, a in self.items()}
        widths = {c: max(map(len, column)) for c, column in cells.items()}
        fitting: list[str] = []
        used = 0
        for column, wide in widths.items():
            used += wide + 2
            if width is None or used - 2 <= width or not fitting:
                fitting.append(column)
            else:
                break
        left = [i for i, c in enumerate(fitting) if self[c].dtype.kind == "U"]
        lines = aligned(list(zip(*(cells[c] for c in fitting), strict=True)), left)
        if shown < len(self):
            lines.append(f"... and {count(len(self) - shown, 'more row')}")
        if len(fitting) < len(cells):
            left_out = f"... and columns {', '.join(c for c in cells if c not in fitting)}"
            lines += textwrap.wrap(left_out, max(width or 0, 40), subsequent_indent="    ")
        return "\n".join(lines)

    def _shown(self, most: int | None) -> int:
        return len(self) if most is None else min(most, len(self))

    def __repr__(self) -> str:
        size = f"{count(len(self), 'row')} of {count(len(self._columns), 'column')}"
        return f"{self.name}: {size}\n{self.text(HEAD, WIDTH)}"

    def _repr_html_(self) -> str:
        shown = self._shown(HEAD)
        head = "".join(f'<th title="{escape(unit)}">{escape(c)}</th>' for c, unit in self.units.items())
        columns = [[_cell(v) for v in a[:shown].tolist()] for a in self.values()]
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(v)}</td>" for v in row) + "</tr>" for row in zip(*columns, strict=True)
        )
        more = f"<p>... and {count(len(self) - shown, 'more row')}</p>" if shown < len(self) else ""
        return f"<b>{escape(self.name)}</b>: {count(len(self), 'row')}<table><tr>{head}</tr>{body}</table>{more}"


def aligned(rows: Sequence[Sequence[str]], left: Container[int] = ()) -> list[str]:
    """Lines of cells under one another; the columns in ``left`` start at the left, the others end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _array(values: Sequence[Any] | np.ndarray, unit: str) -> np.ndarray:
    if unit == "s":
        return np.array(values, dtype=np.float64)
    if unit == "text":
        return np.array(values, dtype=np.str_)
    return np.array(values, dtype=np.bool_ if unit == "flag" else np.int64)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "-" if value != value else f"{value:.6g}"
    text = str(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def _library(name: str, table: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"{name} is not installed, and minisgl does without it: pip install {name}; "
            f"dict(trace.{table}) are the same columns as NumPy arrays"
        ) from error
