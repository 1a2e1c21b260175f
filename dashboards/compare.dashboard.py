"""Compare: two selections side by side, such as two methods, two K, on and off, canary and stable, two pods."""

from __future__ import annotations

from grafana_panels import annotations, links, side, variables
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import LIMIT, Json, colored, limits
from grafana_panels.palette import BLUE, ORANGE, VERMILION
from grafana_panels.panel import BarGauge, Panel, Stat, Text, TimeSeries
from grafana_panels.promql import threshold, total, windowed
from grafana_panels.side import SHARED, Side, k_of
from grafana_panels.target import now, over_time
from grafana_panels.tiles import LENGTH, NOTHING, RATIO, TIMES
from grafana_panels.variables import selector

#: Positions that are set side by side.
POSITIONS = 8
A, B = Side("A", BLUE), Side("B", ORANGE)
SIDES = (A, B)
COLORS = {"A": A.color, "B": B.color}


def tile(title: str, description: str, of: str, between: str, style: Json, **more: object) -> Stat:
    """Return a tile with both sides and what lies between them: `-` a difference, `/` a quotient."""
    a, b = (_value(each, of, now=True) for each in SIDES)
    name = "A less B" if between == "-" else "A over B"
    return Stat(
        title=title,
        description=description,
        targets=[
            now(a, "A"),
            now(b, "B"),
            now(f"({a}) / (({b}) > 0)" if between == "/" else f"({a}) - ({b})", name),
        ],
        text="value_and_name",
        width=6,
        no_value=NOTHING,
        **{**style, **more},
    )


def _value(one: Side, of: str, *, now: bool = False) -> str:
    if of == "speedup":
        return one.speedup()
    if of == "per_request":
        return one.per_request(now=now)
    return str(getattr(one.flow(now=now), of)())


def lines(title: str, description: str, of: str, style: Json, *more: tuple[str, str]) -> TimeSeries:
    """Return a panel with a line for each side."""
    return TimeSeries(
        title=title,
        description=description,
        targets=[
            *(over_time(_value(each, of), each.name) for each in SIDES),
            *(over_time(expr, legend) for expr, legend in more),
        ],
        overrides=[*colored(COLORS), *([limits(VERMILION)] if more else [])],
        no_value=NOTHING,
        width=8,
        **style,
    )


DIFFERENCE = {"unit": "percentunit", "decimals": 1}
SPEED = {"unit": "suffix:tokens/s", "decimals": 1, "least": 0}

tiles: list[Panel] = [
    Text(
        content=(
            "Choose **A** and **B** above: two methods, two K (0 is no speculation), two pods or models. By default both sides are everything. Differences below a few per cent may be chance: "
            "`vllm-specdec-exporter compare` gives confidence intervals and a verdict."
        )
    ),
    tile(
        "Speedup, A and B",
        (
            "Speedup of each side, and the ratio of A to B, from `vllm_specdec_speedup` weighted with "
            "`vllm_specdec_generation_tokens_per_second`. Use the side with the higher one, if both serve the "
            "same traffic."
        ),
        "speedup",
        "/",
        TIMES,
    ),
    tile(
        "Tokens per second of a request",
        (
            "Speed that a user notices: generated tokens per second (`vllm_specdec_generation_tokens_total`) over "
            "requests in the batch (`vllm_specdec_requests_running`), with speculation or without. Compare only "
            "at similar load: see running requests below."
        ),
        "per_request",
        "/",
        {"unit": "short", "decimals": 1},
    ),
    tile(
        "Mean acceptance length, A and B",
        (
            "Tokens per draft on each side, from `vllm_specdec_accepted_tokens_per_second` and "
            "`vllm_specdec_drafts_per_second`. A larger K raises it but costs more: compare the speedup instead."
        ),
        "length",
        "-",
        LENGTH,
    ),
    tile(
        "Acceptance rate, A and B",
        (
            "Accepted over draft tokens on each side, from `vllm_specdec_accepted_tokens_per_second` and "
            "`vllm_specdec_draft_tokens_per_second`. A larger K lowers it without harm: compare it only at equal "
            "K."
        ),
        "acceptance",
        "-",
        DIFFERENCE,
    ),
    tile(
        "Coverage, A and B",
        (
            "Share of the output that came from drafts, from `vllm_specdec_drafts_per_second`, "
            "`vllm_specdec_accepted_tokens_per_second` and `vllm_specdec_generation_tokens_per_second`. With "
            "little coverage a side can neither gain nor lose much: look for few n-gram matches, or a K schedule."
        ),
        "coverage",
        "-",
        DIFFERENCE,
    ),
    tile(
        "Wasted verification, A and B",
        (
            "Share of the verified tokens that were rejected, from `vllm_specdec_draft_tokens_per_second` and "
            "`vllm_specdec_accepted_tokens_per_second`. Where requests wait, use the side that wastes less."
        ),
        "waste",
        "-",
        DIFFERENCE,
    ),
    Stat(
        title="K, A and B",
        description=(
            "The largest K on each side, from `vllm_specdec_num_speculative_tokens`; 0 without speculation. If "
            "they differ, acceptance and length differ for that reason alone: compare positions below."
        ),
        targets=[now(f"max(({k_of(each.select)}){each.keep})", each.name) for each in SIDES],
        text="value_and_name",
        unit="short",
        decimals=0,
        no_value="not known",
        width=6,
    ),
    Stat(
        title="Drafts behind each side",
        description=(
            "Drafts in the exporter's window on each side, from `vllm_specdec_window_drafts`. Below a few "
            "thousand, differences may be chance: wait, choose a longer window, or use `vllm-specdec-exporter "
            "compare`."
        ),
        targets=[now(total(windowed("window_drafts", each.select) + each.keep), each.name) for each in SIDES],
        text="value_and_name",
        unit="locale",
        decimals=0,
        no_value=NOTHING,
        width=6,
    ),
]

