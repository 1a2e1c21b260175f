"""Panels of requests by what speculation does to them, by temperature and by type."""

from mixin import CLUSTER

from .field import LIMIT, RATIO, Json, colored, named, threshold_lines, word_mapping
from .links import only
from .palette import AMBER, BLUE, GREY, ORANGE, SKY, TEMPERATURES, VERMILION
from .panel import Heatmap, Panel, Stat, TimeSeries, buckets, lines, now, over_time
from .promql import MODEL_LEGEND, metric, renamed, request_threshold
from .promql import growth as growth_of
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
    REQUESTS,
    TEMPERATURE,
    TOKENS,
    TPOT,
    TYPE,
    UID,
    a_second,
    acceptance,
    buckets_of,
    growth,
    losing,
    quantile,
    with_record,
)
from .table import Column, joined_table
from .variables import TARGETS

#: Quantiles of acceptance, best first.
QUANTILES = {"P90": (0.9, SKY), "P50": (0.5, BLUE), "P10": (0.1, ORANGE)}
KIND = f"model_name, {TYPE}, {TEMPERATURE}"
_OBSERVED = growth(OBSERVED, "", TARGETS)
#: The share of the requests that vLLM finishes which is observed, and what is nearly
#: all: some are under way. What is observed is not known by model, so neither side is.
_FINISHED = growth_of("«vllm»request_success_total", TARGETS, over=OVER)
_SEEN = f"clamp_max({_OBSERVED} / ({_FINISHED} > 0), 1)"
_MOST = "0.9"
#: Requests of each kind for which something was drafted.
JUDGEABLE = f"({a_second(REQUESTS, KIND)} > 0)"
MIXED = word_mapping({1: ("● MIXED", AMBER), 0: ("not mixed", GREY)})
_STACKED: Json = {
    "unit": "reqps",
    "least": 0,
    "fill": 25,
    "stack": True,
    "no_value": ABSENT,
}


def _by_value(label: str) -> list[Json]:
    """Return the colours of the values of a label, where they are known beforehand."""
    if label == TEMPERATURE:
        return colored(TEMPERATURES)
    return []


def _rejected(by: str = "") -> str:
    return f"{growth(DRAFT_TOKENS, by)} - {growth(ACCEPTED, by)}"


def _filter(label: str, column: str) -> Json:
    kept = ("datasource", CLUSTER, "namespace", "model_name")
    return named(
        column, links=[only(UID, f"Only this {column.lower()}", label, column, kept)]
    )


tiles: list[Panel] = [
    Stat(
        title="Data by request",
        description=(
            "NO: configure a tap. NO RECORDS: vLLM lacks "
            "--per-request-spec-decode-metrics detailed. PARTLY: clients bypass it."
        ),
        targets=[
            now(
                (
                    f"2 * group({with_record()} > 0) + ({_SEEN} >= bool {_MOST})\n"
                    f"or 4 * group({with_record()} > 0)\n"
                    f"or group({_OBSERVED} > 0)\nor vector(0)"
                ),
                "per-request data",
            ),
            now(_SEEN, "observed"),
            now(f"max({metric('request_workload_mixed')})", "workload"),
        ],
        text="value_and_name",
        unit="short",
        overrides=[
            named("workload", mappings=MIXED),
            named(
                "per-request data",
                mappings=word_mapping(
                    {
                        0: ("no per-request data: only means", GREY),
                        1: ("● NO RECORDS", AMBER),
                        2: ("● PARTLY", AMBER),
                        3: ("▲ YES", BLUE),
                        4: ("share unknown", GREY),
                    }
                ),
            ),
            named(
                "observed",
                displayName="observed, of all finished",
                unit="percentunit",
                decimals=0,
            ),
        ],
        background=True,
        no_value="no per-request data: only means",
        width=12,
    ),
    Stat(
        title="Losing share, and acceptance",
        description=(
            "Of observed requests with drafts. Nine of ten requests exceed P10, which "
            "is interpolated."
        ),
        targets=[
            now(losing(REQUESTS), "of requests lose"),
            now(losing(TOKENS), "of tokens lose"),
            now(quantile(ACCEPTANCE, 0.1), "P10 of acceptance"),
            now(acceptance(), "acceptance of all"),
        ],
        text="value_and_name",
        **RATIO,
        no_value=ABSENT,
        width=12,
    ),
]

