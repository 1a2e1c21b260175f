"""The values of every engine in one response, before they become its normal form."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ..exposition.text import Labels, MalformedExposition, SampleLine
from .dialect import (
    COUNTERS,
    DRAFTED_PER_POSITION,
    LIFETIME_GAUGES,
    MAX_POSITIONS,
    PER_POSITION,
    Dialect,
    Entry,
    identify,
)
from .limits import (
    MAX_ALL_POSITIONS,
    MAX_ENGINES,
    MAX_LABEL,
    MAX_PUBLISHED,
    MAX_QUOTED,
    MAX_VALUE,
    SERIES_OF_ENGINE,
    SERIES_OF_POSITION,
)
from .reading import EngineKey

BY_POSITION = frozenset({PER_POSITION, DRAFTED_PER_POSITION})

#: Maximum of the gauges that are ratios, or count the tokens of a draft.
_GAUGE_MAXIMUM: Mapping[str, float] = {
    "kv_cache_usage_ratio": 1.0,
    "verified_tokens": MAX_POSITIONS,
    "draft_steps": MAX_POSITIONS,
}

#: Of series of one engine that differ only in its parts, such as ``pid``, the largest
#: of these counts. Others are added.
_MERGED_BY_MAXIMUM = _GAUGE_MAXIMUM.keys() | {
    "created",
    "lifetime_acceptance_ratio",
    "lifetime_efficiency",
}

#: The values of an engine: by entry, then by position. A field without positions has
#: its value at 0; a gauge without a valid value has none.
Values = dict[Entry, dict[int, float]]


class Collected:
    """The values and defects of every engine in one response."""

    def __init__(self, dialect: Dialect, parts: frozenset[str]) -> None:
        self.engines: dict[EngineKey, Values] = {}
        self.defects: defaultdict[EngineKey, list[str]] = defaultdict(list)
        self._dialect = dialect
        self._parts = parts
        self._seen: set[tuple[Entry, Labels]] = set()

    def add(self, line: SampleLine) -> None:
        """Add a sample, if the dialect reads it; series that differ only in parts of an
        engine are merged.

        Raises MalformedExposition for a counter that is negative or not finite, a
        duplicate series, an invalid position, and beyond a limit.
        """
        entry = self._dialect.fields.get(line.name)
        own_label = ""
        if entry is None:
            entry = self._dialect.of_category(line)
            own_label = self._dialect.category_label
        if entry is None:
            return
        # Without the name: two spellings of one series must not be added.
        if (entry, line.labels) in self._seen:
            raise MalformedExposition(f"duplicate series {_series(line)}")
        self._seen.add((entry, line.labels))
        field = entry[0]
        has_positions = field in BY_POSITION
        if has_positions:
            own_label = self._dialect.position_label
        key, text = identify(line.labels, self._parts, own_label)
        values = self._values_of(key, line).setdefault(entry, {})
        if field in LIFETIME_GAUGES and math.isnan(line.value):
            return  # V0 before its first draft
        if not 0 <= line.value <= _GAUGE_MAXIMUM.get(field, MAX_VALUE):
            self._reject(key, field, line)
            return
        position = 0
        if has_positions:
            position = _position(line, text)
        value = values.get(position, 0.0)
        if field in _MERGED_BY_MAXIMUM:
            values[position] = max(value, line.value)
        else:
            values[position] = value + line.value

    def _values_of(self, key: EngineKey, line: SampleLine) -> Values:
        """Return the values of an engine, within the limits of a response."""
        if max(len(key.model_name), len(key.engine)) > MAX_LABEL:
            raise MalformedExposition(
                f"{line.name}: a label of more than {MAX_LABEL} characters"
            )
        if key not in self.engines and len(self.engines) >= MAX_ENGINES:
            labels = ", ".join(_separating_labels(self.engines))
            raise MalformedExposition(
                f"more than {MAX_ENGINES} engines in one response, by {labels}"
            )
        return self.engines.setdefault(key, {})

    def _reject(self, key: EngineKey, field: str, line: SampleLine) -> None:
        """Refuse the response for an impossible counter; of a gauge, only note it."""
        if field in COUNTERS or field in self._dialect.terms:
            raise MalformedExposition(
                f"{_series(line)} is {line.value}: "
                f"a counter must be from 0 to {MAX_VALUE:g}"
            )
        self.defects[key].append(f"{line.name} is {line.value}")

    def limit_series(self) -> None:
        """Drop the values per position if there are too many; MalformedExposition for
        too much text.
        """
        positions = Counter[EngineKey]()
        for key, values in self.engines.items():
            for (field, _), by_position in values.items():
                if field in BY_POSITION:
                    positions[key] += len(by_position)
        published = 0
        for key in self.engines:
            series = SERIES_OF_ENGINE + SERIES_OF_POSITION * positions[key]
            published += len(key.model_name + key.engine) * series
        if published > MAX_PUBLISHED:
            raise MalformedExposition(
                f"its labels would take {MAX_PUBLISHED} characters of /metrics or more"
            )
        if positions.total() > MAX_ALL_POSITIONS:
            self._drop_positions()

    def _drop_positions(self) -> None:
        for key, values in self.engines.items():
            for entry in tuple(values):
                if entry[0] in BY_POSITION:
                    del values[entry]
                    self.defects[key].append(
                        f"more than {MAX_ALL_POSITIONS} positions in one response: "
                        "per-position values ignored"
                    )


def _separating_labels(engines: Iterable[EngineKey]) -> list[str]:
    labels = set()
    for key in engines:
        for part in key.engine.split(","):
            name, _, _ = part.rpartition("=")
            labels.add(name or "engine")
    return sorted(labels)


def _position(line: SampleLine, text: str) -> int:
    """Return the position that the value of a label says."""
    # At most three digits: `int` of a long text takes long.
    if text.isascii() and text.isdecimal() and len(text) <= 3:
        position = int(text)
        if position < MAX_POSITIONS:
            return position
    raise MalformedExposition(f"{_series(line)} has no valid position label")


def _series(line: SampleLine) -> str:
    """Return a series for an error."""
    labels = ",".join(f'{name}="{value[:80]}"' for name, value in line.labels)
    # Untrusted text: no control characters for the terminal, bounded length for the
    # log.
    quoted = ""
    for character in labels[:MAX_QUOTED]:
        quoted += character if character.isprintable() else " "
    if len(labels) > MAX_QUOTED:
        quoted += "…"
    return f"{line.name}{{{quoted}}}"
