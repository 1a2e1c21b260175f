"""What the chart passes on: copied files, Alertmanager's routes and texts, the web
configuration.
"""

import pytest

from support.repository import ROOT, Json, data_of

from .charts import CHART, helm3_says, render
from .value_cases import STANDALONE, merged, on

SLACK = {"slackConfigs": [{"channel": "#specdec"}]}
WATCHDOG = {"webhookConfigs": [{"url": "https://example.com"}]}
PAGER = {"pagerdutyConfigs": [{"serviceKey": {"name": "pagerduty", "key": "key"}}]}


def rendered(**receivers: object) -> tuple[Json, dict[str, str]]:
    """Return the configuration's spec, and the texts beside it."""
    objects = render(
        merged(
            on("alertmanagerConfig"), {"alertmanagerConfig": {"receivers": receivers}}
        )
    )
    (config,) = [obj for obj in objects if obj["kind"] == "AlertmanagerConfig"]
    (texts,) = [obj for obj in objects if obj["kind"] == "ConfigMap"]
    return config["spec"], texts["data"]


def test_the_chart_needs_nothing_outside_its_folder() -> None:
    """No links, which Helm warns of and which lead nowhere in a copy of the folder."""
    assert [path for path in CHART.rglob("*") if path.is_symlink()] == []
    copied = {path.parent.name for path in (CHART / "files").rglob("*.*")}
    assert copied == {"files", "rules", "dashboards", "templates"}


@pytest.mark.full  # Helm 3 is a package of npm
def test_helm_3_renders_everything_without_a_warning() -> None:
    """Of links it says a line each."""
    everything = data_of(CHART / "ci/bundle-values.yaml")
    assert helm3_says(everything) == ""


def test_routes_inhibitions_and_texts_are_those_of_alerts() -> None:
    """Nothing of them is lost in the chart, and nothing on the way from
    alertmanager.yml.
    """
    spec, texts = rendered(ticket=SLACK)
    files = {
        path.name: path.read_text("utf-8").strip()
        for path in (ROOT / "alerts/templates").glob("*.tmpl")
    }
    assert {name: text.strip() for name, text in texts.items()} == files
    converted = data_of(CHART / "files/alertmanagerconfig.json")
    assert {"route": spec["route"], "inhibitRules": spec["inhibitRules"]} == converted
    source = data_of("alerts/alertmanager.yml")
    (ours,) = source["route"]["routes"]
    assert len(spec["inhibitRules"]) == len(source["inhibit_rules"]) > 8
    assert [
        (child["receiver"], len(child["matchers"]), child.get("continue"))
        for child in spec["route"]["routes"]
    ] == [
        (route["receiver"], len(route["matchers"]), route.get("continue"))
        for route in ours["routes"]
    ]


@pytest.mark.parametrize(
    ("configured", "page", "ticket"),
    [
        ({"page": PAGER}, PAGER, PAGER),
        ({"ticket": SLACK}, SLACK, SLACK),
        ({"page": PAGER, "ticket": SLACK, "watchdog": WATCHDOG}, PAGER, SLACK),
    ],
    ids=["page", "ticket", "both"],
)
def test_receivers_are_the_users_and_what_is_severe_always_reaches_one(
    configured: Json, page: Json, ticket: Json
) -> None:
    """A page silences the tickets of its subject: with one receiver, it gets both."""
    spec, _ = rendered(**configured)
    receivers = {receiver.pop("name"): receiver for receiver in spec["receivers"]}
    assert receivers["page"] == page
    assert receivers["ticket"] == ticket
    assert receivers["hints"] == {}
    assert receivers["watchdog"] == configured.get("watchdog", {})


def test_the_test_pod_asks_the_service_with_the_web_configuration() -> None:
    """By the Service's name and port, with the command that the image has for it, and
    the same files.
    """
    values = {
        "standalone": {"service": {"port": 81}},
        "imagePullSecrets": [{"name": "pull"}],
        "webConfig": {
            "existingSecret": "web",
            "mountPath": "/etc/specdec",
            "key": "w.yml",
        },
    }
    by_kind = {obj["kind"]: obj for obj in render(merged(STANDALONE, values))}
    deployment = by_kind["Deployment"]["spec"]["template"]["spec"]
    pod = by_kind["Pod"]["spec"]
    web = "--web.config.file=/etc/specdec/w.yml"
    for kind, spec in (("Deployment", deployment), ("Pod", pod)):
        (container,) = spec["containers"]
        (mount,) = container["volumeMounts"]
        assert web in container["args"], kind
        assert mount["mountPath"] == "/etc/specdec", kind
        assert [volume["name"] for volume in spec["volumes"]] == [mount["name"]], kind
        assert spec["imagePullSecrets"] == [{"name": "pull"}], kind
    service = by_kind["Service"]["metadata"]["name"]
    assert pod["containers"][0]["args"] == [
        "health",
        f"--web.listen-address={service}:81",
        web,
    ]
