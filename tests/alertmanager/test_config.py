"""The committed configuration: it loads, routes every alert, and names nothing that is
not there.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from alertmanager.bundle import CONFIG, PREFIX, SECRETS, alert, config, routes, rules
from support.alertmanager import amtool

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


@pytest.mark.full
def test_every_alert_goes_where_its_severity_says_and_others_are_left_alone() -> None:
    """Decisions go to the webhook as well, or to it alone, the watchdog to its switch;
    nothing goes nowhere.

    Only the bundle's names are routed; of these also what somebody relabelled.
    """
    by_severity = {
        "critical": ["page"],
        "warning": ["ticket"],
        "info": ["hints"],
        "none": [],
    }
    for rule in RULES:
        wanted = by_severity[rule.labels["severity"]]
        if rule.labels["subject"] == "decision":
            wanted = ["actions", *wanted]
        if rule.name == "Watchdog":
            wanted = ["watchdog"]
        assert receivers_of(alert(rule)["labels"]) == wanted, rule.title
    relabelled = {"alertname": f"{PREFIX}Own"}
    for labels, receiver in (
        ({"alertname": "NodeDown", "severity": "critical"}, "nobody"),
        ({"alertname": "NodeDown", "action": "disable"}, "nobody"),
        ({"alertname": "MyVLLMSpecDecodeRule", "severity": "critical"}, "nobody"),
        (relabelled | {"severity": "sev1"}, "ticket"),
        (relabelled, "ticket"),
        (relabelled | {"severity": "warning", "action": ""}, "ticket"),
    ):
        assert receivers_of(labels) == [receiver], labels


def test_notifications_are_by_model_and_repeats_are_looked_at_often_enough() -> None:
    """A repeat happens at a multiple of group_interval, so that must be the shorter
    one.
    """
    bundle = config()["route"]["routes"]
    assert len(bundle) == 1
    assert bundle[0]["group_by"] == ["cluster", "namespace", "model_name"]
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    for route in routes(bundle[0]):
        assert route.get("group_by", bundle[0]["group_by"]) == bundle[0]["group_by"]
        times = (route["group_wait"], route["group_interval"], route["repeat_interval"])
        wait, interval, repeat = (int(time[:-1]) * seconds[time[-1]] for time in times)
        assert wait <= interval < repeat, route
        assert repeat < 120 * 3600, (
            "Alertmanager forgets after 120 hours what it has sent"
        )


@pytest.mark.full
def test_the_example_of_a_muted_rollout_loads_once_it_is_taken_into_use(
    tmp_path: Path,
) -> None:
    """It is a comment: nothing is muted as the file is."""
    text = CONFIG.read_text("utf-8")
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
    shipped = config()
    merged = {
        **shipped,
        "route": {
            "receiver": "other",
            "group_by": ["alertname"],
            "routes": [
                *shipped["route"]["routes"],
                {"matchers": ['severity="critical"'], "receiver": "loud"},
            ],
        },
        "receivers": [
            {"name": "other"},
            {"name": "loud"},
            *(
                receiver
                for receiver in shipped["receivers"]
                if receiver["name"] != "nobody"
            ),
        ],
    }
    assert "SUCCESS" in check(tmp_path, merged)
    path = tmp_path / "alertmanager.yml"
    for name, severity, receiver in (
        ("NodeDown", "critical", "loud"),
        ("NodeDown", "warning", "other"),
        (f"{PREFIX}Harmful", "critical", "page"),
    ):
        labels = {"alertname": name, "severity": severity}
        assert receivers_of(labels, path) == [receiver], labels


def test_secrets_come_from_files() -> None:
    """Every setting that is a secret names a file, and all files are in one folder."""
    secret = r"\w*(?:api_url|password|_key|credentials|token|secret)(?:_file)?"
    secrets = re.findall(rf"(?m)^[ -]*({secret}): (\S+)$", CONFIG.read_text("utf-8"))
    assert len(secrets) == 5
    for key, value in secrets:
        assert key.endswith("_file"), key
        assert re.fullmatch(re.escape(SECRETS) + r"[a-z-]+", value), value
