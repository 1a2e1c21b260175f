"""What of a past is asked for: which series, of which time. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from .configuration import Configuration, Replica

#: Equal configurations are one object: there is one for each replica and time.
shared_configuration = cache(Configuration)


@dataclass(frozen=True, slots=True)
class PastScope:
    """Which series, and of which time: Unix times in seconds."""

    since: float
    until: float
    match: str = ""  # matchers of PromQL, separated by commas
    model_name: str = ""
    by_instance: bool = False
    block: float | None = None  # seconds; ``None`` for a length by the data
    #: Times to compare instead of configurations.
    ranges: Mapping[str, tuple[float, float]] | None = None

    @property
    def of_model(self) -> str:
        """The matcher of the model, empty for all."""
        if self.model_name:
            return f"model_name={json.dumps(self.model_name)}"
        return ""

    @property
    def matchers(self) -> str:
        """The matchers of every selector of an engine."""
        return ",".join(filter(None, (self.of_model, self.match.strip().strip(","))))

    def chosen(self, time: float, shown: Configuration) -> Configuration | None:
        """Return the configuration at a time: what is shown, or if ranges are compared,
        the one it is in.
        """
        if self.ranges is None:
            return shown
        for name, (begin, end) in self.ranges.items():
            if begin <= time <= end:
                return shared_configuration(None, name=name)
        return None

    def group(self, replica: Replica) -> str:
        """Return the name of what a replica belongs to."""
        labels = defaultdict(str, replica)
        names = [labels["model_name"] or "the only model"]
        if self.by_instance:
            names += [
                labels["cluster"],
                labels["namespace"],
                labels["exported_namespace"],
                labels["pod"] or labels["instance"],
                labels["exported_pod"] or labels["exported_instance"],
                labels["ReplicaId"],
            ]
        return " ".join(filter(None, names))
