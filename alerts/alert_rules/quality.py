"""Is acceptance good, and as good as before?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .rule import (
    COUNT,
    LOOK_BACK,
    MODEL,
    NUMBER,
    PERCENT,
    WHO,
    Alert,
    Group,
    Level,
    compare,
    drafts,
    enough,
    in_force,
    of_model,
    this,
    threshold,
    unless_it_pays,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = "model:vllm_specdec_mean_acceptance_length"
_ACCEPTANCE = "model:vllm_specdec_acceptance"
_K, _LEAST_K = (f"model:vllm_specdec_num_speculative_tokens:{which}" for which in ("max", "min"))
_K_OF: dict[Level, str] = {
    "model": _K,
    "engine": f"last_over_time(vllm_specdec_num_speculative_tokens[{LOOK_BACK}])",
}
_RETUNE = (
    "Follow the exporter's advice on K; if even the best K loses, switch the method or disable speculation."
)


def group() -> Group:
    """Return the group of alerts on the quality of acceptance."""
    return Group(
        "vllm-specdec.quality",
        (*_poor("model"), *_poor("engine"), _dropped(), _high(), _repetition(), _outlier(), _step()),
    )


def _poor(level: Level) -> Iterator[Alert]:

    def poor(
        name: str,
        series: str,
        limit: str,
        form: str,
        summary: str,
        measure: str,
        why: str = "",
        more: str = "",
    ) -> Alert:
        return Alert(
            name=name,
            severity="warning",
            subject="acceptance",
            level=level,
            expr=(
                f"{compare(level, series, '<', limit)}\n"
                f"and {enough(level, '30m')}\n"
                f"unless {unless_it_pays(level)}"
                f"{more}"
            ),
            hold="15m" if level == "model" else "30m",
            keep="30m",
            summary=summary,
            description=(
                f"{measure} of {WHO[level]} is {this(form)} over 30 minutes, and speculation is not known to be "
                "beneficial."
            ),
            action=_RETUNE,
            dashboard="acceptance",
            value=this(form),
            threshold=in_force(limit, form),
            sample=drafts("30m"),
            why=why if level == "model" else "",
        )

    yield poor(
        "MeanAcceptanceLengthLow",
        f"{level}:vllm_specdec_mean_acceptance_length:ratio_rate30m",
        "poor_mean_acceptance_length",
        NUMBER,
        "Mean acceptance length is poor.",
        "The mean acceptance length",
        "The published rubric, by method. Silent if speculation pays nevertheless.",
    )
    yield poor(
        "AcceptanceLow",
        f"{level}:vllm_specdec_acceptance:ratio_rate30m",
        "poor_acceptance_ratio",
        PERCENT,
        "The acceptance rate is poor.",
        "The acceptance rate",
    )
    first = f'sum without (position) ({level}:vllm_specdec_position_acceptance:ratio_rate30m{{position="0"}})'
    yield poor(
        "Position0Low",
        first,
        "poor_position_0_acceptance_ratio",
        PERCENT,
        "Even the first drafted token is often rejected.",
        "The acceptance rate of position 0",
        "The first position shows best how well drafter and target agree.",
    )
    yield poor(
        "RapidDecline",
        f"{level}:vllm_specdec_position_decay:ratio_rate30m",
        "poor_position_decay_ratio",
        PERCENT,
        "Acceptance declines rapidly from position to position.",
        "The mean conditional acceptance behind position 0",
        "Silent if drafts are shorter than K, as with n-gram or a schedule, because deep positions then read too low, and while positions of another K are in the window.",
        f"\nand {level}:vllm_specdec_draft_tokens:rate30m >= 0.95 * {level}:vllm_specdec_drafts:rate30m * {_K_OF[level]}"
        f"\nunless {_spread(_K_OF[level] if level == 'model' else 'vllm_specdec_num_speculative_tokens', '30m')} > 0",
    )


def _k_changed(window: str) -> str:
    """Return the condition that K changed on any engine of a model within a time, a rollout's beginning included."""
    return f"{_spread(_K, window)} + {_spread(_LEAST_K, window)} > 0"


