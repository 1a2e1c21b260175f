"""The metric table: every metric of the exporter, declared once in `metrics.toml`.

The collector, `docs/reference/metrics.md` and the snapshot's ``metric`` filter are
derived from it.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cached_property, partial
from itertools import starmap
from operator import attrgetter
from typing import Any

from msgspec import Struct

from ..config.tables import read_table
from ..economics.baseline_match import LatencyRatio
from ..economics.choice import CandidateK
from ..economics.speculative_config import ScheduleRow
from ..economics.speedup import Estimate
from ..economics.step_time import StepFit
from ..judgement.activity import ActivityState
from ..judgement.advice import Action
from ..judgement.payoff import Payoff, PayoffVerdict
from ..judgement.quality import QualityLevel
from ..observe.result import Deployment, Discovered
from ..per_request.summary import ObservationCount

#: Values of a metric's own labels, and the value of the sample.
Samples = Iterable[tuple[tuple[str, ...], float]]

PREFIX = "vllm_specdec_"
#: Batch sizes at which the advised K schedule is published. Fixed, because the bounds
#: of the advised rows vary from poll to poll and would create a series each.
SCHEDULED_BATCHES = tuple(2**power for power in range(11))


class Kind(StrEnum):
    """The Prometheus metric types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricScope(StrEnum):
    """The object that has the samples of a metric. It determines the identity labels.

    The exporter, a target, an engine of a target, or a window of an engine; or, of
    single requests: all of them, a group, a tenant, a model, or the recent window of a
    model.
    """

    EXPORTER = "exporter"
    TARGET = "target"
    ENGINE = "engine"
    WINDOW = "window"
    REQUESTS = "requests"
    GROUP = "group"
    TENANT = "tenant"
    MODEL = "model"
    RECENT = "recent"


