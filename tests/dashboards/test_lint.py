"""The dashboards pass every check of the linter, and every check catches what it is for."""

from __future__ import annotations

import dataclasses

import pytest

from dashboards import lint
from dashboards.lint import codes, known, layout
from dashboards.lint_examples import (
    BY_MODEL,
    ENGINE,
    ENGINES,
    FIELD,
    INSTANCE,
    JOB,
    LINE,
    RATE,
    STATES,
    TABLE,
    TARGET,
    TEXT,
    TILE,
    VARIABLES,
    VLLM,
    Examples,
    bad,
    bad_put,
    dashboard,
    line,
    put,
    tile,
    words,
)

DASHBOARDS = lint.read_dashboards()
GAUGE = f'vllm_specdec_estimated_speedup{{{ENGINE},window="$window"}}'
FLOW = f'vllm_specdec_drafts_per_second{{{ENGINE},window="$window"}}'
LEGEND = f"{LINE}.targets.0.legendFormat"
VLLM_JOBS = (
    put(f"{VARIABLES}.9", {"name": "vllm_job", "label": "vLLM job", "type": "custom"}),
    put(f"{VARIABLES}.10", {"name": "vllm_instance", "label": "vLLM instance", "type": "custom"}),
)
BLUE_OVERRIDE = {
    "matcher": {"id": "byName", "options": "position 0"},
    "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": "#2171B5"}}],
}
BY_REQUEST = RATE.replace("drafts_total", "request_drafts_total").replace(',engine=~"$engine"', "")
RUNNING = f"sum(vllm:num_requests_running{{{VLLM}}})"

