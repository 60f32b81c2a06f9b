"""A thread for views that follow a control: the newest wish first, pieces of background work while nobody wishes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class SupersededError(Exception):
    """A newer wish has come: what is being worked at can be left."""


class LatestThread:
    """Works at one wish at a time. A wish that was not begun when a newer one came is never worked at.

    So results come in the order of the wishes, and a slow one is followed by the newest, not by a queue of old ones.
    The thread alone writes the widgets that show results; wishes come from any thread and return at once. It starts
    with the first wish and cannot die of an exception: ``failed`` shows it.

    Args:
        work: do what a wish says. It may call the function it gets, which raises SupersededError if it may stop.
        idle: one piece of background work, given the same function; true if there is more to do.
        failed: show an exception that ``work`` or ``idle`` ended in.
        rest: seconds from one wish's end to the next one's begin, so that a browser can follow.
    """

    def __init__(
        self,
        work: Callable[[Any, Callable[[], None]], None],
        idle: Callable[[Callable[[], None]], bool],
        failed: Callable[[BaseException], None],
        rest: float = 1 / 12,
    ) -> None:
        self._work, self._idle, self._failed, self._rest = work, idle, failed, rest
        self._changed = threading.Condition()
        self._wish: Any = None
        self._asked = self._done = 0  # wishes so far, and how many of them are settled
        self._more = False  # background work is left
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="minisgl-what-if", daemon=True)

    def ask(self, wish: Any) -> int:
        """Replace whatever waits by this wish; a number to wait for. RuntimeError once it is stopped."""
        with self._changed:
            if self._stopping:
                raise RuntimeError("this view is closed; make a new one")
            if not self._asked:
                self._thread.start()
            self._wish = wish
            self._asked += 1
            self._changed.notify_all()
            return self._asked

    def wait(self, number: int, background: bool = False) -> None:
        """Until the wish of this number, or a newer one, is done; ``background``: and all that follows from it."""
        with self._changed:
            # in short turns, because Ctrl-C may not be able to end a long one
            while not self._stopping and (self._done < number or (background and self._more)):
                self._changed.wait(0.2)

    def stop(self, timeout: float = 10.0) -> None:
        """End the thread after the piece at hand; who waits is let go. ``timeout``: seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._wish is not None or self._stopping:
            raise SupersededError

    def _loop(self) -> None:
        ready_at = 0.0  # monotonic clock
        while True:
            with self._changed:
                while not (self._stopping or self._more or self._wish is not None):
                    self._changed.wait()
                while self._wish is not None and not self._stopping and (left := ready_at - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._stopping:
                    return
                wish, number = self._wish, self._asked
                self._wish = None
            more = self._piece(wish)
            if wish is not None:
                ready_at = time.monotonic() + self._rest
            with self._changed:
                self._more = more
                if wish is not None:
                    self._done = number
                self._changed.notify_all()

    def _piece(self, wish: Any) -> bool:
        """Is there background work left? What is superseded is taken up again later; what failed is not."""
        try:
            if wish is None:
                return self._idle(self._check)
            self._work(wish, self._check)
        except SupersededError:
            pass
        except BaseException as error:
            self._failed(error)
            return False
        return True
