"""Is acceptance lower since a restart, than days ago, or the longer a server is up?"""

from collections.abc import Mapping

from . import series as s
from . import text as t
from .rule import Alert, Record

_FIT = (
    "Compare the traffic of these days (language, prompts, temperature, length). If it "
    "has changed for good, train or choose the drafter for it, or take the K that the "
    "exporter advises now, if it advises one."
)
_OF_EARLIER = "model:vllm_specdec_acceptance_of_best_day:ratio"


#: How far the acceptance rate has fallen below that of the hours before, of yesterday
#: and of a week ago.
_STEP = "model:vllm_specdec_acceptance_step:min"


def rules() -> tuple[Record | Alert, ...]:
    """Return the rules on a restart, on days and on uptime, each record before its
    alert.
    """
    return (
        _steps(),
        _step(),
        _of_earlier_days(),
        _decayed(),
        _decayed_slowly(),
        _decayed_with_uptime(),
    )


def _steps() -> Record:
    hour, half_hour, minutes = (
        f"{s.ACCEPTANCE}:ratio_rate{window}" for window in ("1h", "30m", "5m")
    )
    accepted, drafted = (
        f"sum_over_time(model:vllm_specdec_{counter}:rate30m[6h:30m] offset 2h)"
        for counter in ("accepted_tokens", "draft_tokens")
    )
    before = s.labelled(
        "against",
        the_hours_before=f"({accepted} / ({drafted} > 0))",
        yesterday=f"({hour} offset 1d)",
        a_week_ago=f"({hour} offset 7d)",
    )
    return Record(
        _STEP,
        f"min by ({s.MODEL}) (\n"
        f"{before}\n"
        ")\n"
        f"- ({half_hour} > {minutes} or {minutes})\n"
        f"and {drafted} > 0\n"
        f"and {s.enough('1h', 'comparison_minimum_drafts')}\n"
        f"and {s.enough('6h', 'comparison_minimum_drafts', offset='2h')}\n"
        f"unless {s.RESTARTS} > ({s.RESTARTS} offset 30m)\n"
        f"unless {s.k_changed('8h')}",
        why=(
            "Of half an hour and of 5 minutes the higher: what has recovered in the "
            "meantime is no step. Not within half an hour of a restart, so that no "
            "window straddles it."
        ),
    )


def _step() -> Alert:
    firing = s.firing("AcceptanceDropped", 'against="restart"')
    return Alert(
        name="AcceptanceDropped",
        subject="acceptance",
        expr=(
            f"round(100 * {_STEP}, 0.1) > ignoring (threshold) 100 * "
            f"{s.threshold('step_acceptance_ratio')}\n"
            f"and on ({s.MODEL}) (\n"
            f"  ({s.RESTARTS} offset 30m\n"
            f"    unless last_over_time({s.RESTARTS}[4h] offset 2h))\n"
            f"  or ({firing}\n"
            f"    and on ({s.MODEL}) last_over_time({s.RESTARTS}[90m]))\n"
            ")"
        ),
        hold="15m",
        keep="15m",
        summary="Acceptance has been lower since a restart, as after quantization.",
        description=(
            f"After a restart within the last hours, {t.WHO['model']} accepts "
            f"{t.this(t.COUNT)} percentage points less than before, at the same K, by "
            "half an hour in which nothing was restarted. A quantized target or "
            "another checkpoint can have this effect."
        ),
        action=(
            "Compare the build with the one before: quantization, checkpoint of "
            "target or drafter, vLLM's version."
        ),
        value=f"{t.this(t.COUNT)} points lower",
        threshold=t.value(
            f"100 * {t.of_model(s.threshold('step_acceptance_ratio'))}",
            t.COUNT,
            "{} points",
        ),
        sample=t.drafts("30m"),
        labels={"against": "restart"},
        why=(
            "The published figure: 5 points against the unquantized baseline. Half an "
            "hour without a restart is compared with the hours before the restart, the "
            "same time yesterday and a week ago if there is data. Silent if there were "
            "restarts in the hours before as well, as under an autoscaler: then a "
            "restart explains nothing. It lasts for up to four hours after the "
            "restart while acceptance is lower, and ends with another restart, such "
            "as a roll-back."
        ),
    )


