"""Answers: why a request waited, missed the cache or was slow, who kept it out, and how big a pool must be.

Each is an :class:`Answer`: sentences that cite step and event, the numbers they stand on, and a picture.
"""

from minisgl.sim.answers.answer import Answer
from minisgl.sim.answers.blaming import blame
from minisgl.sim.answers.promises import reservations
from minisgl.sim.answers.questions import QUESTIONS, explain
from minisgl.sim.answers.sizing import Shape, size

__all__ = ["QUESTIONS", "Answer", "Shape", "blame", "explain", "reservations", "size"]
