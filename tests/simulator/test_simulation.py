"""A simulation as a whole: its counters, its truth, its engines and its beginnings."""

from support.exporter import Metrics
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.phases import PHASES
from vllm_specdec_exporter.commands.simulate.simulation import SCENARIOS, parse_scenario


def published(simulation: Simulation) -> Metrics:
    return Metrics(simulation.render().decode())


def test_counters_only_grow_except_across_restarts() -> None:
    """And never contradict each other, in every phase that there is."""
    simulation = Simulation(SimulationConfig(scenario=SCENARIOS["tour"]), seed=2)
    previous: dict[tuple[str, object], float] = {}
    restarts = 0
    for _ in range(50):
        simulation.advance(24)
        if not simulation.serving:
            continue
        metrics = published(simulation)
        counters = {
            (name, labels): value
            for name, samples in metrics.samples.items()
            if name.endswith(("_total", "_bucket", "_count", "_sum"))
            for labels, value in samples.items()
        }
        if simulation.restarts == restarts:
            assert [key for key, value in previous.items() if counters[key] < value] == []
        restarts, previous = simulation.restarts, counters
        check_speculation(metrics)
    assert restarts == 4


def check_speculation(metrics: Metrics) -> None:
    """Check what vLLM guarantees about the counters of each engine."""
    prefix = "vllm:spec_decode_num_"
    for owner, drafts in metrics.samples.get(f"{prefix}drafts_total", {}).items():
        accepted = metrics.value(f"{prefix}accepted_tokens_total", **dict(owner))
        draft_tokens = metrics.value(f"{prefix}draft_tokens_total", **dict(owner))
        positions = list(metrics.values(f"{prefix}accepted_tokens_per_pos_total", **dict(owner)).values())
        assert sum(positions) == accepted <= draft_tokens <= drafts * len(positions)  # type: ignore[operator]
        assert positions == sorted(positions, reverse=True)


def test_truth_counts_across_restarts() -> None:
    simulation = Simulation(SimulationConfig(), seed=2)
    simulation.advance(20)
    first = simulation.truth
    simulation.set_phase("k_change", num_speculative_tokens=6, downtime_seconds=1)
    assert simulation.truth.drafts == first.drafts
    simulation.advance(20)
    total, metrics = simulation.truth, published(simulation)

    def since(name: str, **labels: str) -> float:
        """What the server counted since it started anew."""
        return sum(metrics.values(f"vllm:{name}_total", **labels).values())

    assert since("spec_decode_num_drafts") > 0
    assert total.drafts == first.drafts + since("spec_decode_num_drafts")
    assert total.generation_tokens == first.generation_tokens + since("generation_tokens")
    assert total.finished_requests == first.finished_requests + since("request_success")
    assert len(total.accepted_per_position) == 6
    at_0 = since("spec_decode_num_accepted_tokens_per_pos", position="0")
    assert total.accepted_per_position[0] == first.accepted_per_position[0] + at_0


def test_a_scenario_can_begin_with_a_restart_or_without_speculation() -> None:
    phase = {"phase": "k_change", "seconds": 9, "num_speculative_tokens": 3}
    simulation = Simulation(SimulationConfig(scenario=parse_scenario({"phases": [phase]}, "x")))
    assert simulation.serving
    assert simulation.num_speculative_tokens == 3
    off = Simulation(SimulationConfig(scenario=SCENARIOS["off"]))
    assert off.serving
    assert "spec_decode" not in off.render().decode()


def test_a_server_without_speculation_stays_without() -> None:
    simulation = Simulation(SimulationConfig(num_speculative_tokens=0), seed=1)
    for phase in PHASES:
        simulation.set_phase(phase)
        simulation.advance(20)
    assert simulation.truth.generation_tokens > simulation.truth.drafts == 0
    assert simulation.num_speculative_tokens is None


def test_the_same_seed_gives_the_same_answer() -> None:
    answers = []
    for seed in (9, 9, 10):
        simulation = Simulation(SimulationConfig(engines=2), seed=seed)
        simulation.advance(20)
        answers.append(simulation.render())
    assert answers[0] == answers[1] != answers[2]
