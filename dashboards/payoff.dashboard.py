"""Is speculation paying? The first screen: verdict, why, since when, and which model or pod."""

from __future__ import annotations

from grafana_panels import annotations, links, tiles, variables, verdict
from grafana_panels.alerting import RUNBOOKS, WATCHDOG
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import LIMIT, colored, fixed, limits, named, override, words
from grafana_panels.palette import AMBER, BLUE, GREY, ORANGE, PALE_SKY, VERMILION
from grafana_panels.panel import Panel, Stat, StateTimeline, TimeSeries
from grafana_panels.promql import (
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    Flow,
    gauge,
    most,
    share,
    share_of_engines,
    shares,
    speedup,
    threshold,
    total,
    weighted,
    windowed,
)
from grafana_panels.table import Column, joined
from grafana_panels.target import now, over_time
from grafana_panels.tiles import BREAK_EVEN, COST, DRAFTS, NOTHING, RATIO, TILE, TIMES, WHY
from grafana_panels.variables import MODELS

FLOW, BY_MODEL = Flow(), Flow(MODEL)


def alerts(by: str) -> str:
    """Return the alerts that fire, each once."""
    return f"max by ({by}) ({annotations.firing()})"


verdict_tiles: list[Panel] = [
    tiles.pays(6),
    tiles.speed(3),
    Stat(
        title="Rests on",
        description=(
            "The `basis` of `vllm_specdec_speedup`, with its share of the drafts. Modelled: run calibrate, or "
            "record a baseline, to measure it."
        ),
        targets=[
            now(most(share(f"({gauge('speedup')} > bool 0)", DRAFTS, "basis"), "basis", {}), "{{basis}}"),
        ],
        text="value_and_name",
        **RATIO,
        no_value=NOTHING,
        width=3,
    ),
    tiles.change(6),
    Stat(
        title="Alerts",
        description=(
            "Firing alerts of the selection, by severity, from `ALERTS`: critical pages, warning is a ticket, "
            "info a hint. See *Which alerts fire?* below and follow the runbook. Requires the alert rules."
        ),
        targets=[
            now(
                f"count by (severity) ({alerts('alertname, severity, cluster, namespace, model_name')})\n"
                f'or label_replace(0 * max({WATCHDOG}), "severity", "none", "", "")'
                f" unless on () ({annotations.firing()})",
                "{{severity}}",
            )
        ],
        text="value_and_name",
        unit="short",
        decimals=0,
        background=True,
        overrides=colored({"critical": VERMILION, "warning": AMBER, "info": PALE_SKY, "none": GREY}),
        no_value="no rules",
        width=3,
    ),
    Stat(
        title="Budget left",
        description=(
            'Remaining 30-day error budget of the objective "speculation was worth it", for the worst model and '
            "the available time, from `model:vllm_specdec_worth_it_error_budget:remaining30d`. If it is used up "
            "early, find the hours at which speculation loses, and set a K schedule."
        ),
        targets=[
            now(
                f"clamp_min(min(last_over_time(model:vllm_specdec_worth_it_error_budget:remaining30d{{{MODELS}}}[1d])), 0)",
                "budget left",
            )
        ],
        **RATIO,
        no_value="not yet",
        width=3,
    ),
]

reason_tiles: list[Panel] = [
    Stat(
        title="What do engines do?",
        description=(
            "States of the engines, with the share of engines in each, from `vllm_specdec_activity`. Off: no "
            "speculation is configured. Bypassed: tokens without drafts, so check the K schedule or vLLM's log."
        ),
        targets=[
            now(
                shares(
                    share_of_engines(gauge("activity"), "state"), "state", verdict.words_of(verdict.ACTIVITY)
                ),
                "{{state}}",
            )
        ],
        text="value_and_name",
        **RATIO,
        background=True,
        overrides=verdict.colors_of(verdict.ACTIVITY),
        no_value="unknown",
    ),
    tiles.quality(),
    tiles.acceptance(),
    tiles.length(),
    Stat(
        title="Coverage",
        description=(
            "Share of the generated tokens that came from drafts, from `vllm_specdec_accepted_tokens_per_second`, "
            "`vllm_specdec_drafts_per_second` and `vllm_specdec_generation_tokens_per_second`. Low with few "
            "n-gram matches or a K schedule: speculation then has little effect."
        ),
        targets=[now(TILE.coverage(), "coverage")],
        **RATIO,
        no_value=NOTHING,
    ),
    Stat(
        title="Wasted verification",
        description=(
            "Share of the verified tokens that were rejected, from `vllm_specdec_draft_tokens_per_second` and "
            "`vllm_specdec_accepted_tokens_per_second`. It is free on an idle GPU and costs throughput on a busy "
            "one: lower K when requests wait."
        ),
        targets=[now(TILE.waste(), "wasted")],
        **RATIO,
        no_value=NOTHING,
        links=COST,
    ),
]

