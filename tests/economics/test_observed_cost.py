"""The cost of speculation from the engine's own steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_specdec_exporter.economics import for_method
from vllm_specdec_exporter.economics.calibration import correct_by_steps
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.economics.step_time import EngineSteps, StepInterval, mean_context
from vllm_specdec_exporter.engines.reading import Counters, Steps
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.observe.state import EngineState

K = 3


def steps(
    plain: tuple[float, ...] = (), drafting: tuple[float, ...] = (), slope: float = 0.001
) -> EngineSteps:
    """Steps of 10 ms and `slope` for each request without drafts; half as long again with them."""
    found = EngineSteps()
    for time in range(20):
        for batch in plain:
            found = found.add(StepInterval(0.010 + slope * batch, batch), 0, 5.0 * time)
        for batch in drafting:
            found = found.add(StepInterval(1.5 * (0.010 + slope * batch), batch), K, 5.0 * time)
    return found


def test_steps_with_and_without_drafts_are_a_measurement() -> None:
    profile = for_method("eagle3")
    found = correct_by_steps(profile, steps((1, 2, 4, 8), (1, 2, 4, 8)), K, 4.0, 100.0)
    assert found.basis is Basis.MEASURED
    assert found.step_cost(K, 4) == pytest.approx(1.5, rel=0.02)
    assert found.uncertainty < 0.1


def test_it_is_not_extrapolated() -> None:
    """Beyond one and a half times the batch sizes at which both kinds were seen, the profile holds."""
    profile = for_method("eagle3")
    found = steps((1, 2, 4), (4, 8, 16))
    assert correct_by_steps(profile, found, K, 4.0, 100.0).basis is Basis.MEASURED
    assert correct_by_steps(profile, found, K, 12.0, 100.0) is profile


def test_steps_with_drafts_alone_give_the_slope() -> None:
    """Break-even moves with the batch as on this machine."""
    profile = for_method("eagle3")
    rise = {}
    for slope in (0.0001, 0.001):
        found = correct_by_steps(profile, steps((), (1, 8, 64), slope), K, 8.0, 100.0)
        assert found.basis is Basis.MODELLED
        times = [
            found.times(K, 1)[1] + found.load * (found.times(K, batch)[1] - found.times(K, 1)[1])
            for batch in (1, 64)
        ]
        assert times[1] / times[0] == pytest.approx((0.010 + slope * 64) / (0.010 + slope), rel=0.05)
        rise[slope] = found.step_cost(K, 64) / found.step_cost(K, 1)
    assert rise[0.001] > rise[0.0001]


@pytest.mark.parametrize(
    ("learned", "drafted", "batch"),
    [
        (EngineSteps(), K, 4.0),
        (steps((1, 2, 4), (1, 2, 4)), 5, 4.0),
        (steps((1, 2, 4), (1, 2, 4)), None, None),
        (steps((1, 2, 4), (4, 4, 4)), K, 4.0),
    ],
    ids=["nothing-learned", "another-k", "no-drafts", "one-batch-size"],
)
def test_what_shows_nothing_leaves_the_profile(
    learned: EngineSteps, drafted: float | None, batch: float | None
) -> None:
    profile = for_method("eagle3")
    assert correct_by_steps(profile, learned, drafted, batch, 100.0) is profile


def test_a_calibrated_profile_keeps_its_slope() -> None:
    profile = for_method("eagle3")
    calibrated = profile.__class__(profile.name, profile.target, profile.draft, basis=Basis.CALIBRATED)
    assert correct_by_steps(calibrated, steps((), (1, 8, 64)), K, 8.0, 100.0) is calibrated


def test_few_drafts_are_neither() -> None:
    """Steps of which few have drafts, as with n-gram lookup, are learned as neither kind."""
    found = EngineSteps().add(StepInterval(0.01, 2.0), 0.3, 5.0)
    assert (found.plain.bins, found.drafting.bins, found.drafting.refused) == (
        (),
        (),
        "few steps have drafts",
    )


def test_a_restart_forgets_the_steps() -> None:
    """The engine may come back with another model or on another machine."""
    state = EngineState()
    for poll in range(4):
        counters = Counters(drafts=100.0 * poll, draft_tokens=300.0 * poll, generation_tokens=200.0 * poll)
        taken = Steps(step_seconds=1.0 * poll, step_observations=100.0 * poll, prompt_tokens=0.0)
        state = state.add_sample(Sample(5.0 * poll, counters, 4.0, steps=taken), 300.0, ())
    assert state.steps.drafting.bins

    again = Sample(20.0, Counters(drafts=0.0, draft_tokens=0.0, generation_tokens=0.0), 4.0, steps=Steps())
    assert state.add_sample(again, 300.0, ()).steps == EngineSteps()


def test_the_context_is_the_prompt_and_half_the_answer() -> None:
    """Of ten requests or more: fewer say little."""
    for requests, context in ((10, 700.0), (9, None)):
        after = Counters(generation_tokens=400.0 * requests), Steps(prompt_tokens=500.0 * requests)
        before = Counters(generation_tokens=0.0), Steps(prompt_tokens=0.0, requests=0.0)
        last = after[0], replace(after[1], requests=float(requests))
        assert mean_context(before, last) == context
    assert mean_context(before, after) is None
