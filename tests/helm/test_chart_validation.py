"""Values that contradict each other are refused with a message that says what to change."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from .charts import CHART, RenderError, render, render_helm3
from .value_cases import (
    ALERTMANAGER,
    DASHBOARDS,
    EVERYTHING_ALONE,
    IMAGE,
    INJECTION,
    RECEIVER,
    RULES,
    SERVERS,
    SIDECAR,
    SIDECAR_POLICY,
    STANDALONE,
    TAP,
    TAP_ALONE,
    at,
    merged,
    on,
    value_paths,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERYBODY = (
    "podMonitor.basicAuth and podMonitor.authorization would be sent to every pod of the cluster that calls "
    "a port specdec-metrics: set podMonitor.namespaceSelector.matchNames or podMonitor.selector"
)
NO_RECEIVER = (
    "alertmanagerConfig.enabled needs alertmanagerConfig.receivers.page or .ticket: nobody would be told of "
    "anything. Example: --set alertmanagerConfig.receivers.ticket.slackConfigs[0].channel=#specdec"
)
NO_IMAGE = (
    "image.repository is empty: there is no public image yet. Build it (docs/docker.md), push it to a "
    "registry that your nodes can pull from, and set image.registry and image.repository"
)
NO_SERVERS = (
    "standalone.enabled needs exporter.vllmUrls: there is no vLLM in its pod. Give the addresses of your "
    'vLLM pods, such as ["http://vllm-0.vllm.default:8000"]; a Service in front of several replicas gives '
    "the counters of another one with each poll, use sidecars there"
)
UNEQUAL = (
    "exporter.resources: the request and the limit of {} differ or are missing, which would make a "
    "Guaranteed vLLM pod Burstable and cost it its exclusive CPUs. Make them equal, or set "
    "exporter.allowBurstable"
)
CUT_OFF = (
    "networkPolicy.sidecar.podSelector selects pods of vLLM, and networkPolicy.sidecar.keepOpen is empty: "
    "that would cut vLLM off. Name its ports, such as [8000]"
)
NOT_BEHIND_ITS_BACK = "{} has {}: set tap and push instead, which ports, Services and volumes go by"
ITSELF = (
    "tap.port is the port of {}: the tap would stand before itself, or in vLLM's place. Give it another "
    "one, and leave exporter.vllmUrls and tap.upstream to vLLM's own"
)
SERVER_PASSWORD = {"username": {"name": "s", "key": "u"}, "password": {"name": "s", "key": "p"}}

#: What is wrong, the values, the whole message.
REFUSED = {
    "no image, standalone": (merged(on("standalone"), at(exporter__vllmUrls=SERVERS)), NO_IMAGE),
    "no image, injection": (on("injection"), NO_IMAGE),
    "a ServiceMonitor without Service": (
        on("serviceMonitor"),
        (
            "serviceMonitor.enabled needs standalone.enabled: a sidecar has no Service. For sidecars set "
            "podMonitor.enabled instead"
        ),
    ),
    "a password for everybody": (merged(SIDECAR, {"podMonitor": {"basicAuth": SERVER_PASSWORD}}), EVERYBODY),
    **{
        f"{argument} ends it": (
            merged(INJECTION, at(exporter__extraArgs=[argument])),
            f"exporter.extraArgs has {argument}, with which the exporter ends at once: remove it",
        )
        for argument in ("--config.check", "--help")
    },
    "the port by the environment": (
        merged(
            INJECTION,
            at(exporter__extraEnv=[{"name": "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS", "value": ":1"}]),
        ),
        (
            "exporter.extraEnv has VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS: set exporter.port and webConfig "
            "instead, which the probes and monitors go by"
        ),
    ),
    "standalone polls itself": (merged(IMAGE, on("standalone")), NO_SERVERS),
    "standalone is told that it polls itself": (
        merged(STANDALONE, at(exporter__vllmUrls=["http://127.0.0.1:8000"])),
        NO_SERVERS,
    ),
    "standalone and injection": (
        merged(STANDALONE, on("injection")),
        (
            "standalone.enabled and injection.enabled share exporter.*, and mean different servers by "
            "exporter.vllmUrls: install the chart twice, once for each"
        ),
    ),
    "a Service named by a number": (
        merged(STANDALONE, {"fullnameOverride": "7b"}),
        (
            "standalone.enabled makes a Service, which would be called 7b, and a Service's name begins with "
            "a letter: set fullnameOverride"
        ),
    ),
    **{
        f"a scrape of {timeout} every {interval}": (
            merged(SIDECAR, at(podMonitor__interval=interval, podMonitor__scrapeTimeout=timeout)),
            (
                f"podMonitor.scrapeTimeout {timeout} is longer than podMonitor.interval {interval}, which "
                "the operator refuses: set it to at most the interval"
            ),
        )
        for timeout, interval in (
            ("16s", "15s"),
            ("1m", "59s"),
            ("1001ms", "1s"),
            ("1h1m", "1h"),
            ("2d", "47h"),
        )
    },
    "a ServiceMonitor's scrape takes too long": (
        merged(EVERYTHING_ALONE, at(serviceMonitor__scrapeTimeout="1m")),
        (
            "serviceMonitor.scrapeTimeout 1m is longer than serviceMonitor.interval 15s, which the operator "
            "refuses: set it to at most the interval"
        ),
    ),
    "two ways to authenticate": (
        merged(
            SIDECAR,
            {
                "podMonitor": {
                    "basicAuth": SERVER_PASSWORD,
                    "authorization": {"type": "Bearer"},
                    "selector": {"matchLabels": {"a": "b"}},
                }
            },
        ),
        "podMonitor.basicAuth and podMonitor.authorization exclude each other: keep one",
    ),
    "trust without TLS": (
        merged(SIDECAR, {"podMonitor": {"tlsConfig": {"serverName": "specdec"}}}),
        "podMonitor.tlsConfig without TLS: set webConfig.tls, or podMonitor.scheme to https",
    ),
    "every pod of the cluster is vLLM's": (
        on("vllmPodMonitor"),
        (
            "vllmPodMonitor.enabled needs vllmPodMonitor.selector: the labels of vLLM's pods, such as "
            "{matchLabels: {app: vllm}}"
        ),
    ),
    **{
        f"the exporter's {port} as vLLM": (
            merged(
                on("vllmPodMonitor"),
                {"vllmPodMonitor": {"selector": {"matchLabels": {"a": "b"}}, "port": port}},
            ),
            (
                "vllmPodMonitor.port is the exporter's port: name vLLM's own, and leave the exporter to "
                "podMonitor"
            ),
        )
        for port in ("specdec-metrics", "tap")
    },
    **{
        f"{setting} of nothing": (
            merged(SIDECAR, {"webConfig": {setting: True}}),
            (
                "webConfig.tls and webConfig.clientCertificates describe what is in "
                "webConfig.existingSecret: name that Secret"
            ),
        )
        for setting in ("tls", "clientCertificates")
    },
    "alerts without what they are made of": (
        merged(RULES, {"prometheusRule": {"groups": {"recording": False}}}),
        (
            "prometheusRule.groups.recording is off, and prometheusRule.groups.activity is made of what it "
            "records: switch it on, or the others off"
        ),
    ),
    "nobody is told": (on("alertmanagerConfig"), NO_RECEIVER),
    "only hints": (
        merged(on("alertmanagerConfig"), at(alertmanagerConfig__receivers__hints=RECEIVER)),
        NO_RECEIVER,
    ),
    "two values of one label": (
        merged(DASHBOARDS, {"dashboards": {"labels": {"grafana_dashboard": "yes"}}}),
        (
            "dashboards.labels gives grafana_dashboard another value than dashboards.labelValue: remove it "
            "from dashboards.labels"
        ),
    ),
    "resources that refer to nothing": (
        on("dashboards.grafanaDashboard"),
        "dashboards.grafanaDashboard.enabled needs dashboards.enabled: its resources refer to the ConfigMaps",
    ),
    "a policy for nothing": (
        merged(SIDECAR, on("networkPolicy")),
        (
            "networkPolicy.enabled has nothing to protect: enable standalone, or set "
            "networkPolicy.sidecar.podSelector to the labels of the pods with sidecars"
        ),
    ),
    "two listeners on one port": (
        merged(INJECTION, TAP, at(exporter__port=9852)),
        "tap.port and exporter.port are both 9852: give the tap another one",
    ),
    "a tap before several servers": (
        merged(STANDALONE, TAP),
        "exporter.vllmUrls has 2 servers, and the tap stands before one: set tap.upstream to its address",
    ),
    **{
        f"a tap at {url}": (merged(INJECTION, TAP, values), ITSELF.format(url))
        for url, values in (
            ("http://127.0.0.1:8000", at(tap__port=8000)),
            ("https://localhost:9852/metrics", at(exporter__vllmUrls=["https://localhost:9852/metrics"])),
            ("http://u:p@127.1.2.3:9852", at(exporter__vllmUrls=["http://u:p@127.1.2.3:9852"])),
            ("http://[::1]:9852", at(tap__upstream="http://[::1]:9852")),
            (
                "http://0.0.0.0:8001/",
                {
                    "exporter": {"vllmUrls": ["http://127.0.0.1:8000", "http://0.0.0.0:8001/"]},
                    "tap": {"port": 8001, "upstream": "http://127.0.0.1:8000"},
                },
            ),
        )
    },
    "a Service with one port twice": (
        merged(STANDALONE, TAP_ALONE, at(standalone__service__tapPort=9850)),
        "standalone.service.port and standalone.service.tapPort are both 9850: give one of them another",
    ),
    "a port that is open and closed": (
        merged(
            SIDECAR,
            TAP,
            SIDECAR_POLICY,
            {"networkPolicy": {"sidecar": {"keepOpen": [8000, 9852]}, "tapFrom": [{"podSelector": {}}]}},
        ),
        (
            "networkPolicy.sidecar.keepOpen opens 9852 to everybody, which networkPolicy.tapFrom closes: "
            "remove it from one of them"
        ),
    ),
    **{
        f"{argument} behind the chart's back": (
            merged(INJECTION, at(exporter__extraArgs=[argument])),
            NOT_BEHIND_ITS_BACK.format("exporter.extraArgs", argument),
        )
        for argument in ("--tap.listen-address=:1", "--push.bearer-token-file=/x")
    },
    **{
        f"{name} behind the chart's back": (
            merged(INJECTION, at(exporter__extraEnv=[{"name": name, "value": "x"}])),
            NOT_BEHIND_ITS_BACK.format("exporter.extraEnv", name),
        )
        for name in (
            "VLLM_SPECDEC_EXPORTER_TAP_LISTEN_ADDRESS",
            "VLLM_SPECDEC_EXPORTER_PUSH_BEARER_TOKEN_FILE",
        )
    },
    "vLLM cut off": (
        merged(
            SIDECAR,
            on("networkPolicy"),
            {"networkPolicy": {"sidecar": {"podSelector": {"matchLabels": {"app": "vllm"}}}}},
        ),
        CUT_OFF,
    ),
    **{
        f"{argument} behind the chart's back": (
            merged(INJECTION, at(exporter__extraArgs=[argument])),
            (
                f"exporter.extraArgs has {argument}: set exporter.port and webConfig instead, which the "
                "probes and monitors go by"
            ),
        )
        for argument in ("--web.listen-address=:1", "--web.config.file=/x")
    },
    **{
        f"{argument} behind the annotations' back": (
            merged(INJECTION, at(exporter__extraArgs=[argument, "x"])),
            (
                f"exporter.extraArgs has {argument}: set exporter.vllmUrls and exporter.specConfig instead, "
                "which annotations of pods can replace"
            ),
        )
        for argument in ("--vllm.url", "--spec.config")
    },
    "another start": (
        merged(INJECTION, at(exporter__extraArgs=["--startup.on-error=exit"])),
        (
            "exporter.extraArgs has --startup.on-error=exit: a sidecar waits and the standalone exporter "
            "exits, and neither can be changed: remove it"
        ),
    ),
    **{
        f"a request of {name} below its limit": (
            merged(INJECTION, {"exporter": {"resources": {"requests": {name: amount}}}}),
            UNEQUAL.format(name),
        )
        for name, amount in (("cpu", "100m"), ("memory", "64Mi"))
    },
    "a request alone": (
        merged(INJECTION, {"exporter": {"resources": {"limits": {"cpu": None}}}}),
        UNEQUAL.format("cpu"),
    ),
    "no resources": (
        merged(INJECTION, {"exporter": {"resources": {"limits": None, "requests": None}}}),
        UNEQUAL.format("cpu"),
    ),
}

#: Helm 3 does not get so far: it cannot hand such values to the schema.
ONLY_BY_HELM_4 = {
    f"what YAML cannot hold, {name}": (
        merged(values, at(exporter__extraArgs=["--x=\x7f"])),
        (
            'exporter: the flag "--x=\\x7f" holds a control character, which YAML cannot carry: remove it '
            "from exporter.extraArgs, specConfig, vllmUrls or settings"
        ),
    )
    for name, values in (("injection", INJECTION), ("standalone", STANDALONE))
}

#: Only reached where the schema is skipped.
WITHOUT_SCHEMA = {
    "every pod of the cluster gets a sidecar": (
        merged(INJECTION, {"injection": {"labels": {"vllm-specdec-exporter/inject": None}}}),
        (
            "injection.labels is empty, which would add the sidecar to every pod of the cluster: name the "
            "label that pods ask for it with, such as vllm-specdec-exporter/inject: enabled"
        ),
    ),
}

ALL = {**REFUSED, **ONLY_BY_HELM_4, **WITHOUT_SCHEMA}

_FAIL = re.compile(r"""fail\s+(?:\(printf\s+)?(?P<text>"(?:[^"\\]|\\.)*"|`[^`]*`)""")


