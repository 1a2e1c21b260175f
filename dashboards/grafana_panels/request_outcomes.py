"""Panels of requests by what speculation does to them, by temperature and by type."""

from __future__ import annotations

from mixin import CLUSTER

from .field import LIMIT, RATIO, Json, colored, named, threshold_lines, word_mapping
from .links import only
from .palette import AMBER, BLUE, GREY, ORANGE, SKY, VERMILION
from .panel import Heatmap, Panel, Stat, TimeSeries, buckets, now, over_time
from .promql import MODEL_LEGEND, PLACE, metric, renamed, survival, threshold
from .promql import summed_rate as rate_of
from .request_series import (
    ABSENT,
    ACCEPTANCE,
    ACCEPTED,
    ACCEPTED_AT,
    DRAFT_TOKENS,
    DRAFTED_AT,
    OBSERVED,
    OUTCOMES,
    OVER,
    PER_DRAFT,
    REQUESTS,
    TEMPERATURE,
    TOKENS,
    TPOT,
    TYPE,
    UID,
    acceptance,
    buckets_of,
    judged,
    losing,
    quantile,
    summed_rate,
    with_record,
)
from .table import Column, joined_table
from .variables import TARGETS

#: Quantiles of acceptance, best first.
QUANTILES = {"P90": (0.9, SKY), "P50": (0.5, BLUE), "P10": (0.1, ORANGE)}
KIND = f"{TYPE}, {TEMPERATURE}"
#: Labels of what the exporter judges: itself, and the model.
JUDGED = f"{PLACE}, model_name"
#: Requests of each kind for which something was drafted.
JUDGEABLE = f"({summed_rate(REQUESTS, KIND)} > 0)"
MIXED = word_mapping({1: ("● MIXED", AMBER), 0: ("not mixed", GREY)})
_STACKED: Json = {"unit": "reqps", "least": 0, "fill": 25, "stack": True, "no_value": ABSENT}


def _rejected(by: str = "") -> str:
    return f"{summed_rate(DRAFT_TOKENS, by)} - {summed_rate(ACCEPTED, by)}"


def _filter(label: str, column: str) -> Json:
    kept = ("datasource", CLUSTER, "namespace", "model_name")
    return named(column, links=[only(UID, f"Only this {column.lower()}", label, column, kept)])


tiles: list[Panel] = [
    Stat(
        title="Data by request",
        description="NO: configure a tap or a push. NO RECORDS: vLLM lacks --per-request-spec-decode-metrics detailed.",
        targets=[
            now(
                f"2 * group({with_record()} > 0)\nor group({summed_rate(OBSERVED, '', TARGETS)} > 0)\nor vector(0)",
                "per-request data",
            ),
        ],
        mappings=word_mapping({0: ("NO: means only", GREY), 1: ("● NO RECORDS", AMBER), 2: ("▲ YES", BLUE)}),
        background=True,
        no_value="NO: means only",
        width=6,
    ),
    Stat(
        title="Workload",
        description="MIXED: many requests gain and many lose: route the losing ones elsewhere.",
        targets=[now(f"max({metric('request_workload_mixed')})", "mixed")],
        mappings=MIXED,
        background=True,
        no_value="not judged",
        width=6,
    ),
    Stat(
        title="Losing share",
        description="Requests with acceptance below disable_acceptance_ratio, and their share of the generated tokens.",
        targets=[now(losing(REQUESTS), "requests"), now(losing(TOKENS), "tokens")],
        text="value_and_name",
        **RATIO,
        no_value=ABSENT,
        width=6,
    ),
    Stat(
        title="Acceptance by request",
        description="Nine of ten requests exceed P10, which is interpolated within buckets; together: of all tokens.",
        targets=[now(quantile(ACCEPTANCE, 0.1), "P10, interpolated"), now(acceptance(), "together")],
        text="value_and_name",
        **RATIO,
        no_value=ABSENT,
        width=6,
    ),
]

kinds = joined_table(
    "Requests by type and temperature",
    "Most losing first: route these to a server without speculation. Percentiles are interpolated.",
    {TYPE: "Type", TEMPERATURE: "Temperature"},
    [
        Column("Requests", JUDGEABLE, "reqps", 2),
        Column("Lose", losing(REQUESTS, KIND), "percentunit", 0),
        Column("P10", quantile(ACCEPTANCE, 0.1, KIND), "percentunit", 0),
        Column("P50", quantile(ACCEPTANCE, 0.5, KIND), "percentunit", 0),
        Column("Acceptance", acceptance(KIND), "percentunit", 0),
        Column(
            "Of all rejected",
            f"({_rejected(KIND)}) / on () group_left () (({_rejected()}) > 0)",
            "percentunit",
            0,
        ),
        Column("TPOT P95", f"({quantile(TPOT, 0.95, KIND)}) and {JUDGEABLE}", "s"),
    ],
    overrides=[_filter(TYPE, "Type"), _filter(TEMPERATURE, "Temperature")],
    no_value=ABSENT,
    sort=("Lose", True),
    rows=10,
)

