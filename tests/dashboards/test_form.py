"""The JSON of the dashboards: settings, variables, words, units and links;
`test_executed` runs queries.
"""

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
from grafana_foundation_sdk.models import units

from alerts.lint import read_bundle
from dashboards.documents import (
    VARIABLE,
    Json,
    columns,
    dashboards,
    every_panel,
    fields,
    named_panels,
    placed,
    under,
    variables_in,
)
from dashboards.grafana_types import UNTYPED, misfits
from support.published import REPOSITORY
from support.repository import ROOT

PANELS = named_panels()
#: Panels that show values.
SHOWING = {name: panel for name, panel in PANELS.items() if panel["type"] != "text"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {value for name, value in vars(units).items() if name[0].isupper()}
#: Field options that say what a number is.
SAID = {"unit", "mappings"}
#: Units that Grafana lacks: a factor, what is counted, and a time of the day.
OWN_UNITS = {"suffix:×", "suffix: h", "suffix:tokens/s", "suffix:/min", "time:HH:mm"}
UIDS = {document["uid"]: document for document in dashboards().values()}
ALERTS = {rule.title: rule.annotations for rule in read_bundle().alerts}
#: With a link, once there is a repository that it leads to.
_LINK = rf" \[More\]\({re.escape(REPOSITORY)}/blob/main/docs/(?P<page>[\w-]+\.md)\)"
_DESCRIPTION = re.compile(
    rf"(?P<words>[^\[\]]+){'' if '/OWNER/' in REPOSITORY else _LINK}"
)
#: Grafana's own variables in links: the value of a cell, and the time range.
OWN = ("__value.raw", "__url_time_range")


@pytest.mark.parametrize("uid", dashboards())
def test_every_dashboard_can_be_imported_and_opens_alike(uid: str) -> None:
    """Grafana asks for the data source at an import, and puts it into the variable of
    that name.

    Read by Grafana 10.4 to 13, which know the schema versions 39 to 42.
    """
    dashboard = dashboards()[uid]
    for key in ("refresh", "graphTooltip", "timezone", "tags", "editable"):
        assert dashboard[key] == dashboards()["overview"][key], key
    panels = every_panel(dashboard)
    for key in ("id", "title"):
        assert len({panel.get(key) for panel in panels}) == len(panels), key
    assert 39 <= dashboard["schemaVersion"] <= 42
    assert dashboard["description"].endswith("?")
    (asked,) = dashboard["__inputs"]
    source = dashboard["templating"]["list"][0]
    assert asked["pluginId"] == "prometheus"
    assert source["current"]["value"] == f"${{{asked['name']}}}"
    needed = {each["id"] for each in dashboard["__requires"] if each["type"] == "panel"}
    assert needed == {panel["type"] for panel in panels} - {"row"}


def test_grafana_knows_everything_in_a_dashboard() -> None:
    """What its own types do not name is listed, and used."""
    for uid, dashboard in dashboards().items():
        assert misfits(dashboard) == [], uid
    text = json.dumps(dict(dashboards()))
    for path in UNTYPED:
        assert f'"{path.rpartition(".")[2]}"' in text, path


def test_everything_uses_the_chosen_data_source() -> None:
    sources = list(under([*dashboards().values()], "datasource"))
    assert [source for source in sources if source != DATASOURCE] == []
    assert all(panel["datasource"] == DATASOURCE for panel in SHOWING.values())


def test_variables_offer_all_and_are_used() -> None:
    for uid, dashboard in dashboards().items():
        variables = dashboard["templating"]["list"]
        used = variables_in(str(dashboard["panels"]) + str(dashboard["annotations"]))
        assert names(dashboard) - {*used, "filters"} == set(), uid
        for variable in variables:
            if variable["type"] == "query":
                # Anew when the time range changes.
                name = variable["name"]
                wanted = {"refresh": 2, **offer(uid, name)}
                assert {key: variable[key] for key in wanted} == wanted, (uid, name)
                if "allValue" in wanted:
                    assert variable["current"]["value"] == ["$__all"], (uid, name)


def offer(uid: str, name: str) -> Json:
    """Return what a variable offers: all, or one at a time."""
    if uid == "deep-dive" and name not in ("pod", "engine"):
        # One model, at first the one that loses most: nothing is pooled.
        return {"multi": False, "includeAll": False, "sort": 0}
    if name == "window":
        return {}
    return {"multi": True, "allValue": ".*"}


def test_words_are_short() -> None:
    """Titles name no metric; a description has 15 words and a link; empty panels say
    what that means.
    """
    metric = re.compile(r"\w+:\w+|\b[a-z0-9]+(_[a-z0-9]+)+\b")
    for name, panel in SHOWING.items():
        title = panel["title"]
        assert len(title) <= 60, name
        assert not metric.search(title), name
        assert re.match(r"[A-Z0-9]|vLLM", title), name
        description = _DESCRIPTION.fullmatch(panel["description"])
        assert description, name
        assert 4 <= len(description["words"].split()) <= 15, name
        if "page" in description.groupdict():
            assert (ROOT / "docs" / description["page"]).exists(), name
        if panel["type"] != "heatmap":
            assert panel["fieldConfig"]["defaults"].get("noValue"), name


def values(panel: Json) -> Iterator[Json]:
    """Yield the field options of everything that is a number."""
    (_, defaults), *overrides = fields(panel)
    if panel["type"] != "table":
        yield defaults
        return
    headings = columns(panel)
    for target in panel["targets"]:
        name = headings.get(f"Value #{target['refId']}", headings.get("Value"))
        merged = dict(defaults)
        for overridden, properties in overrides:
            if overridden == name:
                merged |= properties
        yield merged


def test_every_number_has_a_unit_that_grafana_has_or_is_mapped_to_a_word() -> None:
    for name, panel in SHOWING.items():
        units = {options.get("unit", "short") for _, options in fields(panel)}
        assert units <= UNITS | OWN_UNITS, name
        if panel["type"] != "state-timeline":
            bare = [shown for shown in values(panel) if not shown.keys() & SAID]
            assert bare == [], name


def called(panel: Json, matcher: Json) -> bool:
    """Return whether a series of a panel can have the name of an override."""
    pattern = str(matcher["options"]).strip("/")
    for target in panel["targets"]:
        legend = target["legendFormat"]
        texts = [re.sub(r"\{\{.*?\}\}", word, legend) for word in ("7", "word")]
        if matcher["id"] == "byRegexp" and any(
            re.search(pattern, text) for text in texts
        ):
            return True
        expected = ".*".join(map(re.escape, re.split(r"\{\{.*?\}\}", legend)))
        if matcher["id"] == "byName" and re.fullmatch(expected, pattern):
            return True
    return matcher["id"] not in ("byName", "byRegexp")


def test_every_override_is_of_a_series_or_column_that_the_panel_has() -> None:
    for name, panel in SHOWING.items():
        overrides = panel["fieldConfig"]["overrides"]
        matchers = [override["matcher"] for override in overrides]
        if panel["type"] != "table":
            for matcher in matchers:
                assert called(panel, matcher), (name, matcher["options"])
            continue
        named = [column["displayName"] for column in panel["options"]["sortBy"]]
        named += [m["options"] for m in matchers if m["id"] == "byName"]
        there = placed(panel) | set(columns(panel).values())
        for title in named:
            assert title in there, (name, title)


def test_thresholds_are_thin_dashed_lines() -> None:
    """Or dotted, beside another one in the same panel; they have no points and no
    area.
    """
    line = {
        "custom.fillOpacity": 0,
        "custom.lineStyle": {"dash": [8, 6], "fill": "dash"},
        "custom.lineWidth": 1,
        "custom.showPoints": "never",
    }
    dotted = {**line, "custom.lineStyle": {"dash": [2, 5], "fill": "dash"}}
    drawn = {
        (title, name): {key: options[key] for key in options if key != "color"}
        for title, panel in SHOWING.items()
        for name, options in fields(panel)
        if name.startswith("/^limit: ")
    }
    styles = list(drawn.values())
    assert line in styles
    assert dotted in styles
    assert [of for of, style in drawn.items() if style not in (line, dotted)] == []


def test_thresholds_are_queried_and_not_written_down() -> None:
    written = {
        (title, name)
        for title, panel in SHOWING.items()
        for name, options in fields(panel)
        if len(options.get("thresholds", {}).get("steps", ())) > 1
    }
    assert written == set()


def test_states_of_a_timeline_keep_their_words() -> None:
    """`prepareTimelineFields` replaces values by labels of thresholds if they are
    coloured by thresholds.

    public/app/core/components/TimelineChart/utils.ts.
    """
    modes = {
        name: panel["fieldConfig"]["defaults"]["color"]["mode"]
        for name, panel in SHOWING.items()
        if panel["type"] == "state-timeline"
    }
    assert len(modes) >= 2
    assert modes == dict.fromkeys(modes, "fixed")


# --- links


def complaints(url: str, dashboard: Json, there: set[str]) -> Iterator[str]:
    """Say what is wrong with a link from a panel with these columns."""
    for match in VARIABLE.finditer(url):
        name = match["braced"] or match["plain"]
        field = name.removeprefix("__data.fields.")
        # A host and a port stand in an address as they are.
        in_path = not url.startswith(f"http://{match[0]}")
        if (
            in_path
            and (field != name or name == "__value.raw")
            and match["format"] != "percentencode"
        ):
            yield f"{name} is not percent-encoded"
        if (
            name not in OWN
            and name not in names(dashboard)
            and (field == name or field not in there)
        ):
            yield f"no variable or field {name}"
    parts = urlsplit(url)
    if not parts.path.startswith("/d/"):
        return
    target = UIDS.get(parts.path.removeprefix("/d/"))
    if target is None:
        yield f"no dashboard {parts.path}"
        return
    if "${__url_time_range}" not in parts.query.split("&"):
        yield "does not keep the time"
    handed = [
        key.removeprefix("var-")
        for key, _ in parse_qsl(parts.query)
        if key.startswith("var-")
    ]
    handed += re.findall(r"\$\{(\w+):queryparam\}", parts.query)
    yield from (
        f"{name} is not a variable there"
        for name in handed
        if name not in names(target)
    )
    if len(handed) != len(set(handed)):
        yield "hands a variable over twice"
    yield from (
        f"does not keep {name}" for name in names(target) - set(handed) - {"filters"}
    )


def names(dashboard: Json) -> set[str]:
    """Return the names of a dashboard's variables."""
    return {variable["name"] for variable in dashboard["templating"]["list"]}


def test_every_data_link_leads_somewhere_and_keeps_what_is_chosen() -> None:
    """A dashboard that is imported by hand has no dead link: an alert leads to its rule
    in Grafana.
    """
    wrong = {}
    outside = set()
    for name, panel in PANELS.items():
        dashboard = dashboards()[name.partition(":")[0]]
        for _, options in fields(panel):
            for link in options.get("links", ()):
                url = link["url"]
                if found := list(complaints(url, dashboard, placed(panel))):
                    wrong[name, url] = found
                if not url.startswith("/d/"):
                    outside.add(url)
    assert wrong == {}
    assert outside == {
        "/alerting/list?search=rule:${__value.raw:percentencode}",
        "http://${__data.fields.Instance}/",
    }


@pytest.mark.parametrize("uid", dashboards())
def test_the_links_at_the_top_lead_to_all_dashboards_and_keep_everything(
    uid: str,
) -> None:
    link, of_vllm = dashboards()[uid]["links"]
    keep = {"type": "dashboards", "keepTime": True, "includeVars": True}
    assert link.items() >= keep.items()
    assert (of_vllm["asDropdown"], of_vllm["tags"]) == (True, ["vllm"])
    # All have the same tags.
    assert set(link["tags"]) <= set(dashboards()[uid]["tags"])


def test_every_alert_leads_to_a_dashboard_with_its_variables() -> None:
    """Every template of its link may be empty."""
    for alert, links in ALERTS.items():
        parts = urlsplit(re.sub(r"\{\{.*?\}\}", "", links["dashboard_url"]))
        parameters = {key for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
        target = UIDS[parts.path.rpartition("/d/")[2]]
        assert "from" in parameters, alert
        assert parameters <= {"from", *(f"var-{name}" for name in names(target))}, alert
