"""The roofline model of known hardware: what it says of machines, models and drafters."""

from pathlib import Path

import pytest

from plan.configs import QWEN3_30B_MOE
from support.builders import refusal
from vllm_specdec_exporter.economics import BUILTIN, for_method
from vllm_specdec_exporter.economics.architecture import read_architecture
from vllm_specdec_exporter.economics.hardware import HardwareError, accelerators, parse_machine
from vllm_specdec_exporter.economics.model import (
    Model,
    from_architecture,
    from_parameters,
    model_in_name,
    parse_model,
    with_details,
)
from vllm_specdec_exporter.economics.profiles import (
    UNCERTAINTY,
    CostSettings,
    Hardware,
    deployed,
    hardware_profile,
    is_dated,
)
from vllm_specdec_exporter.economics.sizes import PRECISIONS
from vllm_specdec_exporter.economics.speculative_config import Speculation

ROOT = Path(__file__).parents[2]


def qwen3_30b_a3b() -> Model:
    return from_architecture(read_architecture(QWEN3_30B_MOE), PRECISIONS["bf16"])


def cost(gpus: str, model: str, method: str = "eagle3", k: int = 3, batch: float = 1) -> float:
    """The cost of a step with drafts on these GPUs."""
    hardware = Hardware(*parse_machine(gpus), parse_model(model))
    found = hardware_profile(for_method(method), hardware, method=method)
    assert found is not None
    return found.step_cost(k, batch)


def test_every_accelerator_has_a_source_and_plausible_numbers() -> None:
    """By its ridge point: operations per byte of 16 bits lie between those of an L40S and an H20."""
    for name, found in accelerators().items():
        ridge = found.operations_per_second("fp16") / found.bandwidth
        assert 30 < ridge < 450, name
        assert found.source, name
        assert found.operations_per_second("fp4") >= found.operations_per_second("fp8"), name


def test_break_even_rises_with_the_batch_and_sooner_where_operations_are_scarce() -> None:
    """An H20 reads as fast as an H100 and multiplies at a seventh of its speed."""
    for gpus in ("h100", "h20", "rtx-3090"):
        costs = [cost(gpus, "8B", batch=batch) for batch in (1, 8, 32, 128, 512)]
        assert costs == sorted(costs), gpus
    assert cost("h20", "8B", batch=64) > 1.3 * cost("h100", "8B", batch=64)


def test_the_shape_of_a_config_is_that_of_its_size() -> None:
    """Parameters and those in use by the dimensions, against the model card: 30.5B and 3.3B."""
    model = qwen3_30b_a3b()
    assert model.parameters == pytest.approx(30.5e9, rel=0.01)
    assert model.multiplied == pytest.approx(3.3e9 - 151936 * 2048, rel=0.05)
    assert (model.experts, model.used, model.layers) == (128, 8, 48)
    assert model.kv_values == 48 * 2 * 4 * 128
    assert model.bytes_read(1) == pytest.approx(model.multiplied * 2)
    assert model.bytes_read(1e6) == pytest.approx((model.parameters - model.looked_up) * 2)


def test_names_that_say_all_and_names_that_do_not() -> None:
    said = {
        "meta-llama/Llama-3.1-70B-Instruct": (70e9, 2.0),
        "Qwen/Qwen3-30B-A3B-FP8": (30e9, 1.0),
        "Qwen/Qwen2.5-7B-Instruct-AWQ": (7e9, 0.5625),
        "openai/gpt-oss-120b": None,  # a mixture of experts, of which the name says nothing
        "deepseek-ai/DeepSeek-V3": None,
        "tiny-llama": None,
    }
    for name, expected in said.items():
        found = model_in_name(name)
        assert (None if found is None else (found.parameters, found.precision.bytes_read)) == (
            None if expected is None else (pytest.approx(expected[0]), expected[1])
        ), name


def test_what_is_no_hardware_or_size_is_refused_with_what_is_allowed() -> None:
    for text in ("h999", "0xh100", "h100x4", "", "h100,h200"):
        assert "known: " in refusal(HardwareError, parse_machine, text), text
    assert [parse_machine(text)[0] for text in ("H100", "4xh100", "1xMI300X", "rtx_4090")] == [
        *("h100", "4xh100", "mi300x", "rtx-4090")
    ]
    for text in ("70", "3B-A30B", "8B:fp5", "B"):
        assert refusal(ValueError, parse_model, text), text
    size = parse_model("30B-A3B:int4")
    assert (size.parameters, size.active_parameters, size.precision.name) == (30e9, 3e9, "int4")


