"""Values that contradict each other are refused with a message that says what to change."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .charts import CHART, RenderError, render, render_helm3
from .value_cases import (
    ALERTMANAGER,
    BASIC_AUTH,
    BEARER,
    DASHBOARDS,
    EVERYTHING_ALONE,
    IMAGE,
    INJECTION,
    LEAVES,
    RECEIVER,
    RULES,
    SIDECAR,
    SIDECAR_POLICY,
    STANDALONE,
    TAP,
    TAP_ALONE,
    VLLM_PODS,
    at,
    merged,
    nested,
    on,
)

_TAP = merged(INJECTION, TAP)
_URLS = "exporter.vllmUrls"
_NAME = "dns+http://vllm-pods.default.svc:8000"
_NO_IMAGE = "image.repository is empty"
_NO_SERVERS = "standalone.enabled needs exporter.vllmUrls"
_NO_RECEIVER = "alertmanagerConfig.enabled needs alertmanagerConfig.receivers.page or .ticket"
_NO_SECRET = "webConfig.tls and webConfig.clientCertificates describe what is in webConfig.existingSecret"
_PORT = "vllmPodMonitor.port is the exporter's port"
_VLLM_MONITOR = merged(on("vllmPodMonitor"), at(vllmPodMonitor__selector=VLLM_PODS))
_SELECTING = merged(SIDECAR, on("networkPolicy"), at(networkPolicy__sidecar__podSelector=VLLM_PODS))
_CLOSED = merged(SIDECAR, TAP, SIDECAR_POLICY, at(networkPolicy__tapFrom=[{"podSelector": {}}]))
_LOCAL = "http://127.0.0.1:8000"
_ENV = "VLLM_SPECDEC_EXPORTER_"
_WEB, _TAP_AND_PUSH = ": set exporter.port and webConfig instead", ": set tap and push instead"

#: How the message begins, the values, and what is set in them by path.
_ROWS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("podMonitor.additionalLabels: use", SIDECAR, {"podMonitor.additionalLabels": {}}),
    ("exporter.specConfig is not a JSON object: {a: ", INJECTION, {"exporter.specConfig": "{a: 1}"}),
    (_NO_IMAGE, on("injection"), {"image.repository": ""}),
    ("serviceMonitor.enabled needs standalone.enabled", {}, {"serviceMonitor.enabled": True}),
    ("podMonitor.basicAuth and podMonitor.authorization would be sent", SIDECAR, {"podMonitor": BASIC_AUTH}),
    (
        "podMonitor.basicAuth and podMonitor.authorization exclude each other",
        SIDECAR,
        {"podMonitor": {**BASIC_AUTH, **BEARER, "selector": VLLM_PODS}},
    ),
    ("podMonitor.tlsConfig without TLS", SIDECAR, {"podMonitor.tlsConfig": {"serverName": "specdec"}}),
    *(
        (
            f"podMonitor.scrapeTimeout {timeout} is longer than podMonitor.interval {interval}, ",
            SIDECAR,
            {"podMonitor.interval": interval, "podMonitor.scrapeTimeout": timeout},
        )
        for timeout, interval in (("1m1ms", "60s"), ("2d", "47h59m"))
    ),
    ("serviceMonitor.scrapeTimeout 1m is longer", EVERYTHING_ALONE, {"serviceMonitor.scrapeTimeout": "1m"}),
    (_NO_SERVERS, merged(IMAGE, on("standalone")), {}),
    (_NO_SERVERS, STANDALONE, {_URLS: [_LOCAL]}),
    ("standalone.enabled and injection.enabled share exporter.*", STANDALONE, {"injection.enabled": True}),
    (
        "standalone.enabled makes a Service, which would be called 7b, ",
        STANDALONE,
        {"fullnameOverride": "7b"},
    ),
    ("vllmPodMonitor.enabled needs vllmPodMonitor.selector", on("vllmPodMonitor"), {}),
    *((_PORT, _VLLM_MONITOR, {"vllmPodMonitor.port": port}) for port in ("specdec-metrics", "tap")),
    *((_NO_SECRET, SIDECAR, {f"webConfig.{name}": True}) for name in ("tls", "clientCertificates")),
    ("prometheusRule.groups.recording is off, and ", RULES, {"prometheusRule.groups.recording": False}),
    (_NO_RECEIVER, on("alertmanagerConfig"), {}),
    (_NO_RECEIVER, on("alertmanagerConfig"), {"alertmanagerConfig.receivers.hints": RECEIVER}),
    (
        "dashboards.labels gives a another",
        DASHBOARDS,
        {"dashboards.label": "a", "dashboards.labels": {"a": "b"}},
    ),
    ("dashboards.grafanaDashboard.enabled needs dashboards.enabled", on("dashboards.grafanaDashboard"), {}),
    ("networkPolicy.enabled has nothing to protect", SIDECAR, {"networkPolicy.enabled": True}),
    ("networkPolicy.sidecar.podSelector selects pods of vLLM, and networkPolicy.sidecar", _SELECTING, {}),
    ("networkPolicy.sidecar.keepOpen opens 9852 ", _CLOSED, {"networkPolicy.sidecar.keepOpen": [8000, 9852]}),
    ("tap.port and exporter.port are both 9852: ", _TAP, {"exporter.port": 9852}),
    (f"{_URLS} means several servers, ", merged(STANDALONE, TAP), {}),
    (f"{_URLS} means several servers, ", merged(STANDALONE, TAP, at(exporter__vllmUrls=[_NAME])), {}),
    (f"tap.port is the port of {_LOCAL}: ", _TAP, {"tap.port": 8000}),
    *(
        (f"tap.port is the port of {url}: ", _TAP, {_URLS: [_LOCAL, url], "tap.upstream": _LOCAL})
        for url in ("https://localhost:9852/metrics", "http://u:p@127.1.2.3:9852", "http://0.0.0.0:9852/")
    ),
    ("tap.port is the port of http://[::1]:9852: ", _TAP, {"tap.upstream": "http://[::1]:9852"}),
    (
        "standalone.service.port and standalone.service.tapPort are both 9850: ",
        merged(STANDALONE, TAP_ALONE),
        {"standalone.service.tapPort": 9850},
    ),
    *(
        (f"exporter.extraArgs has {argument}{why}", INJECTION, {"exporter.extraArgs": [argument, "x"]})
        for why, arguments in {
            ", with which the exporter ends at once": ("--config.check", "--help", "-h", "--version"),
            _WEB: ("--web.listen-address=:1", "--web.config.file=/x"),
            ": set exporter.vllmUrls and exporter.specConfig instead": ("--vllm.url", "--spec.config"),
            ": a sidecar waits and the standalone exporter exits": ("--startup.on-error=exit",),
            _TAP_AND_PUSH: ("--tap.listen-address=:1", "--push.bearer-token-file=/x"),
        }.items()
        for argument in arguments
    ),
    *(
        (
            f"exporter.extraEnv has {_ENV}{name}{why}",
            INJECTION,
            {"exporter.extraEnv": [{"name": _ENV + name}]},
        )
        for why, names in {
            _WEB: ("WEB_LISTEN_ADDRESS", "WEB_CONFIG_FILE", "STARTUP_ON_ERROR"),
            _TAP_AND_PUSH: ("TAP_LISTEN_ADDRESS", "PUSH_BEARER_TOKEN_FILE"),
        }.items()
        for name in names
    ),
    *(
        (f"exporter.resources: the request and the limit of {name} differ", INJECTION, amounts)
        for name, amounts in (
            ("cpu", {"exporter.resources.requests.cpu": "100m"}),
            ("memory", {"exporter.resources.requests.memory": "64Mi"}),
            ("cpu", {"exporter.resources.limits.cpu": None}),
            ("cpu", {"exporter.resources.limits": None, "exporter.resources.requests": None}),
        )
    ),
)


def _set(values: dict[str, Any], paths: dict[str, Any]) -> dict[str, Any]:
    return merged(values, *(nested(tuple(path.split(".")), value) for path, value in paths.items()))


REFUSED = tuple((begin, _set(values, paths)) for begin, values, paths in _ROWS)

#: Helm 3 does not get so far: it cannot hand such values to the schema.
ONLY_BY_HELM_4 = (
    'exporter: the flag "--x=\\x7f" holds',
    merged(INJECTION, at(exporter__extraArgs=["--x=\x7f"])),
)

#: Only reached where the schema is skipped.
WITHOUT_SCHEMA = merged(INJECTION, {"injection": {"labels": {"vllm-specdec-exporter/inject": None}}})

_FAIL = re.compile(r"""fail\s+(?:\(printf\s+)?(?P<text>"(?:[^"\\]|\\.)*"|`[^`]*`)""")


