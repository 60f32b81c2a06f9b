"""Notices: what a dashboard says beside its numbers."""

from __future__ import annotations

from minisgl.events.words import pages as runs


class Notices:
    """``note``: what came of what was done last. ``failure``: what stopped the last run, or a request in it."""

    def __init__(self) -> None:
        self.note = self.failure = ""
        self._refused: dict[str, list[int]] = {}  # why prompts of the last submission cannot be served -> their numbers

    def clear(self) -> None:
        """Another run begins. What was refused stays until the next submission."""
        self.note = self.failure = ""

    def submit(self) -> None:
        """Another submission begins."""
        self._refused = {}

    def refuse(self, why: str, *prompts: int) -> None:
        """The prompts of these numbers cannot be served; of none: there is none."""
        self._refused.setdefault(why, []).extend(prompts)

    @property
    def errors(self) -> list[str]:
        """One line each. Prompts that were refused for the same reason share one: ``prompts 1-3, 5: ...``."""
        refused = [
            f"{'prompt' if len(numbers) == 1 else 'prompts'} {runs(tuple(numbers))}: {why}" if numbers else why
            for why, numbers in self._refused.items()
        ]
        return [*refused, *([self.failure] if self.failure else [])]
