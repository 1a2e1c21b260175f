"""The roofline model of known hardware: machines, models and drafters."""

import json
import math
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from plan.configs import GEMMA4_31B, QWEN3_30B_MOE, QWEN35_27B
from support.builders import refusal
from support.scripts import script
from vllm_specdec_exporter.economics.architecture import read_architecture
from vllm_specdec_exporter.economics.cost import Basis, CostProfile
from vllm_specdec_exporter.economics.hardware import (
    METHOD_FAMILIES,
    PLAIN,
    REGIMES,
    SHARED_ERROR,
    SHARED_ERROR_REACH,
    SPEEDUP,
    STEP,
    Machine,
    PhysicalModel,
    method_family,
    parse_machine,
    regime,
    usual_drafter,
)
from vllm_specdec_exporter.economics.known_models import (
    KnownModel,
    known_model,
    known_models,
)
from vllm_specdec_exporter.economics.model import (
    Model,
    from_architecture,
    from_parameters,
)
from vllm_specdec_exporter.economics.model_names import (
    model_in_name,
    parse_model,
    size_in_name,
    with_details,
)
from vllm_specdec_exporter.economics.observed_step import (
    ObservedStep,
    with_observed_step,
)
from vllm_specdec_exporter.economics.parameter_counts import count_parameters
from vllm_specdec_exporter.economics.profiles import (
    BUILTIN,
    CostSettings,
    Hardware,
    deployed,
    for_method,
    hardware_profile,
    is_dated,
)
from vllm_specdec_exporter.economics.sizes import (
    PRECISIONS,
    Accelerator,
    HardwareError,
    accelerators,
)
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.economics.speedup import estimate
from vllm_specdec_exporter.engines import ENGINE_OF
from vllm_specdec_exporter.judgement.explanation import how_to_know

ROOT = Path(__file__).parents[2]


H100 = parse_machine("h100")[1]


def published(config: dict[str, Any], precision: str = "bf16") -> Model:
    """The model of a published config.json."""
    return from_architecture(read_architecture(config), PRECISIONS[precision])


def cost(gpus: str, model: str, batch: float = 1) -> float:
    """The cost of a step with three drafted tokens on these GPUs."""
    hardware = Hardware(*parse_machine(gpus), parse_model(model))
    profile = hardware_profile(for_method("eagle3"), hardware, method="eagle3")
    return profile.step_cost(3, batch)


@pytest.mark.parametrize(("name", "found"), accelerators().items())
def test_every_accelerator_has_a_source_and_plausible_numbers(
    name: str, found: Accelerator
) -> None:
    """By its ridge point: operations per byte of 16 bits lie between those of an H20
    and a Gaudi 3.
    """
    ridge = found.operations_per_second("fp16") / found.bandwidth
    assert 30 < ridge < 500, name
    assert found.source, name
    assert found.operations_per_second("fp4") >= found.operations_per_second("fp8"), (
        name
    )


def test_own_hardware_is_given_by_its_data_sheet() -> None:
    """The same numbers give the same cost as the known GPU whose kernels split the
    context.
    """
    data_sheet = (
        "bandwidth=3350GB/s, fp16=989TFLOPS,fp8=1979TFLOPS,link=450GB/s,memory=80GB"
    )
    assert cost(data_sheet, "8B:fp8", batch=16) == pytest.approx(
        cost("h100", "8B:fp8", batch=16)
    )
    name, machine = parse_machine(f"2x{data_sheet}")
    assert name == "2xown-3350GB/s"
    assert machine.count == 2
    assert machine.accelerator.memory == 80e9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bandwidth=1792GB/s", "fp16 is missing, in TFLOPS"),
        ("fp16=210TFLOPS", "bandwidth is missing, in GB/s"),
        (
            "bandwidth=1792,fp16=210TFLOPS",
            "'bandwidth=1792': allowed: a number and its unit",
        ),
        ("bandwidth=1.8GB/s,fp16=210TFLOPS", "from 10GB/s to 100000GB/s"),
        (
            "bandwidth=1792GB/s,bf16=210TFLOPS",
            "'bf16=210tflops': no such key; known: bandwidth",
        ),
        ("fp16=1TFLOPS,fp16=2TFLOPS", "fp16 is given twice"),
    ],
)
def test_incomplete_data_are_refused_with_what_is_expected(
    text: str, reason: str
) -> None:
    assert reason in refusal(HardwareError, parse_machine, text)


def step(
    gpus: str, model: Model, *, k: int, context: float = 1000.0, unsplit: bool = True
) -> float:
    """The time of a pass of one request with `k` drafted tokens, in seconds."""
    machine = replace(parse_machine(gpus)[1], unsplit=unsplit)
    return machine.pass_seconds(model, k + 1, 1, context)


