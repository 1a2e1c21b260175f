"""Every dialect's answer: its format, its families, and the truth in it."""

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from support.builders import upstream
from support.exporter import Metrics
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.families import DIALECTS
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import Drafting

CLASSIC = ("vllm", "vllm-multiproc", "vllm-v0", "sglang", "lmdeploy", "llamacpp")
DRAFTS = "spec_decode_num_drafts_total"


def simulate(seconds: float = 20, **settings: Any) -> Simulation:
    simulation = Simulation(SimulationConfig(**settings), seed=3)
    simulation.advance(seconds)
    return simulation


def text_of(simulation: Simulation, dialect: str = "vllm") -> str:
    return simulation.render(dialect).decode()


@pytest.mark.parametrize("k", [0, 3])
def test_parsers_accept_every_format(k: int) -> None:
    simulation = simulate(num_speculative_tokens=k, engines=2, models=('a"b\\c\nd',))
    for dialect in CLASSIC:
        text = text_of(simulation, dialect)
        types = {family.type for family in parse_classic(text)}
        assert types <= {"counter", "gauge", "histogram", "summary"}, dialect
        assert not text.endswith("# EOF\n")
    families = {family.name: family for family in parse_openmetrics(text_of(simulation, "vllm-rust"))}  # type: ignore[no-untyped-call]
    drafts = families["vllm:spec_decode_num_drafts"]
    assert drafts.type == "counter"
    assert [sample.name for sample in drafts.samples] == [f"vllm:{DRAFTS}"] * 2
    assert DIALECTS["vllm-rust"].content_type.startswith("application/openmetrics-text;")


def test_rust_front_end_peculiarities() -> None:
    lines = text_of(simulate(), "vllm-rust").splitlines()
    label = 'model_name="meta-llama/Llama-3.1-8B-Instruct",engine="0"'
    assert "# HELP vllm:spec_decode_num_drafts Number of spec decoding drafts.." in lines
    value = next(line for line in lines if line.startswith(f"vllm:{DRAFTS}{{{label}}} "))
    assert value.split()[-1].isdigit()
    assert any(line.startswith(f'vllm:iteration_tokens_total_bucket{{le="1.0",{label}}}') for line in lines)
    absent = ("_created", "cache_config_info")
    assert [line for line in lines if line.startswith("process_") or any(a in line for a in absent)] == []


@pytest.mark.parametrize(
    ("dialect", "fixture", "k"),
    [
        ("vllm-rust", "vllm-rust-k3.openmetrics.txt", 3),
        ("vllm-rust", "vllm-rust-nospec.openmetrics.txt", 0),
        ("vllm-v0", "vllm-v0-k5.txt", 5),
        ("sglang", "sglang-k3.txt", 3),
        ("sglang", "sglang-off.txt", 0),
        ("lmdeploy", "lmdeploy-k3.txt", 3),
        ("lmdeploy", "lmdeploy-nospec.txt", 0),
        ("llamacpp", "llamacpp-k4.txt", 4),
        ("llamacpp", "llamacpp-nospec.txt", 0),
    ],
)
def test_families_are_those_of_the_server(dialect: str, fixture: str, k: int) -> None:
    """What a server has for features that are off may be missing; nothing may be invented."""
    real = upstream(fixture).decode().splitlines()
    made = text_of(simulate(num_speculative_tokens=k), dialect).splitlines()
    real_headers, headers = (
        [line for line in lines if line.startswith(("# HELP", "# TYPE"))] for lines in (real, made)
    )
    positions = [real_headers.index(header) for header in headers]
    assert positions == sorted(positions)
    real_names, names = (
        {line for line in found if ":spec_" in line}
        | {line.partition("{")[0].partition(" ")[0] for line in lines if ":spec_" in line}
        for found, lines in ((real_headers, real), (headers, made))
    )
    assert names == real_names


def test_v0_counters_are_sums_of_running_totals() -> None:
    simulation = simulate(seconds=4.5)
    names = [f"vllm:spec_decode_num_{kind}_tokens_total" for kind in ("draft", "emitted")]
    published = dict.fromkeys(names, 0.0)
    for _ in range(6):
        before = simulation.truth
        simulation.advance(1)  # the moment of the sample lies within
        after = simulation.truth
        metrics = Metrics(text_of(simulation, "vllm-v0"))
        added = [(metrics.value(name) or 0) - published[name] for name in names]
        published = {name: metrics.value(name) or 0 for name in names}
        assert before.draft_tokens <= added[0] <= after.draft_tokens
        assert before.accepted_tokens + before.drafts <= added[1]
        assert added[1] <= after.accepted_tokens + after.drafts
        simulation.advance(4)
    truth = simulation.truth
    assert metrics.value("vllm:spec_decode_efficiency") == pytest.approx(
        (truth.accepted_tokens + truth.drafts) / (5 * truth.drafts), rel=0.02
    )
    # Tokens after a rejection count here, too.
    rate = metrics.value("vllm:spec_decode_draft_acceptance_rate") or 0
    assert rate > truth.accepted_tokens / truth.draft_tokens + 0.05


