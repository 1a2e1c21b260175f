"""Overview: which models lose by speculation, how much, since when, and which K to set. One screen."""

from __future__ import annotations

from grafana_panels import annotations, links, variables, verdict
from grafana_panels.annotations import FIRING
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import LIMIT, colored, fixed, limits, matching, named, override, words
from grafana_panels.palette import AMBER, BLUE, GREY, ORANGE, PALE_SKY, VERMILION
from grafana_panels.panel import Panel, Stat, StateTimeline, TimeSeries
from grafana_panels.promql import (
    BREAK_EVEN,
    EXPORTERS,
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    WATCHDOG,
    Flow,
    gauge,
    speedup,
    threshold,
    total,
)
from grafana_panels.styles import LENGTH, NOTHING, RATIO, TIMES
from grafana_panels.table import WRAPPED, Column, joined
from grafana_panels.target import now, over_time
from grafana_panels.variables import MODELS, TARGETS
from vllm_specdec_exporter.commands.dashboards.files import HOME, RUNBOOK_LINK

NOW, RATES = Flow(MODEL, now=True), Flow(MODEL)
ALERT = "severity, alertname, cluster, namespace, model_name, instance, engine"
#: Engines that answered within an hour.
SEEN = f"last_over_time({gauge('info')}[1h])"
_K_WORDS = words({verdict.MIXED: ("mixed K", GREY)})


def missing(text: str, condition: str) -> str:
    """Return a sentence that is shown if a condition has a result."""
    return f'label_replace(group({condition}), "sentence", "{text}", "", "")'


#: What a person should do before anything else, each in one sentence.
MISSING = "\nor ".join(
    (
        missing(
            "No exporter: let Prometheus scrape port 9850.", f"vector(1) unless on () group({EXPORTERS})"
        ),
        missing("An exporter is down: see Exporter.", f"{EXPORTERS} == 0"),
        missing("A vLLM server is down: see its log.", f"{gauge('up', TARGETS)} == 0"),
        missing("No traffic: send requests.", f"min({gauge('activity', state='idle')}) == 1"),
        missing(
            "Method unknown: set --spec.config.",
            f"{gauge('info', method='', cost_profile='unknown')} unless on ({IDENTITY}) {gauge('activity', state='off')} == 1",
        ),
        missing("Speedup unknown: run calibrate.", f"{gauge('payoff', verdict='unknown')} == 1"),
        missing("No alert rules: load alerts/rules.", f"vector(1) unless on () {WATCHDOG}"),
    )
)

first_line: list[Panel] = [
    Stat(
        title="Models by verdict",
        description="How many of the models have each verdict. Click a model in the table for details.",
        targets=[
            now(
                f'count_values("verdict", {verdict.of_models()})\n* on () group_left (models) '
                f'count_values("models", count(count by ({MODEL}) ({SEEN})))',
                "{{verdict}}",
            )
        ],
        text="value_and_name",
        unit="short",
        decimals=0,
        background=True,
        overrides=[
            named(str(code), displayName=f"{word} of ${{__field.labels.models}}", color=fixed(color))
            for code, (word, color) in verdict.VERDICTS.items()
        ],
        no_value="NO EXPORTER",
        width=6,
    ),
    Stat(
        title="Engine time won, 24 h",
        description="Time that all engines saved by speculation; negative is lost. Multiply by the GPUs of an engine.",
        targets=[now(f"sum(sum_over_time(({gauge('speedup')} - 1)[1d:5m])) / 12", "won")],
        unit="h",
        decimals=1,
        no_value=NOTHING,
    ),
    Stat(
        title="Alerts",
        description="Firing alerts by severity: critical pages, warning is a ticket, info is a hint.",
        targets=[
            now(
                f"count by (severity) (max by ({ALERT}) ({FIRING}))\n"
                f'or label_replace(0 * max({WATCHDOG}), "severity", "none", "", "") unless on () ({FIRING})',
                "{{severity}}",
            )
        ],
        text="value_and_name",
        unit="short",
        decimals=0,
        background=True,
        overrides=colored({"critical": VERMILION, "warning": AMBER, "info": PALE_SKY, "none": GREY}),
        no_value="no rules",
    ),
    Stat(
        title="Error budget left (30 d)",
        description="Of the worst model: drafts that may still be made while speculation loses. Needs the rules.",
        targets=[
            now(
                f"clamp_min(min(last_over_time(model:vllm_specdec_worth_it_error_budget:remaining30d{{{MODELS}}}[1d])), 0)",
                "left",
            )
        ],
        **RATIO,
        no_value="not yet",
    ),
    joined(
        "What is missing",
        "What to do before the other panels are complete.",
        {"sentence": "What to do"},
        [Column("Value", MISSING)],
        overrides=[named("Value", custom__hidden=True)],
        no_value="nothing",
        header=False,
        width=6,
        rows=4,
    ),
]

