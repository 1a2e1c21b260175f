"""The simulator's answers are those of a real vLLM, but for the values."""

import re
from collections.abc import Callable

import pytest

from vllm_specdec_exporter.simulator import EngineConfig, Simulation, SimulationConfig

# The captured server has other settings than the simulated one.
_CACHE_CONFIG = "vllm:cache_config_info{"


def shape(text: str) -> list[str]:
    """Return the lines without values: HELP, TYPE, names, labels and their order."""
    return [
        line if line.startswith("#") else line.rpartition(" ")[0]
        for line in text.splitlines()
        if not line.startswith(_CACHE_CONFIG)
    ]


def simulate(engines: int = 1, k: int = 4, max_model_len: int = 1024) -> Simulation:
    config = SimulationConfig(
        models=("tiny-llama",),
        engines=engines,
        num_speculative_tokens=k,
        engine=EngineConfig(max_model_len=max_model_len),
    )
    simulation = Simulation(config, seed=1)
    simulation.advance(20)
    return simulation


@pytest.mark.parametrize(
    ("capture", "dialect", "engines", "k"),
    [
        ("ngram-phases", "vllm", 1, 4),
        ("dp2", "vllm-multiproc", 2, 3),
        ("nospec", "vllm", 1, 0),
    ],
)
def test_lines_are_those_of_the_real_server(
    capture: str, dialect: str, engines: int, k: int, read_data: Callable[[str], str]
) -> None:
    real = read_data(f"captures/{capture}/metrics-final.txt")
    simulated = simulate(engines, k).render(dialect).decode()
    assert shape(simulated) == shape(real)


def test_cache_config_has_the_labels_of_the_real_server(read_data: Callable[[str], str]) -> None:
    def names(text: str) -> list[str]:
        line = next(line for line in text.splitlines() if line.startswith(_CACHE_CONFIG))
        assert line.endswith("} 1.0")
        return re.findall(r'(\w+)="', line)

    real = read_data("captures/ngram-phases/metrics-final.txt")
    assert names(simulate().render().decode()) == names(real)


def test_a_server_without_requests_looks_like_the_real_one(
    read_data: Callable[[str], str],
) -> None:
    """Counters of HTTP requests appear with the first request; all others are there before."""
    simulation = Simulation(SimulationConfig(engine=EngineConfig(max_model_len=1024)), seed=1)
    lines = simulation.render().decode().splitlines()
    assert not any(line.startswith("http_requests_total{") for line in lines)
    assert "# TYPE http_requests_total counter" in lines
    assert "# TYPE http_requests_created gauge" not in lines
    spec = [line for line in lines if line.startswith("vllm:spec_decode") and "_total" in line]
    assert len(spec) == 3 + 4
    assert all(line.endswith(" 0.0") for line in spec)


def test_eight_engines(read_data: Callable[[str], str]) -> None:
    """This reference comes from vLLM's metric classes, without a web server around them."""
    model = "meta-llama/Llama-3.3-70B-Instruct"
    real = read_data("captures/rendered/vllm-0.32.0-8engine-k5.classic.txt.gz")
    text = simulate(8, 5, max_model_len=131_072).render().decode().replace("tiny-llama", model)
    simulated = [line for line in shape(text) if not re.search(r"\bhttp_|:estimated_", line)]
    assert simulated == [line for line in shape(real) if not line.startswith(_CACHE_CONFIG)]


def test_underscores(read_data: Callable[[str], str]) -> None:
    model = "meta-llama/Llama-3.3-70B-Instruct"
    real = read_data("captures/rendered/vllm-0.32.0-1engine-k3.classic.txt.om-underscores.gz")
    text = simulate(1, 3, max_model_len=131_072).render("vllm-underscore").decode()
    text = text.replace("tiny-llama", model)
    simulated = [line for line in shape(text) if not re.search(r"\bhttp_|[:_]estimated_", line)]
    kept = [line for line in simulated if not line.startswith("vllm_cache_config_info{")]
    assert kept == [line for line in shape(real) if not line.startswith("vllm_cache_config_info{")]


def test_numbers_are_written_as_the_real_server_writes_them(
    read_data: Callable[[str], str],
) -> None:
    number = re.compile(r"^(\+Inf|NaN|-?\d+\.\d+(e-\d+)?|\d(\.\d+)?e\+\d+)$")
    for text in (
        read_data("captures/ngram-phases/metrics-final.txt"),
        simulate().render().decode(),
    ):
        values = [line.split()[-1] for line in text.splitlines() if not line.startswith("#")]
        assert all(number.match(value) for value in values)
