"""Answers: why a request waited, missed the cache or was slow, who kept it out, how big a pool must be, what all the
look-ups came to, what other page sizes would do, and whether a record is true.

Each is an :class:`Answer`: sentences that cite step and event, the numbers they stand on, and a picture.
"""

from minisgl.sim.answers.answer import Answer
from minisgl.sim.answers.blaming import blame
from minisgl.sim.answers.hitrate import hits
from minisgl.sim.answers.lenses import lens
from minisgl.sim.answers.promises import reservations
from minisgl.sim.answers.questions import QUESTIONS, explain
from minisgl.sim.answers.sizing import Shape, size
from minisgl.sim.answers.verifying import verify

__all__ = ["QUESTIONS", "Answer", "Shape", "blame", "explain", "hits", "lens", "reservations", "size", "verify"]
