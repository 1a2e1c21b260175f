"""What the chart makes of the values: the container, its flags, image, probes and end,
and the monitors.
"""

from typing import Any

import pytest

from support.published import REFERENCE
from support.repository import Json, text_of
from vllm_specdec_exporter import __version__

from .charts import SIDECAR_NAME, named_templates, render
from .kubernetes_yaml import documents
from .value_cases import (
    IMAGE,
    SIDECAR,
    STANDALONE,
    TAP_ALONE,
    VLLM_PODS,
    at,
    merged,
    on,
)


def kinds(*values: Any) -> dict[str, Json]:
    """Return objects by kind."""
    return {obj["kind"]: obj for obj in render(merged(*values))}


def pod_of(*values: Any) -> dict[str, Any]:
    """Return the spec of the standalone pod."""
    return kinds(STANDALONE, *values)["Deployment"]["spec"]["template"]["spec"]


def test_the_sidecar_is_the_one_that_is_documented() -> None:
    """With defaults, field for field; the tag is the exporter's version."""
    container, _ = named_templates(IMAGE)
    text = text_of("tests/helm/sidecar.yml")
    assert [container] == documents(text.replace("IMAGE", f"{REFERENCE}:{__version__}"))


def test_values_arrive_as_flags() -> None:
    """Whatever quotes, braces or spaces they have; a list is repeated, and text arrives
    word for word.
    """
    exporter = {
        "vllmUrls": ["http://a:1", "http://b:2"],
        "specConfig": {"method": "eagle3", "model": 'x"y', "num_speculative_tokens": 3},
        "thresholds": {"minimum_drafts": 1000000},
        "settings": {"poll.interval": "2s"},
        "port": 9999,
        "extraArgs": ["--log.level=debug"],
    }
    web = {"webConfig": {"existingSecret": "web"}}
    container, _ = named_templates(merged(IMAGE, {"exporter": exporter}, web))
    assert container["args"] == [
        "--startup.on-error=wait",
        "--vllm.url=http://a:1",
        "--vllm.url=http://b:2",
        '--spec.config={"method":"eagle3","model":"x\\"y","num_speculative_tokens":3}',
        "--threshold=minimum_drafts=1000000",
        "--poll.interval=2s",
        "--web.listen-address=:9999",
        "--web.config.file=/etc/vllm-specdec-exporter/web/web-config.yml",
        "--log.level=debug",
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"method": "ngram",  "prompt_lookup_max": 4}',
        "{}",
        '{"model": "b: \\"c\\" {{ d }} #e"}',
    ],
)
def test_a_configuration_as_text_arrives_word_for_word(text: str) -> None:
    """With its spaces and quotes."""
    container, _ = named_templates(merged(IMAGE, at(exporter__specConfig=text)))
    assert container["args"][2] == f"--spec.config={text}"


@pytest.mark.parametrize(
    ("thresholds", "flags"),
    [
        ("published", ["--threshold=published"]),
        ({"published": False}, []),
        (
            {"published": True, "minimum_drafts": 200},
            ["--threshold=minimum_drafts=200", "--threshold=published"],
        ),
    ],
)
def test_the_published_thresholds_are_as_easy_as_with_the_flag(
    thresholds: str | Json, flags: list[str]
) -> None:
    """As a word alone, or beside others."""
    container, _ = named_templates(merged(IMAGE, at(exporter__thresholds=thresholds)))
    assert flags == [flag for flag in container["args"] if "--threshold" in flag]


def test_the_tap_and_push_arrive_as_flags() -> None:
    """Their Secrets are mounted where the flags say; one that is missing does not hold
    the pod back.
    """
    tap = {
        "enabled": True,
        "port": 8080,
        "upstream": "http://127.0.0.1:8001",
        "drainTimeout": "1m",
    }
    container, volumes = named_templates(
        {**IMAGE, "tap": tap, "push": {"existingSecret": "gateway"}}
    )
    assert container["args"][2:] == [
        "--tap.listen-address=:8080",
        "--tap.upstream=http://127.0.0.1:8001",
        "--tap.drain-timeout=1m",
        "--push.bearer-token-file=/etc/vllm-specdec-exporter/push/token",
    ]
    assert container["ports"][1] == {
        "name": "tap",
        "containerPort": 8080,
        "protocol": "TCP",
    }
    folder = "/etc/vllm-specdec-exporter"
    assert container["volumeMounts"] == [
        {"name": "specdec-push", "mountPath": f"{folder}/push", "readOnly": True}
    ]
    assert volumes == [
        {"name": "specdec-push", "secret": {"secretName": "gateway", "optional": True}}
    ]


@pytest.mark.parametrize(
    ("tap", "seconds"),
    [
        ({}, 10),
        (merged(TAP_ALONE, at(tap__drainTimeout="0s")), 10),
        (merged(TAP_ALONE, at(tap__drainTimeout="1500ms")), 12),
        (merged(TAP_ALONE, at(tap__drainTimeout="25s")), 35),
        (merged(TAP_ALONE, at(tap__drainTimeout="2m")), 130),
    ],
    ids=["no tap", "0s", "1500ms", "25s", "2m"],
)
def test_the_standalone_pod_may_take_its_time_to_end(tap: Json, seconds: int) -> None:
    """As long as the tap may wait for open connections; ten seconds without it."""
    assert pod_of(tap)["terminationGracePeriodSeconds"] == seconds


DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({"repository": "a/b"}, f"a/b:{__version__}"),
        (
            {"repository": "b", "registry": "r.example.com:5000/"},
            f"r.example.com:5000/b:{__version__}",
        ),
        ({"repository": "b", "digest": DIGEST}, f"b@{DIGEST}"),
        ({"repository": "b", "tag": "1", "digest": DIGEST}, f"b:1@{DIGEST}"),
    ],
)
def test_the_image_is_named_in_full(image: dict[str, str], reference: str) -> None:
    """A digest pins it; a tag beside it is for people."""
    container, _ = named_templates({"image": {"registry": "", **image}})
    assert container["image"] == reference


def test_a_parent_charts_registry_and_secrets_come_first() -> None:
    """As charts have it whose images are all mirrored."""
    pulled = at(
        imagePullSecrets=["a", {"name": "b"}], global__imagePullSecrets=[{"name": "g"}]
    )
    assert pod_of(pulled)["imagePullSecrets"] == [
        {"name": "g"},
        {"name": "a"},
        {"name": "b"},
    ]
    container, _ = named_templates(
        merged(IMAGE, at(global__imageRegistry="mirror.test/team"))
    )
    assert container["image"].startswith(
        f"mirror.test/team/{IMAGE['image']['repository']}:"
    )


def test_the_standalone_exporter_is_one_and_its_probes_need_no_vllm() -> None:
    """Two would count every engine twice; its own readiness gates nobody else."""
    spec = kinds(STANDALONE)["Deployment"]["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["name"] != SIDECAR_NAME
    assert "restartPolicy" not in container
    # A sidecar waits with its errors; a pod of its own may fail visibly.
    assert not [
        argument
        for argument in container["args"]
        if argument.startswith("--startup.on-error")
    ]
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"


WEB_VOLUME = {
    "name": "specdec-web-config",
    "secret": {"secretName": "web", "optional": True},
}


@pytest.mark.parametrize(
    ("web", "scheme", "way", "volumes"),
    [
        ({}, "http", "httpGet", []),
        ({"existingSecret": "web"}, "http", "httpGet", [WEB_VOLUME]),
        ({"existingSecret": "web", "tls": True}, "https", "httpGet", [WEB_VOLUME]),
        (
            {"existingSecret": "web", "clientCertificates": True},
            "https",
            "tcpSocket",
            [WEB_VOLUME],
        ),
    ],
    ids=["none", "password", "tls", "client certificates"],
)
def test_tls_changes_probes_and_monitors_together(
    web: Json, scheme: str, way: str, volumes: list[Any]
) -> None:
    """The kubelet checks no certificate; where it needs one, it only looks whether the
    port is open, as at a sidecar, which stands by without TLS until its Secret is
    there.
    """
    objects = kinds(STANDALONE, on("serviceMonitor"), {"webConfig": web})
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    for name in ("livenessProbe", "readinessProbe"):
        probe = pod["containers"][0][name]
        assert way in probe
        assert probe[way].get("scheme", scheme.upper()) == scheme.upper()
    sidecar, _ = named_templates(merged(IMAGE, {"webConfig": web}))
    beside = "httpGet" if scheme == "http" else "tcpSocket"
    assert beside in sidecar["livenessProbe"]
    assert objects["ServiceMonitor"]["spec"]["endpoints"][0]["scheme"] == scheme
    assert pod.get("volumes", []) == volumes


def test_monitors_set_the_job_that_rules_look_for() -> None:
    """Whatever the release is called; relabelings of the user's come behind it. vLLM
    has a job of its own.
    """
    relabelings = [{"targetLabel": "x", "replacement": "y", "action": "replace"}]
    job = [
        {
            "targetLabel": "job",
            "replacement": "vllm-specdec-exporter",
            "action": "replace",
        }
    ]
    (monitor,) = render(
        merged(SIDECAR, at(podMonitor__relabelings=relabelings)), release="other"
    )
    assert monitor["spec"]["podMetricsEndpoints"][0]["relabelings"] == job + relabelings
    # In all namespaces: the port's name is what picks the pods.
    assert monitor["spec"]["selector"] == {}
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    values = at(serviceMonitor__relabelings=relabelings)
    service = kinds(STANDALONE, on("serviceMonitor"), values)["ServiceMonitor"]["spec"]
    assert service["endpoints"][0]["relabelings"] == job + relabelings
    (vllm,) = render(
        merged(on("vllmPodMonitor"), at(vllmPodMonitor__selector=VLLM_PODS))
    )
    assert vllm["spec"]["podMetricsEndpoints"][0]["relabelings"] == [
        {**job[0], "replacement": "vllm"}
    ]
