"""Overview: which models lose by speculation, how much, since when, and which K to set. One screen."""

from __future__ import annotations

from grafana_panels import annotations, links, variables, verdict, vllm
from grafana_panels.annotations import FIRING
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import (
    LENGTH,
    LIMIT,
    RATIO,
    TIMES,
    fixed,
    named,
    threshold_lines,
    unlisted,
    word_mapping,
)
from grafana_panels.palette import AMBER, GREY, PALE_SKY, VERMILION
from grafana_panels.panel import Panel, Stat, StateTimeline, TimeSeries, now, over_time
from grafana_panels.promql import (
    BREAK_EVEN,
    EXPORTERS,
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    SEEN,
    WATCHDOG,
    Flow,
    agreed,
    metric,
    renamed,
    speedup,
    threshold,
    total,
)
from grafana_panels.table import WRAPPED, Column, filled, joined_table
from grafana_panels.variables import MODELS, TARGETS
from mixin import CLUSTER, CRITICAL, INFO, WARNING
from vllm_specdec_exporter.commands.dashboards.files import HOME, RUNBOOK_LINK

NOW, RATES = Flow(MODEL, now=True), Flow(MODEL)
ALERT = f"severity, alertname, {CLUSTER}, namespace, model_name, instance, engine"
#: Severities in their order: by their names, info would come before warning.
SEVERITIES = {1: (CRITICAL, VERMILION), 2: (WARNING, AMBER), 3: (INFO, PALE_SKY)}
#: Down is one tile, and without a verdict is one: with one for each state the letters would be too small to be read.
SUMS = {
    1: ("✖ DOWN", verdict.VERDICTS[1][1]),
    **{code: verdict.VERDICTS[code] for code in range(2, 8)},
    8: ("NO VERDICT", GREY),
}
_K_WORDS = word_mapping({verdict.MIXED: ("mixed K", GREY)})


def missing(text: str, condition: str, label: str = "") -> str:
    """Return a sentence that is shown if a condition has a result; `$1` in it is the value of a label."""
    named = f'label_replace({condition}, "sentence", "{text}", "{label}", "(.*)")'
    return f"group by (sentence) ({named})"


#: What a person should do before anything else, each in one sentence.
MISSING = "\nor ".join(
    (
        missing(
            "No exporter: let Prometheus scrape port 9850.", f"vector(1) unless on () group({EXPORTERS})"
        ),
        missing("Exporter $1 is down: see its log.", f"{EXPORTERS} == 0", "instance"),
        missing("vLLM of $1 is down: see its log.", f"{metric('up', TARGETS)} == 0", "instance"),
        missing("No traffic: send requests.", f"min({metric('activity', state='idle')}) == 1"),
        missing(
            "Method unknown: set --spec.config.",
            f"{metric('info', method='', cost_profile='unknown')} unless on ({IDENTITY}) {metric('activity', state='off')} == 1",
        ),
        missing("Speedup unknown: run history, or calibrate.", f"{metric('payoff', verdict='unknown')} == 1"),
        missing("No alert rules: load alerts/rules.", f"vector(1) unless on () {WATCHDOG}"),
    )
)
SEE = "see What is missing"
#: Hours that all engines have saved in a day.
_WON = f"sum(sum_over_time(({metric('speedup')} - 1)[1d:10m])) / 6"
_NOTHING_WON = f"0 * max({metric('build_info', TARGETS)})"
#: Of models whose budget is known for an hour: before, it is always full.
_LEFT = f"model:vllm_specdec_worth_it_error_budget:remaining30d{{{MODELS}}}[1d]"
BUDGET = f"last_over_time({_LEFT}) and last_over_time({_LEFT} offset 1h)"


def outcome(word: str, hours: str) -> str:
    """Return hours with a word for them."""
    return f'label_replace({hours}, "outcome", "{word}", "", "")'


