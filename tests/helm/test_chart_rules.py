"""The PrometheusRules are the rules that Prometheus loads without Helm, but for what
the values say.
"""

from collections.abc import Iterator
from copy import deepcopy
from itertools import chain
from typing import Any

import yaml

from support.published import RUNBOOKS
from support.repository import ROOT, Json, data_of

from .charts import render
from .value_cases import RULES, merged

FILES = {
    path.stem: data_of(path)["groups"] for path in (ROOT / "alerts/rules").glob("*.yml")
}
GRAFANA = "https://grafana.example.com"


def rules(**values: Any) -> dict[str, list[Json]]:
    """The groups of each PrometheusRule, by the file's name; addresses are left as in
    the files.
    """
    complete = {"runbookUrl": RUNBOOKS, "grafanaUrl": GRAFANA, **values}
    objects = render(merged(RULES, {"prometheusRule": complete}), release="r")
    return {
        obj["metadata"]["name"].removeprefix("r-vllm-specdec-exporter-"): obj["spec"][
            "groups"
        ]
        for obj in objects
    }


def alerts_of(files: dict[str, list[Json]]) -> Iterator[Json]:
    for group in chain.from_iterable(files.values()):
        yield from (rule for rule in group["rules"] if "alert" in rule)


ALERTS = sorted({alert["alert"] for alert in alerts_of(FILES)})


def without(names: set[str]) -> dict[str, list[Json]]:
    """The files without some alerts; groups that have nothing left are none."""
    left = deepcopy(FILES)
    for groups in left.values():
        for group in groups:
            group["rules"] = [
                rule for rule in group["rules"] if rule.get("alert") not in names
            ]
        groups[:] = [group for group in groups if group["rules"]]
    return {name: groups for name, groups in left.items() if groups}


def halves(names: list[str]) -> Iterator[set[str]]:
    """Sets by which each name is told from every other: those with the bit set in their
    number, from 1.
    """
    for bit in range(len(names).bit_length()):
        yield {name for number, name in enumerate(names, start=1) if number >> bit & 1}


def test_nothing_switched_is_the_files() -> None:
    """Every group, rule, label, annotation and expression, in the same order; own
    groups are added.
    """
    groups = [
        {
            "name": "own",
            "rules": [{"record": "own:up:sum", "expr": "sum(up) # {{ x }}"}],
        }
    ]
    assert rules(extraGroups=groups) == {**FILES, "extra": groups}


def test_a_group_off_is_that_file_less() -> None:
    """And nothing else."""
    for off in halves(sorted(set(FILES) - {"recording"})):
        left = {name: groups for name, groups in FILES.items() if name not in off}
        assert rules(groups=dict.fromkeys(off, False)) == left, off


def test_an_alert_off_is_that_alert_less() -> None:
    """And nothing else: recording rules stay, no object is without groups, and false
    disables nothing.
    """
    for off in (set(ALERTS), *halves(ALERTS)):
        disabled = {alert: alert in off for alert in ALERTS}
        assert rules(disabled=disabled) == without(off), off


def test_addresses_are_replaced_everywhere() -> None:
    """No address of the files is left, and every link is the old one under the new
    address.
    """
    replaced = rules(
        runbookUrl="https://r.example.org/x/", grafanaUrl="https://g.example.org/y"
    )
    text = yaml.safe_dump(replaced)
    assert "example.com" not in text
    assert RUNBOOKS not in text
    back = text.replace("https://r.example.org/x", RUNBOOKS).replace(
        "https://g.example.org/y", GRAFANA
    )
    assert yaml.load(back, yaml.CSafeLoader) == FILES


def test_without_addresses_no_alert_has_a_link_to_nowhere() -> None:
    """A placeholder in a page at night helps nobody."""
    bare = rules(runbookUrl="", grafanaUrl="")
    assert "example.com" not in yaml.safe_dump(bare)
    assert RUNBOOKS not in yaml.safe_dump(bare)
    wanted = deepcopy(FILES)
    for alert in alerts_of(wanted):
        alert["annotations"].pop("runbook_url", None)
        alert["annotations"].pop("dashboard_url", None)
    assert bare == wanted


def test_labels_and_annotations_go_on_every_alert_and_change_none() -> None:
    """Recording rules get none, which would make other series of theirs; a severity is
    never overwritten.
    """
    labels = {"team": "inference", "severity": "mine"}
    annotations = {"note": "{{ $labels.pod }}", "summary": "mine"}
    wanted = deepcopy(FILES)
    for alert in alerts_of(wanted):
        alert["labels"] = labels | alert["labels"]
        alert["annotations"] = annotations | alert["annotations"]
    assert rules(extraLabels=labels, extraAnnotations=annotations) == wanted
