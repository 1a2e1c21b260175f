"""What is read from a config.json: parameters, keys and values, precision."""

from typing import Any

import pytest

from plan.configs import (
    DEEPSEEK_V3,
    GEMMA3_12B,
    LLAMA_8B,
    LLAMA_70B,
    MISTRAL_7B,
    MIXTRAL,
    OPT_125M,
    PUBLISHED,
    QWEN3_30B_MOE,
    QWEN_7B,
)
from support.builders import refusal
from vllm_specdec_exporter.economics.architecture import ArchitectureError, read_architecture
from vllm_specdec_exporter.economics.model import (
    count_active_parameters,
    count_eagle,
    count_eagle3,
    count_medusa,
    count_mtp,
    count_parameters,
)
from vllm_specdec_exporter.economics.sizes import PRECISIONS, stored_precision

EXACT = {"Llama-3.1-8B", "Llama-3.1-70B", "Qwen2.5-7B", "Mistral-7B-v0.1", "Mixtral-8x7B", "gemma-2b"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_checkpoint(name: str) -> None:
    """Within 0.1 %, which is ten times closer than planning needs: dense models are counted exactly."""
    config, published, active = PUBLISHED[name]
    architecture = read_architecture(config)
    near = 0 if name in EXACT else 1e-3
    assert count_parameters(architecture) == pytest.approx(published, rel=near, abs=0)
    assert count_active_parameters(architecture) == pytest.approx(active * 1e9, rel=0.01)


def test_a_token_takes_its_keys_and_values_in_every_layer() -> None:
    for config, values in (
        (LLAMA_8B, 2 * 32 * 8 * 128),
        (LLAMA_70B, 2 * 80 * 8 * 128),
        (QWEN_7B, 2 * 28 * 4 * 128),
        (GEMMA3_12B, 2 * 48 * 8 * 256),  # head_dim is the class's default, not 3840 / 16
        (QWEN3_30B_MOE, 2 * 48 * 4 * 128),  # explicit head_dim, not 2048 / 32
        (OPT_125M, 2 * 12 * 12 * 64),  # no grouped queries: as many key as query heads
        (DEEPSEEK_V3, 61 * (512 + 64)),  # latent attention: one vector, not two for every head
    ):
        assert read_architecture(config).kv_values_per_token() == values, config["model_type"]


def test_tensor_parallelism_copies_what_it_cannot_split() -> None:
    """8 key-value heads on 16 GPUs are 16; a latent vector is on every GPU."""
    llama, deepseek = read_architecture(LLAMA_70B), read_architecture(DEEPSEEK_V3)
    one = llama.kv_values_per_token(1)
    assert [llama.kv_values_per_token(gpus) // one for gpus in (1, 2, 4, 8, 16)] == [1, 1, 1, 1, 2]
    assert deepseek.kv_values_per_token(8) == 8 * deepseek.kv_values_per_token(1)


def test_a_window_that_is_not_used_is_none() -> None:
    assert read_architecture(QWEN_7B).sliding_window == 0
    assert read_architecture(MISTRAL_7B).sliding_window == 4096


def test_heads_have_the_sizes_of_their_papers() -> None:
    """EAGLE has 0.24B for 7B and 0.99B for 70B, EAGLE-3 0.42B for 8B, a Medusa head on 7B 0.15B."""
    small, large = read_architecture(LLAMA_8B), read_architecture(LLAMA_70B)
    assert count_eagle(small) == pytest.approx(0.25e9, rel=0.02)
    assert count_eagle(large) == pytest.approx(0.99e9, rel=0.01)
    assert count_eagle3(small) == pytest.approx(0.425e9, rel=0.01)
    assert count_medusa(read_architecture({**MISTRAL_7B}), 5) == pytest.approx(5 * 0.148e9, rel=0.01)
    assert count_mtp(read_architecture(DEEPSEEK_V3)) == pytest.approx(11.6e9, rel=0.01)
    assert count_mtp(small) == 0


def test_heads_of_a_mixture_of_experts_have_a_dense_mlp() -> None:
    """Not all of its experts: the head for Mixtral has 0.28B in the EAGLE paper."""
    assert count_eagle(read_architecture(MIXTRAL)) < 0.3e9
    assert count_eagle(read_architecture({**QWEN3_30B_MOE, "intermediate_size": 0})) < 0.3e9


# --- precision


def test_the_precision_is_read_from_the_file() -> None:
    method = "quant_method"
    for document, name in (
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "fp16"),
        ({"torch_dtype": "float32"}, "bf16"),  # vLLM loads 32 bits as 16
        ({}, None),
        ({"torch_dtype": "int3"}, None),
        ({"torch_dtype": "bfloat16", "quantization_config": {method: "fp8"}}, "fp8"),
        ({"quantization_config": {method: "awq", "bits": 4}}, "int4"),
        ({"quantization_config": {method: "gptq", "bits": 8}}, "int8"),
        ({"quantization_config": {method: "gptq", "bits": 3}}, None),
        ({"quantization_config": {method: "bitsandbytes", "load_in_4bit": True}}, "int4"),
        ({"quantization_config": {method: "bitsandbytes", "load_in_8bit": True}}, "int8"),
        ({"quantization_config": {method: "mxfp4"}}, "fp4"),
        ({"quantization_config": {method: "modelopt", "quant_algo": "NVFP4"}}, "fp4"),
        ({"quantization_config": {method: "modelopt", "quant_algo": "W4A8"}}, None),
        ({"quantization_config": "yes"}, None),
        (compressed({"num_bits": 8, "type": "float"}), "fp8"),
        (compressed({"num_bits": 4, "type": "float"}), "fp4"),
        (compressed({"num_bits": 8, "type": "int"}), "int8"),
        (compressed({"num_bits": 4, "type": "int"}), "int4"),
        (compressed({"num_bits": 2, "type": "int"}), None),
        (compressed(None), None),
    ):
        precision = stored_precision(document)
        assert (precision and precision.name) == name, document


def compressed(weights: dict[str, Any] | None) -> dict[str, Any]:
    """Compressed tensors tell bits and type."""
    groups = {"group_0": {"weights": weights}}
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}}