first_line: list[Panel] = [
    Stat(
        title="Models by verdict",
        description="How many models have each verdict. The table below has them by name.",
        targets=[now(f'count_values("verdict", clamp({verdict.of_models()}, 1, 8))', "{{verdict}}")],
        text="value_and_name",
        unit="short",
        decimals=0,
        background=True,
        overrides=[
            named(str(code), displayName=word, color=fixed(color)) for code, (word, color) in SUMS.items()
        ],
        # Prometheus returns counted values in no order.
        reshape=[
            {"id": "joinByField", "options": {"byField": "Time", "mode": "outer"}},
            {"id": "organize", "options": {"indexByName": {str(code): code for code in SUMS}}},
        ],
        no_value="NO MODEL",
        width=10,
    ),
    Stat(
        title="Time won or lost, 24 h",
        description="Engine time that speculation saved or cost. Multiply by the GPUs of an engine.",
        targets=[
            now(
                f"{outcome('won', f'{_WON} >= 0')}\nor {outcome('lost', f'-({_WON}) > 0')}\n"
                f"or on () {outcome('nothing yet', _NOTHING_WON)}",
                "{{outcome}}",
            )
        ],
        text="value_and_name",
        unit="h",
        decimals=1,
        no_value="needs the exporter",
    ),
    Stat(
        title="Error budget left (30 d)",
        description="Of the worst model: drafts that may still be made while speculation loses.",
        targets=[now(f"clamp_min(min({BUDGET}), 0)", "left")],
        **RATIO,
        no_value="needs an hour of rules",
    ),
    joined_table(
        "What is missing",
        "What to do before the other panels are complete.",
        {"sentence": "What to do"},
        [Column("Value", MISSING)],
        overrides=[named("Value", custom__hidden=True), named("What to do", custom__cellOptions=WRAPPED)],
        no_value="nothing",
        header=False,
        width=6,
        rows=4,
    ),
]


def alerts() -> str:
    """Return how many alerts concern each model; of one that is down, those of its exporter and namespace, too."""
    own = f"count by ({MODEL}) (max by ({ALERT}) ({FIRING})) and on ({MODEL}) {SEEN}"
    down = f"{SEEN} unless on ({MODEL}) {metric('info')}"
    counts = [f'label_replace({own}, "of", "model", "", "")']
    for place, matchers in (
        (f"{CLUSTER}, namespace, instance", ',model_name=""}'),
        (f"{CLUSTER}, namespace", ',model_name="",instance=""}'),
    ):
        count = f"count by ({place}) (max by ({ALERT}) ({FIRING.replace('}', matchers)}))"
        counts.append(f"{count} * on ({place}) group_right () group by ({place}, model_name) ({down})")
    return total("\nor ".join(counts), MODEL)


models = joined_table(
    "Models",
    "Worst first. Since: how long the verdict stands. Loses: probability, of the worst engine.",
    {CLUSTER: "Cluster", "namespace": "Namespace", "model_name": "Model"},
    [
        Column(
            "Verdict",
            links.named_or_all(verdict.of_models()),
            mappings=word_mapping(verdict.VERDICTS),
            filled=True,
            width=170,
        ),
        Column("Speedup", speedup(MODEL), "suffix:×", 2, 75),
        Column("Loses", total(metric("loss_probability"), MODEL, "max"), "percentunit", 0, 60),
        Column("Basis", verdict.basis(MODEL), mappings=word_mapping(verdict.BASES), width=85),
        Column("Since", verdict.since(), "s", 1, 75),
        Column("Acceptance", NOW.acceptance(), "percentunit", 0, 90),
        Column("Length", NOW.length(), decimals=2, width=65),
        Column("Break-even", BREAK_EVEN, decimals=2, width=90),
        Column("K", verdict.k_of("num_speculative_tokens", MODEL), "short", 0, 70, _K_WORDS),
        Column(
            "Advised", verdict.k_of("recommended_num_speculative_tokens", MODEL), "short", 0, 75, _K_WORDS
        ),
        Column("TPOT", vllm.time_per_output_token(MODEL, "5m"), "s", 1, 65),
        Column("Alerts", alerts(), decimals=0, width=60),
    ],
    hidden=links.CHOSEN,
    overrides=[
        named("Cluster", custom__width=65),
        named("Namespace", custom__width=95),
        named("Model", links=[links.to_model("Deep dive")]),
    ],
    no_value=f"no model: {SEE}",
    sort=("Verdict", False),
    rows=6,
)

