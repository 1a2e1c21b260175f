"""Payoff, advice and baseline in the running exporter: against simulated servers, and across reloads."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from support.builders import vllm_lines
from support.commands import run
from support.exporter import running_exporter
from support.faulty_server import FaultyServer, answer, sequence
from support.programs import eventually, simulator
from vllm_specdec_exporter import baseline, dialects, get_metrics, snapshot
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import Basis, PayoffVerdict
from vllm_specdec_exporter.reading import Counters
from vllm_specdec_exporter.simulator import Simulation, SimulationConfig
from vllm_specdec_exporter.simulator.scenario import parse_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.exporter import Metrics, RunningExporter

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
        exporter.wait_for(lambda m: (m.value("measured_requests", window="5s") or 0) > 500, within=40)
        yield exporter


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


class TestMeasured:
    def test_agrees_with_the_truth(self, measured: RunningExporter) -> None:
        """What is measured against the recorded baseline is what the simulator really gains."""
        speedup = measured.metrics().value("measured_speedup", window="5s")

        assert speedup == pytest.approx(truth(), rel=TOLERANCE)

    def test_decides_payoff(self, measured: RunningExporter) -> None:
        """The measured speedup counts, whatever the cost profile makes of it; JSON and metrics agree."""
        metrics = measured.metrics()
        [engine] = get_metrics(measured.url).targets[0].engines

        assert metrics.one_hot("payoff") == ["beneficial"]
        assert (engine.payoff.verdict, engine.payoff.basis) == (PayoffVerdict.BENEFICIAL, Basis.MEASURED)
        assert engine.payoff.reasons[0].startswith("measured ")
        assert metrics.value("estimated_speedup", window="5s") != metrics.value(
            "measured_speedup", window="5s"
        )

    def test_latencies_are_compared(self, measured: RunningExporter) -> None:
        """By percentile, save where a bucket is too coarse for one; tokens and requests are faster."""
        fine = {
            (latency, percentile)
            for latency in ("time_to_first_token", "end_to_end")
            for percentile in ("50", "95", "99")
        }

        def compared(metrics: Metrics) -> bool:
            ratios = metrics.values("latency_ratio", window="5s")
            found = {(dict(key)["latency"], dict(key)["percentile"]): value for key, value in ratios.items()}
            # All tokens of the simulated server fall into one bucket, so their means alone can be compared.
            speedup = metrics.value("measured_speedup", window="5s") or 0
            return set(found) == fine and found["end_to_end", "50"] < 0.7 and speedup > 1 / 0.7

        assert measured.wait_for(compared)

    def test_is_shown_on_the_page(self, measured: RunningExporter) -> None:
        """The page leads with what was measured, and has the comparison."""
        page = measured.get("/").text

        assert "times as fast as without speculation, measured, last 5s" in page
        assert "Against the baseline" in page

    def test_is_logged(self, measured: RunningExporter) -> None:
        """The aggregate line tells the speedup and its basis, and a change of verdict has a line."""
        line = eventually(
            lambda: next(
                (x for x in measured.log_lines("aggregate") if x.get("speedup_basis") == "measured"), None
            )
        )

        assert line["payoff"] == "beneficial"
        assert float(line["speedup"]) == pytest.approx(truth(), rel=2 * TOLERANCE)
        assert len(line["speedup"].partition(".")[2]) <= 2
        assert line["recommendation"] in set(Action)
        verdicts = [x["payoff"] for x in measured.log_lines("payoff")]
        assert verdicts == ["beneficial"]
        advised = [
            (x["recommendation"], x.get("recommended_num_speculative_tokens"))
            for x in measured.log_lines("recommendation")
        ]
        assert [before for before, after in pairwise(advised) if before == after] == []

    def test_check_agrees(self, setup: Setup) -> None:
        """The one-shot diagnosis takes the same file, and leads with the measured speedup."""
        outcome = run("check", setup.url, "--for", "3s", "--baseline.file", str(setup.baseline_file))
        found = " ".join(outcome.out.split())

        assert (outcome.code, outcome.err) == (0, "")
        assert "times as fast as without speculation (measured)" in found
        assert "payoff beneficial (measured " in found


def test_a_baseline_of_another_model_measures_nothing(setup: Setup) -> None:
    """A finding says why, speedup is estimated instead, and no series pretends to a measurement."""
    other = setup.folder / "other.json"
    other.write_bytes(
        baseline.encode(replace(baseline.load(str(setup.baseline_file)), model_name="some/other-model"))
    )
    with running_exporter(
        "--vllm.url", setup.url, "--baseline.file", str(other), "--window", "5s"
    ) as exporter:
        metrics = exporter.wait_for(lambda m: m if m.one_hot("payoff") else None)
        [engine] = get_metrics(exporter.url).targets[0].engines

    for name in ("measured_speedup", "measured_requests", "latency_ratio"):
        assert metrics.values(name) == {}
    assert engine.payoff.basis is Basis.ESTIMATED
    [finding] = [f for f in engine.findings if "some/other-model" in f.text]
    assert finding.action == "Until then, speedup is estimated instead of measured."


# --- reload


class TestReload:
    def test_of_cost_profile_spec_config_and_baseline(self, setup: Setup) -> None:
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

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"cost": {"profile": "free"}}, '"free": no such profile; known: auto, '),
            ({"baseline": {"file": "/nowhere.json"}}, '"/nowhere.json": cannot be read'),
            ({"spec": {"config": "{"}}, "not JSON"),
            ({"cost": {"draft_memory": "16GB"}}, "--cost.draft-memory and --cost.gpu-memory go together"),
        ],
    )
    def test_of_what_cannot_be_used(self, settings: dict[str, Any], message: str) -> None:
        """The old configuration stays in force, and the answer says why in one line."""
        with FaultyServer(answer(_body(0))) as server:
            good: dict[str, Any] = {"vllm": {"url": server.url}, "cost": {"profile": "ngram"}}
            with running_exporter(config=good) as exporter:
                exporter.wait_until_up()
                exporter.configure({**good, **settings})
                refused = exporter.post("/-/reload")

                assert refused.status == 500
                assert message in refused.text
                assert refused.text.count("\n") == 1
                assert exporter.metrics().labels("info")[0]["cost_profile"] == "ngram"


def _threshold(metrics: Metrics) -> float | None:
    return metrics.value("threshold", name="optimal_acceptance_ratio")


# --- the snapshot


def _body(drafts: int, running: int | None = 4) -> bytes:
    """An answer of a server that accepts well; without `running` it does not tell its load."""
    counters = Counters(
        drafts, 4 * drafts, 3 * drafts, (drafts, drafts * 0.9, drafts * 0.6, drafts * 0.5), 4 * drafts
    )
    lines = [
        line for line in vllm_lines(counters, model_name="m", engine="0") if "requests_running" not in line
    ]
    if running is not None:
        lines.append(f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}')
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture(scope="module")
def advised() -> Iterator[RunningExporter]:
    """An exporter of a server whose drafts were worth it, and that stands still now."""
    with FaultyServer(sequence([_body(0), _body(1000)])) as server:
        flags = ("--vllm.url", server.url, "--spec.config", SPEC, "--log.interval", "300ms")
        with running_exporter(*flags) as exporter:
            exporter.wait_for(lambda metrics: metrics.one_hot("payoff"))
            yield exporter


class TestSnapshot:
    @pytest.mark.parametrize(
        ("metric", "within"),
        [
            ("payoff", ("payoff",)),
            ("recommendation", ("advice",)),
            ("recommended_num_speculative_tokens", ("advice",)),
        ],
    )
    def test_metrics_of_an_engine(
        self, advised: RunningExporter, metric: str, within: tuple[str, ...]
    ) -> None:
        """A judgement is kept whole, with its reasons; all else but identities is left out."""
        [engine] = advised.snapshot(f"?metric={metric}")["targets"][0]["engines"]
        [whole] = advised.snapshot()["targets"][0]["engines"]

        assert set(engine) == {"model_name", "engine", "windows", *within}
        assert engine["windows"] == []
        for name in within:
            assert engine[name] == whole[name]

    @pytest.mark.parametrize(
        ("metric", "field"),
        [
            ("estimated_speedup", "speedup"),
            ("break_even_acceptance_length", "break_even_acceptance_length"),
            ("break_even_acceptance_ratio", "break_even_acceptance_ratio"),
        ],
    )
    def test_metrics_of_a_window(self, advised: RunningExporter, metric: str, field: str) -> None:
        """Of the estimate the one field is kept, with the value that /metrics has."""
        [engine] = advised.snapshot(f"?metric={metric}&window=5m")["targets"][0]["engines"]

        assert engine["windows"] == [
            {"window": "5m", "estimate": {field: advised.metrics().value(metric, window="5m")}}
        ]

    def test_validates(self, advised: RunningExporter) -> None:
        """A snapshot with payoff and advice is what the schema says, and decodes to what was sent."""
        document = advised.snapshot()
        jsonschema.validate(document, snapshot.schema(), cls=jsonschema.Draft202012Validator)
        [engine] = document["targets"][0]["engines"]

        assert engine["payoff"]["basis"] == "estimated"
        assert engine["advice"]["options"]
        assert engine["advice"]["rules"]
        body = advised.get("/api/v1/snapshot").body
        assert json.loads(snapshot.encode(snapshot.decode(body))) == json.loads(body)

    def test_agrees_with_metrics(self, advised: RunningExporter) -> None:
        """JSON and /metrics tell the same verdict and the same K."""
        [engine] = advised.snapshot()["targets"][0]["engines"]
        metrics = advised.metrics()

        assert [engine["payoff"]["verdict"]] == metrics.one_hot("payoff") == ["beneficial"]
        assert [engine["advice"]["action"]] == metrics.one_hot("recommendation")
        k = metrics.value("recommended_num_speculative_tokens")
        assert engine["advice"]["num_speculative_tokens"] == k
        assert k is not None
        assert engine["deployment"]["cost_profile"] == metrics.labels("info")[0]["cost_profile"]

    def test_aggregate_line(self, advised: RunningExporter) -> None:
        """The log tells payoff and recommendation with the values that the snapshot has."""
        [engine] = advised.snapshot()["targets"][0]["engines"]
        line = eventually(lambda: next((x for x in advised.log_lines("aggregate") if x.get("payoff")), None))

        assert line["payoff"] == "beneficial"
        assert float(line["speedup"]) == round(engine["payoff"]["speedup"], 2)
        assert line["speedup_basis"] == "estimated"
        assert line["recommendation"] == engine["advice"]["action"]
        assert line["recommended_num_speculative_tokens"] == str(engine["advice"]["num_speculative_tokens"])

    def test_changes_are_told_once(self, advised: RunningExporter) -> None:
        """A verdict and a recommendation have one line each, however many polls confirm them."""
        [payoff] = advised.log_lines("payoff")
        [recommendation] = advised.log_lines("recommendation")
        [engine] = advised.snapshot()["targets"][0]["engines"]

        assert (payoff["payoff"], payoff["speedup_basis"]) == ("beneficial", "estimated")
        assert payoff["why"] == "; ".join(engine["payoff"]["reasons"])
        assert recommendation["recommendation"] == engine["advice"]["action"]
        assert recommendation["why"] == engine["advice"]["reason"]


def test_a_server_that_does_not_tell_its_load_has_no_payoff() -> None:
    """What cannot be known is absent, not 0; acceptance is judged as ever."""
    with (
        FaultyServer(sequence([_body(0, None), _body(1000, None)])) as server,
        running_exporter("--vllm.url", server.url) as exporter,
    ):
        metrics = exporter.wait_for(lambda m: m if m.one_hot("quality") else None)
        [engine] = get_metrics(exporter.url).targets[0].engines

    for name in ("estimated_speedup", "break_even_acceptance_length", "recommended_num_speculative_tokens"):
        assert metrics.values(name) == {}
    assert metrics.one_hot("payoff") == []
    assert set(metrics.values("payoff").values()) == {0.0}
    assert metrics.one_hot("recommendation") == ["insufficient_data"]
    assert "does not tell how many requests run" in engine.payoff.reasons[0]