def test_a_long_context_is_not_free_of_the_verified_tokens() -> None:
    """Kernels as flash-attention pull request 193 measured them: 4 to 27 times as long
    for a context of 32k.

    There, on an RTX 3090: 2 heads of 256, 0.138 ms for one token, 2.94 ms for eight.
    Where kernels split the context, a Hopper GPU or another engine, reading it takes
    the same for any number of tokens.
    """
    target = parse_model("8B")
    contexts = (0.0, 32_768.0)
    single, several = (step("rtx-3090", target, k=k, context=32_768) for k in (0, 7))
    short, verifying = (
        step("rtx-3090", target, k=7, context=context) for context in contexts
    )
    reading = single - step("rtx-3090", target, k=0, context=0)
    assert 4 < (verifying - short) / reading < 27
    assert several == verifying
    for gpus, unsplit in (("h100", True), ("rtx-3090", False)):
        plain, drafting = (
            step(gpus, target, k=k, context=contexts[1], unsplit=unsplit)
            - step(gpus, target, k=k, context=0, unsplit=unsplit)
            for k in (0, 7)
        )
        assert drafting == pytest.approx(plain), gpus
    layer = replace(target, layers=1, kv_values=2 * 2 * 256, kv_heads=2)
    measured = step("rtx-3090", layer, k=7, context=32_768) - step(
        "rtx-3090", layer, k=7, context=0
    )
    assert measured == pytest.approx(2.94e-3, rel=0.02)


@pytest.mark.parametrize(
    ("config", "share"),
    [(QWEN35_27B, 1.0), (GEMMA4_31B, 10 * 4 * 512 / (10 * 4 * 512 + 50 * 16 * 256))],
    ids=["Qwen3.5-27B", "Gemma 4 31B"],
)
def test_layers_with_a_window_read_no_long_context(
    config: dict[str, Any], share: float
) -> None:
    """Qwen3.5-27B attends in 16 of 64 layers, Gemma 4 31B in 10 of 60; the rest does
    not grow.
    """
    architecture = read_architecture(config)
    model = from_architecture(architecture, PRECISIONS["bf16"])
    short, long = (step("h100", model, k=0, context=n) for n in (50_000, 100_000))
    every = 50_000 * architecture.kv_values_per_token() * 2 / (3350e9 * 0.81)
    assert long - short == pytest.approx(share * every, rel=0.01)


def test_a_state_is_read_whatever_the_context() -> None:
    qwen = published(QWEN35_27B)
    states = step("h100", qwen, k=3) - step("h100", replace(qwen, state_bytes=0), k=3)
    assert states == pytest.approx(5 * qwen.state_bytes / (3350e9 * 0.81))


@pytest.mark.parametrize("precision", ["fp4", "fp8", "bf16"])
def test_an_mtp_head_has_16_bits_and_the_true_vocabulary(precision: str) -> None:
    """Of a target of any precision: a layer and the output layer (Qwen3.5-27B: 0.37B
    and 1.27B).
    """
    target = published(QWEN35_27B, "fp4")
    head = usual_drafter("mtp", replace(target, precision=PRECISIONS[precision])).model
    assert head.bytes_read(1) == pytest.approx(2 * (0.37e9 + 248_320 * 5120), rel=0.02)
    assert head.kv_values == 2 * 4 * 256


@pytest.mark.parametrize(
    ("gpus", "same"), [("h100", True), ("a100", True), ("b200", False)]
)
def test_fp4_is_unpacked_where_there_are_no_fp4_units(gpus: str, same: bool) -> None:
    """Marlin on an H100 multiplies 16 bits, as for int4; a B200 has the units."""
    fp4, int4 = (
        step(gpus, parse_model(f"8B:{name}"), k=511) for name in ("fp4", "int4")
    )
    assert (fp4 == pytest.approx(int4)) is same, gpus


def test_quantized_weights_are_read_at_a_lower_share_of_the_bandwidth() -> None:
    """A published plain step of Qwen3-32B in fp8 on an RTX PRO 6000, with 8 requests:
    34.5 ms.

    At the share of 16 bits, it would take 26 ms.
    """
    machine = parse_machine("rtx-pro-6000")[1]
    seconds = machine.pass_seconds(parse_model("32.8B:fp8"), 8, 8, 1000)
    assert seconds == pytest.approx(0.0345, rel=0.15)


def test_messages_take_longer_over_pcie() -> None:
    """Two messages a layer, three times as long without NVLink, at least where they are
    small.
    """
    link = "bandwidth=3350GB/s,fp16=989TFLOPS,link="
    model = parse_model("8B")
    over = H100.overheads
    later = step(f"2x{link}64GB/s", model, k=0) - step(f"2x{link}450GB/s", model, k=0)
    assert later == pytest.approx(
        2 * model.layers * (over.message_pcie - over.message), rel=0.1
    )
    assert over.message_pcie > 2 * over.message


