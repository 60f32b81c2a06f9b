"""A run written by hand, event by event: two requests with a batch in flight."""

from __future__ import annotations

from typing import Any

from minisgl.core import SamplingParams
from minisgl.events import History, types
from minisgl.events.integrity import counts, violations
from minisgl.events.state import initial_state


class Script:
    """Events written by hand; counters are counted, and corrected by what a launch changes."""

    def __init__(self, start: dict) -> None:
        self.history = History(start)
        self.step = start["step"] + 1

    @property
    def state(self) -> dict:
        return self.history._fold.state

    def __call__(self, kind: type, **fields: Any) -> None:
        self.history.feed(kind(step=self.step, t=float(self.step), **fields))

    def batch(self, number: int, uids: tuple, starts: tuple, ends: tuple, reserved: tuple, **launch: int) -> None:
        tokens = sum(ends) - sum(starts)
        now = counts(self.state) | launch
        samples = (True,) * len(uids)
        fields = {
            "batch": number,
            "phase": "decode",
            "uids": uids,
            "num_tokens": tokens,
            "starts": starts,
            "ends": ends,
        }
        self(types.BatchScheduled, **fields, samples=samples, reserved=reserved, **now)
        self(types.ForwardStarted, batch=number)

    def done(self, number: int, uids: tuple, tokens: tuple, dropped: tuple) -> None:
        self(types.ForwardFinished, batch=number, started=0.0, finished=0.0)
        self(types.TokensSampled, batch=number, uids=uids, tokens=tokens, dropped=dropped)

    def end(self, launched: int | None, processed: int | None) -> None:
        now = counts(self.state)
        what = {"phase": "decode", "uids": (), "num_tokens": 0, "processed_uids": ()}
        self(types.StepFinished, launched=launched, processed=processed, **what, **now)
        assert violations(self.state) == []
        self.step += 1


def arrive(say: Script, uid: int, prompt: tuple, max_tokens: int, row: int, need: int, **cached: Any) -> None:
    say(
        types.RequestArrived,
        uid=uid,
        prompt=prompt,
        max_tokens=max_tokens,
        params=SamplingParams(),
        seed=0,
        stop_tokens=(),
        submitted=0.0,
    )
    say(types.AdmissionTested, uid=uid, verdict="admitted", prompt_len=len(prompt), max_tokens=max_tokens)
    admitted = {"cached_len": 0, "pages": (), "node": 0} | cached
    say(types.RequestAdmitted, uid=uid, row=row, generation=1, reserved=need, **admitted)


def overlapped() -> Script:
    """Two equal prompts of three tokens; both are cached at step 2, while batch 2, in flight, names both."""
    say = Script(initial_state(16, 1, 2))
    arrive(say, 0, (1, 2, 3), 3, row=0, need=6)
    arrive(say, 1, (1, 2, 3), 4, row=1, need=7)
    say(types.PagesAllocated, uids=(0, 1), counts=(3, 3), pages=(0, 1, 2, 3, 4, 5))
    say.batch(1, (0, 1), (0, 0), (3, 3), (2, 3), running=2, reserved_pages=5)
    say.end(1, None)

    say(types.PagesAllocated, uids=(0, 1), counts=(1, 1), pages=(6, 7))
    say.batch(2, (0, 1), (3, 3), (4, 4), (1, 2), reserved_pages=3)
    say.done(1, (0, 1), (8, 8), (False, False))
    say(types.NodeInserted, node=1, parent=0, tokens=(1, 2, 3), pages=(0, 1, 2), uid=0)
    say(types.NodeLocked, node=1, uid=0)
    same = {
        "finished": False,
        "n": 3,
        "old_len": 0,
        "new_len": 3,
        "page_size": 1,
        "node": 1,
        "path": (1,),
        "pending": True,
    }
    say(types.Handoff, uid=0, hit_len=0, pages=(0, 1, 2, 6), replaced=(), tick=1, **same)
    say(types.NodeLocked, node=1, uid=1)
    say(types.Handoff, uid=1, hit_len=3, pages=(3, 4, 5, 7), replaced=(0, 1, 2), tick=2, **same)
    say.end(2, 1)
    return say


def finish_early(say: Script) -> None:
    """Step 3: request 0 ends by a stop token while batch 3, in flight, computes one more for it."""
    say(types.PagesAllocated, uids=(0,), counts=(1,), pages=(8,))
    say.batch(3, (0,), (4,), (5,), (0,), reserved_pages=2)
    say.done(2, (0, 1), (9, 9), (False, False))
    say(types.NodeInserted, node=2, parent=1, tokens=(8,), pages=(6,), uid=0)
    say(types.NodeLocked, node=2, uid=0)
    say(types.NodeUnlocked, node=1, uid=0)
    kept = {"old_len": 3, "hit_len": 3, "new_len": 4, "page_size": 1, "pages": (0, 1, 2, 6, 8), "replaced": ()}
    say(types.Handoff, uid=0, finished=True, n=4, node=2, path=(1, 2), tick=3, pending=True, **kept)
    say(types.RequestFinished, uid=0, reason="stop", num_output=2)
    say(types.PagesFreed, pages=(3, 4, 5), uids=(1, 1, 1))
    say.end(3, 2)


def release(say: Script) -> None:
    """Step 4: the batch is done; what request 0 still held comes free."""
    say.done(3, (0,), (4,), (True,))
    say(types.NodeUnlocked, node=2, uid=0)
    say(types.RowReleased, uid=0, row=0, generation=1)
    say(types.PagesFreed, pages=(8,), uids=(0,))
    say.end(None, 3)