since_when: list[Panel] = [
    TimeSeries(
        title="How fast, and where is break-even?",
        description=(
            "Speedup of each model, from `vllm_specdec_speedup` weighted by its tokens; dashed: the thresholds "
            "`harmful_speedup` and `beneficial_speedup` in force (`vllm_specdec_threshold`), the lowest of the "
            "selected exporters. Below the lower line speculation loses: see *K and cost* for the load."
        ),
        targets=[
            over_time(speedup(MODEL), MODEL_LEGEND),
            over_time(threshold("harmful_speedup"), LIMIT + "harmful below"),
            over_time(threshold("beneficial_speedup"), LIMIT + "beneficial above"),
        ],
        **TIMES,
        overrides=[
            limits(),
            named(LIMIT + "harmful below", color=fixed(VERMILION)),
        ],
        no_value=NOTHING,
        links=COST,
    ),
    StateTimeline(
        title="Verdict over time",
        description=(
            "Verdict for each model, from `vllm_specdec_speedup`, `vllm_specdec_activity` and the thresholds in "
            "force. A model that answered within the last hour but does not now is down. Where a colour changes, "
            "look for a K change, restart or alert among the annotations of the other panels."
        ),
        targets=[over_time(verdict.of_models(), MODEL_LEGEND)],
        mappings=words(verdict.VERDICTS),
        no_value="nothing seen",
    ),
    TimeSeries(
        title="Mean acceptance length against break-even",
        description=(
            "Tokens per draft, from `vllm_specdec_accepted_tokens_total` and `vllm_specdec_drafts_total`; dashed: "
            "the break-even (`vllm_specdec_break_even_acceptance_length`). Break-even rises with the load. Where "
            "the lines cross: lower K, or disable."
        ),
        targets=[
            over_time(FLOW.length(), "mean acceptance length"),
            over_time(BREAK_EVEN, LIMIT + "break-even"),
        ],
        unit="short",
        decimals=2,
        overrides=[
            *colored({"mean acceptance length": BLUE}),
            limits(),
            named(LIMIT + "break-even", color=fixed(VERMILION)),
        ],
        no_value=NOTHING,
        width=8,
        links=WHY,
    ),
    TimeSeries(
        title="Acceptance rate by model",
        description=(
            "Accepted over draft tokens of each model, from `vllm_specdec_accepted_tokens_total` and "
            "`vllm_specdec_draft_tokens_total`; dashed: the thresholds of poor and healthy acceptance in force "
            "(`vllm_specdec_threshold`). A step at a restart: look for another build or draft model."
        ),
        targets=[
            over_time(BY_MODEL.acceptance(), MODEL_LEGEND),
            over_time(threshold("poor_acceptance_ratio"), LIMIT + "poor below"),
            over_time(threshold("healthy_acceptance_ratio"), LIMIT + "healthy from"),
        ],
        **RATIO,
        overrides=[limits(), named(LIMIT + "poor below", color=fixed(VERMILION))],
        no_value=NOTHING,
        width=8,
        links=WHY,
    ),
    TimeSeries(
        title="Coverage and waste",
        description=(
            "Share of the output that came from drafts, and share of the verified tokens that were rejected, from "
            "`vllm_specdec_drafts_total`, `vllm_specdec_draft_tokens_total`, `vllm_specdec_accepted_tokens_total` "
            "and `vllm_specdec_generation_tokens_total`. Waste with waiting requests: lower K."
        ),
        targets=[over_time(FLOW.coverage(), "coverage"), over_time(FLOW.waste(), "wasted")],
        **RATIO,
        overrides=colored({"coverage": BLUE, "wasted": ORANGE}),
        no_value=NOTHING,
        width=8,
    ),
]


def rows_of(by: str, *left_out: str) -> list[Column]:
    """Return what a table tells of a model or an engine."""
    flow = Flow(by, now=True)
    top = "max"
    found = [
        Column(
            "Verdict",
            links.named_or_all(verdict.of_speculation(by), *_LINKED),
            mappings=words(verdict.VERDICTS),
            filled=True,
            width=145,
        ),
        Column("Speedup", speedup(by), "suffix:×", 2, 85),
        Column("Length", flow.length(), decimals=2, width=75),
        Column(
            "Break-even",
            weighted(windowed("break_even_acceptance_length"), DRAFTS, by),
            decimals=2,
            width=95,
        ),
        Column("Acceptance", flow.acceptance(), "percentunit", 0, 100),
        Column("Running", total(gauge("requests_running"), by), decimals=0, width=80),
        Column("Waiting", total(gauge("requests_waiting"), by), decimals=0, width=75),
        Column("K", total(gauge("num_speculative_tokens"), by, top), decimals=0, width=45),
        Column("Advised", total(gauge("recommended_num_speculative_tokens"), by, top), decimals=0, width=80),
    ]
    return [column for column in found if column.title not in left_out]


