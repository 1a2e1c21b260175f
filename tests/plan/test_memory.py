"""What the weights leave for keys and values: the published arithmetic."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.configs import LLAMA_8B, LLAMA_70B
from vllm_specdec_exporter.commands.plan.estimates import (
    METHODS,
    Drafter,
    Gpus,
    Memory,
    PlannedLoad,
    account,
    estimate_head,
)
from vllm_specdec_exporter.economics.architecture import read_architecture
from vllm_specdec_exporter.economics.model import Model, from_architecture, from_parameters
from vllm_specdec_exporter.economics.sizes import PRECISIONS

BF16 = PRECISIONS["bf16"]
TARGET = from_parameters(70 * 10**9, BF16)
DRAFT = from_parameters(8 * 10**9, BF16)


def model(config: dict[str, Any]) -> Model:
    return from_architecture(read_architecture(config), BF16)


def reckon(
    target: Model,
    draft: Model | None,
    gpus: Gpus,
    load: PlannedLoad = PlannedLoad(),  # noqa: B008 - frozen
    drafter: Drafter = Drafter.MODEL,
) -> Memory:
    return account(target, draft, drafter, gpus, load, 2)


def test_a_draft_model_caches_keys_and_values_of_its_own() -> None:
    """Llama-3.1 in BF16: 327,680 bytes a token for the 70B, 131,072 more for the 8B."""
    memory = reckon(model(LLAMA_70B), model(LLAMA_8B), Gpus(2, 141e9, 0.9), PlannedLoad(8192, 32))
    assert memory.before.kv_bytes_per_token == 327_680
    assert memory.after is not None
    assert memory.after.kv_bytes_per_token == 327_680 + 131_072
    assert memory.draft_kv_known
    assert memory.before.tokens == int(memory.before.kv_budget_bytes // 327_680)
    assert memory.before.requests == memory.before.tokens // 8192 == 41
    assert memory.after.requests == 25
    assert memory.before.fits is True
    assert memory.after.fits is False


def test_an_eagle_head_caches_one_layer_of_the_target() -> None:
    target = model(LLAMA_70B)
    head = estimate_head(METHODS["eagle"], target, BF16, 3)
    memory = reckon(target, head, Gpus(2, 141e9, 0.9), drafter=Drafter.HEAD)
    assert memory.before.kv_bytes_per_token is not None
    assert memory.after is not None
    assert memory.after.kv_bytes_per_token == memory.before.kv_bytes_per_token * 81 / 80


def test_what_is_not_known_stays_unknown() -> None:
    """Without dimensions there are no tokens; without the heads' size no room after."""
    memory = reckon(TARGET, None, Gpus(2, 141e9, 0.9), PlannedLoad(8192, 32), Drafter.HEAD)
    assert memory.after is None
    assert memory.draft_weights_bytes is None
    assert memory.draft_share is None
    assert memory.before.tokens is None
    assert memory.before.fits is None


def test_a_drafts_cache_of_unknown_size_is_said_to_be_missing() -> None:
    memory = reckon(model(LLAMA_70B), DRAFT, Gpus(2, 141e9, 0.9))
    assert not memory.draft_kv_known
    assert memory.after is not None
    assert memory.after.kv_bytes_per_token == memory.before.kv_bytes_per_token


@given(batch=st.integers(1, 500), context=st.integers(1, 100_000), memory=st.floats(17e9, 3e11))
def test_a_batch_fits_if_and_only_if_its_tokens_do(batch: int, context: int, memory: float) -> None:
    found = reckon(
        model(LLAMA_8B), None, Gpus(1, memory, 0.9), PlannedLoad(context, batch), drafter=Drafter.LOOKUP
    ).before
    assert found.tokens is not None
    assert found.requests is not None
    assert found.fits == (found.tokens >= batch * context)
    if found.requests >= batch:
        assert found.fits


def test_heads_of_unknown_size_are_estimated_and_say_so() -> None:
    """Where there is nothing to go by there is no estimate."""
    for method, share in {"eagle": 0.035, "eagle3": 0.053, "mtp": 0.021, "medusa": 3 * 0.022}.items():
        head = estimate_head(METHODS[method], TARGET, BF16, 3)
        assert head is not None
        assert head.parameters == pytest.approx(share * 70e9)
        assert head.estimated
        assert "estimated (" in head.source
    for method in ("mlp_speculator", "ngram", "draft_model"):
        assert estimate_head(METHODS[method], TARGET, BF16, 3) is None