def test_the_interval_is_by_method_and_regime() -> None:
    """EAGLE on dense targets is tried most; drafters that no measurement is of are not
    taken for it.
    """
    methods = ("eagle3", "deepseek_mtp", "dflash", "ngram", "draft_model")
    errors = {
        (method, size): SPEEDUP[method_family(method), regime(parse_model(size))]
        for method, size in product(methods, ("8B", "8B:int4", "30B-A3B"))
    }
    eagle = errors["eagle3", "8B"]
    assert eagle == errors["eagle3", "8B:int4"] == min(errors.values()) > 1
    assert eagle < errors["ngram", "8B"] < errors["draft_model", "8B"]
    assert eagle < errors["deepseek_mtp", "8B"] < errors["draft_model", "8B"]
    assert eagle < errors["eagle3", "30B-A3B"]


def test_break_even_rises_with_the_batch_and_sooner_where_operations_are_scarce() -> (
    None
):
    """An H20 reads as fast as an H100 and multiplies at a seventh of its speed."""
    for gpus in ("h100", "h20", "b200"):
        costs = [cost(gpus, "8B", batch=batch) for batch in (1, 8, 32, 128, 512)]
        assert costs == sorted(costs), gpus
    assert cost("h20", "8B", batch=64) > 1.3 * cost("h100", "8B", batch=64)


def test_the_shape_of_a_config_is_that_of_its_size() -> None:
    """Parameters and those in use by the dimensions, against the model card: 30.5B and
    3.3B.
    """
    model = published(QWEN3_30B_MOE)
    assert model.parameters == pytest.approx(30.5e9, rel=0.01)
    assert model.multiplied_parameters == pytest.approx(3.3e9 - 151936 * 2048, rel=0.05)
    assert (model.experts, model.used, model.layers) == (128, 8, 48)
    assert model.kv_values == 48 * 2 * 4 * 128
    assert model.bytes_read(1) == pytest.approx(model.multiplied_parameters * 2)
    assert model.bytes_read(1e6) == pytest.approx(
        (model.parameters - model.looked_up_parameters) * 2
    )


def test_names_that_say_all_and_names_that_do_not() -> None:
    said = {
        "Some-Llama-3.1-9B": (9e9, 2.0),
        "HuggingFaceTB/SmolLM2-135M": (135e6, 2.0),
        "Some-30B-A3B-FP8": (30e9, 1.0),
        "Qwen/Qwen2.5-1.5B-Instruct-AWQ": (1.5e9, 0.5625),
        # a mixture of experts, of which the name says nothing
        "deepseek-ai/DeepSeek-V3.2": None,
        **dict.fromkeys(["Mixtral-8x7B", "tiny-llama", "70B/llama", ""]),
    }
    for name, expected in said.items():
        model = model_in_name(name)
        assert (
            None if model is None else (model.parameters, model.precision.bytes_read)
        ) == (
            None if expected is None else (pytest.approx(expected[0]), expected[1])
        ), name


class TestPublishedModels:
    """Models whose dimensions are known by their names."""

    @pytest.mark.parametrize("known", known_models(), ids=lambda known: known.names[0])
    def test_the_dimensions_give_the_published_size(self, known: KnownModel) -> None:
        assert count_parameters(known.architecture) == pytest.approx(
            known.billions * 1e9, rel=0.01
        )

    @pytest.mark.parametrize(
        ("name", "layers", "bytes_read"),
        [
            ("meta-llama/Llama-3.1-70B-Instruct", 80, 2.0),
            ("meta-llama/Meta-Llama-3-8B-Instruct", 32, 2.0),
            ("Qwen/Qwen3-30B-A3B-FP8", 48, 1.0),
            ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 36, 2.0),
            ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 32, 2.0),
            # published in fewer bits than 16
            ("deepseek-ai/DeepSeek-V3-0324", 61, 1.0),
            ("Kimi-K2-Instruct", 61, 1.0),
            ("zai-org/GLM-4.5", 92, 2.0),
            ("zai-org/GLM-4.5-Air-FP8", 46, 1.0),
            ("unsloth/DeepSeek-V3-bf16", 61, 2.0),
            ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", 80, 1.0),
            ("Qwen/Qwen2.5-72B-Instruct-GPTQ", 80, 0.5625),
            ("/models/Qwen3-8B.Q4_K_M.gguf", 36, 0.5625),
            ("/models/Qwen3-8B/", 36, 2.0),
        ],
    )
    def test_a_served_name_says_which_one_it_is(
        self, name: str, layers: int, bytes_read: float
    ) -> None:
        model = model_in_name(name)
        assert model is not None
        assert (model.layers, model.precision.bytes_read) == (layers, bytes_read)
        assert parse_model(name) == model

    @pytest.mark.parametrize("known", known_models(), ids=lambda known: known.names[0])
    def test_each_name_finds_its_own_model(self, known: KnownModel) -> None:
        for name in known.names:
            assert known_model(name, size_in_name(name)) is known, name

    @pytest.mark.parametrize(
        "name",
        [
            "DeepSeek-V3.2",
            "DeepSeek-V3_2",
            "DeepSeek-V3-NextN",
            "tiny-DeepSeek-V3",
            "DeepSeek-R1-Distill",
            "DeepSeek-R1-Slim-12B",
            "Qwen3-4B2",
            "MyQwen3-8B",
            "gemma-4-31B-it-assistant",
        ],
    )
    def test_another_model_is_not_taken_for_it(self, name: str) -> None:
        model = model_in_name(name)
        assert model is None or model.architecture is None

    def test_an_operator_may_name_it(self) -> None:
        """A server may call its model `chat`."""
        model = parse_model("Qwen3-30B-A3B:int4")
        assert (model.layers, model.precision) == (48, PRECISIONS["int4"])
        assert parse_model("DeepSeek-R1").precision == PRECISIONS["fp8"]
        assert parse_model("DeepSeek-R1-FP4:int4").precision == PRECISIONS["int4"]
        assert with_details(model, "kv=fp8").kv_bytes == 1

    def test_of_two_models_of_one_size_the_state_of_one_is_counted(self) -> None:
        """Verification of many tokens writes a state for each, over linear attention;
        not so where all layers have keys and values.
        """
        costs = {}
        for name in ("Qwen3.5-27B", "27B"):
            hardware = Hardware(*parse_machine("h200"), parse_model(name))
            profile = hardware_profile(for_method("dflash"), hardware, method="dflash")
            costs[name] = profile.step_cost(15, 32)
        assert costs["Qwen3.5-27B"] > 1.2 * costs["27B"]


