"""What docker-compose.yml gives to Prometheus, Alertmanager and Grafana: files that
agree with each other.
"""

from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from docker.compose import mounts, names, services, value_of
from docker.test_compose import PORTS
from support.alertmanager import amtool
from support.repository import ROOT, data_of, text_of
from vllm_specdec_exporter.commands.dashboards.files import HOME

pytestmark = pytest.mark.full

ALERTS = ROOT / "alerts"
PROMETHEUS = ALERTS / "prometheus.yml"
ALERTMANAGER = ALERTS / "alertmanager.compose.yml"


def endpoints() -> set[str]:
    """Every address that a container of the default reaches another at."""
    addresses = set()
    for key, service in services().items():
        addresses |= {f"{name}:{PORTS[key]}" for name in names(key, service)}
    return addresses


def test_prometheus_reaches_what_it_scrapes_and_tells() -> None:
    """Under the jobs that rules query; its rules are all those of the repository, where
    it looks for them.
    """
    config = data_of(PROMETHEUS)
    scraped = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in config["scrape_configs"]
    }
    (alertmanagers,) = config["alerting"]["alertmanagers"][0]["static_configs"]
    assert set(scraped) == {"vllm-specdec-exporter", "vllm"}
    targets = set().union(*scraped.values(), alertmanagers["targets"])
    assert targets <= endpoints()
    mounted = mounts(services()["prometheus"])
    (rules,) = (
        PurePosixPath("/etc/prometheus", pattern) for pattern in config["rule_files"]
    )
    assert (mounted[str(rules.parent)], rules.name) == ("./alerts/rules", "*.yml")
    assert (
        mounted[value_of(services()["prometheus"], "--config.file")]
        == "./alerts/prometheus.yml"
    )


def test_alertmanager_routes_as_in_production() -> None:
    """From `route:` to `receivers:` the file is alertmanager.yml, word for word: copy
    that part.
    """

    def routed(path: Path) -> str:
        return text_of(path).partition("\nroute:\n")[2].partition("\nreceivers:\n")[0]

    assert routed(ALERTMANAGER) == routed(ALERTS / "alertmanager.yml") != ""


def receivers(path: Path) -> dict[str, dict[str, Any]]:
    return {receiver["name"]: receiver for receiver in data_of(path)["receivers"]}


def test_alertmanager_has_the_same_receivers_without_secrets() -> None:
    """Each of them is act, and is told of an end where one of the original is."""
    amtool("check-config", str(ALERTMANAGER))
    expected = {"nobody": {"name": "nobody"}}
    for name, receiver in receivers(ALERTS / "alertmanager.yml").items():
        if name != "nobody":
            del receiver["name"]
            entries = chain.from_iterable(receiver.values())
            resolved = any(entry["send_resolved"] for entry in entries)
            webhook = {"url": "http://act:9851/", "send_resolved": resolved}
            expected[name] = {"name": name, "webhook_configs": [webhook]}
    assert receivers(ALERTMANAGER) == expected
    # act itself only logs, so that the example needs no account anywhere.
    assert "act:9851" in endpoints()
    assert "_file" not in text_of(ALERTMANAGER)


def test_grafana_finds_its_data_sources() -> None:
    """Their addresses are services, and Prometheus' scrape interval is what it is
    told.
    """
    path = ROOT / mounts(services()["grafana"])["/etc/grafana/provisioning/datasources"]
    (file,) = path.iterdir()
    sources = {source["type"]: source for source in data_of(file)["datasources"]}
    assert {
        source["url"].removeprefix("http://") for source in sources.values()
    } <= endpoints()
    assert (
        sources["prometheus"]["jsonData"]["timeInterval"]
        == data_of(PROMETHEUS)["global"]["scrape_interval"]
    )


def test_grafana_finds_its_dashboards_and_begins_with_the_overview() -> None:
    """All four, where the provider looks."""
    service = services()["grafana"]
    (file,) = (ROOT / mounts(service)["/etc/grafana/provisioning/dashboards"]).iterdir()
    (provider,) = data_of(file)["providers"]
    folder = mounts(service)[provider["options"]["path"]]
    assert len(list((ROOT / folder).glob("*.json"))) == 4
    home = PurePosixPath(
        service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    )
    assert str(home.parent) == provider["options"]["path"]
    assert (home.name, (ROOT / folder / home.name).is_file()) == (f"{HOME}.json", True)


def test_links_lead_to_the_published_ports() -> None:
    """Alerts and notifications link to where a browser on this machine finds the
    page.
    """
    running = services()
    links = {
        name: value_of(running[name], "--web.external-url")
        for name in ("prometheus", "alertmanager")
    }
    links["grafana"] = running["grafana"]["environment"]["GF_SERVER_ROOT_URL"]
    for name, link in links.items():
        (published,) = running[name]["ports"]
        assert link == f"http://{published.rpartition(':')[0]}/", name
