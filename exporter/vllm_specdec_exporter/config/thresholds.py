"""The thresholds of verdicts, findings, advice and alerts.

The defaults are the published rubric for draft models and unknown methods;
`economics.cost` has those of cheap drafters. Operators can change each one. Each is
exported as a `threshold` series, for alert rules and panels.

Constants that are not thresholds: the break-even speedup of 1; the confidence and
sample sizes of advice (`economics.choice`, `judgement.hysteresis`); the minimum data of
a value (`measures`, `economics.speedup`, `baseline`, `compare`); fractions of a
threshold; limits of memory and size; and the checklist of `plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any


def _threshold(default: float, least: float, most: float, meaning: str) -> Any:
    return field(
        default=default, metadata={"least": least, "most": most, "meaning": meaning}
    )


_INFINITY = float("inf")


def _ratio(default: float, meaning: str) -> Any:
    return _threshold(default, 0, 1, meaning)


def _from_zero(default: float, meaning: str) -> Any:
    return _threshold(default, 0, _INFINITY, meaning)


def _from_one(default: float, meaning: str) -> Any:
    return _threshold(default, 1, _INFINITY, meaning)


#: Acceptance ratio below which drafts lose: of all traffic, and of a request.
_LOSES_BELOW = 0.50


# A dataclass, where other records are Structs: its fields have ranges and meanings.
@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds in force.

    Ratios are from 0 to 1, acceptance lengths at least 1.
    """

    minimum_drafts: float = _from_one(
        100, "drafts in a window for a judgement, at least"
    )
    poor_mean_acceptance_length: float = _from_one(1.3, "poor below")
    poor_acceptance_ratio: float = _ratio(0.40, "poor below")
    poor_position_0_acceptance_ratio: float = _ratio(0.70, "poor below")
    poor_position_decay_ratio: float = _ratio(
        0.50, "poor (rapid decline) below: mean conditional acceptance after position 0"
    )
    healthy_mean_acceptance_length: float = _from_one(1.5, "healthy from")
    healthy_acceptance_ratio: float = _ratio(0.60, "healthy from")
    healthy_position_0_acceptance_ratio: float = _ratio(0.90, "healthy above")
    healthy_last_position_acceptance_ratio: float = _ratio(0.20, "healthy above")
    optimal_mean_acceptance_length: float = _from_one(2.0, "optimal above")
    optimal_acceptance_ratio: float = _ratio(0.70, "optimal above")
    optimal_position_decay_ratio: float = _ratio(
        0.75,
        "optimal (smooth decline) from: mean conditional acceptance after position 0",
    )
    optimal_mean_acceptance_length_deviation: float = _from_zero(
        0.2, "optimal (steady) if windows differ by at most this in acceptance length"
    )
    disable_mean_acceptance_length: float = _from_one(
        1.2, "consider disabling speculation below"
    )
    disable_acceptance_ratio: float = _ratio(
        _LOSES_BELOW, "consider disabling speculation below"
    )
    break_even_acceptance_ratio: float = _ratio(
        0.65, "near break-even up to this: measure P99 under real load first"
    )
    raise_k_last_position_acceptance_ratio: float = _ratio(
        0.30, "K may be raised above (published rule)"
    )
    lower_k_last_position_acceptance_ratio: float = _ratio(
        0.10, "K may be lowered below (published rule)"
    )
    harmful_speedup: float = _ratio(1.0, "harmful below this speedup; at most 1")
    beneficial_speedup: float = _from_zero(1.2, "beneficial above this speedup")
    disagreement_ratio: float = _from_zero(
        0.20, "measured and estimated speedup disagree from this relative difference on"
    )
    measurement_minimum_requests: float = _from_one(
        20, "finished requests in a window for a measured speedup, at least"
    )
    minimum_requests: float = _from_one(
        50, "requests in a window for a judgement per request, at least"
    )
    poor_request_acceptance_ratio: float = _ratio(
        _LOSES_BELOW,
        "part of the traffic loses if a tenth of the requests is below this "
        "acceptance ratio; follows "
        "disable_acceptance_ratio if only that is set",
    )
    mixed_requests_ratio: float = _threshold(
        0.20,
        0.01,
        0.5,
        "a workload is mixed if this share of the requests gains and this share loses",
    )
    advice_minimum_drafts: float = _from_one(
        500, "drafts in a window for advice on K, at least"
    )
    advice_minimum_gain: float = _from_zero(
        0.01, "relative gain in speedup for advising another K, at least"
    )
    usual_mean_acceptance_length: float = _from_one(
        1,
        "another method is advised if the present one gains little even at its best "
        "K and is below this mean "
        "acceptance length; 1: never. EAGLE has 2, suffix 2, n-gram 1.5, MLP "
        "speculator 1.5",
    )
    low_coverage_ratio: float = _ratio(
        0.50,
        "finding: speculation has little effect below this share of tokens from drafts",
    )
    abnormal_acceptance_ratio: float = _ratio(
        0.98, "acceptance above this ratio indicates repetitive answers"
    )
    unrecorded_requests_ratio: float = _ratio(
        0.20,
        (
            "finding and alert from this share of requests without a record, or "
            "unobserved, on"
        ),
    )
    # Used only in alert rules.
    severe_speedup: float = _from_zero(
        0.9,
        (
            "alerts: people are paged below this speedup, and get a ticket below "
            "harmful_speedup"
        ),
    )
    probable_loss_probability: float = _ratio(
        0.95,
        (
            "a speedup that is unknown counts as a loss in alerts from this "
            "probability of one on"
        ),
    )
    collapsed_acceptance_ratio: float = _ratio(
        0.05, "alerts: speculation has silently collapsed below this acceptance ratio"
    )
    drop_ratio: float = _ratio(
        0.15,
        (
            "alerts: relative fall below the engine's earlier level that is a drop or "
            "regression"
        ),
    )
    step_acceptance_ratio: float = _ratio(
        0.05,
        (
            "alerts: fall in acceptance ratio across a restart that indicates another "
            "build"
        ),
    )
    outlier_ratio: float = _ratio(
        0.2, "alerts: relative distance below its peers that makes an engine an outlier"
    )
    comparison_minimum_drafts: float = _from_one(
        5000, "alerts: drafts on each side of a comparison, at least"
    )
    wasted_verification_ratio: float = _ratio(
        0.5, "alerts: share of verified tokens that may be rejected while requests wait"
    )
    squeezed_kv_cache_usage_ratio: float = _ratio(
        0.9,
        (
            "alerts: the KV cache is squeezed from this usage on, if requests are "
            "preempted"
        ),
    )
    widened_latency_ratio: float = _from_one(
        1.5, "alerts: growth of a latency, or of its P99 over P50, that is a regression"
    )
    failed_request_ratio: float = _ratio(
        0.05,
        "alerts: people are paged above this share of requests that end in an error",
    )
    worth_it_objective_ratio: float = _threshold(
        0.95,
        0,
        0.9999,
        (
            "alerts: objective for the share of drafts generated while speculation did "
            "not lose"
        ),
    )

    def items(self) -> Iterator[tuple[str, float]]:
        """Yield every threshold's name and value."""
        yield from ((f.name, getattr(self, f.name)) for f in fields(self))

    def with_values(
        self, values: Mapping[str, float], *, ordered: bool = True
    ) -> Thresholds:
        """Return these thresholds with new values by name, and those that follow them.

        Raises ValueError for an unknown name, a value out of its range, and, if
        `ordered`, levels out of order.
        """
        for name, value in values.items():
            _check(name, value)
        followed = {
            name: values[leader]
            for name, leader in _FOLLOWS.items()
            if leader in values
        }
        changed = Thresholds(**(asdict(self) | followed | dict(values)))
        if ordered:
            changed._check_order()
        return changed

    def _check_order(self) -> None:
        values = asdict(self)
        for names in _ORDER:
            for lower, upper in pairwise(names):
                if values[lower] > values[upper]:
                    raise ValueError(
                        f"threshold {lower} ({values[lower]:g}) exceeds {upper} "
                        f"({values[upper]:g})"
                    )


