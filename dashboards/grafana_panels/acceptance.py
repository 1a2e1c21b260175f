"""Panels of acceptance: where in a draft tokens are lost, and what has changed."""

from typing import Any

from .field import (
    A_THIRD,
    DOTTED,
    LENGTH,
    LIMIT,
    NOTHING,
    RATIO,
    band,
    fixed,
    matching,
    named,
    positions,
    threshold_lines,
)
from .palette import BLUE, GREY, POSITIONS, VERMILION
from .panel import Heatmap, Panel, PromTarget, TimeSeries, buckets, lines, over_time
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
    threshold,
    total,
)
from .variables import TARGETS

#: Half the least width of the band of the day before, as a share: 1 % on a calm day is
#: not unusual.
CALM = 0.02
#: Near positions dark, far ones light.
HUES = positions(POSITIONS, GREY)
BY_MODEL = Flow(MODEL)


def increases(counter: str) -> str:
    """Return the increases of a counter of each engine."""
    return f"increase({metric(f'{counter}_total')}[{INTERVAL}])"


def threshold_line(name: str, words: str) -> PromTarget:
    """Return the query of a threshold by model, where it is not 0; nothing is below
    that.
    """
    return over_time(agreed(name), f"{LIMIT}{words} {MODEL_LEGEND}")


def in_order(shares: str) -> str:
    """Return series by position so that 10 comes behind 9.

    Prometheus sorts by labels, as texts.
    """
    return f'label_replace({shares}, "digits", "1", "position", ".")'


def disable_below() -> str:
    """Return the acceptance rate below which speculation is to be disabled, of one
    model.

    That is said twice, by rate and by length, and the higher decides: the length is 1
    and the rate times the drafted tokens.
    """
    rate, length = (
        f"max({threshold(f'disable_{measure}')})"
        for measure in ("acceptance_ratio", "mean_acceptance_length")
    )
    drafted = f"({Flow().of('draft_tokens')} / ({Flow().of('drafts')} > 0))"
    by_length = f"({length} - 1) / {drafted}"
    of_exporters = metric("threshold", TARGETS, threshold="disable_acceptance_ratio")
    return f"({by_length} > {rate} or {rate} or min({of_exporters})) > 0"


by_position: list[Panel] = [
    lines(
        "Acceptance by position",
        "Share of drafts that had each position accepted. Late lines near 0: lower K.",
        {},
        others=[
            over_time(in_order(survival()), "position {{position}}"),
            threshold_line("poor_position_0_acceptance_ratio", "position 0 below"),
        ],
        **RATIO,
        overrides=[*HUES, threshold_lines(VERMILION)],
        **A_THIRD,
    ),
    lines(
        "Conditional acceptance by position",
        (
            "Among drafts that reached the position. A sudden drop: the drafter lacks "
            "that depth."
        ),
        {},
        others=[over_time(in_order(conditional()), "position {{position}}")],
        **RATIO,
        overrides=HUES,
        **A_THIRD,
    ),
    Heatmap(
        title="Accepted tokens per draft",
        description=(
            "Drafts by accepted tokens. Bands at 0 and at K: two kinds of requests."
        ),
        targets=[buckets(accepted_buckets())],
        unit="percentunit",
        label="accepted",
        whole=True,
        **A_THIRD,
    ),
]


def length_and_break_even(length: str, **more: Any) -> TimeSeries:
    """Return the panel of the length of each model and what it must be."""
    return lines(
        "Acceptance length and break-even",
        "Tokens per draft. Dashed: below it speculation loses; more requests raise it.",
        {},
        others=[
            over_time(length, MODEL_LEGEND),
            over_time(BREAK_EVEN, f"{LIMIT}break-even {MODEL_LEGEND}"),
        ],
        **LENGTH,
        # Without a colour of their own, those of two models differ.
        overrides=[threshold_lines("", "break-even")],
        **more,
    )


def day_before() -> TimeSeries:
    """Return the panel of the length beside the day before, with its band."""
    series = f"{recorded('mean_acceptance_length:ratio_rate5m')}[1d] offset 6h"
    middle = f"avg_over_time({series})"
    width = f"(3 * stddev_over_time({series}) > {CALM} * {middle} or {CALM} * {middle})"
    day_before = [
        f"sum(increase({metric(name)}[{INTERVAL}] offset 1d))"
        for name in ("accepted_tokens_total", "drafts_total")
    ]
    return lines(
        "Acceptance length, compared with the day before",
        "Band: usual until 6 h ago. Below it: look for a release.",
        {
            "now": (f"{Flow().length()} and on () {middle}", BLUE),
            "a day ago": (f"1 + {day_before[0]} / ({day_before[1]} > 0)", GREY),
        },
        others=[
            over_time(
                f"{Flow().length()} unless on () {middle}",
                "now; nothing yet to compare with",
            ),
            over_time(f"{middle} + {width}", "usual, at most"),
            over_time(f"clamp_min({middle} - {width}, 1)", "usual, at least"),
        ],
        **LENGTH,
        overrides=[
            named("a day ago", custom__lineWidth=1),
            named("now; nothing yet to compare with", color=fixed(BLUE)),
            *band("usual, at most", "usual, at least"),
        ],
        no_value="no drafts, or no history yet",
        width=8,
        rows=9,
    )


_EACH = "pod, instance, engine"
_ENGINE = "instance, engine"
#: As the alert EngineOutlier has it, over an hour: a fall of all engines is none.
_OUTLIER = (
    f"engine:{metric('accepted_tokens:rate1h')} / "
    f"engine:{metric('drafts:rate1h')} < "
    f"engine:{metric('least_accepted_per_draft:rate1h')}"
)

by_pod = lines(
    "Acceptance by pod",
    (
        "Compare K, version, traffic. Outlier: an hour below the other engines by "
        "outlier_ratio."
    ),
    {"all": (BY_MODEL.acceptance(), GREY)},
    others=[
        over_time(
            (
                f"{total(increases('accepted_tokens'), _EACH)} / "
                f"({total(increases('draft_tokens'), _EACH)} > 0)"
            ),
            "{{pod}} {{instance}} {{engine}}",
        ),
        over_time(
            f"{total(increases('accepted_tokens'), _ENGINE)} / "
            f"({total(increases('draft_tokens'), _ENGINE)} > 0) and on ({_ENGINE}) "
            f"({_OUTLIER})",
            "outlier {{instance}} {{engine}}",
        ),
    ],
    **RATIO,
    color={"mode": "palette-classic"},
    overrides=[
        named("all", custom__lineWidth=4),
        matching("^outlier ", color=fixed(VERMILION), custom__lineWidth=5),
    ],
    no_value=NOTHING,
    width=8,
    rows=9,
)


changes: list[Panel] = [
    lines(
        "Acceptance rate",
        "Accepted over draft tokens. A step at a restart: look for another build.",
        {},
        others=[
            over_time(BY_MODEL.acceptance(), MODEL_LEGEND),
            over_time(disable_below(), f"{LIMIT}disable below"),
            threshold_line("poor_acceptance_ratio", "poor below"),
        ],
        **RATIO,
        overrides=[
            threshold_lines(VERMILION, "disable"),
            threshold_lines(GREY, "poor", dash=DOTTED),
        ],
        **A_THIRD,
    ),
    length_and_break_even(BY_MODEL.length(), **A_THIRD),
    day_before(),
]