def test_a_long_context_is_known_less() -> None:
    """Each doubling beyond 1,000 tokens adds the same to the logarithm of the largest
    cost, modelled and observed.
    """
    hardware = Hardware(*parse_machine("h100"), parse_model("Llama-3.1-8B"))
    profile = hardware_profile(for_method("eagle3"), hardware, method="eagle3")
    modelled = {}
    observed = {}
    for context in (500, 1000, 4000):
        placed = profile.at_context(context)
        seconds = placed.step_times(3, 1)[1]
        step = ObservedStep(seconds, batch=1, drafted=3, share=1.0, emitted=2.0)
        modelled[context] = _dearest(placed)
        observed[context] = _dearest(with_observed_step(placed, step))
    assert modelled[500] == pytest.approx(modelled[1000])
    assert modelled[4000] / modelled[1000] == pytest.approx(math.exp(0.2))
    assert observed[500] == pytest.approx(observed[1000])
    assert observed[4000] / observed[1000] == pytest.approx(math.exp(0.2), rel=0.01)


def _dearest(profile: CostProfile) -> float:
    """The largest cost over the estimated one."""
    return profile.cost_range(3, 1)[1] / profile.step_cost(3, 1)


def test_what_is_no_hardware_or_size_is_refused_with_what_is_allowed() -> None:
    for text in ("h999", "0xh100", "h100x4", "", "h100,h200"):
        assert "known: " in refusal(HardwareError, parse_machine, text), text
    assert [
        parse_machine(text)[0] for text in ("H100", "4xh100", "1xMI300X", "rtx_4090")
    ] == ["h100", "4xh100", "mi300x", "rtx-4090"]
    for text in ("70", "3B-A30B", "8B:fp5", "B"):
        assert refusal(ValueError, parse_model, text), text
    size = parse_model("30B-A3B:int4")
    assert size.parameters == 30e9
    assert size.active_parameters == 3e9
    assert size.precision.name == "int4"


def observed_step(seconds: float, batch: float = 4, **more: float) -> ObservedStep:
    """A step of `seconds`; by default each has a draft of K=3, and none a prompt."""
    usual = {"share": 1.0, "emitted": 2.5}
    return ObservedStep(seconds, batch, 3, **(usual | more))