class Metric(Struct, frozen=True, dict=True):
    """One row of the table."""

    name: str  # as exposed, without the prefix; the name of a counter ends in `_total`
    kind: Kind  # Prometheus type
    scope: MetricScope  # the object that has the samples
    help: str  # what it measures, with range and unit
    #: Dotted path from the object of `scope` to the value, as in the snapshot.
    field: str
    #: Returns the samples of that value. The value of a histogram is a `Distribution`
    #: or a `Histogram`, which the collector expands itself.
    expand: Callable[[Any], Samples]
    #: The metric's own labels, in the order of the label values that `expand` returns.
    labels: tuple[str, ...] = ()
    #: The vLLM series that it is computed from, shown in HELP and in the reference.
    upstream: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as exposed."""
        return PREFIX + self.name

    @property
    def full_help(self) -> str:
        """The HELP text, which ends with the upstream series."""
        if self.upstream:
            return f"{self.help} From {', '.join(self.upstream)}."
        return self.help

    @cached_property
    def value(self) -> Callable[[object], Any]:
        """The function that returns the value in an object of its scope."""
        return attrgetter(self.field)

    @cached_property
    def _holder(self) -> Callable[[object], Any]:
        """The function that returns the object that has the value as an attribute."""
        path = self.field.rpartition(".")[0]
        if path:
            return attrgetter(path)
        return lambda result: result

    def samples(self, result: object) -> Samples:
        """Return the samples of this metric in an object of its scope; none if it lacks
        that part.
        """
        if self._holder(result) is None:
            return ()
        return self.expand(self.value(result))


def _single(value: float | None) -> Samples:
    # Not a generator: most metrics are of this kind, and this is faster.
    if value is None:
        return ()
    return (((), float(value)),)


def _each(values: Iterable[float | None], first: int = 0) -> Samples:
    """Yield each value that is not ``None``, labelled by its index from `first`."""
    for index, value in enumerate(values, first):
        if value is not None:
            yield (str(index),), value


def _by_name(values: Mapping[str, float]) -> Samples:
    for name, value in values.items():
        yield (name,), float(value)


def _by_model(models: Mapping[str, Mapping[str, float]]) -> Samples:
    return [
        ((model, name), float(value))
        for model, values in models.items()
        for name, value in values.items()
    ]


def _one_hot(states: type[StrEnum]) -> Callable[[StrEnum | None], Samples]:
    """Return a function from a state to its samples: 1 for it, 0 for all others."""
    return lambda present: [
        ((state.value,), float(state is present)) for state in states
    ]


def _by_basis(judged: Payoff | Estimate) -> Samples:
    if judged.speedup is not None and judged.basis is not None:
        yield (judged.basis.value,), judged.speedup


def _interval(payoff: Payoff) -> Samples:
    if payoff.speedup_low is not None and payoff.speedup_high is not None:
        yield ("low",), payoff.speedup_low
        yield ("high",), payoff.speedup_high


def _terms(fit: StepFit | None) -> Samples:
    if fit is not None:
        yield ("fixed",), fit.fixed
        yield ("per_request",), fit.per_request
        yield ("per_kv_cache",), fit.per_kv_cache


def _options(options: Iterable[CandidateK]) -> Samples:
    for option in options:
        yield (str(option.num_speculative_tokens),), option.speedup


def _schedule(rows: Iterable[ScheduleRow]) -> Samples:
    for row in rows:
        for size in SCHEDULED_BATCHES:
            if row.first <= size <= row.last:
                yield (str(size),), float(row.num_speculative_tokens)


def _latency_ratios(ratios: Iterable[LatencyRatio]) -> Samples:
    for item in ratios:
        yield (item.latency, f"{100 * item.quantile:g}"), item.ratio


def _percentiles(values: Mapping[str, float]) -> Samples:
    for quantile, value in values.items():
        yield (f"{100 * float(quantile):g}",), value


def _discovered(names: Iterable[Discovered]) -> Samples:
    for item in names:
        yield (item.name,), float(item.up)


def _observations(counts: Iterable[ObservationCount]) -> Samples:
    for item in counts:
        yield (item.source, item.record), float(item.requests)


_DEPLOYMENT = ("method", "draft_model", "dialect", "upstream_version", "cost_profile")


def _deployment(deployment: Deployment) -> Samples:
    yield attrgetter(*_DEPLOYMENT)(deployment), 1.0


def _build(version: str) -> Samples:
    yield (version, platform.python_version()), 1.0


#: How a value becomes samples: the metric's own labels, and `Metric.expand`.
BREAKDOWNS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], Samples]]] = {
    "": ((), _single),
    "position": (("position",), _each),
    "k": (("num_speculative_tokens",), partial(_each, first=1)),
    "basis": (("basis",), _by_basis),
    "interval": (("bound",), _interval),
    "step_fit": (("term",), _terms),
    "options": (("num_speculative_tokens",), _options),
    "schedule": (("batch_size",), _schedule),
    # Not "quantile": promtool rejects that label outside summaries.
    "latency_ratios": (("latency", "percentile"), _latency_ratios),
    "percentile": (("percentile",), _percentiles),
    "activity": (("state",), _one_hot(ActivityState)),
    "quality": (("level",), _one_hot(QualityLevel)),
    "payoff": (("verdict",), _one_hot(PayoffVerdict)),
    "action": (("action",), _one_hot(Action)),
    "outcome": (("outcome",), _by_name),
    "reason": (("reason",), _by_name),
    # No label that targets often carry, such as `name` or `version`: Prometheus would
    # rename it.
    "threshold": (("threshold",), _by_name),
    "model_threshold": (("model_name", "threshold"), _by_model),
    "discovery": (("dns_name",), _discovered),
    "observations": (("source", "record"), _observations),
    "deployment": (_DEPLOYMENT, _deployment),
    "build": (("exporter_version", "python_version"), _build),
}


#: The keys of a metric in `metrics.toml`.
_KEYS = {"scope", "help", "field", "by", "kind", "upstream"}


def parse_metric(name: str, entry: Mapping[str, Any]) -> Metric:
    """Return the metric of a table in `metrics.toml`.

    Raises ValueError for a key that is not known.
    """
    unknown = entry.keys() - _KEYS
    if unknown:
        raise ValueError(
            f"{name}: unknown: {', '.join(sorted(unknown))}; known: "
            f"{', '.join(sorted(_KEYS))}"
        )
    labels, expand = BREAKDOWNS[entry.get("by", "")]
    default_kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
    return Metric(
        name=name,
        kind=Kind(entry.get("kind", default_kind)),
        scope=MetricScope(entry["scope"]),
        help=entry["help"],
        field=entry.get("field", name),
        expand=expand,
        labels=labels,
        upstream=tuple(entry.get("upstream", ())),
    )


#: Every metric, in the order of the exposition and of the reference.
METRICS = tuple(starmap(parse_metric, read_table(__file__, "metrics.toml").items()))
