"""The newest wish wins, results come in order, background work makes room, and nothing kills the thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from minisgl_widgets.latest import LatestThread

SECONDS = 20


class Work:
    """A thread whose wishes and pieces wait for the test."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.errors: list[BaseException] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.pieces = 0
        self.piece: Callable[[Callable[[], None]], bool] = lambda check: False
        self.thread = LatestThread(self.work, self.idle, self.errors.append, rest=0)

    def work(self, wish: Any, check: Callable[[], None]) -> None:
        self.begun.set()
        assert self.go_on.wait(SECONDS)
        if isinstance(wish, BaseException):
            raise wish
        self.done.append(wish)

    def idle(self, check: Callable[[], None]) -> bool:
        self.pieces += 1
        return self.piece(check)


@pytest.fixture
def work():
    made = Work()
    yield made
    made.go_on.set()
    made.thread.stop()


def test_only_the_newest_of_those_that_wait_is_worked_at(work):
    work.go_on.clear()
    work.thread.ask("a")
    assert work.begun.wait(SECONDS)
    for wish in "bcd":
        last = work.thread.ask(wish)
    work.go_on.set()
    work.thread.wait(last)
    assert work.done == ["a", "d"]


def test_who_waits_for_a_wish_that_was_replaced_is_let_go_by_the_newer_one(work):
    work.go_on.clear()
    work.thread.ask("a")
    assert work.begun.wait(SECONDS)
    old, _ = work.thread.ask("b"), work.thread.ask("c")
    work.go_on.set()
    work.thread.wait(old)
    assert work.done == ["a", "c"]


def test_background_work_goes_on_until_it_is_done_and_gives_way(work):
    started = threading.Event()

    def piece(check: Callable[[], None]) -> bool:
        if work.done == ["a"]:  # a long one: only a newer wish ends it
            started.set()
            while True:
                check()
        return work.pieces < 5

    work.piece = piece
    work.thread.ask("a")
    assert started.wait(SECONDS)
    work.thread.wait(work.thread.ask("b"), background=True)
    assert work.done == ["a", "b"] and work.pieces == 5


def test_an_exception_is_shown_and_the_next_wish_served(work):
    work.thread.wait(work.thread.ask(ValueError("no")), background=True)
    work.thread.wait(work.thread.ask("b"))
    assert [str(e) for e in work.errors] == ["no"] and work.done == ["b"]


def test_after_the_end_nothing_is_asked_and_nobody_waits(work):
    work.piece = lambda check: True  # never done
    number = work.thread.ask("a")
    work.thread.wait(number)
    work.thread.stop()
    work.thread.wait(number + 1, background=True)
    with pytest.raises(RuntimeError, match="closed"):
        work.thread.ask("b")
