"""Every phase does what it says."""

from collections.abc import Callable

import pytest

from vllm_specdec_exporter.simulator import PHASES, Simulation, SimulationConfig, Truth

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def change(simulation: Simulation, seconds: float) -> Truth:
    """Let time pass; return what was drafted and generated in it."""
    before = simulation.truth
    simulation.advance(seconds)
    after = simulation.truth
    positions = len(after.accepted_per_position)
    padded = before.accepted_per_position + (0,) * (positions - len(before.accepted_per_position))
    return Truth(
        after.drafts - before.drafts,
        after.draft_tokens - before.draft_tokens,
        after.accepted_tokens - before.accepted_tokens,
        tuple(a - b for a, b in zip(after.accepted_per_position, padded, strict=True)),
        (),
        after.generation_tokens - before.generation_tokens,
        after.finished_requests - before.finished_requests,
    )


def length(truth: Truth) -> float:
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
    simulation.set_phase("slow_decay", seconds=100)
    lengths = [length(change(simulation, 20)) for _ in range(5)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 3.2
    assert lengths[-1] < 1.8


def test_slow_decay_without_end_stays_at_the_bottom(simulation: Simulation) -> None:
    simulation.set_phase("slow_decay", over_seconds=10, end_acceptance=0.2)
    simulation.advance(11)
    assert length(change(simulation, 30)) == pytest.approx(1.24, abs=0.03)


def test_collapse_is_sudden(simulation: Simulation) -> None:
    simulation.set_phase("collapse")
    moved = change(simulation, 5)
    assert length(moved) < 1.2
    assert moved.generation_tokens > 1000


def test_idle(simulation: Simulation) -> None:
    simulation.set_phase("idle")
    simulation.advance(15)
    moved = change(simulation, 60)
    assert moved.drafts == moved.generation_tokens == 0


def test_bypass(simulation: Simulation) -> None:
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


def test_repetition(simulation: Simulation, parse: Callable[[bytes], Samples]) -> None:
    simulation.set_phase("repetition")
    moved = change(simulation, 60)
    assert moved.accepted_tokens / moved.draft_tokens > 0.97
    ended = {
        dict(labels)["finished_reason"]: value
        for (name, labels), value in parse(simulation.render()).items()
        if name == "vllm:request_success_total"
    }
    assert ended["repetition"] > ended["stop"] * 0.3


def test_saturation(simulation: Simulation, parse: Callable[[bytes], Samples]) -> None:
    simulation.set_phase("saturation")
    simulation.advance(60)
    owner = (("engine", "0"), ("model_name", simulation.config.models[0]))
    samples = parse(simulation.render())
    assert samples[("vllm:num_requests_running", owner)] > 50
    assert samples[("vllm:num_requests_waiting", owner)] > 20
    assert samples[("vllm:kv_cache_usage_perc", owner)] > 0.9
    assert samples[("vllm:num_preemptions_total", owner)] > 0


def test_restart(simulation: Simulation, parse: Callable[[bytes], Samples]) -> None:
    owner = (("engine", "0"), ("model_name", simulation.config.models[0]))
    before, truth = parse(simulation.render()), simulation.truth
    simulation.set_phase("restart", downtime_seconds=6)
    assert not simulation.serving
    simulation.advance(5.9)
    assert not simulation.serving
    assert simulation.truth == truth
    simulation.advance(0.1)
    assert simulation.serving
    after = parse(simulation.render())
    counter, created = (f"vllm:spec_decode_num_drafts_{end}" for end in ("total", "created"))
    assert before[(counter, owner)] > 0
    assert after[(counter, owner)] == 0
    assert after[(created, owner)] == pytest.approx(before[(created, owner)] + 26)
    started = ("process_start_time_seconds", ())
    assert after[started] > before[started]
    assert change(simulation, 10).drafts > 0


def test_k_change(simulation: Simulation, parse: Callable[[bytes], Samples]) -> None:
    simulation.set_phase("k_change", num_speculative_tokens=7, downtime_seconds=2)
    simulation.advance(20)
    assert simulation.num_speculative_tokens == 7
    positions = {
        dict(labels)["position"]
        for name, labels in parse(simulation.render())
        if name == "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    }
    assert positions == {str(position) for position in range(7)}
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


def test_every_phase_documents_its_parameters() -> None:
    for kind in PHASES.values():
        assert kind.help
        assert all(parameter.help for parameter in kind.parameters.values())
        kind.parse({})
