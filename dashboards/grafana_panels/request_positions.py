"""Panels of positions as requests tell of them, beside what vLLM counts of all drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .field import Json, fixed, positions
from .palette import BLUE, GREY, POSITIONS
from .panel import BarGauge, Heatmap, Panel, TimeSeries
from .per_request import PER_DRAFT, buckets_of, of_all_drafts, reach, where_drafted
from .target import PromTarget, buckets, now, over_time
from .tiles import MOST_BARS, RATIO

if TYPE_CHECKING:
    from collections.abc import Callable

ABSENT = "no detailed records"
DRAFTS = "no drafts seen"

#: Bars of positions, three such panels in a row.
_BARS: Json = {**RATIO, "width": 8, "rows": 10}


def _each(ratio: Callable[[int], str]) -> list[PromTarget]:
    """Return a query for each position that has a bar."""
    return [now(ratio(position), f"position {position}") for position in range(MOST_BARS)]


along: list[Panel] = [
    BarGauge(
        title="Acceptance where a position was drafted",
        description=(
            "Acceptance of each position among the drafts long enough to have it "
            "(`vllm_specdec_request_accepted_per_position_total` over "
            "`vllm_specdec_request_drafted_per_position_total`), from requests with detailed records. It shows "
            "what a longer draft would gain: if late bars stay high, raise K."
        ),
        targets=_each(where_drafted),
        color=fixed(BLUE),
        no_value=ABSENT,
        **_BARS,
    ),
    BarGauge(
        title="Acceptance of all drafts",
        description=(
            "Acceptance of each position among all drafts, as in vLLM's counters "
            "(`vllm_specdec_accepted_tokens_per_position_total` over `vllm_specdec_drafts_total`). Drafts too "
            "short to have a position count against it: if draft lengths vary, as with n-gram or a K schedule, "
            "late positions read too low, so use the bars beside."
        ),
        targets=_each(of_all_drafts),
        color=fixed(GREY),
        no_value=DRAFTS,
        **_BARS,
    ),
    BarGauge(
        title="How far do drafts reach?",
        description=(
            "Share of the drafts long enough to have each position, from "
            "`vllm_specdec_request_drafted_per_position_total`. If all bars are full, the two panels beside "
            "agree; where they fall, the middle one reads too low."
        ),
        targets=_each(reach),
        color=fixed(BLUE),
        no_value=ABSENT,
        **_BARS,
    ),
    TimeSeries(
        title="Acceptance where a position was drafted, over time",
        description=(
            "The same over time (`vllm_specdec_request_accepted_per_position_total` over "
            "`vllm_specdec_request_drafted_per_position_total`); dark lines are early positions, light ones late, "
            "grey the rest. Draft length has no influence here: if the lines fall, acceptance fell, so look for a "
            "release."
        ),
        targets=[over_time(where_drafted(), "position {{position}}")],
        **RATIO,
        overrides=positions(POSITIONS, GREY),
        no_value=ABSENT,
        rows=9,
    ),
    Heatmap(
        title="Accepted tokens per draft by request",
        description=(
            "Distribution of requests by mean accepted tokens per draft, from "
            "`vllm_specdec_request_accepted_tokens_per_draft_bucket`. A band at the bottom beside one at the top: "
            "drafts are useless for some requests, see *Which requests lose?*"
        ),
        targets=[buckets(buckets_of(PER_DRAFT))],
        unit="short",
        label="accepted",
        whole=True,
        no_value=ABSENT,
        rows=9,
    ),
]