def texts() -> list[str]:
    """Return the text of every `fail` of the templates, with the verbs of printf."""
    templates = [path.read_text("utf-8") for path in (CHART / "templates").rglob("*") if path.is_file()]
    found = [match["text"][1:-1].replace('\\"', '"') for text in templates for match in _FAIL.finditer(text)]
    assert len(found) == sum(text.count("{{- fail ") for text in templates) >= 20
    return found


def says(text: str, message: str) -> bool:
    """Whether a message is what printf makes of a text."""
    return (
        re.fullmatch(".+".join(re.escape(part) for part in re.split(r"%[sdqv]", text)), message) is not None
    )


def refusal(values: dict[str, Any], helm: Callable[..., object] = render, **options: Any) -> str:
    """Return the message with which values are refused; Helm's output if `fail` did not refuse them."""
    with pytest.raises(RenderError) as error:
        helm(values, **options)
    return error.value.refusal or str(error.value)


def test_contradictions_are_refused(tmp_path: Path) -> None:
    """Each `fail` is reached, and only with its message, which names existing values and what to do."""
    messages = [(begin, refusal(values)) for begin, values in (*REFUSED, ONLY_BY_HELM_4)]
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

    # Helm 4's library claims one version of Kubernetes; test_chart_conventions.py has others.
    written = [text for text in texts() if not text.startswith("injection.enabled needs Mutating")]
    reached = {text for text in written for _, message in messages if says(text, message)}
    assert set(written) == reached
    paths = {".".join(path[:depth]) for path in LEAVES for depth in range(1, len(path) + 1)}
    for begin, message in messages:
        assert message.startswith(begin)
        assert any(says(text, message) for text in written), message
        assert set(re.findall(r"[a-zA-Z]+(?:\.[a-zA-Z]+)*", message)) & paths, message
        todo = r"\b(use|set|give|name|switch|remove|make|keep|enable|install|build|needs)\b"
        assert re.search(todo, message.lower()), message