models = joined(
    "Models",
    (
        "Worst verdict first. Since: how long the verdict has stood, up to 24 h. Break-even: the length below "
        "which speculation loses. Click a model for details."
    ),
    {"cluster": "Cluster", "namespace": "Namespace", "model_name": "Model"},
    [
        Column(
            "Verdict",
            links.named_or_all(verdict.of_models()),
            mappings=words(verdict.VERDICTS),
            filled=True,
            width=155,
        ),
        Column("Speedup", speedup(MODEL), "suffix:×", 2, 80),
        Column("Basis", verdict.basis(MODEL), mappings=words(verdict.BASES), width=90),
        Column("Since", verdict.since(), "s", 1, 85),
        Column("Acceptance", NOW.acceptance(), "percentunit", 0, 95),
        Column("Length", NOW.length(), decimals=2, width=70),
        Column("Break-even", BREAK_EVEN, decimals=2, width=95),
        Column("K", verdict.k_of("num_speculative_tokens", MODEL), "short", 0, 75, _K_WORDS),
        Column(
            "Advised", verdict.k_of("recommended_num_speculative_tokens", MODEL), "short", 0, 80, _K_WORDS
        ),
        Column(
            "Alerts",
            f"count by ({MODEL}) (max by ({ALERT}) ({FIRING})) and on ({MODEL}) {SEEN}",
            decimals=0,
            width=65,
        ),
    ],
    hidden=links.CHOSEN,
    overrides=[
        named("Cluster", custom__width=65),
        named("Namespace", custom__width=95),
        named("Model", links=[links.to_model("Deep dive")]),
    ],
    no_value="-",
    sort=("Verdict", False),
    rows=6,
)

history: list[Panel] = [
    StateTimeline(
        title="Verdict over time",
        description="Where a colour changes, look for a change of K, a restart or an alert in the panels below.",
        targets=[over_time(verdict.of_models(), MODEL_LEGEND)],
        mappings=words(verdict.VERDICTS),
        no_value="no model was seen",
        legend=False,
        width=13,
        rows=5,
    ),
    joined(
        "Firing alerts",
        "Alerts of the selection, and for how long each has been pending or firing. Click one for its runbook.",
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
            Column(
                "For",
                f"time() - max by ({ALERT}) (ALERTS_FOR_STATE and ignoring (alertstate) {FIRING})",
                "s",
                1,
                width=85,
            )
        ],
        overrides=[
            named("Severity", custom__width=75),
            named("Model", custom__cellOptions=WRAPPED),
            named(
                "Alert",
                custom__width=275,
                links=[{"title": "Runbook", "url": RUNBOOK_LINK, "targetBlank": True}],
            ),
            *(named(name, custom__hidden=True) for name in ("Cluster", "Namespace", "Instance", "Engine")),
            override("byType", "string", noValue="-"),
        ],
        no_value="none fires",
        sort=("Severity", False),
        width=11,
        rows=5,
    ),
    TimeSeries(
        title="Speedup",
        description="Speed of all output over that without speculation. Dashed: thresholds of harmful and beneficial.",
        targets=[
            over_time(speedup(MODEL), MODEL_LEGEND),
            over_time(threshold("harmful_speedup"), f"{LIMIT}harmful below, {MODEL_LEGEND}"),
            over_time(threshold("beneficial_speedup"), f"{LIMIT}beneficial above, {MODEL_LEGEND}"),
        ],
        **TIMES,
        overrides=[limits(), matching(f"^{LIMIT}harmful.*", color=fixed(VERMILION))],
        no_value=NOTHING,
        width=8,
        rows=6,
    ),
    TimeSeries(
        title="Acceptance length above break-even",
        description="Mean acceptance length less its break-even. Below 0 speculation loses: lower K, or disable.",
        targets=[over_time(f"{RATES.length()} - {BREAK_EVEN}", MODEL_LEGEND)],
        **LENGTH,
        no_value=NOTHING,
        width=8,
        rows=6,
    ),
    TimeSeries(
        title="Requests running and waiting",
        description="Of all models. More running requests raise the break-even; if requests wait, rejected drafts cost throughput.",
        targets=[
            over_time(total(gauge("requests_running")), "running"),
            over_time(total(gauge("requests_waiting")), "waiting"),
        ],
        unit="short",
        decimals=0,
        least=0,
        fill=15,
        overrides=colored({"running": BLUE, "waiting": ORANGE}),
        no_value="not known",
        width=8,
        rows=6,
    ),
]

dashboard = Dashboard(
    uid=HOME,
    title="Overview",
    description="Which models gain or lose by speculative decoding, since when, and which K should be set?",
    sections=[("", [*first_line, models, *history])],
    variables=variables.of_models(),
    marks=annotations.marks(),
    links=links.to_all(),
)
