"""Values that contradict each other are refused with a message that says what to
change.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import value_cases
from .charts import CHART, refusal, render, render_helm3
from .value_cases import (
    ALERTMANAGER,
    DASHBOARDS,
    INJECTION,
    LEAVES,
    RULES,
    SIDECAR,
    TAP,
    at,
    merged,
    nested,
    on,
)

_TAP = merged(INJECTION, TAP)


def _set(values: dict[str, Any], paths: dict[str, Any]) -> dict[str, Any]:
    return merged(
        values,
        *(nested(tuple(path.split(".")), value) for path, value in paths.items()),
    )


def _refused() -> Iterator[tuple[str, dict[str, Any]]]:
    """How each message begins, and the values that are refused with it."""
    for begin, names, paths in yaml.safe_load(
        Path(__file__).with_name("refused.yml").read_text("utf-8")
    ):
        sets = [getattr(value_cases, name) for name in (names or "").split()]
        yield begin, _set(merged(*sets), paths)


REFUSED = tuple(_refused())

#: Helm 3 does not get so far: it cannot hand such values to the schema.
ONLY_BY_HELM_4 = (
    'exporter: the flag "--x=\\x7f" holds',
    merged(INJECTION, at(exporter__extraArgs=["--x=\x7f"])),
)

#: Only reached where the schema is skipped.
WITHOUT_SCHEMA = merged(
    INJECTION, {"injection": {"labels": {"vllm-specdec-exporter/inject": None}}}
)

_FAIL = re.compile(
    r"""(?:fail|println)\s+(?:\(printf\s+)?(?P<text>"(?:[^"\\]|\\.)*"|`[^`]*`)"""
)


def texts() -> list[str]:
    """Return the text of every fault of the templates, with the verbs of printf."""
    templates = [
        path.read_text("utf-8")
        for path in (CHART / "templates").rglob("*")
        if path.is_file()
    ]
    messages = [
        match["text"][1:-1].replace('\\"', '"')
        for text in templates
        for match in _FAIL.finditer(text)
    ]
    assert (
        len(messages)
        == sum(
            len(re.findall(r"\{\{- (?:fail|println) [^.]", text)) for text in templates
        )
        >= 20
    )
    return messages


def says(text: str, message: str) -> bool:
    """Whether a message is what printf makes of a text."""
    return (
        re.fullmatch(
            ".+".join(re.escape(part) for part in re.split(r"%[sdqv]", text)), message
        )
        is not None
    )


def test_contradictions_are_refused(tmp_path: Path) -> None:
    """Each `fail` is reached, and only with its message, which names existing values
    and what to do.
    """
    messages = [
        (begin, refusal(values)) for begin, values in (*REFUSED, ONLY_BY_HELM_4)
    ]
    assert "/injection" in refusal(WITHOUT_SCHEMA)
    copy = tmp_path / CHART.name
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("values.schema.json"))
    messages.append(("injection.labels is empty", refusal(WITHOUT_SCHEMA, chart=copy)))
    linked = copy / "files" / "rules" / "recording.yml"
    for content in ("../../../../alerts/rules/recording.yml", ""):
        linked.write_text(content)  # as a checkout without symbolic links has it
        # The library keeps charts by their path.
        moved = copy.rename(f"{copy}-{len(content)}")
        messages.append(("prometheusRule, dashboards and", refusal(RULES, chart=moved)))
        moved.rename(copy)

    # Helm 4's library claims one version of Kubernetes; test_chart_conventions.py has
    # others.
    written = [
        text
        for text in texts()
        if not text.startswith("injection.enabled needs Mutating")
    ]
    lines = [line for _, message in messages for line in message.splitlines()]
    reached = {text for text in written for line in lines if says(text, line)}
    assert set(written) == reached
    paths = {
        ".".join(path[:depth]) for path in LEAVES for depth in range(1, len(path) + 1)
    }
    for begin, message in messages:
        assert message.startswith(begin)
        assert all(
            any(says(text, line) for text in written) for line in message.splitlines()
        ), message
        assert set(re.findall(r"[a-zA-Z]+(?:\.[a-zA-Z]+)*", message)) & paths, message
        todo = (
            r"\b(use|set|give|name|switch|remove|make|keep|enable|install|build"
            r"|needs)\b"
        )
        assert re.search(todo, message.lower()), message


def test_all_faults_are_in_one_message() -> None:
    """Also what only the container says, and the tap: a values file is mended in one
    go.
    """
    faults = {
        "serviceMonitor.enabled": True,
        "injection.enabled": True,
        "image.repository": "",
        "env": [],
    }
    faults |= {"tap.enabled": True, "tap.port": 9850, "exporter.specConfig": "{a"}
    begins = (
        "env: ",
        "serviceMonitor.enabled ",
        "tap.port ",
        "image.repository ",
        "exporter.specConfig ",
    )
    lines = refusal(_set({}, faults)).splitlines()
    assert len(lines) == len(begins)
    assert all(
        line.startswith(begin) for line, begin in zip(lines, begins, strict=True)
    ), lines


@pytest.mark.full
def test_helm_3_refuses_the_same() -> None:
    """One case of each value that messages begin with; both render the same
    templates.
    """
    for begin, values in {
        begin.split()[0]: (begin, values) for begin, values in REFUSED
    }.values():
        assert refusal(values, render_helm3).startswith(begin)


def test_similar_values_are_not_refused() -> None:
    """No image without a container; a scrape may take all of its interval; other
    machines' ports are free.

    Amounts are equal however they are spelled.
    """
    assert all(
        render(values) for values in (RULES, DASHBOARDS, ALERTMANAGER, on("podMonitor"))
    )
    for interval, timeout in (("15s", "15000ms"), ("1h", "60m"), ("1d", "24h")):
        assert render(
            _set(
                SIDECAR,
                {"podMonitor.interval": interval, "podMonitor.scrapeTimeout": timeout},
            )
        )
    for limits in (
        {"cpu": 0.2, "memory": "134217728"},
        {"cpu": "200m", "memory": "0.125Gi"},
    ):
        assert render(_set(INJECTION, {"exporter.resources.limits": limits}))
    for port, url in (
        (8000, "http://vllm.chat:8000"),
        (80, "http://127.0.0.1:8000"),
        (9852, "http://127.example.com:9852"),
        (9852, "http://127.0.0.1:8000/v1:9852/"),
    ):
        assert render(_set(_TAP, {"tap.port": port, "exporter.vllmUrls": [url]})), url
