"""The conversion of the samples of one response to the normal form."""

import contextlib
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from msgspec import Struct, convert

from ..exposition.text import Labels, SampleLine
from .collected import BY_POSITION, Collected, Slots, Values
from .dialect import (
    LIFETIME_GAUGES,
    PER_POSITION,
    Dialect,
    Unrecognized,
    identify,
)
from .limits import MAX_DEFECTS
from .ranks import of_first_rank
from .reading import (
    Counters,
    Drafting,
    EngineKey,
    EngineReading,
    Lifetime,
    Load,
    Reading,
    Steps,
)

_PASSIVE = "a prefill worker: the decode workers verify drafts and count them"


class Configured(Struct, frozen=True):
    """What labels say of the configuration of engines."""

    infos: Mapping[EngineKey, Labels]  # the labels of the info series
    passive: frozenset[EngineKey]  # engines that never verify a draft


class Arrangement(Struct, frozen=True):
    """What the names and labels of a response say; it holds for each response with the
    same series.
    """

    dialect: Dialect
    slots: Slots  # where the values belong
    configured: Configured


def arrange(dialect: Dialect, lines: tuple[SampleLine, ...]) -> Arrangement:
    """Return what the names and labels of a response say.

    Raises MalformedExposition for a duplicate series, an invalid position, and beyond a
    limit; Unrecognized for several servers that no label separates.
    """
    parts = dialect.parts_in(lines)
    configured = Configured({}, frozenset())
    if "engine_type" in dialect.parts:
        configured = _read_configured(dialect, lines, parts)
    slots = Slots(dialect, parts)
    for index in of_first_rank(dialect, lines):
        slots.add(index, lines[index])
    slots.complete()
    return Arrangement(dialect, slots, configured)


def normalise(
    arrangement: Arrangement, lines: tuple[SampleLine, ...], process: str = ""
) -> Reading:
    """Return the normal form of the samples of one response, which has this
    arrangement.

    Raises MalformedExposition for a counter that is negative or not finite.
    """
    dialect = arrangement.dialect
    collected = Collected(arrangement.slots, lines)
    engines = [
        _engine(dialect, key, collected, arrangement.configured)
        for key in collected.engines
    ]
    return Reading(
        dialect=dialect.name,
        engines=tuple(engines),
        speculative=dialect.speculative,
        process=process,
    )


def _read_configured(
    dialect: Dialect, lines: Iterable[SampleLine], parts: frozenset[str]
) -> Configured:
    """Raises Unrecognized for two types of engine that only their type separates."""
    infos: dict[EngineKey, Labels] = {}
    passive: set[EngineKey] = set()
    types: dict[tuple[EngineKey, str], str] = {}
    # The info series has labels of its own, which separate no engines.
    identifying: set[str] = set()
    for line in lines:
        if line.name not in dialect.info_names:
            identifying.update(dict(line.labels))
    for line in lines:
        own_label = ""
        if line.name in dialect.category_fields:
            own_label = dialect.category_label
        labels = type(line.labels)(
            pair for pair in line.labels if pair[0] in identifying
        )
        key, _ = identify(labels, parts, own_label)
        if line.name in dialect.info_names:
            infos[key] = max(line.labels, infos.get(key, ()))
        engine_type = dict(line.labels).get("engine_type", "")
        if types.setdefault((key, line.name), engine_type) != engine_type:
            raise Unrecognized(
                "several servers in one response, separated by engine_type alone: "
                "poll each of them itself"
            )
        if engine_type and engine_type == dialect.passive:
            passive.add(key)
    return Configured(infos, frozenset(passive))


def _engine(
    dialect: Dialect, key: EngineKey, collected: Collected, configured: Configured
) -> EngineReading:
    values = collected.engines[key]
    fields, gaps = _fields(values)
    defects = collected.defects[key] + gaps
    uncounted = dialect.uncounted
    if key in configured.passive:
        uncounted = _PASSIVE
    if dialect.derived:
        if not gaps:  # a total over the other positions would be too low
            _derive(fields, dialect, dict(configured.infos.get(key, ())))
        active = any(fields.get(name) for name in ("generation_tokens", *dialect.terms))
        if active and fields.get("drafts") is None:
            uncounted = uncounted or "".join(gaps[-1:]) or dialect.missing
    counts_positions = PER_POSITION in dialect.series
    if (
        counts_positions
        and fields.get("accepted_tokens")
        and not fields.get(PER_POSITION)
        and not defects
    ):
        defects.append("accepted tokens without any per-position series")
    lifetime = None
    if any(field in LIFETIME_GAUGES for field, _ in values):
        lifetime = convert(fields, Lifetime)
    drafting = None
    if dialect.derived:
        drafting = convert(fields, Drafting)
    # Each part takes its own fields and leaves the others.
    return EngineReading(
        key=key,
        counters=convert({**fields, "resolution": dialect.resolution}, Counters),
        load=convert(fields, Load),
        steps=convert(fields, Steps),
        lifetime=lifetime,
        counts_finished_requests=dialect.counts_finished_requests,
        misses_drafts=dialect.misses_drafts,
        defects=tuple(defects[:MAX_DEFECTS]),
        drafting=drafting,
        derived="accepted_tokens" in dialect.derived and not counts_positions,
        uncounted=uncounted,
    )


def _fields(values: Values) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of an engine, and which fields lack positions."""
    fields: dict[str, Any] = {}
    gaps: list[str] = []
    # The preferred name comes last and overwrites the others.
    for (field, _), by_position in sorted(
        values.items(), key=itemgetter(0), reverse=True
    ):
        if field in BY_POSITION:
            positions = sorted(by_position)
            if positions == list(range(len(positions))):
                fields[field] = tuple(by_position[p] for p in positions)
            else:
                shown = ", ".join(map(str, positions))
                gaps.append(
                    f"positions with gaps ({shown}): per-position values ignored"
                )
        elif by_position:
            fields[field] = by_position[0]
    if gaps:
        for field in BY_POSITION:
            fields.pop(field, None)
    return fields, gaps


def _derive(fields: dict[str, Any], dialect: Dialect, info: Mapping[str, str]) -> None:
    """Add the fields that follow from others, in the order of the dialect."""
    values = dict(fields)
    for label in dialect.info:
        if label in info:
            values[label] = info[label]
    for field, formula in dialect.derived.items():
        # A formula without one of its values has no result.
        with contextlib.suppress(LookupError):
            value = formula(values)
            if value is not None:
                fields[field] = values[field] = value
