"""Is acceptance lower since a restart, than days ago, or the longer a server is up?"""

from . import series as s
from . import text as t
from .rule import Alert, Record

_OF_BEST = "model:vllm_specdec_acceptance_of_best_day:ratio"


#: How far the acceptance rate has fallen below that of the hours before, of yesterday
#: and of a week ago.
_STEP = "model:vllm_specdec_acceptance_step:min"


def rules() -> tuple[Record | Alert, ...]:
    """Return the rules on a restart, on days and on uptime, each record before its
    alert.
    """
    return (_steps(), _step(), _of_best_day(), _decayed(), _decayed_with_uptime())


def _steps() -> Record:
    acceptance = f"{s.ACCEPTANCE}:ratio_rate1h"
    accepted, drafted = (
        f"sum_over_time(model:vllm_specdec_{counter}:rate30m[6h:30m] offset 2h)"
        for counter in ("accepted_tokens", "draft_tokens")
    )
    of_hours_before = f"{accepted} / ({drafted} > 0) - {acceptance}"
    steps = s.labelled(
        "against",
        the_hours_before=f"({of_hours_before})",
        yesterday=f"(({acceptance} offset 1d) - {acceptance})",
        a_week_ago=f"(({acceptance} offset 7d) - {acceptance})",
    )
    return Record(
        _STEP,
        f"min by ({s.MODEL}) (\n"
        f"{steps}\n"
        ")\n"
        f"and ({of_hours_before})\n"
        f"and {s.enough('1h', 'comparison_minimum_drafts')}",
    )


def _step() -> Alert:
    return Alert(
        name="AcceptanceDropped",
        subject="acceptance",
        expr=(
            f"round(100 * {_STEP}, 0.1) > ignoring (threshold) 100 * "
            f"{s.threshold('step_acceptance_ratio')}\n"
            f"and {s.RESTARTS}\n"
            f"unless last_over_time({s.RESTARTS}[4h] offset 2h)\n"
            f"and {s.enough('6h', 'comparison_minimum_drafts', offset='2h')}\n"
            f"unless {s.k_changed('8h')}"
        ),
        hold="15m",
        keep="2h",
        summary="Acceptance has been lower since a restart, as after quantization.",
        description=(
            "Since a restart within the last 2 hours, the acceptance rate of "
            f"{t.WHO['model']} is {t.this(t.COUNT)} percentage points lower than "
            "before, at the same K. A quantized target or another checkpoint can have "
            "this effect."
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
        sample=t.drafts("1h"),
        labels={"against": "restart"},
        why=(
            "The published figure: 5 points against the unquantized baseline. "
            "Compared with the hours before the restart, the same time yesterday and "
            "a week ago if there is data. Silent if there were restarts in the hours "
            "before as well, as under an autoscaler: then a restart explains nothing."
        ),
    )


def _of_best_day() -> Record:
    day = f"{s.LENGTH}:ratio_rate1d"
    parts = s.labelled(
        "of",
        best_day=f"({day} / max_over_time({day}[7d:3h]))",
        same_weekday=f"({day} / ({day} offset 7d))",
    )
    return Record(
        _OF_BEST,
        f"max by ({s.MODEL}) (\n{parts}\n)\n"
        f"and {s.enough('1d', 'comparison_minimum_drafts')}",
        why=(
            "The mean acceptance length of the last day, if it had enough drafts, "
            "over that of the best day of a week, or of the same weekday. Means of "
            "days, so that no hour of the day matters."
        ),
    )


def _decayed() -> Alert:
    day = f"{s.LENGTH}:ratio_rate1d"
    firing = (
        'ALERTS{alertname="VLLMSpecDecodeAcceptanceDropped", alertstate="firing", '
        'against!="days"}'
    )

    days = {
        name: f"{day}{{MODEL}}" + f" offset {ago}d" * bool(ago)
        for ago, name in (
            (3, "3_days_ago"),
            (2, "2_days_ago"),
            (1, "yesterday"),
            (0, "now"),
        )
    }
    return Alert(
        name="AcceptanceDropped",
        subject="acceptance",
        expr=(
            f"{s.compare(s.rounded(f'1 - {_OF_BEST}'), '>', 'drop_ratio')}\n"
            f"unless on ({s.MODEL}) count_over_time({firing}[7d])\n"
            f"unless {s.k_changed('7d')}"
        ),
        hold="1h",
        keep="6h",
        summary="Acceptance has decayed over days.",
        description=(
            f"The mean acceptance length of {t.WHO['model']} over the last day is "
            f"{t.this(t.PERCENT)} lower than on the best day of the last week, or than "
            "on the same weekday if that differs less. No sudden fall was found "
            "within the week."
        ),
        action=(
            "Compare the traffic of these days (language, prompts, temperature, "
            "length). If it has changed for good, train or choose the drafter for it, "
            "or take the K that the exporter advises now."
        ),
        value=t.this(t.PERCENT) + " lower",
        threshold=t.in_force("drop_ratio", t.PERCENT, "{} lower"),
        sample=t.drafts("1d"),
        context=t.each(
            s.labelled("day", **days).replace("\n", " "),
            "day",
            t.NUMBER,
            "mean acceptance length ",
        ),
        labels={"against": "days"},
        why=("Silent if another rule of this name has told of the fall."),
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
