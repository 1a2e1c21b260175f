"""A simulation as a whole: its counters, its truth, its engines, its beginnings and its
phases.
"""

import pytest
from msgspec.structs import asdict

from support.exporter import Metrics
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.phases import PHASES
from vllm_specdec_exporter.commands.simulate.simulation import (
    SCENARIOS,
    ServerDownError,
    parse_scenario,
)
from vllm_specdec_exporter.commands.simulate.speculation import Totals


def published(simulation: Simulation) -> Metrics:
    return Metrics(simulation.render().decode())


def test_counters_only_grow_except_across_restarts() -> None:
    """And never contradict each other, in every phase that there is."""
    simulation = Simulation(SimulationConfig(scenario=SCENARIOS["tour"]), seed=2)
    previous = {}
    restarts = 0
    for step in range(50):
        simulation.advance(24)
        if not simulation.serving:
            continue
        metrics = published(simulation)
        counters = {}
        for name, samples in metrics.samples.items():
            if name.endswith(("_total", "_bucket", "_count", "_sum")):
                counters |= {(name, labels): value for labels, value in samples.items()}
        if simulation.restarts == restarts:
            fallen = [key for key, value in previous.items() if counters[key] < value]
            assert fallen == [], step
        restarts = simulation.restarts
        previous = counters
        spec = "vllm:spec_decode_num_"
        for owner, drafts in metrics.samples.get(f"{spec}drafts_total", {}).items():
            labels = dict(owner)
            accepted = metrics.total(f"{spec}accepted_tokens_total", **labels)
            draft_tokens = metrics.total(f"{spec}draft_tokens_total", **labels)
            by_position = metrics.values(
                f"{spec}accepted_tokens_per_pos_total", **labels
            )
            positions = list(by_position.values())
            row = (step, owner)
            assert sum(positions) == accepted <= draft_tokens, row
            assert draft_tokens <= drafts * len(positions), row
            assert positions == sorted(positions, reverse=True), row
    assert restarts == 4


def test_truth_counts_across_restarts() -> None:
    simulation = Simulation(SimulationConfig(), seed=2)
    simulation.advance(20)
    first = simulation.truth
    simulation.set_phase("k_change", num_speculative_tokens=6, downtime_seconds=1)
    assert simulation.truth.drafts == first.drafts
    simulation.advance(20)
    total = simulation.truth
    metrics = published(simulation)

    def since(name: str, **labels: str) -> float:
        """What the server counted since it started anew."""
        return sum(metrics.values(f"vllm:{name}_total", **labels).values())

    assert since("spec_decode_num_drafts") > 0
    assert total.drafts == first.drafts + since("spec_decode_num_drafts")
    assert total.generation_tokens == first.generation_tokens + since(
        "generation_tokens"
    )
    assert len(total.accepted_per_position) == 6
    at_0 = since("spec_decode_num_accepted_tokens_per_pos", position="0")
    assert total.accepted_per_position[0] == first.accepted_per_position[0] + at_0


def test_a_scenario_can_begin_with_a_restart_or_without_speculation() -> None:
    phase = {"phase": "k_change", "seconds": 9, "num_speculative_tokens": 3}
    simulation = Simulation(
        SimulationConfig(scenario=parse_scenario({"phases": [phase]}, "x"))
    )
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


# --- phases


def change(simulation: Simulation, seconds: float) -> Totals:
    """Let time pass; return what was drafted and generated in it."""
    start = asdict(simulation.truth)
    positions = [-accepted for accepted in start.pop("accepted_per_position")]
    counts = {name: -count for name, count in start.items()}
    simulation.advance(seconds)
    moved = simulation.truth
    moved.add(Totals(accepted_per_position=positions, **counts))
    return moved


def length(truth: Totals) -> float:
    """Return the mean acceptance length."""
    return 1 + truth.accepted_tokens / truth.drafts


@pytest.fixture
def simulation() -> Simulation:
    simulation = Simulation(SimulationConfig(), seed=5)
    simulation.advance(20)
    return simulation


def test_healthy(simulation: Simulation) -> None:
    moved = change(simulation, 60)
    assert moved.draft_tokens == 4 * moved.drafts
    shares = [accepted / moved.drafts for accepted in moved.accepted_per_position]
    assert shares == pytest.approx([0.92, 0.779, 0.606, 0.434], abs=0.02)