def _check(name: str, value: float) -> None:
    """Raise ValueError for an unknown name, and for a value out of its range."""
    ranges = {f.name: f.metadata for f in fields(Thresholds)}
    if name not in ranges:
        # here, for the memory of a sidecar
        from difflib import get_close_matches

        alike = get_close_matches(name, ranges, n=5, cutoff=0.0)
        raise ValueError(
            f"unknown threshold {name!r}; most like it: {', '.join(alike)} "
            "(docs/reference/metrics.md has all)"
        )
    lowest = ranges[name]["least"]
    highest = ranges[name]["most"]
    if lowest <= value <= highest and value < _INFINITY:
        return
    limit = f"at least {lowest:g}"
    if highest < _INFINITY:
        limit = f"between {lowest:g} and {highest:g}"
    raise ValueError(f"threshold {name} is {value:g}; allowed: {limit}")


def _levels(measure: str, *levels: str) -> tuple[str, ...]:
    return tuple(f"{level}_{measure}" for level in levels)


#: Thresholds that default to the value of another if that is set.
_FOLLOWS = {"poor_request_acceptance_ratio": "disable_acceptance_ratio"}

#: Groups of thresholds in ascending order.
_ORDER = (
    _levels("mean_acceptance_length", "poor", "healthy", "optimal"),
    _levels("acceptance_ratio", "poor", "healthy", "optimal"),
    _levels("position_0_acceptance_ratio", "poor", "healthy"),
    _levels("position_decay_ratio", "poor", "optimal"),
    _levels("acceptance_ratio", "disable", "break_even"),
    _levels("last_position_acceptance_ratio", "lower_k", "raise_k"),
    _levels("speedup", "severe", "harmful", "beneficial"),
)


#: The name of the preset of thresholds: the published rubric, whatever the method.
PUBLISHED = "published"


def parse_threshold(text: str) -> tuple[str, float]:
    """Return name and value of a threshold, ``name=number``; of the preset, its name
    and 1.
    """
    if text.strip() == PUBLISHED:
        return PUBLISHED, 1.0
    name, _, number = map(str.strip, text.partition("="))
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"allowed: name=number, or {PUBLISHED}") from None
    _check(name, value)
    return name, value