class TestDeployed:
    """Which profile is used once the server is seen."""

    def profile(
        self,
        model: str,
        given: str | None = None,
        *,
        version: str = "0.32.0",
        **more: object,
    ) -> object:
        shape = parse_model(given) if given else None
        speculation = Speculation(True, **{"method": "eagle3", **more})
        costs = CostSettings(
            BUILTIN["eagle3"], None, Hardware(*parse_machine("h100"), shape)
        )
        return deployed(costs, speculation, model, "vllm-v1", version=version)

    @pytest.mark.parametrize(
        ("model", "given"), [("meta-llama/Llama-3.1-8B", None), ("m", "8B")]
    )
    def test_by_the_served_name_or_the_given_size(
        self, model: str, given: str | None
    ) -> None:
        profile = self.profile(model, given)
        assert profile.name == "h100, eagle3"
        assert profile.uncertainty == SPEEDUP["eagle", "dense"] - 1

    def test_an_unknown_model_or_drafter_leaves_the_generic_profile(self) -> None:
        generic = replace(BUILTIN["eagle3"], drafts_ahead=True)
        assert self.profile("m") == replace(generic, lacking="--cost.model")
        assert (
            self.profile("m", "8B", method="draft_model", draft_model="some/draft").name
            == "eagle3"
        )

    def test_parallel_drafting_is_read(self) -> None:
        """One pass for all positions (P-EAGLE) instead of one each; the interval is
        that of such drafters.
        """
        one_by_one, parallel = (
            self.profile("m", "8B", document=json.dumps({"parallel_drafting": flag}))
            for flag in (False, True)
        )
        assert parallel.step_times(7, 1)[1] < 0.9 * one_by_one.step_times(7, 1)[1]
        assert parallel.uncertainty > one_by_one.uncertainty

    @pytest.mark.parametrize("hardware", [None, "h100"])
    def test_llama_cpp_above_one_request_is_unknown(self, hardware: str | None) -> None:
        """The interval includes every speedup from 0 to the acceptance length; a
        calibrated one is kept.
        """
        if hardware:
            machine = Hardware(*parse_machine(hardware), parse_model("8B"))
        else:
            machine = None
        costs = CostSettings(BUILTIN["eagle3"], None, machine)
        speculation = Speculation(True, method="eagle3")
        profile = deployed(costs, speculation, "m", "llamacpp")
        alone, several = (estimate(3.4, 3, batch, profile) for batch in (1, 4))
        assert alone.speedup_low > 1 > several.speedup_low == 0
        assert several.speedup_high == pytest.approx(3.4)
        vllm = estimate(3.4, 3, 4, deployed(costs, speculation, "m", "vllm-v1"))
        assert vllm.speedup == several.speedup
        assert vllm.speedup_low > 0
        calibrated = replace(profile, basis=Basis.CALIBRATED)
        assert calibrated.cost_range(3, 4)[1] < math.inf

    def test_the_interval_is_wider_in_a_larger_batch(self) -> None:
        """As a logarithm by 5 % for each doubling; that of other profiles is the same
        for all batches.
        """
        profile = self.profile("m", "8B")
        error = 1 + profile.uncertainty
        for batch, factor in ((1, error), (2, error**1.05), (16, error**1.2)):
            dearest = profile.step_cost(3, batch) * factor
            assert profile.cost_range(3, batch)[1] == pytest.approx(dearest), (
                batch,
                factor,
            )
        generic = BUILTIN["eagle3"]
        assert generic.cost_range(3, 16)[1] == generic.step_cost(3, 16) * (
            1 + generic.uncertainty
        )

    @pytest.mark.parametrize("factor", [0.9, 1.0, 2.0])
    @pytest.mark.parametrize(
        ("size", "kind"),
        [("8B", "dense"), ("8B:fp8", "dense quantized"), ("30B-A3B", "experts")],
    )
    def test_an_observed_step_is_used_as_it_is(
        self, size: str, kind: str, factor: float
    ) -> None:
        """With the error of the plain step around it, which is larger the more the step
        contradicts its model; a plain step takes no longer than one with drafts.

        A power of what it exceeds its model by is the plain one's.
        """
        profile = self.profile("m", size)
        plain, drafting = profile.step_times(3, 4)
        observed = with_observed_step(profile, observed_step(factor * drafting))
        cost = max(1.0, factor * drafting / (plain * factor**SHARED_ERROR))
        low, high = PLAIN[kind]
        of_share = SHARED_ERROR_REACH * math.log(factor)
        further = math.exp(math.hypot(math.log(high), of_share))
        nearer = math.exp(math.hypot(math.log(low), of_share))
        assert observed.basis is Basis.OBSERVED
        assert observed.step_cost(3, 4) == pytest.approx(cost)
        assert observed.cost_range(3, 4) == pytest.approx(
            (max(1.0, cost / further), cost * nearer)
        )

    def test_a_model_of_its_own_says_nothing_of_the_target(self) -> None:
        """What an 8B drafter of a 70B target takes longer is its own."""
        profile = self.profile("m", "70B", method="draft_model", draft_model="x-8B")
        plain, drafting = profile.step_times(3, 4)
        observed = with_observed_step(profile, observed_step(4 * drafting))
        assert observed.step_cost(3, 4) == pytest.approx(4 * drafting / plain)
        assert observed.contradiction

    def test_drafts_that_seem_free_have_no_known_cost(self) -> None:
        """Or the largest K would be advised."""
        dense = self.profile("m", "8B")
        plain, _ = dense.step_times(3, 4)
        free = with_observed_step(dense, observed_step(0.8 * plain))
        costly = with_observed_step(dense, observed_step(1.05 * plain))
        assert free.step_cost(3, 4) == free.step_cost(6, 4) == 1.0
        assert "what drafts cost is not known" in free.contradiction
        assert not costly.contradiction

    def test_an_observed_step_has_the_first_passes_of_steps_without_drafts(
        self,
    ) -> None:
        """Half of the steps have K=0 beside a drafter: both kinds cost as much more as
        the other.
        """
        profile = replace(self.profile("m", "8B"), idles=True)
        plain, _ = profile.step_times(3, 8)
        drafted, undrafted = profile.step_cost(3, 8) - 1, profile.idle_cost(8) - 1
        modelled = plain * (1 + (drafted + undrafted) / 2)
        step = observed_step(1.3 * modelled, batch=8, share=0.5)
        observed = with_observed_step(profile, step)
        mean_cost = 1.3 * modelled / (plain * 1.3**SHARED_ERROR)
        more = (mean_cost - 1) / ((drafted + undrafted) / 2)
        assert more > 1
        assert observed.step_cost(3, 8) == pytest.approx(1 + more * drafted)
        assert observed.idle_cost(8) == pytest.approx(1 + more * undrafted)

    def test_a_step_that_is_shorter_than_any_plain_one_by_the_model_decides_nothing(
        self,
    ) -> None:
        """The hardware is another than given, so nothing is known of a plain step:
        drafts are not free.
        """
        profile = self.profile("m", "8B")
        plain, _ = profile.step_times(3, 4)
        contradicted = with_observed_step(profile, observed_step(0.4 * plain))
        experts = self.profile("m", "30B-A3B")
        plain_experts, _ = experts.step_times(3, 4)
        # The plain step follows the observed one: at 0.65 of the model, it is shorter
        # as well.
        for share, basis in ((0.65, Basis.OBSERVED), (0.3, Basis.MODELLED)):
            step = observed_step(share * plain_experts)
            assert with_observed_step(experts, step).basis is basis, share
        speedup = estimate(2.5, 3, 4, contradicted)
        assert (speedup.speedup_low, speedup.speedup_high) == (0.0, 2.5)
        assert speedup.basis is Basis.MODELLED
        assert (
            "by the model of the hardware a plain one at least"
            in contradicted.contradiction
        )
        assert how_to_know(
            Basis.MODELLED, contradicted, ENGINE_OF["vllm-v1"]
        ).startswith("check --cost.hardware and --cost.model, run")

    def test_prompts_in_the_steps(self) -> None:
        """They come with each token that a step emits, in a plain one with one token of
        each request, and the drafter computes them as well: a step that is longer by
        them has the same cost, and a speedup nearer to 1.
        """
        profile = self.profile("m", "8B")
        _, drafting = profile.step_times(3, 4)
        prompts = profile.with_prompts((10.0, 10.0))
        of_plain = 4 * 10 * profile.physical.prompt_token_seconds()
        of_drafter = 4 * 10 * profile.physical.draft_prompt_token_seconds()
        with_drafts = drafting + 2.5 * (of_plain + of_drafter)
        step = observed_step(with_drafts)
        with_prompts = with_observed_step(prompts, step)
        without = with_observed_step(profile, observed_step(drafting))
        assert with_prompts.step_cost(3, 4) == pytest.approx(without.step_cost(3, 4))
        assert not with_prompts.contradiction
        decoding, all_work = (
            estimate(2.5, 3, 4, each).speedup for each in (without, with_prompts)
        )
        plain, _ = profile.step_times(3, 4)
        assert all_work == pytest.approx(2.5 * (plain + of_plain) / with_drafts)
        assert decoding > all_work > 1

    @pytest.mark.parametrize("prompts", [0.0, 1.0, 10.0, 50.0])
    def test_break_even_pays_for_the_prompts_of_the_drafter(
        self, prompts: float
    ) -> None:
        """With 50 tokens of a prompt for each generated one, the speedup was 0.98 at
        the break-even length.
        """
        profile = self.profile("m", "8B").with_prompts((prompts, prompts))
        estimated = estimate(2.5, 3, 24, profile)
        even = estimated.break_even_acceptance_length
        assert even >= estimated.step_cost
        assert estimated.break_even_acceptance_ratio == pytest.approx((even - 1) / 3)
        assert estimate(even, 3, 24, profile).speedup == pytest.approx(1)

    def test_of_prompts_alone_no_length_breaks_even(self) -> None:
        """The drafter then takes longer for them than a step of the target."""
        profile = self.profile("m", "8B").with_prompts((1e6, 1e6))
        estimated = estimate(2.5, 3, 24, profile)
        assert estimated.break_even_acceptance_length is None
        assert estimated.break_even_acceptance_ratio is None
        assert estimated.speedup == pytest.approx(
            1 / profile.prompt_times(24).drafting, 1e-3
        )

    @pytest.mark.parametrize(
        ("method", "parameters"),
        [
            ("eagle3", 14 * 4096**2),  # a layer without its output layer
            ("dflash", 5 * 2 * 8 * 128 * 4096),  # keys and values of five layers
            ("draft_model", 0.8e9 - 128_000 * 1984),
            ("medusa", 0),
            ("ngram", 0),
        ],
    )
    def test_a_drafter_computes_prompts_too(
        self, method: str, parameters: float
    ) -> None:
        target = from_parameters(8e9)
        drafter = usual_drafter(method, target, from_parameters(0.8e9))
        _, machine = parse_machine("h100")
        physical = PhysicalModel(machine, target, drafter)
        times = (physical.draft_prompt_token_seconds(), physical.prompt_token_seconds())
        assert times[0] / times[1] == pytest.approx(parameters / 8e9)

    def test_a_step_contradicts_its_model_outside_of_all_that_prompts_may_take(
        self,
    ) -> None:
        """How many of the prompts the cache had is not known: from none to all."""
        profile = self.profile("m", "8B").with_prompts((0.0, 100.0))
        plain, drafting = profile.step_times(3, 4)
        of_plain = 4 * 100 * profile.physical.prompt_token_seconds()
        prompts = drafting + 2.5 * of_plain
        assert 2.5 * of_plain > drafting

        def contradicts(step: ObservedStep) -> bool:
            said = with_observed_step(profile, step).contradiction
            return said != "" and "what drafts cost is not known" not in said

        shortest = 0.9 * drafting / STEP
        contradicted = [
            contradicts(observed_step(seconds))
            for seconds in (drafting, prompts, shortest, 4 * STEP * prompts)
        ]
        assert contradicted == [False, False, True, True]
        profile = self.profile("m", "8B")
        # half of the steps are plain
        half = observed_step(STEP * (plain + drafting) / 2, share=0.5, emitted=1.75)
        assert not contradicts(replace(half, seconds=0.99 * half.seconds))
        assert contradicts(replace(half, seconds=1.01 * half.seconds))

    def test_an_old_engine_drafts_slower(self) -> None:
        old = self.profile("m", "8B", version="0.9.2")
        new = self.profile("m", "8B")
        assert old.step_cost(3, 1) > 1.1 * new.step_cost(3, 1)
        assert [
            is_dated(ENGINE_OF["vllm-v1"], text)
            for text in ("0.10.2", "v0.11.0", "", "1.0")
        ] == [True, False, False, False]