def test_slow_decay(simulation: Simulation) -> None:
    """Without an end it stays at the bottom."""
    simulation.set_phase("slow_decay", seconds=100)
    lengths = [length(change(simulation, 20)) for _ in range(5)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 3.2
    assert lengths[-1] < 1.8
    simulation.set_phase("slow_decay", end_acceptance=0.2)
    simulation.advance(121)
    assert length(change(simulation, 30)) == pytest.approx(1.24, abs=0.03)


def test_collapse_is_sudden(simulation: Simulation) -> None:
    simulation.set_phase("collapse")
    moved = change(simulation, 5)
    assert length(moved) < 1.2
    assert moved.generation_tokens > 1000


def test_idle_and_bypass(simulation: Simulation) -> None:
    """Nothing is generated, and nothing is drafted."""
    simulation.set_phase("idle")
    simulation.advance(15)
    moved = change(simulation, 60)
    assert moved.drafts == moved.generation_tokens == 0
    simulation.set_phase("bypass")
    moved = change(simulation, 30)
    assert moved.drafts == 0
    assert moved.generation_tokens > 10_000


def test_variable_drafts(simulation: Simulation) -> None:
    simulation.set_phase("variable_drafts")
    moved = change(simulation, 60)
    assert moved.draft_tokens / moved.drafts == pytest.approx(2.75, abs=0.1)
    speculated = moved.accepted_tokens + moved.drafts
    assert 0.7 < speculated / moved.generation_tokens < 0.95


def test_repetition(simulation: Simulation) -> None:
    simulation.set_phase("repetition")
    moved = change(simulation, 60)
    assert moved.accepted_tokens / moved.draft_tokens > 0.97
    ended = published(simulation).values("vllm:request_success_total")
    by_reason = {
        dict(labels)["finished_reason"]: value for labels, value in ended.items()
    }
    assert by_reason["repetition"] > by_reason["stop"] * 0.3


def test_saturation(simulation: Simulation) -> None:
    simulation.set_phase("saturation")
    simulation.advance(60)
    metrics = published(simulation)
    minimum = {
        "num_requests_running": 50,
        "num_requests_waiting": 20,
        "kv_cache_usage_perc": 0.9,
    }
    for name, value in {**minimum, "num_preemptions_total": 0}.items():
        assert metrics.value(f"vllm:{name}") > value, name


def test_restart(simulation: Simulation) -> None:
    up = published(simulation)
    truth = simulation.truth
    simulation.set_phase("restart", downtime_seconds=6)
    assert not simulation.serving
    simulation.advance(5.9)
    with pytest.raises(ServerDownError):
        simulation.render()
    assert simulation.truth == truth
    simulation.advance(0.1)
    assert simulation.serving
    restarted = published(simulation)
    counter, created = (
        f"vllm:spec_decode_num_drafts_{end}" for end in ("total", "created")
    )
    assert up.value(counter) > restarted.value(counter) == 0
    assert restarted.value(created) == pytest.approx(up.value(created) + 26)
    started = "process_start_time_seconds"
    assert restarted.value(started) > up.value(started)
    assert change(simulation, 10).drafts > 0


def test_k_change(simulation: Simulation) -> None:
    simulation.set_phase("k_change", num_speculative_tokens=7, downtime_seconds=2)
    simulation.advance(20)
    assert simulation.num_speculative_tokens == 7
    positions = published(simulation).labels(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    )
    assert {labels["position"] for labels in positions} == {
        str(position) for position in range(7)
    }
    # The next phase keeps K, without another restart.
    simulation.set_phase("healthy")
    assert simulation.num_speculative_tokens == 7
    assert simulation.restarts == 1
    simulation.set_phase("k_change", num_speculative_tokens=0)
    assert simulation.num_speculative_tokens == 4


def test_off_and_on_again(simulation: Simulation) -> None:
    simulation.set_phase("off")
    simulation.advance(30)
    body = simulation.render().decode()
    assert "spec_decode" not in body
    assert "vllm:generation_tokens_total" in body
    simulation.set_phase("healthy")
    assert simulation.restarts == 2
    simulation.advance(30)
    assert simulation.num_speculative_tokens == 4
    assert "spec_decode" in simulation.render().decode()
