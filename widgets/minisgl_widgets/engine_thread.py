"""The dashboard's one thread: it alone steps the engine for the dashboard and writes the widgets that show it."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

Job = Callable[[], Any]


class EngineThread:
    """Takes jobs from any thread, in order; between them it steps the engine, if it runs, and shows the state.

    The thread cannot die of an exception: ``failed`` shows it, the run stops, and the next job is taken. A run may be
    told to go alone: then only jobs that are put ``at_once`` are done before its end, and the others after it.

    Args:
        step: one step of the engine; None when there was nothing to do.
        show: bring what is drawn up to date. Like ``failed``, only ever called on the thread.
        failed: keep what went wrong, to be shown; the run has been stopped.
        due_in: seconds until the state may be shown again.
    """

    def __init__(
        self,
        step: Callable[[], Any],
        show: Callable[[], None],
        failed: Callable[[BaseException], None],
        due_in: Callable[[], float],
    ) -> None:
        self._step, self._screen, self._failed, self._due_in = step, show, failed, due_in
        self._jobs: SimpleQueue[tuple[Job, Future, bool]] = SimpleQueue()  # and whether it is done at once
        self._later: deque[tuple[Job, Future]] = deque()  # jobs that wait for the end of a run that goes alone
        self._waiters: list[Future] = []  # of runs; done when the run ends
        self._steps_left: int | None = 0  # None: until idle
        self._enough: Callable[[], bool] = bool  # asked after each step; true: the run ends
        self._alone = False  # the run that was begun last is not to be disturbed
        self._rate = math.inf  # steps per second at most
        self._next_step = 0.0  # when it may be taken, monotonic clock
        self._woken = False
        self._stale = False  # something happened that is not shown yet
        self._stopping = False
        self._over = False  # no job will be done any more
        self._gate = threading.Lock()  # nothing is put once it is over
        self._thread = threading.Thread(target=self._loop, name="minisgl-dashboard", daemon=True)

    # -- from any thread -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def over(self) -> bool:
        """Has it ended, or never will a job be done again?"""
        return self._stopping

    @property
    def here(self) -> bool:
        """Is the caller this thread?"""
        return threading.current_thread() is self._thread

    def put(self, job: Job, at_once: bool = False) -> Future:
        """Have a job done on the thread. Its Future gives the job's result or exception; cancelled, it is left out."""
        done: Future = Future()
        with self._gate:
            if self._over:
                raise RuntimeError("this dashboard is closed; make a new one")
            self._jobs.put((job, done, at_once))
        return done

    def wake(self) -> None:
        """Say that somebody else stepped the engine, so that it is shown. Costs nothing while that is still to come."""
        if not (self._woken or self._stopping):
            self._woken = True
            self._jobs.put((self._touched, Future(), True))

    def stop(self, timeout: float = 10.0) -> None:
        """End the thread after the job or the step at hand; who waits for a run is let go. ``timeout``: seconds."""
        self._stopping = True
        self._jobs.put((lambda: None, Future(), True))
        if self.alive and not self.here:
            self._thread.join(timeout)

    # -- jobs: on the thread -------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._steps_left != 0

    def set_rate(self, rate: float) -> None:
        """Steps per second at most; ``inf`` is as fast as it goes."""
        self._rate, self._next_step = rate, 0.0

    def go(self, steps: int | None = None, enough: Callable[[], bool] = bool, alone: bool = False) -> Future:
        """Begin to step: a number of steps, or until idle, or until ``enough()`` is true after one.

        ``alone``: jobs that were not put ``at_once`` wait until then.

        The Future is done when that ends, for whatever reason.
        """
        ended: Future = Future()
        self._waiters.append(ended)
        self._enough, self._alone = enough, alone
        if steps == 0:
            self.halt()
            return ended
        self._steps_left = steps
        self._next_step = 0.0
        self._stale = True
        return ended

    def halt(self) -> None:
        """End the run and show where it stands."""
        self._steps_left = 0
        self._show()
        self._let_go(None)

    def _touched(self) -> None:
        self._woken = False
        self._stale = True

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except BaseException as error:  # a thread that died would leave a dashboard that does not answer
                self._fail(error)
        self._steps_left = 0
        self._let_go(None)
        with self._gate:
            self._over = True
        while not self._jobs.empty():  # nobody may wait for a job that nobody will do
            self._later.append(self._jobs.get()[:2])
        for _, done in self._later:
            done.cancel()

    def _turn(self) -> None:
        """One job, if there is one in time; one step, if it is time; one frame, if it is time."""
        if coming := self._next():
            self._do(*coming)
        if self.running and not self._stopping and time.monotonic() >= self._next_step:
            self._next_step = time.monotonic() + 1 / self._rate
            self._advance()
        if self._stale and self._due_in() <= 0:
            self._show()

    def _next(self) -> tuple[Job, Future] | None:
        """The next job that may be done, if there is one in time."""
        alone = self._alone and self.running
        if self._later and not alone:
            return self._later.popleft()
        try:
            job, done, at_once = self._jobs.get(timeout=self._patience())
        except Empty:
            return None
        if not alone or at_once:
            return job, done
        self._later.append((job, done))
        return None

    def _patience(self) -> float | None:
        """Seconds in which nothing but a job can make work; None: no end."""
        ends = [self._next_step - time.monotonic()] if self.running else []
        ends += [self._due_in()] if self._stale else []
        return max(0.0, min(ends)) if ends else None

    def _do(self, job: Job, done: Future) -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            result = job()
        except BaseException as error:
            self._fail(error)
            done.set_exception(error)
        else:
            done.set_result(result)

    def _advance(self) -> None:
        stepped = self._step()
        self._stale = True
        if self._steps_left is not None:
            self._steps_left -= 1
        if self._enough() or stepped is None or self._steps_left == 0:
            self.halt()

    def _show(self) -> None:
        self._stale = False
        self._screen()

    def _let_go(self, error: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        self._steps_left = 0
        try:
            self._failed(error)
            self._show()
        except BaseException as worse:  # the screen itself is broken: at least nobody is left waiting
            error = worse
        self._let_go(error)
