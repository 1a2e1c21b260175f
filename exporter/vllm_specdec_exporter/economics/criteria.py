"""Thresholds that fit a method.

The published rubric speaks of draft models of about 1:9. For a drafter that costs next to nothing it would
condemn speculation that pays: five drafted tokens at an acceptance of 0.45 emit 3.25 tokens, for which EAGLE
takes the time of 1.6. So a cheap drafter's levels come from its break-even point instead, at one request per
batch, where speculation is cheapest: acceptance below that loses at every load. What a full batch costs is
not acceptance's matter, and payoff judges it.

What a method usually reaches is published by method, whatever it costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..thresholds import Thresholds

if TYPE_CHECKING:
    from .cost import CostProfile

#: A cheap drafter's acceptance is optimal from this speedup on, at one request per batch.
OPTIMAL_SPEEDUP = 1.5

#: Mean acceptance lengths that a method usually reaches at the least, as published.
_USUAL_LENGTH = {"eagle": 2.0, "eagle3": 2.0, "ngram": 1.5, "mlp_speculator": 1.5, "suffix": 2.0}


def thresholds_for(profile: CostProfile, k: int | None = None, method: str = "") -> Thresholds:
    """Return the default thresholds: as published, or from break-even where the profile is cheap.

    Args:
        profile: what steps cost.
        k: tokens drafted; the profile's typical K where it is not known.
        method: the method as vLLM calls it, empty where it is not known.
    """
    defaults = Thresholds()
    if method in _USUAL_LENGTH:
        defaults = defaults.with_values({"usual_mean_acceptance_length": _USUAL_LENGTH[method]})
    if not profile.cheap:
        return defaults
    k = k or profile.typical_k
    cost, first = profile.step_cost(k, 1), profile.step_cost(1, 1)
    last = cost - profile.step_cost(k - 1, 1) if k > 1 else first - 1

    def ratio(speedup: float) -> float:
        return _share((speedup * cost - 1) / k)

    lengths = {
        "poor_mean_acceptance_length": cost,
        "disable_mean_acceptance_length": cost,
        "healthy_mean_acceptance_length": defaults.beneficial_speedup * cost,
        "optimal_mean_acceptance_length": OPTIMAL_SPEEDUP * cost,
    }
    ratios = {
        "poor_acceptance_ratio": ratio(1.0),
        "disable_acceptance_ratio": ratio(1.0),
        "poor_request_acceptance_ratio": ratio(1.0),
        "break_even_acceptance_ratio": ratio(defaults.beneficial_speedup),
        "healthy_acceptance_ratio": ratio(defaults.beneficial_speedup),
        "optimal_acceptance_ratio": ratio(OPTIMAL_SPEEDUP),
        "poor_position_0_acceptance_ratio": _share(first - 1),
        "healthy_position_0_acceptance_ratio": _share(defaults.beneficial_speedup * first - 1),
        "healthy_last_position_acceptance_ratio": _share(last),
        # Whether deep positions pay is the question of K, which advice answers.
        "poor_position_decay_ratio": 0.0,
        "optimal_position_decay_ratio": defaults.poor_position_decay_ratio,
    }
    return defaults.with_values({name: round(value, 4) for name, value in (lengths | ratios).items()})


def basis(profile: CostProfile, k: int | None = None) -> str:
    """Say where the default thresholds come from."""
    if not profile.cheap:
        return "published rubric"
    return f"break-even of {profile.name} at K={k or profile.typical_k}, one request"


def _share(ratio: float) -> float:
    return min(1.0, max(0.0, ratio))