# fmt: off
EXAMPLES: dict[str, Examples] = {
    # the dashboard
    "uneditable_dashboard": bad(bad_put("editable", True, "can be edited")),
    "schema_version": bad(
        bad_put("schemaVersion", 36, "36"),
        bad_put("schemaVersion", 43, "43"),
        good=(dashboard(put("schemaVersion", 42)),),
    ),
    "stable_uid": bad(bad_put("uid", "other", "other")),
    "manners": bad(
        bad_put("description", "No question.", "asks no question"),
        bad_put("title", None, "no title"),
        bad_put("refresh", "5s", "refresh"),
        bad_put("graphTooltip", 0, "graphTooltip"),
        bad_put("timezone", "utc", "timezone"),
        bad_put("tags", [], "tags"),
        bad_put("time.from", "now-3z", "time range"),
        bad_put("time.to", None, "time range"),
    ),
    "panel_ids": bad(bad_put(f"{LINE}.id", 2, "id 2 stands twice"), bad_put(f"{LINE}.id", 0, "id 0")),
    "leftovers": bad(
        bad_put(f"{LINE}.interval", "", "interval is ''"),
        (dashboard(put(f"{FIELD}.custom", {"lineStyle": None})), "lineStyle is None"),
        good=(
            dashboard(put(f"{FIELD}.thresholds", {"steps": [{"value": None, "color": "#8C8C8C"}]})),
            dashboard(put(f"{TILE}.options.reduceOptions", {"fields": ""})),
        ),
    ),
    "dashboard_keys": bad(
        bad_put("hideControls", False, "hideControls"),
        bad_put(f"{JOB}.useTags", False, "useTags"),
        bad_put("annotations.list.0.limit", 100, "limit"),
        bad_put("links", [{"title": "x", "colour": "y"}], "colour"),
    ),
    "annotations": bad(
        bad_put("annotations.list.0.enable", False, "enable is False"),
        bad_put("annotations.list.0.titleFormat", "", "no titleFormat"),
        bad_put("annotations.list.0.iconColor", None, "no iconColor"),
        bad_put("annotations.list.0.datasource", {"uid": "x"}, "datasource is"),
    ),
    # its grid
    "overlaps": bad(bad_put(f"{LINE}.gridPos.x", 11, "Does it run? and Drafts overlap")),
    "columns": bad(
        bad_put(f"{LINE}.gridPos.w", 13, "Drafts is at"),
        bad_put("panels.0.gridPos.w", 12, "the heading Now"),
    ),
    "holes": bad(
        bad_put(f"{LINE}.gridPos.w", 11, "a hole behind Drafts"),
        (dashboard(put(f"{LINE}.gridPos.x", 13), put(f"{LINE}.gridPos.w", 11)), "a hole before Drafts"),
        bad_put(f"{LINE}.gridPos.h", 3, "different heights"),
    ),
    "floating": bad(bad_put(f"{TEXT}.gridPos.y", 6, "What to do floats")),
    "reading_order": bad(
        (
            dashboard(put(f"{TILE}.gridPos.x", 12), put(f"{LINE}.gridPos.x", 0)),
            "Does it run? stands where Drafts is read",
        )
    ),
    # its variables
    "template_datasource": bad(
        bad_put(f"{VARIABLES}.0.label", "Source", "Data source"),
        bad_put(f"{VARIABLES}.0.query", "loki", "loki"),
        bad_put(f"{VARIABLES}.0", None, "'cluster', not 'datasource'"),
    ),
    "template_job": bad(
        bad_put(JOB, None, "no variable job"),
        bad_put(f"{JOB}.label", "Target", "Target"),
        good=(dashboard(put(f"{JOB}.name", "a_job"), put(f"{JOB}.label", "A: job")),),
    ),
    "template_instance": bad(
        bad_put(INSTANCE, None, "no variable instance"),
        bad_put(f"{INSTANCE}.label", "Pod", "'Pod', not 'Instance'"),
    ),
    "template_choice": bad(
        bad_put(f"{JOB}.multi", False, "multi of job"),
        bad_put(f"{JOB}.allValue", ".*", "allValue of job"),
        bad_put(f"{ENGINES}.allValue", ".+", "allValue of engine"),
        bad_put(f"{JOB}.includeAll", False, "includeAll of job"),
    ),
    "template_label": bad(
        bad_put(f"{JOB}.query.query", f"label_values(up{{{TARGET}}}, pod)", "job has the values of pod"),
        bad_put(f"{JOB}.query.query", "label_values(job)", "asks all series"),
        bad_put(f"{JOB}.datasource.uid", "abc", "data source"),
        bad_put(f"{JOB}.definition", "up", "another definition"),
    ),
    "template_on_time_change_reload": bad(bad_put(f"{JOB}.refresh", 1, "refresh of job is 1")),
    "variable_names": bad(
        bad_put(f"{JOB}.label", "", "no heading"), bad_put(f"{JOB}.name", "pod", "pod stands twice"),
        bad_put(f"{JOB}.type", None, "job is of type ''"),
    ),
    "unused_variables": bad(
        bad_put(f"{VARIABLES}.9", {"name": "ttft", "type": "custom"}, "ttft is used by nothing")
    ),
    "chosen_at_first": bad(
        bad_put(f"{JOB}.current.value", "vllm", "job is not All"),
        bad_put(f"{VARIABLES}.8.current.value", "5z", "the window is '5z'"),
    ),
    "palette_of_annotations": bad(bad_put("annotations.list.0.iconColor", "red", "red is not")),
    # panels
    "panel_type": bad(
        bad_put(f"{LINE}.type", "graph", "gone from Grafana"),
        bad_put(f"{LINE}.type", "singlestat", "gone from Grafana"),
        bad_put(f"{LINE}.type", "piechart", "unknown type"),
    ),
    "legacy_keys": bad(
        bad_put(f"{LINE}.nullPointMode", "null", "nullPointMode"),
        bad_put(f"{LINE}.editable", False, "editable"),
        bad_put(f"{LINE}.span", 6, "span"),
        bad_put(f"{LINE}.targets.0.intervalFactor", 2, "intervalFactor"),
    ),
    "panel_keys": bad(
        bad_put(f"{LINE}.color", "x", "color of a panel"),
        bad_put(f"{LINE}.targets.0.exprs", "x", "exprs of a target"),
        bad_put(f"{FIELD}.units", "s", "units of a defaults"),
        bad_put("panels.0.targets", [], "targets of a row"),
    ),
    "missing_keys": bad(
        bad_put(f"{LINE}.pluginVersion", None, "no pluginVersion"),
        bad_put(f"{LINE}.gridPos.x", None, "no gridPos.x"),
        bad_put(f"{FIELD}.color.mode", None, "no fieldConfig.defaults.color.mode"),
        bad_put(f"{FIELD}.color.fixedColor", None, "no fieldConfig.defaults.color.fixedColor"),
        bad_put(f"{FIELD}.thresholds", {"mode": "absolute", "steps": [{}]}, "steps.0.color"),
        bad_put(f"{LINE}.options.legend.showLegend", None, "no options.legend.showLegend"),
    ),
    "panel_title": bad(
        bad_put(f"{LINE}.title", "", "no title"),
        bad_put(f"{LINE}.title", "vllm_specdec_drafts", "names a metric"),
        bad_put(f"{LINE}.title", "Rate of " + 60 * "x", "68 characters"),
        bad_put(f"{LINE}.title", "Does it run?", "two panels"),
        bad_put(f"{LINE}.title", "drafts.", "neither a question nor a noun"),
        good=(dashboard(put(f"{LINE}.title", "vLLM's own view")),),
    ),
    "panel_title_description": bad(
        bad_put(f"{LINE}.description", None, "no description"),
        bad_put(f"{LINE}.description", "Drafts, if `vllm_specdec_drafts_total` is there.", "two sentences"),
        bad_put(f"{LINE}.description", "Drafts. If few, look at `vllm_specdec_up`.", "names none of"),
        bad_put(f"{LINE}.description", "It is `vllm_specdec_drafts_total`. It is good.", "what to do"),
        good=(dashboard(put(f"{LINE}.description", "`vllm_specdec_drafts_total{}`. Few: lower K.")),),
    ),
    "named_series": bad(
        bad_put(f"{TEXT}.options.content", "`vllm_specdec_bogus`", "vllm_specdec_bogus"),
        bad_put(f"{LINE}.description", "See `vllm:no_such_thing`.", "vllm:no_such_thing"),
        bad_put(f"{LINE}.description", "See `model:vllm_specdec_x:rate5m`.", "model:vllm_specdec_x:rate5m"),
    ),
    "no_value": bad(*(bad_put(f"{at}.fieldConfig.defaults.noValue", None, "no text") for at in (TILE, LINE))),
    "text_panel": bad(
        bad_put(f"{TEXT}.options.mode", "html", "no Markdown"),
        bad_put(f"{TEXT}.options.content", " ", "says nothing"),
    ),
    "variables_in_words": bad(bad_put(f"{LINE}.title", "Drafts of $modell", "no variable modell")),
    "panel_units": bad(
        bad_put(f"{FIELD}.unit", None, "no unit"),
        bad_put(f"{FIELD}.unit", "tokens/s", "none of Grafana's"),
        bad_put(f"{FIELD}.unit", "suffix: tok", "none of Grafana's"),
        bad_put(f"{TABLE}.fieldConfig.overrides", [], "Drafts: no unit"),
    ),
    "ratio_limits": bad(
        bad_put(f"{FIELD}.unit", "percentunit", "from 0 to None"),
        good=(dashboard(put(f"{FIELD}.unit", "percentunit"), put(f"{FIELD}.max", 1)),),
    ),
    "zero_axis": bad(bad_put(f"{FIELD}.min", None, "no least value")),
    "sorted_by": bad(
        bad_put(f"{TABLE}.options.sortBy.0.displayName", "Draft", "sorted by Draft"),
        bad_put(f"{TABLE}.fieldConfig.overrides.0.matcher.options", "Draft", "an override of Draft"),
    ),
    "table_columns": bad(
        bad_put(f"{TABLE}.transformations.0.options.renameByName.cluster", None, "cluster has no heading"),
        bad_put(f"{TABLE}.transformations.0.options.renameByName.Value", None, "Value has no heading"),
        bad_put(f"{TABLE}.targets.1", {"refId": "B", "expr": RATE}, "Value #B has no place"),
        good=(
            dashboard(
                put(f"{TABLE}.transformations.0.options.renameByName.cluster", None),
                put(f"{TABLE}.transformations.0.options.excludeByName", {"cluster": True}),
            ),
        ),
    ),
    "idle_overrides": bad(
        bad_put(f"{LINE}.fieldConfig.overrides.0", BLUE_OVERRIDE, "an override of position 0"),
        bad_put(
            f"{LINE}.fieldConfig.overrides.0",
            {"matcher": {"id": "byRegexp", "options": "/^limit/"}, "properties": []},
            "an override of /^limit/",
        ),
        good=(
            dashboard(
                put(f"{LINE}.fieldConfig.overrides.0", BLUE_OVERRIDE), put(LEGEND, "position {{position}}")
            ),
        ),
    ),
    "panel_no_targets": bad(
        bad_put(f"{LINE}.targets", [], "asks nothing"),
        bad_put(f"{LINE}.targets.0.expr", "", "asks nothing"),
        bad_put(f"{TEXT}.targets", [{}], "asks something"),
    ),
    "panel_datasource": bad(
        bad_put(f"{LINE}.datasource", {"type": "prometheus", "uid": "P1809"}, "the panel is"),
        bad_put(f"{LINE}.targets.0.datasource", None, "A is None"),
    ),
    "ref_ids": bad(
        bad_put(f"{LINE}.targets.0.refId", "a1", "no letter"),
        bad_put(f"{LINE}.targets.1", {"refId": "A"}, "stands twice"),
    ),
    "instants": bad(
        bad_put(f"{TILE}.targets.0.instant", False, "for now only"),
        bad_put(f"{LINE}.targets.0.instant", True, "whole time range"),
        bad_put(f"{TABLE}.targets.0.range", True, "for now only"),
    ),
    "formats": bad(
        bad_put(f"{TABLE}.targets.0.format", "time_series", "not table"),
        bad_put(f"{LINE}.targets.0.format", None, "not time_series"),
    ),
    "transformations": bad(
        bad_put(f"{TABLE}.transformations.0.id", "groupBy", "unknown transformation groupBy"),
        bad_put(f"{TABLE}.transformations.0.options.rename", {}, "no option rename"),
    ),
    "reductions": bad(
        bad_put(f"{TILE}.options.reduceOptions.calcs", ["mean"], "mean"),
        bad_put(f"{TILE}.options.reduceOptions.values", True, "True"),
        bad_put(f"{TILE}.options.reduceOptions", None, "reduced by {}"),
    ),
    "mapped_codes": bad(
        (tile(STATES.replace("1 *", "3 *")), "gives 3, which has no word"),
        (tile(f"{STATES} or -1 * max(vllm_specdec_info{{{ENGINE}}})"), "gives -1"),
        (tile(RATE), "cannot tell"),
        good=(tile(f"(max(up{{{TARGET}}}) == 0) + 1"),),
    ),
    "palette": bad(
        bad_put(f"{FIELD}.color.fixedColor", "red", "red is not"),
        bad_put(f"{FIELD}.color.fixedColor", "#FF0000", "#FF0000 is not"),
        good=(dashboard(put(f"{FIELD}.color.fixedColor", "#d55e00")),),
    ),
    "colour_modes": bad(
        bad_put(f"{FIELD}.color.mode", "continuous-GrYlRd", "continuous-GrYlRd"),
        bad_put(f"{FIELD}.color.mode", "palette-classic", "what is called all"),
        (
            dashboard(
                put(f"{FIELD}.color.mode", "palette-classic"), put(LEGEND, "{{pod}}"),
                put(f"{LINE}.targets.1", {"refId": "B", "legendFormat": "position 0"}),
                put(f"{LINE}.fieldConfig.overrides.0", BLUE_OVERRIDE),
            ),
            "what is called {{pod}}",
        ),
        (
            dashboard(put(f"{LINE}.type", "heatmap"), put(f"{LINE}.options.color", {"scheme": "RdYlGn"})),
            "RdYlGn",
        ),
        good=(
            dashboard(
                put(f"{FIELD}.color.mode", "palette-classic"),
                put(LEGEND, "position {{position}}"),
                put(f"{LINE}.fieldConfig.overrides.0", BLUE_OVERRIDE),
            ),
        ),
    ),
    "literal_thresholds": bad(
        bad_put(
            f"{FIELD}.thresholds",
            {"steps": [{"color": "#8C8C8C", "value": None}, {"color": "#D55E00", "value": 0.4}]},
            "a threshold at 0.4",
        ),
        bad_put(
            f"{TABLE}.fieldConfig.overrides.0.properties.0",
            {"id": "thresholds", "value": {"steps": [{"value": None}, {"value": 1}]}},
            "Drafts: a threshold at 1",
        ),
    ),
    "mapped_words": bad((dashboard(words(("", "#D55E00"))), "#D55E00 stands without a word")),
    "indistinct": bad(
        (dashboard(words(("BAD", "#CC0000"), ("GOOD", "#5A7A00"))), "BAD (#CC0000) and GOOD"),
        (dashboard(words(("OFF", "#8C8C8C"), ("BYPASSED", "#CC79A7"))), "apart (deuteranopia)"),
    ),
    "unreadable": bad(
        (dashboard(words(("FAIR", "#E69F00"))), "FAIR on #E69F00"),
        (dashboard(put(f"{TILE}.options.colorMode", "background")), "IDLE on #8C8C8C"),
        (dashboard(put(f"{TILE}.options.colorMode", "value"), words(("UNKNOWN", "#F0E442"))), "UNKNOWN on"),
        (
            dashboard(
                put(
                    f"{TABLE}.fieldConfig.overrides.0.properties",
                    [
                        {"id": "mappings", "value": [{"type": "special", "options": {"match": "nan",
                         "result": {"text": "none", "color": "#56B4E9"}}}]},
                        {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}},
                    ],
                )
            ),
            "none on #56B4E9",
        ),
        good=(dashboard(words(("BAD", "#D55E00"), ("UNKNOWN", "#F0E442"))),),
    ),
    # queries
    "target_promql": bad(
        (line("sum(up"), "does not parse"),
        (line("rate(up[$__rate_intervall])"), "does not parse"),
        bad_put("annotations.list.0.expr", "up ==", "does not parse"),
        bad_put(f"{JOB}.query.query", "label_values(up{, job)", "does not parse"),
        good=(line(f"{RATE} * $__range_s + max_over_time({FLOW}[$__range:${{__interval}}])"),),
    ),
    "target_rate_interval": bad(
        (line(RATE.replace("$__rate_interval", "5m")), "rate over 300s"),
        (line(RATE.replace("$__rate_interval", "$__range")), "rate over $__range"),
        (line(RATE.replace("rate(", "increase(").replace("$__rate_interval", "$window")), "over $window"),
        (line(RATE.replace("$__rate_interval", "$over")), "rate over $over"),
        good=(line(f"max_over_time({GAUGE}[5m])"),),
    ),
    "one_number": bad(
        (dashboard(put(f"{TABLE}.targets.0.expr", RATE)), "sum of everything"),
        (line(f"{BY_MODEL} or {RATE}", "{{model_name}}"), "sum of everything"),
        good=(
            line(f"{BY_MODEL} / ignoring (cluster, namespace, model_name) group_left () ({RATE} > 0)", "x"),
            line(f'min(vllm_specdec_threshold{{{TARGET},name="harmful_speedup"}}) or {BY_MODEL}', "x"),
        ),
    ),
    "legends": bad(
        (line(BY_MODEL, "__auto"), "no legend"),
        (line(BY_MODEL, "{{model_name}}"), "differ in cluster, namespace are called the same"),
        good=(line(BY_MODEL, "{{cluster}} {{namespace}} {{model_name}}"),),
    ),
    "averaged_ratio": bad(
        (tile(f"avg({GAUGE})"), "avg of a ratio"),
        (tile(f"sum({GAUGE})"), "sum of a ratio"),
        (tile(f"avg_over_time({GAUGE}[$window])"), "avg_over_time of a ratio"),
        (tile(f"avg({GAUGE} / 2)"), "avg of a ratio"),
        (tile(f"avg({FLOW} / ({FLOW} > 0))"), "avg of a ratio"),
        good=(
            tile(f"sum({GAUGE} * {FLOW}) / (sum({FLOW}) > 0)"),
            tile(f"sum({FLOW} / {GAUGE})"),
            tile(f"sum(0 * {GAUGE} + {FLOW})"),
            tile(f"max({GAUGE})"),
            tile(f"sum({FLOW} and {GAUGE})"),
        ),
    ),
    "known_series": bad(
        (line(RATE.replace("drafts_total", "draft_total")), "unknown metric vllm_specdec_draft_total"),
        (line("sum(vllm:num_requests_runing)"), "vllm:num_requests_runing"),
        (line("sum(model:vllm_specdec_no_such:rate5m)"), "model:vllm_specdec_no_such:rate5m"),
        (line(STATES.replace('"idle"', '"lazy"')), 'never has state="lazy"'),
        (line(RATE.replace('pod=~"$pod"', 'node=~"$pod"')), "no label node"),
        (line(RATE.replace("sum(", "sum by (node) (")), "node: a label that"),
        (line('up{window="5m"}'), "up has no label window"),
        (line('ALERTS{alertname="VLLMSpecDecodeExporterDown",engine="0"}'), "ALERTS has no label engine"),
        bad_put("annotations.list.0.expr", "vllm_specdec_bogus > 0", "vllm_specdec_bogus"),
        bad_put(f"{JOB}.query.query", "label_values(vllm_specdec_bogus, job)", "vllm_specdec_bogus"),
        good=(
            line('ALERTS{alertname=~"VLLMSpecDecode.+",alertstate="firing",model_name=~"$model_name|"}'),
            line("rate(process_cpu_seconds_total[$__rate_interval])"),
            line("vllm:gpu_cache_usage_perc"),
            line(f"sum by (le) (rate(vllm_specdec_accepted_tokens_per_draft_bucket{{{ENGINE}}}[5m]))"),
        ),
    ),
    "known_labels": bad((line(BY_MODEL, "{{pod}}"), "the legend shows pod")),
    "known_variables": bad(
        (line(RATE.replace("$engine", "$engines")), "no variable engines"),
        (line(RATE.replace("$__rate_interval", "$__rate_intervals")), "no variable __rate_intervals"),
        (line(RATE, "$modell"), "no variable modell"),
        good=(line('label_replace(up, "a", "$1", "b", "(.+)")'),),
    ),
    "target_matchers": bad(
        (line(RATE.replace(',engine=~"$engine"', "")), 'lacks engine=~"$engine"'),
        (line(RATE.replace('job=~"$job"', 'job="$job"')), 'lacks job=~"$job"'),
        (line(RATE.replace('pod=~"$pod"', 'pod=~"$instance"')), 'lacks pod=~"$pod"'),
        (line(RATE.replace('pod=~"$pod"', 'pod=~"$pod|"')), 'lacks pod=~"$pod"'),
        (line(GAUGE.replace('window="$window"', 'window="5m"')), 'lacks window="$window"'),
        (line(RUNNING.replace("$vllm_job", "$job")), 'lacks job=~"$vllm_job"'),
        (line('vllm_specdec_threshold{name="harmful_speedup"}'), 'lacks instance=~"$instance"'),
        (line('ALERTS{alertname=~"VLLMSpecDecode.+"}'), 'lacks model_name=~"$model_name"'),
        (line("model:vllm_specdec_drafts:rate5m"), 'lacks namespace=~"$namespace"'),
        bad_put(f"{INSTANCE}.query.query", "label_values(vllm_specdec_up, instance)", 'lacks job=~"$job"'),
        (
            dashboard(
                put(f"{VARIABLES}.9", {"name": "temperature", "type": "custom"}),
                put(f"{LINE}.targets.0.expr", BY_REQUEST),
            ),
            'lacks temperature=~"$temperature"',
        ),
        good=(
            line(RATE.replace('pod=~"$pod"', 'pod=~"${pod}|$pod"')),
            dashboard(*VLLM_JOBS, put(f"{LINE}.targets.0.expr", RUNNING)),
            line('max(model:vllm_specdec_drafts:rate5m{cluster=~"$cluster",namespace=~"$namespace",'
                 'model_name=~"$model_name"})'),
            line(f"up{{{TARGET}}}"),
        ),
    ),
    "query_counters": bad(
        (line(f"vllm_specdec_drafts_total{{{ENGINE}}}"), "is a counter"),
        (line(f"sum(vllm_specdec_accepted_tokens_per_draft_bucket{{{ENGINE}}})"), "is a counter"),
        (line(f"rate({FLOW}[$__rate_interval])"), "which is no counter"),
    ),
    "query_rate_of_sum": bad(
        (line(f"rate(sum(vllm_specdec_drafts_total{{{ENGINE}}})[$__rate_interval:])"), "rate of an")
    ),
    "query_matching": bad((line(f"{BY_MODEL} / {RATE}"), "labels never match")),
    "query_regex_matcher": bad((line(STATES.replace('state="idle"', 'state=~"idle"')), "plain string")),
    "query_denominator": bad(
        (line(f"{RATE} / {RATE}"), "can be 0"), good=(line(f"{RATE} / ({RATE} > 0)"),)
    ),
    "query_clamped_denominator": bad((line(f"{RATE} / clamp_min({RATE}, 1)"), "clamp_min")),
}
# fmt: on


