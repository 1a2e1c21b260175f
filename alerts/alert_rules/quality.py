"""Is acceptance good, and as good as before?"""

from . import decay
from . import series as s
from . import text as t
from .rule import Alert, Group, Record

_FIRST = (
    "sum without (position) "
    '(model:vllm_specdec_position_acceptance:ratio_rate30m{position="0"})'
)
_POSITIONS = "model:vllm_specdec_position_acceptance:ratio_rate30m"
#: Geometric mean of the conditional acceptance after position 0: the root of the last
#: position's acceptance over the first's. Acceptance never rises with the position, so
#: the lowest is the last.
_DECAY = (
    f"(min by ({s.MODEL}) ({_POSITIONS}) / ({_FIRST} > 0)) ^ (1 / (({s.K} > 1) - 1))"
)
#: What is poor, by the label `measure`: the series and the threshold of each.
_POOR = "model:vllm_specdec_poor_acceptance:ratio"
_MEASURES = {
    "mean_acceptance_length": (
        (
            "1 + model:vllm_specdec_accepted_tokens:rate30m / "
            "(model:vllm_specdec_drafts:rate30m > 0)"
        ),
        "poor_mean_acceptance_length",
    ),
    "acceptance_rate": (f"{s.ACCEPTANCE}:ratio_rate30m", "poor_acceptance_ratio"),
    "acceptance_at_position_0": (_FIRST, "poor_position_0_acceptance_ratio"),
    "ratio_from_position_to_position": (_DECAY, "poor_position_decay_ratio"),
}
#: The lowest mean acceptance length of the hour before, of yesterday and of a week ago
#: at this time.
_USUAL = "model:vllm_specdec_usual_mean_acceptance_length:min"
_FELL = "model:vllm_specdec_acceptance_fell:bool"
_RETUNE = (
    "Compare target and drafter (version, checkpoint, chat template), then look at "
    "the advice on the status page; without any, try a smaller K, another method or "
    "no speculation."
)


def groups() -> tuple[Group, ...]:
    """Return the groups of alerts on the quality of acceptance: of minutes, and of half
    an hour to days.
    """
    return (
        Group("vllm-specdec.quality", (*_usual(), _dropped())),
        Group(
            "vllm-specdec.quality.long",
            (_poor_measures(), _poor(), _high(), _outlier(), *decay.rules()),
            s.LONG_INTERVAL,
        ),
    )


def _poor_measures() -> Record:
    """Return the record of the measures that are poor, each by the published rubric and
    method.
    """
    full = (
        "model:vllm_specdec_draft_tokens:rate30m >= 0.95 * "
        "model:vllm_specdec_drafts:rate30m * "
        f"{s.K} unless stddev_over_time({s.K}[30m]) > 0"
    )
    poor = {
        name: s.compare(series, "<", limit)
        for name, (series, limit) in _MEASURES.items()
    }
    poor["ratio_from_position_to_position"] += f" and {full}"
    values = s.labelled(
        "measure", **{name: f"({condition})" for name, condition in poor.items()}
    )
    return Record(
        _POOR,
        f"(\n{values}\n)\nand on ({s.MODEL}) {s.ENOUGH_30M}",
        why=(
            "The published rubric, by method: what is below its threshold over half "
            "an hour. The first position shows best how well drafter and target "
            "agree. The decline is left out if drafts are shorter than K, as with "
            "n-gram or a schedule, and while positions of another K are in the window."
        ),
    )


