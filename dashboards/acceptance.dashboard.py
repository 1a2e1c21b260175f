"""Acceptance anatomy: where in a draft tokens are lost, how drafts spread, and what a smaller K would give."""

from __future__ import annotations

from grafana_panels import annotations, links, tiles, variables
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import LIMIT, colored, fixed, limits, named, positions, words
from grafana_panels.palette import AMBER, BLUE, GREY, ORANGE, POSITIONS, SKY, VERMILION
from grafana_panels.panel import BarGauge, Heatmap, Panel, Stat, TimeSeries
from grafana_panels.promql import (
    INTERVAL,
    Flow,
    accepted_buckets,
    accepted_further,
    accepted_quantile,
    common,
    conditional,
    decline,
    gauge,
    survival,
    threshold,
    to_the_end,
    total,
    weighted,
    windowed,
)
from grafana_panels.target import buckets, now, over_time
from grafana_panels.tiles import DRAFTS, LENGTH, MOST_BARS, NOTHING, RATIO
from grafana_panels.variables import MODELS
from vllm_specdec_exporter.measures.measures import FULL_DRAFT_SHARE

FLOW = Flow()
#: Half the least width of the usual band, as a share.
CALM = 0.02
#: What drafts would hold if all were full.
MOST_TOKENS = f"{DRAFTS} * ignoring (window) {gauge('num_speculative_tokens')}"
#: Share of drafts accepted at the last position, whatever that is for each engine.
LAST = (
    f"sum(min without (position) ({windowed('position_acceptance_ratio')}) * {windowed('window_drafts')}) "
    f"/ (sum({windowed('window_drafts')}) > 0)"
)
K = gauge("num_speculative_tokens")
#: Drafts of engines whose K is known, and what they would hold if all were full.
KNOWN = f"rate({gauge('drafts_total')}[{INTERVAL}]) and {K}"
FULL = f"rate({gauge('drafts_total')}[{INTERVAL}]) * {K}"
CODES = words({0: ("● DRAFTS VARY", AMBER), 1: ("▲ full drafts", BLUE)})


def at_position(name: str, position: int) -> str:
    """Return a windowed ratio of one position, weighted with the drafts of those that draft so far."""
    return weighted(windowed(name, position=str(position)), windowed("window_drafts"), own="position")


def at_k(k: int) -> str:
    """Return the mean acceptance length that engines would have with a K."""
    return windowed("mean_acceptance_length_at", num_speculative_tokens=str(k))


#: Near positions dark, far ones light.
HUES = positions(POSITIONS, GREY)


top: list[Panel] = [
    tiles.quality(),
    tiles.acceptance(),
    tiles.length(),
    Stat(
        title="First and last position",
        description=(
            "Share of drafts accepted at position 0 and at the last position, from `vllm_specdec_position_acceptance_ratio` weighted with "
            "`vllm_specdec_window_drafts`. A low first position: the drafter does not fit the target. A low last one: lower K."
        ),
        targets=[
            now(at_position("position_acceptance_ratio", 0), "first"),
            now(LAST, "last"),
        ],
        text="value_and_name",
        **RATIO,
        no_value=NOTHING,
    ),
    Stat(
        title="Do drafts vary?",
        description=(
            f"Whether drafts are shorter than {FULL_DRAFT_SHARE:.0%} of K on average (`vllm_specdec_draft_tokens_per_second`, "
            "`vllm_specdec_drafts_per_second`, `vllm_specdec_num_speculative_tokens`). If they vary, as with n-gram or a K schedule, deep positions read "
            "too low: use the mean acceptance length instead."
        ),
        targets=[
            now(
                f"({total(windowed('draft_tokens_per_second'))} / ({total(MOST_TOKENS)} > 0)) "
                f">= bool {FULL_DRAFT_SHARE:g}",
                "drafts",
            )
        ],
        mappings=CODES,
        background=True,
        no_value=NOTHING,
    ),
    Stat(
        title="Drafts counted",
        description=(
            "Drafts in the exporter's window (`vllm_specdec_window_drafts`). Below the threshold `minimum_drafts` "
            "there is no verdict: choose a longer window, or wait for traffic."
        ),
        targets=[now(total(windowed("window_drafts")), "drafts")],
        unit="locale",
        decimals=0,
        no_value=NOTHING,
    ),
]

