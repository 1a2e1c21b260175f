"""The provisioning files are YAML that Grafana knows, and agree with the repository."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.repository import ROOT, data_of, text_of
from vllm_specdec_exporter.commands.dashboards import files
from vllm_specdec_exporter.commands.dashboards.files import HOME
from vllm_specdec_exporter.config.values import parse_duration

DASHBOARDS = ROOT / "dashboards"
README = DASHBOARDS / "README.md"
PROVISIONING = DASHBOARDS / "provisioning"
SOURCES = PROVISIONING / "datasources/prometheus.yaml"
PROVIDER = PROVISIONING / "dashboards/vllm-specdec.yaml"
CONFIG_MAP = PROVISIONING / "kubernetes/datasource.yaml"


def sources() -> dict[str, dict[str, Any]]:
    """The data sources by type."""
    return {source["type"]: source for source in data_of(SOURCES)["datasources"]}


def provider() -> dict[str, Any]:
    (provider,) = data_of(PROVIDER)["providers"]
    assert isinstance(provider, dict)
    return provider


def test_the_config_map_has_the_data_source_of_the_files() -> None:
    """The same but for its address, and for the Alertmanager, which a cluster has of
    its own.
    """
    config_map = data_of(CONFIG_MAP)
    assert config_map["kind"] == "ConfigMap"
    assert config_map["metadata"]["labels"] == {"grafana_datasource": "1"}
    (text,) = config_map["data"].values()
    (mapped,) = yaml.safe_load(text)["datasources"]
    source = data_of(SOURCES)["datasources"][0]
    for key in list(source["jsonData"]):
        if "lertmanager" in key or key == "manageAlerts":
            del source["jsonData"][key]
    assert mapped == {**source, "url": mapped["url"]}


def test_the_generated_provider_is_the_same() -> None:
    """The command writes what is here, for other paths."""
    path = provider()["options"]["path"]
    generated = files.provider_file(Path("x.yaml"), path)
    assert yaml.safe_load(generated.body) == data_of(PROVIDER)


def test_the_files_agree_with_each_other_and_with_their_comments() -> None:
    """The Alertmanager that is named is there; files are mounted where they are looked
    for.
    """
    assert (
        sources()["prometheus"]["jsonData"]["alertmanagerUid"]
        == sources()["alertmanager"]["uid"]
    )
    mounts = {
        "dashboards/provisioning/datasources": "/etc/grafana/provisioning/datasources",
        "dashboards/provisioning/dashboards": "/etc/grafana/provisioning/dashboards",
        "dashboards/json": provider()["options"]["path"],
    }
    for file in (PROVIDER, README):
        said = re.findall(r"(?m)^#?\s+- \./(\S+?):(\S+?):ro$", text_of(file))
        assert dict(said) == mounts, file
    assert all((DASHBOARDS.parent / here).is_dir() for here in mounts)
    home = re.search(r"HOME_DASHBOARD_PATH: (\S+)", text_of(README))
    assert home is not None
    assert home[1] == f"{mounts['dashboards/json']}/{HOME}.json"


@pytest.mark.parametrize("readme", ["dashboards/README.md", "alerts/README.md"])
def test_the_scrape_interval_is_that_of_the_instructions(readme: str) -> None:
    """$__rate_interval rests on it: a smaller one than Prometheus' makes gaps."""
    interval = sources()["prometheus"]["jsonData"]["timeInterval"]
    scraped = re.findall(r"scrape_interval: (\w+)", text_of(readme))
    assert set(map(parse_duration, scraped)) == {parse_duration(interval)}
