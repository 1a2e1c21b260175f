"""Do single requests lose by speculation, and does their observation work?

A mean hides a minority, so these rules count requests by outcome. They are silent without the
exporter's tap or pushes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import tap
from .rule import (
    COUNT,
    IN,
    LOOK_BACK,
    MODEL,
    PERCENT,
    PLACE,
    TARGET,
    WHO,
    Alert,
    Group,
    Record,
    compare,
    in_force,
    of_model,
    of_target,
    this,
    threshold,
    threshold_of_targets,
    thresholds_of_models,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Thresholds that only these rules compare with.
THRESHOLDS = ("minimum_requests", "poor_request_acceptance_ratio", "mixed_requests_ratio")

_OUTCOMES = "vllm_specdec_request_outcomes_total"
_P10 = 'vllm_specdec_request_acceptance_ratio_percentile{percentile="10"}'
_OF_TYPE = f"{MODEL}, request_type"
#: From this share of losing requests on, P10 is of one that loses.
_TENTH = 0.1
#: Requests for which something was drafted: by outcome, by type and outcome, and by type.
_BY_OUTCOME = "model:vllm_specdec_request_outcomes:rate30m"
_BY_TYPE = "model:vllm_specdec_request_type_outcomes:rate30m"
_OF_TYPE_COUNT = "model:vllm_specdec_request_type_outcomes:increase30m"
_COUNT = "model:vllm_specdec_request_outcomes:increase30m"
_LOSING, _GAINING = (f"model:vllm_specdec_{which}_requests:ratio_rate30m" for which in ("losing", "gaining"))

_ENOUGH = compare("model", _COUNT, ">=", "minimum_requests")
_SAMPLE = of_model(_COUNT, COUNT, "{} requests in 30m")
_MEAN = "{} of all draft tokens are accepted"


def groups() -> Iterator[Group]:
    """Yield the group of the records, and that of the alerts."""
    yield Group("vllm-specdec.requests.rates", tuple(_records()))
    yield Group(
        "vllm-specdec.requests",
        (_lose(), _mixed(), _type_loses(), *tap.alerts(), _unrecorded(), _rejected()),
    )


def _records() -> Iterator[Record]:
    why = (
        "As the other thresholds, but for every model that requests name: an alias or an adapter has no "
        "vllm_specdec_info."
    )
    seen = f"group by ({TARGET}, model_name) (present_over_time({_OUTCOMES}[{LOOK_BACK}]))"
    yield from thresholds_of_models(THRESHOLDS, seen, why)
    yield Record(
        _BY_TYPE,
        f"sum by ({_OF_TYPE}, outcome) (rate({_OUTCOMES}[30m]))",
        why="Requests with drafts, by outcome.",
    )
    yield Record(_BY_OUTCOME, f"sum by ({MODEL}, outcome) ({_BY_TYPE})")
    yield Record(
        _OF_TYPE_COUNT,
        f"sum by ({_OF_TYPE}) (increase({_OUTCOMES}[30m]))",
        why="The sample of the shares.",
    )
    yield Record(_COUNT, f"sum by ({MODEL}) ({_OF_TYPE_COUNT})")
    for series, outcome in ((_LOSING, "loses"), (_GAINING, "gains")):
        yield Record(
            series,
            f'sum by ({MODEL}) ({_BY_OUTCOME}{{outcome="{outcome}"}}) / (sum by ({MODEL}) ({_BY_OUTCOME}) > 0)',
        )
    yield Record(
        "model:vllm_specdec_losing_requests_of_type:ratio_rate30m",
        f'sum by ({_OF_TYPE}) ({_BY_TYPE}{{outcome="loses"}}) / (sum by ({_OF_TYPE}) ({_BY_TYPE}) > 0)',
    )
    yield from tap.records()


def _mean(words: str = _MEAN) -> str:
    """Return the template of the model's acceptance rate."""
    return of_model("model:vllm_specdec_acceptance:ratio_rate30m", PERCENT, words)


def _lose() -> Alert:
    own = f"min by ({MODEL}) (last_over_time({_P10}[{LOOK_BACK}]))"
    return Alert(
        name="RequestsLose",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"{_LOSING} >= {_TENTH}\n"
            f"and {_ENOUGH}\n"
            f"unless {compare('model', own, '>=', 'poor_request_acceptance_ratio')}"
        ),
        hold="15m",
        keep="30m",
        summary="Some requests lose by speculation.",
        description=(
            f"{this(PERCENT)} of the requests of {WHO['model']} have lost by speculation over 30 minutes: too few of "
            "their draft tokens were accepted for it to pay, even if the mean is good."
        ),
        action="Find out which requests lose, by type and temperature, and route them to replicas without speculation.",
        dashboard="requests",
        value=this(PERCENT) + " lose",
        threshold=f"{_TENTH:.0%} of the requests",
        sample=_SAMPLE,
        context=of_model(_GAINING, PERCENT, "{} of the requests gain") + _mean(f", {_MEAN}"),
        why=(
            "The share of losing requests is exact; a P10 from histogram buckets would be an approximation. Over all replicas "
            "together, and also if speculation as a whole is beneficial, because a mean hides a minority. If "
            "poor_request_acceptance_ratio was lowered, the P10 of the exporters must be below it as well."
        ),
    )