def test_the_precision_of_the_whole_file_counts_for_the_nested_model() -> None:
    config = {**GEMMA3_12B, "quantization_config": {"quant_method": "compressed-tensors"}}
    assert read_architecture(config).quantized
    assert read_architecture(GEMMA3_12B).weights == PRECISIONS["bf16"]


# --- refusals


NEEDED = ["hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({name: None}, f"{name} is missing") for name in [*NEEDED, "model_type"]),
    ({"hidden_size": 0}, "hidden_size is 0; a whole number from 1"),
    ({"hidden_size": True}, "hidden_size is True; a whole number"),
    ({"num_hidden_layers": 10**8}, "num_hidden_layers is 100000000; a whole number from 1 to 10,000"),
    ({"num_attention_heads": 33}, "head_dim is missing, and hidden_size 4096 is no multiple"),
    ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
    ({"num_local_experts": 8}, "num_experts_per_tok is missing"),
    ({"model_type": "mamba"}, "model_type 'mamba' is an architecture whose parameters cannot be counted"),
    ({"model_type": "lama"}, "did you mean llama"),
    ({"model_type": ["llama"]}, "cannot be counted here"),
    ({"text_config": [1]}, "text_config: a JSON object is expected"),
    (
        {"layer_types": ["linear_attention", "full_attention"]},
        "layer_types has 'linear_attention'; only full_attention and sliding_attention",
    ),
]


def test_what_cannot_be_counted_is_refused_by_name() -> None:
    for change, message in REFUSED:
        said = refusal(ArchitectureError, read_architecture, {**LLAMA_8B, **change})
        assert message in said, change
        assert "\n" not in said


def test_only_an_object_is_a_configuration() -> None:
    for document in ([], None):
        with pytest.raises(ArchitectureError, match="a JSON object is expected"):
            read_architecture(document)