def _of_earlier_days() -> Record:
    day = f"{s.LENGTH}:ratio_rate1d"

    def drafted(window: str, offset: str = "") -> str:
        """Return the mean length of drafts, by half hours at the same times of day."""
        length = (
            "model:vllm_specdec_draft_tokens:rate30m / "
            "model:vllm_specdec_drafts:rate30m"
        )
        return f"avg_over_time(({length})[{window}:6h]{offset})"

    week = s.labelled(
        "of",
        best_day=f"({day} / max_over_time({day}[7d:3h]))",
        same_weekday=f"({day} / ({day} offset 7d))",
    )
    weeks = s.labelled(
        "of",
        same_weekday=f"({day} / ({day} offset 14d))",
        day_after=f"({day} / ({day} offset 13d))",
    )
    as_long = {
        "days": f"{drafted('1d')} >= 0.95 * {drafted('7d')}",
        "weeks": (
            f"{drafted('1d')} >= 0.95 * {drafted('1d', ' offset 14d')}\n"
            f"and {s.K} == ({s.K} offset 14d)"
        ),
    }
    values = s.labelled(
        "against",
        days=f"(max by ({s.MODEL}) (\n{week}\n)\nand {as_long['days']})",
        weeks=f"(max by ({s.MODEL}) (\n{weeks}\n)\nand {as_long['weeks']})",
    )
    return Record(
        _OF_EARLIER,
        f"(\n{values}\n)\n"
        f"and on ({s.MODEL}) ({s.enough('1d', 'comparison_minimum_drafts')})",
        why=(
            "The mean acceptance length of the last day, if it had enough drafts, over "
            "that of the best day of a week, or of the same weekday; and over that of "
            "two weeks ago, at the same K. Means of days, so that no hour of the day "
            "matters; not if drafts have become shorter, as by a schedule of K."
        ),
    )


def _lost(against: str) -> str:
    """Return the share of the mean acceptance length that is lost, where it is much."""
    lost = s.rounded(f'1 - {_OF_EARLIER}{{against="{against}"}}')
    return s.compare_each(lost, ">", "drop_ratio")


def _told(against: str, window: str) -> str:
    """Return that another rule of this name has told of a fall within `window`."""
    firing = s.firing("AcceptanceDropped", f'against!="{against}"')
    return f"on ({s.MODEL}) count_over_time({firing}[{window}])"


def _of_days(
    against: str,
    *,
    unless: str,
    than: str,
    shown: Mapping[str, int],
    why: str,
) -> Alert:
    """Return the alert on a day that is lower `than` an earlier one; `shown` are days
    before now, by name.
    """
    day = f"{s.LENGTH}:ratio_rate1d{{MODEL}}"
    lengths = {name: day + f" offset {ago}d" * bool(ago) for name, ago in shown.items()}
    return Alert(
        name="AcceptanceDropped",
        subject="acceptance",
        expr=f"{_lost(against)}\nunless {unless}",
        hold="1h",
        keep="6h",
        summary=f"Acceptance has decayed over {against}.",
        description=(
            f"The mean acceptance length of {t.WHO['model']} over the last day is "
            f"{t.this(t.PERCENT)} lower than {than}"
        ),
        action=_FIT,
        value=t.this(t.PERCENT) + " lower",
        threshold=t.in_force("drop_ratio", t.PERCENT, "{} lower"),
        sample=t.drafts("1d"),
        context=t.each(
            s.in_one_line("day", **lengths),
            "day",
            t.NUMBER,
            "mean acceptance length ",
        ),
        labels={"against": against},
        why=why,
    )


def _decayed() -> Alert:
    return _of_days(
        "days",
        unless=f"{_told('days', '7d')}\nunless on ({s.MODEL}) ({s.k_changed('7d')})",
        than=(
            "on the best day of the last week, or than on the same weekday if that "
            "differs less. No sudden fall was found within the week."
        ),
        shown={"3_days_ago": 3, "2_days_ago": 2, "yesterday": 1, "now": 0},
        why="Silent if another rule of this name has told of the fall.",
    )


def _decayed_slowly() -> Alert:
    return _of_days(
        "weeks",
        unless=_told("weeks", "14d"),
        than=(
            "on the same weekday two weeks ago, at the same K. In no week did it fall "
            "so far at once that another rule told of it."
        ),
        shown={"two_weeks_ago": 14, "now": 0},
        why=(
            "What falls too slowly for a week to show it. Lower than on two days, so "
            "that one odd day decides nothing. A loss that takes longer than two "
            "weeks for drop_ratio is not told."
        ),
    )


def _decayed_with_uptime() -> Alert:
    lost = f"last_over_time(vllm_specdec_uptime_decay_ratio[{s.LOOK_BACK}])"
    return Alert(
        name="AcceptanceDropped",
        subject="acceptance",
        expr=f"{s.rounded(f'max by ({s.MODEL}) ({lost})')} > 0",
        hold="10m",
        keep="6h",
        summary="Acceptance decays with uptime.",
        description=(
            f"Within hours, an engine of {t.WHO['model']} has lost {t.this(t.PERCENT)} "
            "of its mean acceptance length little by little, at the same K, load and "
            "context."
        ),
        action=(
            "Restart the server at a quiet time. If the length does not return, the "
            "traffic has changed."
        ),
        value=t.this(t.PERCENT) + " lost",
        context=t.value(
            f"count({lost.replace('[', '{MODEL}[')} > 0)",
            t.COUNT,
            "engines that have decayed: {}",
        ),
        labels={"against": "uptime"},
        why=(
            "The exporter compares two hours of an engine with its first two, and "
            "reports a fall of 5 % or more that no single hour explains; hours of "
            "another load change nothing."
        ),
    )
