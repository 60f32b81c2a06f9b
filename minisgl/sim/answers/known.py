"""Known: all token sequences that were ever computed in a run, page by page, and what became of each page.

``missed.LookUp`` follows one prompt through a record and can tell its story; this follows all prompts at once, in one
pass, and only counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from minisgl.events import types as ev
from minisgl.events.snapshot import Snapshot

ROOT = 0


@dataclass(slots=True)
class _Request:
    tokens: list[int]
    computed: int = 0  # of its tokens
    aims: int = 0  # it will have computed so many when it hands over; 0: it does not run
    way: list[int] = field(default_factory=list)  # its pages here, from the first token on
    alive: int = 0  # of these, as many count as live

    @property
    def known(self) -> int:
        return min(max(self.computed, self.aims), len(self.tokens))


class Known:
    """A trie of whole pages. ``apply`` each event of a run; ``causes`` says why a prompt misses what it misses.

    Pages have numbers of their own here, the root 0; a long run has a million of them, so what is known of each stands
    in columns.
    """

    def __init__(self, keyframe: dict, radix: bool = True) -> None:
        self.page_size: int = keyframe["page_size"]
        self.radix = radix
        self.requests: dict[int, _Request] = {}
        self._after: dict[tuple[int, tuple[int, ...]], int] = {}  # (the page before, tokens) -> page
        self._below: defaultdict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)  # page -> tokens, page
        self._live = [0]  # requests that run and have it, or are about to compute it
        self._computed = bytearray(1)  # flags
        self._evicted = bytearray(1)
        self._ends: defaultdict[int, dict[int, None]] = defaultdict(dict)  # page -> requests whose last whole one it is
        self._nodes: dict[int, list[int]] = {ROOT: []}  # of the prefix cache -> its pages here
        self._above: dict[int, int] = {ROOT: ROOT}  # node -> its parent
        self._batches: dict[int, ev.BatchScheduled] = {}
        tree = Snapshot(keyframe).tree
        for node, _ in tree.walk():
            self._insert(node, tree[node].parent, tree[node].tokens)
        for uid, r in keyframe["requests"].items():
            tokens = [*r["prompt"], *r["output"]]
            aims = len(tokens) if r["row"] >= 0 and r["status"] != "finished" else 0
            self.requests[uid] = _Request(tokens)
            self._grow(uid, computed=r["cached_len"], aims=aims)

    # -- following a run ---------------------------------------------------------------------------------------------

    def apply(self, e: ev.Event) -> None:
        if isinstance(e, ev.RequestArrived):
            self.requests[e.uid] = _Request(list(e.prompt))
        elif isinstance(e, ev.RequestAdmitted):
            self._grow(e.uid, aims=len(self.requests[e.uid].tokens))
        elif isinstance(e, ev.BatchScheduled):
            self._batches[e.batch] = e
        elif isinstance(e, ev.ForwardFinished):
            batch = self._batches.pop(e.batch, None)
            for uid, end in zip(batch.uids, batch.ends, strict=True) if batch and not e.error else ():
                self._grow(uid, computed=end)
        elif isinstance(e, ev.TokensSampled):
            for uid, token, dropped in zip(e.uids, e.tokens, e.dropped, strict=True):
                if not dropped:
                    self.requests[uid].tokens.append(token)
        elif isinstance(e, (ev.RequestFinished, ev.RequestRetracted)):
            self._stop(e.uid)
        elif isinstance(e, ev.NodeInserted):
            self._insert(e.node, e.parent, e.tokens)
        elif isinstance(e, ev.NodeSplit):
            whole, cut = self._nodes[e.node], e.length // self.page_size
            self._nodes[e.upper], self._nodes[e.node] = whole[:cut], whole[cut:]
            self._above[e.upper], self._above[e.node] = self._above[e.node], e.upper
        elif isinstance(e, ev.PagesEvicted):
            for node in e.nodes:
                for page in self._nodes.pop(node):
                    self._evicted[page] = True

    def _page(self, before: int, tokens: tuple[int, ...]) -> int:
        """The page with these tokens after that one; made if need be."""
        key = (before, tokens)
        page = self._after.get(key)
        if page is None:
            page = self._after[key] = len(self._live)
            self._live.append(0)
            self._computed.append(False)
            self._evicted.append(False)
            if self.page_size > 1:  # nobody has a part of a token
                self._below[before].append((tokens, page))
        return page

    def _insert(self, node: int, parent: int, tokens: Sequence[int]) -> None:
        above = parent
        while above != ROOT and not self._nodes[above]:
            above = self._above[above]
        at, ps = (self._nodes[above][-1] if self._nodes[above] else ROOT), self.page_size
        made = self._nodes[node] = []
        for start in range(0, len(tokens), ps):
            at = self._page(at, tuple(tokens[start : start + ps]))
            self._computed[at] = True
            made.append(at)
        self._above[node] = parent

    def _grow(self, uid: int, computed: int = 0, aims: int | None = None) -> None:
        """The request has computed so much, or aims so far."""
        r, ps = self.requests[uid], self.page_size
        before = r.computed
        r.computed = max(before, computed)
        r.aims = r.aims if aims is None else aims
        whole = r.known // ps
        if whole > len(r.way):
            end = r.way[-1] if r.way else ROOT
            self._leave(end, uid)
            for i in range(len(r.way), whole):
                end = self._page(end, tuple(r.tokens[i * ps : (i + 1) * ps]))
                r.way.append(end)
        if ps > 1:
            self._ends[r.way[whole - 1] if whole else ROOT][uid] = None
        for page in r.way[before // ps : min(r.computed, r.known) // ps]:
            self._computed[page] = True
        if r.aims:
            for page in r.way[r.alive : whole]:
                self._live[page] += 1
            r.alive = max(r.alive, whole)

    def _leave(self, page: int, uid: int) -> None:
        """That page is no longer the request's last whole one. Pages where nobody ends have no dictionary."""
        if ending := self._ends.get(page):
            ending.pop(uid, None)
            if not ending:
                del self._ends[page]

    def _stop(self, uid: int) -> None:
        """It runs no more: what it was only about to compute is not known."""
        r, ps = self.requests[uid], self.page_size
        for page in r.way[: r.alive]:
            self._live[page] -= 1
        self._leave(r.way[-1] if r.way else ROOT, uid)
        r.alive = r.aims = 0
        del r.way[r.known // ps :]
        if ps > 1:
            self._ends[r.way[-1] if r.way else ROOT][uid] = None

    # -- asking ------------------------------------------------------------------------------------------------------

    def causes(self, prompt: Sequence[int], matched: int) -> dict[str, int]:
        """Tokens of a prompt that is about to be admitted, by cause, as ``missed.classify`` has them; they add up."""
        ps, n = self.page_size, len(prompt)
        way = self._way(prompt)
        seen = max(matched, len(way) * ps + self._partly(way[-1] if way else ROOT, prompt[len(way) * ps :]))
        last = n - ps if n % ps == 0 and seen >= n else n - 1
        shared = min(seen, last)
        whole = max(matched, shared // ps * ps)
        found = dict.fromkeys(("matched", "in flight", "evicted", "given up", "naive"), 0)
        found["matched"] = matched
        for page in way[matched // ps : whole // ps]:
            found[self._lost(page)] += ps
        return found | {"rounding": shared - whole, "new": last - shared, "last": n - last}

    def _lost(self, page: int) -> str:
        if not self.radix:
            return "naive"
        return "in flight" if self._live[page] else "evicted" if self._evicted[page] else "given up"

    def _way(self, prompt: Sequence[int]) -> list[int]:
        """The prompt's leading whole pages that somebody has computed, or is about to."""
        way, at, ps = [], ROOT, self.page_size
        for start in range(0, len(prompt) - ps + 1, ps):
            at = self._after.get((at, tuple(prompt[start : start + ps])), ROOT)
            if at == ROOT or not (self._live[at] or self._computed[at]):
                break
            way.append(at)
        return way

    def _partly(self, page: int, rest: Sequence[int]) -> int:
        """How many tokens of ``rest`` are known to follow that page, less than a page of them."""
        if self.page_size == 1:
            return 0
        best = 0
        for tokens, number in self._below.get(page, ()):
            if self._live[number] or self._computed[number]:
                best = max(best, _common(tokens, rest))
        for uid in self._ends.get(page, ()):
            r = self.requests[uid]
            best = max(best, _common(r.tokens[len(r.way) * self.page_size : r.known], rest))
        return best


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
