"""The values of every engine in one response, before they become its normal form."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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


class Slot(NamedTuple):
    """Where the value of a line belongs."""

    line: int  # its index in the response
    key: EngineKey
    entry: Entry
    position: int  # 0 for a field without positions
    maximum: float  # that the value may have


class Slots:
    """Where the values of a response belong, by the names and labels of its lines.

    They are the same for each response with the same series, whatever its values.
    """

    def __init__(self, dialect: Dialect, parts: frozenset[str]) -> None:
        self.of_lines: list[Slot] = []
        self.defects: defaultdict[EngineKey, list[str]] = defaultdict(list)
        self.dialect = dialect
        self._parts = parts
        self._engines: set[EngineKey] = set()
        self._seen: set[tuple[Entry, Labels]] = set()

    @property
    def engines(self) -> list[EngineKey]:
        """The engines of the response, sorted."""
        return sorted(self._engines)

    def add(self, index: int, line: SampleLine) -> None:
        """Add a line, if the dialect reads it.

        Raises MalformedExposition for a duplicate series, an invalid position, and
        beyond a limit.
        """
        entry = self.dialect.fields.get(line.name)
        own_label = ""
        if entry is None:
            entry = self.dialect.of_category(line)
            own_label = self.dialect.category_label
        if entry is None:
            return
        # Without the name: two spellings of one series must not be added.
        if (entry, line.labels) in self._seen:
            raise MalformedExposition(f"duplicate series {_series(line)}")
        self._seen.add((entry, line.labels))
        field = entry[0]
        if field in BY_POSITION:
            own_label = self.dialect.position_label
        key, text = identify(line.labels, self._parts, own_label)
        self._add_engine(key, line)
        position = _position(line, text) if field in BY_POSITION else 0
        maximum = _GAUGE_MAXIMUM.get(field, MAX_VALUE)
        self.of_lines.append(Slot(index, key, entry, position, maximum))

    def _add_engine(self, key: EngineKey, line: SampleLine) -> None:
        """Add an engine, within the limits of a response."""
        if max(len(key.model_name), len(key.engine)) > MAX_LABEL:
            raise MalformedExposition(
                f"{line.name}: a label of more than {MAX_LABEL} characters"
            )
        if key not in self._engines and len(self._engines) >= MAX_ENGINES:
            labels = ", ".join(_separating_labels(self._engines))
            raise MalformedExposition(
                f"more than {MAX_ENGINES} engines in one response, by {labels}"
            )
        self._engines.add(key)

    def complete(self) -> None:
        """Drop the values per position if there are too many; MalformedExposition for
        too much text. No line can be added any more.
        """
        self._seen.clear()
        by_position = {
            (slot.key, slot.entry, slot.position)
            for slot in self.of_lines
            if slot.entry[0] in BY_POSITION
        }
        positions = Counter(key for key, _, _ in by_position)
        published = 0
        for key in self._engines:
            series = SERIES_OF_ENGINE + SERIES_OF_POSITION * positions[key]
            published += len(key.model_name + key.engine) * series
        if published > MAX_PUBLISHED:
            raise MalformedExposition(
                f"its labels would take {MAX_PUBLISHED} characters of /metrics or more"
            )
        if len(by_position) > MAX_ALL_POSITIONS:
            self._drop_positions({(key, entry) for key, entry, _ in by_position})

    def _drop_positions(self, dropped: Iterable[tuple[EngineKey, Entry]]) -> None:
        kept = [slot for slot in self.of_lines if slot.entry[0] not in BY_POSITION]
        for key, _ in dropped:
            self.defects[key].append(
                f"more than {MAX_ALL_POSITIONS} positions in one response: "
                "per-position values ignored"
            )
        self.of_lines = kept


class Collected:
    """The values and defects of every engine in one response."""

    def __init__(self, slots: Slots, lines: Sequence[SampleLine]) -> None:
        """Take the values of `lines`, for which `slots` were made; series that differ
        only in parts of an engine are merged.

        Raises MalformedExposition for a counter that is negative or not finite.
        """
        self.engines: dict[EngineKey, Values] = {key: {} for key in slots.engines}
        self.defects: defaultdict[EngineKey, list[str]] = defaultdict(list)
        self._terms = slots.dialect.terms
        for line, key, entry, position, maximum in slots.of_lines:
            values = self.engines[key].setdefault(entry, {})
            value = lines[line].value
            if not 0 <= value <= maximum:
                self._reject(key, entry[0], lines[line])
                continue
            earlier = values.get(position, 0.0)
            if entry[0] in _MERGED_BY_MAXIMUM:
                values[position] = max(earlier, value)
            else:
                values[position] = earlier + value
        for key, texts in slots.defects.items():
            self.defects[key] += texts

    def _reject(self, key: EngineKey, field: str, line: SampleLine) -> None:
        """Refuse the response for an impossible counter; of a gauge, only note it."""
        if field in LIFETIME_GAUGES and math.isnan(line.value):
            return  # V0 before its first draft
        if field in COUNTERS or field in self._terms:
            raise MalformedExposition(
                f"{_series(line)} is {line.value}: "
                f"a counter must be from 0 to {MAX_VALUE:g}"
            )
        self.defects[key].append(f"{line.name} is {line.value}")


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
