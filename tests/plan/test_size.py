"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import refusal
from vllm_specdec_exporter.economics.sizes import (
    PRECISIONS,
    format_gigabytes,
    format_parameters,
    parse_memory,
    parse_parameters,
    parse_precision,
)

PARAMETERS = {
    "70B": 70 * 10**9,
    "1.5B": 1_500_000_000,
    "1.5b": 1_500_000_000,
    "500M": 500_000_000,
    "70e9": 70 * 10**9,
    "1T": 10**12,
    "8030261248": 8_030_261_248,
    " 8 B ": 8 * 10**9,
}
NO_PARAMETERS = ["", "B", "0", "0B", "-8B", "8", "8X", "8BB", "nan", "inf", "1e999", "70 000B", "٧B", "1000T"]
MEMORY = {
    "80GB": 80e9,
    "80 GiB": 80 * 2**30,
    "141gb": 141e9,
    "81559MiB": 81559 * 2**20,
    "1.5TB": 1.5e12,
}
NO_MEMORY = ["80", "0GB", "-80GB", "80G", "80 bytes", "", "1kB", "1e300TB", "nanGB"]


def test_sizes_are_read_as_people_write_them() -> None:
    """Decimal and binary units are told apart."""
    assert {text: parse_parameters(text) for text in PARAMETERS} == PARAMETERS
    assert {text: parse_memory(text) for text in MEMORY} == MEMORY


def test_what_is_no_size_is_refused_with_what_is_allowed() -> None:
    said = {text: refusal(ValueError, parse_parameters, text) for text in NO_PARAMETERS}
    allowed = "allowed: a number of parameters such as 70B"
    assert [text for text in NO_PARAMETERS if allowed not in said[text]] == []
    said = {text: refusal(ValueError, parse_memory, text) for text in NO_MEMORY}
    allowed = "allowed: memory with its unit, such as 80GB (80e9 bytes) or 80GiB"
    assert [text for text in NO_MEMORY if allowed not in said[text]] == []


def test_precisions_have_the_published_bytes_and_other_spellings() -> None:
    """BF16 2, INT8 1, INT4 0.5, and what follows for the others."""
    sizes = {name: precision.bytes_per_parameter for name, precision in PRECISIONS.items()}
    assert sizes == {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5, "int4": 0.5}
    spellings = {
        "BF16": "bf16",
        "bfloat16": "bf16",
        "torch.float16": "fp16",
        "half": "fp16",
        "fp8_e5m2": "fp8",
    }
    assert {text: parse_precision(text).name for text in spellings} == spellings
    known = "allowed: fp32, bf16, fp16, fp8, int8, fp4, int4"
    assert known in refusal(ValueError, parse_precision, "bf8")


@given(st.integers(10**6, 10**14))
def test_what_is_shown_of_a_size_is_read_back_as_about_the_same(count: int) -> None:
    assert parse_parameters(format_parameters(count)) == pytest.approx(count, rel=0.006)


def test_gigabytes_are_decimal() -> None:
    shown = {113.8e9: "113.8 GB", -12e9: "-12.0 GB", -1.0: "0.0 GB", 1.5e12: "1,500.0 GB"}
    assert {size: format_gigabytes(size) for size in shown} == shown
