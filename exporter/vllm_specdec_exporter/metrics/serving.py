"""The servers that are polled, and the exporter itself."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from ..metric import Kind, Metric, Scope, by_name, row_of

if TYPE_CHECKING:
    from ..metric import Samples

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
