"""What `act` says of itself: events by kind and action."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from .. import __version__
from .decision import Action, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from .event import ActEvent

EVENTS = "vllm_specdec_act_events_total"
BUILD = "vllm_specdec_act_build_info"

#: What the label `action` can be: `none` for an alert without one, `unknown` for one with any other.
ACTIONS = (*Action, "none", "unknown")


class Tally(Collector):
    """Counts events. Every series is there from the start, so that the first increase can be seen."""

    def __init__(self) -> None:
        self._counts = Counter({(str(kind), str(action)): 0 for kind in EventKind for action in ACTIONS})

    def count(self, event: ActEvent) -> None:
        """Count an event."""
        self._counts[str(event.kind), event.action] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        events = CounterMetricFamily(
            EVENTS,
            "Alerts by what became of them and by the action they ask for.",
            labels=("event", "action"),
        )
        for labels, value in self._counts.items():
            events.add_metric(labels, value)
        yield events
        build = GaugeMetricFamily(BUILD, "1, with the version that runs.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build