def _poor() -> Alert:
    limits = {
        name: t.of_model(s.threshold(limit)) for name, (_, limit) in _MEASURES.items()
    }
    shown = s.in_one_line("measure", **limits)
    return Alert(
        name="AcceptanceLow",
        subject="acceptance",
        expr=(
            f"count by ({s.MODEL}) ({_POOR})\n"
            f"unless {s.PAYS}\n"
            f"unless on ({s.MODEL}) {s.told('AcceptanceLow')}"
        ),
        hold="15m",
        keep="1h",
        summary="Acceptance is poor.",
        description=(
            f"Over 30 minutes acceptance of {t.WHO['model']} is poor by the measures "
            "below, and speculation is not known to be beneficial."
        ),
        action=_RETUNE,
        value=t.each(f"{_POOR}{{MODEL}}", "measure", t.NUMBER),
        threshold=t.each(
            f"({shown}) and on (measure) {_POOR}{{MODEL}}", "measure", t.NUMBER
        ),
        sample=t.drafts("30m"),
        why=(
            "Silent if speculation pays nevertheless, or if it was told within the "
            "last six days, as every night."
        ),
    )


def _usual() -> tuple[Record, Record]:
    """Return what acceptance is compared with, and whether it fell."""
    length_of_5m = f"{s.LENGTH}:ratio_rate5m"
    hour = f"({s.LENGTH}:ratio_rate1h offset 20m)"
    usual = s.labelled(
        "against",
        the_last_hour=hour,
        yesterday=_length_of_6h("21h"),
        an_hour_later_yesterday=f"({s.LENGTH}:ratio_rate1h offset 23h)",
        a_week_ago=_length_of_6h("165h"),
    )
    drafts = "model:vllm_specdec_drafts:rate5m"
    length = f"model:vllm_specdec_draft_tokens:rate5m / ({drafts} > 0)"
    pays = s.compare(s.SPEEDUP, ">=", "beneficial_speedup")
    batch = f"{drafts} > 2 * model:vllm_specdec_drafts:rate1h offset 20m"
    # Draft tokens per draft of the hour before, from what is recorded of it.
    length_before = (
        f"({s.LENGTH}:ratio_rate1h offset 20m - 1)"
        f" / ({s.ACCEPTANCE}:ratio_rate1h offset 20m)"
    )
    return (
        Record(
            _USUAL,
            f"min by ({s.MODEL}) (\n{usual}\n) and {hour}",
            why=(
                "The lowest of the hour before and, where there is data, of the same "
                "time yesterday and a week ago: a change every morning or every "
                "Monday is not a drop."
            ),
        ),
        Record(
            _FELL,
            f"group by ({s.MODEL}) (\n"
            f"  {length_of_5m} < on ({s.MODEL}) "
            f"(1 - {s.threshold('drop_ratio')}) * on ({s.MODEL}) {_USUAL}\n"
            f"  and {length_of_5m}\n"
            f"  < {hour} - 3 * stddev_over_time({length_of_5m}[1h] offset 20m)\n"
            f"  and {length} >= 0.95 * ({length_before})\n"
            f"  unless ({pays} and {batch})\n"
            ")",
            why=(
                "Below what is usual and by more than three deviations of the hour "
                "before, while drafts are as long as then; not if speculation pays "
                "while traffic has doubled, as when a batch begins."
            ),
        ),
    )


def _length_of_6h(ago: str) -> str:
    accepted, drafts = (
        f"sum_over_time(model:vllm_specdec_{counter}:rate30m[6h:30m] offset {ago})"
        for counter in ("accepted_tokens", "drafts")
    )
    return f"(1 + {accepted} / ({drafts} > 0))"


