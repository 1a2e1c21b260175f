"""The objective "speculation was worth it": the share of drafts that were made while speculation did not lose.

Multi-window burn rates after the SRE workbook: how many times faster than allowed the error budget goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .recording import LONG_INTERVAL
from .rule import PERCENT, WHO, Alert, Group, Record, compare, in_force, of_model, this, threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOSING, _JUDGED = "model:vllm_specdec_losing_drafts", "model:vllm_specdec_judged_drafts"
_WINDOWS = ("30m", "1h", "2h", "6h", "1d")
#: Made of hours: a month of minutes would be more samples than a query may load where there are many models.
_LONG_WINDOWS = ("3d", "30d")
_BUDGET = f"(1 - {threshold('worth_it_objective_ratio')})"

#: Long window, short window, how many times too fast, how long it must hold, and what is left at that pace.
_BURNS = (
    ("1h", "5m", 14.4, "2m", "2 days"),
    ("6h", "30m", 6, "15m", "5 days"),
    ("1d", "2h", 3, "1h", "10 days"),
    ("3d", "6h", 1, "3h", "30 days"),
)


def groups() -> Iterator[Group]:
    """Yield the group of the objective's records, and that of its alerts."""
    yield Group("vllm-specdec.objective.rates", tuple(_records()), LONG_INTERVAL)
    yield Group("vllm-specdec.objective", tuple(_alerts()))


def _records() -> Iterator[Record]:
    yield Record(
        f"{_LOSING}:ratio_rate5m",
        f"{_LOSING}:rate5m / ({_JUDGED}:rate5m > 0)",
        why="Losing and judged drafts over the same time: a ratio of sums.",
    )
    for window in _WINDOWS:
        yield _ratio(window, f":rate5m[{window}]")
    for name in (_LOSING, _JUDGED):
        yield Record(f"{name}:sum1h", f"sum_over_time({name}:rate5m[1h])")
    for window in _LONG_WINDOWS:
        yield _ratio(window, f":sum1h[{window}:1h]")
    yield Record(
        "model:vllm_specdec_worth_it_error_budget:remaining30d",
        f"1 - {_LOSING}:ratio_rate30d / {_BUDGET}",
        why="1 is an untouched budget, 0 a spent one.",
    )


def _ratio(window: str, over: str) -> Record:
    return Record(
        f"{_LOSING}:ratio_rate{window}",
        f"sum_over_time({_LOSING}{over}) / (sum_over_time({_JUDGED}{over}) > 0)",
    )


def _alerts() -> Iterator[Alert]:
    for long, short, factor, hold, spent in _BURNS:
        burning = f"> {factor} * {_BUDGET}"
        yield Alert(
            name="ObjectiveBurning",
            severity="warning",
            subject="objective",
            level="model",
            expr=(
                f"{_LOSING}:ratio_rate{long} {burning}\n"
                f"and ({_LOSING}:ratio_rate{short} {burning})\n"
                f"and ({compare('model', f'{_SAMPLES[long]}', '>=', 'comparison_minimum_drafts')})"
            ),
            hold=hold,
            keep="15m",
            summary="Speculation loses too often: its error budget is spent too fast.",
            description=(
                f"{this(PERCENT)} of the drafts of {WHO['model']} over the last {long} were made while speculation lost. "
                f"At this rate the error budget of 30 days is spent within {spent}."
            ),
            action="Find the hours at which speculation loses; set a K schedule that drafts less then, or disable it.",
            value=this(PERCENT) + " of the drafts",
            threshold=in_force(
                "worth_it_objective_ratio", PERCENT, f"{factor:g} times what the objective of {{}} allows"
            ),
            context=of_model(
                "model:vllm_specdec_worth_it_error_budget:remaining30d",
                PERCENT,
                "{} of the error budget are left",
            ),
            sample=of_model(
                _SAMPLES[long], "humanize", f"{{}} drafts in {_SAMPLES[long].rpartition('increase')[2]}"
            ),
            labels={"long_window": long, "short_window": short},
            why="An objective on efficiency, so always a ticket. Harmful pages." if long == "1h" else "",
        )


#: The drafts behind a long window; beyond a day, those of the last day.
_SAMPLES = {
    window: f"model:vllm_specdec_drafts:increase{window if window != '3d' else '1d'}"
    for window in ("1h", "6h", "1d", "3d")
}
