"""Random runs of state machines: some hundreds each time the tests run, as many as ``make fuzz`` is asked for."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

T = TypeVar("T")

RUNS = int(os.environ.get("MINISGL_FUZZ", "0"))  # per machine; 0: what each test asks for
ENOUGH = 100  # runs from which on a test asks that they came across everything; of fewer, luck would decide
CHUNK = 1000  # Hypothesis remembers every run of one call, and that is paid for in memory
TALLY: dict[str, Counter[str]] = defaultdict(Counter)  # by machine: runs made, and in how many of them something was


def actions(*each: tuple) -> st.SearchStrategy:
    """One of ``(method's name, strategy of its first argument, ...)``; give one twice to make it twice as likely."""
    return st.one_of([st.tuples(st.just(name), *arguments) for name, *arguments in each])


def pick(items: Collection[T], n: int) -> T:
    """One of the items, whatever ``n`` is; what has an order keeps it, so equal runs pick equally."""
    return list(items)[n % len(items)]


class Machine(RuleBasedStateMachine):
    """A state machine that tallies what its runs came across.

    Its first rule calls ``begin`` when all is set up; ``end`` then closes the run. (Hypothesis may give up a run before
    its first rule is through, and tears down all the same.) What it does after that are ``actions``, drawn by a single
    rule: of several rules Hypothesis leaves some out for a whole run, and what matters here takes all of them.
    """

    def begin(self) -> None:
        self._seen: set[str] = set()
        self.saw("runs")

    def act(self, action: tuple) -> None:
        name, *arguments = action
        getattr(self, name)(*arguments)

    def end(self) -> None:
        """What must hold at the end of every run."""

    def teardown(self) -> None:
        if hasattr(self, "_seen"):
            self.end()

    def saw(self, what: str) -> None:
        """Count this run among those that saw it, once."""
        if what not in self._seen:
            self._seen.add(what)
            TALLY[type(self).__name__][what] += 1


def explore(machine: type[Machine], runs: int, steps: int) -> Counter[str]:
    """Run a machine's rules ``runs`` times (``MINISGL_FUZZ`` times, if that is set), at most ``steps`` rules each.

    What this call's runs saw comes back, for a test to ask that they saw enough.
    """
    before = TALLY[machine.__name__].copy()
    left = RUNS or runs
    while left > 0:
        now = min(left, CHUNK)
        quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
        run_state_machine_as_test(
            machine,
            settings=settings(max_examples=now, stateful_step_count=steps, deadline=None, suppress_health_check=quiet),
        )
        left -= now
    return TALLY[machine.__name__] - before


def report() -> list[str]:
    """One line per machine, for the end of a test run."""
    lines = []
    for name, tally in TALLY.items():
        runs = tally["runs"]
        shares = ", ".join(f"{what} {n / runs:.1%}" for what, n in sorted(tally.items()) if what != "runs")
        lines.append(f"{name}: {runs:,} runs" + (f"; of these {shares}" if shares else ""))
    return lines
