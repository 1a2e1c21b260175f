"""Is acceptance good, and as good as before?"""

from __future__ import annotations

from .rule import (
    COUNT,
    ENOUGH_1H,
    LONG_INTERVAL,
    LOOK_BACK,
    MODEL,
    NUMBER,
    PERCENT,
    RESTARTS,
    UNLESS_IT_PAYS,
    WHO,
    Alert,
    Group,
    Promise,
    cause,
    compare,
    drafts,
    enough,
    in_force,
    of_model,
    this,
    threshold,
)

_LENGTH = "model:vllm_specdec_mean_acceptance_length"
_ACCEPTANCE = "model:vllm_specdec_acceptance"
_FIRST = 'sum without (position) (model:vllm_specdec_position_acceptance:ratio_rate30m{position="0"})'
_DECAY = "model:vllm_specdec_position_decay:ratio_rate30m"
_K, _LEAST_K = (f"model:vllm_specdec_num_speculative_tokens:{which}" for which in ("max", "min"))
#: Drafts of an engine's peers in an hour.
_PEERS = f"-3600 * (engine:vllm_specdec_drafts:rate1h - on ({MODEL}) group_left () model:vllm_specdec_drafts:rate1h)"
_RETUNE = (
    "Follow the exporter's advice on K; if even the best K loses, switch the method or disable speculation."
)


def groups() -> tuple[Group, ...]:
    """Return the groups of alerts on the quality of acceptance: of minutes, and of half an hour to days."""
    return (
        Group("vllm-specdec.quality", (_dropped(),)),
        Group(
            "vllm-specdec.quality.long",
            (_poor(), _high(), _outlier(), _step(), _decayed(), _decayed_with_uptime()),
            LONG_INTERVAL,
        ),
    )


def _poor() -> Alert:
    #: Which measure is poor; each is the published rubric, by method.
    measures = (
        (f"{_LENGTH}:ratio_rate30m", "poor_mean_acceptance_length", NUMBER, "mean acceptance length {}"),
        (f"{_ACCEPTANCE}:ratio_rate30m", "poor_acceptance_ratio", PERCENT, ", {} accepted"),
        (_FIRST, "poor_position_0_acceptance_ratio", PERCENT, ", {} at position 0"),
        (_DECAY, "poor_position_decay_ratio", PERCENT, ", {} from position to position"),
    )
    poor = [compare("model", series, "<", limit) for series, limit, _, _ in measures]
    shown = (
        cause(_FIRST.replace('"0"}', '"0",MODEL}'), form, words)
        if series == _FIRST
        else of_model(series, form, words)
        for series, _, form, words in measures
    )
    full = (
        "model:vllm_specdec_draft_tokens:rate30m >= 0.95 * model:vllm_specdec_drafts:rate30m * "
        f"{_K}\n    unless {_range(_K, '30m')} > 0"
    )
    return Alert(
        name="AcceptanceLow",
        promise=Promise("Is enough accepted?", "poor-draft-model", "poor-and-beneficial"),
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            "(\n  " + "\n  or\n  ".join([*poor[:3], f"({poor[3]}\n    and {full})"]) + "\n)\n"
            f"and {enough('model', '30m')}\n"
            f"{UNLESS_IT_PAYS}"
        ),
        hold="15m",
        keep="1h",
        summary="Acceptance is poor.",
        description=(
            f"Over 30 minutes few draft tokens of {WHO['model']} are accepted, and speculation is not known to be "
            "beneficial."
        ),
        action=_RETUNE,
        dashboard="deep-dive",
        value="".join(shown),
        threshold="".join(in_force(limit, form, words) for _, limit, form, words in measures),
        sample=drafts("30m"),
        why=(
            "The published rubric, by method. The first position shows best how well drafter and target agree. The decline is "
            "left out if drafts are shorter than K, as with n-gram or a schedule, and while positions of another K are in the "
            "window. Silent if speculation pays nevertheless."
        ),
    )


def _k_changed(window: str) -> str:
    """Return the condition that K changed on any engine of a model within a time, a rollout's beginning included."""
    return f"{_range(_K, window)} + {_range(_LEAST_K, window)} > 0"


def _range(series: str, window: str) -> str:
    """Return the range of a series. Not `changes`: VictoriaMetrics counts the birth of a series as one."""
    return f"max_over_time({series}[{window}]) - min_over_time({series}[{window}])"


def _length(window: str, offset: str = "") -> str:
    """Return the mean draft length of a model."""
    back = f" offset {offset}" if offset else ""
    return f"model:vllm_specdec_draft_tokens:rate{window}{back} / (model:vllm_specdec_drafts:rate{window}{back} > 0)"