#: Columns of labels that are narrower than they would be by themselves.
NARROW = [
    named("Cluster", custom__width=80),
    named("Namespace", custom__width=100),
]
_LINKED = ("cluster", "namespace", "instance", "target", "model_name", "engine")


def drill_down(*labels: str) -> list[dict[str, object]]:
    """Return the links of a row to the dashboards with its details."""
    return [
        links.to_row("Acceptance anatomy", "vllm-specdec-acceptance", *labels),
        links.to_row("K and cost", "vllm-specdec-cost", *labels),
        links.to_row("Latency and load", "vllm-specdec-load", *labels),
    ]


where: list[Panel] = [
    joined(
        "Which model loses?",
        (
            "Each model with all its engines, the worst verdict first: `vllm_specdec_speedup`, acceptance length "
            "and break-even (`vllm_specdec_break_even_acceptance_length`), load, K and advised K "
            "(`vllm_specdec_recommended_num_speculative_tokens`). Click a model to see why."
        ),
        {"cluster": "Cluster", "namespace": "Namespace", "model_name": "Model"},
        rows_of(MODEL),
        hidden=[links.chosen(label) for label in _LINKED],
        overrides=[*NARROW, named("Model", links=drill_down("cluster", "namespace", "model_name"))],
        no_value="-",
        sort=("Verdict", False),
        rows=6,
    ),
    joined(
        "Which pod or engine loses?",
        (
            "Each engine, the worst verdict first, from the same series as the table of models "
            "(`vllm_specdec_speedup` and others). One engine below its peers: compare its K, version and traffic, "
            "and drain and restart it. Click an instance to see why."
        ),
        {
            "cluster": "Cluster",
            "namespace": "Namespace",
            "pod": "Pod",
            "instance": "Instance",
            "target": "Server",
            "model_name": "Model",
            "engine": "Engine",
        },
        rows_of(IDENTITY, "Break-even", "Waiting"),
        hidden=["job", *(links.chosen(label) for label in _LINKED)],
        overrides=[
            *NARROW,
            named("Engine", custom__width=70),
            named("Pod", custom__width=105),
            named("Model", custom__width=265),
            named("Instance", custom__width=135, links=drill_down(*_LINKED)),
        ],
        no_value="-",
        sort=("Verdict", False),
        rows=9,
    ),
    joined(
        "Which alerts fire?",
        (
            "Firing alerts of the selection, from `ALERTS`, and since when (`ALERTS_FOR_STATE`). Click an alert "
            "for its runbook."
        ),
        {
            "severity": "Severity",
            "alertname": "Alert",
            "cluster": "Cluster",
            "namespace": "Namespace",
            "model_name": "Model",
            "instance": "Instance",
            "engine": "Engine",
        },
        [
            Column("Firing", alerts("severity, alertname, cluster, namespace, model_name, instance, engine")),
            Column(
                "For",
                "time() - max by (severity, alertname, cluster, namespace, model_name, instance, engine) "
                f"(ALERTS_FOR_STATE and ignoring (alertstate) {annotations.firing()})",
                "dtdurations",
                width=160,
            ),
        ],
        overrides=[
            named(
                "Alert",
                custom__width=330,
                links=[{"title": "Runbook", "url": f"{RUNBOOKS}/${{__value.raw}}.md", "targetBlank": True}],
            ),
            named("Firing", custom__hidden=True),
            named("For", noValue="-"),
            override("byType", "string", noValue="-"),
            named("Severity", custom__width=90),
            named("Model", custom__width=270),
            *NARROW,
        ],
        no_value="none fires",
        sort=("Severity", False),
        rows=8,
    ),
]

dashboard = Dashboard(
    uid="vllm-specdec-payoff",
    title="Is speculation paying?",
    description="Is speculative decoding paying off right now, since when, and for which model or pod not?",
    sections=[
        ("", verdict_tiles + reason_tiles),
        ("Since when?", since_when),
        ("Which one?", where),
    ],
    variables=variables.usual(),
    marks=annotations.usual(),
    links=links.to_all(),
)
