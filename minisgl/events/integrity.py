"""Does a state keep the engine's rules? Checks that need nothing but the state, so they hold for a replay as well.

``minisgl.events.audit`` asks the same of each event, for much less, and says who broke what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from minisgl.core import pages_for
from minisgl.events.state import CACHE, FREE, holds


def violations(state: dict) -> list[str]:
    """The broken rules, in words; an empty list is a sound state. Costs O(pages + tree + requests).

    One owner per page; ``free + owned + cached = num_pages``; the free list names each free page once; no free page
    named by a live row; a row begins with the pages its request locks; rows and requests name each other; the tree's
    pages are the cache's; locks equal the requests that hold them; counters equal a walk; nothing is promised that
    could not be had.
    """
    live = [r for r in state["requests"].values() if holds(r)]
    stray = list(_stray(state, live))
    if stray:  # nothing else can be asked about pages that do not exist
        return stray
    return [*_pages(state), *_rows(state, live), *_locks(state, live), *_counts(state, live)]


def _stray(state: dict, live: list[dict]) -> Iterator[str]:
    last = state["num_pages"] - 1
    names = [(f"request {r['uid']}", [*r["pages"], *r["pending"]]) for r in live]
    names += [(f"tree node {i}", n["pages"]) for i, n in state["nodes"].items()]
    for name, pages in names:
        for page in pages:
            if not 0 <= page <= last:
                what = "the dummy page" if page == last + 1 else f"not in 0..{last}"
                yield f"{name} names page {page}, which is {what}"


def _pages(state: dict) -> Iterator[str]:
    owner, order, queue = state["pages"]["owner"], state["pages"]["order"], state["queue"]
    in_tree = Counter(p for n in state["nodes"].values() for p in n["pages"])
    for page, count in in_tree.items():
        if count > 1:
            yield f"page {page} is in {count} tree nodes"
        if owner[page] != CACHE:
            yield f"page {page} is in the tree but belongs to {name_of(owner[page])}"
    for page, who in enumerate(owner):
        if who == CACHE and page not in in_tree:
            yield f"page {page} belongs to the cache but no tree node has it"
        if (order[page] >= 0) != (who == FREE):
            listed = "is" if order[page] >= 0 else "is not"
            yield f"page {page} belongs to {name_of(who)} but {listed} in the free list"
    places: dict[int, list[int]] = {place: [] for place in range(queue["taken"], queue["added"])}
    for page, place in enumerate(order):
        if place >= 0:
            places.setdefault(place, []).append(page)
    for place, there in places.items():
        if len(there) != 1 or not queue["taken"] <= place < queue["added"]:
            span = f"which runs from {queue['taken']} to {queue['added']}"
            yield f"place {place} of the free list, {span}, has pages {there}"


def _rows(state: dict, live: list[dict]) -> Iterator[str]:
    owner = state["pages"]["owner"]
    for r in live:
        who, row, pending = f"request {r['uid']}", r["pages"], set(r["pending"])
        path, over = pages_on(state["nodes"], r["node"]), r["status"] == "finished"
        # the row of a finished one is not rewritten any more: it may still name its own copies
        if len(row) < len(path) or any(a != b and not (over and a in pending) for a, b in zip(row, path, strict=False)):
            yield f"{who} locks pages {path} but its row begins with {row[: len(path)]}"
        for page in row:
            if owner[page] not in (r["uid"], CACHE):
                yield f"{who}'s row names page {page}, which belongs to {name_of(owner[page])}"
        for page in r["pending"]:
            if owner[page] != r["uid"]:
                yield f"{who} still has page {page} pending, which belongs to {name_of(owner[page])}"
        for page in () if over else sorted(pending.intersection(row)):
            yield f"{who} has given up page {page}, but its row names it"
        if len(r["pending"]) > len(pending):
            yield f"{who} has a page pending twice: {r['pending']}"
        if len(row) < pages_for(r["cached_len"], state["page_size"]) and r["row"] >= 0:
            yield f"{who} has KV for {r['cached_len']} tokens but only {len(row)} pages"
        if r["row"] >= 0 and state["rows"][r["row"]]["uid"] != r["uid"]:
            yield f"{who} has row {r['row']}, which belongs to {name_of(state['rows'][r['row']]['uid'])}"
        if r["row"] < 0 and r["status"] in ("prefill", "running"):
            yield f"{who} is at work but has no row"
    held = {r["uid"]: {*r["pages"], *r["pending"]} for r in live}
    for page, uid in enumerate(owner):
        if uid >= 0 and page not in held.get(uid, ()):
            yield f"page {page} belongs to request {uid}, whose row does not name it: leaked"
    seats = {r["uid"]: r["row"] for r in live}
    for number, row in enumerate(state["rows"]):
        if row["uid"] >= 0 and seats.get(row["uid"]) != number:
            yield f"row {number} belongs to request {row['uid']}, which does not have it"
        if row["uid"] >= 0 and row["generation"] < 1:
            yield f"row {number} is taken but was never handed out"


def _locks(state: dict, live: list[dict]) -> Iterator[str]:
    nodes = state["nodes"]
    holders: Counter[int] = Counter()
    for r in live:
        holders.update(path_to(nodes, r["node"]))
    for i, n in nodes.items():
        if n["locks"] != holders[i]:
            yield f"tree node {i} has {n['locks']} locks but {holders[i]} requests hold it"


def _counts(state: dict, live: list[dict]) -> Iterator[str]:
    counters, walked = state["counters"], counts(state)
    for name, n in walked.items():
        if counters[name] != n:
            yield f"{name} says {counters[name]}, counting gives {n}"
    if counters["free_pages"] + counters["evictable_pages"] + counters["pending_pages"] < counters["reserved_pages"]:
        yield "more pages are promised than could be had"


def counts(state: dict) -> dict[str, int]:
    """The counters of ``events.Counters``, by a walk of the state."""
    owner, requests = state["pages"]["owner"], state["requests"].values()
    cached = Counter({True: 0, False: 0})
    for n in state["nodes"].values():
        cached[n["locks"] > 0] += len(n["pages"])
    free = owner.count(FREE)
    return {
        "waiting": len(state["waiting"]),
        "running": len(state["running"]),
        "free_pages": free,
        "reserved_pages": sum([r["reserved"] for r in requests]),
        "owned_pages": len(owner) - free - owner.count(CACHE),
        "evictable_pages": cached[False],
        "protected_pages": cached[True],
        "pending_pages": sum([len(r["pending"]) for r in requests]),
    }


def path_to(nodes: dict, node: int) -> list[int]:
    """The nodes from the root's child down to ``node``."""
    path = []
    while node > 0:
        path.append(node)
        node = nodes[node]["parent"]
    return path[::-1]


def pages_on(nodes: dict, node: int) -> list[int]:
    """The pages from the root to a node's end."""
    return [page for i in path_to(nodes, node) for page in nodes[i]["pages"]]


def name_of(owner: int) -> str:
    return {FREE: "nobody (free)", CACHE: "the prefix cache"}.get(owner, f"request {owner}")