# --- the dashboards


def test_the_dashboards_are_there() -> None:
    assert sorted(path.stem for path in lint.DASHBOARDS.glob("*.json")) == sorted(lint.UIDS)
    assert {path.stem for path in lint.DASHBOARDS.glob("*.json")} == {one.uid for one in DASHBOARDS}
    assert lint.repeated_uids(DASHBOARDS) == []


@pytest.mark.parametrize("check", lint.CHECKS)
@pytest.mark.parametrize("found", DASHBOARDS, ids=lambda found: found.uid.removeprefix("vllm-specdec-"))
def test_every_dashboard_passes(found: lint.Dashboard, check: str) -> None:
    assert lint.complaints(check, found) == []


def test_every_excuse_is_still_needed_and_has_a_reason() -> None:
    assert lint.idle_excuses(DASHBOARDS) == []
    assert all(excuse.reason and excuse.check in lint.CHECKS for excuse in lint.EXCUSES)


def test_every_rule_of_grafanas_linter_has_its_checks() -> None:
    assert len(lint.GRAFANA_RULES) == 17
    assert {check for checks in lint.GRAFANA_RULES.values() for check in checks} <= set(lint.CHECKS)
    assert [rule for rule, checks in lint.GRAFANA_RULES.items() if not checks and "logql" not in rule] == []


