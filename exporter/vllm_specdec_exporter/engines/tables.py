"""Every engine and its dialects, from the TOML files of this folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..config.tables import read_table
from . import sglang, trtllm
from .dialect import Dialect, Formula
from .engine import Engine

_Row = Mapping[str, Any]  # the table of a dialect

#: Formulas of what servers do not print, by dialect.
_DERIVED: Mapping[str, Mapping[str, Formula]] = {
    "sglang": sglang.DERIVED,
    "trtllm": trtllm.DERIVED,
}


def _load() -> tuple[list[Engine], list[Dialect]]:
    engines = []
    rows: dict[str, _Row] = {}
    for path in Path(__file__).parent.glob("*.toml"):
        table = read_table(__file__, path.name)
        dialects = table.pop("dialects")
        engine = msgspec.convert(table, Engine)
        engines.append(engine)
        for name, row in dialects.items():
            derived = _DERIVED.get(name, {})
            rows[name] = {**row, "name": name, "engine": engine, "derived": derived}
    # All files first: a dialect may be like one of another engine.
    return engines, [dialect_of(row, rows) for row in rows.values()]


def dialect_of(row: _Row, rows: Mapping[str, _Row]) -> Dialect:
    """Return the dialect of a table.

    Its key `like` names the table in `rows` whose keys apply where it has none. Raises
    ValidationError, with the dialect's name, for a key that no dialect has.
    """
    merged = {**rows.get(row.get("like", ""), {}), **row}
    merged.pop("like", None)
    try:
        return msgspec.convert(merged, Dialect)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{row['name']}: {error}") from error


_engines, _dialects = _load()
#: Every dialect, in the order in which they are tried.
DIALECTS: tuple[Dialect, ...] = tuple(
    sorted(_dialects, key=lambda dialect: (-dialect.priority, dialect.name))
)
DIALECT_NAMED: Mapping[str, Dialect] = {dialect.name: dialect for dialect in DIALECTS}
#: The engine of each dialect, by the dialect's name.
ENGINE_OF: Mapping[str, Engine] = {d.name: d.engine for d in DIALECTS}
#: Every engine, as texts list them: vLLM first, which the exporter is made for.
ENGINES: tuple[Engine, ...] = tuple(
    sorted(_engines, key=lambda engine: (engine.name != "vLLM", engine.name.lower()))
)


def dialects_of(engine: Engine) -> tuple[Dialect, ...]:
    """Return the dialects of an engine, those first that are not tried first.

    Dialects with priority are of old or special servers.
    """
    dialects = [dialect for dialect in DIALECTS if dialect.engine is engine]
    return tuple(sorted(dialects, key=lambda dialect: dialect.priority))


def servers_with_latencies() -> str:
    """Return which engines have a time per output token by requests, in words."""
    servers = []
    for engine in ENGINES:
        name = engine.name
        if engine.latencies_since:
            name += f" {engine.latencies_since} or later"
        for dialect in dialects_of(engine):
            if "time_per_output_token" in dialect.histograms:
                servers.append(name)
                break
    return listed(servers, "or")


def listed(words: list[str], last: str = "and") -> str:
    """Return words as a list in a sentence."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
