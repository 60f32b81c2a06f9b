"""Why missed: how far a prompt was found in the prefix cache, and what became of the rest, token by token."""

from __future__ import annotations

from dataclasses import dataclass, field

from minisgl.events import types as ev
from minisgl.events.snapshot import Snapshot
from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.words import count
from minisgl.sim.answers import pictures
from minisgl.sim.answers.answer import Answer, Told, cite, refused, requests, token
from minisgl.sim.answers.pictures import Look, Piece

LOOKS = {
    "matched": Look("m", pictures.GREEN, "matched: found in the cache"),
    "evicted": Look("e", pictures.RED, "evicted: was cached, and gave way"),
    "in flight": Look("f", pictures.SKY, "in flight: an equal prefix was being computed"),
    "given up": Look("g", pictures.GREY, "given up: computed once, and lost uncached"),
    "naive": Look("a", pictures.PINK, "naive cache: never shares"),
    "rounding": Look("r", pictures.ORANGE, "rounding: shared, but less than a page"),
    "new": Look("n", pictures.PALE, "new: never computed before"),
    "last": Look("l", pictures.YELLOW, "last-token rule: always computed"),
}
COLUMNS = {
    "cause": "text",
    "start": "token",
    "end": "token",
    "tokens": "tokens",
    "other": "request",
    "node": "node",
    "step": "step",
    "why": "text",
}


@dataclass
class Part:
    """Tokens ``[start, end)`` of the prompt and why they were, or were not, reused."""

    cause: str
    start: int
    end: int
    why: str = ""
    other: int = -1  # the request that computes the same, or made the cache evict it
    node: int = -1
    event: ev.Event | None = None

    @property
    def tokens(self) -> int:
        return self.end - self.start


@dataclass
class _Node:
    """A tree node as this prompt sees it: tokens ``[start, end)`` of its path, the prompt's up to ``same``."""

    start: int
    end: int
    same: int


@dataclass
class _Eviction:
    start: int
    end: int
    node: int
    event: ev.PagesEvicted
    cause: ev.Event | None = None  # PagesAllocated: whom it made room for; CacheCleared


@dataclass
class _Other:
    """Another request's tokens, how many of them were computed, and how many will be before it hands over."""

    tokens: list[int]
    same: int  # length of the beginning that its tokens so far share with the prompt
    computed: int = 0
    aims: int = 0  # 0: not in flight
    admitted: ev.RequestAdmitted | None = None


@dataclass
class LookUp:
    """The one look-up of an admission, and all that had been computed by then; lengths in tokens."""

    prompt: tuple[int, ...]
    uid: int
    nodes: dict[int, _Node] = field(default_factory=dict)
    evictions: list[_Eviction] = field(default_factory=list)
    others: dict[int, _Other] = field(default_factory=dict)
    matched: ev.PrefixMatched | None = None
    admitted: ev.RequestAdmitted | None = None
    deepest: int = 0  # of the prompt, in any node that ever was

    def run(self, trace: Trace) -> None:
        """Follow the record up to the request's first admission."""
        self._begin(trace.keyframe)
        batches: dict[int, ev.BatchScheduled] = {}
        for e in trace.events:
            if isinstance(e, ev.RequestArrived):
                if e.uid != self.uid:
                    self.others[e.uid] = _Other(list(e.prompt), self._common(e.prompt))
            elif isinstance(e, ev.NodeInserted):
                self._add(e.node, e.parent, e.tokens)
            elif isinstance(e, ev.NodeSplit):
                node = self.nodes[e.node]
                cut = node.start + e.length
                self.nodes[e.upper] = _Node(node.start, cut, min(node.same, cut))
                node.start = cut
            elif isinstance(e, ev.PagesEvicted):
                for n in e.nodes:
                    node = self.nodes.pop(n)
                    if node.same > node.start:
                        self.evictions.append(_Eviction(node.start, node.same, n, e))
            elif isinstance(e, (ev.PagesAllocated, ev.CacheCleared)):
                for eviction in reversed(self.evictions):
                    if eviction.cause or eviction.event.step != e.step:
                        break
                    eviction.cause = e
            elif isinstance(e, ev.BatchScheduled):
                batches[e.batch] = e
            elif isinstance(e, ev.ForwardFinished):
                batch = batches.pop(e.batch, None)
                for uid, end in zip(batch.uids, batch.ends, strict=True) if batch and not e.error else ():
                    if uid in self.others:
                        self.others[uid].computed = max(self.others[uid].computed, end)
            elif isinstance(e, ev.TokensSampled):
                for uid, new, dropped in zip(e.uids, e.tokens, e.dropped, strict=True):
                    if uid in self.others and not dropped:
                        self._append(self.others[uid], new)
            elif isinstance(e, (ev.RequestFinished, ev.RequestRetracted)):
                if e.uid in self.others:
                    self.others[e.uid].aims = 0
            elif isinstance(e, ev.PrefixMatched):
                self.matched = e
            elif isinstance(e, ev.RequestAdmitted):
                if e.uid == self.uid:
                    self.admitted = e
                    return
                other = self.others[e.uid]
                other.admitted, other.aims = e, len(other.tokens)

    def _begin(self, keyframe: dict) -> None:
        self.nodes[0] = _Node(0, 0, 0)
        tree = Snapshot(keyframe).tree
        for node, _ in tree.walk():
            self._add(node, tree[node].parent, tree[node].tokens)
        for uid, r in keyframe["requests"].items():
            tokens = [*r["prompt"], *r["output"]]
            if uid != self.uid:
                aims = len(tokens) if r["row"] >= 0 and r["status"] != "finished" else 0
                self.others[uid] = _Other(tokens, self._common(tokens), r["cached_len"], aims)

    def _common(self, tokens: tuple[int, ...] | list[int], start: int = 0) -> int:
        """How many of ``tokens`` equal the prompt's from ``start`` on."""
        n = 0
        for a, b in zip(tokens, self.prompt[start:], strict=False):
            if a != b:
                break
            n += 1
        return n

    def _append(self, other: _Other, new: int) -> None:
        at = len(other.tokens)
        if other.same == at < len(self.prompt) and self.prompt[at] == new:
            other.same += 1
        other.tokens.append(new)

    def _add(self, node: int, parent: int, tokens: tuple[int, ...]) -> None:
        above = self.nodes[parent]
        whole = above.same == above.end
        same = above.end + self._common(tokens, above.end) if whole else above.same
        self.nodes[node] = _Node(above.end, above.end + len(tokens), same)
        self.deepest = max(self.deepest, same)

    def seen(self, other: _Other) -> int:
        """Tokens of the prompt that another request has computed or is about to."""
        return min(other.same, max(other.computed, other.aims))

    @property
    def closest(self) -> tuple[int, int]:
        """The other request that shares most, the first of equals, and how much; -1 if none shares anything."""
        best, most = -1, 0
        for uid, other in self.others.items():
            if self.seen(other) > most:
                best, most = uid, self.seen(other)
        return best, most


