"""Every link leads to a dashboard of the bundle, with variables that it has, and keeps what was chosen."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from alerts.lint import read_bundle, shape
from dashboards import lint
from dashboards.lint import links

DASHBOARDS = lint.read_dashboards()
RULES = read_bundle()
ALERTS = {rule.title: rule.annotations["dashboard_url"] for rule in RULES.alerts}
PAYOFF = next(one for one in DASHBOARDS if one.uid == "vllm-specdec-payoff")
LINKS = [
    (found, panel, link)
    for found in DASHBOARDS
    for panel in found.panels
    for _, link in links.data_links(panel)
]
OUTSIDE = [link["url"] for *_, link in LINKS if urlsplit(link["url"]).scheme == "https"]


def columns(panel: lint.Panel) -> list[str]:
    """Return the fields that a link in a table can take values from: those that its transformations name."""
    found = list(panel.columns.values())
    for one in panel.body.get("transformations", ()):
        order = one.get("options", {}).get("indexByName", {})
        found += [name for name in order if name not in panel.columns]
    return found if panel.kind == "table" else []


def test_every_data_link_leads_somewhere_has_a_title_and_opens_as_meant() -> None:
    said = [
        f"{found.uid}, {panel.place}: {words}: {link['url']}"
        for found, panel, link in LINKS
        for words in links.link_complaints(link["url"], found, DASHBOARDS, columns=columns(panel))
    ]
    said += [
        f"{found.uid}, {panel.place}: title or target of {link}"
        for found, panel, link in LINKS
        if not link.get("title") or link.get("targetBlank", False) is not (link["url"] in OUTSIDE)
    ]
    assert said == []


def test_a_link_to_a_runbook_is_of_an_alert_that_has_one() -> None:
    """The address is that of the alerts' own links; the name of the alert is put in."""
    bases = {rule.annotations["runbook_url"].rpartition("/")[0] for rule in RULES.alerts}
    name = re.compile(r"\$\{__(value\.raw|data\.fields\.\w+)\}\.md")
    wrong = [url for url in OUTSIDE if url.rpartition("/")[0] not in bases]
    wrong += [url for url in OUTSIDE if not name.fullmatch(url.rpartition("/")[2])]
    assert OUTSIDE
    assert wrong == []


def test_the_links_at_the_top_lead_to_all_dashboards_and_keep_everything() -> None:
    for found in DASHBOARDS:
        top = found.body["links"]
        assert top, found.uid
        assert [words for link in top for words in links.top_link_complaints(link, DASHBOARDS)] == []
        tags = {tag for link in top for tag in link["tags"]}
        assert all(tags & set(other.body["tags"]) for other in DASHBOARDS)


def test_every_dashboard_is_linked_from_a_panel_or_an_alert() -> None:
    """Nobody has to know an address: the reason for a number is a click away."""
    linked = [link["url"] for *_, link in LINKS] + list(ALERTS.values())
    named = {found.uid for found in DASHBOARDS for url in linked if f"/d/{found.uid}" in url}
    assert {f"vllm-specdec-{name}" for name in ("acceptance", "cost", "load")} <= named


def test_every_alert_leads_to_a_dashboard_with_its_variables() -> None:
    assert {
        alert: said for alert, url in ALERTS.items() if (said := links.alert_complaints(url, DASHBOARDS))
    } == {}


def test_annotations_name_labels_that_they_have() -> None:
    said = []
    for found in DASHBOARDS:
        for mark in found.annotations:
            text = mark.get("titleFormat", "") + mark.get("textFormat", "")
            labels = [part.partition("}}")[0].strip() for part in text.split("{{")[1:]]
            there = shape(lint.Query("", mark["expr"]).tree, RULES) if labels else None
            said += [
                f"{found.uid}, {mark['name']}: {label}"
                for label in labels
                if not (there and there.has(label)) and not re.search(rf"\b{label}\b", mark["expr"])
            ]
    assert said == []


def test_bad_links_are_caught() -> None:
    begin = "/d/vllm-specdec-payoff?${__url_time_range}"
    examples = {
        "/d/vllm-specdec-nothing?${__url_time_range}": "no dashboard vllm-specdec-nothing",
        "/dashboard/db/payoff?${__url_time_range}": "is no dashboard",
        "/d/vllm-specdec-payoff?${__all_variables}": "does not keep the time",
        f"{begin}&var-modell=x": "has no variable modell",
        f"{begin}&var-pod=x&var-pod=y": "pod is handed over twice",
        f"{begin}&${{datasource:queryparam}}": "does not keep job",
        f"{begin}&${{job:query}}": "unknown format query",
        f"{begin}&${{__all_vars}}": "unknown variable __all_vars",
        f"{begin}&var-pod=${{__data.fields.Pods}}": "no field Pods",
        f"{begin}&var-pod=${{pod": "a brace is not closed",
    }
    missed = {}
    for url, words in examples.items():
        found = links.link_complaints(url, PAYOFF, DASHBOARDS, columns=["Pod"])
        if not any(words in one for one in found):
            missed[url] = found
    assert missed == {}
    good = {"type": "dashboards", "tags": ["vllm-specdec"], "keepTime": True, "includeVars": True}
    for change in ({"keepTime": False}, {"tags": ["other"]}, {"type": "link", "url": "/d/other"}):
        assert links.top_link_complaints({**good, **change}, DASHBOARDS)
    template = "{{ with $labels.x }}&var-x={{ . }}{{ end }}"
    for url in ("other?from=now-6h", "vllm-specdec-payoff", f"vllm-specdec-payoff?from=now-6h{template}"):
        assert links.alert_complaints(f"https://g/d/{url}", DASHBOARDS)
