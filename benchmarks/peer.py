"""Peers that run in a process, and if need be an environment, of their own: both ends of the pipe between.

The worker says "ready" when its model is loaded, then answers one line of JSON with another: prompts and new tokens in,
tokens out. Whatever else a library prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from workload import Prompts

Generate = Callable[[Prompts, list[int]], Prompts]


class Peer:
    """A worker script of this folder, run by ``python`` on a model's folder."""

    def __init__(self, python: str, script: str, *args: str, threads: int) -> None:
        here = Path(__file__).parent
        environment = {**os.environ, "PYTHONPATH": str(here), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [python, str(here / script), *args, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        self.problem = None if said == "ready" else f"it did not start: {said or 'no word from it'}"

    def generate(self, prompts: Prompts, new: list[int]) -> Prompts:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([prompts, new]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


def serve(load: Callable[[], Generate]) -> None:
    """The worker's side: load, then answer until the pipe closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        generate = load()
    except Exception as error:  # the reader wants to know whatever it is
        print(f"{type(error).__name__}: {error}".replace("\n", " ")[:200], file=answers, flush=True)
        sys.exit(1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        prompts, new = json.loads(line)
        print(json.dumps(generate(prompts, new)), file=answers, flush=True)