along: list[Panel] = [
    TimeSeries(
        title="Which positions are accepted?",
        description=(
            "Share of drafts in which each position was accepted, from "
            "`vllm_specdec_accepted_tokens_per_position_total` over `vllm_specdec_drafts_total` of the engines "
            "whose K reaches it; dark lines are early positions, light ones late, grey the rest. Dashed: the "
            "threshold below which position 0 is poor. Where late lines are near 0: lower K."
        ),
        targets=[
            over_time(survival(), "position {{position}}"),
            over_time(threshold("poor_position_0_acceptance_ratio"), LIMIT + "position 0 poor below"),
        ],
        **RATIO,
        overrides=[
            *HUES,
            limits(),
            named(LIMIT + "position 0 poor below", color=fixed(VERMILION)),
        ],
        no_value=NOTHING,
        rows=9,
    ),
    TimeSeries(
        title="Is a position accepted once the one before is?",
        description=(
            "Acceptance of each position among the drafts that reached it, from "
            "`vllm_specdec_accepted_tokens_per_position_total` over "
            "`vllm_specdec_drafts_reaching_position_total`. Level lines: each further position loses little. A "
            "sudden drop: the drafter was not trained for that depth."
        ),
        targets=[over_time(conditional(), "position {{position}}")],
        **RATIO,
        overrides=HUES,
        no_value=NOTHING,
        rows=9,
    ),
    BarGauge(
        title="Acceptance by position now",
        description=(
            "Share of drafts accepted at each position over the exporter's window, from `vllm_specdec_position_acceptance_ratio` weighted with `vllm_specdec_window_drafts` of the engines whose K reaches it; "
            f"the first {MOST_BARS} positions. Below a tenth a position rarely pays: see *What would each K give?* in *K and cost*."
        ),
        targets=[
            now(at_position("position_acceptance_ratio", position), f"position {position}")
            for position in range(MOST_BARS)
        ],
        **{**RATIO, "decimals": 1},
        color=fixed(BLUE),
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    TimeSeries(
        title="Decline along the draft",
        description=(
            "Geometric mean of the conditional acceptance after position 0, from "
            "`vllm_specdec_accepted_tokens_per_position_total` and `vllm_specdec_drafts_reaching_position_total`; "
            "dashed: the thresholds of a rapid and a smooth decline in force. Rapid: lower K, or use another "
            "drafter."
        ),
        targets=[
            over_time(decline(), "decline"),
            over_time(f"{threshold('poor_position_decay_ratio')} > 0", LIMIT + "rapid below"),
            over_time(threshold("optimal_position_decay_ratio"), LIMIT + "smooth from"),
        ],
        **RATIO,
        overrides=[
            *colored({"decline": BLUE}),
            limits(),
            named(LIMIT + "rapid below", color=fixed(VERMILION)),
        ],
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    TimeSeries(
        title="Draft length against K",
        description=(
            "Mean draft length, from `vllm_specdec_draft_tokens_total` and `vllm_specdec_drafts_total`; dashed: "
            "mean K (`vllm_specdec_num_speculative_tokens`). If it is clearly below K, the positions above read "
            "too low: do not lower K because of them."
        ),
        targets=[
            over_time(FLOW.draft_length(), "mean draft length"),
            over_time(f"sum({FULL}) / (sum({KNOWN}) > 0)", LIMIT + "K"),
        ],
        **LENGTH,
        least=0,
        overrides=[*colored({"mean draft length": BLUE}), limits()],
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
]

spread: list[Panel] = [
    Heatmap(
        title="Accepted tokens per draft",
        description=(
            "Exact distribution of drafts by accepted tokens, from "
            "`vllm_specdec_accepted_tokens_per_draft_bucket`. Two bands, at 0 and at K: two kinds of requests are "
            "mixed, so route the losing ones to a server without speculation."
        ),
        targets=[buckets(accepted_buckets())],
        unit="percentunit",
        label="accepted",
        whole=True,
        no_value=NOTHING,
        rows=9,
    ),
    TimeSeries(
        title="Quantiles of accepted tokens per draft",
        description=(
            "Exact P10, P50 and P90 in whole tokens, from `vllm_specdec_accepted_tokens_per_position_total` and "
            "`vllm_specdec_drafts_total`. P90 at K: a larger K may pay. P50 at 0: half of the drafts are wasted, "
            "so lower K."
        ),
        targets=[over_time(accepted_quantile(q), f"P{100 * q:.0f}") for q in (0.9, 0.5, 0.1)],
        unit="short",
        decimals=0,
        least=0,
        steps=True,
        overrides=colored({"P90": ORANGE, "P50": BLUE, "P10": SKY}),
        no_value=NOTHING,
        width=6,
        rows=9,
    ),
    TimeSeries(
        title="All or nothing",
        description=(
            "Share of drafts with no accepted token, and with all K accepted, from "
            "`vllm_specdec_accepted_tokens_per_position_total` and `vllm_specdec_drafts_total`. Many with none: "
            "the traffic changed, or the drafter does not fit. Many with all: try a larger K."
        ),
        targets=[
            over_time(f"1 - max({accepted_further()})", "nothing accepted"),
            over_time(to_the_end(), "accepted to the end"),
        ],
        **RATIO,
        overrides=colored({"nothing accepted": ORANGE, "accepted to the end": BLUE}),
        no_value=NOTHING,
        width=6,
        rows=9,
    ),
]

smaller: list[Panel] = [
    BarGauge(
        title="What would a smaller K have given?",
        description=(
            "Exact mean acceptance length that each K up to the current one (the smallest, if engines differ) "
            "would have given, from `vllm_specdec_mean_acceptance_length_at` weighted with "
            "`vllm_specdec_window_drafts`. Where the bars barely grow, the last positions are useless: see *What "
            "would each K give?* in *K and cost* for their cost."
        ),
        targets=[
            now(
                weighted(at_k(k), windowed("window_drafts"), own="num_speculative_tokens")
                + common(at_k(k), at_k(1)),
                f"K={k}",
            )
            for k in range(1, MOST_BARS + 1)
        ],
        **LENGTH,
        color=fixed(BLUE),
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
]


def usual() -> TimeSeries:
    """Return the panel of the own baseline with its band."""
    drafts = f"model:vllm_specdec_drafts:rate1d{{{MODELS}}} offset 6h"
    accepted = f"model:vllm_specdec_accepted_tokens:rate1d{{{MODELS}}} offset 6h"
    series = f"model:vllm_specdec_mean_acceptance_length:ratio_rate5m{{{MODELS}}}"
    middle = f"1 + sum({accepted}) / (sum({drafts}) > 0)"
    deviation = f"stddev_over_time({series}[1d] offset 6h)"
    spread = f"3 * sum({deviation} * {drafts}) / (sum({drafts} and {deviation}) > 0)"
    # A calm day is no reason to call a hundredth unusual.
    least = f"{CALM} * ({middle})"
    width = f"({spread} > {least} or {least})"
    before = [
        f"sum(rate({gauge(name)}[{INTERVAL}] offset 1d))"
        for name in ("accepted_tokens_total", "drafts_total")
    ]
    band = {"custom__lineWidth": 0, "color": fixed(SKY)}
    return TimeSeries(
        title="Is acceptance as usual?",
        description=(
            "Mean acceptance length now (`vllm_specdec_accepted_tokens_total`, `vllm_specdec_drafts_total`), the "
            "same a day ago, and the usual band: mean and three standard deviations (at least 2 %) of the day "
            "that ended six hours ago, from the recording rules (`model:vllm_specdec_drafts:rate1d`), weighted "
            "over models. Below the band: look for a release, another build or other traffic."
        ),
        targets=[
            over_time(FLOW.length(), "now"),
            over_time(f"1 + {before[0]} / ({before[1]} > 0)", "a day ago"),
            over_time(f"{middle} + {width}", "usual, at most"),
            over_time(f"clamp_min({middle} - {width}, 1)", "usual, at least"),
        ],
        **LENGTH,
        overrides=[
            *colored({"now": BLUE}),
            named(
                "a day ago",
                color=fixed(GREY),
                custom__lineStyle={"fill": "dash", "dash": [4, 4]},
                custom__lineWidth=1,
            ),
            named("usual, at most", **band, custom__fillOpacity=20, custom__fillBelowTo="usual, at least"),
            named("usual, at least", **band),
        ],
        no_value="no drafts, or no history yet",
        width=16,
        rows=9,
    )


dashboard = Dashboard(
    uid="vllm-specdec-acceptance",
    title="Acceptance anatomy",
    description="Where in a draft are tokens lost, how do drafts spread, and what would a smaller K have given?",
    sections=[
        ("", top),
        ("Where in a draft are tokens lost?", along),
        ("How do drafts spread?", spread),
        ("Is it K, or has something changed?", [*smaller, usual()]),
    ],
    variables=variables.usual(),
    marks=annotations.usual(),
    links=links.to_all(),
)
