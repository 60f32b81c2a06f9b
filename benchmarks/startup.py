"""How long imports and the first engine take, each in a Python of its own, and the memory of a small session."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from statistics import median

from measure import arguments, interleaved, print_json, spread, table

from minisgl.events.words import count

# The time is taken inside, so Python's own start does not count. Files are warm: the first round is thrown away.
CASE = """
import json, resource, sys, time
started, cpu = time.perf_counter(), time.process_time()
{code}
seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(json.dumps({{"seconds": seconds, "cpu_seconds": cpu, "peak_mib": peak / 2**20, "torch": "torch" in sys.modules}}))
"""
SESSION = """
from minisgl import LLM, SamplingParams
llm = LLM("smollm2-135m"{settings})
llm.generate(["The capital of France is"] * 2, SamplingParams(max_tokens=16, ignore_eos=True), progress=False)
"""
PROMPT = """
from minisgl import LLM, SamplingParams
llm = LLM("smollm2-135m", max_seq_len=8192)
llm.generate([list(range(1000, 9000))], SamplingParams(max_tokens=1), progress=False)
"""
DASHBOARD = """
import ipykernel.kernelapp
from minisgl import LLM, SamplingParams
from minisgl_widgets import Dashboard
dash = Dashboard(LLM("smollm2-135m"))
dash.run(["The capital of France is"] * 8, SamplingParams(max_tokens=64, ignore_eos=True))
"""
CASES = {
    "import minisgl": "import minisgl",
    "import minisgl.events": "import minisgl.events",
    "from minisgl import LLM": "from minisgl import LLM",
    "import torch": "import torch",
    "import transformers": "import transformers",
    'LLM("smollm2-135m"), from the cache': 'from minisgl import LLM; LLM("smollm2-135m")',
    "the same, and 2 x 16 tokens": SESSION.format(settings=""),
    "the same with num_pages=64": SESSION.format(settings=", num_pages=64"),
    "the same with a prompt of 8,000 tokens": PROMPT,
    "what a notebook's kernel holds: a dashboard, 8 x 64 tokens": DASHBOARD,
}


def run(name: str, found: dict[str, dict]) -> float:
    """One case in a fresh interpreter; its other figures go to ``found``."""
    command = [sys.executable, "-c", CASE.format(code=CASES[name])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr.strip()}")
    found[name] = json.loads(done.stdout.splitlines()[-1])
    return found[name]["seconds"]


def main() -> None:
    options = arguments(__doc__).parse_args()
    rounds = 1 if options.quick else 5
    found: dict[str, dict] = {}
    variants = {name: partial(run, name, found) for name in CASES}
    interleaved(variants, 1)  # the model into its cache, files into the system's
    times = interleaved(variants, rounds, options.patience)
    rows = []
    for name, last in found.items():
        figures = (median(times[name]), spread(times[name]), last["cpu_seconds"], f"{last['peak_mib']:.0f}")
        rows.append([name, *figures, "yes" if last["torch"] else "no"])
    print(f"Each in a Python of its own, {count(rounds, 'round')} in turns; Python's own start is not counted.\n")
    print(table(("what", "seconds", "spread", "CPU seconds", "peak RSS, MiB", "torch"), rows))
    if options.json:
        results = {name: found[name] | {"seconds": median(times[name])} for name in CASES}
        print_json({"benchmark": "startup", "rounds": rounds, "results": results})


if __name__ == "__main__":
    main()
