"""The committed configuration: it loads, routes every alert, and names nothing that is
not there.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from alertmanager.bundle import (
    CONFIG,
    PREFIX,
    SECRETS,
    Rule,
    alert,
    config,
    routes,
    rules,
)
from support.alertmanager import amtool
from support.repository import text_of
from vllm_specdec_exporter.config.values import parse_duration

RULES = rules()


def check(folder: Path, document: dict[str, Any]) -> str:
    """Run amtool over a configuration."""
    (folder / "templates").symlink_to(CONFIG.parent / "templates")
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(document))
    return amtool("check-config", str(path))


def receivers_of(labels: dict[str, str], path: Path = CONFIG) -> list[str]:
    """Return the receivers that an alert is routed to, by amtool."""
    pairs = [f"{name}={value}" for name, value in labels.items()]
    command = ("config", "routes", "test", f"--config.file={path}", *pairs)
    return amtool(*command).strip().split(",")


@pytest.mark.full
def test_it_loads_as_it_is() -> None:
    """The tool takes the file from its place in the repository, with its templates."""
    said = amtool("check-config", str(CONFIG))
    assert "SUCCESS" in said
    assert " - 1 templates" in said


SEVERITIES = {
    "critical": ["page"],
    "warning": ["ticket"],
    "info": ["hints"],
    "none": [],
}


@pytest.mark.full
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.title)
def test_an_alert_goes_where_its_severity_says(rule: Rule) -> None:
    """Decisions go to the webhook as well, or to it alone, the watchdog to its switch;
    nothing goes nowhere.
    """
    wanted = SEVERITIES[rule.labels["severity"]]
    if rule.labels["subject"] == "decision":
        wanted = ["actions", *wanted]
    if rule.name == "Watchdog":
        wanted = ["watchdog"]
    assert receivers_of(alert(rule)["labels"]) == wanted


OWN = f"{PREFIX}Own"


@pytest.mark.full
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "NodeDown", "severity": "critical"}, "nobody"),
        ({"alertname": "NodeDown", "action": "disable"}, "nobody"),
        ({"alertname": "MyVLLMSpecDecodeRule", "severity": "critical"}, "nobody"),
        ({"alertname": OWN, "severity": "sev1"}, "ticket"),
        ({"alertname": OWN}, "ticket"),
        ({"alertname": OWN, "severity": "warning", "action": ""}, "ticket"),
    ],
)
def test_only_the_bundles_names_are_routed(
    labels: dict[str, str], receiver: str
) -> None:
    """Of these also what somebody relabelled."""
    assert receivers_of(labels) == [receiver]


def test_notifications_are_by_model_and_repeats_are_looked_at_often_enough() -> None:
    """A repeat happens at a multiple of group_interval, so that must be the shorter
    one.
    """
    (bundle,) = config()["route"]["routes"]
    by_model = ["cluster", "namespace", "model_name"]
    assert bundle["group_by"] == by_model
    for route in routes(bundle):
        name = route["receiver"]
        assert route.get("group_by", by_model) == by_model, name
        wait, interval, repeat = (
            parse_duration(route[key])
            for key in ("group_wait", "group_interval", "repeat_interval")
        )
        # After 120 hours Alertmanager forgets what it has sent.
        assert wait <= interval < repeat < 120 * 3600, name


@pytest.mark.full
def test_the_example_of_a_muted_rollout_loads_once_it_is_taken_into_use(
    tmp_path: Path,
) -> None:
    """It is a comment: nothing is muted as the file is."""
    text = text_of(CONFIG)
    assert "mute_time_intervals" not in str(config()["route"])
    used = yaml.safe_load(
        text.replace("# mute_time_intervals: [", "mute_time_intervals: [")
    )
    (muted,) = (r for r in routes(used["route"]) if "mute_time_intervals" in r)
    assert muted["receiver"] == "ticket"
    assert "SUCCESS" in check(tmp_path, used)


@pytest.mark.full
def test_it_can_be_merged_into_another_configuration_as_its_comment_says(
    tmp_path: Path,
) -> None:
    """The other's alerts go where they went, the bundle's where they should."""
    merged = config()
    merged["route"] = {
        "receiver": "other",
        "group_by": ["alertname"],
        "routes": [
            *merged["route"]["routes"],
            {"matchers": ['severity="critical"'], "receiver": "loud"},
        ],
    }
    merged["receivers"].remove({"name": "nobody"})
    merged["receivers"] += [{"name": "other"}, {"name": "loud"}]
    assert "SUCCESS" in check(tmp_path, merged)
    receivers = {
        (name, severity): receivers_of(
            {"alertname": name, "severity": severity}, tmp_path / "alertmanager.yml"
        )
        for name, severity in (
            ("NodeDown", "critical"),
            ("NodeDown", "warning"),
            (f"{PREFIX}Harmful", "critical"),
        )
    }
    assert list(receivers.values()) == [["loud"], ["other"], ["page"]], receivers


def test_secrets_come_from_files() -> None:
    """Every setting that is a secret names a file, and all files are in one folder."""
    secret = r"\w*(?:api_url|password|_key|credentials|token|secret)(?:_file)?"
    secrets = re.findall(rf"(?m)^[ -]*{secret}: \S+$", text_of(CONFIG))
    assert len(secrets) == 5
    from_file = re.compile(rf"[ -]*\w+_file: {re.escape(SECRETS)}[a-z-]+")
    assert [line for line in secrets if not from_file.fullmatch(line)] == []
