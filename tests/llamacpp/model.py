"""Writes two tiny random Llama models: python model.py FOLDER makes target.gguf, and
draft.gguf beside it.

It runs in the venv that install.sh makes, which has the package gguf. The draft is the
target with noise, so both share the vocabulary. What they say means nothing.
"""

import sys
from pathlib import Path

import gguf
import numpy as np

LAYERS = 2
WIDTH = 64
INNER = 128
HEADS = 2
CONTEXT = 2048
BYTES = [f"<0x{value:02X}>" for value in range(256)]
WORDS = (
    [chr(code) for code in range(33, 127)]
    + ["\u2581"]
    + ["\u2581" + chr(code) for code in range(97, 123)]
)
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *WORDS]
#: Unknown, control, control; bytes; words.
TYPES = [2, 3, 3] + [6] * len(BYTES) + [1] * len(WORDS)


def write(path: Path, noise: float) -> None:
    """Write a model whose matrices differ from the target's by this share of their
    deviation.
    """
    values = np.random.default_rng(1)
    errors = np.random.default_rng(2)

    def matrix(rows: int, columns: int, scale: float = 1 / WIDTH**0.5) -> np.ndarray:
        weights = values.normal(0, scale, (rows, columns))
        if noise:
            weights += errors.normal(0, scale * noise, weights.shape)
        return weights.astype(np.float32)

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token.encode() for token in TOKENS])
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types(TYPES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_tensor("token_embd.weight", matrix(len(TOKENS), WIDTH, 1.0))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output.weight", matrix(len(TOKENS), WIDTH, 0.6))
    for layer in range(LAYERS):
        name = f"blk.{layer}."
        writer.add_tensor(name + "attn_norm.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(name + "ffn_norm.weight", np.ones(WIDTH, np.float32))
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{name}{part}.weight", matrix(WIDTH, WIDTH))
        writer.add_tensor(name + "ffn_gate.weight", matrix(INNER, WIDTH))
        writer.add_tensor(name + "ffn_up.weight", matrix(INNER, WIDTH))
        writer.add_tensor(
            name + "ffn_down.weight", matrix(WIDTH, INNER, 1 / INNER**0.5)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


folder = Path(sys.argv[1])
write(folder / "target.gguf", 0.0)
write(folder / "draft.gguf", 0.05)
