from collections.abc import Callable

import pytest

from vllm_specdec_exporter.simulator import (
    SCENARIOS,
    ServerDownError,
    Simulation,
    SimulationConfig,
    make_phase,
    parse_scenario,
)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def test_counters_only_grow_except_across_restarts(parse: Callable[[bytes], Samples]) -> None:
    simulation = Simulation(SimulationConfig(scenario=SCENARIOS["tour"], engines=2), seed=2)
    previous: Samples = {}
    restarts = 0
    for _ in range(300):
        simulation.advance(4)
        if not simulation.serving:
            with pytest.raises(ServerDownError):
                simulation.render()
            continue
        samples = parse(simulation.render())
        counters = {
            key: value
            for key, value in samples.items()
            if key[0].endswith(("_total", "_bucket", "_count", "_sum"))
        }
        if simulation.restarts == restarts:
            fallen = [key for key, value in previous.items() if counters[key] < value]
            assert not fallen
        restarts, previous = simulation.restarts, counters
        check_speculation(samples)
    assert restarts == 4


def check_speculation(samples: Samples) -> None:
    """Check what vLLM guarantees about the counters of each engine."""
    prefix = "vllm:spec_decode_num_"
    for (name, labels), drafts in samples.items():
        if name != f"{prefix}drafts_total":
            continue
        accepted = samples[(f"{prefix}accepted_tokens_total", labels)]
        draft_tokens = samples[(f"{prefix}draft_tokens_total", labels)]
        positions = [
            value
            for (other, found), value in samples.items()
            if other == f"{prefix}accepted_tokens_per_pos_total" and set(labels) <= set(found)
        ]
        assert sum(positions) == accepted <= draft_tokens <= drafts * len(positions)
        assert positions == sorted(positions, reverse=True)


def test_truth_counts_across_restarts(parse: Callable[[bytes], Samples]) -> None:
    simulation = Simulation(SimulationConfig(), seed=2)
    simulation.advance(20)
    first = simulation.truth
    simulation.set_phase("k_change", num_speculative_tokens=6, downtime_seconds=1)
    assert simulation.truth.drafts == first.drafts
    simulation.advance(20)
    total, samples = simulation.truth, parse(simulation.render())

    def since(name: str, **labels: str) -> float:
        """What the server counted since it started anew."""
        return sum(
            value
            for (found, of), value in samples.items()
            if found == f"vllm:{name}_total" and labels.items() <= dict(of).items()
        )

    assert since("spec_decode_num_drafts") > 0
    assert total.drafts == first.drafts + since("spec_decode_num_drafts")
    assert total.generation_tokens == first.generation_tokens + since("generation_tokens")
    assert total.finished_requests == first.finished_requests + since("request_success")
    assert len(total.accepted_per_position) == 6
    assert total.accepted_per_position[0] == first.accepted_per_position[0] + since(
        "spec_decode_num_accepted_tokens_per_pos", position="0"
    )
    assert sum(total.accepted_per_draft) == total.drafts


def test_a_scenario_can_begin_with_a_restart_or_without_speculation() -> None:
    begins = parse_scenario(
        {"phases": [{"phase": "k_change", "seconds": 9, "num_speculative_tokens": 3}]}, "x"
    )
    simulation = Simulation(SimulationConfig(scenario=begins))
    assert simulation.serving
    assert simulation.num_speculative_tokens == 3
    off = Simulation(SimulationConfig(scenario=SCENARIOS["off"]))
    assert off.serving
    assert "spec_decode" not in off.render().decode()


def test_a_server_without_speculation_stays_without() -> None:
    config = SimulationConfig(scenario=SCENARIOS["tour"], num_speculative_tokens=0)
    simulation = Simulation(config, seed=1)
    simulation.advance(1200)
    assert simulation.truth.drafts == 0
    assert simulation.num_speculative_tokens is None


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        Simulation().advance(-1)


def test_several_models_have_engines_of_their_own(parse: Callable[[bytes], Samples]) -> None:
    simulation = Simulation(SimulationConfig(models=("a", "b"), engines=2), seed=1)
    simulation.advance(10)
    owners = {labels for name, labels in parse(simulation.render()) if name == "vllm:generation_tokens_total"}
    assert owners == {(("engine", engine), ("model_name", model)) for engine in "01" for model in "ab"}


def test_a_phase_can_be_made_ready_and_reused() -> None:
    phase = make_phase("collapse", {"clients": 3}, 20)
    assert phase.parameters.count("clients") == 3
    assert phase.seconds == 20
