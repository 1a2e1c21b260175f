"""Every link leads to a dashboard of the bundle, with variables that it has, and keeps what was chosen."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from alerts.lint import read_bundle, shape
from dashboards import lint
from dashboards.lint import links
from dashboards.lint_examples import dashboard, put

DASHBOARDS = lint.read_dashboards()
RULES = read_bundle()
ALERTS = {rule.title: rule.annotations["dashboard_url"] for rule in RULES.alerts}
IDS = [found.uid.removeprefix("vllm-specdec-") for found in DASHBOARDS]
HERE = dashboard()


def columns(panel: lint.Panel) -> list[str]:
    """Return the fields that a link in a table can take values from: those that its transformations name."""
    found = list(panel.columns.values())
    for one in panel.body.get("transformations", ()):
        order = one.get("options", {}).get("indexByName", {})
        found += [name for name in order if name not in panel.columns]
    return found if panel.kind == "table" else []


@pytest.mark.parametrize("found", DASHBOARDS, ids=IDS)
def test_every_data_link_leads_somewhere(found: lint.Dashboard) -> None:
    said = [
        f"{panel.place}, {where}: {words}: {link['url']}"
        for panel in found.panels
        for where, link in links.data_links(panel)
        for words in links.link_complaints(link["url"], found, DASHBOARDS, columns=columns(panel))
    ]
    assert said == []


@pytest.mark.parametrize("found", DASHBOARDS, ids=IDS)
def test_every_data_link_has_a_title_and_opens_as_meant(found: lint.Dashboard) -> None:
    for panel in found.panels:
        for where, link in links.data_links(panel):
            assert link.get("title"), (panel.place, where)
            outside = urlsplit(link["url"]).scheme == "https"
            assert link.get("targetBlank", False) is outside, (panel.place, link["url"])


@pytest.mark.parametrize("found", DASHBOARDS, ids=IDS)
def test_a_link_to_a_runbook_is_of_an_alert_that_has_one(found: lint.Dashboard) -> None:
    """The address is that of the alerts' own links; the name of the alert is put in."""
    bases = {rule.annotations["runbook_url"].rpartition("/")[0] for rule in RULES.alerts}
    outside = [
        link["url"]
        for panel in found.panels
        for _, link in links.data_links(panel)
        if urlsplit(link["url"]).scheme == "https"
    ]
    assert [url for url in outside if url.rpartition("/")[0] not in bases] == []
    assert [
        url for url in outside if not re.search(r"/\$\{__(value\.raw|data\.fields\.\w+)\}\.md\Z", url)
    ] == []


@pytest.mark.parametrize("found", DASHBOARDS, ids=IDS)
def test_the_links_at_the_top_lead_to_all_dashboards_and_keep_everything(found: lint.Dashboard) -> None:
    top = found.body["links"]
    assert top
    assert [words for link in top for words in links.top_link_complaints(link, DASHBOARDS)] == []
    tags = {tag for link in top for tag in link["tags"]}
    assert all(tags & set(other.body["tags"]) for other in DASHBOARDS)


def test_every_dashboard_but_the_first_is_linked_from_a_panel_or_an_alert() -> None:
    """Nobody has to know an address: the reason for a number is a click away."""
    linked = [
        link["url"] for found in DASHBOARDS for panel in found.panels for _, link in links.data_links(panel)
    ]
    named = {
        found.uid for found in DASHBOARDS for url in (*linked, *ALERTS.values()) if f"/d/{found.uid}" in url
    }
    assert {"vllm-specdec-acceptance", "vllm-specdec-cost", "vllm-specdec-load"} <= named


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_leads_to_a_dashboard_with_its_variables(alert: str) -> None:
    assert links.alert_complaints(ALERTS[alert], DASHBOARDS) == []


@pytest.mark.parametrize("found", DASHBOARDS, ids=IDS)
def test_annotations_name_labels_that_they_have(found: lint.Dashboard) -> None:
    assert [str(one) for one in annotation_complaints(found)] == []


