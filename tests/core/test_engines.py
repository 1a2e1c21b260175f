"""The tables of engines: what each must have, and what is written from them."""

import tomllib

import msgspec
import pytest

from support.builders import DATA
from vllm_specdec_exporter.engines import (
    DIALECTS,
    ENGINE_OF,
    ENGINES,
    Engine,
    read,
    tables,
)

ROOT = DATA.parents[1]
FILES = sorted(ROOT.glob("exporter/vllm_specdec_exporter/engines/*.toml"))


def test_a_table_is_an_engine_and_each_engine_has_a_recorded_answer() -> None:
    """Dialects with priority are those of old or special servers."""
    named = {tomllib.loads(path.read_text("utf-8"))["name"] for path in FILES}
    assert named == {engine.name for engine in ENGINES}
    assert len(ENGINES) == len(FILES)
    assert ENGINES[0].name == "vLLM"
    without = {dialect.name for dialect in DIALECTS}
    for path in (DATA / "upstream").glob("*.txt"):
        without.discard(read(path.read_bytes()).dialect)
    # Aphrodite's metrics are vLLM's under another prefix; the gauges of an old SGLang
    # are read from composed lines.
    assert without == {"aphrodite", "aphrodite-diffusion", "sglang-gauges"}


@pytest.mark.parametrize("key", ["name", "speculation_option"])
def test_what_an_engine_is_called_and_what_makes_it_speculate_has_no_default(
    key: str,
) -> None:
    """A default would be another engine's."""
    table = {"name": "Foo", "speculation_option": "--draft"}
    assert msgspec.convert(table, Engine).speculation_option == "--draft"
    del table[key]
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert(table, Engine)


def test_a_misspelt_key_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="specualtion"):
        msgspec.convert(
            {"name": "Foo", "speculation_option": "-s", "specualtion": 1}, Engine
        )
    row = {"name": "foo", "prefixes": ["foo:"], "sereis": {}}
    with pytest.raises(ValueError, match="sereis"):
        tables.dialect_of(row, {})


def test_what_an_engine_says_of_a_finding_is_a_finding() -> None:
    """A misspelt name would never be used."""
    path = ROOT / "exporter/vllm_specdec_exporter/judgement/messages.toml"
    findings = tomllib.loads(path.read_text("utf-8"))["finding"]
    names = set().union(*(engine.actions for engine in ENGINES))
    assert names - findings.keys() == {"method_unknown"}


def test_every_engine_has_a_dialect_and_every_dialect_its_engine() -> None:
    assert {dialect.name: dialect.engine for dialect in DIALECTS} == ENGINE_OF
    for engine in ENGINES:
        assert engine in ENGINE_OF.values(), engine.name
