"""Overview: which models lose by speculation, how much, since when, and which K to set.

One screen.
"""

from grafana_panels import annotations, glossary, monitoring, variables, verdict
from grafana_panels.acceptance import length_and_break_even
from grafana_panels.annotations import FIRING
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import (
    DOTTED,
    HOURS,
    LIMIT,
    RATIO,
    TIMES,
    fixed,
    matching,
    named,
    threshold_lines,
    word_mapping,
)
from grafana_panels.latency import UNKNOWN, unknown
from grafana_panels.models import FAST, models_table, won
from grafana_panels.palette import AMBER, BLUE, COAL, GREY, PALE_SKY, VERMILION
from grafana_panels.panel import Panel, Stat, StateTimeline, lines, now, over_time
from grafana_panels.promql import (
    EXPORTERS,
    IDENTITY,
    MODEL,
    MODEL_LEGEND,
    OLDEST,
    WATCHDOG,
    Flow,
    agreed,
    metric,
    recorded,
    renamed,
    threshold,
)
from grafana_panels.table import WRAPPED, Column, filled, joined_table
from grafana_panels.variables import LABELS, TARGETS
from mixin import CLUSTER, CRITICAL, INFO, WARNING
from vllm_specdec_exporter.commands.dashboards.files import HOME, RUNBOOK_LINK

NOW = Flow(MODEL, now=True)
RATES = Flow(MODEL)
ALERT = f"severity,alertname,{CLUSTER},namespace,model_name,instance,engine"
#: Severities in their order: by their names, info would come before warning. Where
#: nothing can fire, that stands in place of alerts.
SEVERITIES = {
    0: ("BLIND", COAL),
    1: (CRITICAL, VERMILION),
    2: (WARNING, AMBER),
    3: (INFO, PALE_SKY),
}
#: Without a verdict is one tile: with one for each state the letters would be too small
#: to be read.
SUMS = {
    **{code: verdict.VERDICTS[code] for code in range(9)},
    9: ("NO VERDICT", GREY),
}


def missing(text: str, condition: str, label: str = "") -> str:
    """Return a sentence that is shown if a condition has a result; `$1` in it is the
    value of a label.
    """
    named = f'label_replace({condition}, "sentence", "{text}", "{label}", "(.*)")'
    return f"group by (sentence) ({named})"


#: Firing alerts on data that is missing or wrong, and on errors of ours; but for those
#: on what is down, which has a sentence of its own.
OF_DATA = (
    f'{FIRING[:-1]},subject=~"monitoring|errors",'
    'alertname!~".+(ExporterDown|MonitoringLost|UpstreamUnreachable)"}'
)
#: What a person should do before anything else, each in one sentence.
MISSING = (
    missing(
        "No exporter: let Prometheus scrape port 9850.",
        f"vector(1) unless on () group({EXPORTERS})",
    ),
    missing("Exporter $1 is down: see its log.", f"{EXPORTERS} == 0", "instance"),
    missing(
        "vLLM of $1 is down: see its log.", f"{metric('up', TARGETS)} == 0", "instance"
    ),
    missing("$1 fires: see its runbook below.", OF_DATA, "alertname"),
    missing(
        "No requests reach $1: nothing to do here.",
        f"min by (model_name) ({metric('activity', state='idle')}) == 1",
        "model_name",
    ),
    missing(
        "Method unknown: set --spec.config.",
        (
            f"{metric('info', method='', cost_profile='unknown')} unless on "
            f"({IDENTITY}) {metric('activity', state='off')} == 1"
        ),
    ),
    missing(
        "A verdict is uncertain: run history, or calibrate.",
        f"{metric('payoff', verdict='unknown')} == 1",
    ),
    missing("No alert rules: load alerts/rules.", f"vector(1) unless on () {WATCHDOG}"),
    missing(
        "Exporters of several versions: finish the rollout.",
        f"count(count by (exporter_version) ({metric('build_info', TARGETS)})) > 1",
    ),
)
SEE = "see What is missing"
_NOTHING_WON = f"0 * max({metric('build_info', TARGETS)})"
#: Of models whose budget is known for an hour: before, it is always full, unless more
#: is lost than it allows.
_LEFT = f"{recorded('worth_it_error_budget:remaining30d')}[1d]"
_LOSING = recorded("loss:ratio", window="6h")
_OBJECTIVE = threshold("worth_it_objective_ratio")
_HOUR_AGO = f"last_over_time({_LEFT} offset 1h)"
_OVERSPENT = f"({_LOSING} > on ({MODEL}) 1 - {_OBJECTIVE})"
BUDGET = f"last_over_time({_LEFT}) and {_HOUR_AGO}\nor on ({MODEL}) 0 * {_OVERSPENT}"
#: How many seconds of the two hours are left that a budget takes from the first drafts
#: that rules judged: it is of whole hours, and counts once it is an hour old.
_JUDGES = recorded("judged_drafts:rate5m")
_JUDGED = f"timestamp({_JUDGES})[3h:1m]"
_BUDGET_IN = (
    f"(7200 - time() + min(min_over_time({_JUDGED})) > 0) and on () {_JUDGES}\n"
    f"unless on () ({_HOUR_AGO} or {_OVERSPENT})"
)
#: Why nothing is known of a budget.
_NO_BUDGET = (
    f"(2 * group({WATCHDOG} and on () {metric('build_info', TARGETS)}) or on () "
    f"group({WATCHDOG}) or on () vector(0)) unless on () ({_HOUR_AGO} or {_JUDGES})"
)


