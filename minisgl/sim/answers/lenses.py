"""lens: the same run at other page sizes. Small pages waste nothing and make long tables; large ones the reverse."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minisgl.errors import ConfigError
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer, seconds
from minisgl.sim.answers.pictures import Look, Piece
from minisgl.sim.costs import CostModel
from minisgl.sim.outcome import Outcome
from minisgl.sim.simulator import Simulator
from minisgl.sim.whatif import changed, clock_of, recorded_config
from minisgl.sim.workload import Workload

SIZES = (1, 2, 4, 8, 16, 32, 64)
COLUMNS = {
    "page_size": "tokens",
    "pages": "pages",
    "refused": "requests",
    "kept": "tokens",
    "tail": "tokens",
    "found": "tokens",
    "lost": "tokens",
    "table": "entries",
    "longest": "entries",
    "retractions": "times",
    "ttft": "s",
    "duration": "s",
}
TOKENS = {
    "kept": Look("k", pictures.SKY, "KV that requests have at their end"),
    "tail": Look("t", pictures.ORANGE, "room in their last pages that holds nothing"),
    "lost": Look("l", pictures.RED, "prompt tokens computed again that smaller pages would have shared"),
}
TABLE = {"table": Look("p", pictures.GREEN, "entries of a page table with one per page")}


def lens(trace: Trace, page_sizes: Iterable[int] | None = None, costs: CostModel | None = None) -> Answer:
    """A record's requests under other page sizes, in a pool of the same number of tokens.

    Args:
        trace: the record.
        page_sizes: default: 1 to 64 by powers of two, and the record's own.
        costs: how long a batch takes; None: fitted to the record.

    ``data`` has a row per page size. Of the requests that ended by themselves: tokens of KV they ``kept`` at their end,
    room in their last pages that holds nothing (``tail``), entries of a page table with one per page, all together and
    of the ``longest`` row. Of all: prompt tokens ``found`` in the cache, and how many fewer than under the smallest
    size (``lost``); fewer can also come of evictions. TTFT (mean) and ``duration`` are modelled.

    Raises:
        ConfigError: a page size that cannot be, or of which the pool has fewer than two.
        TraceError: the record does not hold its configuration.
    """
    base, workload = recorded_config(trace), Workload.from_trace(trace)
    own, tokens = base.page_size, trace.keyframe["num_pages"] * base.page_size
    sizes = sorted({s for s in (*SIZES, own) if tokens // s >= 2} if page_sizes is None else set(page_sizes))
    if not sizes:
        raise ConfigError("page_sizes: there is none")
    costs = costs or clock_of(trace)
    rows: list[tuple] = []
    for size in sizes:
        config, _ = changed(base, workload, {"page_size": size, "num_pages": tokens // size if size > 0 else 0})
        rows.append(_row(size, Simulator(config, costs).run(workload), rows[0][5] if rows else None))
    table = Table.of_rows("page sizes", COLUMNS, rows)
    said = [_said(row, own) for row in table.rows()]
    said.append(f"All in {tokens:,} tokens of KV from an empty cache; steps are exact, times are modelled.")
    facts = {"page_size": own, "tokens": tokens} | next((row for row in table.rows() if row["page_size"] == own), {})
    return Answer("What would other page sizes do?", said, table, facts, picture=_picture(table))


def _row(size: int, outcome: Outcome, most: int | None) -> tuple:
    """``most``: tokens found under the smallest size; None if this is the smallest."""
    done = np.isin(outcome.requests.reason, ("stop", "length"))
    kept = (outcome.requests.prompt_tokens + outcome.requests.output_tokens - 1)[done]  # the last token gets no KV
    entries = -(-kept // size)
    found, f = int(outcome.requests.cached_tokens.sum()), outcome.figures
    return (
        size,
        outcome.num_pages,
        f["refused"],
        int(kept.sum()),
        int((entries * size - kept).sum()),
        found,
        0 if most is None else most - found,
        int(entries.sum()),
        int(entries.max(initial=0)),
        f["retractions"],
        f["ttft_mean"],
        f["duration"],
    )


def _said(row: dict, own: int) -> str:
    recorded = " (as recorded)" if row["page_size"] == own else ""
    share = row["tail"] / (row["tail"] + row["kept"]) if row["kept"] else 0.0
    refused = f" {count(row['refused'], 'request')} could not be served." if row["refused"] else ""
    entries = "entry" if row["table"] == 1 else "entries"
    lost = f", {abs(row['lost']):,} {'fewer' if row['lost'] > 0 else 'more'} than with the smallest pages"
    return (
        f"Pages of {row['page_size']}{recorded}: {row['tail']:,} tokens of room hold nothing ({share:.1%}); "
        f"{row['found']:,} prompt tokens found in the cache{lost if row['lost'] else ''}; "
        f"{row['table']:,} table {entries}, {row['longest']} in the longest row; TTFT {seconds(row['ttft'])}.{refused}"
    )


def _picture(table: Table) -> str:
    rows, entries = [], []
    for row in table.rows():
        pieces, at = [], 0
        for kind in TOKENS:
            n = max(0, row[kind])
            if n:
                pieces.append(Piece(at, at + n, kind, f"pages of {row['page_size']}: {kind}, {count(n, 'token')}"))
                at += n
        rows.append((f"pages of {row['page_size']}", pieces))
        title = f"pages of {row['page_size']}: {count(row['table'], 'entry', 'entries')}"
        entries.append((f"pages of {row['page_size']}", [Piece(0, row["table"], "table", title)]))
    end = max((p[-1].end for _, p in rows if p), default=0)
    longest = max(int(n) for n in table.table)
    if not end:
        return ""
    return pictures.bars(rows, TOKENS, ("0 tokens", f"{end:,} tokens")) + pictures.bars(
        entries, TABLE, ("0 entries", f"{longest:,} entries")
    )
