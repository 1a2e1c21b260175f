"""How many series an exporter publishes, from the metric table alone: what docs/scaling.md has as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.baseline_match import QUANTILES
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.observe.result import REASONS
from vllm_specdec_exporter.publish.metrics import METRICS, SCHEDULED_BATCHES
from vllm_specdec_exporter.publish.metrics.metric import Kind, Metric, Scope
from vllm_specdec_exporter.requests.judgement import QUANTILES as REQUEST_QUANTILES
from vllm_specdec_exporter.requests.judgement import Bounds
from vllm_specdec_exporter.requests.observation import RecordState
from vllm_specdec_exporter.requests.result import Outcome
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED
from vllm_specdec_exporter.serve.tap.relay import ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

#: `process_*` and `python_info`, which are not in the metric table.
PROCESS_SERIES = 7
#: Histograms of latencies that a baseline is compared by.
_LATENCIES = 3
_BASELINE = {"measured_speedup", "measured_requests", "latency_ratio"}
_COST = {"return_on_speculation_ratio", "benefit_tokens_per_second"}
_SCHEDULE = {"scheduled_num_speculative_tokens"}
#: Not with data parallelism, for which vLLM has no schedule.
_ADVISED_SCHEDULE = {"recommended_num_speculative_tokens_at"}
#: Series of one metric for each combination of its identity labels, by K, from its own labels.
_BY_LABELS: dict[tuple[str, ...], Callable[[int], int]] = {
    (): lambda _: 1,
    ("position",): lambda k: k,
    ("state",): lambda _: len(ActivityState),
    ("level",): lambda _: len(QualityLevel),
    ("verdict",): lambda _: len(PayoffVerdict),
    ("action",): lambda _: len(Action),
    ("basis",): lambda _: 1,
    ("term",): lambda _: 3,
    ("reason",): lambda _: len(REASONS),
    ("name",): lambda _: len(tuple(Thresholds().items())),
    ("batch_size",): lambda _: len(SCHEDULED_BATCHES),
    ("latency", "percentile"): lambda _: _LATENCIES * len(QUANTILES),
    ("method", "draft_model", "dialect", "upstream_version", "cost_profile"): lambda _: 1,
    ("version", "python_version"): lambda _: 1,
    ("outcome",): lambda _: len(Outcome),
    ("percentile",): lambda _: len(REQUEST_QUANTILES),
}
#: Bounds of the histograms of single requests, by the metric's name.
_BOUNDS = {
    "request_acceptance_ratio": Bounds().acceptance_ratio,
    "request_accepted_tokens_per_draft": Bounds().accepted_tokens_per_draft,
    "request_time_to_first_token_seconds": Bounds().time_to_first_token,
    "request_time_per_output_token_seconds": Bounds().time_per_output_token,
}
_OF_TAP = {"tap_upstream_errors_total": len(ERRORS), "tap_unobserved_total": len(UNOBSERVED)}


@dataclass(frozen=True)
class Requests:
    """What decides how many series there are of single requests, which stream and have detailed records.

    Attributes:
        models: that answered.
        groups: temperatures and types of requests that occurred, of all models.
        tenants: that are told apart, of all models.
        tap: whether there is one.
        push: whether requests are pushed.
    """

    models: int = 1
    groups: int = 1
    tenants: int = 0
    tap: bool = True
    push: bool = False


@dataclass(frozen=True)
class Setup:
    """What decides how many series there are, for a vLLM that speculates with advice given.

    Attributes:
        k: number of speculative tokens.
        engines: of the one model.
        windows: that are published.
        baseline: whether there is one.
        cost: whether memory and cost of the drafter are known.
        requests: what is known of single requests, where anything tells of them.
    """

    k: int
    engines: int = 1
    windows: int = 2
    baseline: bool = False
    cost: bool = False
    requests: Requests | None = None


def series_of(metric: Metric, setup: Setup) -> int:
    """Return how many series a metric has; of `latency_ratio` at most so many."""
    left_out = set(_SCHEDULE)
    left_out |= set() if setup.baseline else _BASELINE
    left_out |= set() if setup.cost else _COST
    left_out |= set() if setup.engines == 1 else _ADVISED_SCHEDULE
    if metric.name in left_out:
        return 0
    each = {
        Scope.WINDOW: setup.engines * setup.windows,
        Scope.ENGINE: setup.engines,
        Scope.TARGET: 1,
        Scope.EXPORTER: 1,
        **_carriers(setup.requests),
    }[metric.scope]
    if setup.requests is not None and metric.scope is Scope.REQUESTS:
        return _of_sources(metric, setup.requests)
    return each * _own(metric, setup.k) if each else 0


def _carriers(requests: Requests | None) -> dict[Scope, int]:
    """Return how many there are that series of single requests hang on."""
    found = requests or Requests(models=0, groups=0, tenants=0, tap=False)
    return {
        Scope.REQUESTS: 0,
        Scope.GROUP: found.groups,
        Scope.TENANT: found.tenants,
        Scope.MODEL: found.models,
        Scope.RECENT: found.models,
    }


def _of_sources(metric: Metric, requests: Requests) -> int:
    if metric.labels == ("source", "record"):
        return len(RecordState) * (requests.tap + requests.push)
    if not metric.name.startswith("tap_"):
        return 1
    return _OF_TAP.get(metric.name, 1) if requests.tap else 0


def _own(metric: Metric, k: int) -> int:
    if metric.name in _BOUNDS:
        return len(_BOUNDS[metric.name]) + 3
    if metric.kind is Kind.HISTOGRAM:
        return k + 4  # buckets for 0 to K and for all, the count and the sum
    if metric.labels == ("num_speculative_tokens",):
        # What each K would give: exactly up to the present one, with the cost profile from 0 to twice as far.
        return k if metric.scope is Scope.WINDOW else 2 * k + 1
    return _BY_LABELS[metric.labels](k)


def total(setup: Setup) -> int:
    """Return how many series an exporter publishes, those of its process included."""
    return PROCESS_SERIES + sum(series_of(metric, setup) for metric in METRICS)


def coefficients() -> tuple[int, int, int, int, int, int]:
    """Return A, B, C, D, E, F of `A + engines x (B + C K + windows x (D + E K)) + F for a single engine`."""

    def of_two(k: int, windows: int) -> int:
        return (total(Setup(k, 2, windows)) - fixed) // 2

    fixed = total(Setup(0, 0, 0))
    engine, per_k = of_two(0, 0), of_two(1, 0) - of_two(0, 0)
    window = of_two(0, 1) - engine
    per_window_k = of_two(1, 1) - of_two(0, 1) - per_k
    return fixed, engine, per_k, window, per_window_k, total(Setup(0, 1, 0)) - fixed - engine


def table() -> list[str]:
    """Return the rows of the table in docs/scaling.md, in Markdown."""
    lines = [
        "| K | 1 engine | 2 engines | 8 engines | 1 engine with a baseline, at most |",
        "|---|---|---|---|---|",
    ]
    for k in (3, 5, 7):
        counts = [total(Setup(k, engines)) for engines in (1, 2, 8)]
        with_baseline = total(Setup(k, baseline=True))
        lines.append(f"| {k} | {' | '.join(f'{count:,}' for count in counts)} | {with_baseline:,} |")
    return lines


def formula() -> str:
    """Return the formula as docs/scaling.md has it."""
    fixed, engine, per_k, window, per_window_k, _ = coefficients()
    return f"{fixed} + engines x ({engine} + {per_k} K + windows x ({window} + {per_window_k} K))"


def of_requests(requests: Requests, k: int = 0) -> int:
    """Return how many series there are of single requests."""
    return total(Setup(k, requests=requests)) - total(Setup(k))


def formula_of_requests() -> str:
    """Return the formula for single requests behind a tap as docs/scaling.md has it."""
    none = Requests(models=0, groups=0)
    fixed = of_requests(none)
    model = of_requests(replace(none, models=1)) - fixed
    per_k = of_requests(replace(none, models=1), 1) - fixed - model
    group, tenant = (of_requests(replace(none, **{name: 1})) - fixed for name in ("groups", "tenants"))
    return f"{fixed} + models x ({model} + {per_k} K) + groups x {group} + tenants x {tenant}"
