"""The first notebook's run without a browser: ``python -m minisgl_widgets.demo --html demo.html``."""

from __future__ import annotations

import argparse
import sys

from minisgl import LLM, Recorder, SamplingParams
from minisgl.errors import MinisglError
from minisgl_widgets.export import export_html
from minisgl_widgets.prompts import PROMPTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="minisgl demo", description=__doc__)
    parser.add_argument(
        "--model", default="smollm2-135m", help="a folder, a .gguf file, a hub id (default: %(default)s)"
    )
    parser.add_argument("--html", metavar="FILE", help="write the run as a page that plays without a network")
    parser.add_argument("--num-pages", type=int, default=64, metavar="N", help="pages in the KV pool (%(default)s)")
    parser.add_argument("--prefix-cache", choices=("radix", "naive"), default="radix", help="default: %(default)s")
    args = parser.parse_args()

    try:
        print(f"loading {args.model} ...", flush=True)
        settings = {"num_pages": args.num_pages, "prefix_cache": args.prefix_cache, "max_seq_len": 128}
        llm = LLM(args.model, device="cpu", dtype="float32", **settings)  # the same tokens on every machine
    except MinisglError as error:
        print(f"minisgl: {error}", file=sys.stderr)
        return 1
    print(f"{llm}\n{llm.memory}\n")
    with Recorder(llm, title=f"Five prompts, {args.num_pages} pages, {args.prefix_cache} prefix cache") as recorder:
        outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=8, ignore_eos=True))
    trace = recorder.trace
    print("Pages after each batch was allocated:\n" + trace.table() + "\n")
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        print(f"{output.uid}: {prompt!r} ({output.cached_tokens} tokens cached) -> {output.error or output.text!r}")
    llm.check_integrity()
    print("\nThe books are sound: every page has one owner.")
    if args.html:
        print(f"Open {export_html(trace, args.html)} in a browser to scrub through the run.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
