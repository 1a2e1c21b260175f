"""The objective "speculation was worth it": the share of drafts that were made while
speculation did not lose.

Multi-window burn rates after the SRE workbook: how many times faster than allowed the
error budget goes.
"""

from collections.abc import Iterator

from mixin import CRITICAL

from . import series as s
from . import text as t
from .rule import Alert, Group, Record

_LOSING = "model:vllm_specdec_losing_drafts"
_JUDGED = "model:vllm_specdec_judged_drafts"
_ALLOWED = "model:vllm_specdec_allowed_loss:ratio"
_BUDGET = f"(1 - {s.threshold('worth_it_objective_ratio')})"

#: Long window, short window, and how many times faster than allowed.
_BURNS = (("6h", "30m", 6), ("3d", "6h", 1))


def groups() -> Iterator[Group]:
    """Yield the group of the objective's records, and that of its alerts."""
    yield Group("vllm-specdec.objective.rates", tuple(_records()), s.LONG_INTERVAL)
    yield Group("vllm-specdec.objective", (_burning(),))


def _records() -> Iterator[Record]:
    for window in ("30m", "6h"):
        yield _ratio(window, f":rate5m[{window}]")
    for name in (_LOSING, _JUDGED):
        yield Record(f"{name}:sum1h", f"sum_over_time({name}:rate5m[1h])")
    yield _ratio("3d", ":sum1h[3d:1h]")
    yield Record(
        "model:vllm_specdec_worth_it_error_budget:remaining30d",
        f"1 - {_share(':sum1h[30d:1h]')} / {_BUDGET}",
        why="1 is an untouched budget, 0 a spent one. Made of hours: a month of "
        "minutes would be more samples than a "
        "query may load where there are many models.",
    )
    yield Record(
        _ALLOWED,
        f"{_BUDGET}\nand {s.enough('6h', 'comparison_minimum_drafts')}",
        why=(
            "The share of the drafts that may lose, while there are enough drafts to "
            "judge by."
        ),
    )


def _ratio(window: str, over: str) -> Record:
    return Record(f"{_LOSING}:ratio_rate{window}", _share(over))


def _share(over: str) -> str:
    return f"sum_over_time({_LOSING}{over}) / (sum_over_time({_JUDGED}{over}) > 0)"


def _burning() -> Alert:
    pairs = (
        (
            f"({_LOSING}:ratio_rate{long} > {factor} * {_ALLOWED} and "
            f"{_LOSING}:ratio_rate{short} > {factor} * {_ALLOWED})"
        )
        for long, short, factor in _BURNS
    )
    paged = (
        f'ALERTS{{alertname="VLLMSpecDecodeHarmful", alertstate="firing", '
        f'severity="{CRITICAL}"}}[6h]'
    )
    return Alert(
        name="ObjectiveBurning",
        subject="objective",
        expr="(\n  "
        + "\n  or\n  ".join(pairs)
        + f"\n)\nunless on ({s.MODEL}) count_over_time({paged})",
        hold="30m",
        keep="1h",
        summary="Speculation loses too often: its error budget is spent too fast.",
        description=(
            f"{t.this(t.PERCENT)} of the drafts of {t.WHO['model']} were made while "
            "speculation lost: over the last 6 hours or, if it "
            "loses seldom, over 3 days. At this rate the objective of 30 days is "
            "missed."
        ),
        action=(
            "Find the hours at which speculation loses; set a K schedule that drafts "
            "less then, or disable it."
        ),
        value=t.this(t.PERCENT) + " of the drafts",
        threshold=t.in_force(
            "worth_it_objective_ratio",
            t.PERCENT,
            "6 times (6 hours) or once (3 days) what the objective of {} allows",
        ),
        context=t.value(
            "1 - model:vllm_specdec_worth_it_error_budget:remaining30d",
            'printf "%.1f"',
            "over 30 days, as far as there is data, {} times what the objective allows",
        ),
        sample=t.drafts("6h"),
        why=(
            "An objective on efficiency, so always a ticket. Not if Harmful has paged "
            "within six hours: that was about the same loss."
        ),
    )