over_time_panels: list[Panel] = [
    Heatmap(
        title="Acceptance of requests",
        description="Requests by acceptance rate. Two bands are two kinds of traffic: the mean describes neither.",
        targets=[buckets(buckets_of(ACCEPTANCE))],
        unit="short",
        label="acceptance",
        no_value=ABSENT,
    ),
    TimeSeries(
        title="Quantiles of acceptance",
        description="Interpolated. If lines spread while P50 is level, a losing minority grows.",
        targets=[
            *(over_time(quantile(ACCEPTANCE, share), name) for name, (share, _) in QUANTILES.items()),
            over_time(
                threshold("poor_request_acceptance_ratio"),
                f"{LIMIT}P10 poor below {MODEL_LEGEND}",
            ),
        ],
        **RATIO,
        overrides=[
            *colored({name: color for name, (_, color) in QUANTILES.items()}),
            threshold_lines(VERMILION),
        ],
        no_value=ABSENT,
    ),
    TimeSeries(
        title="Requests by outcome",
        description="They lose below disable_acceptance_ratio and gain above break_even_acceptance_ratio.",
        targets=[
            over_time(renamed(rate_of(REQUESTS, by="outcome"), "outcome", OUTCOMES), "{{outcome}}"),
        ],
        overrides=colored(dict(zip(OUTCOMES.values(), (BLUE, SKY, ORANGE), strict=True))),
        width=8,
        **_STACKED,
    ),
    TimeSeries(
        title="Losing share by type",
        description="One type rises alone: its prompts or parameters changed. All rise: look for a release.",
        targets=[over_time(losing(REQUESTS, TYPE), "{{request_type}}")],
        **RATIO,
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Losing share by temperature",
        description="If only high temperatures lose: let the gateway route by temperature.",
        targets=[over_time(losing(REQUESTS, TEMPERATURE), "{{temperature}}")],
        **RATIO,
        no_value=ABSENT,
        width=8,
    ),
]

positions: list[Panel] = [
    joined_table(
        "Positions, where drafted and of all drafts",
        "Where drafts vary, read the share where drafted. High at the end: raise K.",
        {"position": "Position"},
        [
            Column(
                "Where drafted",
                f"{summed_rate(ACCEPTED_AT, 'position')} / ({summed_rate(DRAFTED_AT, 'position')} > 0)",
                "percentunit",
                0,
                bars=True,
            ),
            Column("Of all drafts", survival(OVER), "percentunit", 0, bars=True),
            Column(
                "Drafts that reach it",
                f"{summed_rate(DRAFTED_AT, 'position')} / on () group_left () "
                f"({summed_rate(DRAFTED_AT, position='0')} > 0)",
                "percentunit",
                0,
                bars=True,
            ),
        ],
        overrides=[named("Position", custom__width=80)],
        numbered="Position",
        no_value=ABSENT,
        width=14,
        rows=10,
    ),
    Heatmap(
        title="Accepted tokens per draft, by request",
        description="Bands at the bottom and at the top: drafts are useless for some requests.",
        targets=[buckets(buckets_of(PER_DRAFT))],
        unit="short",
        label="accepted",
        whole=True,
        no_value="no detailed records",
        width=10,
        rows=10,
    ),
]

mix: list[Panel] = [
    TimeSeries(
        title="Time per output token by type",
        description="P95, interpolated. If one type is above the others: compare its acceptance and length.",
        targets=[over_time(quantile(TPOT, 0.95, TYPE), "{{request_type}}")],
        unit="s",
        least=0,
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Requests by temperature",
        description="If temperatures rise, acceptance falls without any fault, and K may be too large.",
        targets=[over_time(rate_of(REQUESTS, by=TEMPERATURE), "{{temperature}}")],
        width=8,
        **_STACKED,
    ),
    TimeSeries(
        title="Requests by type",
        description="If the mix of types changes, so does acceptance: tune K for the current mix.",
        targets=[over_time(rate_of(REQUESTS, by=TYPE), "{{request_type}}")],
        width=8,
        **_STACKED,
    ),
]

verdicts = joined_table(
    "Verdict of each exporter",
    "With exact percentiles. One pod worse than its peers: compare traffic and version.",
    {
        CLUSTER: "Cluster",
        "namespace": "Namespace",
        "pod": "Pod",
        "instance": "Instance",
        "model_name": "Model",
    },
    [
        Column("Mixed?", judged("request_workload_mixed", JUDGED), width=105, mappings=MIXED, filled=True),
        Column("Requests", judged("window_requests", JUDGED), "locale", 0, 90),
        Column("Lose", judged("request_losing_ratio", JUDGED), "percentunit", 0, 75),
        Column("Gain", judged("request_gaining_ratio", JUDGED), "percentunit", 0, 70),
        Column("Losing tokens", judged("request_losing_tokens_ratio", JUDGED), "percentunit", 0, 120),
        *(
            Column(
                f"P{percentile}",
                judged("request_acceptance_ratio_percentile", JUDGED, percentile=percentile),
                "percentunit",
                0,
                70,
            )
            for percentile in ("10", "50", "90")
        ),
    ],
    hidden=["job"],
    overrides=[
        named("Cluster", custom__width=80),
        named("Namespace", custom__width=100),
        named("Pod", custom__width=105),
        named("Instance", custom__width=135),
        named("Model", custom__width=255),
    ],
    no_value=ABSENT,
    sort=("Lose", True),
    rows=6,
)
