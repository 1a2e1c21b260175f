"""The dashboards pass every check of the linter, and every check catches what it is for.

The bad examples are the payoff dashboard, spoilt in one place.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from dashboards import lint
from dashboards.lint import codes, known
from dashboards.lint.document import spoilt

DASHBOARDS = lint.read_dashboards()
(PAYOFF,) = (one for one in DASHBOARDS if one.uid == "vllm-specdec-payoff")
PLACES = {panel["title"]: f"panels.{at}" for at, panel in enumerate(PAYOFF.body["panels"])}
TILE, WORDS, LINE = PLACES["Speedup"], PLACES["Does speculation pay?"], PLACES["Coverage and waste"]
TABLE = PLACES["Which model loses?"]
FIELD, EXPR = f"{LINE}.fieldConfig.defaults", f"{LINE}.targets.0.expr"
LEGEND, BY_MODEL_LEGEND = (
    f"{place}.targets.0.legendFormat" for place in (LINE, PLACES["Acceptance rate by model"])
)
MAPPINGS = f"{WORDS}.fieldConfig.defaults.mappings"
VARIABLES = "templating.list"
JOB = f"{VARIABLES}.{PAYOFF.names.index('job')}"
(MARK,) = (f"annotations.list.{at}" for at, one in enumerate(PAYOFF.annotations) if one["name"] == "Starts")


LABELS = ("cluster", "namespace", "job", "instance", "pod", "model_name", "engine")
ENGINE = ",".join(f'{label}=~"${label}"' for label in LABELS)
RATE = f"sum(rate(vllm_specdec_drafts_total{{{ENGINE}}}[$__rate_interval]))"
BY_MODEL = RATE.replace("sum(", "sum by (cluster, namespace, model_name) (")
GAUGE = f'vllm_specdec_estimated_speedup{{{ENGINE},window="$window"}}'
FLOW = GAUGE.replace("estimated_speedup", "drafts_per_second")
SCALE = {"steps": [{"color": "#8C8C8C", "value": None}, {"color": "#D55E00", "value": 0.4}]}
NONE = {"result": {"text": "none", "color": "#56B4E9"}}
CELL = {
    "matcher": {"id": "byName", "options": "Speedup"},
    "properties": [
        {"id": "mappings", "value": [{"type": "special", "options": NONE}]},
        {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}},
    ],
}


def words(*texts: tuple[str, str]) -> list[Any]:
    """Return the mapping that gives codes from 0 on words and colours."""
    options = {str(at): {"text": text, "color": color} for at, (text, color) in enumerate(texts)}
    return [{"type": "value", "options": options}]


#: By check: where the dashboard is spoilt, by what, and words of the complaint.
BAD: dict[str, list[tuple[str, Any, str]]] = {
    # the dashboard
    "manners": [
        ("editable", True, "editable"),
        ("schemaVersion", 43, "43"),
        ("uid", "other", "other"),
        ("description", "No question.", "asks no question"),
        ("title", None, "no title"),
        ("time.from", "now-3z", "time range"),
    ],
    "panel_ids": [(f"{LINE}.id", 1, "id 1 on 2 panels")],
    "leftovers": [(f"{LINE}.interval", "", "interval is ''")],
    "annotations": [
        (f"{MARK}.enable", False, "enable is False"),
        (f"{MARK}.titleFormat", "", "no titleFormat"),
    ],
    "grid": [
        (f"{LINE}.gridPos.x", 15, "2 panels in column 15"),
        (f"{LINE}.gridPos.w", 7, "0 panels in column 23"),
        (f"{LINE}.gridPos.w", 9, "leaves the page"),
        (f"{LINE}.gridPos.h", 7, "not as high"),
        (f"{LINE}.gridPos.y", 3, "order of reading"),
    ],
    "variables": [
        (f"{VARIABLES}.0.query", "loki", "loki"),
        (JOB, None, "no variable job"),
        (f"{JOB}.label", "", "no heading"),
        (f"{JOB}.name", "pod", "pod stands 2 times"),
    ],
    "choices": [
        (f"{JOB}.query.query", "label_values(up, pod)", "values of pod"),
        (f"{JOB}.query.query", "label_values(job)", "asks all series"),
        (f"{JOB}.refresh", 1, "refresh of job is 1"),
        (f"{JOB}.allValue", ".*", "allValue of job"),
        (f"{JOB}.current.value", "vllm", "not All at first"),
        (f"{VARIABLES}.{PAYOFF.names.index('window')}.current.value", "5z", "the window is '5z'"),
    ],
    "unused_variables": [
        (f"{VARIABLES}.{len(PAYOFF.names)}", {"name": "ttft", "type": "custom"}, "ttft is used")
    ],
    "palette": [(f"{FIELD}.color.fixedColor", "red", "red"), (f"{MARK}.iconColor", "#FF0000", "#FF0000")],
    # panels
    "missing_keys": [
        (f"{LINE}.pluginVersion", None, "no pluginVersion"),
        (f"{FIELD}.color", None, "color.mode"),
        (f"{LINE}.options.legend.showLegend", None, "showLegend"),
    ],
    "asking": [
        (f"{LINE}.targets", [], "asks nothing"),
        (f"{LINE}.datasource", {"uid": "P1"}, "its data source"),
        (f"{LINE}.targets.0.refId", "a1", "refId 'a1'"),
        (f"{TILE}.targets.0.instant", False, "instant of query A"),
        (f"{TABLE}.targets.0.format", "time_series", "format of query A"),
        (f"{TILE}.options.reduceOptions.calcs", ["mean"], "mean"),
    ],
    "transformations": [(f"{TABLE}.transformations.0.id", "groupBy", "groupBy")],
    "panel_title": [
        (f"{LINE}.title", "vllm_specdec_drafts", "names a metric"),
        (f"{LINE}.title", 61 * "X", "61 characters"),
        (f"{LINE}.title", "Speedup", "two panels"),
        (f"{LINE}.title", "drafts.", "neither a question nor a noun"),
    ],
    "panel_title_description": [
        (f"{TILE}.description", "Drafts, if `vllm_specdec_speedup` is there.", "two sentences"),
        (f"{TILE}.description", "Drafts. If few, look at `vllm_specdec_up`.", "names none of"),
        (f"{TILE}.description", "It is `vllm_specdec_speedup`. It is good.", "what to do"),
    ],
    "named_series": [(f"{LINE}.description", "See `vllm:no_such_thing`.", "vllm:no_such_thing")],
    "says_something": [
        (f"{TILE}.fieldConfig.defaults.noValue", None, "no text"),
        (f"{LINE}.type", "text", "Markdown"),
    ],
    "variables_in_words": [(f"{LINE}.title", "Drafts of $modell", "no variable modell")],
    "panel_units": [(f"{FIELD}.unit", None, "no unit"), (f"{FIELD}.unit", "tokens/s", "none of Grafana's")],
    "ratio_limits": [(f"{FIELD}.max", 2, "from 0 to 2")],
    "zero_axis": [(f"{FIELD}.min", None, "no least value")],
    "sorted_by": [
        (f"{TABLE}.options.sortBy", [{"displayName": "Draft"}], "sorted by Draft"),
        (f"{TABLE}.fieldConfig.overrides.0.matcher.options", "Draft", "override of Draft"),
    ],
    "table_columns": [(f"{TABLE}.targets.9", {"refId": "Z", "expr": RATE}, "Value #Z has no place")],
    "idle_overrides": [(f"{LINE}.fieldConfig.overrides.0.matcher.options", "drafts", "override of drafts")],
    "mapped_codes": [
        (f"{WORDS}.targets.0.expr", "3 + 96 * max(vllm_specdec_up)", "gives 99"),
        (f"{WORDS}.targets.0.expr", RATE, "cannot tell"),
    ],
    "colour_modes": [
        (f"{FIELD}.color.mode", "continuous-GrYlRd", "continuous-GrYlRd"),
        (BY_MODEL_LEGEND, "{{pod}}", "what is called {{pod}}"),
    ],
    "literal_thresholds": [(f"{FIELD}.thresholds", SCALE, "a threshold at 0.4")],
    "mapped_words": [(MAPPINGS, words(("", "#D55E00")), "without a word")],
    "indistinct": [
        (MAPPINGS, words(("A", "#CC0000"), ("B", "#5A7A00")), "A (#CC0000) and B"),
        (MAPPINGS, words(("A", "#8C8C8C"), ("B", "#CC79A7")), "(deuteranopia)"),
    ],
    "unreadable": [
        (MAPPINGS, words(("FAIR", "#E69F00")), "FAIR on #E69F00"),
        (f"{WORDS}.options.colorMode", "background", "contrast"),
        (f"{TABLE}.fieldConfig.overrides.0", CELL, "none on #56B4E9"),
    ],
    # queries
    "target_promql": [(EXPR, "sum(up", "does not parse"), (f"{MARK}.expr", "up ==", "does not parse")],
    "target_rate_interval": [(EXPR, RATE.replace("$__rate_interval", "5m"), "rate over 300s")],
    "one_number": [
        (f"{TABLE}.targets.0.expr", RATE, "sum of everything"),
        (EXPR, f"{BY_MODEL} or {RATE}", "sum of everything"),
    ],
    "legends": [
        (LEGEND, "__auto", "no legend"),
        (EXPR, BY_MODEL, "differ in cluster, model_name, namespace"),
    ],
    "averaged_ratio": [
        (EXPR, f"avg({GAUGE})", "avg of a ratio"),
        (EXPR, f"avg({FLOW} / ({FLOW} > 0))", "avg of"),
    ],
    "known_series": [
        (EXPR, "sum(vllm:num_requests_runing)", "vllm:num_requests_runing"),
        (EXPR, 'up{window="5m"}', "no label window"),
        (EXPR, 'vllm_specdec_activity{state="lazy"}', 'never has state="lazy"'),
        (EXPR, RATE.replace("sum(", "sum by (node) ("), "node: a label that"),
        (EXPR, 'ALERTS{alertname="VLLMSpecDecodeExporterDown",engine="0"}', "ALERTS has no label engine"),
        (f"{JOB}.query.query", "label_values(vllm_specdec_bogus, job)", "vllm_specdec_bogus"),
    ],
    "known_labels": [(BY_MODEL_LEGEND, "{{pod}}", "shows pod")],
    "known_variables": [(EXPR, RATE.replace("$engine", "$engines"), "no variable engines")],
    "target_matchers": [
        (EXPR, RATE.replace(',engine=~"$engine"', ""), 'lacks engine=~"$engine"'),
        (EXPR, RATE.replace('job=~"$job"', 'job="$job"'), 'lacks job=~"$job"'),
        (EXPR, RATE.replace('pod=~"$pod"', 'pod=~"$pod|"'), 'lacks pod=~"$pod"'),
        (EXPR, GAUGE.replace('window="$window"', 'window="5m"'), 'lacks window="$window"'),
        (EXPR, f"vllm:num_requests_running{{{ENGINE}}}", 'lacks job=~"$vllm_job"'),
        (EXPR, 'ALERTS{alertname=~"VLLMSpecDecode.+"}', 'lacks model_name=~"$model_name"'),
    ],
    "query_counters": [(EXPR, f"vllm_specdec_drafts_total{{{ENGINE}}}", "is a counter")],
    "query_rate_of_sum": [
        (EXPR, f"rate(sum(vllm_specdec_drafts_total{{{ENGINE}}})[$__rate_interval:])", "rate of an")
    ],
    "query_matching": [(EXPR, f"{BY_MODEL} / {RATE}", "labels never match")],
    "query_regex_matcher": [(EXPR, 'vllm_specdec_activity{state=~"idle"}', "plain string")],
    "query_denominator": [(EXPR, f"{RATE} / {RATE}", "can be 0")],
    "query_clamped_denominator": [(EXPR, f"{RATE} / clamp_min({RATE}, 1)", "clamp_min")],
}


def test_the_dashboards_are_those_that_links_and_alerts_know() -> None:
    assert sorted(path.stem for path in lint.DASHBOARDS.glob("*.json")) == sorted(lint.UIDS)
    assert {found.uid for found in DASHBOARDS} == set(lint.UIDS)
    assert lint.repeated_uids(DASHBOARDS) == []
    assert len(lint.repeated_uids((PAYOFF, PAYOFF))) == 2


@pytest.mark.parametrize("found", DASHBOARDS, ids=lambda found: found.uid.removeprefix("vllm-specdec-"))
def test_every_dashboard_passes_every_check(found: lint.Dashboard) -> None:
    assert [f"{check}: {words}" for check in lint.CHECKS for words in lint.complaints(check, found)] == []


def test_every_excuse_is_still_needed() -> None:
    assert lint.idle_excuses(DASHBOARDS) == []


def test_every_check_catches_its_bad_examples() -> None:
    assert set(BAD) == set(lint.CHECKS)
    missed = []
    for check, examples in BAD.items():
        before = set(map(str, lint.said(check, PAYOFF)))
        for path, value, words_ in examples:
            after = set(map(str, lint.said(check, spoilt(PAYOFF, path, value))))
            if not any(words_ in one for one in after - before):
                missed.append((check, path, words_, after - before))
    assert missed == []


def test_panels_that_are_folded_into_a_row_are_checked_as_the_others() -> None:
    found = spoilt(PAYOFF, EXPR, "up{")
    *above, row, table = found.body["panels"][: int(TABLE.partition(".")[2]) + 1]
    folded = lint.Dashboard({**found.body, "panels": [*above, {**row, "collapsed": True, "panels": [table]}]})
    assert folded.panels[-1].body is table
    assert [one.place for one in lint.said("target_promql", folded)] == ["Coverage and waste"]


def test_two_sides_are_compared_each_with_its_own_variables() -> None:
    (compare,) = (one for one in DASHBOARDS if one.uid == "vllm-specdec-compare")
    text = json.dumps(dict(compare.body))
    mixed = text.replace('=~\\"$a_instance', '=~\\"$b_instance', 1)
    found = list(lint.said("target_matchers", lint.Dashboard(json.loads(mixed))))
    assert mixed != text
    assert any("a_instance" in one.words for one in found)


def test_a_complaint_is_excused_only_for_its_check_dashboard_place_and_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = lint.Excuse("panel_units", "pay*", "Coverage*", "tokens/m", "for this test")
    wrong = spoilt(PAYOFF, f"{FIELD}.unit", "tokens/m")
    others = {"check": "ratio_limits", "dashboard": "cost", "place": "Tokens", "words": "requests"}
    for excuse, covered in (
        (usual, True),
        *((dataclasses.replace(usual, **{name: value}), False) for name, value in others.items()),
    ):
        monkeypatch.setattr(lint.excuses, "EXCUSES", (excuse,))
        found = [one for one in lint.complaints("panel_units", wrong) if "tokens/m" in one]
        assert (found == []) is covered
        assert lint.idle_excuses([wrong]) == ([] if covered else [excuse])


# --- what the checks rest on


def test_the_codes_that_an_expression_can_give_are_counted() -> None:
    cases: dict[str, set[float] | None] = {
        "5 + (up >= bool 1) + (up >= bool 2)": {5, 6, 7},
        '4 * (max(vllm_specdec_activity{state="idle"}) == 1)': {4},
        "(max(vllm_specdec_up) == 0) - 1": {-1},
        "-1 * max by (model_name) (last_over_time(vllm_specdec_info[1h]))": {-1},
        "2 * vllm_specdec_up or vector(7) unless up": {0, 2, 7},
        "label_replace(group(up) * 3, 'a', 'b', 'c', 'd')": {3},
        "0 * vllm_specdec_drafts_per_second": {0},
        "vllm_specdec_drafts_per_second": None,
        "sum(vllm_specdec_up)": None,
        "vllm_specdec_up / 2": None,
    }
    assert {expr: codes.codes(lint.Query("x", expr).tree) for expr in cases} == cases


def test_old_names_of_vllm_are_recorded_and_none_that_the_captures_show() -> None:
    assert sorted(name for name in known.VLLM if name in known.raw_metrics()) == []
    text = (lint.ROOT / "tests/data/upstream/README.md").read_text("utf-8")
    written = text.replace("queries/hits_total", "queries_total gpu_prefix_cache_hits_total")
    assert [name for name in known.VLLM if name.removeprefix("vllm:") not in written] == []
