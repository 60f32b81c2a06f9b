"""Answers: why a request waited, missed the cache or was slow, who kept it out, and how big a pool must be.

Each is an :class:`Answer`: sentences that cite step and event, the numbers they stand on, and a picture.
"""

from minisgl.sim.answers.answer import Answer
from minisgl.sim.answers.blame import blame
from minisgl.sim.answers.explain import QUESTIONS, explain
from minisgl.sim.answers.reservations import reservations
from minisgl.sim.answers.size import SHAPES, Shape, size

__all__ = ["QUESTIONS", "SHAPES", "Answer", "Shape", "blame", "explain", "reservations", "size"]
