"""Books: who waits, who covers how many pages, and how many are promised to whom, event by event."""

from __future__ import annotations

from minisgl.events import types as ev


class Books:
    """A light fold for questions about promises; pages and trees are the full fold's (``trace.at``).

    ``waiting``: uids in order. ``covers``: pages that each row covers, the cache's own included. ``promised``: pages
    promised and not yet taken. ``taken``: pages taken since admission.
    """

    def __init__(self, keyframe: dict) -> None:
        self.waiting: list[int] = list(keyframe["waiting"])
        seated = [r for r in keyframe["requests"].values() if r["row"] >= 0]
        self.covers: dict[int, int] = {r["uid"]: len(r["pages"]) for r in seated}
        self.promised: dict[int, int] = {r["uid"]: r["reserved"] for r in seated}
        self.taken: dict[int, int] = {r["uid"]: 0 for r in seated}

    def apply(self, e: ev.Event) -> None:
        if isinstance(e, ev.RequestArrived):
            self.waiting.append(e.uid)
        elif isinstance(e, ev.RequestAdmitted):
            self.waiting.remove(e.uid)
            self.covers[e.uid], self.promised[e.uid], self.taken[e.uid] = len(e.pages), e.reserved, 0
        elif isinstance(e, ev.PagesAllocated):
            for uid, n in zip(e.uids, e.counts, strict=True):
                self.covers[uid] += n
                self.taken[uid] += n
                self.promised[uid] -= min(n, self.promised[uid])
        elif isinstance(e, ev.BatchScheduled):
            self.promised.update(zip(e.uids, e.reserved, strict=True))
        elif isinstance(e, ev.RequestRetracted):
            self.waiting.insert(0, e.uid)
            del self.promised[e.uid]
        elif isinstance(e, ev.RequestFinished):
            self.promised.pop(e.uid, None)
            if e.uid in self.waiting:
                self.waiting.remove(e.uid)
        elif isinstance(e, ev.RowReleased):
            self.covers.pop(e.uid, None)
            self.taken.pop(e.uid, None)