def test_weights_with_scales_and_layers_with_experts_have_overheads_of_their_own() -> (
    None
):
    """Half the bandwidth doubles the reading of 8 bits, not of 16; a layer with experts
    takes longer.
    """
    over = H100.overheads
    halved = replace(
        H100, overheads=replace(over, bandwidth_quantized=over.bandwidth_quantized / 2)
    )
    layered = replace(
        H100, overheads=replace(over, experts_layer=over.experts_layer + 1e-4)
    )

    def longer(other: Machine, size: str) -> float:
        model = parse_model(size)
        return other.pass_seconds(model, 1, 1, 0) - H100.pass_seconds(model, 1, 1, 0)

    reading = parse_model("70B:fp8").bytes_read(1) / (
        H100.accelerator.bandwidth * over.bandwidth_quantized
    )
    assert longer(halved, "70B:fp8") == pytest.approx(reading, rel=0.01)
    assert longer(layered, "30B-A3B") == pytest.approx(
        1e-4 * parse_model("30B-A3B").layers
    )
    assert (longer(halved, "70B"), longer(layered, "70B")) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("size", "layers", "hidden"), [(1.2e9, 16, 2048), (8e9, 32, 4096), (70e9, 80, 8192)]
)
def test_the_usual_shape_is_near_published_ones(
    size: float, layers: int, hidden: int
) -> None:
    """Layers and hidden size of Llama 3 at 1B, 8B and 70B, within a quarter."""
    shape = from_parameters(size)
    assert shape.layers == pytest.approx(layers, rel=0.25)
    assert shape.hidden == pytest.approx(hidden, rel=0.25)


