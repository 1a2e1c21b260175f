"""Values that contradict each other are refused with a message that says what to
change.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repository import Json, data_of

from . import value_cases
from .charts import CHART, refusal, render, render_helm3
from .value_cases import (
    ALERTMANAGER,
    DASHBOARDS,
    INJECTION,
    PATHS,
    RULES,
    SIDECAR,
    TAP,
    at,
    merged,
    nested,
    on,
)

_TAP = merged(INJECTION, TAP)


def _set(values: Json, paths: Json) -> Json:
    parts = (nested(tuple(path.split(".")), value) for path, value in paths.items())
    return merged(values, *parts)


def _refused() -> Iterator[tuple[str, Json]]:
    """How each message begins, and the values that are refused with it."""
    for begin, names, paths in data_of("tests/helm/refused.yml"):
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

_REMEDY = re.compile(
    r"\b(use|set|give|name|switch|remove|make|keep|enable|install|build|needs)\b"
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
    source = "\n".join(templates)
    messages = [
        match["text"][1:-1].replace('\\"', '"') for match in _FAIL.finditer(source)
    ]
    # None is written in a way that the pattern does not see.
    assert len(messages) == len(re.findall(r"\{\{- (?:fail|println) [^.]", source))
    assert len(messages) >= 20
    return messages


def says(text: str, message: str) -> bool:
    """Whether a message is what printf makes of a text."""
    form = ".+".join(map(re.escape, re.split(r"%[sdqv]", text)))
    return re.fullmatch(form, message) is not None


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

    # Helm 4's library claims one version of Kubernetes; test_chart_conventions.py has
    # others.
    written = [
        text
        for text in texts()
        if not text.startswith("injection.enabled needs Mutating")
    ]
    reached = set()
    for begin, message in messages:
        assert message.startswith(begin), (begin, message)
        for line in message.splitlines():
            said = {text for text in written if says(text, line)}
            assert said, (begin, line)
            reached |= said
        assert PATHS & set(re.findall(r"[a-zA-Z]+(?:\.[a-zA-Z]+)*", message)), message
        assert _REMEDY.search(message.lower()), message
    assert reached == set(written)


def test_all_faults_are_in_one_message() -> None:
    """Also what only the container says, and the tap: a values file is mended in one
    go.
    """
    faults = {
        "env": [],
        "serviceMonitor.enabled": True,
        "tap.port": 9850,
        "image.repository": "",
        "exporter.specConfig": "{a",
    }
    on_too = {"injection.enabled": True, "tap.enabled": True}
    lines = refusal(_set({}, faults | on_too)).splitlines()
    assert [re.match(r"[\w.]+", line)[0] for line in lines] == list(faults)


#: One case of each value that messages begin with; both render the same templates.
OF_EACH_VALUE = {begin.split()[0]: (begin, values) for begin, values in REFUSED}


@pytest.mark.full
@pytest.mark.parametrize(("begin", "values"), OF_EACH_VALUE.values(), ids=OF_EACH_VALUE)
def test_helm_3_refuses_the_same(begin: str, values: Json) -> None:
    assert refusal(values, render_helm3).startswith(begin)


def _scraped(interval: str, timeout: str) -> Json:
    scrape = {"interval": interval, "scrapeTimeout": timeout}
    return merged(SIDECAR, {"podMonitor": scrape})


def _limited(cpu: str | float, memory: str) -> Json:
    limits = {"cpu": cpu, "memory": memory}
    return merged(INJECTION, at(exporter__resources={"limits": limits}))


def _tapped(port: int, url: str) -> Json:
    return merged(_TAP, at(tap__port=port, exporter__vllmUrls=[url]))


@pytest.mark.parametrize(
    "values",
    [
        # No image without a container.
        RULES,
        DASHBOARDS,
        ALERTMANAGER,
        on("podMonitor"),
        # A scrape may take all of its interval.
        _scraped("15s", "15000ms"),
        _scraped("1h", "60m"),
        _scraped("1d", "24h"),
        # Amounts are equal however they are spelled.
        _limited(0.2, "134217728"),
        _limited("200m", "0.125Gi"),
        # Other machines' ports are free.
        _tapped(8000, "http://vllm.chat:8000"),
        _tapped(80, "http://127.0.0.1:8000"),
        _tapped(9852, "http://127.example.com:9852"),
        _tapped(9852, "http://127.0.0.1:8000/v1:9852/"),
    ],
    ids=str,
)
def test_similar_values_are_not_refused(values: Json) -> None:
    assert render(values)
