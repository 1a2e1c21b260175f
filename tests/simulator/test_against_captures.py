"""The simulator's answers are those of a real vLLM, but for the values."""

import re

import pytest

from support.builders import final_answer, rendered
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.speculation import EngineConfig

# The captured server has other settings than the simulated one.
_CACHE_CONFIG = re.compile(r"vllm[:_]cache_config_info{")


def shape(text: str) -> list[str]:
    """Return the lines without values: HELP, TYPE, names, labels and their order."""
    return [
        line if line.startswith("#") else line.rpartition(" ")[0]
        for line in text.splitlines()
        if not _CACHE_CONFIG.match(line)
    ]


def simulate(engines: int = 1, k: int = 4, max_model_len: int = 1024, model: str = "tiny-llama") -> str:
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
    assert shape(simulate(1, k)) == shape(final_answer(capture).decode())


def test_lines_of_several_engines_are_those_of_vllms_metric_classes() -> None:
    """The reference has no web server around it."""
    text = simulate(8, 5, 131_072, "meta-llama/Llama-3.3-70B-Instruct")
    simulated = [line for line in shape(text) if not re.search(r"\bhttp_|:estimated_", line)]
    assert simulated == shape(rendered("vllm-0.32.0-8engine-k5.classic.txt").decode())


def test_cache_config_has_the_labels_of_the_real_server() -> None:
    texts = (simulate(), final_answer("ngram-phases").decode())
    lines = [next(line for line in text.splitlines() if _CACHE_CONFIG.match(line)) for text in texts]
    assert all(line.endswith("} 1.0") for line in lines)
    simulated, real = (re.findall(r'(\w+)="', line) for line in lines)
    assert simulated == real


def test_a_server_without_requests_looks_like_the_real_one() -> None:
    """Counters of HTTP requests appear with the first request; all others are there before."""
    simulation = Simulation(SimulationConfig(engine=EngineConfig(max_model_len=1024)), seed=1)
    lines = simulation.render().decode().splitlines()
    assert not any(line.startswith("http_requests_total{") for line in lines)
    assert "# TYPE http_requests_total counter" in lines
    assert "# TYPE http_requests_created gauge" not in lines
    spec = [line for line in lines if line.startswith("vllm:spec_decode") and "_total" in line]
    assert [line.split()[-1] for line in spec] == ["0.0"] * (3 + 4)


def test_numbers_are_written_as_the_real_server_writes_them() -> None:
    number = re.compile(r"^(\+Inf|NaN|-?\d+\.\d+(e-\d+)?|\d(\.\d+)?e\+\d+)$")
    for text in (final_answer("ngram-phases").decode(), simulate()):
        values = [line.split()[-1] for line in text.splitlines() if not line.startswith("#")]
        assert [value for value in values if not number.match(value)] == []
