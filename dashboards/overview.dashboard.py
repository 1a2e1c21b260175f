"""Overview: which models lose by speculation, how much, since when, and which K to set. One screen."""

from __future__ import annotations

from grafana_panels import annotations, links, variables, verdict
from grafana_panels.annotations import FIRING
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import (
    LENGTH,
    LIMIT,
    RATIO,
    TIMES,
    fixed,
    matching,
    named,
    threshold_lines,
    unlisted,
    word_mapping,
)
from grafana_panels.palette import AMBER, BLUE, GREY, PALE_SKY, VERMILION
from grafana_panels.panel import Panel, Stat, StateTimeline, TimeSeries, now, over_time
from grafana_panels.promql import (
    BREAK_EVEN,
    EXPORTERS,
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    WATCHDOG,
    Flow,
    agreed,
    metric,
    or_without_rules,
    recorded,
    renamed,
    speedup,
    total,
)
from grafana_panels.table import WRAPPED, Column, filled, joined_table
from grafana_panels.variables import LABELS, MODELS, TARGETS
from mixin import CLUSTER, CRITICAL, INFO, WARNING
from vllm_specdec_exporter.commands.dashboards.files import HOME, RUNBOOK_LINK

NOW, RATES = Flow(MODEL, now=True), Flow(MODEL)
ALERT = f"severity, alertname, {CLUSTER}, namespace, model_name, instance, engine"
#: Severities in their order: by their names, info would come before warning.
SEVERITIES = {1: (CRITICAL, VERMILION), 2: (WARNING, AMBER), 3: (INFO, PALE_SKY)}
#: Down is one tile, and without a verdict is one: with one for each state the letters would be too small to be read.
SUMS = {
    1: ("✖ DOWN", verdict.VERDICTS[1][1]),
    **{code: verdict.VERDICTS[code] for code in range(2, 9)},
    9: ("NO VERDICT", GREY),
}
_K_WORDS = word_mapping({verdict.MIXED: ("mixed K", GREY)})


def missing(text: str, condition: str, label: str = "") -> str:
    """Return a sentence that is shown if a condition has a result; `$1` in it is the value of a label."""
    named = f'label_replace({condition}, "sentence", "{text}", "{label}", "(.*)")'
    return f"group by (sentence) ({named})"


