"""The answers of both front ends: their format, their families, and the truth in them."""

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

DRAFTS = "spec_decode_num_drafts_total"


def simulate(**settings: Any) -> Simulation:
    simulation = Simulation(SimulationConfig(**settings), seed=3)
    simulation.advance(20)
    return simulation


def text_of(simulation: Simulation, dialect: str = "vllm") -> str:
    return simulation.render(dialect).decode()


@pytest.mark.parametrize("k", [0, 3])
def test_parsers_accept_every_format(k: int) -> None:
    simulation = simulate(num_speculative_tokens=k, engines=2, model='a"b\\c\nd')
    types = {family.type for family in parse_classic(text_of(simulation))}
    assert types <= {"counter", "gauge", "histogram", "summary"}
    families = {family.name: family for family in parse_openmetrics(text_of(simulation, "vllm-rust"))}  # type: ignore[no-untyped-call]
    drafts = families["vllm:spec_decode_num_drafts"]
    assert drafts.type == "counter"
    assert [sample.name for sample in drafts.samples] == [f"vllm:{DRAFTS}"] * 2
    assert DIALECTS["vllm-rust"].startswith("application/openmetrics-text;")


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
    ("fixture", "k"), [("vllm-rust-k3.openmetrics.txt", 3), ("vllm-rust-nospec.openmetrics.txt", 0)]
)
def test_families_are_those_of_the_rust_front_end(fixture: str, k: int) -> None:
    """Families of features that are off may be missing; nothing is invented."""
    real = upstream(fixture).decode().splitlines()
    made = text_of(simulate(num_speculative_tokens=k), "vllm-rust").splitlines()
    real_headers, headers = (
        [line for line in lines if line.startswith(("# HELP", "# TYPE"))] for lines in (real, made)
    )
    positions = [real_headers.index(header) for header in headers]
    assert positions == sorted(positions)
    real_names, names = (
        {line.partition("{")[0].partition(" ")[0] for line in lines if line.startswith("vllm:spec_")}
        for lines in (real, made)
    )
    assert names == real_names


@pytest.mark.parametrize("dialect", DIALECTS)
def test_published_counters_are_the_truth(dialect: str) -> None:
    simulation = simulate(engines=2)
    truth, metrics = simulation.truth, Metrics(text_of(simulation, dialect))

    def total(suffix: str, **labels: str) -> float:
        return sum(metrics.values(f"vllm:{suffix}", **labels).values())

    spec = "spec_decode_num_"
    counted = [total(DRAFTS), *(total(f"{spec}{kind}_tokens_total") for kind in ("draft", "accepted"))]
    assert counted == [truth.drafts, truth.draft_tokens, truth.accepted_tokens]
    assert total("generation_tokens_total") == truth.generation_tokens
    for position, accepted in enumerate(truth.accepted_per_position):
        assert total(f"{spec}accepted_tokens_per_pos_total", position=str(position)) == accepted
    each = [total(DRAFTS, engine=engine) for engine in "01"]
    assert sum(each) == truth.drafts
    assert each[0] != each[1]