def _spread(series: str, window: str) -> str:
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
        dashboard="acceptance",
        value=this(NUMBER),
        threshold=in_force("drop_ratio", PERCENT, "{} below the last hour and yesterday"),
        sample=drafts("5m"),
        why=(
            "Compared with the hour before and its deviation, the same time yesterday (the hours around it, and the "
            "hour after it) and a week ago, if there is data: a change every morning or every Monday is not a drop. Silent after a change of K, or "
            "if a schedule drafts less."
        ),
    )


def _high() -> Alert:
    return Alert(
        name="AcceptanceAbnormallyHigh",
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
        dashboard="acceptance",
        value=this(PERCENT) + " accepted",
        threshold=in_force("abnormal_acceptance_ratio", PERCENT),
        sample=drafts("30m"),
        labels={"reason": "acceptance"},
        why="Very high acceptance is a sign of repetition.",
    )


def _repetition() -> Alert:
    repeated = "model:vllm_repetitive_requests:increase30m"
    return Alert(
        name="AcceptanceAbnormallyHigh",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"({repeated} / (model:vllm_requests:increase30m > 0))\n"
            f"> {threshold('failed_request_ratio')}\n"
            f"and {compare('model', repeated, '>=', 'measurement_minimum_requests')}\n"
            f"and {enough('model', '30m')}"
        ),
        hold="10m",
        keep="30m",
        summary="vLLM ends many answers because they repeat themselves.",
        description=(
            f"{this(PERCENT)} of the requests of {WHO['model']} ended as repetition in the last 30 minutes."
        ),
        action="Read some answers, and check sampling penalties and the chat template; K is not the cause.",
        dashboard="acceptance",
        value=this(PERCENT) + " of the requests",
        threshold=in_force("failed_request_ratio", PERCENT),
        sample=of_model("model:vllm_requests:increase30m", COUNT, "{} requests in 30m"),
        labels={"reason": "repetition"},
        why="Some versions of vLLM count answers that they stopped for repetition.",
    )


def _outlier() -> Alert:
    own, peers = (f"engine:vllm_specdec_{who}mean_acceptance_length:ratio_rate1h" for who in ("", "peers_"))
    return Alert(
        name="EngineOutlier",
        severity="warning",
        subject="acceptance",
        level="engine",
        expr=(
            f"({own} - 1) < ({peers} - 1) * on ({MODEL}) group_left () (1 - {threshold('outlier_ratio')})\n"
            f"and {enough('engine', '1h', 'comparison_minimum_drafts')}\n"
            f"and ({compare('engine', 'engine:vllm_specdec_peers_drafts:increase1h', '>=', 'comparison_minimum_drafts')})\n"
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
        dashboard="acceptance",
        value=this(NUMBER) + " accepted per draft",
        threshold=in_force("outlier_ratio", PERCENT, "{} below its peers"),
        sample=drafts("1h", " of the model"),
        why="Compared with the sum of the others, which also works for two engines. All must have the same K and method.",
    )


def _step() -> Alert:
    now = f"{_ACCEPTANCE}:ratio_rate1h"
    look = LOOK_BACK
    return Alert(
        name="AcceptanceStep",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"({_ACCEPTANCE}:ratio_rate6h offset 2h) - {now} > "
            f"{threshold('step_acceptance_ratio')}\n"
            f"unless (({now} offset 1d) - {now} <= "
            f"{threshold('step_acceptance_ratio')})\n"
            f"and (\n"
            f"  count by ({MODEL}) (last_over_time(vllm_specdec_info[{look}]) unless (vllm_specdec_info offset 2h))\n"
            f"  or sum by ({MODEL}) (resets(vllm_specdec_generation_tokens_total[2h])) > 0\n"
            ")\n"
            f"and {enough('model', '1h', 'comparison_minimum_drafts')}\n"
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
        dashboard="acceptance",
        value=f"{this(PERCENT)} lower",
        threshold=in_force("step_acceptance_ratio", PERCENT),
        sample=drafts("1h"),
        why=(
            "The published figure: 5 points against the unquantized baseline. Compared with the hours before the restart, "
            "and the same time yesterday if there is data."
        ),
    )
