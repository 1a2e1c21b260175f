"""Outcomes: the zones of acceptance, for draft models and for drafters that cost next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.economics import BUILTIN, for_method
from vllm_specdec_exporter.economics.criteria import thresholds_for
from vllm_specdec_exporter.per_request.outcome import outcome_of
from vllm_specdec_exporter.per_request.result import Outcome
from vllm_specdec_exporter.thresholds import Thresholds

if TYPE_CHECKING:
    from vllm_specdec_exporter.economics import CostProfile

LOSES, BREAK_EVEN, GAINS = Outcome.LOSES, Outcome.BREAK_EVEN, Outcome.GAINS


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        (0.0, LOSES),
        (0.38, LOSES),
        (0.4999, LOSES),
        (0.5, BREAK_EVEN),
        (0.65, BREAK_EVEN),
        (0.6501, GAINS),
        (0.82, GAINS),
        (1.0, GAINS),
        (None, None),
    ],
)
def test_the_published_zones(ratio: float | None, outcome: Outcome | None) -> None:
    """Below 0.50 a request loses, up to 0.65 it is near break-even, above it gains."""
    assert outcome_of(ratio, Thresholds()) is outcome


@pytest.mark.parametrize("method", ["ngram", "eagle", "eagle3", "mtp", "medusa"])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_cheap_drafters_have_their_own(method: str, k: int) -> None:
    """What loses with a draft model may gain with a drafter that costs little: its own break-even counts."""
    profile = for_method(method)
    thresholds = thresholds_for(profile, k)
    break_even = profile.break_even_ratio(k, 1)

    assert profile.cheap
    assert thresholds.disable_acceptance_ratio == pytest.approx(break_even, abs=1e-4)
    assert thresholds.poor_request_acceptance_ratio == thresholds.disable_acceptance_ratio
    assert outcome_of(break_even * 0.9 - 2e-4, thresholds) is LOSES
    assert outcome_of(break_even + 2e-4, thresholds) is BREAK_EVEN
    assert outcome_of(0.49, thresholds) is not LOSES


CHEAP = [profile for profile in BUILTIN.values() if profile.cheap]


@pytest.mark.parametrize("profile", CHEAP, ids=lambda profile: profile.name)
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_a_request_that_gains_is_faster_alone(profile: CostProfile, k: int) -> None:
    """Where the gaining zone of a cheap drafter begins, a request alone runs at the beneficial speedup."""
    thresholds = thresholds_for(profile, k)
    ratio = thresholds.break_even_acceptance_ratio

    assert 0 < ratio < 1
    assert (1 + ratio * k) / profile.step_cost(k, 1) == pytest.approx(thresholds.beneficial_speedup, abs=1e-3)


def test_the_operators_zones() -> None:
    """Both edges can be moved, and may be one."""
    thresholds = Thresholds().with_values(
        {"disable_acceptance_ratio": 0.3, "break_even_acceptance_ratio": 0.3}
    )

    assert [outcome_of(ratio, thresholds) for ratio in (0.29, 0.3, 0.31)] == [LOSES, BREAK_EVEN, GAINS]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_more_acceptance_is_never_worse(one: float, other: float, low: float, high: float) -> None:
    """Whatever the zones, they follow one another."""
    edges = {"disable_acceptance_ratio": min(low, high), "break_even_acceptance_ratio": max(low, high)}
    thresholds = Thresholds().with_values(edges)
    zones = [list(Outcome).index(outcome_of(r, thresholds) or LOSES) for r in sorted((one, other))]

    assert zones == sorted(zones)
