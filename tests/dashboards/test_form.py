"""What stands in the JSON of the dashboards: settings, places, variables, words and units.

Keys and values that Grafana does not know are found in `test_types`, by what queries show in `test_executed`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.models import units

from alerts.lint.expressions import names
from dashboards.documents import columns, dashboards, every_panel, fields, placed, variables_in
from dashboards.series import exists, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.documents import Json

PANELS = {
    f"{uid}: {panel.get('title', panel['type'])}": panel
    for uid, dashboard in dashboards().items()
    for panel in every_panel(dashboard)
}
#: Panels that show values.
SHOWING = {name: panel for name, panel in PANELS.items() if panel["type"] not in ("row", "text")}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and name[0].isupper()}
#: Units that Grafana lacks: a factor, and what is counted.
OWN_UNITS = {"suffix:×", "suffix:tokens/s", "suffix:/min"}
#: Shares whose axis does not go from 0 to 1.
OTHER_AXES = {
    "load: Share of requests that fail",  # a few in a hundred matter
    "cost: Acceptance against break-even",  # break-even above 1 means that no acceptance would pay
}
_SERIES = re.compile(r"vllm(:|_specdec_)\w+|\w+:vllm_\w+:\w+|ALERTS\w*")


def test_no_two_panels_of_a_dashboard_have_one_title() -> None:
    assert len(PANELS) == sum(len(every_panel(dashboard)) for dashboard in dashboards().values())


def test_every_dashboard_opens_alike_and_asks_a_question() -> None:
    """Read by Grafana 10.4 to 13, which know the schema versions 39 to 42."""
    settings = {
        "refresh": "30s",
        "graphTooltip": 1,
        "timezone": "browser",
        "tags": ["vllm-specdec"],
        "editable": False,
    }
    for uid, dashboard in dashboards().items():
        assert {key: dashboard[key] for key in settings} == settings, uid
        assert 39 <= dashboard["schemaVersion"] <= 42
        assert "?" in dashboard["description"], uid
    assert len({dashboard["title"] for dashboard in dashboards().values()}) == len(dashboards())


def test_panels_fill_the_page_line_by_line() -> None:
    """Each line of the grid of 24 columns is covered once; every panel has an id of its own."""
    for uid, dashboard in dashboards().items():
        every = every_panel(dashboard)
        assert len({panel["id"] for panel in every}) == len(every), uid
        covered = Counter[int]()
        for at in (panel["gridPos"] for panel in every):
            covered.update(dict.fromkeys(range(at["y"], at["y"] + at["h"]), at["w"]))
        assert set(covered.values()) == {24}, uid


def test_everything_asks_the_chosen_data_source() -> None:
    def asked(value: Any, key: str = "") -> Iterator[Any]:
        if key == "datasource":
            yield value
        elif isinstance(value, dict) and not value.get("builtIn"):
            for name, inner in value.items():
                yield from asked(inner, name)
        elif isinstance(value, list):
            for inner in value:
                yield from asked(inner)

    for uid, dashboard in dashboards().items():
        assert all(source == DATASOURCE for source in asked(dashboard)), uid
    assert all(panel["datasource"] == DATASOURCE for panel in SHOWING.values())


def test_variables_offer_all_and_several_and_are_used() -> None:
    """Labels that every series has stand for anything, others for nothing as well."""
    for uid, dashboard in dashboards().items():
        variables = dashboard["templating"]["list"]
        assert (variables[0]["name"], variables[0]["query"]) == ("datasource", "prometheus"), uid
        used = set(variables_in(str(dashboard["panels"]) + str(dashboard["annotations"])))
        assert [one["name"] for one in variables if one["name"] not in used] == [], uid
        for one in variables:
            assert one["label"], (uid, one["name"])
            if one["type"] == "query":
                assert one["refresh"] == 2, "anew when the time range changes"
            if one.get("includeAll"):
                sure = one["name"].removeprefix("vllm_").removeprefix("a_").removeprefix("b_")
                if sure in ("job", "instance"):
                    assert one["allValue"] == ".+"
                assert one["current"]["value"] in ("$__all", ["$__all"]), (uid, one["name"])


def test_titles_are_short_and_name_no_metric() -> None:
    wrong = [
        name
        for name, panel in SHOWING.items()
        if len(panel["title"]) > 60
        or re.search(r"\w+:\w+|\b[a-z0-9]+(_[a-z0-9]+)+\b", panel["title"])
        or not re.match(r"[A-Z0-9]|vLLM", panel["title"])
    ]
    assert wrong == []


def test_descriptions_name_series_that_are_asked_and_none_that_do_not_exist() -> None:
    wrong = []
    for name, panel in SHOWING.items():
        quoted = {re.split(r"[{\[]", part)[0] for part in re.findall(r"`([^`]+)`", panel["description"])}
        asked = {one for target in panel["targets"] for one in names(tree(target["expr"]))}
        wrong += [f"{name}: {one}" for one in quoted if _SERIES.fullmatch(one) and not exists(one)]
        wrong += [] if asked & quoted else [f"{name} names none of {', '.join(sorted(asked))}"]
    assert wrong == []


def test_panels_that_can_be_empty_say_what_that_means() -> None:
    can_be = {"stat", "table", "bargauge", "timeseries"}
    assert [
        name
        for name, panel in SHOWING.items()
        if panel["type"] in can_be and not panel["fieldConfig"]["defaults"].get("noValue")
    ] == []


def values(panel: Json) -> Iterator[Json]:
    """Yield the field options of everything that is a number."""
    (_, defaults), *overrides = fields(panel)
    if panel["type"] != "table":
        yield defaults
        return
    headings = columns(panel)
    for target in panel["targets"]:
        name = headings.get(f"Value #{target['refId']}", headings.get("Value"))
        found = dict(defaults)
        for overridden, properties in overrides:
            found |= properties if overridden == name else {}
        yield found


def test_every_number_has_a_unit_that_grafana_has_or_is_mapped_to_a_word() -> None:
    wrong = [
        name
        for name, panel in SHOWING.items()
        if panel["type"] != "state-timeline"
        and not all(one.get("unit") or one.get("mappings") for one in values(panel))
    ]
    wrong += [
        f"{name}: {properties['unit']}"
        for name, panel in SHOWING.items()
        for _, properties in fields(panel)
        if properties.get("unit", "short") not in UNITS | OWN_UNITS
    ]
    assert wrong == []


def test_axes_of_shares_go_from_0_to_1() -> None:
    other = {
        name
        for name, panel in SHOWING.items()
        for defaults in [panel["fieldConfig"]["defaults"]]
        if panel["type"] in ("timeseries", "bargauge")
        and defaults.get("unit") == "percentunit"
        and (defaults.get("min"), defaults.get("max")) != (0, 1)
    }
    assert other == OTHER_AXES


def called(panel: Json, matcher: Json) -> bool:
    """Return whether a series of a panel can have the name that an override asks for."""
    pattern = str(matcher["options"]).strip("/")
    for target in panel["targets"]:
        legend = target.get("legendFormat", "")
        texts = [re.sub(r"\{\{.*?\}\}", word, legend) for word in ("7", "word")]
        if matcher["id"] == "byRegexp" and any(re.search(pattern, text) for text in texts):
            return True
        words = ".*".join(re.escape(part) for part in re.split(r"\{\{.*?\}\}", legend))
        if matcher["id"] == "byName" and re.fullmatch(words, pattern):
            return True
    return matcher["id"] not in ("byName", "byRegexp")


def test_every_override_is_of_a_series_or_column_that_the_panel_has() -> None:
    wrong = []
    for name, panel in SHOWING.items():
        matchers = [one["matcher"] for one in panel["fieldConfig"]["overrides"]]
        if panel["type"] == "table":
            there = placed(panel) | set(columns(panel).values())
            by = [one["displayName"] for one in panel["options"]["sortBy"]]
            named = by + [one["options"] for one in matchers if one["id"] == "byName"]
            wrong += [f"{name}: {one}" for one in named if one not in there]
        else:
            wrong += [f"{name}: {one['options']}" for one in matchers if not called(panel, one)]
    assert wrong == []


def test_thresholds_are_asked_for_and_not_written_down() -> None:
    assert [
        name
        for name, panel in SHOWING.items()
        for _, properties in fields(panel)
        if len(properties.get("thresholds", {}).get("steps", ())) > 1
    ] == []