# --- the checks


def test_every_check_is_tested() -> None:
    assert set(EXAMPLES) == set(lint.CHECKS)


@pytest.mark.parametrize(
    ("check", "number"), [(check, at) for check, found in EXAMPLES.items() for at in range(len(found.bad))]
)
def test_a_bad_dashboard_is_caught(check: str, number: int) -> None:
    found, complaint = EXAMPLES[check].bad[number]
    texts = [one.words for one in lint.said(check, found)]
    assert any(complaint in text for text in texts), texts


@pytest.mark.parametrize(
    ("check", "number"), [(check, at) for check, found in EXAMPLES.items() for at in range(len(found.good))]
)
def test_a_good_dashboard_passes(check: str, number: int) -> None:
    assert [str(one) for one in lint.said(check, EXAMPLES[check].good[number])] == []


def test_two_dashboards_of_one_uid_or_title_are_noticed() -> None:
    assert lint.repeated_uids([dashboard(), dashboard()]) == [
        "uid vllm-specdec-payoff stands twice",
        "title Payoff stands twice",
    ]
    assert lint.repeated_uids([dashboard(), dashboard(put("uid", "x"), put("title", "X"))]) == []


def test_two_sides_are_compared_each_with_its_own_variables() -> None:
    sides = []
    for at, side in enumerate("ab"):
        sides += [
            put(f"{VARIABLES}.{9 + 2 * at + more}", {"name": f"{side}_{name}", "type": "custom"})
            for more, name in enumerate(("job", "instance"))
        ]
    asked = 'vllm_specdec_up{{job=~"${}_job",instance=~"${}_instance"}}'
    gone = [put(f"{VARIABLES}.{at}", None) for at in range(8, 0, -1)]
    for one, other, fine in (("a", "a", True), ("b", "b", True), ("a", "b", False)):
        found = dashboard(*sides, *gone, put(f"{LINE}.targets.0.expr", asked.format(one, other)))
        texts = [c.words for c in lint.said("target_matchers", found) if c.place == "Drafts"]
        assert (texts == []) is fine, texts