def _dropped() -> Alert:
    now, hour = f"{_LENGTH}:ratio_rate5m", f"({_LENGTH}:ratio_rate1h offset 10m)"
    return Alert(
        name="AcceptanceDropped",
        promise=Promise("Is as much accepted as before?", "sudden-drop", "swings-as-ever"),
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"{now} < (1 - {threshold('drop_ratio')}) * {hour}\n"
            f"and ({now} < {hour} - 3 * "
            f"stddev_over_time({now}[1h] offset 10m))\n"
            f"unless ({now} >= (1 - {threshold('drop_ratio')}) "
            f"* ({_LENGTH}:ratio_rate6h offset 21h))\n"
            f"unless ({now} >= (1 - {threshold('drop_ratio')}) * ({_LENGTH}:ratio_rate1h offset 23h))\n"
            f"unless ({now} >= (1 - {threshold('drop_ratio')}) * ({_LENGTH}:ratio_rate6h offset 165h))\n"
            f"and {enough('model', '5m')}\n"
            f"and {enough('model', '1h', offset='10m')}\n"
            f"unless {_k_changed('70m')}\n"
            f"and {_length('5m')} >= 0.95 * ({_length('1h', '10m')})"
        ),
        hold="5m",
        keep="1h",
        summary="Mean acceptance length has suddenly dropped.",
        description=(
            f"The mean acceptance length of {WHO['model']} fell to {this(NUMBER)} within minutes: more than three "
            "deviations below the hour before, and below yesterday at this time."
        ),
        action=(
            "Look for what changed within the last minutes: a release, the traffic (temperature, prompts, language), "
            "one replica. Then retune K or switch the method."
        ),
        dashboard="deep-dive",
        value=this(NUMBER),
        threshold=in_force("drop_ratio", PERCENT, "{} below the last hour and yesterday"),
        sample=drafts("5m"),
        labels={"against": "hour"},
        why=(
            "Compared with the hour before and its deviation, the same time yesterday (the hours around it, and the "
            "hour after it) and a week ago, if there is data: a change every morning or every Monday is not a drop. Silent after a change of K, or "
            "if a schedule drafts less."
        ),
    )


def _high() -> Alert:
    return Alert(
        name="AcceptanceAbnormallyHigh",
        promise=Promise(
            "Do answers repeat themselves?", "repetition-loops", "two-thirds-accepted-repeat-nothing"
        ),
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"{compare('model', f'{_ACCEPTANCE}:ratio_rate30m', '>', 'abnormal_acceptance_ratio')}\n"
            f"and {enough('model', '30m')}"
        ),
        hold="10m",
        keep="30m",
        summary="Acceptance is abnormally high: answers may repeat themselves.",
        description=(
            f"{WHO['model']} accepts {this(PERCENT)} of its draft tokens. Text is rarely that predictable; repetition is."
        ),
        action="Read some answers. If they loop, check sampling penalties and the chat template; K is not the cause.",
        dashboard="deep-dive",
        value=this(PERCENT) + " accepted",
        threshold=in_force("abnormal_acceptance_ratio", PERCENT),
        sample=drafts("30m"),
        context=cause(
            'sum(increase(«vllm»request_success_total{finished_reason="repetition",MODEL}[30m])) > 0',
            COUNT,
            "vLLM ended {} answers in 30m because they repeat themselves",
        ),
        why="Very high acceptance is a sign of repetition.",
    )


def _outlier() -> Alert:
    own, peers = (f"engine:vllm_specdec_{who}mean_acceptance_length:ratio_rate1h" for who in ("", "peers_"))
    return Alert(
        name="EngineOutlier",
        promise=Promise("Is one engine worse than its peers?", "one-replica-worse", "an-outlier-by-its-k"),
        severity="warning",
        subject="acceptance",
        level="engine",
        expr=(
            f"({own} - 1) < ({peers} - 1) * on ({MODEL}) group_left () (1 - {threshold('outlier_ratio')})\n"
            f"and {enough('engine', '1h', 'comparison_minimum_drafts')}\n"
            f"and ({compare('engine', _PEERS, '>=', 'comparison_minimum_drafts')})\n"
            f"and last_over_time(vllm_specdec_num_speculative_tokens[{LOOK_BACK}])\n"
            f"and on ({MODEL}) ({_K} == {_LEAST_K})\n"
            f"and on ({MODEL}) (count by ({MODEL}) (count by ({MODEL}, method) "
            f"(last_over_time(vllm_specdec_info[{LOOK_BACK}]))) == 1)\n"
            f"unless on ({MODEL}) ({_k_changed('70m')})"
        ),
        hold="30m",
        keep="1h",
        summary="One engine accepts far less than its peers.",
        description=(
            f"{WHO['engine']} has {this(NUMBER)} tokens accepted per draft over the last hour, far fewer than the "
            "model's other engines."
        ),
        action=(
            "Compare its version, its draft model's checkpoint and its traffic with the others'; drain and restart it."
        ),
        dashboard="deep-dive",
        value=this(NUMBER) + " accepted per draft",
        threshold=in_force("outlier_ratio", PERCENT, "{} below its peers"),
        sample=drafts("1h", " of the model"),
        why="Compared with the sum of the others, which also works for two engines. All must have the same K and method.",
    )