def outcome(word: str, hours: str) -> str:
    """Return hours with a word for them."""
    return f'label_replace({hours}, "outcome", "{word}", "", "")'


_WON = won()
#: The currency is that of the price, which somebody sets.
_MONEY = ", in your currency"


def _or_lost(if_won: str, if_lost: str) -> str:
    """Return hours won, or hours lost as a positive number, with their word."""
    return f"{outcome('won', if_won)}\nor {outcome('lost', f'-({if_lost})')}"


def _of_day(factor: str = "") -> str:
    """Return the hours of the day, times a factor."""
    return _or_lost(f"{_WON}{factor} >= 0", f"{_WON}{factor} < 0")


def _end(if_won: str, if_lost: str) -> str:
    """Return an end of the interval in the direction that the tile says."""
    return _or_lost(
        f"{won(bound=if_won)} and {_WON} >= 0", f"{won(bound=if_lost)} and {_WON} < 0"
    )


first_line: list[Panel] = [
    Stat(
        title="Monitoring",
        description=(
            "Whether exporters answer, how old data is, and whether rules are loaded."
        ),
        targets=[
            now(
                f"min({EXPORTERS}) and on () {WATCHDOG}\n"
                f"or on () (vector(-1) unless on () group({EXPORTERS}))\n"
                "or on () vector(0)",
                "monitoring",
            ),
            now(f"count({EXPORTERS} == 0) or 0 * count({EXPORTERS})", "exporters down"),
            now(OLDEST, "oldest data"),
            now(f"max({WATCHDOG})\nor on () vector(0)", "rules"),
        ],
        text="value_and_name",
        unit="s",
        decimals=0,
        background=True,
        overrides=[
            named(
                "monitoring",
                mappings=word_mapping(
                    {
                        1: ("▲ OK", BLUE),
                        0: ("✖ BROKEN", VERMILION),
                        -1: ("NO EXPORTER YET", GREY),
                    }
                ),
            ),
            named(
                "rules",
                mappings=word_mapping(
                    {1: ("loaded", GREY), 0: ("NOT LOADED", VERMILION)}
                ),
            ),
            named("exporters down", unit="short"),
        ],
        no_value="no exporter",
        width=24,
        rows=3,
    ),
    Stat(
        title="Models by verdict",
        description=(
            "How many models have each verdict. The table below has them by name."
        ),
        targets=[
            now(
                f'count_values("verdict", clamp_max({verdict.of_models()}, 9))',
                "{{verdict}}",
            )
        ],
        text="value_and_name",
        unit="short",
        decimals=0,
        background=True,
        overrides=[
            named(str(code), displayName=word, color=fixed(color))
            for code, (word, color) in SUMS.items()
        ],
        # Prometheus returns counted values in no order.
        reshape=[
            {"id": "joinByField", "options": {"byField": "Time", "mode": "outer"}},
            {
                "id": "organize",
                "options": {"indexByName": {str(code): code for code in SUMS}},
            },
        ],
        no_value="NO MODEL",
        width=14,
        rows=6,
    ),
    joined_table(
        "What is missing",
        "What to do before the other panels are complete.",
        {"sentence": "What to do"},
        [
            Column(f"Value {number}", sentence)
            for number, sentence in enumerate(MISSING)
        ],
        overrides=[
            matching("^Value", custom__hidden=True),
            named("What to do", custom__cellOptions=WRAPPED),
        ],
        no_value="nothing",
        header=False,
        width=10,
        rows=6,
    ),
]

worth: list[Panel] = [
    Stat(
        title="Engine-hours won or lost, 24 h",
        description=(
            "Of engines with requests. An engine is one scheduler with all its GPUs."
        ),
        targets=[
            now(
                f"{_of_day()}\n"
                f"or {outcome('nothing yet', f'{_NOTHING_WON} unless on () {_WON}')}",
                "{{outcome}}",
            ),
            now(_end("low", "high"), "{{outcome}}, at least"),
            now(_end("high", "low"), "{{outcome}}, at most"),
            now(_of_day(" * $price"), f"{{{{outcome}}}}{_MONEY}"),
        ],
        text="value_and_name",
        **HOURS,
        overrides=[matching(f"{_MONEY}$", unit="short")],
        no_value="needs the exporter",
        width=16,
        rows=4,
    ),
    Stat(
        title="Loss budget left (30 d)",
        description=(
            "Of the worst model: drafts that may still be made while speculation loses."
        ),
        targets=[
            now(f"clamp_min(min({BUDGET}), 0)", "left, of the worst model"),
            now(_BUDGET_IN, "known after, at most"),
            now(f"1 - min({_OBJECTIVE})", "of all drafts may lose"),
            now(_NO_BUDGET, "unknown"),
        ],
        **RATIO,
        overrides=[
            named("known after, at most", unit="s", decimals=0),
            named(
                "unknown",
                unit="short",
                mappings=word_mapping(
                    {
                        2: ("none judged now", GREY),
                        1: ("no exporter answers", GREY),
                        0: ("no rules", GREY),
                    }
                ),
            ),
        ],
        text="value_and_name",
        no_value="no drafts judged for an hour",
        width=8,
        rows=4,
    ),
]


