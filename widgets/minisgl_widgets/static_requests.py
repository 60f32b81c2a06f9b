"""Requests with their texts, and the prefix cache as a tree."""

from __future__ import annotations

from html import escape

from minisgl.events.snapshot import Snapshot
from minisgl.events.state import RequestState
from minisgl.events.table import aligned
from minisgl.events.words import count
from minisgl_widgets.shown import MOST_ROWS, Chip, Html, Prose, Texts, left_out, page_list, plain, said, section

# -- requests --------------------------------------------------------------------------------------------------------

REQUEST_HEADS = ("request", "status", "prompt", "cached", "output", "KV", "row", "pages", "promised")


def _request_title(snap: Snapshot) -> str:
    return f"requests after step {snap.step}{left_out(snap.requests)}" + ("" if snap.requests else ": none yet")


def _listed(snap: Snapshot) -> list[RequestState]:
    return list(snap.requests.values())[-MOST_ROWS:]


def _request_rows(snap: Snapshot) -> list[tuple]:
    rows = []
    for r in _listed(snap):
        why = r.reason or (r.verdict if r.status == "waiting" and r.verdict != "admitted" else "")
        status = f"{r.status}: {why}" if why else r.status
        row = "" if r.row < 0 else r.row
        pages = f"{len(r.pages)} ({len(r.pending)} pending)" if r.pending else len(r.pages)
        output = f"{len(r.output)}/{r.max_tokens}"
        rows.append((r.uid, status, len(r.prompt), r.matched, output, r.cached_len, row, pages, r.reserved))
    return rows


def requests_text(snap: Snapshot, texts: Texts = None) -> str:
    """One line per request, and its text: ``prompt | output``, the part found in the cache in [brackets]."""
    lines = [_request_title(snap)]
    if not snap.requests:
        return lines[0]
    table = [REQUEST_HEADS, *_request_rows(snap)]
    lines += ["  " + line for line in aligned([[str(v) for v in row] for row in table])]
    for r in _listed(snap):
        if r.error:
            lines.append(f"  {r.uid}: {r.error}")
            continue
        cached = f"[{plain(r.prompt[: r.matched], texts)}]" if r.matched else ""
        lines.append(f"  {r.uid}: {cached}{plain(r.prompt[r.matched :], texts)} | {plain(r.output, texts)}".rstrip())
    return "\n".join(lines)


def requests_html(snap: Snapshot, texts: Texts = None) -> str:
    rows: list[tuple] = []
    for r, row in zip(_listed(snap), _request_rows(snap), strict=True):
        cached = f"<u>{escape(plain(r.prompt[: r.matched], texts))}</u>" if r.matched else ""
        prompt = Html(cached + escape(r.error or plain(r.prompt[r.matched :], texts)))
        rows.append((Chip(r.uid), Prose(row[1]), *row[2:], prompt, Prose(plain(r.output, texts))))
    heads = (*REQUEST_HEADS, "prompt (underlined: found in the cache)", "output so far")
    return section(_request_title(snap), heads, rows)


# -- radix tree ------------------------------------------------------------------------------------------------------


def _tree_title(snap: Snapshot, nodes: int) -> str:
    pages = sum(len(n.pages) for n in snap.tree.values())
    what = f"{count(pages, 'page')} in {count(nodes, 'node')}" if nodes else "nothing cached"
    return f"prefix cache after step {snap.step}: {what}"


def tree_text(snap: Snapshot, texts: Texts = None) -> str:
    """The prefix cache, one node a line, indented: the text on its edge, its pages, locks and last use."""
    branches = list(snap.tree.walk())
    lines = [_tree_title(snap, len(branches))]
    for node, depth in branches[:MOST_ROWS]:
        n = snap.tree[node]
        edge = f"{'  ' * min(depth + 1, 30)}[{node}] {said(n.tokens, texts)}"
        lines.append(f"{edge}  pages {page_list(n.pages)}, locks {n.locks}, last used {n.used}")
    if len(branches) > MOST_ROWS:
        lines.append(f"  and {len(branches) - MOST_ROWS} more nodes")
    return "\n".join(lines)


def tree_html(snap: Snapshot, texts: Texts = None) -> str:
    rows: list[tuple] = []
    branches = list(snap.tree.walk())
    for node, depth in branches[:MOST_ROWS]:
        n = snap.tree[node]
        edge = "\u00a0\u00a0\u00a0\u00a0" * min(depth, 30) + ("└ " if depth else "") + said(n.tokens, texts)
        rows.append((node, Prose(edge), len(n.tokens), Prose(page_list(n.pages)), n.locks, n.used))
    if len(branches) > MOST_ROWS:
        rows.append(("", Prose(f"and {len(branches) - MOST_ROWS} more nodes"), "", "", "", ""))
    heads = ("node", "text on its edge", "tokens", "pages", "locks", "last used")
    return section(_tree_title(snap, len(branches)), heads, rows)