def _dropped() -> Alert:
    length = f"{s.LENGTH}:ratio_rate5m"
    return Alert(
        name="AcceptanceDropped",
        subject="acceptance",
        expr=(
            f"{length} and {_FELL}\n"
            f"and {s.enough('5m')}\n"
            f"and {s.ENOUGH_30M}\n"
            f"and {s.enough('1h', offset='20m')}\n"
            f"unless {s.k_changed('80m')}"
        ),
        hold="5m",
        keep="5m",
        summary="Mean acceptance length has suddenly dropped.",
        description=(
            f"The mean acceptance length of {t.WHO['model']} has fallen to "
            f"{t.this(t.NUMBER)} over 5 minutes: more than three standard deviations "
            "below the hour before."
        ),
        action=(
            "Look for what changed within the last minutes: a release, the traffic "
            "(temperature, prompts, language), one replica. Then retune K or switch "
            "the method."
        ),
        value=t.this(t.NUMBER),
        threshold=t.in_force("drop_ratio", t.PERCENT, "{} below")
        + t.value(
            _USUAL,
            t.NUMBER,
            (
                " {}: the hour before or, if that was lower, this time yesterday or a "
                "week ago"
            ),
        ),
        sample=t.drafts("5m"),
        labels={"against": "hour"},
        why=(
            "Silent after a change of K and if a schedule drafts less. Kept for 5 "
            "minutes only: a run of ten minutes is over before Alertmanager sends the "
            "ticket, so that it is not sent."
        ),
    )


def _high() -> Alert:
    acceptance = s.rounded(f"{s.ACCEPTANCE}:ratio_rate30m")
    return Alert(
        name="AcceptanceAbnormallyHigh",
        subject="acceptance",
        expr=(
            f"{s.compare(acceptance, '>', 'abnormal_acceptance_ratio')}\n"
            f"and {s.ENOUGH_30M}"
        ),
        hold="10m",
        keep="30m",
        summary="Acceptance is abnormally high: answers may repeat themselves.",
        description=(
            f"{t.WHO['model']} accepts {t.this(t.PERCENT)} of its draft tokens. Text "
            "is rarely that predictable; repetition is."
        ),
        action=(
            "Read some answers. If they loop, check sampling penalties and the chat "
            "template; K is not the cause."
        ),
        value=t.this(t.PERCENT) + " accepted",
        threshold=t.in_force("abnormal_acceptance_ratio", t.PERCENT),
        sample=t.drafts("30m"),
        context=t.value(
            "sum(increase(«vllm»request_success_total"
            '{finished_reason="repetition",MODEL}[30m])) > 0',
            t.WHOLE,
            "vLLM ended {} answers in 30m because they repeat themselves",
        ),
        why="Very high acceptance is a sign of repetition.",
    )


def _outlier() -> Alert:
    accepted = "engine:vllm_specdec_accepted_tokens"
    drafts = "engine:vllm_specdec_drafts"
    least = "engine:vllm_specdec_least_accepted_per_draft:rate1h"
    return Alert(
        name="EngineOutlier",
        subject="acceptance",
        level="engine",
        expr=(
            f"{accepted}:rate1h / {drafts}:rate1h < {least}\n"
            f"and sum_over_time({accepted}:rate5m[15m]) "
            f"< {least} * sum_over_time({drafts}:rate5m[15m])\n"
            f"unless on ({s.MODEL}) {s.METHOD}"
        ),
        hold="30m",
        keep="5m",
        summary="One engine accepts far less than its peers.",
        description=(
            f"{t.WHO['engine']} has accepted {t.this(t.NUMBER)} tokens per draft over "
            "the last hour, far fewer than the model's other engines do in drafts of "
            "that length."
        ),
        action=(
            "Compare its version, its draft model's checkpoint and its traffic with "
            "the others'. If they are the same, drain and restart it; if it is a "
            "canary, stop the rollout; the last pod of an old version goes by itself."
        ),
        value=t.this(t.NUMBER) + " accepted per draft",
        threshold=t.value(f"{least}{{ENGINE}}", t.NUMBER, "{}, which is ")
        + t.in_force(
            "outlier_ratio",
            t.PERCENT,
            "{} below the mean of its peers for drafts of its length",
        ),
        sample=t.drafts("1h", " of the model"),
        why=(
            "Compared with the sum of the others that are there now, which also works "
            "for two engines. All must have the same method. An engine that drafts "
            "nothing harms nobody, nor does one that accepted enough over the last "
            "quarter of an hour."
        ),
    )