models = models_table(
    "Models",
    "Worst first. est.: estimated; BYPASSED: no drafts; engine-hours: of 24 hours.",
    f"no model: {SEE}",
    Column("Acceptance", NOW.acceptance(), unit="percentunit", decimals=0, width=88),
    states=verdict.of_models(),
    rows=9,
)

_FIRES = f"max by ({ALERT}) ({FIRING})"
#: Milliseconds, as Grafana reads times.
BEGAN = (
    f"1000 * max_over_time(timestamp({_FIRES} unless {_FIRES[:-1]} offset 1m))[1d:1m]) "
    f"and {_FIRES}"
)
FIRED = f"60 * count_over_time({_FIRES}[1d:1m]) and {_FIRES}"
#: Why nothing can fire, so that no silence is taken for good news.
BLIND = "\nor ".join(
    f'label_replace(label_replace({condition}, "severity", "0", "", ""), "alertname", '
    f'"{sentence}", "", "")'
    for condition, sentence in (
        (f"vector(1) unless on () {WATCHDOG}", "no rules: no alert can fire"),
        (
            f"vector(1) and on () {WATCHDOG} unless on () group({EXPORTERS})",
            "no exporter: no alert on a verdict can fire",
        ),
    )
)


def _by_rank(alerts: str) -> str:
    """Return alerts with the code of their severity in its place."""
    codes = {word: str(code) for code, (word, _) in SEVERITIES.items() if code}
    return renamed(alerts, "severity", codes)


history: list[Panel] = [
    StateTimeline(
        title="Verdict over time",
        description="Where a colour changes, look for a new K, a restart or an alert.",
        targets=[over_time(verdict.of_models(), MODEL_LEGEND)],
        mappings=word_mapping(verdict.VERDICTS),
        no_value=f"no model: {SEE}",
        legend=False,
        width=24,
        rows=6,
    ),
    joined_table(
        "Firing alerts",
        (
            "Critical first. Began: the time of its dashed mark. Click one for its "
            "runbook."
        ),
        {
            "severity": "Severity",
            "alertname": "Alert",
            **LABELS,
            "instance": "Instance",
            "engine": "Engine",
        },
        [
            Column("Began", _by_rank(BEGAN), "time:HH:mm", width=75),
            Column("Fired, 24 h", _by_rank(FIRED), "s", 1, width=95),
            Column("Blind", BLIND),
        ],
        overrides=[
            named("Blind", custom__hidden=True),
            named("Severity", custom__width=80, **filled(word_mapping(SEVERITIES))),
            named(
                "Alert",
                custom__width=290,
                links=[{"title": "Runbook", "url": RUNBOOK_LINK, "targetBlank": True}],
            ),
        ],
        no_value="no alert fires",
        sort=("Severity", False),
        rows=6,
    ),
    lines(
        "Speedup",
        "Of all output, over that without speculation. Unknown: its interval is drawn.",
        {},
        others=[
            over_time(FAST, MODEL_LEGEND),
            *unknown(MODEL_LEGEND),
            over_time(
                agreed("harmful_speedup"), f"{LIMIT}harmful below {MODEL_LEGEND}"
            ),
            over_time(
                agreed("beneficial_speedup"), f"{LIMIT}beneficial above {MODEL_LEGEND}"
            ),
        ],
        **TIMES,
        overrides=[
            threshold_lines(GREY, "beneficial", dash=DOTTED),
            threshold_lines(VERMILION, "harmful"),
            UNKNOWN,
        ],
        no_value=f"no exporter, or no drafts: {SEE}",
        listed=True,
        width=24,
        rows=7,
    ),
    length_and_break_even(
        RATES.length(), no_value=f"no drafts: {SEE}", listed=True, width=24, rows=7
    ),
]

dashboard = Dashboard(
    uid=HOME,
    title="Overview",
    description=(
        "Which models gain or lose by speculative decoding, since when, and which K "
        "should be set?"
    ),
    page="payoff.md",
    sections=[
        ("", [glossary.of_money(), *first_line, models, *worth, *history]),
        ("Monitoring: polls and scrapes", monitoring.polls),
        ("Monitoring: exporters and servers", monitoring.tables),
    ],
    folded=("Monitoring: polls and scrapes", "Monitoring: exporters and servers"),
    variables=[*variables.of_models(), variables.price()],
    marks=annotations.marks(),
)
