"""The conversion of the samples of one response to the normal form."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..exposition.text import Labels, SampleLine
from .collected import BY_POSITION, Collected, Values
from .dialect import (
    COUNTERS,
    DRAFTING,
    LIFETIME_GAUGES,
    LOAD,
    PER_POSITION,
    STEPS,
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


def normalise(
    dialect: Dialect, lines: tuple[SampleLine, ...], process: str = ""
) -> Reading:
    """Return the normal form of the samples of one response.

    Raises MalformedExposition for a counter that is negative or not finite, a duplicate
    series, an invalid position, and beyond a limit; Unrecognized for several servers
    that no label separates.
    """
    parts = dialect.parts_in(lines)
    configured = _Configured({}, set())
    if "engine_type" in dialect.parts:
        configured = _read_configured(dialect, lines, parts)
    collected = Collected(dialect, parts)
    for line in of_first_rank(dialect, lines) if dialect.ranks else lines:
        collected.add(line)
    collected.limit_series()
    engines = [
        _engine(dialect, key, collected, configured)
        for key in sorted(collected.engines)
    ]
    return Reading(
        dialect=dialect.name,
        engines=tuple(engines),
        speculative=dialect.speculative,
        process=process,
    )


@dataclass(frozen=True, slots=True)
class _Configured:
    """What labels say of the configuration of engines."""

    infos: Mapping[EngineKey, Mapping[str, str]]  # the labels of the info series
    passive: set[EngineKey]  # engines that never verify a draft


def _read_configured(
    dialect: Dialect, lines: Iterable[SampleLine], parts: frozenset[str]
) -> _Configured:
    """Raises Unrecognized for two types of engine that only their type separates."""
    infos: dict[EngineKey, Labels] = {}
    types: dict[tuple[EngineKey, str], str] = {}
    # The info series has labels of its own, which separate no engines.
    identifying: set[str] = set()
    for line in lines:
        if line.name not in dialect.info_names:
            identifying.update(name for name, _ in line.labels)
    for line in lines:
        own_label = "category" if line.name in dialect.category_fields else ""
        labels = tuple(pair for pair in line.labels if pair[0] in identifying)
        key, _ = identify(labels, parts, own_label)
        if line.name in dialect.info_names:
            infos[key] = max(line.labels, infos.get(key, ()))
        engine_type = dict(line.labels).get("engine_type", "")
        if types.setdefault((key, line.name), engine_type) != engine_type:
            raise Unrecognized(
                "several servers in one response, separated by engine_type alone: "
                "poll each of them itself"
            )
    passive = {
        key for (key, _), kind in types.items() if kind and kind == dialect.passive
    }
    return _Configured({key: dict(labels) for key, labels in infos.items()}, passive)


def _engine(
    dialect: Dialect, key: EngineKey, collected: Collected, configured: _Configured
) -> EngineReading:
    values = collected.engines[key]
    fields, gaps = _fields(values)
    defects = collected.defects[key] + gaps
    uncounted = _PASSIVE if key in configured.passive else dialect.uncounted
    if dialect.derived:
        if not gaps:  # a total over the other positions would be too low
            _derive(fields, dialect, configured.infos.get(key, {}))
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

    def part(names: frozenset[str]) -> dict[str, Any]:
        return {name: fields[name] for name in names & fields.keys()}

    lifetime = any(field in LIFETIME_GAUGES for field, _ in values)
    return EngineReading(
        key=key,
        counters=Counters(**part(COUNTERS), resolution=dialect.resolution),
        load=Load(**part(LOAD)),
        steps=Steps(**part(STEPS)),
        lifetime=Lifetime(**part(LIFETIME_GAUGES)) if lifetime else None,
        counts_finished_requests=dialect.counts_finished_requests,
        defects=tuple(defects[:MAX_DEFECTS]),
        drafting=Drafting(**part(DRAFTING)) if dialect.derived else None,
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
            positions = sorted(p for p in by_position if p is not None)
            if positions == list(range(len(positions))):
                fields[field] = tuple(by_position[p] for p in positions)
            else:
                shown = ", ".join(map(str, positions))
                gaps.append(
                    f"positions with gaps ({shown}): per-position values ignored"
                )
        elif None in by_position:
            fields[field] = by_position[None]
    if gaps:
        for field in BY_POSITION:
            fields.pop(field, None)
    return fields, gaps


def _derive(fields: dict[str, Any], dialect: Dialect, info: Mapping[str, str]) -> None:
    """Add the fields that follow from others, in the order of the dialect."""
    values = dict(fields)
    values.update((name, info[name]) for name in dialect.info if name in info)
    for field, formula in dialect.derived.items():
        # A formula without one of its values has no result.
        with contextlib.suppress(LookupError):
            value = formula(values)
            if value is not None:
                fields[field] = values[field] = value
