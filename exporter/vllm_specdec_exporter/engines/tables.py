"""Every engine and its dialects, from the TOML files of this folder."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from . import sglang, trtllm
from .dialect import Dialect, Formula
from .engine import Engine

#: Formulas of what servers do not print, by dialect.
_DERIVED: Mapping[str, Mapping[str, Formula]] = {
    "sglang": sglang.DERIVED,
    "trtllm": trtllm.DERIVED,
}
_KEYS = {field.name for field in fields(Dialect)}


def _load() -> Iterator[Dialect]:
    files = Path(__file__).parent.glob("*.toml")
    documents = [tomllib.loads(path.read_text("utf-8")) for path in files]
    rows: dict[str, dict[str, Any]] = {}
    for document in documents:
        rows |= document["dialects"]
    for document in documents:
        names = document.pop("dialects")
        engine = msgspec.convert(document, Engine)
        for name in names:
            yield _dialect(name, rows, engine)


def _dialect(name: str, rows: Mapping[str, dict[str, Any]], engine: Engine) -> Dialect:
    """Return a dialect from its table; `like` names the one whose other keys apply."""
    row = {**rows.get(rows[name].get("like", ""), {}), **rows[name]}
    row.pop("like", None)
    if unknown := row.keys() - _KEYS:
        raise ValueError(f"dialect {name}: unknown: {', '.join(sorted(unknown))}")
    row |= {"name": name, "engine": engine}
    # Functions are no data that could be converted.
    return replace(msgspec.convert(row, Dialect), derived=_DERIVED.get(name, {}))


#: Every dialect, in the order in which they are tried.
DIALECTS: tuple[Dialect, ...] = tuple(
    sorted(_load(), key=lambda dialect: (-dialect.priority, dialect.name))
)
DIALECT_NAMED: Mapping[str, Dialect] = {dialect.name: dialect for dialect in DIALECTS}
#: The engine of each dialect, by the dialect's name.
ENGINE_OF: Mapping[str, Engine] = {d.name: d.engine for d in DIALECTS}
#: Every engine, as texts list them: vLLM first, which the exporter is made for.
ENGINES: tuple[Engine, ...] = tuple(
    sorted(
        {engine.name: engine for engine in ENGINE_OF.values()}.values(),
        key=lambda engine: (engine.name != "vLLM", engine.name.lower()),
    )
)


def dialects_of(engine: Engine) -> tuple[Dialect, ...]:
    """Return the dialects of an engine, those first that are not tried first.

    Dialects with priority are of old or special servers.
    """
    own = [dialect for dialect in DIALECTS if dialect.engine is engine]
    return tuple(sorted(own, key=lambda dialect: dialect.priority))


def servers_with_latencies() -> str:
    """Return which engines have a time per output token by requests, in words."""
    words = []
    for engine in ENGINES:
        histograms = (dialect.histograms for dialect in dialects_of(engine))
        if any("time_per_output_token" in names for names in histograms):
            since = engine.latencies_since
            words.append(f"{engine.name} {since} or later" if since else engine.name)
    return listed(words, "or")


def listed(words: list[str], last: str = "and") -> str:
    """Return words as a list in a sentence."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
