"""Every link leads to a dashboard of the bundle, with variables that it has, and keeps what was chosen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from alerts.lint import read_bundle
from dashboards.documents import VARIABLE, dashboards, every_panel, fields, placed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.documents import Json

UIDS = {document["uid"]: document for document in dashboards().values()}
ALERTS = {rule.title: rule.annotations for rule in read_bundle().alerts}
LINKS = [
    (dashboard, panel, link)
    for dashboard in dashboards().values()
    for panel in every_panel(dashboard)
    for _, properties in fields(panel)
    for link in properties.get("links", ())
]
OUTSIDE = [link["url"] for *_, link in LINKS if urlsplit(link["url"]).scheme == "https"]
#: Grafana's own variables in links: what a row or a value has, the time range, and all variables.
OWN = ("__value.raw", "__url_time_range", "__all_variables")


def names(dashboard: Json) -> set[str]:
    """Return the names of a dashboard's variables."""
    return {variable["name"] for variable in dashboard["templating"]["list"]}


def complaints(url: str, dashboard: Json, columns: set[str]) -> Iterator[str]:
    """Say what is wrong with a link from a dashboard, from a panel with these columns."""
    if url.count("${") != len(list(VARIABLE.finditer(url))):
        yield "not a variable as Grafana writes it"
    for found in VARIABLE.finditer(url):
        name = found["braced"] or found["plain"]
        field = name.removeprefix("__data.fields.")
        if (
            found["format"] != ("percentencode" if field != name else None)
            and found["format"] != "queryparam"
        ):
            yield f"a field that is not percent-encoded, or the unknown format {found['format']}"
        if name not in OWN and name not in names(dashboard) and (field == name or field not in columns):
            yield f"no variable or field {name}"
    parts = urlsplit(url)
    if parts.scheme == "https":
        return
    target = UIDS.get(parts.path.removeprefix("/d/"))
    if target is None:
        yield f"no dashboard {parts.path}"
        return
    query = parts.query.split("&")
    if "${__url_time_range}" not in query:
        yield "does not keep the time"
    handed = [key.removeprefix("var-") for key, _ in parse_qsl(parts.query) if key.startswith("var-")]
    handed += re.findall(r"\$\{(\w+):queryparam\}", parts.query)
    yield from (f"{name} is not a variable there" for name in handed if name not in names(target))
    if len(handed) != len(set(handed)):
        yield "hands a variable over twice"
    if "${__all_variables}" not in query:
        lost = {"datasource", "job"} & names(dashboard) & names(target) - set(handed)
        yield from (f"does not keep {name}" for name in lost)


def test_every_data_link_leads_somewhere_has_a_title_and_opens_as_meant() -> None:
    said = [
        f"{dashboard['uid']}, {panel['title']}: {words}: {link['url']}"
        for dashboard, panel, link in LINKS
        for words in complaints(link["url"], dashboard, placed(panel))
    ]
    assert said == []
    assert all(link["title"] and link["targetBlank"] == (link["url"] in OUTSIDE) for *_, link in LINKS)


def test_bad_links_are_noticed() -> None:
    begin = "/d/vllm-specdec-payoff?${__url_time_range}"
    examples = {
        "/d/vllm-specdec-nothing?${__url_time_range}": "no dashboard",
        "/d/vllm-specdec-payoff?${__all_variables}": "does not keep the time",
        f"{begin}&var-modell=x": "modell is not a variable there",
        f"{begin}&var-pod=x&var-pod=y": "twice",
        f"{begin}&${{datasource:queryparam}}": "does not keep job",
        f"{begin}&${{job:query}}": "unknown format query",
        f"{begin}&var-pod=${{__data.fields.Pod}}": "not percent-encoded",
        f"{begin}&${{__all_vars}}": "no variable or field __all_vars",
        f"{begin}&var-pod=${{__data.fields.Pods}}": "no variable or field __data.fields.Pods",
        f"{begin}&var-pod=${{pod": "not a variable as Grafana writes it",
    }
    for url, words in examples.items():
        found = list(complaints(url, dashboards()["payoff"], {"Pod"}))
        assert any(words in one for one in found), (url, found)


def test_a_link_to_a_runbook_is_of_an_alert_that_has_one() -> None:
    """The address is that of the alerts' own links; the name of the alert is put in."""
    bases = {links["runbook_url"].rpartition("/")[0] for links in ALERTS.values()}
    assert {url.rpartition("/")[0] for url in OUTSIDE} == bases
    assert {url.rpartition("/")[2] for url in OUTSIDE} == {"${__value.raw}.md"}


def test_the_links_at_the_top_lead_to_all_dashboards_and_keep_everything() -> None:
    for uid, dashboard in dashboards().items():
        (link,) = dashboard["links"]
        assert (link["type"], link["keepTime"], link["includeVars"]) == ("dashboards", True, True), uid
        assert all(set(link["tags"]) <= set(other["tags"]) for other in UIDS.values())


def test_every_alert_leads_to_a_dashboard_with_its_variables() -> None:
    """Every template of its link may be empty."""
    for alert, links in ALERTS.items():
        parts = urlsplit(re.sub(r"\{\{.*?\}\}", "", links["dashboard_url"]))
        given = {key for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
        target = UIDS[parts.path.rpartition("/d/")[2]]
        assert "from" in given, alert
        assert given <= {"from", "to", *(f"var-{name}" for name in names(target))}, alert