def why_missed(trace: Trace, uid: int) -> Answer:
    """The look-up of a request's first admission: what was found of its prompt, and the cause of every missed token."""
    question = f"Why did request {uid} not find more of its prompt in the cache?"
    told = Told(trace, uid)
    if told.rejected:
        return refused(told, question, _table([]))
    look = LookUp(told.prompt, uid)
    look.run(trace)
    if look.admitted is None:
        why = "was admitted before the record began" if told.before and told.before["row"] >= 0 else "never got in"
        nothing = f"Request {uid} {why}, so this record holds no look-up of its prompt."
        return Answer(question, [nothing], _table([]), {})
    radix = trace.about.get("config", {}).get("prefix_cache", "radix") == "radix"
    parts = classify(look, trace.keyframe["page_size"], radix)
    facts = {"prompt": len(look.prompt), "computed": len(look.prompt) - look.admitted.cached_len}
    facts |= {cause: sum(p.tokens for p in parts if p.cause == cause) for cause in LOOKS}
    said = [_summary(look), _broke(look, trace.keyframe["page_size"]), *_diverged(look, trace)]
    said += [_line(part) for part in parts if part.cause != "matched"]
    events = [e for e in (look.matched, look.admitted, *(p.event for p in parts)) if e]
    pieces = [Piece(p.start, p.end, p.cause, _line(p)) for p in parts]
    picture = pictures.bars([("prompt", pieces)], LOOKS, ("token 0", f"{len(look.prompt)} tokens"))
    return Answer(question, said, _table(parts), facts, events, picture)


