"""What a metric is: a row of the table in `metrics`.

A row's `scope` says what its samples hang on, and so which labels stand before its own: nothing (the
exporter), a target, an engine of a target, or a window of an engine; or what is known of single requests: all
of them, a group, a tenant, a model, or the window of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Samples = Iterable[tuple[tuple[str, ...], float]]


PREFIX = "vllm_specdec_"


class Kind(StrEnum):
    """The Prometheus metric types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(StrEnum):
    """What the samples of a metric hang on, and so the identity labels in front."""

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
    """One row: a metric's name (without the prefix), and where its samples come from.

    Attributes:
        name: as exposed, without the prefix; a counter's ends in `_total`.
        kind: its Prometheus type.
        scope: what its samples hang on.
        help: what it is, with range and unit.
        field: dotted path from the object that `scope` names to the value, as in the snapshot.
        expand: from that value, the samples: values of the metric's own labels, and the number. A histogram's
            value is a `Distribution`, which the collector writes out.
        labels: the metric's own labels, in the order of the values that `expand` yields.
        upstream: the vLLM series that it comes from, shown in HELP and in the reference.
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
        """The HELP text, which names the upstream series."""
        return f"{self.help} From {', '.join(self.upstream)}." if self.upstream else self.help

    def value(self, carrier: object) -> Any:
        """Return what the carrier of this row's scope holds for it."""
        return attrgetter(self.field)(carrier)

    def samples(self, carrier: object) -> Samples:
        """Return the samples that the carrier of this row's scope holds for it."""
        return self.expand(self.value(carrier))


def one(value: float | None) -> Samples:
    """Yield a value that may not exist."""
    return () if value is None else (((), float(value)),)


def each(values: Iterable[float | None], first: int = 0) -> Samples:
    """Yield one sample per position or K that has a value."""
    return [((str(index),), value) for index, value in enumerate(values, first) if value is not None]


def by_name(values: Mapping[str, float]) -> Samples:
    """Yield one sample per name."""
    return [((name,), float(value)) for name, value in values.items()]


def one_hot(states: type[StrEnum]) -> Callable[[StrEnum | None], Samples]:
    """Yield every state, 1 for the present one."""
    return lambda present: [((state.value,), float(state is present)) for state in states]


def row_of(scope: Scope, kind: Kind = Kind.GAUGE) -> Callable[..., Metric]:
    """Return a constructor of rows of this scope and kind; `field` is the name unless it says otherwise."""

    def row(
        name: str,
        text: str,
        *upstream: str,
        field: str = "",
        expand: Callable[[Any], Samples] = one,
        labels: tuple[str, ...] = (),
    ) -> Metric:
        return Metric(name, kind, scope, text, field or name, expand, labels, upstream)

    return row


DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "vllm:generation_tokens_total"
RUNNING = "vllm:num_requests_running"
TPOT = "vllm:request_time_per_output_token_seconds"