class TestDeployed:
    """Which profile is used once the server is seen."""

    def profile(
        self, model: str, given: str | None = None, *, version: str = "0.32.0", **more: object
    ) -> object:
        shape = parse_model(given) if given else None
        speculation = Speculation(True, **{"method": "eagle3", **more})  # type: ignore[arg-type]
        costs = CostSettings(BUILTIN["eagle3"], None, Hardware(*parse_machine("h100"), shape))
        return deployed(costs, speculation, model, "vllm-v1", version)

    def test_by_the_served_name_or_the_given_size(self) -> None:
        for model, given in (("meta-llama/Llama-3.1-8B", None), ("m", "8B")):
            found = self.profile(model, given)
            assert (found.name, found.uncertainty) == ("h100, eagle3", UNCERTAINTY)  # type: ignore[attr-defined]

    def test_an_unknown_model_or_drafter_leaves_the_generic_profile(self) -> None:
        assert self.profile("m") == BUILTIN["eagle3"]
        assert self.profile("m", "8B", method="draft_model", draft_model="some/draft").name == "eagle3"  # type: ignore[attr-defined]

    def test_an_old_engine_drafts_slower(self) -> None:
        old, new = self.profile("m", "8B", version="0.9.2"), self.profile("m", "8B")
        assert old.step_cost(3, 1) > 1.2 * new.step_cost(3, 1)  # type: ignore[attr-defined]
        assert [is_dated("vllm-v1", text) for text in ("0.10.2", "v0.11.0", "", "1.0")] == [
            True,
            False,
            False,
            False,
        ]


def test_the_usual_shape_is_near_published_ones() -> None:
    """Layers and hidden size of Llama 3 at 1B, 8B and 70B, within a quarter."""
    for size, layers, hidden in ((1.2e9, 16, 2048), (8e9, 32, 4096), (70e9, 80, 8192)):
        found = from_parameters(size)
        assert found.layers == pytest.approx(layers, rel=0.25)
        assert found.hidden == pytest.approx(hidden, rel=0.25)


def test_the_page_holds_the_goals_and_the_interval() -> None:
    """The published numbers are those of today's model (`make check-generated`); the interval holds 90 %."""
    page = (ROOT / "docs" / "reference" / "estimate-accuracy.md").read_text("utf-8")
    cells = [
        cell.strip()
        for cell in page.split("| modelled: hardware and model known |")[1].split("\n")[0].split("|")
    ]
    assert float(cells[1].rstrip("%")) <= 15
    assert float(cells[2].rstrip("%")) / 100 <= UNCERTAINTY


class TestDetails:
    """What the operator says of a model beside its size."""

    def test_they_replace_what_is_usual(self) -> None:
        """Qwen3-30B-A3B by its dimensions is what its config.json says, within a tenth."""
        known = qwen3_30b_a3b()
        usual = parse_model("30B-A3B")
        found = with_details(usual, "layers=48, kv-heads=4,experts=8/128,kv=fp8")
        assert (found.layers, found.kv_values, found.kv_bytes) == (48, known.kv_values, 1)
        assert (found.experts, found.used) == (128, 8)
        assert (found.routed, found.multiplied) == (
            pytest.approx(known.routed, rel=0.1),
            pytest.approx(3e9, rel=0.05),
        )

    def test_a_smaller_cache_makes_long_contexts_cheaper(self) -> None:
        shape = parse_model("8B")
        times = []
        for details in ("kv=bf16", "kv=fp8"):
            hardware = Hardware(*parse_machine("h100"), with_details(shape, details))
            profile = hardware_profile(for_method("eagle3"), hardware, method="eagle3")
            assert profile is not None
            short, long = (profile.at_context(tokens).times(3, 32)[0] for tokens in (1000, 50_000))
            times.append(long - short)
        assert times[1] == pytest.approx(times[0] / 2)

    def test_what_cannot_be_is_refused(self) -> None:
        for size, details, reason in (
            ("8B", "experts=8/128", "contradicts the size"),
            ("30B-A3B", "experts=128/8", "fewer experts in use than there are"),
            ("8B", "layers=0", "whole numbers from 1 up"),
            ("8B", "heads=8", "allowed: layers=N"),
            ("8B", "kv=fp5", "allowed: fp32"),
        ):
            with pytest.raises(ValueError, match=reason):
                with_details(parse_model(size), details)

    def test_a_config_has_all_but_the_precision_of_the_cache(self) -> None:
        shape = qwen3_30b_a3b()
        assert with_details(shape, "kv=fp8").kv_bytes == 1
        with pytest.raises(ValueError, match=r"layers contradicts the config\.json"):
            with_details(shape, "layers=48")