def test_a_complaint_is_excused_only_for_its_check_dashboard_place_and_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = lint.Excuse("panel_units", "pay*", "Dr*", "tokens/s", "for this test")
    wrong = dashboard(put(f"{FIELD}.unit", "tokens/s"))
    assert len(lint.complaints("panel_units", wrong)) == 1
    monkeypatch.setattr(lint.excuses, "EXCUSES", (usual,))
    assert lint.complaints("panel_units", wrong) == []
    assert lint.idle_excuses([wrong]) == []
    assert lint.idle_excuses([dashboard()]) == [usual]
    for change in (
        {"check": "ratio_limits"}, {"dashboard": "cost"}, {"place": "Tokens"}, {"words": "requests"},
    ):  # fmt: skip
        monkeypatch.setattr(lint.excuses, "EXCUSES", (dataclasses.replace(usual, **change),))
        assert len(lint.complaints("panel_units", wrong)) == 1


# --- what the checks rest on


@pytest.mark.parametrize(
    ("expr", "values"),
    [
        ("5 + (up >= bool 1) + (up >= bool 2)", {5, 6, 7}),
        ('4 * (max(vllm_specdec_activity{state="idle"}) == 1)', {4}),
        ("(max(vllm_specdec_up) == 0) - 1", {-1}),
        ("-1 * max by (model_name) (last_over_time(vllm_specdec_info[1h]))", {-1}),
        ("2 * vllm_specdec_up or vector(7) unless up", {0, 2, 7}),
        ("label_replace(group(up) * 3, 'a', 'b', 'c', 'd')", {3}),
        ("0 * vllm_specdec_drafts_per_second", {0}),
        ("vllm_specdec_drafts_per_second", None),
        ("sum(vllm_specdec_up)", None),
        ("vllm_specdec_up / 2", None),
    ],
)
def test_the_codes_that_an_expression_can_give_are_counted(expr: str, values: set[float] | None) -> None:
    assert codes.codes(lint.Query("x", expr).tree) == values


