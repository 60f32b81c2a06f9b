"""What fewer bits cost: perplexity and next tokens on a fixed text, in each kind of number beside float32.

Small differences show in the Kullback-Leibler divergence long before perplexity moves: it compares the two
distributions at every token, not only what they say of the token that came.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from measure import arguments, print_json, table

from minisgl import LLM, SamplingParams
from minisgl.core import Batch

MODEL = "smollm2-135m"
TEXT = Path(__file__).with_name("quality.txt")  # three of 1854 to 1865, in the public domain, and two of our own
KINDS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8, float32": {"dtype": "float32", "quantize": "int8"},
    "int8, bfloat16": {"dtype": "bfloat16", "quantize": "int8"},
}


def log_probabilities(llm: LLM, tokens: list[int]) -> torch.Tensor:
    """Of every next token after each of ``tokens``, ``[tokens, vocab_size]``, in one pass.

    To the kernels each token is a request of its own; that they share one row, and so one history, is what makes them
    a text.
    """
    n = len(tokens)
    row, slots = torch.tensor([tokens], dtype=torch.int32), torch.arange(n, dtype=torch.int32)[None]
    same: tuple = (0,) * n
    batch = Batch(
        number=0, phase="prefill", uids=same, rows=same, starts=tuple(range(n)), ends=tuple(range(1, n + 1)),
        samples=(True,) * n, params=(SamplingParams(),) * n, seeds=same, page_writes=(), token_writes=(),
    )  # fmt: skip
    return llm.scheduler.executor.runner.logits(batch, slots, row).log_softmax(-1)


def all_kinds(passages: list[str]) -> Iterator[tuple[str, float, torch.Tensor, torch.Tensor]]:
    """Each kind's name, MiB of weights, log probabilities and the tokens that came."""
    for name, settings in KINDS.items():
        with LLM(MODEL, device="cpu", num_pages=1024, **settings) as llm:
            texts = [llm.tokenizer.encode(text)[:1024] for text in passages]
            found = torch.cat([log_probabilities(llm, tokens)[:-1] for tokens in texts])
            came = torch.tensor([token for tokens in texts for token in tokens[1:]])
            yield name, llm.memory.weight_bytes / 2**20, found, came


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("text", nargs="?", type=Path, default=TEXT, help="paragraphs; default: five of our choice")
    options = parser.parse_args()
    passages = [p for p in options.text.read_text(encoding="utf-8").split("\n\n") if p.strip()]
    rows, results, reference = [], [], None
    for name, mib, found, came in all_kinds(passages[:2] if options.quick else passages):
        print(name, file=sys.stderr)
        reference = found if reference is None else reference
        perplexity = float((-found[torch.arange(len(came)), came].mean()).exp())
        divergence = float((reference.exp() * (reference - found)).sum(-1).mean())
        same = float((found.argmax(-1) == reference.argmax(-1)).float().mean())
        rows.append([name, f"{mib:.0f}", f"{perplexity:.3f}", f"{divergence:.5f}", f"{same:.1%}"])
        results.append({"kind": name, "perplexity": perplexity, "divergence": divergence, "same_token": same})
    print(f"{MODEL}, {len(came)} tokens of {options.text.name}; 'same token' is the likeliest one, beside float32's\n")
    print(table(("numbers", "MiB", "perplexity", "divergence, nats", "same token"), rows))
    if options.json:
        print_json({"benchmark": "quality", "tokens": len(came), "results": results})


if __name__ == "__main__":
    main()