def classify(look: LookUp, page_size: int, radix: bool = True) -> list[Part]:
    """The prompt cut into parts, in order, so that their tokens add up to it.

    Matched is what the admission reused. Beyond it come, in this order: whole pages that had been computed before and
    were not there (in flight, evicted, given up; under the naive cache simply never shared), the shared part that does
    not fill a page (rounding), what nobody had computed (new), and the last token, which is always computed, with its
    whole page if that could be found but for it.
    """
    assert look.admitted
    n, ps, matched = len(look.prompt), page_size, look.admitted.cached_len
    seen = max(matched, look.deepest, look.closest[1])
    last = n - ps if n % ps == 0 and seen >= n else n - 1
    shared = min(seen, last)
    pages_end = max(matched, shared // ps * ps)
    parts = [Part("matched", 0, matched, "found in the cache", event=look.matched)]
    for start in range(matched, pages_end, ps):
        part = _page(look, start, start + ps) if radix else _never_shared(start, start + ps)
        before = parts[-1]
        if (part.cause, part.why, part.other) == (before.cause, before.why, before.other):
            before.end = part.end
        else:
            parts.append(part)
    closest = look.closest[0]
    rounding = f"the shared part ends {shared - pages_end} tokens into a page of {ps}, and only whole pages are shared"
    parts.append(Part("rounding", pages_end, shared, rounding, other=closest))
    parts.append(Part("new", shared, last, "nobody had computed this before"))
    rule = "one token must be computed, so that the next can be sampled from it"
    if n - last > 1:
        rule += f"; the whole page of {ps} it ends goes with it"
    parts.append(Part("last", last, n, rule))
    return [p for p in parts if p.tokens]


def _page(look: LookUp, start: int, end: int) -> Part:
    """Why one page that had been computed before was not found."""
    assert look.admitted
    for uid, other in look.others.items():
        if other.aims and look.seen(other) >= end:
            same = other.admitted and other.admitted.step == look.admitted.step
            when = "admitted in the same step" if same else "admitted before it"
            cited = f" ({cite(other.admitted)})" if other.admitted else ""
            why = f"request {uid}, {when}{cited}, was computing the same and had not handed it over"
            return Part("in flight", start, end, why, uid, event=other.admitted)
    for eviction in reversed(look.evictions):
        if eviction.start <= start and end <= eviction.end:
            cause, other_uid = eviction.cause, -1
            if isinstance(cause, ev.PagesAllocated):
                other_uid = cause.uids[0]
                by = f"to make room for {requests(cause.uids)}"
            elif isinstance(cause, ev.CacheCleared):
                by = "when somebody cleared the cache"
            else:
                by = "to make room"
            why = f"was cached in node {eviction.node} and evicted {by} ({cite(eviction.event)})"
            return Part("evicted", start, end, why, other_uid, eviction.node, eviction.event)
    holder = next(uid for uid, o in look.others.items() if min(o.same, o.computed) >= end)
    return Part(
        "given up", start, end, f"request {holder} had computed it, and gave it up before it was cached", holder
    )


def _never_shared(start: int, end: int) -> Part:
    return Part("naive", start, end, "computed before, and the naive cache never shares")


def _summary(look: LookUp) -> str:
    assert look.admitted
    n, had = len(look.prompt), look.admitted.cached_len
    return (
        f"Request {look.uid} found {had} of its {n} prompt tokens in the cache ({had / n:.0%}) and computed "
        f"{n - had} ({cite(look.admitted)})."
    )


def _broke(look: LookUp, page_size: int) -> str:
    assert look.admitted
    way = ["root"]
    at = 0
    for node in look.matched.path if look.matched else ():
        end = look.nodes[node].end
        way.append(f"node {node} [{at}:{end}]")
        at = end
    n = len(look.prompt)
    if at + page_size > n - 1:
        why = f"only {n - 1 - at} more could be matched, less than a page" if n - 1 > at else "that is all that may be"
    else:
        page = "token" if page_size == 1 else f"page, tokens {at} to {at + page_size - 1}"
        why = (
            f"no node goes on with its next {page} {at}" if page_size == 1 else f"no node goes on with its next {page}"
        )
    cited = f" ({cite(look.matched)})" if look.matched else ""
    return f"The look-up: {' -> '.join(way)}; it broke at token {at}: {why}{cited}."


def _diverged(look: LookUp, trace: Trace) -> list[str]:
    """The first token that nobody had computed before, beside what the closest request has there."""
    closest, seen = look.closest
    seen = max(seen, look.deepest)
    if seen >= len(look.prompt):
        return ["All of its prompt had been computed before, or was being computed."]
    if closest < 0 or look.seen(look.others[closest]) < seen:
        if not seen:
            return ["No request before it began with the same token."]
        return [f"Its first {seen} tokens were in the cache when the record began; token {seen} is new."]
    other = look.others[closest].tokens
    there = f"request {closest} has {token(trace, other[seen])}" if seen < len(other) else f"request {closest} ends"
    if seen < len(other) and other[seen] == look.prompt[seen]:
        there = f"request {closest} has not come further"
    if not seen:
        return ["No request before it began with the same token."]
    return [
        f"Its first {count(seen, 'token')} had been computed before, by request {closest}; its token {seen} is "
        f"{token(trace, look.prompt[seen])}, where {there}."
    ]


def _line(part: Part) -> str:
    span = f"token {part.start}" if part.tokens == 1 else f"tokens {part.start} to {part.end - 1}"
    return f"{part.cause}: {count(part.tokens, 'token')} ({span}): {part.why}."


def _table(parts: list[Part]) -> Table:
    rows = [(p.cause, p.start, p.end, p.tokens, p.other, p.node, p.event.step if p.event else -1, p.why) for p in parts]
    return Table.of_rows("prompt", COLUMNS, rows)