def _mixed() -> Alert:
    limit = "mixed_requests_ratio"
    return Alert(
        name="MixedWorkload",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f"{compare('model', _LOSING, '>=', limit)}\n"
            f"and ({compare('model', _GAINING, '>=', limit)})\n"
            f"and {_ENOUGH}"
        ),
        hold="30m",
        keep="1h",
        summary="Some requests gain by speculation and some lose, so no mean describes them.",
        description=(
            f"{this(PERCENT)} of the requests of {WHO['model']} lose by speculation"
            + of_model(_GAINING, PERCENT, ", and {} gain")
            + ", over 30 minutes. The acceptance rate is a mean of both and describes neither."
        ),
        action=(
            "Find the losing types with the query in the runbook; route them to replicas without speculation, "
            "and keep it for the rest."
        ),
        dashboard="requests",
        value=this(PERCENT) + " lose" + of_model(_GAINING, PERCENT, ", {} gain"),
        threshold=in_force(limit, PERCENT, "{} each"),
        sample=_SAMPLE,
        context=_mean(),
        why="Another K or method helps one group at the cost of the other, so do not tune by the mean.",
    )


def _type_loses() -> Alert:
    losing = "model:vllm_specdec_losing_requests_of_type:ratio_rate30m"
    return Alert(
        name="RequestTypeLoses",
        severity="warning",
        subject="acceptance",
        level="model",
        expr=(
            f'{losing}{{request_type!="other"}} > 0.5\n'
            f"and ({_OF_TYPE_COUNT} >= on ({MODEL}) group_left () {threshold('minimum_requests')})\n"
            f"unless on ({MODEL}) ({_LOSING} > 0.5)"
        ),
        hold="1h",
        keep="2h",
        summary="Most requests of one type lose by speculation, though the others do not.",
        description=(
            f"{this(PERCENT)} of the requests of type {{{{ $labels.request_type }}}} of {WHO['model']} have lost by "
            "speculation for an hour; most of its other requests have not."
        ),
        action="Route requests of type {{ $labels.request_type }} to replicas without speculation.",
        dashboard="requests",
        value=this(PERCENT) + " of type {{ $labels.request_type }} lose",
        threshold="50% of a type, and not of the model",
        sample=_of_type(),
        context=of_model(_LOSING, PERCENT, "{} of all requests lose") + _mean(f", {_MEAN}"),
        why=(
            "More than half of a type but not of the whole model: then the type can be routed away, and the rest "
            "gains. Requests without a type cannot be routed by it."
        ),
    )


def _of_type() -> str:
    """Return the template of the number of requests of the alert's type."""
    matchers = "cluster=%q,namespace=%q,model_name=%q,request_type=%q"
    labels = "$labels.cluster $labels.namespace $labels.model_name $labels.request_type"
    return (
        f'{{{{ with printf "{_OF_TYPE_COUNT}{{{matchers}}}" {labels} | query }}}}'
        f"{{{{ . | first | value | {COUNT} }}}} requests of it in 30m{{{{ end }}}}"
    )


def _unrecorded() -> Alert:
    without, readable = (
        f'increase(vllm_specdec_request_observations_total{{record{operator}"none|malformed"}}[1h])'
        for operator in ("=~", "!~")
    )
    return Alert(
        name="RequestsUnrecorded",
        severity="info",
        subject="monitoring",
        level="instance",
        expr=(
            f"sum without (source, record) ({without})\n"
            f">= on ({TARGET}) group_left () {threshold_of_targets('minimum_requests')}\n"
            f"unless on ({TARGET}) (sum by ({TARGET}) ({readable}) > 0)\n"
            f"and on ({TARGET}) (sum by ({TARGET}) (increase(vllm_specdec_drafts_total[1h])) > 0)"
        ),
        hold="30m",
        keep="1h",
        summary="Requests are observed, but no answer has a record of speculation.",
        description=(
            "The exporter at "
            + PLACE
            + IN
            + f" has observed {this(COUNT)} requests within an hour, and no answer had a usable record of speculation, "
            "though vLLM drafts. There is no data on single requests."
        ),
        action=(
            "Start vLLM (0.29 or newer) with --per-request-spec-decode-metrics summary or detailed; let streams set "
            "stream_options.include_usage, or set --tap.ask-for-usage true."
        ),
        dashboard="requests",
        value=this(COUNT) + " requests in 1h, none with a record",
        threshold=of_target(
            'vllm_specdec_threshold{name="minimum_requests",TARGET}', COUNT, "none of {} requests or more"
        ),
    )


def _rejected() -> Alert:
    rejected = "increase(vllm_specdec_push_rejected_total[{}])"
    return Alert(
        name="ObservationsRejected",
        severity="info",
        subject="monitoring",
        level="instance",
        expr=f"{rejected.format('1h')}\nand {rejected.format('10m')} > 0",
        hold="30m",
        keep="30m",
        summary="The exporter keeps rejecting pushed requests.",
        description=(
            "The exporter at "
            + PLACE
            + IN
            + f" has rejected {this(COUNT)} pushed requests within an hour, and continues: they are missing from the data "
            "on single requests."
        ),
        action="Read the reason in the responses to the pushing program, and fix its requests.",
        dashboard="requests",
        value=this(COUNT) + " rejected in 1h",
        why="In every 10 minutes for half an hour, so one bad batch does not fire.",
    )
