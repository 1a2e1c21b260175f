"""Panels of acceptance: where in a draft tokens are lost, and whether that has changed."""

from __future__ import annotations

from .field import LENGTH, LIMIT, NOTHING, RATIO, colored, fixed, named, positions, threshold_lines, unlisted
from .palette import BLUE, GREY, POSITIONS, SKY, VERMILION
from .panel import Heatmap, Panel, PromTarget, TimeSeries, buckets, over_time
from .promql import (
    BREAK_EVEN,
    INTERVAL,
    MODEL,
    MODEL_LEGEND,
    Flow,
    accepted_buckets,
    agreed,
    conditional,
    metric,
    survival,
    threshold,
)
from .variables import MODELS

#: Half the least width of the band of the day before, as a share: 1 % on a calm day is not unusual.
CALM = 0.02
#: Near positions dark, far ones light.
HUES = positions(POSITIONS, GREY)
BY_MODEL = Flow(MODEL)


def threshold_line(name: str, words: str) -> PromTarget:
    """Return the query of a threshold by model, where it is not 0; nothing is below that."""
    return over_time(agreed(f"({threshold(name)} > 0)"), f"{LIMIT}{words} {MODEL_LEGEND}")


def in_order(shares: str) -> str:
    """Return series by position so that 10 comes behind 9: Prometheus sorts by labels, as texts."""
    return f'label_replace({shares}, "digits", "1", "position", ".")'


by_position: list[Panel] = [
    TimeSeries(
        title="Acceptance by position",
        description="Share of drafts that had each position accepted. Late lines near 0: lower K.",
        targets=[
            over_time(in_order(survival()), "position {{position}}"),
            threshold_line("poor_position_0_acceptance_ratio", "position 0 below"),
        ],
        **RATIO,
        overrides=[*HUES, threshold_lines(VERMILION)],
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    TimeSeries(
        title="Conditional acceptance by position",
        description="Among drafts that reached the position. A sudden drop: the drafter lacks that depth.",
        targets=[over_time(in_order(conditional()), "position {{position}}")],
        **RATIO,
        overrides=HUES,
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    Heatmap(
        title="Accepted tokens per draft",
        description="Drafts by accepted tokens. Bands at 0 and at K: two kinds of requests.",
        targets=[buckets(accepted_buckets())],
        unit="percentunit",
        label="accepted",
        whole=True,
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
]


def day_before() -> TimeSeries:
    """Return the panel of the length beside the day before, with its band; of one model only."""
    drafts = f"model:vllm_specdec_drafts:rate1d{{{MODELS}}} offset 6h"
    accepted = f"model:vllm_specdec_accepted_tokens:rate1d{{{MODELS}}} offset 6h"
    series = f"model:vllm_specdec_mean_acceptance_length:ratio_rate5m{{{MODELS}}}"
    single = f"on () count({drafts}) == 1"
    middle = f"(1 + sum({accepted}) / (sum({drafts}) > 0) and {single})"
    least, deviation = f"{CALM} * {middle}", f"3 * max(stddev_over_time({series}[1d] offset 6h))"
    width = f"({deviation} > {least} or {least})"
    before = [
        f"sum(rate({metric(name)}[{INTERVAL}] offset 1d))"
        for name in ("accepted_tokens_total", "drafts_total")
    ]
    band = {"custom__lineWidth": 0, "color": fixed(SKY)}
    return TimeSeries(
        title="Acceptance length, compared with the day before",
        description="Band: usual until 6 h ago. Below it: look for a release. Choose one model.",
        targets=[
            over_time(Flow().length(), "now"),
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
        width=8,
        rows=9,
    )


changes: list[Panel] = [
    TimeSeries(
        title="Acceptance rate",
        description="Accepted over draft tokens. A step at a restart: look for another build.",
        targets=[
            over_time(BY_MODEL.acceptance(), MODEL_LEGEND),
            threshold_line("disable_acceptance_ratio", "disable below"),
            threshold_line("poor_acceptance_ratio", "poor below"),
            threshold_line("healthy_acceptance_ratio", "healthy from"),
        ],
        **RATIO,
        overrides=[threshold_lines(), threshold_lines(VERMILION, "disable", "poor")],
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    TimeSeries(
        title="Acceptance length and break-even",
        description="Tokens per draft. Below break-even, which rises with the load, speculation loses: lower K.",
        targets=[
            over_time(BY_MODEL.length(), MODEL_LEGEND),
            over_time(BREAK_EVEN, f"{LIMIT}break-even {MODEL_LEGEND}"),
            threshold_line("disable_mean_acceptance_length", "disable below"),
        ],
        **LENGTH,
        overrides=[threshold_lines(), threshold_lines(VERMILION, "break-even"), unlisted("break-even")],
        no_value=NOTHING,
        width=8,
        rows=9,
    ),
    day_before(),
]
