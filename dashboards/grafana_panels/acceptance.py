"""Panels of acceptance: where in a draft tokens are lost, and whether that has changed."""

from __future__ import annotations

from .field import (
    A_THIRD,
    LENGTH,
    LIMIT,
    NOTHING,
    RATIO,
    band,
    colored,
    fixed,
    named,
    positions,
    threshold_lines,
    unlisted,
)
from .palette import BLUE, GREY, POSITIONS, VERMILION
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
    recorded,
    survival,
    total,
)

#: Half the least width of the band of the day before, as a share: 1 % on a calm day is not unusual.
CALM = 0.02
#: Near positions dark, far ones light.
HUES = positions(POSITIONS, GREY)
BY_MODEL = Flow(MODEL)


def rates(counter: str) -> str:
    """Return the rates of a counter of each engine."""
    return f"rate({metric(f'{counter}_total')}[{INTERVAL}])"


def threshold_line(name: str, words: str) -> PromTarget:
    """Return the query of a threshold by model, where it is not 0; nothing is below that."""
    return over_time(agreed(name), f"{LIMIT}{words} {MODEL_LEGEND}")


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
        **A_THIRD,
    ),
    TimeSeries(
        title="Conditional acceptance by position",
        description="Among drafts that reached the position. A sudden drop: the drafter lacks that depth.",
        targets=[over_time(in_order(conditional()), "position {{position}}")],
        **RATIO,
        overrides=HUES,
        **A_THIRD,
    ),
    Heatmap(
        title="Accepted tokens per draft",
        description="Drafts by accepted tokens. Bands at 0 and at K: two kinds of requests.",
        targets=[buckets(accepted_buckets())],
        unit="percentunit",
        label="accepted",
        whole=True,
        **A_THIRD,
    ),
]


def day_before() -> TimeSeries:
    """Return the panel of the length beside the day before, with its band."""
    series = f"{recorded('mean_acceptance_length:ratio_rate5m')}[1d] offset 6h"
    middle = f"avg_over_time({series})"
    width = f"(3 * stddev_over_time({series}) > {CALM} * {middle} or {CALM} * {middle})"
    before = [
        f"sum(rate({metric(name)}[{INTERVAL}] offset 1d))"
        for name in ("accepted_tokens_total", "drafts_total")
    ]
    return TimeSeries(
        title="Acceptance length, compared with the day before",
        description="Band: usual until 6 h ago. Below it: look for a release.",
        targets=[
            over_time(Flow().length(), "now"),
            over_time(f"1 + {before[0]} / ({before[1]} > 0)", "a day ago"),
            over_time(f"{middle} + {width}", "usual, at most"),
            over_time(f"clamp_min({middle} - {width}, 1)", "usual, at least"),
        ],
        **LENGTH,
        overrides=[
            *colored({"now": BLUE}),
            named("a day ago", color=fixed(GREY), custom__lineWidth=1),
            *band("usual, at most", "usual, at least"),
        ],
        no_value="no drafts, or no history yet",
        width=8,
        rows=9,
    )


by_pod = TimeSeries(
    title="Acceptance by pod",
    description="One pod below its peers: compare K, version and traffic. Least first: the outlier.",
    targets=[
        over_time(
            f"{total(rates('accepted_tokens'), 'pod, instance, engine')} / ({total(rates('draft_tokens'), 'pod, instance, engine')} > 0)",
            "{{pod}} {{instance}} {{engine}}",
        ),
        over_time(BY_MODEL.acceptance(), "all"),
    ],
    **RATIO,
    color={"mode": "palette-classic"},
    overrides=[named("all", color=fixed(GREY), custom__lineWidth=4)],
    no_value=NOTHING,
    listed=True,
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
        ],
        **RATIO,
        overrides=[threshold_lines(), threshold_lines(VERMILION, "disable", "poor")],
        **A_THIRD,
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
        **A_THIRD,
    ),
    day_before(),
]
