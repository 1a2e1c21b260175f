"""YAML, JSON, PromQL and units of the pages: each is read by the tool that it is for."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import TYPE_CHECKING

import promql_parser
import pytest
import yaml

from alerts import test_runbooks
from alerts.test_runbooks import baseline, live  # noqa: F401 the world in which runbooks' queries are asked
from docs.fragments import READERS, reader_of
from docs.inventory import Block, blocks
from docs.ways import Way, find
from support.programs import COMMAND, find_program
from systemd.unit import UNIT, only
from vllm_specdec_exporter.option_table import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE = 45.0


def of(way: Way) -> tuple[Block, ...]:
    """The blocks to which a thing happens."""
    return tuple(block for block in blocks() if find(block).way is way)


EACH = pytest.mark.parametrize("block", of(Way.DOCUMENT), ids=lambda block: block.where)


@EACH
def test_a_document_is_taken_by_its_tool(block: Block, tmp_path: Path) -> None:
    """YAML and JSON."""
    document = yaml.safe_load(block.text) if block.language == "yaml" else json.loads(block.text)
    reader = reader_of(document)
    assert reader is not None
    reader.read(document, tmp_path)


WRONG = {
    "promtool check config": "scrape_configs: [{job_name: a, interval: 5s}]",
    "promtool check rules": "groups: [{name: a, rules: [{record: a, expr: 'b('}]}]",
    "amtool check-config": "route: {receiver: nobody}",
    "Kubernetes' schemas": "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {container: []}}",
    "Kubernetes' schema of a pod": "initContainers: [{name: x, image: y, argz: []}]",
    "the schema of compose files": "services: {a: {imag: b}}",
    "--web.config.file": "tls_server_config: {cert: a}",
    "--cost.file": "profiles: {a: {draft: {}}}",
    "--scenario.file": "phases: [{phase: nonsense, seconds: 1}]",
    "our ConfigMaps": "sidecar: {dashboards: {label: x, labelValue: '1', folderAnnotation: grafana_folder}}",
    "docs/push.schema.json": "requests: [{model: 7}]",
    "act": "{version: '4', alerts: 7}",
    "requests": "{request: {}, response: {}}",
    "the chart": "exporter: {vllmUrl: x}",
    "--config.file": "poll: {intervall: 5s}",
}


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_every_reader_refuses_what_is_wrong(reader: object, tmp_path: Path) -> None:
    """None of the checks is one that cannot fail."""
    assert isinstance(reader, type(READERS[0]))
    document = yaml.safe_load(WRONG[reader.name])
    assert reader_of(document) is reader
    with pytest.raises(Exception):  # noqa: B017, PT011 each tool has errors of its own
        reader.read(document, tmp_path)


# --- queries


def expressions(text: str) -> list[str]:
    """A block is one expression, or one a line."""
    try:
        promql_parser.parse(text)
    except ValueError:
        return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [text]


QUERIES = tuple(
    (block.where, expression) for block in of(Way.PROMQL) for expression in expressions(block.text)
)


@pytest.mark.parametrize(("where", "query"), QUERIES)
def test_a_query_is_a_promql_expression(where: str, query: str) -> None:
    """And so is each that the pages of the runbooks do not have."""
    assert promql_parser.parse(query) is not None, where


@pytest.mark.timeout(180)
def test_every_query_finds_something(live: test_runbooks.Live) -> None:  # noqa: F811
    """In a service with traffic and all rules; unless it says that it is empty in good times."""
    missing = [query for _, query in QUERIES if test_runbooks.EMPTY not in query]
    assert missing
    end = time.monotonic() + _PATIENCE
    while missing := [query for query in missing if not test_runbooks.yields(live.prometheus, query)]:
        assert time.monotonic() < end, f"nothing for {missing}"
        time.sleep(0.5)


# --- systemd


@pytest.mark.parametrize("block", of(Way.UNIT), ids=lambda block: block.where)
def test_a_drop_in_is_taken_by_systemd(block: Block, tmp_path: Path) -> None:
    """Beside the unit, whose program is that of this environment; its variables are settings."""
    assert verified(block.text, tmp_path) == ""
    said = set(re.findall(r"\bVLLM_SPECDEC_EXPORTER_\w+", block.text))
    assert said <= {option.variable for option in OPTIONS}


def test_systemd_complains_of_an_unknown_setting(tmp_path: Path) -> None:
    assert "LoadCredentials" in verified("[Service]\nLoadCredentials=a:/b\n", tmp_path)


def verified(text: str, folder: Path) -> str:
    """Return what systemd complains of, of the unit with a drop-in."""
    unit = folder / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace(only("ExecStart"), COMMAND), encoding="utf-8")
    drop_in = folder / f"{UNIT.name}.d"
    drop_in.mkdir()
    (drop_in / "override.conf").write_text(text, encoding="utf-8")
    analyze = find_program("systemd-analyze", "systemd")
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr
