"""A row of the metric table: name, type, labels, HELP text, and where its samples come from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...economics.speedup import Estimate
    from ...judgement.payoff import Payoff

    #: Values of a metric's own labels, and the sample's value.
    Samples = Iterable[tuple[tuple[str, ...], float]]


PREFIX = "vllm_specdec_"


class Kind(StrEnum):
    """The Prometheus metric types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(StrEnum):
    """The object that has the samples of a metric. It determines the identity labels.

    The exporter, a target, an engine of a target, or a window of an engine; or, of single requests: all of
    them, a group, a tenant, a model, or the recent window of a model.
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


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        name: as exposed, without the prefix; the name of a counter ends in `_total`.
        kind: Prometheus type.
        scope: the object that has the samples.
        help: what it measures, with range and unit.
        field: dotted path from the object of `scope` to the value, as in the snapshot.
        expand: returns the samples of that value. The value of a histogram is a `Distribution` or an
            `Observed`, which the collector expands itself.
        labels: the metric's own labels, in the order of the label values that `expand` returns.
        upstream: the vLLM series that it is computed from, shown in HELP and in the reference.
    """

    name: str
    kind: Kind
    scope: Scope
    help: str
    field: str
    expand: Callable[[Any], Samples]
    labels: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as exposed."""
        return PREFIX + self.name

    @property
    def full_help(self) -> str:
        """The HELP text, which ends with the upstream series."""
        return f"{self.help} From {', '.join(self.upstream)}." if self.upstream else self.help

    def value(self, result: object) -> Any:
        """Return the value of this metric in an object of its scope."""
        return attrgetter(self.field)(result)

    def samples(self, result: object) -> Samples:
        """Return the samples of this metric in an object of its scope."""
        return self.expand(self.value(result))


@dataclass(frozen=True)
class Breakdown:
    """How a value becomes samples: `Metric.labels` and `Metric.expand`."""

    labels: tuple[str, ...]
    expand: Callable[[Any], Samples]


def one(value: float | None) -> Samples:
    """Return one sample without labels, none for ``None``."""
    return () if value is None else (((), float(value)),)


def each(values: Iterable[float | None], first: int = 0) -> Samples:
    """Return a sample for each value that is not ``None``, labelled by its index counted from `first`."""
    return [((str(index),), value) for index, value in enumerate(values, first) if value is not None]


def by_name(label: str) -> Breakdown:
    """Return the breakdown of a mapping by its keys."""

    def expand(values: Mapping[str, float]) -> Samples:
        return [((name,), float(value)) for name, value in values.items()]

    return Breakdown((label,), expand)


def one_hot(label: str, states: type[StrEnum]) -> Breakdown:
    """Return the breakdown of a state: 1 for the present one, 0 for all others."""
    return Breakdown(
        (label,), lambda present: [((state.value,), float(state is present)) for state in states]
    )


def _by_basis(found: Payoff | Estimate) -> Samples:
    if found.speedup is None or found.basis is None:
        return ()
    return [((found.basis.value,), found.speedup)]


SINGLE = Breakdown((), one)
#: The breakdown of a speedup.
BASIS = Breakdown(("basis",), _by_basis)
POSITION = Breakdown(("position",), each)


def row_of(scope: Scope, kind: Kind = Kind.GAUGE) -> Callable[..., Metric]:
    """Return a constructor of rows of this scope and kind. The default of `field` is the metric's name."""

    def row(name: str, text: str, *upstream: str, field: str = "", by: Breakdown = SINGLE) -> Metric:
        return Metric(name, kind, scope, text, field or name, by.expand, by.labels, upstream)

    return row


DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "vllm:generation_tokens_total"
RUNNING = "vllm:num_requests_running"
TPOT = "vllm:request_time_per_output_token_seconds"
STEPS = "vllm:inter_token_latency_seconds"
