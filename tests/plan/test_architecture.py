"""What is read from a config.json: parameters, keys and values, precision; and sizes as
people write them.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plan.configs import (
    DEEPSEEK_V3,
    EAGLE3,
    GEMMA3_12B,
    GEMMA4_31B,
    LLAMA_8B,
    LLAMA_70B,
    MISTRAL_7B,
    MIXTRAL,
    OPT_125M,
    PUBLISHED,
    QWEN3_30B_MOE,
    QWEN35_27B,
    QWEN_7B,
    SPECULATORS,
)
from support.builders import refusal
from vllm_specdec_exporter.config.values import memory
from vllm_specdec_exporter.economics.architecture import (
    ArchitectureError,
    read_architecture,
)
from vllm_specdec_exporter.economics.parameter_counts import (
    count_active_parameters,
    count_eagle,
    count_eagle3,
    count_medusa,
    count_mtp,
    count_parameters,
)
from vllm_specdec_exporter.economics.sizes import (
    PRECISIONS,
    format_gigabytes,
    format_parameters,
    parse_parameters,
    parse_precision,
    stored_precision,
)

TABLES = yaml.safe_load(
    Path(__file__).with_name("architectures.yml").read_text("utf-8")
)
EXACT = {
    "Llama-3.1-8B",
    "Llama-3.1-70B",
    "Qwen2.5-7B",
    "Mistral-7B-v0.1",
    "Mixtral-8x7B",
    "gemma-2b",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_checkpoint(name: str) -> None:
    """Within 0.1 %, which is ten times closer than planning needs: dense models are
    counted exactly.
    """
    config, published, active = PUBLISHED[name]
    architecture = read_architecture(config)
    near = 0 if name in EXACT else 1e-3
    assert count_parameters(architecture) == pytest.approx(published, rel=near, abs=0)
    assert count_active_parameters(architecture) == pytest.approx(
        active * 1e9, rel=0.01
    )


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (LLAMA_8B, 2 * 32 * 8 * 128),
        (LLAMA_70B, 2 * 80 * 8 * 128),
        (QWEN_7B, 2 * 28 * 4 * 128),
        # head_dim is the class's default, not 3840 / 16
        (GEMMA3_12B, 2 * 48 * 8 * 256),
        (QWEN3_30B_MOE, 2 * 48 * 4 * 128),  # explicit head_dim, not 2048 / 32
        (OPT_125M, 2 * 12 * 12 * 64),  # no grouped queries: as many key as query heads
        (QWEN35_27B, 2 * 16 * 4 * 256),  # linear attention in three of four layers
        # other heads in layers without a window
        (GEMMA4_31B, 50 * 2 * 16 * 256 + 10 * 2 * 4 * 512),
        # latent attention: one vector, not two for every head
        (DEEPSEEK_V3, 61 * (512 + 64)),
    ],
)
def test_a_token_takes_its_keys_and_values_in_every_layer(
    config: dict[str, Any], values: int
) -> None:
    assert read_architecture(config).kv_values_per_token() == values, config[
        "model_type"
    ]


def test_tensor_parallelism_copies_what_it_cannot_split() -> None:
    """8 key-value heads on 16 GPUs are 16; a latent vector is on every GPU."""
    llama = read_architecture(LLAMA_70B)
    deepseek = read_architecture(DEEPSEEK_V3)
    on_one_gpu = llama.kv_values_per_token(1)
    assert [
        llama.kv_values_per_token(gpus) // on_one_gpu for gpus in (1, 2, 4, 8, 16)
    ] == [1, 1, 1, 1, 2]
    assert deepseek.kv_values_per_token(8) == 8 * deepseek.kv_values_per_token(1)


def test_a_window_that_is_not_used_is_none() -> None:
    assert read_architecture(QWEN_7B).sliding_window == 0
    assert read_architecture(MISTRAL_7B).sliding_window == 4096


def test_layers_are_those_that_transformers_derives_without_a_list() -> None:
    """Every fourth of Qwen's hybrids, every sixth of Gemma 3 and 4 attends to the whole
    context.
    """
    for config, full, sliding, linear in (
        (QWEN35_27B["text_config"], 16, 0, 48),
        (GEMMA4_31B["text_config"], 10, 50, 0),
        (GEMMA3_12B, 8, 40, 0),
        (MISTRAL_7B, 0, 32, 0),
        (QWEN_7B, 28, 0, 0),
    ):
        text = {key: value for key, value in config.items() if key != "layer_types"}
        architecture = read_architecture(text)
        kinds = (
            architecture.full_layers,
            architecture.sliding_layers,
            architecture.linear.layers if architecture.linear else 0,
        )
        assert kinds == (full, sliding, linear), config
    qwen = read_architecture(QWEN35_27B)
    assert (qwen.mtp_layers, qwen.state_bytes) == (1, 48 * 48 * 128 * 128 * 4)


def test_heads_have_the_sizes_of_their_papers() -> None:
    """EAGLE has 0.24B for 7B and 0.99B for 70B, EAGLE-3 0.42B for 8B, a Medusa head on
    7B 0.15B.
    """
    small = read_architecture(LLAMA_8B)
    large = read_architecture(LLAMA_70B)
    assert count_eagle(small) == pytest.approx(0.25e9, rel=0.02)
    assert count_eagle(large) == pytest.approx(0.99e9, rel=0.01)
    assert count_eagle3(small) == pytest.approx(0.425e9, rel=0.01)
    assert count_medusa(read_architecture({**MISTRAL_7B}), 5) == pytest.approx(
        5 * 0.148e9, rel=0.01
    )
    assert count_mtp(read_architecture(DEEPSEEK_V3)) == pytest.approx(11.6e9, rel=0.01)
    assert count_mtp(small) == 0


@pytest.mark.parametrize("document", [EAGLE3, SPECULATORS])
def test_a_head_is_counted_by_its_own_shape(document: dict[str, Any]) -> None:
    """Built without weights it has 243.3 M in its layer, 131.1 M in its output layer
    and 50.3 M in its projection; vLLM takes the embeddings from the target.
    """
    head = read_architecture(document)
    assert count_parameters(head) == pytest.approx(424.7e6, rel=0.001)
    assert count_parameters(head) == count_eagle3(read_architecture(LLAMA_8B))
    assert head.precision == PRECISIONS["bf16"]
    assert head.kv_values_per_token() == 2 * 8 * 128


def test_what_a_head_has_of_its_own_is_counted() -> None:
    """A whole output layer, further layers, and embeddings of another hidden size than
    the target's, from which its projection comes then.
    """
    shape = read_architecture(EAGLE3)

    def more(**keys: int) -> int:
        return count_parameters(read_architecture({**EAGLE3, **keys})) - (
            count_parameters(shape)
        )

    assert more(draft_vocab_size=128_256) == (128_256 - 32_000) * 4096
    assert more(num_hidden_layers=2) == pytest.approx(218e6, rel=0.001)
    wider = 3 * (8192 - 4096) * 4096
    assert more(target_hidden_size=8192) == wider + 128_256 * 4096


def test_the_first_eagle_heads_look_like_a_llama_of_one_layer() -> None:
    """By their file alone they are one, by the method they are a head."""
    first = read_architecture({**LLAMA_8B, "num_hidden_layers": 1})
    assert first.head is None
    head = first.as_head("eagle")
    assert count_parameters(head) == count_eagle(read_architecture(LLAMA_8B))
    named = read_architecture(
        {**LLAMA_8B, "num_hidden_layers": 1, "architectures": ["EagleLlamaModel"]}
    )
    assert count_parameters(named) == count_parameters(head)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {**SPECULATORS, "speculators_model_type": "mtp"},
            "speculators_model_type 'mtp': only eagle, eagle3 can be counted",
        ),
        (
            {"speculators_model_type": "eagle3"},
            "transformer_layer_config: a JSON object is expected",
        ),
    ],
)
def test_another_speculator_is_refused_by_its_type(
    document: dict[str, Any], message: str
) -> None:
    """And one without layers by the key that is missing."""
    assert message in refusal(ArchitectureError, read_architecture, document)


def test_heads_of_a_mixture_of_experts_have_a_dense_mlp() -> None:
    """Not all of its experts: the head for Mixtral has 0.28B in the EAGLE paper."""
    assert count_eagle(read_architecture(MIXTRAL)) < 0.3e9
    assert (
        count_eagle(read_architecture({**QWEN3_30B_MOE, "intermediate_size": 0}))
        < 0.3e9
    )


# --- precision


@pytest.mark.parametrize(("document", "name"), TABLES["precisions"])
def test_the_precision_is_read_from_the_file(
    document: dict[str, Any], name: str | None
) -> None:
    precision = stored_precision(document)
    assert (precision and precision.name) == name, document


def test_the_precision_of_the_whole_file_counts_for_the_nested_model() -> None:
    config = {
        **GEMMA3_12B,
        "quantization_config": {"quant_method": "compressed-tensors"},
    }
    assert read_architecture(config).quantized
    assert read_architecture(GEMMA3_12B).precision == PRECISIONS["bf16"]


# --- refusals


@pytest.mark.parametrize(("change", "message"), TABLES["refused"])
def test_what_cannot_be_counted_is_refused_by_name(
    change: dict[str, Any], message: str
) -> None:
    said = refusal(ArchitectureError, read_architecture, {**LLAMA_8B, **change})
    assert message in said, change
    assert "\n" not in said


@pytest.mark.parametrize("document", [[], None])
def test_only_an_object_is_a_configuration(document: Any) -> None:
    with pytest.raises(ArchitectureError, match="a JSON object is expected"):
        read_architecture(document)


# --- sizes as people write them


SIZES = TABLES["sizes"]


def test_sizes_are_read_as_people_write_them() -> None:
    """Decimal and binary units are told apart."""
    assert {text: parse_parameters(text) for text in SIZES["parameters"]} == SIZES[
        "parameters"
    ]
    assert {text: memory(text) for text in SIZES["memory"]} == SIZES["memory"]


def test_what_is_no_size_is_refused_with_what_is_allowed() -> None:
    said = {
        text: refusal(ValueError, parse_parameters, text)
        for text in SIZES["no_parameters"]
    }
    allowed = "allowed: a number of parameters such as 70B"
    assert [text for text in SIZES["no_parameters"] if allowed not in said[text]] == []
    said = {text: refusal(ValueError, memory, text) for text in SIZES["no_memory"]}
    allowed = "allowed: memory with its unit, such as 80GB (80e9 bytes) or 80GiB"
    assert [text for text in SIZES["no_memory"] if allowed not in said[text]] == []


def test_precisions_have_the_published_bytes_and_other_spellings() -> None:
    """BF16 2, INT8 1, INT4 0.5, and what follows for the others."""
    sizes = {
        name: precision.bytes_per_parameter for name, precision in PRECISIONS.items()
    }
    assert sizes == {
        "fp32": 4,
        "bf16": 2,
        "fp16": 2,
        "fp8": 1,
        "int8": 1,
        "fp4": 0.5,
        "int4": 0.5,
    }
    spellings = {
        "BF16": "bf16",
        "bfloat16": "bf16",
        "torch.float16": "fp16",
        "half": "fp16",
        "fp8_e5m2": "fp8",
    }
    assert {text: parse_precision(text).name for text in spellings} == spellings
    allowed = "allowed: fp32, bf16, fp16, fp8, int8, fp4, int4"
    assert allowed in refusal(ValueError, parse_precision, "bf8")


@given(st.integers(10**6, 10**14))
def test_what_is_shown_of_a_size_is_read_back_as_about_the_same(count: int) -> None:
    assert parse_parameters(format_parameters(count)) == pytest.approx(count, rel=0.006)


def test_gigabytes_are_decimal() -> None:
    shown = {
        113.8e9: "113.8 GB",
        -12e9: "-12.0 GB",
        -1.0: "0.0 GB",
        1.5e12: "1,500.0 GB",
    }
    assert {size: format_gigabytes(size) for size in shown} == shown
