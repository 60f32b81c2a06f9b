"""Does a state keep the engine's rules? Checks that need nothing but the state, so they hold for a replay as well."""

from __future__ import annotations

from collections import Counter

from minisgl.core import pages_for
from minisgl.events.state import CACHE, FREE


def violations(state: dict) -> list[str]:
    """The broken rules, in words; an empty list is a sound state. Costs O(pages + tree + live requests).

    One owner per page; ``free + owned + cached = num_pages``; no free page named by a live row; a row begins with the
    pages its request locks; the tree's pages are the cache's; locks equal the requests that hold them; counters equal
    a walk; nothing is promised that could not be had.
    """
    found: list[str] = []
    owner, order = state["pages"]["owner"], state["pages"]["order"]
    nodes, requests, counters = state["nodes"], state["requests"], state["counters"]

    in_tree = Counter(p for n in nodes.values() for p in n["pages"])
    for page, count in in_tree.items():
        if count > 1:
            found.append(f"page {page} is in {count} tree nodes")
        if owner[page] != CACHE:
            found.append(f"page {page} is in the tree but belongs to {_name(owner[page])}")
    for page, who in enumerate(owner):
        if who == CACHE and page not in in_tree:
            found.append(f"page {page} belongs to the cache but no tree node has it")
        if (order[page] >= 0) != (who == FREE):
            listed = "is" if order[page] >= 0 else "is not"
            found.append(f"page {page} belongs to {_name(who)} but {listed} in the free list")

    live = [r for r in requests.values() if r["status"] != "finished" or r["row"] >= 0 or r["pending"]]
    for r in live:
        path = _path(nodes, r["node"])
        if r["status"] != "finished" and r["pages"][: len(path)] != path:
            found.append(f"request {r['uid']} locks pages {path} but its row begins with {r['pages'][: len(path)]}")
        for page in r["pages"]:
            if owner[page] not in (r["uid"], CACHE):
                found.append(f"request {r['uid']}'s row names page {page}, which belongs to {_name(owner[page])}")
        held = pages_for(r["cached_len"], state["page_size"])
        if len(r["pages"]) < held:
            found.append(f"request {r['uid']} has KV for {r['cached_len']} tokens but only {len(r['pages'])} pages")
    named = {r["uid"]: {*r["pages"], *r["pending"]} for r in live}
    for page, who in enumerate(owner):
        if who >= 0 and page not in named.get(who, ()):
            found.append(f"page {page} belongs to request {who}, whose row does not name it: leaked")

    holders: Counter[int] = Counter()
    for r in live:
        node = r["node"]
        while node > 0:
            holders[node] += 1
            node = nodes[node]["parent"]
    for i, n in nodes.items():
        if n["locks"] != holders[i]:
            found.append(f"tree node {i} has {n['locks']} locks but {holders[i]} requests hold it")

    cached = Counter({True: 0, False: 0})
    for n in nodes.values():
        cached[n["locks"] > 0] += len(n["pages"])
    for name, walked in (
        ("free_pages", owner.count(FREE)),
        ("owned_pages", sum(who >= 0 for who in owner)),
        ("evictable_pages", cached[False]),
        ("protected_pages", cached[True]),
        ("reserved_pages", sum(r["reserved"] for r in live)),
        ("waiting", len(state["waiting"])),
        ("running", len(state["running"])),
    ):
        if counters[name] != walked:
            found.append(f"{name} says {counters[name]}, counting gives {walked}")
    if counters["free_pages"] + counters["evictable_pages"] + counters["pending_pages"] < counters["reserved_pages"]:
        found.append("more pages are promised than could be had")
    return found


def _path(nodes: dict, node: int) -> list[int]:
    """The pages from the root to a node's end."""
    runs: list[tuple[int, ...]] = []
    while node > 0:
        runs.append(nodes[node]["pages"])
        node = nodes[node]["parent"]
    return [page for run in reversed(runs) for page in run]


def _name(owner: int) -> str:
    return {FREE: "nobody (free)", CACHE: "the prefix cache"}.get(owner, f"request {owner}")