@pytest.fixture(scope="session")
def chart_without_schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as `--skip-schema-validation` has it."""
    copy = tmp_path_factory.mktemp("chart") / CHART.name
    shutil.copytree(CHART, copy)
    (copy / "values.schema.json").unlink()
    return copy


@pytest.mark.parametrize(
    ("helm", "refused"),
    [
        (render, {**REFUSED, **ONLY_BY_HELM_4}),
        pytest.param(render_helm3, REFUSED, marks=pytest.mark.full),
    ],
    ids=["Helm 4", "Helm 3"],
)
def test_it_is_refused(helm: Callable[[Any], object], refused: dict[str, tuple[dict[str, Any], str]]) -> None:
    """With exactly this message."""
    said = {}
    for what, (values, _) in refused.items():
        with pytest.raises(RenderError) as error:
            helm(values)
        said[what] = error.value.refusal or str(error.value)
    assert said == {what: message for what, (_, message) in refused.items()}


@pytest.mark.parametrize("what", WITHOUT_SCHEMA)
def test_it_is_refused_without_schema_too(chart_without_schema: Path, what: str) -> None:
    """Who skips the schema stops with this message; who does not is stopped by the schema."""
    values, message = WITHOUT_SCHEMA[what]
    with pytest.raises(RenderError) as refused:
        render(values, chart=chart_without_schema)
    assert refused.value.refusal == message
    with pytest.raises(RenderError) as refused:
        render(values)
    assert refused.value.refusal == ""


@pytest.mark.parametrize(
    "values",
    [RULES, DASHBOARDS, ALERTMANAGER, on("podMonitor")],
    ids=["rules", "dashboards", "alertmanager", "monitor"],
)
def test_what_renders_no_container_needs_no_image(values: dict) -> None:
    """Only who lets the chart run the exporter must have built it."""
    assert render(values)


@pytest.mark.parametrize("timeout", ["15s", "15000ms", "0s"])
def test_a_scrape_may_take_all_of_its_interval(timeout: str) -> None:
    """Equal is fine, in whatever units."""
    (monitor,) = render(merged(SIDECAR, at(podMonitor__interval="15s", podMonitor__scrapeTimeout=timeout)))
    assert monitor["spec"]["podMetricsEndpoints"][0]["scrapeTimeout"] == timeout


@pytest.mark.parametrize(
    ("port", "url"),
    [
        (8000, "http://vllm.chat:8000"),
        (80, "http://127.0.0.1:8000"),
        (8000, "http://127.0.0.1:80001"),
        (9852, "http://127.example.com:9852"),
        (9852, "http://127.0.0.1:8000/v1:9852/"),
    ],
)
def test_the_tap_may_have_the_port_of_another_machine(port: int, url: str) -> None:
    """Only addresses of its own pod can be itself."""
    assert render(merged(INJECTION, TAP, at(tap__port=port, exporter__vllmUrls=[url])))


def test_every_message_has_a_case() -> None:
    """A `fail` in a template that no case reaches would be a message that nobody has read."""
    reached = [message for _, message in ALL.values()]
    written = [
        (path.name, match["text"][1:-1].replace('\\"', '"'))
        for path in sorted((CHART / "templates").rglob("*"))
        if path.is_file()
        for match in _FAIL.finditer(path.read_text("utf-8"))
    ]
    counted = sum(
        path.read_text("utf-8").count("{{- fail ")
        for path in (CHART / "templates").rglob("*")
        if path.is_file()
    )
    assert len(written) == counted >= 20
    missed = [one for one in written if not any(pattern_of(one[1]).fullmatch(message) for message in reached)]
    assert missed == []


def test_every_message_says_what_to_do() -> None:
    """It names values that exist, and ends by saying what to do with one."""
    for message in {message for _, message in ALL.values()}:
        named = set(re.findall(r"[a-zA-Z]+(?:\.[a-zA-Z]+)+|\b(?:fullnameOverride|webConfig)\b", message))
        assert named & value_paths(), message
        todo = r"\b(set|give|name|switch|remove|make|keep|enable|install|build|needs)\b"
        assert re.search(todo, message.lower()), message


def pattern_of(text: str) -> re.Pattern[str]:
    """Return what a text of printf may become."""
    return re.compile(".+".join(re.escape(part) for part in re.split(r"%[sdqv]", text)))