def test_variables_keep_their_names_in_trees() -> None:
    query = lint.Query("x", 'rate(vllm_specdec_drafts_total{job=~"$job"}[${__rate_interval}])')
    assert 'job=~"$job"' in str(query.tree)
    assert lint.readable("x[$window]") != lint.readable("x[$__range]")
    assert lint.readable('x{a="$__range"}') == 'x{a="$__range"}'


def test_old_names_of_vllm_are_none_that_the_captures_show() -> None:
    assert sorted(name for name in known.VLLM if name in known.raw_metrics()) == []
    text = (lint.ROOT / "tests/data/upstream/README.md").read_text("utf-8")
    short = [name.removeprefix("vllm:") for name in known.VLLM]
    written = text.replace("queries/hits_total", "queries_total gpu_prefix_cache_hits_total")
    assert [name for name in short if name not in written] == []


def test_panels_that_are_folded_into_a_row_are_checked_and_asked_as_the_others() -> None:
    found = dashboard(put(f"{LINE}.targets.0.expr", "up{"))
    (line_,) = [panel for panel in found.panels if panel.title == "Drafts"]
    row = {**found.body["panels"][0], "collapsed": True, "panels": [line_.body]}
    others = [body for body in found.body["panels"][1:] if body is not line_.body]
    folded = lint.Dashboard({**found.body, "panels": [row, *others]})
    for check in ("target_promql", "panel_title"):
        assert [str(one) for one in lint.said(check, folded)] == [str(one) for one in lint.said(check, found)]
    assert list(lint.said("target_promql", folded))


def test_panels_that_only_touch_do_not_overlap() -> None:
    assert layout.overlaps(dashboard()) == []
