"""llama.cpp as a peer: all prompts in batches of 512 tokens, then one batch a step. Arguments: folder, dtype, threads.

With "steps" before the last one it takes one prompt of up to 8,192 tokens with what is to follow, and answers not with
tokens but with the microseconds of every step.
It reads GGUF files only, so the folder's weights are written into one, unquantized and without a tokenizer.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from peer import Generate, serve
from workload import Prompts

FOLDER, DTYPE, THREADS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[-1])
STEPS = "steps" in sys.argv
MOST, LONGEST = (1, 8192) if STEPS else (64, 512)  # requests, and tokens of each
BATCH = 512
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(path: Path) -> None:
    import gguf
    import torch
    from safetensors.torch import load_file

    c = json.loads((FOLDER / "config.json").read_text())
    rope = c.get("rope_parameters") or {}
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c.get("rope_theta") or rope["rope_theta"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("no_vocab")
    for name, tensor in load_file(FOLDER / "model.safetensors").items():
        for kind, heads in (("q_proj", c["num_attention_heads"]), ("k_proj", c["num_key_value_heads"])):
            if kind in name:  # GGUF has the two of a rotated pair side by side
                tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        to = _gguf_name(name)
        if DTYPE == "float32" or tensor.dim() == 1:
            w.add_tensor(to, tensor.float().numpy())
        else:
            bits = tensor.bfloat16().contiguous().view(torch.uint8).numpy()
            w.add_tensor(to, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _gguf_name(name: str) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in top:
        return top[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def load() -> Generate:
    import llama_cpp as L

    quiet = L.llama_log_callback(lambda *args: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(path)
        parameters = L.llama_model_default_params()
        parameters.use_mmap = False
        model = L.llama_model_load_from_file(str(path).encode(), parameters)
    settings = L.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = MOST * LONGEST, BATCH, BATCH, MOST
    settings.n_threads = settings.n_threads_batch = THREADS
    settings.kv_unified = False
    context = L.llama_init_from_model(model, settings)
    vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    batch = L.llama_batch_init(BATCH, 0, 1)

    def forward(items: list[tuple[int, int, int, bool]]) -> None:
        batch.n_tokens = len(items)
        for i, (token, position, sequence, wanted) in enumerate(items):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        assert L.llama_decode(context, batch) == 0

    def best(i: int) -> int:
        return int(np.ctypeslib.as_array(L.llama_get_logits_ith(context, i), shape=(vocab,)).argmax())

    def generate(prompts: Prompts, new: list[int]) -> Prompts:
        kept = quiet  # the library calls it as long as it lives
        assert kept and len(prompts) <= MOST
        L.llama_memory_clear(L.llama_get_memory(context), True)
        outputs: Prompts = [[] for _ in prompts]
        queue = [(t, i, s, i + 1 == len(p)) for s, p in enumerate(prompts) for i, t in enumerate(p)]
        for begin in range(0, len(queue), BATCH):
            chunk = queue[begin : begin + BATCH]
            forward(chunk)
            for i, (_, _, sequence, wanted) in enumerate(chunk):
                if wanted:
                    outputs[sequence].append(best(i))
        times = [time.perf_counter()]
        while running := [s for s, out in enumerate(outputs) if len(out) < new[s]]:
            forward([(outputs[s][-1], len(prompts[s]) + len(outputs[s]) - 1, s, True) for s in running])
            for i, s in enumerate(running):
                outputs[s].append(best(i))
            times.append(time.perf_counter())
        return [[round(1e6 * (b - a)) for a, b in pairwise(times)]] if STEPS else outputs

    return generate


if __name__ == "__main__":
    serve(load)