def _step() -> Alert:
    now = f"{_ACCEPTANCE}:ratio_rate1h"
    return Alert(
        name="AcceptanceDropped",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"({_ACCEPTANCE}:ratio_rate6h offset 2h) - {now} > "
            f"{threshold('step_acceptance_ratio')}\n"
            f"unless (({now} offset 1d) - {now} <= {threshold('step_acceptance_ratio')})\n"
            f"unless (({now} offset 7d) - {now} <= {threshold('step_acceptance_ratio')})\n"
            f"and {RESTARTS}\n"
            f"unless last_over_time({RESTARTS}[4h] offset 2h)\n"
            f"and {ENOUGH_1H}\n"
            f"and {enough('model', '6h', 'comparison_minimum_drafts', offset='2h')}\n"
            f"unless {_k_changed('8h')}"
        ),
        hold="15m",
        keep="2h",
        summary="Acceptance has been lower since a restart, as after quantization.",
        description=(
            f"Since a restart within the last 2 hours, the acceptance rate of {WHO['model']} is {this(PERCENT)} (in "
            "points) lower than before, at the same K. A quantized target or another checkpoint has this effect."
        ),
        action="Compare the build with the one before: quantization, checkpoint of target or drafter, vLLM's version.",
        dashboard="deep-dive",
        value=f"{this(PERCENT)} lower",
        threshold=in_force("step_acceptance_ratio", PERCENT),
        sample=drafts("1h"),
        labels={"against": "restart"},
        why=(
            "The published figure: 5 points against the unquantized baseline. Compared with the hours before the restart, "
            "the same time yesterday and a week ago if there is data. Silent if there were restarts in the hours before as well, "
            "as under an autoscaler: then a restart explains nothing."
        ),
    )


def _decayed() -> Alert:
    accepted, drafted = (f"model:vllm_specdec_{counter}:rate1d" for counter in ("accepted_tokens", "drafts"))
    day = f"(1 + {accepted} / ({drafted} > 0))"
    told = 'ALERTS{alertname="VLLMSpecDecodeAcceptanceDropped", alertstate="firing", against!="days"}'
    fall = f"(1 - {threshold('drop_ratio')})"

    def ago(days: int) -> str:
        offset = f" offset {days}d" if days else ""
        return cause(
            f"1 + {accepted}{{MODEL}}{offset} / {drafted}{{MODEL}}{offset}",
            NUMBER,
            f"{{}} (to {days}d ago), " if days else "{} now",
        )

    return Alert(
        name="AcceptanceDropped",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"{day} < {fall} * max_over_time({day}[7d:3h])\n"
            f"unless ({day} >= {fall} * (1 + ({accepted} offset 7d) / (({drafted} offset 7d) > 0)))\n"
            f"unless on ({MODEL}) count_over_time({told}[7d])\n"
            f"unless {_k_changed('7d')}\n"
            f"and {enough('model', '1d', 'comparison_minimum_drafts')}"
        ),
        hold="1h",
        keep="6h",
        summary="Acceptance has decayed over days.",
        description=(
            f"The mean acceptance length of {WHO['model']} has fallen, day by day, to {this(NUMBER)} over the last day: no moment "
            "stands out."
        ),
        action=(
            "Compare the traffic of these days (language, prompts, temperature, length). If it has changed for good, train or "
            "choose the drafter for it, or take the K that the exporter advises now."
        ),
        dashboard="deep-dive",
        value=this(NUMBER),
        threshold=in_force(
            "drop_ratio", PERCENT, "{} below the best day of the last week, and the same weekday"
        ),
        sample=drafts("1d"),
        context="mean acceptance length by day " + ago(3) + ago(2) + ago(1) + ago(0),
        labels={"against": "days"},
        why=(
            "Means of days, so that no hour of the day matters. Silent if another rule of this "
            "name has told of the fall, or if this weekday was like that a week ago."
        ),
    )


def _decayed_with_uptime() -> Alert:
    lost = f"last_over_time(vllm_specdec_uptime_decay_ratio[{LOOK_BACK}])"
    return Alert(
        name="AcceptanceDropped",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=f"max by ({MODEL}) ({lost}) > 0",
        hold="10m",
        keep="6h",
        summary="Acceptance decays with uptime.",
        description=(
            f"Within hours, an engine of {WHO['model']} has lost {this(PERCENT)} of its mean acceptance length little by little, "
            "at the same K, load and context."
        ),
        action="Restart the server at a quiet time. If the length does not return, the traffic has changed.",
        dashboard="deep-dive",
        value=this(PERCENT),
        context=cause(f"count({lost.replace('[', '{MODEL}[')} > 0)", COUNT, "engines that have decayed: {}"),
        labels={"against": "uptime"},
        why=(
            "The exporter compares two hours of an engine with its first two, and reports a fall of 5 % or more that no single "
            "hour explains; hours of another load change nothing."
        ),
    )
