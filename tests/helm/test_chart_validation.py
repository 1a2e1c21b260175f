"""Values that contradict each other are refused with a message that says what to change."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

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
    SERVERS,
    SIDECAR,
    SIDECAR_POLICY,
    STANDALONE,
    TAP,
    TAP_ALONE,
    VLLM_PODS,
    at,
    merged,
    on,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _argument(*arguments: str) -> dict[str, Any]:
    return merged(INJECTION, at(exporter__extraArgs=list(arguments)))


def _variable(name: str) -> dict[str, Any]:
    return merged(INJECTION, at(exporter__extraEnv=[{"name": name, "value": "x"}]))


def _scrape(timeout: str, interval: str) -> dict[str, Any]:
    return merged(SIDECAR, at(podMonitor__interval=interval, podMonitor__scrapeTimeout=timeout))


def _tap(**paths: Any) -> dict[str, Any]:
    return merged(INJECTION, TAP, at(**paths))


_NO_IMAGE = "image.repository is empty"
_NO_SERVERS = "standalone.enabled needs exporter.vllmUrls: "
_NO_RECEIVER = "alertmanagerConfig.enabled needs alertmanagerConfig.receivers.page or .ticket"
_NO_SECRET = "webConfig.tls and webConfig.clientCertificates describe what is in webConfig.existingSecret"
_EXPORTERS_PORT = "vllmPodMonitor.port is the exporter's port"
_VLLM_MONITOR = merged(on("vllmPodMonitor"), at(vllmPodMonitor__selector=VLLM_PODS))
_ENV = "VLLM_SPECDEC_EXPORTER_"

#: How the message begins, up to the last name or value in it that varies, and the values.
REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    (_NO_IMAGE, merged(on("standalone"), at(exporter__vllmUrls=SERVERS))),
    (_NO_IMAGE, on("injection")),
    ("serviceMonitor.enabled needs standalone.enabled", on("serviceMonitor")),
    (
        "podMonitor.basicAuth and podMonitor.authorization would be sent to every pod",
        merged(SIDECAR, {"podMonitor": BASIC_AUTH}),
    ),
    (
        "podMonitor.basicAuth and podMonitor.authorization exclude each other",
        merged(SIDECAR, {"podMonitor": {**BASIC_AUTH, **BEARER, "selector": VLLM_PODS}}),
    ),
    (
        "podMonitor.tlsConfig without TLS: set webConfig.tls, or podMonitor.scheme",
        merged(SIDECAR, at(podMonitor__tlsConfig={"serverName": "specdec"})),
    ),
    *(
        (
            f"podMonitor.scrapeTimeout {timeout} is longer than podMonitor.interval {interval}, ",
            _scrape(timeout, interval),
        )
        for timeout, interval in (("1m", "59s"), ("1001ms", "1s"), ("1h1m", "1h"), ("2d", "47h"))
    ),
    (
        "serviceMonitor.scrapeTimeout 1m is longer than serviceMonitor.interval 15s, ",
        merged(EVERYTHING_ALONE, at(serviceMonitor__scrapeTimeout="1m")),
    ),
    (_NO_SERVERS, merged(IMAGE, on("standalone"))),
    (_NO_SERVERS, merged(STANDALONE, at(exporter__vllmUrls=["http://127.0.0.1:8000"]))),
    ("standalone.enabled and injection.enabled share exporter.*", merged(STANDALONE, on("injection"))),
    (
        "standalone.enabled makes a Service, which would be called 7b, ",
        merged(STANDALONE, {"fullnameOverride": "7b"}),
    ),
    ("vllmPodMonitor.enabled needs vllmPodMonitor.selector", on("vllmPodMonitor")),
    (_EXPORTERS_PORT, merged(_VLLM_MONITOR, at(vllmPodMonitor__port="specdec-metrics"))),
    (_EXPORTERS_PORT, merged(_VLLM_MONITOR, at(vllmPodMonitor__port="tap"))),
    (_NO_SECRET, merged(SIDECAR, at(webConfig__tls=True))),
    (_NO_SECRET, merged(SIDECAR, at(webConfig__clientCertificates=True))),
    (
        "prometheusRule.groups.recording is off, and prometheusRule.groups.activity ",
        merged(RULES, at(prometheusRule__groups__recording=False)),
    ),
    (_NO_RECEIVER, on("alertmanagerConfig")),
    (_NO_RECEIVER, merged(on("alertmanagerConfig"), at(alertmanagerConfig__receivers__hints=RECEIVER))),
    (
        "dashboards.labels gives grafana_dashboard another value ",
        merged(DASHBOARDS, at(dashboards__labels={"grafana_dashboard": "yes"})),
    ),
    (
        "dashboards.grafanaDashboard.enabled needs dashboards.enabled",
        on("dashboards.grafanaDashboard"),
    ),
    ("networkPolicy.enabled has nothing to protect", merged(SIDECAR, on("networkPolicy"))),
    (
        "networkPolicy.sidecar.podSelector selects pods of vLLM, and networkPolicy.sidecar.keepOpen is empty",
        merged(SIDECAR, on("networkPolicy"), at(networkPolicy__sidecar__podSelector=VLLM_PODS)),
    ),
    ("tap.port and exporter.port are both 9852: ", _tap(exporter__port=9852)),
    ("exporter.vllmUrls has 2 servers, ", merged(STANDALONE, TAP)),
    *(
        (f"tap.port is the port of {url}: ", values)
        for url, values in (
            ("http://127.0.0.1:8000", _tap(tap__port=8000)),
            (
                "https://localhost:9852/metrics",
                _tap(exporter__vllmUrls=["https://localhost:9852/metrics"]),
            ),
            ("http://u:p@127.1.2.3:9852", _tap(exporter__vllmUrls=["http://u:p@127.1.2.3:9852"])),
            ("http://[::1]:9852", _tap(tap__upstream="http://[::1]:9852")),
            (
                "http://0.0.0.0:8001/",
                _tap(
                    exporter__vllmUrls=["http://127.0.0.1:8000", "http://0.0.0.0:8001/"],
                    tap__port=8001,
                    tap__upstream="http://127.0.0.1:8000",
                ),
            ),
        )
    ),
    (
        "standalone.service.port and standalone.service.tapPort are both 9850: ",
        merged(STANDALONE, TAP_ALONE, at(standalone__service__tapPort=9850)),
    ),
    (
        "networkPolicy.sidecar.keepOpen opens 9852 to everybody, which networkPolicy.tapFrom closes: ",
        merged(
            SIDECAR,
            TAP,
            SIDECAR_POLICY,
            at(networkPolicy__sidecar__keepOpen=[8000, 9852], networkPolicy__tapFrom=[{"podSelector": {}}]),
        ),
    ),
    *(
        (f"exporter.extraArgs has {argument}{why}", _argument(argument, "x"))
        for why, arguments in {
            ", with which the exporter ends at once": ("--config.check", "--help", "-h", "--version"),
            ": set exporter.port and webConfig instead": ("--web.listen-address=:1", "--web.config.file=/x"),
            ": set exporter.vllmUrls and exporter.specConfig instead": ("--vllm.url", "--spec.config"),
            ": a sidecar waits and the standalone exporter exits": ("--startup.on-error=exit",),
            ": set tap and push instead": ("--tap.listen-address=:1", "--push.bearer-token-file=/x"),
        }.items()
        for argument in arguments
    ),
    *(
        (f"exporter.extraEnv has {_ENV}{name}: set {instead} instead", _variable(_ENV + name))
        for name, instead in {
            "WEB_LISTEN_ADDRESS": "exporter.port and webConfig",
            "WEB_CONFIG_FILE": "exporter.port and webConfig",
            "STARTUP_ON_ERROR": "exporter.port and webConfig",
            "TAP_LISTEN_ADDRESS": "tap and push",
            "PUSH_BEARER_TOKEN_FILE": "tap and push",
        }.items()
    ),
    *(
        (f"exporter.resources: the request and the limit of {name} differ", merged(INJECTION, amounts))
        for name, amounts in (
            ("cpu", at(exporter__resources__requests__cpu="100m")),
            ("memory", at(exporter__resources__requests__memory="64Mi")),
            ("cpu", at(exporter__resources__limits__cpu=None)),
            ("cpu", at(exporter__resources={"limits": None, "requests": None})),
        )
    ),
)

#: Helm 3 does not get so far: it cannot hand such values to the schema.
ONLY_BY_HELM_4 = tuple(
    ('exporter: the flag "--x=\\x7f" holds', merged(values, at(exporter__extraArgs=["--x=\x7f"])))
    for values in (INJECTION, STANDALONE)
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
    messages = [(begin, refusal(values)) for begin, values in (*REFUSED, *ONLY_BY_HELM_4)]
    assert "/injection" in refusal(WITHOUT_SCHEMA)
    copy = tmp_path / CHART.name
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("values.schema.json"))
    messages.append(("injection.labels is empty", refusal(WITHOUT_SCHEMA, chart=copy)))

    written = texts()
    reached = {text for text in written for _, message in messages if says(text, message)}
    assert set(written) == reached
    paths = {".".join(path[:depth]) for path in LEAVES for depth in range(1, len(path) + 1)}
    for begin, message in messages:
        assert message.startswith(begin)
        assert any(says(text, message) for text in written), message
        named = set(re.findall(r"[a-zA-Z]+(?:\.[a-zA-Z]+)+|\b(?:fullnameOverride|webConfig)\b", message))
        assert named & paths, message
        todo = r"\b(set|give|name|switch|remove|make|keep|enable|install|build|needs)\b"
        assert re.search(todo, message.lower()), message


@pytest.mark.full
def test_helm_3_refuses_the_same() -> None:
    """One case of each message."""
    written = texts()
    cases = {
        written.index(next(text for text in written if says(text, refusal(values)))): (begin, values)
        for begin, values in REFUSED
    }
    for begin, values in cases.values():
        assert refusal(values, render_helm3).startswith(begin)


def test_similar_values_are_not_refused() -> None:
    """No image without a container; a scrape may take all of its interval; other machines' ports are free."""
    assert all(render(values) for values in (RULES, DASHBOARDS, ALERTMANAGER, on("podMonitor")))
    for timeout in ("15s", "15000ms", "0s"):
        assert render(_scrape(timeout, "15s"))
    for port, url in (
        (8000, "http://vllm.chat:8000"),
        (80, "http://127.0.0.1:8000"),
        (8000, "http://127.0.0.1:80001"),
        (9852, "http://127.example.com:9852"),
        (9852, "http://127.0.0.1:8000/v1:9852/"),
    ):
        assert render(_tap(tap__port=port, exporter__vllmUrls=[url])), url