def test_v0_adds_engines_up_and_has_no_engine_label() -> None:
    simulation = simulate(engines=3)
    metrics = Metrics(text_of(simulation, "vllm-v0"))
    total = metrics.value("vllm:generation_tokens_total", model_name=simulation.config.models[0])
    assert total == simulation.truth.generation_tokens
    assert not any("engine" in labels for name in metrics.samples for labels in metrics.labels(name))


def test_llamacpp_has_no_labels_and_six_digits() -> None:
    simulation = simulate(seconds=50, engines=2, models=("a", "b"), num_speculative_tokens=20)
    text = text_of(simulation, "llamacpp")
    metrics = Metrics(text)
    assert {label for name in metrics.samples for of in metrics.labels(name) for label in of} == {"position"}
    name = "llamacpp:spec_decode_num_draft_tokens_total"
    assert "e+06" in next(line for line in text.splitlines() if line.startswith(f"{name} "))
    assert metrics.value(name) == pytest.approx(simulation.truth.draft_tokens, rel=0.01)


def test_sglang_counts_at_the_end_of_requests_what_the_totals_follow_from() -> None:
    simulation = simulate(seconds=60, engines=2)
    text = text_of(simulation, "sglang").encode()
    (engine,) = read(text).engines
    truth, counters = simulation.truth, engine.counters
    assert engine.defects == ()
    assert 0.8 * truth.drafts < (counters.drafts or 0) <= truth.drafts
    length = 1 + (counters.accepted_tokens or 0) / (counters.drafts or 1)
    assert length == pytest.approx(1 + truth.accepted_tokens / truth.drafts, rel=0.02)
    assert counters.draft_tokens == simulation.config.num_speculative_tokens * (counters.drafts or 0)
    # Before the first batch nothing shows whether it speculates; without speculation all gauges are 0.
    (started,) = read(text_of(simulate(seconds=0), "sglang").encode()).engines
    (off,) = read(text_of(simulate(num_speculative_tokens=0), "sglang").encode()).engines
    assert (started.drafting, off.drafting) == (Drafting(), Drafting(0, 0, 0))


def test_lmdeploy_gauges_are_lifetime_means() -> None:
    simulation = simulate(seconds=30)
    simulation.set_phase("collapse")
    simulation.advance(30)
    truth = simulation.truth
    metrics = Metrics(text_of(simulation, "lmdeploy"))
    means = [metrics.value(f"lmdeploy:spec_decode_mean_accept_{kind}") for kind in ("length", "rate")]
    assert means == pytest.approx(
        [1 + truth.accepted_tokens / truth.drafts, truth.accepted_tokens / truth.draft_tokens]
    )


def test_published_counters_are_the_truth() -> None:
    """But for V0, whose counters are sums of running totals, llama.cpp, which rounds them, and SGLang."""
    simulation = simulate(engines=2, models=("a", "b"))
    truth = simulation.truth
    for dialect in sorted(set(DIALECTS) - {"vllm-v0", "llamacpp", "sglang"}):
        metrics = Metrics(text_of(simulation, dialect))

        def total(suffix: str, metrics: Metrics = metrics, **labels: str) -> float:
            names = [name for name in metrics.samples if name.endswith(suffix)]
            return sum(sum(metrics.values(name, **labels).values()) for name in names)

        spec = "spec_decode_num_"
        found = [total(DRAFTS), *(total(f"{spec}{kind}_tokens_total") for kind in ("draft", "accepted"))]
        assert found == [truth.drafts, truth.draft_tokens, truth.accepted_tokens], dialect
        assert total("generation_tokens_total") == truth.generation_tokens, dialect
        for position, accepted in enumerate(truth.accepted_per_position):
            assert total(f"{spec}accepted_tokens_per_pos_total", position=str(position)) == accepted
        each = [total(DRAFTS, model_name=model, engine=engine) for model in "ab" for engine in "01"]
        assert sum(each) == truth.drafts
        assert min(each) > 0
