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
#: The share of the drafts that were made while speculation lost, by the label `window`.
_RATIO = "model:vllm_specdec_loss:ratio"
_ALLOWED = "model:vllm_specdec_allowed_loss:ratio"
_BUDGET = f"(1 - {s.threshold('worth_it_objective_ratio')})"

#: Long window, short window, and how many times faster than allowed.
_BURNS = (("6h", "30m", 6), ("3d", "6h", 1))


def groups() -> Iterator[Group]:
    """Yield the group of the objective's records, and that of its alerts."""
    yield Group("vllm-specdec.objective.rates", tuple(_records()), s.LONG_INTERVAL)
    yield Group("vllm-specdec.objective", (_burning(),))


def _records() -> Iterator[Record]:
    sums = s.labelled(
        "drafts",
        losing=f"sum_over_time({_LOSING}:rate5m[1h])",
        all=f"sum_over_time({_JUDGED}:rate5m[1h])",
    )
    yield Record(
        f"{_JUDGED}:sum1h",
        sums,
        why=(
            "Of hours: a month of minutes would be more samples than a query may load "
            "where there are many models."
        ),
    )
    shares = {
        window: _share(f"{_LOSING}:rate5m[{window}]", f"{_JUDGED}:rate5m[{window}]")
        for window in ("30m", "6h")
    }
    yield Record(_RATIO, s.labelled("window", **shares, **{"3d": _of_hours("3d")}))
    yield Record(
        "model:vllm_specdec_worth_it_error_budget:remaining30d",
        f"1 - ({_of_hours('30d')}) / ignoring (threshold) {_BUDGET}",
        why="1 is an untouched budget, 0 a spent one.",
    )
    harm = s.firing("Harmful", f'severity="{CRITICAL}"')
    fall = s.firing("AcceptanceDropped", 'against="restart"')
    yield Record(
        _ALLOWED,
        f"sum without (threshold) ({_BUDGET})\n"
        f"and {s.enough('6h', 'comparison_minimum_drafts')}\n"
        f"unless on ({s.MODEL}) (count_over_time({harm}[6h]) "
        f"or count_over_time({fall}[6h]))",
        why=(
            "The share of the drafts that may lose, while there are enough drafts to "
            "judge by, and neither a page nor a fall since a restart has told of the "
            "loss within six hours."
        ),
    )


def _of_hours(window: str) -> str:
    losing, judged = (
        f'{_JUDGED}:sum1h{{drafts="{drafts}"}}[{window}:1h]'
        for drafts in ("losing", "all")
    )
    return _share(losing, judged, "ignoring (drafts) ")


def _share(losing: str, judged: str, matching: str = "") -> str:
    return f"sum_over_time({losing}) / {matching}(sum_over_time({judged}) > 0)"


def _burning() -> Alert:
    def burns(window: str, factor: int) -> str:
        share = f'{_RATIO}{{window="{window}"}}'
        return f"{share} > ignoring (window) {factor} * {_ALLOWED}"

    burning = "\nor ".join(
        f"({burns(long, factor)} and {burns(short, factor)})"
        for long, short, factor in _BURNS
    )
    return Alert(
        name="ObjectiveBurning",
        subject="objective",
        expr=burning,
        hold="30m",
        keep="1h",
        summary="Speculation loses too often: its error budget is spent too fast.",
        description=(
            f"{t.this(t.PERCENT)} of the drafts of {t.WHO['model']} with a known "
            "speedup were made while speculation lost, or probably lost: over the last "
            "6 hours or, if it loses seldom, over 3 days. At this rate the objective "
            "of 30 days is missed."
        ),
        action=(
            "Find the hours at which speculation loses; set a K schedule that drafts "
            "less then, or disable it."
        ),
        value=t.this(t.PERCENT) + " of the drafts with a known speedup",
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
            "within six hours, or AcceptanceDropped has told of a restart since which "
            "acceptance is lower: that was about the same loss."
        ),
    )
