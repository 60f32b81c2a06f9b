"""verify: does a record come out the same when it is run again?"""

from __future__ import annotations

from minisgl.events.table import Table
from minisgl.events.trace import Trace
from minisgl.events.types import StepFinished
from minisgl.events.words import count
from minisgl.sim.answers.answer import Answer, cite
from minisgl.sim.replay import replay

COLUMNS = {"step": "step", "differences": "events"}


def verify(trace: Trace) -> Answer:
    """Run a record's inputs through the scheduler again, without the model, and compare event for event.

    Nothing of what the record says was decided is given to the scheduler, so 0 differences prove two things: the record
    is whole, and every decision in it follows from what came from outside. Times are left out.

    ``facts``: ``differences``, ``steps``, ``events``. ``data``: the steps that differ. ``events``: the first that does.

    Raises:
        TraceError: the record does not say how to go on from its start.
    """
    diff = trace.diff(replay(trace))
    steps = len(trace.of(StepFinished))
    facts = {"differences": len(diff), "steps": steps, "events": len(trace)}
    table = Table.of_rows("verify", COLUMNS, list(diff.per_step.items()))
    where = f"{count(len(trace), 'event')} of {count(steps, 'step')}"
    if diff.first is None:
        said = [f"0 differences in {where}: run again without its model, the record comes out the same."]
        return Answer("Does the record equal its replay?", said, table, facts)
    first = diff.first.this or diff.first.other
    assert first
    said = [
        f"{count(len(diff), 'difference')} in {where}, the first in {cite(first)}.",
        *(line.strip() for line in str(diff.first).splitlines()[1:]),
    ]
    return Answer("Does the record equal its replay?", said, table, facts, [first])
