"""vLLM as a peer: continuous batching, no prefix cache. Arguments: folder, dtype, "eager" or "compiled", threads."""

from __future__ import annotations

import os
import sys

from peer import Generate, serve
from workload import Prompts

FOLDER, DTYPE, MODE, THREADS = sys.argv[1:]
os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": THREADS,
}


def load() -> Generate:
    from vllm import LLM, SamplingParams

    settings = {"max_model_len": 1024, "max_num_seqs": 64, "enable_prefix_caching": False}
    llm = LLM(FOLDER, dtype=DTYPE, enforce_eager=MODE == "eager", **settings)

    def generate(prompts: Prompts, new: list[int]) -> Prompts:
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in new]
        outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    return generate


if __name__ == "__main__":
    serve(load)