def annotation_complaints(found: lint.Dashboard) -> list[str]:
    """Return the labels in the texts of annotations that neither the expression nor its series have."""
    said = []
    for mark in found.annotations:
        text = mark.get("titleFormat", "") + mark.get("textFormat", "")
        labels = [part.partition("}}")[0].strip() for part in text.split("{{")[1:]]
        there = shape(lint.Query("", mark["expr"]).tree, RULES) if labels else None
        said += [
            f"{mark['name']}: {label}"
            for label in labels
            if not (there and there.has(label)) and not re.search(rf"\b{label}\b", mark["expr"])
        ]
    return said


# --- the checks themselves

TIME = "${__url_time_range}"
POD = "${__data.fields.Pod}"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"/d/vllm-specdec-nothing?{TIME}&${{__all_variables}}", "no dashboard vllm-specdec-nothing"),
        (f"/dashboard/db/payoff?{TIME}", "is no dashboard"),
        ("/d/vllm-specdec-payoff?${__all_variables}", "does not keep the time"),
        (f"/d/vllm-specdec-payoff?{TIME}&var-modell=x", "has no variable modell"),
        (f"/d/vllm-specdec-payoff?{TIME}&var-pod=x&var-pod=y", "pod is handed over twice"),
        (f"/d/vllm-specdec-payoff?{TIME}&${{datasource:queryparam}}", "does not keep job"),
        (f"/d/vllm-specdec-payoff?{TIME}&${{jobb:queryparam}}", "no variable jobb"),
        (f"/d/vllm-specdec-payoff?{TIME}&${{job:query}}", "unknown format query"),
        (f"/d/vllm-specdec-payoff?{TIME}&${{__all_vars}}", "unknown variable __all_vars"),
        (f"/d/vllm-specdec-payoff?{TIME}&var-pod=${{__data.fields.Pods}}", "no field Pods"),
        (f"/d/vllm-specdec-payoff?{TIME}&var-pod=${{pod", "a brace is not closed"),
    ],
)
def test_a_bad_link_is_caught(url: str, words: str) -> None:
    found = links.link_complaints(url, HERE, [HERE], columns=["Pod"])
    assert any(words in one for one in found), found


@pytest.mark.parametrize(
    "url",
    [
        f"/d/vllm-specdec-payoff?{TIME}&${{__all_variables}}",
        f"/d/vllm-specdec-payoff/slug?{TIME}&${{datasource:queryparam}}&${{job:queryparam}}&var-pod={POD}",
        "https://example.com/runbooks/${__value.raw}.md",
    ],
)
def test_a_good_link_passes(url: str) -> None:
    assert links.link_complaints(url, HERE, [HERE], columns=["Pod"]) == []


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"keepTime": False}, "keepTime is not kept"),
        ({"includeVars": False}, "includeVars is not kept"),
        ({"tags": ["other"]}, "no dashboard has the tags"),
        ({"tags": []}, "no dashboard has the tags"),
        ({"type": "link", "url": "/d/other"}, "no dashboard other"),
        ({"type": "link", "url": "https://example.com"}, "is no dashboard"),
    ],
)
def test_a_bad_link_at_the_top_is_caught(link: dict[str, object], words: str) -> None:
    good = {"type": "dashboards", "tags": ["vllm-specdec"], "keepTime": True, "includeVars": True}
    assert links.top_link_complaints(good, [HERE]) == []
    found = links.top_link_complaints({**good, **link}, [HERE])
    assert any(words in one for one in found), found


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://g/d/vllm-specdec-other?from=now-6h", "is no dashboard of the bundle"),
        ("https://g/d/vllm-specdec-payoff", "from when"),
        (
            "https://g/d/vllm-specdec-payoff?from=now-6h{{ with $labels.x }}&var-x={{ . }}{{ end }}",
            "no var-x",
        ),
    ],
)
def test_a_bad_link_of_an_alert_is_caught(url: str, words: str) -> None:
    found = links.alert_complaints(url, [HERE])
    assert any(words in one for one in found), found


def test_a_label_that_an_annotation_does_not_have_is_caught() -> None:
    assert annotation_complaints(dashboard(put("annotations.list.0.textFormat", "{{node}}"))) == [
        "Marks: node"
    ]
    assert annotation_complaints(dashboard(put("annotations.list.0.textFormat", "{{pod}}"))) == []