over: list[Panel] = [
    lines(
        "Speedup over time, A and B",
        (
            "Speedup of each side, from `vllm_specdec_speedup`; dashed: the threshold `harmful_speedup` "
            "(`vllm_specdec_threshold`). Crossing lines: the better side depends on load or hour, so use a K "
            "schedule."
        ),
        "speedup",
        TIMES,
        (threshold("harmful_speedup", selector(SHARED)), LIMIT + "harmful below"),
    ),
    lines(
        "Tokens per second of a request, A and B",
        (
            "Generated tokens per second (`vllm_specdec_generation_tokens_total`) over running requests "
            "(`vllm_specdec_requests_running`), with speculation or without. If the side with speculation is "
            "slower at similar load: disable it."
        ),
        "per_request",
        SPEED,
    ),
    lines(
        "Mean acceptance length over time",
        (
            "Tokens per draft on each side, from `vllm_specdec_accepted_tokens_total` and "
            "`vllm_specdec_drafts_total`. If only one side falls: check its version, draft model and traffic."
        ),
        "length",
        LENGTH,
    ),
    lines(
        "Acceptance rate over time",
        (
            "Accepted over draft tokens on each side, from `vllm_specdec_accepted_tokens_total` and `vllm_specdec_draft_tokens_total`. "
            "A canary below its stable peers at equal K: stop the rollout."
        ),
        "acceptance",
        RATIO,
    ),
    BarGauge(
        title="Position by position, A and B",
        description=(
            f"Share of drafts accepted at the first {POSITIONS} positions, from `vllm_specdec_accepted_tokens_per_position_total` and `vllm_specdec_drafts_total`. "
            "They can be compared even if K differs: a lower bar means that the drafter fits worse."
        ),
        targets=[
            now(each.at_position(position), f"{position} {each.name}")
            for position in range(POSITIONS)
            for each in SIDES
        ],
        **RATIO,
        overrides=colored(
            {f"{position} {each.name}": each.color for position in range(POSITIONS) for each in SIDES}
        ),
        no_value=NOTHING,
        width=8,
    ),
    TimeSeries(
        title="Requests running, A and B",
        description=(
            "Running requests of each side, from `vllm_specdec_requests_running`. Speculation pays less at higher "
            "load: if the loads differ, the sides are not comparable, so balance them first."
        ),
        targets=[over_time(each.gauge("requests_running"), each.name) for each in SIDES],
        unit="short",
        decimals=0,
        least=0,
        overrides=colored(COLORS),
        no_value="not known",
        width=8,
    ),
]


dashboard = Dashboard(
    uid="vllm-specdec-compare",
    title="Compare two selections",
    description="Which of two is better: methods, K, on and off, canary and stable, pods or models?",
    sections=[("", tiles), ("Over time", over)],
    variables=[
        variables.datasource(),
        *variables.labels(SHARED),
        variables.window(selector(SHARED)),
        *A.variables(),
        *B.variables(),
    ],
    marks=annotations.usual(side.either(), side.either_alert()),
    links=links.to_all(),
)