#: What a person should do before anything else, each in one sentence.
MISSING = (
    missing("No exporter: let Prometheus scrape port 9850.", f"vector(1) unless on () group({EXPORTERS})"),
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
_ADVISED = "recommended_num_speculative_tokens"
#: Heading of the hidden column whose query says what to do.
_ASKED = "Asked"
SEE = "see What is missing"
FAST = or_without_rules("speedup:ratio_rate5m", speedup(MODEL))
_NOTHING_WON = f"0 * max({metric('build_info', TARGETS)})"
#: Of models whose budget is known for an hour: before, it is always full.
_LEFT = f"model:vllm_specdec_worth_it_error_budget:remaining30d{{{MODELS}}}[1d]"
BUDGET = f"last_over_time({_LEFT}) and last_over_time({_LEFT} offset 1h)"


def outcome(word: str, hours: str) -> str:
    """Return hours with a word for them."""
    return f'label_replace({hours}, "outcome", "{word}", "", "")'


def won(record: str, by: str = "") -> str:
    """Return the hours of engines that speculation has saved in a day; an engine without requests saves none."""
    return total(f"sum_over_time({recorded(f'{record}:sum')}[1d:5m]) / 12", by)


_WON = won("saved_engines")


def todo() -> str:
    """Return the gain of the advised K where it is another, with a label that says what to do."""
    k, advised = (recorded(name) for name in ("num_speculative_tokens:max", f"{_ADVISED}:median"))
    # The labels must come last in the alphabet: Prometheus 2.42 loses those behind them.
    parts = (
        f'count_values by ({MODEL}) ("x", {k} != {advised})',
        f'count_values by ({MODEL}) ("y", {advised})',
    )
    joined = f'label_join({parts[0]} * on ({MODEL}) group_left (y) {parts[1]}, "do", " to ", "x", "y")'
    for word, pattern in (("off", ".* to 0"), ("K $1", "([0-9].*)")):
        joined = f'label_replace({joined}, "do", "{word}", "do", "{pattern}")'
    gain = recorded("advised_speedup:ratio")
    return f"sum by ({MODEL}, do) ({joined}) * on ({MODEL}) group_left () ({gain} - 1)"


def calibrate() -> str:
    """Return what to do about a verdict that is unknown."""
    unknown = f"max by ({MODEL}) ({metric('payoff', verdict='unknown')} == 1)"
    known = metric(_ADVISED)
    return f'label_replace({unknown} unless on ({MODEL}) {known}, "do", "run calibrate", "", "")'


first_line: list[Panel] = [
    Stat(
        title="Monitoring",
        description="Whether exporters, servers and rules answer, how old data is, and the weakest basis.",
        targets=[
            now(
                f"min({EXPORTERS} or {metric('up', TARGETS)}) and on () {WATCHDOG}\nor on () vector(0)",
                "monitoring",
            ),
            now(f"max(time() - {metric('last_success_timestamp_seconds', TARGETS)})", "oldest data"),
            now(f"max({WATCHDOG})\nor on () vector(0)", "rules"),
            now(f"min({verdict.basis(MODEL)})", "basis"),
        ],
        text="value_and_name",
        unit="s",
        decimals=0,
        background=True,
        overrides=[
            named("monitoring", mappings=word_mapping({1: ("▲ OK", BLUE), 0: ("✖ BROKEN", VERMILION)})),
            named("rules", mappings=word_mapping({1: ("loaded", GREY), 0: ("NOT LOADED", VERMILION)})),
            named("basis", mappings=word_mapping(verdict.BASES)),
        ],
        no_value="no exporter",
        width=24,
        rows=3,
    ),
    Stat(
        title="Models by verdict",
        description="How many models have each verdict. The table below has them by name.",
        targets=[now(f'count_values("verdict", clamp({verdict.of_models()}, 1, 9))', "{{verdict}}")],
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
        width=9,
    ),
    Stat(
        title="Time won or lost, 24 h",
        description="Hours of busy engines, and the ends of the interval, also of unknown models.",
        targets=[
            now(
                f"{outcome('won', f'{_WON} >= 0')}\nor {outcome('lost', f'-({_WON}) > 0')}\n"
                f"or on () {outcome('nothing yet', _NOTHING_WON)}",
                "{{outcome}}",
            ),
            now(won("least_saved_engines"), "at least"),
            now(won("most_saved_engines"), "at most"),
        ],
        text="value_and_name",
        unit="h",
        decimals=1,
        no_value="needs the exporter",
        width=6,
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
        [Column(f"Value {number}", sentence) for number, sentence in enumerate(MISSING)],
        overrides=[matching("^Value", custom__hidden=True), named("What to do", custom__cellOptions=WRAPPED)],
        no_value="nothing",
        header=False,
        width=5,
        rows=4,
    ),
]


models = joined_table(
    "Models",
    "Worst first, with the interval. Since: how long the verdict stands. Do: click.",
    {**LABELS, "do": "Do"},
    [
        Column(
            "Verdict",
            verdict.of_models(),
            mappings=word_mapping(verdict.VERDICTS),
            filled=True,
            width=165,
        ),
        Column("Speedup", FAST, "suffix:×", 2, 75),
        *(
            Column(word, total(metric("speedup_interval", bound=bound), MODEL, found), decimals=2, width=50)
            for word, bound, found in (("From", "low", "min"), ("To", "high", "max"))
        ),
        Column("Basis", verdict.basis(MODEL), mappings=word_mapping(verdict.BASES), width=85),
        Column("Since", verdict.since(), "s", 1, 70),
        Column("Acceptance", NOW.acceptance(), "percentunit", 0, 90),
        Column("Length", NOW.length(), decimals=2, width=65),
        Column("K", verdict.k_of("num_speculative_tokens", MODEL), "short", 0, 60, _K_WORDS),
        Column("Gain", todo(), "percentunit", 0, 55),
        Column(_ASKED, calibrate()),
        Column("TPOT", recorded("time_per_output_token_seconds:rate5m") + " + 0", "s", 1, 65),
        Column("Won, 24 h", won("saved_engines", MODEL), "h", 1, 80),
    ],
    hidden=links.CHOSEN,
    overrides=[
        named("Cluster", custom__width=55),
        named("Namespace", custom__width=92),
        named("Model", custom__cellOptions=WRAPPED),
        named("Do", custom__width=105),
        named(_ASKED, custom__hidden=True),
        *(named(name, links=[links.to_model("Deep dive")]) for name in ("Model", "Do")),
    ],
    no_value=f"no model: {SEE}",
    ranked=links.named_or_any(f"({verdict.harm()}\nor on () max by ({MODEL}) ({metric('info')}))"),
    rows=12,
)

history: list[Panel] = [
    StateTimeline(
        title="Verdict over time",
        description="Where a colour changes, look for a new K, a restart or an alert.",
        targets=[over_time(verdict.of_models(), MODEL_LEGEND)],
        mappings=word_mapping(verdict.VERDICTS),
        no_value=f"no model: {SEE}",
        legend=False,
        width=24,
        rows=8,
    ),
    joined_table(
        "Firing alerts",
        "Critical first, and how long the condition has held. Click one for rule and runbook.",
        {
            "severity": "Severity",
            "alertname": "Alert",
            **LABELS,
            "instance": "Instance",
            "engine": "Engine",
        },
        [
            Column(
                "Active for",
                renamed(
                    f"time() - max by ({ALERT}) (ALERTS_FOR_STATE and ignoring (alertstate) {FIRING})",
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
        ],
        no_value="no alert fires (needs exporter and rules)",
        sort=("Severity", False),
        rows=7,
    ),
    TimeSeries(
        title="Speedup",
        description="Of all output, over that without speculation. Harmful: lower K, or disable.",
        targets=[
            over_time(FAST, MODEL_LEGEND),
            over_time(agreed("harmful_speedup"), f"{LIMIT}harmful below {MODEL_LEGEND}"),
            over_time(agreed("beneficial_speedup"), f"{LIMIT}beneficial above {MODEL_LEGEND}"),
        ],
        **TIMES,
        overrides=[threshold_lines(), threshold_lines(VERMILION, "harmful")],
        no_value=f"no exporter, or no drafts: {SEE}",
        listed=True,
        width=24,
        rows=7,
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
        listed=True,
        width=24,
        rows=7,
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
