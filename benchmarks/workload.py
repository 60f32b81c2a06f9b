"""Prompts for the offline benchmark: made from text, the same on every run, in need of no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PREFACE = (
    "You are the keeper of a small lighthouse library. Visitors come in from the rain, ask one question each, and "
    "wait by the stove while you look it up. Answer in short, plain sentences, name the shelf where the book stands, "
    "and say so when you do not know. The shelves are: sea and weather, birds, stars, machines, songs, and bread.\n"
)
QUESTIONS = (
    "Why is the sea salty?",
    "How does a tern find its way back over two oceans, and how do we know?",
    "Which star do the fishermen steer by?",
    "What makes a steam engine turn, and who first built one that was of any use in a mine?",
    "Is there a song about the winter ferry?",
    "How long must rye dough rest before it goes into the oven when the room is cold?",
    "What does a falling barometer mean?",
    "Where do the gulls sleep?",
)
SENTENCES = (
    "The morning boat brings letters, flour and a few people who have never been here before.",
    "A page that nobody has asked for in a year is moved to the cellar, and its place is given away.",
    "When two readers want the same book, they read it together and turn the pages at the same time.",
    "The stairs have one hundred and twelve steps, and the lamp at the top burns from dusk to dawn.",
    "In March the wind comes from the east, and the harbour master writes the height of the water on a board.",
    "Bread is baked on Tuesdays and Fridays; whoever comes late gets what is left, which is often nothing.",
    "The clock in the hall is slow by four minutes, and everybody has agreed to leave it so.",
)


Prompts = list[list[int]]


@dataclass(frozen=True)
class Workload:
    """``requests`` prompts a round, for ``shortest`` to 3 * ``shortest`` new tokens. The even ones share a preface."""

    encode: Callable[[str], list[int]]
    requests: int
    shortest: int
    few: int  # the first few, for the runs of one prompt at a time

    def preface(self, round: int) -> list[int]:
        return self.encode(f"Visit {round}. {PREFACE}")

    @property
    def new(self) -> list[int]:
        """New tokens of each request: mixed, so that requests end at different times, as they do in life."""
        return [self.shortest + 37 * i % (2 * self.shortest + 1) for i in range(self.requests)]

    def prompts(self, round: int) -> Prompts:
        """Token ids; of a length between about 50 and 240 tokens."""
        preface = self.preface(round)
        return [
            self._alone(round, i) if i % 2 else preface + self.encode(f"Question: {QUESTIONS[i // 2 % 8]}\nAnswer:")
            for i in range(self.requests)
        ]

    def _alone(self, round: int, i: int) -> list[int]:
        text = " ".join(SENTENCES[(i + k) % 7] for k in range(3 + i // 2 % 9))
        return self.encode(f"Day {i} of week {round}. {text} After that,")

    @property
    def pages(self) -> int:
        """A pool with room for two rounds, in pages of one token."""
        return 2 * sum(len(prompt) + new for prompt, new in zip(self.prompts(0), self.new, strict=True))