#: Since when alerts fire: when they were pending last, or of those that never were within a day, active.
FIRES_SINCE = (
    f"max by ({ALERT}) (max_over_time(timestamp({FIRING.replace('firing', 'pending')})[1d:1m]) and on ({ALERT}) {FIRING})\n"
    f"or max by ({ALERT}) (ALERTS_FOR_STATE and ignoring (alertstate) {FIRING})"
)
history: list[Panel] = [
    StateTimeline(
        title="Verdict over time",
        description="Where a colour changes, look for a new K, a restart or an alert.",
        targets=[over_time(verdict.of_models(), MODEL_LEGEND)],
        mappings=word_mapping(verdict.VERDICTS),
        no_value=f"no model: {SEE}",
        legend=False,
        rows=5,
    ),
    joined_table(
        "Firing alerts",
        "Critical first, and how long each has fired. Click one for rule and runbook.",
        {
            "severity": "Severity",
            "alertname": "Alert",
            CLUSTER: "Cluster",
            "namespace": "Namespace",
            "model_name": "Model",
            "instance": "Instance",
            "engine": "Engine",
        },
        [
            Column(
                "For",
                renamed(
                    f"time() - ({FIRES_SINCE})",
                    "severity",
                    {word: str(code) for code, (word, _) in SEVERITIES.items()},
                ),
                "s",
                1,
                width=85,
            )
        ],
        overrides=[
            named("Severity", custom__width=80, **filled(word_mapping(SEVERITIES))),
            named("Cluster", custom__width=65),
            named("Model", custom__cellOptions=WRAPPED),
            named(
                "Alert",
                custom__width=275,
                links=[{"title": "Runbook", "url": RUNBOOK_LINK, "targetBlank": True}],
            ),
            *(named(name, custom__hidden=True) for name in ("Namespace", "Instance", "Engine")),
        ],
        no_value="no alert fires (needs exporter and rules)",
        sort=("Severity", False),
        width=12,
        rows=5,
    ),
    TimeSeries(
        title="Speedup",
        description="Of all output, over that without speculation. Harmful: lower K, or disable.",
        targets=[
            over_time(speedup(MODEL), MODEL_LEGEND),
            over_time(agreed(threshold("harmful_speedup")), f"{LIMIT}harmful below {MODEL_LEGEND}"),
            over_time(agreed(threshold("beneficial_speedup")), f"{LIMIT}beneficial above {MODEL_LEGEND}"),
        ],
        **TIMES,
        overrides=[threshold_lines(), threshold_lines(VERMILION, "harmful")],
        no_value=f"no exporter, or no drafts: {SEE}",
        rows=6,
    ),
    TimeSeries(
        title="Acceptance length and break-even",
        description="Tokens per draft. Dashed: below it speculation loses; more requests raise it.",
        targets=[
            over_time(RATES.length(), MODEL_LEGEND),
            over_time(BREAK_EVEN, f"{LIMIT}break-even {MODEL_LEGEND}"),
        ],
        **LENGTH,
        overrides=[threshold_lines(VERMILION), unlisted("break-even")],
        no_value=f"no drafts: {SEE}",
        rows=6,
    ),
]

dashboard = Dashboard(
    uid=HOME,
    title="Overview",
    description="Which models gain or lose by speculative decoding, since when, and which K should be set?",
    page="payoff.md",
    sections=[("", [*first_line, models, *history])],
    variables=variables.of_models(),
    marks=annotations.marks(),
)
