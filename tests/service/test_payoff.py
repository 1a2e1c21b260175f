"""Payoff, advice and baseline in the running exporter: against simulated servers, and across reloads."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.builders import counters, vllm_text
from support.commands import run
from support.exporter import Metrics, RunningExporter, running_exporter
from support.faulty_server import FaultyServer, sequence
from support.programs import eventually, simulator
from vllm_specdec_exporter import engines as dialects
from vllm_specdec_exporter import get_metrics
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.simulation import parse_scenario
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict

pytestmark = pytest.mark.full

#: Sixteen clients that never pause: the same load with and without speculation, but for what waits.
TRAFFIC = {"phases": [{"phase": "healthy", "seconds": 3600, "clients": 16, "think_seconds": 0}]}
SPEC = json.dumps({"method": "eagle3", "model": "some/eagle3-head", "num_speculative_tokens": 4})
#: So far may what the exporter measures lie from the truth.
TOLERANCE = 0.10


# --- measured against a simulator


@dataclass(frozen=True)
class Setup:
    """A simulator that speculates, and the baseline of one that does not."""

    url: str
    baseline_file: Path
    folder: Path


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    """Both simulators have the same traffic, and the real command records the one."""
    folder = tmp_path_factory.mktemp("payoff")
    scenario, out = folder / "traffic.yml", folder / "baseline.json"
    scenario.write_text(json.dumps(TRAFFIC))
    flags = ("--scenario.file", str(scenario))
    # Some 1,900 requests in four seconds: of a few hundred, one bucket may by chance hold more than half.
    with simulator(*flags, "--speed", "100", "--num-speculative-tokens", "0", "--seed", "1") as plain:
        recorded = run("baseline", plain, "--out", str(out), "--for", "4s", "--interval", "200ms")
    assert (recorded.code, recorded.err) == (0, "")
    with simulator(*flags, "--speed", "20", "--seed", "2") as url:
        yield Setup(url, out, folder)


@pytest.fixture(scope="module")
def measured(setup: Setup) -> Iterator[RunningExporter]:
    """An exporter that knows the baseline and has seen enough requests."""
    flags = ("--vllm.url", setup.url, "--baseline.file", str(setup.baseline_file), "--spec.config", SPEC)
    with running_exporter(*flags, "--window", "5s", "--log.interval", "300ms") as exporter:
        eventually(lambda: measured_requests(exporter) > 500, 40)
        yield exporter


def measured_requests(exporter: RunningExporter) -> float:
    """How many finished requests are behind the measured speedup so far."""
    engines = get_metrics(exporter.url).targets[0].engines
    return max(
        (window.measured.requests or 0.0 for engine in engines for window in engine.windows), default=0.0
    )


def truth() -> float:
    """How many times as fast the simulator is per output token, over minutes of its own time."""

    def time_per_output_token(k: int) -> float:
        config = SimulationConfig(num_speculative_tokens=k, scenario=parse_scenario(TRAFFIC, "traffic"))
        simulation = Simulation(config, seed=3)
        simulation.advance(200)
        (engine,) = dialects.read(simulation.render("vllm"), latencies=True).engines
        assert engine.latencies is not None
        assert engine.latencies.time_per_output_token is not None
        return engine.latencies.time_per_output_token.mean or 0.0

    return time_per_output_token(0) / time_per_output_token(4)


def test_agrees_with_the_truth_and_decides_payoff(setup: Setup, measured: RunningExporter) -> None:
    """Metrics, JSON, the page and `check` tell what the simulator gains, whatever the cost profile says."""
    metrics = measured.metrics()
    [engine] = get_metrics(measured.url).targets[0].engines
    checked = run("check", setup.url, "--for", "3s", "--baseline.file", str(setup.baseline_file))
    speedup = metrics.value("measured_speedup", window="5s")

    assert speedup == pytest.approx(truth(), rel=TOLERANCE)
    assert metrics.value("estimated_speedup", window="5s") != speedup
    assert metrics.one_hot("payoff") == ["beneficial"]
    assert (engine.payoff.verdict, engine.payoff.basis) == (PayoffVerdict.BENEFICIAL, Basis.MEASURED)
    assert engine.payoff.reasons[0].startswith("measured ")
    page = measured.get("/").text
    assert "times as fast as without speculation, measured, last 5s" in page
    assert "Against the baseline" in page
    found = " ".join(checked.out.split())
    assert (checked.code, checked.err) == (0, "")
    assert "times as fast as without speculation (measured)" in found
    assert "payoff beneficial (measured " in found


# --- reload


def test_of_cost_profile_spec_config_and_baseline(setup: Setup) -> None:
    """All three take effect at once, what was known is kept, and /config shows what is in force."""
    settings: dict[str, Any] = {
        "vllm": {"url": setup.url},
        "window": "5s",
        "cost": {"profile": "ngram"},
        "spec": {"config": json.dumps({"method": "ngram", "num_speculative_tokens": 4})},
    }
    with running_exporter(config=settings) as exporter:
        first = exporter.wait_for(lambda m: m if m.values("estimated_speedup") else None)
        [before] = first.labels("info")
        shown = exporter.get("/config").text
        settings["cost"] = {"profile": "eagle3"}
        settings["spec"] = {"config": SPEC}
        settings["baseline"] = {"file": str(setup.baseline_file)}
        exporter.configure(settings)
        assert exporter.post("/-/reload").status == 200
        second = exporter.wait_for(lambda m: m if m.values("measured_speedup") else None, within=30)
        [after] = second.labels("info")
        paste = exporter.snapshot()["targets"][0]["engines"][0]["advice"]["schedule_config"]

        assert (before["cost_profile"], before["method"]) == ("ngram", "ngram")
        assert (after["method"], after["draft_model"]) == ("eagle3", "some/eagle3-head")
        assert after["cost_profile"].startswith("eagle3")
        assert str(setup.baseline_file) not in shown
        now = exporter.get("/config").text
        for words in (str(setup.baseline_file), "profile: eagle3", "some/eagle3-head"):
            assert words in now
        assert second.value("engine_resets_total") == 0
        if paste:
            assert json.loads(paste)["model"] == "some/eagle3-head"
        # The thresholds of a cheap drafter follow its method too.
        assert _threshold(first) != _threshold(second)


def _threshold(metrics: Metrics) -> float | None:
    return metrics.value("threshold", name="optimal_acceptance_ratio")


# --- the snapshot


def _body(drafts: int) -> bytes:
    """A response of a server that accepts well."""
    values = counters(drafts, (drafts, drafts * 0.9, drafts * 0.6, drafts * 0.5))
    return vllm_text(values) + b'vllm:num_requests_running{engine="0",model_name="m"} 4\n'


@pytest.fixture(scope="module")
def advised() -> Iterator[RunningExporter]:
    """An exporter of a server whose drafts were worth it, and that stands still now."""
    with FaultyServer(sequence([_body(0), _body(1000)])) as server:
        flags = ("--vllm.url", server.url, "--spec.config", SPEC, "--log.interval", "300ms")
        with running_exporter(*flags) as exporter:
            exporter.wait_for(lambda metrics: metrics.one_hot("payoff"))
            yield exporter


def test_metrics_of_the_snapshot(advised: RunningExporter) -> None:
    """Only what was asked for: a judgement with its reasons, one field of an estimate, all of a speedup."""
    [whole] = advised.snapshot()["targets"][0]["engines"]
    for metric, name in (
        ("payoff", "payoff"),
        ("recommendation", "advice"),
        ("recommended_num_speculative_tokens", "advice"),
    ):
        [engine] = advised.snapshot(f"?metric={metric}")["targets"][0]["engines"]
        identity = {"model_name": whole["model_name"], "engine": whole["engine"]}
        assert engine == {**identity, "windows": [], name: whole[name]}, metric

    for metric in ("break_even_acceptance_length", "break_even_acceptance_ratio"):
        [engine] = advised.snapshot(f"?metric={metric}&window=5m")["targets"][0]["engines"]
        estimate = {metric: advised.metrics().value(metric, window="5m")}
        assert engine["windows"] == [{"window": "5m", "estimate": estimate}], metric

    [engine] = advised.snapshot("?metric=estimated_speedup&window=5m")["targets"][0]["engines"]
    [window] = engine["windows"]
    assert set(window) == {"window", "estimate"}
    value = advised.metrics().value("estimated_speedup", window="5m", basis=window["estimate"]["basis"])
    assert window["estimate"]["speedup"] == value
