"""Thresholds: every limit that a verdict, a finding, advice or an alert goes by, declared once.

The defaults are the published rubric, for draft models and unknown methods; `economics.cost` has those of
cheap drafters. Each can be changed by the operator, and each is exported as a `threshold` series, so that
rules and panels compare against the value in force.

No thresholds are: a speedup of 1, which is what break-even means; how sure advice is and how far it trusts a
sample (`economics.choice`, `judgement.hysteresis`); where a value says too little to be used (`measures`,
`economics.speedup`, `baseline`, `compare`); parts of a threshold, which move with it; limits of memory and
size; and the checklist of `plan`, which judges no running server.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _threshold(default: float, least: float, most: float, meaning: str) -> Any:
    return field(default=default, metadata={"least": least, "most": most, "meaning": meaning})


_ENDLESS = float("inf")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds in force. Ratios run from 0 to 1, acceptance lengths from 1 up."""

    minimum_drafts: float = _threshold(
        100, 1, _ENDLESS, "drafts that a window must hold before anything is judged by it"
    )
    poor_mean_acceptance_length: float = _threshold(
        1.3, 1, _ENDLESS, "poor below this mean acceptance length"
    )
    poor_acceptance_ratio: float = _threshold(0.40, 0, 1, "poor below this acceptance ratio")
    poor_position_0_acceptance_ratio: float = _threshold(
        0.70, 0, 1, "poor below this acceptance ratio of position 0"
    )
    poor_position_decay_ratio: float = _threshold(
        0.50, 0, 1, "poor (rapid decline) below this mean conditional acceptance behind position 0"
    )
    healthy_mean_acceptance_length: float = _threshold(
        1.5, 1, _ENDLESS, "healthy from this mean acceptance length on"
    )
    healthy_acceptance_ratio: float = _threshold(0.60, 0, 1, "healthy from this acceptance ratio on")
    healthy_position_0_acceptance_ratio: float = _threshold(
        0.90, 0, 1, "healthy above this acceptance ratio of position 0"
    )
    healthy_last_position_acceptance_ratio: float = _threshold(
        0.20, 0, 1, "healthy above this acceptance ratio of the last position"
    )
    optimal_mean_acceptance_length: float = _threshold(
        2.0, 1, _ENDLESS, "optimal above this mean acceptance length"
    )
    optimal_acceptance_ratio: float = _threshold(0.70, 0, 1, "optimal above this acceptance ratio")
    optimal_position_decay_ratio: float = _threshold(
        0.75,
        0,
        1,
        "optimal (smooth decline) from this mean conditional acceptance behind position 0",
    )
    optimal_mean_acceptance_length_deviation: float = _threshold(
        0.2,
        0,
        _ENDLESS,
        "optimal (steady) while windows differ by at most this in acceptance length",
    )
    disable_mean_acceptance_length: float = _threshold(
        1.2, 1, _ENDLESS, "consider disabling speculation below this mean acceptance length"
    )
    disable_acceptance_ratio: float = _threshold(
        0.50, 0, 1, "consider disabling speculation below this acceptance ratio"
    )
    break_even_acceptance_ratio: float = _threshold(
        0.65, 0, 1, "near break-even up to this acceptance ratio: measure P99 under real load first"
    )
    raise_k_last_position_acceptance_ratio: float = _threshold(
        0.30, 0, 1, "the published rule: K may be raised above this acceptance ratio of the last position"
    )
    lower_k_last_position_acceptance_ratio: float = _threshold(
        0.10, 0, 1, "the published rule: K may be lowered below this acceptance ratio of the last position"
    )
    harmful_speedup: float = _threshold(
        1.0, 0, 1, "harmful below this speedup; above 1 nothing is, that is what beneficial_speedup is for"
    )
    beneficial_speedup: float = _threshold(1.2, 0, _ENDLESS, "beneficial above this speedup")
    disagreement_ratio: float = _threshold(
        0.20, 0, _ENDLESS, "measured and estimated speedup disagree from this relative difference on"
    )
    measurement_minimum_requests: float = _threshold(
        20, 1, _ENDLESS, "finished requests that a window must hold before anything is measured by it"
    )
    minimum_requests: float = _threshold(
        50, 1, _ENDLESS, "requests that a window must hold before they are judged one by one"
    )
    poor_request_acceptance_ratio: float = _threshold(
        0.50,
        0,
        1,
        "a part of the traffic loses where a tenth of the requests has less acceptance than this; where only "
        "disable_acceptance_ratio is set, the same",
    )
    mixed_requests_ratio: float = _threshold(
        0.20, 0.01, 0.5, "a workload is mixed where this share of the requests gains and this share loses"
    )
    advice_minimum_drafts: float = _threshold(
        500, 1, _ENDLESS, "drafts that a window must hold before advice on K is given"
    )
    advice_minimum_gain: float = _threshold(
        0.01, 0, _ENDLESS, "relative gain in speedup that another K must promise before it is advised"
    )
    usual_mean_acceptance_length: float = _threshold(
        1,
        1,
        _ENDLESS,
        "another method is advised where one gains little even at its best K and stays below this mean "
        "acceptance length; 1 asks for nothing. EAGLE has 2, suffix 2, n-gram 1.5, MLP speculator 1.5",
    )
    low_coverage_ratio: float = _threshold(
        0.50,
        0,
        1,
        "a finding says that speculation has little effect below this share of tokens out of drafts",
    )
    abnormal_acceptance_ratio: float = _threshold(
        0.98, 0, 1, "acceptance above this ratio points to answers that repeat themselves"
    )
    unrecorded_requests_ratio: float = _threshold(
        0.20,
        0,
        1,
        "a finding and an alert say so from this share of requests without a record, or unobserved, on",
    )
    # What only the alert rules compare with; the exporter itself judges nothing by these.
    severe_speedup: float = _threshold(
        0.9,
        0,
        _ENDLESS,
        "alerts: people are paged below this speedup, and get a ticket below harmful_speedup",
    )
    collapsed_acceptance_ratio: float = _threshold(
        0.05, 0, 1, "alerts: speculation has silently collapsed below this acceptance ratio"
    )
    drop_ratio: float = _threshold(
        0.15, 0, 1, "alerts: relative fall against the own baseline that is a sudden drop or a regression"
    )
    step_acceptance_ratio: float = _threshold(
        0.05, 0, 1, "alerts: fall in acceptance ratio across a restart that points to another build"
    )
    outlier_ratio: float = _threshold(
        0.2, 0, 1, "alerts: relative distance below its peers that makes an engine an outlier"
    )
    comparison_minimum_drafts: float = _threshold(
        5000, 1, _ENDLESS, "alerts: drafts on each side before two periods or engines are compared"
    )
    wasted_verification_ratio: float = _threshold(
        0.5, 0, 1, "alerts: share of verified tokens that may be rejected while requests wait"
    )
    squeezed_kv_cache_usage_ratio: float = _threshold(
        0.9, 0, 1, "alerts: the KV cache is squeezed from this usage on, if requests are preempted"
    )
    widened_latency_ratio: float = _threshold(
        1.5, 1, _ENDLESS, "alerts: growth of a latency, or of its P99 over P50, that is a regression"
    )
    failed_request_ratio: float = _threshold(
        0.05, 0, 1, "alerts: people are paged above this share of requests that end in an error"
    )
    worth_it_objective_ratio: float = _threshold(
        0.95, 0, 0.9999, "alerts: objective for the share of drafts made while speculation did not lose"
    )

    def items(self) -> Iterator[tuple[str, float]]:
        """Yield every threshold's name and value."""
        yield from asdict(self).items()

    def with_values(self, values: Mapping[str, float], *, ordered: bool = True) -> Thresholds:
        """Return these thresholds with some values replaced, and with them those that go by them.

        Args:
            values: the new values by name.
            ordered: whether to check that the levels do not contradict each other.

        Raises:
            ValueError: an unknown name, a value out of its range, or levels that contradict each other.
        """
        known = {f.name: f.metadata for f in fields(self)}
        for name, value in values.items():
            if name not in known:
                alike = get_close_matches(name, known, n=5, cutoff=0.0)
                msg = (
                    f"unknown threshold {name!r}; most like it: {', '.join(alike)} "
                    "(docs/reference/metrics.md has all)"
                )
                raise ValueError(msg)
            least, most = known[name]["least"], known[name]["most"]
            if not least <= value <= most or value == _ENDLESS:
                limit = f"between {least:g} and {most:g}" if most < _ENDLESS else f"at least {least:g}"
                msg = f"threshold {name} is {value:g}; allowed: {limit}"
                raise ValueError(msg)
        followed = {name: values[leader] for name, leader in _FOLLOWS.items() if leader in values}
        changed = replace(self, **(followed | dict(values)))
        if ordered:
            changed._check_order()
        return changed

    def _check_order(self) -> None:
        values = asdict(self)
        for names in _ORDER:
            for lower, upper in pairwise(names):
                if values[lower] > values[upper]:
                    msg = f"threshold {lower} ({values[lower]:g}) exceeds {upper} ({values[upper]:g})"
                    raise ValueError(msg)


def _levels(measure: str, *levels: str) -> tuple[str, ...]:
    return tuple(f"{level}_{measure}" for level in levels)


#: Thresholds that have the value of another where only that one is set.
_FOLLOWS = {"poor_request_acceptance_ratio": "disable_acceptance_ratio"}

#: Thresholds of which none may exceed the next.
_ORDER = (
    _levels("mean_acceptance_length", "poor", "healthy", "optimal"),
    _levels("acceptance_ratio", "poor", "healthy", "optimal"),
    _levels("position_0_acceptance_ratio", "poor", "healthy"),
    _levels("position_decay_ratio", "poor", "optimal"),
    _levels("acceptance_ratio", "disable", "break_even"),
    _levels("last_position_acceptance_ratio", "lower_k", "raise_k"),
    _levels("speedup", "severe", "harmful", "beneficial"),
)


def describe() -> Iterator[tuple[str, float, str]]:
    """Yield name, default and meaning of every threshold, for the documentation."""
    defaults = dict(Thresholds().items())
    for item in fields(Thresholds):
        yield item.name, defaults[item.name], item.metadata["meaning"]
