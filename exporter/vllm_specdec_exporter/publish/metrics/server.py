"""What the server counted, under one name whatever its dialect."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from .metric import (
    ACCEPTED,
    DRAFT_TOKENS,
    DRAFTS,
    GENERATED,
    PER_POSITION,
    Kind,
    Metric,
    Scope,
    by_name,
    each,
    row_of,
)

if TYPE_CHECKING:
    from ...engines.reading import Counters
    from .metric import Samples


_engine_counter = row_of(Scope.ENGINE, Kind.COUNTER)
_engine_histogram = row_of(Scope.ENGINE, Kind.HISTOGRAM)


def _reaching(counters: Counters) -> Samples:
    """Yield the drafts that got as far as each position: those accepted at the one before."""
    if counters.drafts is None or not counters.accepted_tokens_per_position:
        return ()
    return each((counters.drafts, *counters.accepted_tokens_per_position[:-1]))


#: Counters of an engine.
COUNTED: tuple[Metric, ...] = (
    _engine_counter(
        "drafts_total",
        "Verified drafts: one request in one step with drafted tokens.",
        DRAFTS,
        field="counters.drafts",
    ),
    _engine_counter(
        "draft_tokens_total",
        "Drafted tokens that were verified.",
        DRAFT_TOKENS,
        field="counters.draft_tokens",
    ),
    _engine_counter(
        "accepted_tokens_total",
        "Drafted tokens that were accepted; the bonus token of each draft does not count.",
        ACCEPTED,
        field="counters.accepted_tokens",
    ),
    _engine_counter(
        "accepted_tokens_per_position_total",
        "Drafts in which the token at this position, counted from 0, was accepted.",
        PER_POSITION,
        field="counters.accepted_tokens_per_position",
        expand=each,
        labels=("position",),
    ),
    _engine_counter(
        "drafts_reaching_position_total",
        "Drafts in which every position before this one was accepted: the ones behind its conditional "
        "acceptance. At position 0, all.",
        DRAFTS,
        PER_POSITION,
        field="counters",
        expand=_reaching,
        labels=("position",),
    ),
    _engine_counter(
        "generation_tokens_total",
        "Generated tokens, with and without speculation.",
        GENERATED,
        field="counters.generation_tokens",
    ),
    _engine_histogram(
        "accepted_tokens_per_draft",
        "Distribution of accepted tokens per draft, recovered exactly: the drafts with at most j "
        "accepted tokens are all drafts less those accepted at position j.",
        DRAFTS,
        PER_POSITION,
        ACCEPTED,
    ),
)


_exporter = row_of(Scope.EXPORTER)
_target, _target_counter = row_of(Scope.TARGET), row_of(Scope.TARGET, Kind.COUNTER)


def _build(version: str) -> Samples:
    return [((version, platform.python_version()), 1.0)]


#: Metrics of a server, and of the exporter.
SERVING: tuple[Metric, ...] = (
    # The target: the server that is polled.
    _target("up", "1 if the last poll of the server succeeded, else 0."),
    _target("last_success_timestamp_seconds", "Unix time of the last successful poll."),
    _target("poll_duration_seconds", "How long the last poll took, from the request to the derived values."),
    _target_counter("poll_errors_total", "Failed polls by reason.", expand=by_name, labels=("reason",)),
    # The exporter itself.
    _exporter(
        "threshold",
        "Every threshold in force, for rules and panels to compare with.",
        field="thresholds",
        expand=by_name,
        labels=("name",),
    ),
    _exporter(
        "config_last_reload_successful",
        "1 if the last reading of the configuration succeeded, else 0.",
        field="reload.successful",
    ),
    _exporter(
        "config_last_reload_success_timestamp_seconds",
        "Unix time at which the configuration in force was read.",
        field="reload.success_timestamp_seconds",
    ),
    _exporter(
        "build_info",
        "Always 1. The exporter's version and the Python that runs it.",
        field="version",
        expand=_build,
        labels=("version", "python_version"),
    ),
)