class TestDetails:
    """What the operator says of a model beside its size."""

    def test_they_replace_what_is_usual(self) -> None:
        """Qwen3-30B-A3B by its dimensions is its config.json within a tenth."""
        of_config = published(QWEN3_30B_MOE)
        usual = parse_model("30B-A3B")
        detailed = with_details(usual, "layers=48, kv-heads=4,experts=8/128,kv=fp8")
        assert detailed.layers == 48
        assert detailed.kv_values == of_config.kv_values
        assert detailed.kv_bytes == 1
        assert (detailed.experts, detailed.used) == (128, 8)
        assert detailed.routed_parameters == pytest.approx(
            of_config.routed_parameters, rel=0.1
        )
        assert detailed.multiplied_parameters == pytest.approx(3e9, rel=0.05)

    def test_a_smaller_cache_makes_long_contexts_cheaper(self) -> None:
        shape = parse_model("8B")
        times = []
        for details in ("kv=bf16", "kv=fp8"):
            hardware = Hardware(*parse_machine("h100"), with_details(shape, details))
            profile = hardware_profile(for_method("eagle3"), hardware, method="eagle3")
            short, long = (
                profile.at_context(tokens).step_times(3, 32)[0]
                for tokens in (1000, 50_000)
            )
            times.append(long - short)
        assert times[1] == pytest.approx(times[0] / 2)

    @pytest.mark.parametrize(
        ("size", "details", "reason"),
        [
            ("8B", "experts=8/128", "contradicts the size"),
            ("30B-A3B", "experts=128/8", "fewer experts in use than there are"),
            ("8B", "layers=0", "whole numbers from 1 up"),
            ("8B", "heads=8", "allowed: layers=N"),
            ("8B", "kv=fp5", "allowed: fp32"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, size: str, details: str, reason: str
    ) -> None:
        with pytest.raises(ValueError, match=reason):
            with_details(parse_model(size), details)

    def test_a_config_has_all_but_the_precision_of_the_cache(self) -> None:
        shape = published(QWEN3_30B_MOE)
        assert with_details(shape, "kv=fp8").kv_bytes == 1
        with pytest.raises(ValueError, match="layers: the dimensions of this model"):
            with_details(shape, "layers=48")


def test_no_published_measurement_counts_twice() -> None:
    score = script("bench/accuracy/score.py")
    seen = Counter(
        (row.source, row.target, row.method, row.k, row.batch, row.length, row.speedup)
        for row in score.load()
    )
    assert not [row for row, times in seen.items() if times > 1]


def test_the_blind_test_has_sources_of_its_own() -> None:
    score = script("bench/accuracy/score.py")
    blind = {(row.source, row.url) for row in score.load("blind.yaml")}
    used = {(row.source, row.url) for row in score.load()}
    for source, url in blind:
        assert source not in dict(used), source
        assert url is None or url not in {address for _, address in used}, url


def test_steps_measured_on_a_gpu_are_held_against_the_model() -> None:
    """A row that is what the model says has no error; one of twice the time, an error
    of a half.
    """
    score = script("bench/accuracy/score.py")
    shape = score.decoder("llama-3.1-8b", "bf16")
    assert shape.parameters == pytest.approx(8.03e9 - 2 * 128_256 * 4096, rel=0.01)
    row = {"shape": "llama-3.1-8b", "precision": "bf16", "batch": 8, "context": 500}
    plain = 1000 * H100.pass_seconds(shape, 8, 8, 500)
    verifying = (
        1000 * H100.pass_seconds(shape, 32, 8, 500) * H100.overheads.verification
    )
    rows = [
        {**row, "milliseconds": {1: factor * plain, 4: 2 * verifying}}
        for factor in (1, 2)
    ]
    times, ratios = score.step_errors("h100", rows)
    assert times == pytest.approx([0.0, 0.5, 0.5, 0.5])
    assert ratios == pytest.approx([0.5, 0.0])


def test_intervals_weigh_deployments_and_leave_the_judged_one_out() -> None:
    """90 % of deployments that no interval was made from lie in it; a hundred points
    weigh what one does.

    A deployment's own interval does not count its error: an outlier lies outside of
    what the others allow.
    """
    score = script("bench/accuracy/score.py")
    random = Random(1)
    held = 0
    for _ in range(4000):
        *errors, new = (random.gauss(0.1, 0.2) for _ in range(8))
        centre = sum(errors) / len(errors)
        held += abs(new - centre) < score.reach(
            [[error] for error in errors], centre, len(errors) - 1
        )
    assert held / 4000 == pytest.approx(0.9, abs=0.02)
    assert score.reach([[0.5] * 100, [0.1]], 0.0, 5) == pytest.approx(
        score.reach([[0.5], [0.1]], 0.0, 5)
    )
    row = next(row for row in score.load() if row.hardware == "h20")
    profile = row.profile()
    cost = profile.step_cost(row.k, row.batch)
    sources = [replace(row, source=str(index)) for index in range(5)]
    usual = [[score.LeftOut(each, profile, 0.2)] for each in sources]
    elsewhere = replace(row, speedup=4 * row.speedup, source="elsewhere")
    outlier = [score.LeftOut(elsewhere, profile, 1.4)]
    *inside, outside = score.modelled([*usual, outlier])
    far = math.exp(score.reach([[0.2]] * 5, 0.0, 5))
    assert row.length / outside.low == pytest.approx(cost * far)
    assert not outside.holds
    assert inside[0].low < outside.low, (
        "the others' interval includes the outlier's error"
    )


def test_the_table_is_of_every_kind_of_deployment() -> None:
    """No method of vLLM and no deployment is without an interval."""
    assert set(SPEEDUP) == set(product(METHOD_FAMILIES, REGIMES))
    methods = ("draft_model", "ngram", "suffix", "mlp_speculator", "medusa")
    assert [method_family(method) for method in methods] == [
        "draft_model",
        "lookup",
        "lookup",
        "eagle",
        "parallel",
    ]
