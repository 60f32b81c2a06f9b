"""Audit: is each event allowed, as the books stand? Whoever breaks a rule is named when it happens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from minisgl.events import types as ev
from minisgl.events.integrity import counts, name_of, pages_on, path_to
from minisgl.events.state import CACHE, FREE

Found = Iterator[str]


class Audit:
    """Looks at events before they are folded into ``state``; each look costs what the event changes.

    A state that was sound before (``integrity.violations``), and events without a finding, give a sound state.
    """

    def __init__(self, state: dict) -> None:
        self.state = state
        self.counts = counts(state)  # kept along, by what the events say
        self.children = Counter(n["parent"] for n in state["nodes"].values())
        self.held = Counter((r["uid"], r["node"]) for r in state["requests"].values() if r["node"])
        flying = max((f["batch"] for f in state["flight"]), default=0)
        # pages that wait for a batch in flight: the last one launched when they were given up
        self.given_up = {page: flying for r in state["requests"].values() for page in r["pending"]}
        self._off: dict[str, int] = {}  # counters that are wrong, and by how much, so that each is told once

    def look(self, event: ev.Event) -> list[str]:
        """The rules that an event breaks, each as ``step 9, PagesFreed: what, and whose``."""
        check = getattr(self, "_" + type(event).__name__, None)
        if check is None:
            return []
        where = f"step {event.step}, {type(event).__name__}"
        found = []
        try:
            for finding in check(event):
                found.append(f"{where}: {finding}")
        except (LookupError, ValueError) as missing:  # half an event: the rest cannot be looked at
            found.append(f"{where}: speaks of something that is not there ({type(missing).__name__}: {missing})")
        return found

    def _live(self, *uids: int) -> Found:
        for uid in uids:
            request = self.state["requests"].get(uid)
            if request is None:
                yield f"there is no request {uid}"
            elif request["status"] == "finished":
                yield f"request {uid} has ended"

    def _belong(self, pages: Sequence[int], owners: Sequence[int], uids: Sequence[int], what: str) -> Found:
        """Does page ``pages[i]`` belong to ``owners[i]``? If not: "page 5 ``what`` request ``uids[i]``, but ..."."""
        owner, n = self.state["pages"]["owner"], self.state["num_pages"]
        if pages and not 0 <= min(pages) <= max(pages) < n:
            for page in pages:
                if not 0 <= page < n:
                    yield f"page {page} {'is the dummy page' if page == n else f'is not in 0..{n - 1}'}"
        elif [owner[p] for p in pages] != list(owners):
            for page, who, uid in zip(pages, owners, uids, strict=True):
                if owner[page] != who:
                    yield f"page {page} {what} request {uid}, but it belongs to {name_of(owner[page])}"

    def _row(self, number: int) -> dict:
        if number < 0:
            raise IndexError(f"row {number}")
        return self.state["rows"][number]

    def _in_flight(self, uid: int, since: float = math.inf) -> Found:
        for flying in self.state["flight"]:
            if uid in flying["uids"] and flying["batch"] <= since:
                yield f"batch {flying['batch']}, in flight, still names request {uid}"

    def _move(self, n: int, source: str, target: str) -> None:
        self.counts[source + "_pages"] -= n
        self.counts[target + "_pages"] += n

    # -- requests ----------------------------------------------------------------------------------------------------

    def _RequestArrived(self, e: ev.RequestArrived) -> Found:
        self.counts["waiting"] += 1
        if e.uid in self.state["requests"]:
            yield f"request {e.uid} has been here before"

    def _RequestRejected(self, e: ev.RequestRejected) -> Found:
        if e.uid in self.state["requests"]:
            yield f"request {e.uid} has been here before"

    def _RequestFinished(self, e: ev.RequestFinished) -> Found:
        yield from self._live(e.uid)
        request = self.state["requests"][e.uid]
        self.counts["reserved_pages"] -= request["reserved"]
        if request["status"] in ("waiting", "running"):
            self.counts[request["status"]] -= 1
        if len(request["output"]) != e.num_output:
            yield f"request {e.uid} ends with {e.num_output} tokens, but {len(request['output'])} were sampled for it"

    def _AdmissionTested(self, e: ev.AdmissionTested) -> Found:
        yield from self._live(e.uid)
        if self.state["requests"][e.uid]["status"] != "waiting":
            yield f"request {e.uid} is tested, but it does not wait"

    def _RequestRetracted(self, e: ev.RequestRetracted) -> Found:
        yield from self._live(e.uid)
        request = self.state["requests"][e.uid]
        self.counts["reserved_pages"] -= request["reserved"]
        self.counts["running"] -= request["status"] == "running"
        self.counts["waiting"] += 1
        if request["row"] < 0:
            yield f"request {e.uid} is retracted, but it has no row"
        yield from self._belong(e.pages, [e.uid] * len(e.pages), [e.uid] * len(e.pages), "is taken back from")
        for batch in self._in_flight(e.uid):
            yield f"request {e.uid} is retracted, but {batch}"

    def _RequestAdmitted(self, e: ev.RequestAdmitted) -> Found:
        yield from self._live(e.uid)
        row, request = self._row(e.row), self.state["requests"][e.uid]
        self.counts["waiting"] -= request["status"] == "waiting"
        self.counts["reserved_pages"] += e.reserved - request["reserved"]
        if request["status"] != "waiting":
            yield f"request {e.uid} is admitted, but it does not wait: {request['status']}"
        if row["uid"] >= 0:
            yield f"row {e.row} goes to request {e.uid}, but it belongs to request {row['uid']}"
        if e.generation != row["generation"] + 1:
            yield f"row {e.row} goes to request {e.uid} as generation {e.generation}, after {row['generation']}"
        n = len(e.pages)
        yield from self._belong(e.pages, [CACHE] * n, [e.uid] * n, "is taken for the prefix cache's in the row of")
        if list(e.pages) != pages_on(self.state["nodes"], e.node) or (e.node and not self.held[e.uid, e.node]):
            path = pages_on(self.state["nodes"], e.node)
            yield f"request {e.uid}'s row begins with pages {list(e.pages)}, but it locks {path} (node {e.node})"

    def _RowReleased(self, e: ev.RowReleased) -> Found:
        row, request = self._row(e.row), self.state["requests"][e.uid]
        if row["uid"] != e.uid or request["row"] != e.row:
            yield f"row {e.row} is given back by request {e.uid}, but it belongs to {name_of(row['uid'])}"
        elif row["generation"] != e.generation:
            yield f"row {e.row} is given back as generation {e.generation}, but it is {row['generation']}"
        if request["status"] not in ("finished", "waiting"):  # a retracted one waits again
            yield f"row {e.row} is given back, but request {e.uid} has not ended"
        if request["node"] and self.held[e.uid, request["node"]]:
            yield f"row {e.row} is given back, but request {e.uid} still locks tree node {request['node']}"
        for batch in self._in_flight(e.uid):
            yield f"row {e.row} is given back, but {batch}"

    # -- pages -------------------------------------------------------------------------------------------------------

    def _PagesAllocated(self, e: ev.PagesAllocated) -> Found:
        n, order, taken = len(e.pages), self.state["pages"]["order"], self.state["queue"]["taken"]
        self._move(n, "free", "owned")
        if sum(e.counts) != n:
            yield f"{n} pages are taken, but the requests get {sum(e.counts)}"
        yield from self._live(*e.uids)
        takers = [uid for uid, count in zip(e.uids, e.counts, strict=True) for _ in range(count)]
        stolen = list(self._belong(e.pages, [FREE] * n, takers, "goes to"))
        yield from stolen
        if not stolen and [order[p] for p in e.pages] != list(range(taken, taken + n)):
            page, place = next((p, i) for i, p in enumerate(e.pages) if order[p] != taken + i)
            head = [p for p, at in enumerate(order) if at == taken + place]
            yield f"page {page} is taken out of turn: the free list goes on with {head}"

    def _PagesFreed(self, e: ev.PagesFreed) -> Found:
        self._move(len(e.pages), "owned", "free")
        yield from self._belong(e.pages, e.uids, e.uids, "is freed by")
        if len(set(e.pages)) < len(e.pages):
            yield f"pages are freed twice: {sorted(p for p, n in Counter(e.pages).items() if n > 1)}"
        for uid in dict.fromkeys(e.uids):
            request = self.state["requests"][uid]
            freed = {p for p, of in zip(e.pages, e.uids, strict=True) if of == uid}
            since = max(self.given_up.pop(page, math.inf) for page in sorted(freed))
            for batch in self._in_flight(uid, since):
                yield f"pages {sorted(freed)} are freed, but {batch}"
            self.counts["pending_pages"] -= len(freed.intersection(request["pending"]))
            if request["status"] != "finished":
                for page in sorted(freed.intersection(request["pages"])):
                    yield f"page {page} is freed, but request {uid}, which is at work, has it in its row"

    def _PagesEvicted(self, e: ev.PagesEvicted) -> Found:
        nodes, owner = self.state["nodes"], self.state["pages"]["owner"]
        pages: list[int] = []
        self._move(len(e.pages), "evictable", "free")
        for i in e.nodes:
            pages += nodes[i]["pages"]
            if nodes[i]["locks"]:
                yield f"tree node {i} is evicted, but {self._holders(i)} it"
            if self.children[i]:
                yield f"tree node {i} is evicted, but {self.children[i]} nodes hang below it"
            self.children[nodes[i]["parent"]] -= 1
        for page in sorted({*e.pages}.difference(pages)):
            yield f"page {page} is evicted from the prefix cache, but it belongs to {name_of(owner[page])}"
        if pages != list(e.pages):
            yield f"pages {list(e.pages)} are evicted, but those of tree nodes {list(e.nodes)} are {pages}"

    def _CacheCleared(self, e: ev.CacheCleared) -> Found:
        if e.kept != self.counts["protected_pages"]:
            yield f"{e.kept} pages are kept, but {self.counts['protected_pages']} are locked"

    # -- the tree ----------------------------------------------------------------------------------------------------

    def _holders(self, node: int) -> str:
        who = [str(uid) for (uid, at), n in self.held.items() if n and node in path_to(self.state["nodes"], at)]
        return f"request{'s' if len(who) != 1 else ''} {', '.join(who) or '?'} lock{'s' if len(who) == 1 else ''}"

    def _NodeSplit(self, e: ev.NodeSplit) -> Found:
        node = self.state["nodes"][e.node]
        self.children[e.upper] += 1
        if e.upper in self.state["nodes"]:
            yield f"tree node {e.upper} is there already"
        if not 0 < e.length < len(node["tokens"]) or e.length % self.state["page_size"]:
            yield f"tree node {e.node} of {len(node['tokens'])} tokens cannot be split after {e.length}"

    def _NodeInserted(self, e: ev.NodeInserted) -> Found:
        self._move(len(e.pages), "owned", "evictable")
        self.children[e.parent] += 1
        if e.node in self.state["nodes"]:
            yield f"tree node {e.node} is there already"
        if e.parent not in self.state["nodes"]:
            yield f"tree node {e.node} hangs below node {e.parent}, which is not there"
        if len(e.tokens) != len(e.pages) * self.state["page_size"]:
            yield f"tree node {e.node} has {len(e.tokens)} tokens in {len(e.pages)} pages"
        uids = [e.uid] * len(e.pages)
        yield from self._belong(e.pages, uids, uids, "passes to the prefix cache from")

    def _NodeLocked(self, e: ev.NodeLocked) -> Found:
        nodes = self.state["nodes"]
        for i in path_to(nodes, e.node):
            if not nodes[i]["locks"]:
                self._move(len(nodes[i]["pages"]), "evictable", "protected")
        self.held[e.uid, e.node] += 1
        yield from self._live(e.uid)

    def _NodeUnlocked(self, e: ev.NodeUnlocked) -> Found:
        nodes = self.state["nodes"]
        for i in path_to(nodes, e.node):
            if nodes[i]["locks"] == 1:
                self._move(len(nodes[i]["pages"]), "protected", "evictable")
            elif not nodes[i]["locks"]:
                yield f"tree node {i} is unlocked for request {e.uid}, but nobody holds it"
        if self.held[e.uid, e.node] < 1 <= nodes[e.node]["locks"]:
            yield f"tree node {e.node} is unlocked for request {e.uid}, but {self._holders(e.node)} it"
        self.held[e.uid, e.node] -= 1
        if not self.held[e.uid, e.node]:
            del self.held[e.uid, e.node]

    def _Handoff(self, e: ev.Handoff) -> Found:
        yield from self._live(e.uid)
        row, ps = self.state["requests"][e.uid]["pages"], self.state["page_size"]
        if list(e.pages) != row:
            yield f"request {e.uid} hands over pages {list(e.pages)}, but its row has {row}"
        n = len(e.replaced)
        yield from self._belong(e.replaced, [CACHE] * n, [e.uid] * n, "is taken for the prefix cache's in the row of")
        copies = (e.hit_len - e.old_len) // ps
        if not e.finished and n != copies:
            yield f"request {e.uid}'s row has {copies} copies of the cache's pages, but {n} are replaced"
        if e.node and not self.held[e.uid, e.node]:
            yield f"request {e.uid} keeps tree node {e.node}, but it does not lock it"
        if e.pending:
            given_up = ("tail", "duplicate") if e.finished else ("duplicate",)
            pages = [page for name, _, _, held in e.segments() if name in given_up for page in held]
            self.counts["pending_pages"] += len(pages)
            self.given_up |= dict.fromkeys(pages, self.state["batch"].get("batch", 0))

    # -- batches -----------------------------------------------------------------------------------------------------

    def _BatchScheduled(self, e: ev.BatchScheduled) -> Found:
        requests, ps = self.state["requests"], self.state["page_size"]
        batch = [requests[uid] for uid in e.uids]
        for r, start, end, samples, reserved in zip(batch, e.starts, e.ends, e.samples, e.reserved, strict=True):
            self.counts["reserved_pages"] += reserved - r["reserved"]
            self.counts["running"] += samples and r["status"] == "prefill"
            if r["status"] not in ("prefill", "running"):
                yield f"request {r['uid']} is computed, but it has {'no row' if r['status'] == 'waiting' else 'ended'}"
            if start != r["cached_len"] or end <= start:
                yield f"request {r['uid']} computes [{start}, {end}), but its KV reaches to {r['cached_len']}"
            if len(r["pages"]) * ps < end:
                yield f"request {r['uid']} computes up to {end}, but its row has {len(r['pages'])} pages of {ps}"
        yield from self._count(e)

    def _ForwardFinished(self, e: ev.ForwardFinished) -> Found:
        if not any(flying["batch"] == e.batch for flying in self.state["flight"]):
            yield f"batch {e.batch} is done, but it was not in flight"

    def _TokensSampled(self, e: ev.TokensSampled) -> Found:
        requests = self.state["requests"]
        for uid, dropped in zip(e.uids, e.dropped, strict=True):
            over = requests[uid]["status"] == "finished"
            if over != dropped:
                was, kept = ("had ended", "kept") if over else ("goes on", "dropped")
                yield f"a token of request {uid}, which {was}, is {kept}"

    def _StepFinished(self, e: ev.StepFinished) -> Found:
        if e.step != self.state["step"] + 1:
            yield f"it follows step {self.state['step']}"
        yield from self._count(e)

    def _count(self, e: ev.Counters) -> Found:
        for name, n in self.counts.items():
            off = getattr(e, name) - n
            if off != self._off.get(name, 0):
                self._off[name] = off
                if off:
                    yield f"{name} says {getattr(e, name)}, counting gives {n}"
        if e.free_pages + e.evictable_pages + e.pending_pages < e.reserved_pages:
            had = e.free_pages + e.evictable_pages + e.pending_pages
            yield f"{e.reserved_pages} pages are promised, but {had} could be had"