kinds = joined_table(
    "Requests by type and temperature",
    (
        "Most losing first: route these to a server without speculation. Percentiles "
        "are interpolated."
    ),
    {"model_name": "Model", TYPE: "Type", TEMPERATURE: "Temperature"},
    [
        Column("Requests", JUDGEABLE, "reqps", 2, 105),
        Column("Lose", losing(REQUESTS, KIND), "percentunit", 0, 80),
        Column("P10", quantile(ACCEPTANCE, 0.1, KIND), "percentunit", 0, 75),
        Column("P50", quantile(ACCEPTANCE, 0.5, KIND), "percentunit", 0, 75),
        Column("Acceptance", acceptance(KIND), "percentunit", 0, 105),
        Column(
            "Of all rejected",
            f"({_rejected(KIND)}) / on () group_left () (({_rejected()}) > 0)",
            "percentunit",
            0,
            130,
        ),
        Column(
            "TPOT P95",
            f"({quantile(TPOT, 0.95, KIND)}) and {JUDGEABLE}",
            "s",
            width=105,
        ),
    ],
    overrides=[
        named("Type", custom__width=150),
        named("Temperature", custom__width=115),
        _filter(TYPE, "Type"),
        _filter(TEMPERATURE, "Temperature"),
    ],
    no_value=ABSENT,
    sort=("Lose", True),
    rows=12,
)

over_time_panels: list[Panel] = [
    Heatmap(
        title="Acceptance of requests",
        description=(
            "Requests by acceptance rate. Two bands are two kinds of traffic: the "
            "mean describes neither."
        ),
        targets=[buckets(buckets_of(ACCEPTANCE))],
        unit="short",
        label="acceptance",
        no_value=ABSENT,
    ),
    lines(
        "Quantiles of acceptance",
        "Interpolated. If lines spread while P50 is level, a losing minority grows.",
        {
            name: (quantile(ACCEPTANCE, share), color)
            for name, (share, color) in QUANTILES.items()
        },
        others=[
            over_time(
                request_threshold("poor_request_acceptance_ratio"),
                f"{LIMIT}P10 poor below {MODEL_LEGEND}",
            )
        ],
        **RATIO,
        overrides=[threshold_lines(VERMILION)],
        no_value=ABSENT,
    ),
    lines(
        "Requests by outcome",
        (
            "They lose below disable_acceptance_ratio and gain above "
            "break_even_acceptance_ratio."
        ),
        {},
        others=[
            over_time(
                renamed(rate_of(REQUESTS, by="outcome"), "outcome", OUTCOMES),
                "{{outcome}}",
            )
        ],
        overrides=colored(
            dict(zip(OUTCOMES.values(), (BLUE, SKY, ORANGE), strict=True))
        ),
        width=8,
        **_STACKED,
    ),
    *(
        TimeSeries(
            title=f"Losing share by {word}",
            description=description,
            targets=[over_time(losing(REQUESTS, label), f"{{{{{label}}}}}")],
            **RATIO,
            color={"mode": "palette-classic"},
            overrides=_by_value(label),
            no_value=ABSENT,
            width=8,
        )
        for word, label, description in (
            (
                "type",
                TYPE,
                (
                    "One type rises alone: its prompts or parameters changed. All "
                    "rise: look for a release."
                ),
            ),
            (
                "temperature",
                TEMPERATURE,
                "If only high temperatures lose: let the gateway route by temperature.",
            ),
        )
    ),
]

positions: list[Panel] = [
    joined_table(
        "Positions, where drafted and of all drafts",
        "Of observed drafts, each position alone. Where drafts vary, read the first.",
        {"position": "Position"},
        [
            Column(
                "Where drafted",
                (
                    f"{growth(ACCEPTED_AT, 'position')} / "
                    f"({growth(DRAFTED_AT, 'position')} > 0)"
                ),
                "percentunit",
                0,
                bars=True,
            ),
            Column(
                "Of all drafts",
                f"{growth(ACCEPTED_AT, 'position')} / on () group_left () "
                f"({growth(DRAFTED_AT, position='0')} > 0)",
                "percentunit",
                0,
                bars=True,
            ),
            Column(
                "Drafts that reach it",
                f"{growth(DRAFTED_AT, 'position')} / on () group_left () "
                f"({growth(DRAFTED_AT, position='0')} > 0)",
                "percentunit",
                0,
                bars=True,
            ),
        ],
        overrides=[named("Position", custom__width=80)],
        numbered="Position",
        no_value=ABSENT,
        # All of a K of 16.
        rows=18,
    ),
]

mix: list[Panel] = [
    *(
        TimeSeries(
            title=f"Requests by {word}",
            description=(
                f"If the mix of {word}s changes, so does acceptance, without a fault: "
                "tune K again."
            ),
            targets=[over_time(rate_of(REQUESTS, by=label), f"{{{{{label}}}}}")],
            color={"mode": "palette-classic"},
            overrides=_by_value(label),
            **_STACKED,
        )
        for word, label in (("temperature", TEMPERATURE), ("type", TYPE))
    ),
]
