"""The metric families a server publishes, read from the package's data files.

A data file describes names, HELP and TYPE, labels and bucket bounds; what a sample's value is
comes from the simulation, looked up by the family's `source`.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

#: The data files.
SERVERS = ("vllm", "vllm-rust", "vllm-v0", "lmdeploy", "llamacpp")

#: Values of the `position` label: one for each position that can be drafted.
POSITIONS = "positions"

#: Bucket bounds that depend on the model: 1, 2, 5, 10, 20, 50, ... up to its maximum length.
ONE_TWO_FIVE = "1-2-5"


@dataclass(frozen=True)
class Family:
    """One metric family.

    Attributes:
        name: Family name, for a counter without the `_total` that its samples carry.
        type: counter, gauge, histogram or summary.
        help: The HELP text.
        scope: `engine` (a sample per engine), `model` (one per model) or `server` (one).
        source: Key under which the simulation keeps the values.
        variant_label: Label that tells apart several samples of the same owner, if any.
        variant_values: Its values; empty with `position`, whose values depend on K.
        labels: Constant labels.
        buckets: Finite bucket bounds; empty if they depend on the model, or without buckets.
        model_sized: Whether the bounds are 1-2-5 steps up to the maximum model length.
        created: Whether the server tells when a sample's counting began.
        requires: What must be there before the samples are: `speculation`, `drafts`, `traffic`
            or `v0_sample`; empty if nothing.
        names_model: Whether samples carry `model_name`.
        constant: Values that never change, one per variant.
        combine: How several engines become one sample: sum, mean or max.
        real: Whether the value is a real number rather than a count.
        bare: Whether a counter's sample lacks the suffix `_total`.
    """

    name: str
    type: str
    help: str
    scope: str
    source: str
    variant_label: str = ""
    variant_values: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    model_sized: bool = False
    created: bool = False
    requires: str = ""
    names_model: bool = True
    constant: tuple[float, ...] = ()
    combine: str = "sum"
    real: bool = False
    bare: bool = False

    @property
    def per_position(self) -> bool:
        """Whether there is a sample for every position that can be drafted."""
        return self.variant_label == "position"

    def bounds(self, max_model_len: int) -> tuple[float, ...]:
        """Return the finite bucket bounds for a model of this maximum length in tokens."""
        return one_two_five(max_model_len) if self.model_sized else self.buckets


@lru_cache(maxsize=32)
def one_two_five(limit: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50, ... up to the limit."""
    steps: list[float] = []
    scale = 1
    while scale <= limit:
        steps.extend(float(step * scale) for step in (1, 2, 5) if step * scale <= limit)
        scale *= 10
    return tuple(steps)


@lru_cache(maxsize=8)
def load_families(server: str) -> tuple[Family, ...]:
    """Read the families of a server, in the order in which it publishes them.

    Args:
        server: Name of a data file, one of `SERVERS`.
    """
    resource = files(__package__) / "data" / f"{server}.json"
    document = json.loads(resource.read_text(encoding="utf-8"))
    return tuple(_family(entry) for entry in document["families"])


def _family(entry: dict[str, Any]) -> Family:
    variant = entry.get("variant", {})
    values = variant.get("values", ())
    buckets = entry.get("buckets", ())
    return Family(
        name=entry["name"],
        type=entry["type"],
        help=entry["help"],
        scope=entry["scope"],
        source=entry.get("source", entry["name"].rpartition(":")[2]),
        variant_label=variant.get("label", ""),
        variant_values=() if values == POSITIONS else tuple(values),
        labels=entry.get("labels", {}),
        buckets=() if buckets == ONE_TWO_FIVE else tuple(float(bound) for bound in buckets),
        model_sized=buckets == ONE_TWO_FIVE,
        created=entry.get("created", False),
        requires=entry.get("requires", ""),
        names_model=not entry.get("omit_model_name", False),
        constant=tuple(entry.get("constant", ())),
        combine=entry.get("combine", "sum"),
        real=entry.get("real", False),
        bare=entry.get("bare", False),
    )


@lru_cache(maxsize=32)
def histogram_bounds(max_model_len: int) -> dict[str, tuple[float, ...]]:
    """Return for each histogram, by source, the bucket bounds of all servers taken together."""
    bounds: dict[str, set[float]] = {}
    for server in SERVERS:
        for family in load_families(server):
            if family.type == "histogram":
                bounds.setdefault(family.source, set()).update(family.bounds(max_model_len))
    return {source: tuple(sorted(limits)) for source, limits in bounds.items()}
