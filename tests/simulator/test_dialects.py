"""The answers of both front ends: their format, families, and the truth in them."""

import re
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from support.builders import final_answer, rendered, upstream
from support.exporter import Metrics
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.families import DIALECTS
from vllm_specdec_exporter.commands.simulate.speculation import EngineConfig

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
    families = {
        family.name: family
        for family in parse_openmetrics(text_of(simulation, "vllm-rust"))
    }
    drafts = families["vllm:spec_decode_num_drafts"]
    assert drafts.type == "counter"
    assert [sample.name for sample in drafts.samples] == [f"vllm:{DRAFTS}"] * 2
    assert DIALECTS["vllm-rust"].startswith("application/openmetrics-text;")


def test_rust_front_end_peculiarities() -> None:
    lines = text_of(simulate(), "vllm-rust").splitlines()
    label = 'model_name="meta-llama/Llama-3.1-8B-Instruct",engine="0"'
    value = next(
        line for line in lines if line.startswith(f"vllm:{DRAFTS}{{{label}}} ")
    )
    assert value.split()[-1].isdigit()
    assert any(
        line.startswith(f'vllm:iteration_tokens_total_bucket{{le="1.0",{label}}}')
        for line in lines
    )


@pytest.mark.parametrize(
    ("fixture", "k"),
    [("vllm-rust-k3.openmetrics.txt", 3), ("vllm-rust-nospec.openmetrics.txt", 0)],
)
def test_families_are_those_of_the_rust_front_end(fixture: str, k: int) -> None:
    """Families of features that are off may be missing; nothing is invented."""
    real = upstream(fixture).decode().splitlines()
    made = text_of(simulate(num_speculative_tokens=k), "vllm-rust").splitlines()
    positions = [real.index(line) for line in made if line.startswith("# ")]
    assert positions == sorted(positions)
    assert set(re.findall(r"^vllm:spec_\w+", "\n".join(made), re.MULTILINE)) == set(
        re.findall(r"^vllm:spec_\w+", "\n".join(real), re.MULTILINE)
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_published_counters_are_the_truth(dialect: str) -> None:
    simulation = simulate(engines=2)
    truth = simulation.truth
    metrics = Metrics(text_of(simulation, dialect))

    def total(suffix: str, **labels: str) -> float:
        return sum(metrics.values(f"vllm:{suffix}", **labels).values())

    spec = "spec_decode_num_"
    counted = [
        total(DRAFTS),
        *(total(f"{spec}{kind}_tokens_total") for kind in ("draft", "accepted")),
    ]
    assert counted == [truth.drafts, truth.draft_tokens, truth.accepted_tokens]
    assert total("generation_tokens_total") == truth.generation_tokens
    for position, accepted in enumerate(truth.accepted_per_position):
        assert (
            total(f"{spec}accepted_tokens_per_pos_total", position=str(position))
            == accepted
        ), position
    each = [total(DRAFTS, engine=engine) for engine in "01"]
    assert sum(each) == truth.drafts
    assert each[0] != each[1]


# --- lines are those of a real vLLM, but for the values


# The captured server has other settings than the simulated one.
_CACHE_CONFIG = re.compile(r"vllm[:_]cache_config_info{")


def shape(text: str) -> list[str]:
    """Return the lines without values: HELP, TYPE, names, labels and their order."""
    return [
        line if line.startswith("#") else line.rpartition(" ")[0]
        for line in text.splitlines()
        if not _CACHE_CONFIG.match(line)
    ]


def like_the_capture(
    engines: int = 1, k: int = 4, max_model_len: int = 1024, model: str = "tiny-llama"
) -> str:
    config = SimulationConfig(
        model=model,
        engines=engines,
        num_speculative_tokens=k,
        engine=EngineConfig(max_model_len=max_model_len),
    )
    simulation = Simulation(config, seed=1)
    simulation.advance(10)
    return simulation.render().decode()


@pytest.mark.parametrize(("capture", "k"), [("ngram-phases", 4), ("nospec", 0)])
def test_lines_are_those_of_the_real_server(capture: str, k: int) -> None:
    assert shape(like_the_capture(1, k)) == shape(final_answer(capture).decode())


def test_lines_of_several_engines_are_those_of_vllms_metric_classes() -> None:
    """The reference has no web server around it."""
    text = like_the_capture(8, 5, 131_072, "meta-llama/Llama-3.3-70B-Instruct")
    simulated = [
        line for line in shape(text) if not re.search(r"\bhttp_|:estimated_", line)
    ]
    assert simulated == shape(rendered("vllm-0.32.0-8engine-k5.classic.txt").decode())


def test_cache_config_has_the_labels_of_the_real_server() -> None:
    line = re.compile(r"^vllm:cache_config_info{(.*)} 1\.0$", re.MULTILINE)
    real = final_answer("ngram-phases").decode()
    (simulated_labels,) = line.findall(like_the_capture())
    (labels,) = line.findall(real)
    names = re.compile(r'(\w+)="')
    assert names.findall(simulated_labels) == names.findall(labels)


def test_a_server_without_requests_looks_like_the_real_one() -> None:
    """Counters of HTTP requests appear with the first request; all others are there
    before.
    """
    simulation = Simulation(
        SimulationConfig(engine=EngineConfig(max_model_len=1024)), seed=1
    )
    lines = simulation.render().decode().splitlines()
    assert not any(line.startswith("http_requests_total{") for line in lines)
    assert "# TYPE http_requests_total counter" in lines
    assert "# TYPE http_requests_created gauge" not in lines
    spec = [
        line
        for line in lines
        if line.startswith("vllm:spec_decode") and "_total" in line
    ]
    assert [line.split()[-1] for line in spec] == ["0.0"] * (3 + 4)


def test_numbers_are_written_as_the_real_server_writes_them() -> None:
    number = re.compile(r"^(\+Inf|NaN|-?\d+\.\d+(e-\d+)?|\d(\.\d+)?e\+\d+)$")
    for text in (final_answer("ngram-phases").decode(), like_the_capture()):
        values = [
            line.split()[-1] for line in text.splitlines() if not line.startswith("#")
        ]
        assert [value for value in values if not number.match(value)] == [], text[:200]