@pytest.mark.full
def test_helm_3_refuses_the_same() -> None:
    """One case of each value that messages begin with; both render the same templates."""
    for begin, values in {begin.split()[0]: (begin, values) for begin, values in REFUSED}.values():
        assert refusal(values, render_helm3).startswith(begin)


def test_similar_values_are_not_refused() -> None:
    """No image without a container; a scrape may take all of its interval; other machines' ports are free.

    Amounts are equal however they are spelled.
    """
    assert all(render(values) for values in (RULES, DASHBOARDS, ALERTMANAGER, on("podMonitor")))
    for interval, timeout in (("15s", "15000ms"), ("1h", "60m"), ("1d", "24h")):
        assert render(_set(SIDECAR, {"podMonitor.interval": interval, "podMonitor.scrapeTimeout": timeout}))
    for limits in ({"cpu": 0.2, "memory": "134217728"}, {"cpu": "200m", "memory": "0.125Gi"}):
        assert render(_set(INJECTION, {"exporter.resources.limits": limits}))
    for port, url in (
        (8000, "http://vllm.chat:8000"),
        (80, "http://127.0.0.1:8000"),
        (9852, "http://127.example.com:9852"),
        (9852, "http://127.0.0.1:8000/v1:9852/"),
    ):
        assert render(_set(_TAP, {"tap.port": port, _URLS: [url]})), url
