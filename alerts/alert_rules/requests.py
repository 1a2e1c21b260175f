"""Do single requests lose by speculation, and does their observation work?

A mean hides a minority, so these rules count requests by outcome. They are silent
without the exporter's tap or pushes.
"""

from collections.abc import Iterator

from . import series as s
from . import tap
from . import text as t
from .rule import Alert, Group, Record

#: Thresholds that only these rules compare with.
THRESHOLDS = ("minimum_requests", "poor_request_acceptance_ratio")

_OUTCOMES = "vllm_specdec_request_outcomes_total"
_P10 = 'vllm_specdec_request_acceptance_ratio_percentile{percentile="10"}'
#: From this share of losing requests on, P10 is of one that loses.
_TENTH = 0.1
#: Requests for which something was drafted, by outcome.
_BY_OUTCOME = "model:vllm_specdec_request_outcomes:rate30m"
_ALL = f"sum by ({s.MODEL}) ({_BY_OUTCOME})"
_LOSING = f'sum by ({s.MODEL}) ({_BY_OUTCOME}{{outcome="loses"}})'
_THRESHOLD = "model:vllm_specdec_request_threshold:min"


def groups() -> Iterator[Group]:
    """Yield the groups of the records, and those of the alerts."""
    yield Group(
        "vllm-specdec.requests.thresholds",
        (_thresholds(), tap.exporters()),
        s.LONG_INTERVAL,
    )
    yield Group("vllm-specdec.requests", (*_records(), _lose(), *tap.alerts()))
    yield Group(
        "vllm-specdec.requests.observed",
        (*tap.observed(), _unrecorded(), _rejected()),
        s.LONG_INTERVAL,
    )


def _thresholds() -> Record:
    models = (
        f"group by ({s.TARGET}, model_name) "
        f"(present_over_time({_OUTCOMES}[{s.LOOK_BACK}]))"
    )
    of_models = {
        name: (
            f"min by ({s.MODEL}) (\n"
            f"  {s.threshold_of_targets(name)}\n"
            f"  * on ({s.TARGET}) group_right ()\n"
            f"  {models}\n"
            ")"
        )
        for name in THRESHOLDS
    }
    return Record(
        _THRESHOLD,
        "\nor ".join(
            s.tagged(expr, "threshold", name) for name, expr in of_models.items()
        ),
        why=(
            "As the other thresholds, but for every model that requests name: an "
            "alias or an adapter has no vllm_specdec_info."
        ),
    )


def _records() -> Iterator[Record]:
    yield Record(
        _BY_OUTCOME,
        f"sum by ({s.MODEL}, outcome) (increase({_OUTCOMES}[30m])) / 1800",
        why="Requests with drafts, by outcome.",
    )
    yield from tap.records()


def _lose() -> Alert:
    tenth_percentile = f"min by ({s.MODEL}) (last_over_time({_P10}[{s.LOOK_BACK}]))"
    minimum, poor = (s.threshold(name, _THRESHOLD) for name in THRESHOLDS)
    enough = f"{_ALL} >= ignoring (threshold) ({minimum} / 1800)"
    of_model = f"{_BY_OUTCOME}{{MODEL}}"
    return Alert(
        name="RequestsLose",
        subject="acceptance",
        expr=(
            f"{s.rounded(f'{_LOSING} / ({enough})')} >= {_TENTH}\n"
            f"unless {tenth_percentile} >= ignoring (threshold) {poor}"
        ),
        hold="15m",
        keep="30m",
        summary="Some requests lose by speculation.",
        description=(
            f"{t.this(t.PERCENT)} of the requests of {t.WHO['model']} have lost by "
            "speculation over 30 minutes: too few of their draft tokens were accepted "
            "for it to pay, even if the mean is good."
        ),
        action=(
            "Find the losing types and temperatures with the query in the runbook; "
            "route them to replicas without speculation. Do not tune K by the mean if "
            "many requests gain: it describes neither."
        ),
        dashboard="requests",
        value=t.this(t.PERCENT) + " lose",
        threshold=f"{_TENTH:.0%} of the requests",
        sample=t.value(f"1800 * sum({of_model})", t.WHOLE, "{} requests in 30m"),
        context=t.value(
            f'sum({_BY_OUTCOME}{{outcome="gains",MODEL}}) / sum({of_model})',
            t.PERCENT,
            "{} of the requests gain",
        )
        + t.value(
            "model:vllm_specdec_acceptance:ratio_rate30m",
            t.PERCENT,
            ", {} of all draft tokens are accepted",
        ),
        why=(
            "The share of losing requests is exact; a P10 from histogram buckets "
            "would be an approximation. Over all replicas together, and also if "
            "speculation as a whole is beneficial, because a mean hides a minority. "
            "If poor_request_acceptance_ratio was lowered, the P10 of the exporters "
            "must be below it as well."
        ),
    )


def _unrecorded() -> Alert:
    observed = "vllm_specdec_request_observations_total"
    without, readable = (
        f'increase({observed}{{record{operator}"none|malformed"}}[1h])'
        for operator in ("=~", "!~")
    )
    return Alert(
        name="RequestsUnobserved",
        severity="info",
        subject="monitoring",
        level="instance",
        expr=(
            f"{s.plain(without, without='source, record')}\n"
            f">= on ({s.TARGET}) group_left () "
            f"{s.threshold_of_targets('minimum_requests')}\n"
            f"unless on ({s.TARGET}) {readable} > 0\n"
            f"and on ({s.TARGET}) (engine:vllm_specdec_drafts:rate1h > 0)"
        ),
        hold="30m",
        keep="1h",
        summary="Requests are observed, but no answer has a record of speculation.",
        description=(
            f"The exporter at {t.PLACE}{t.IN} has observed {t.this(t.WHOLE)} requests "
            "within an hour, and no answer had a usable record of speculation, though "
            "vLLM drafts. There is no data on single requests."
        ),
        action=(
            "Start vLLM (0.29 or newer) with --per-request-spec-decode-metrics "
            "summary or detailed; let streams set stream_options.include_usage, or "
            "start it with --enable-force-include-usage too."
        ),
        dashboard="requests",
        labels={"reason": "no_record"},
        value=t.this(t.WHOLE) + " requests in 1h, none with a record",
        threshold=t.value(
            'vllm_specdec_threshold{threshold="minimum_requests",TARGET}',
            t.COUNT,
            "none of {} requests or more",
        ),
    )


def _rejected() -> Alert:
    rejected = "increase(vllm_specdec_push_rejected_total[{}])"
    return Alert(
        name="RequestsUnobserved",
        severity="info",
        subject="monitoring",
        level="instance",
        expr=f"{rejected.format('1h')}\nand {rejected.format('10m')} > 0",
        hold="30m",
        keep="30m",
        summary="The exporter keeps rejecting pushed requests.",
        description=(
            f"The exporter at {t.PLACE}{t.IN} has rejected {t.this(t.WHOLE)} pushed "
            "requests within an hour, and continues: they are missing from the data "
            "on single requests."
        ),
        action=(
            "Read the reason in the responses to the pushing program, and fix its "
            "requests."
        ),
        dashboard="requests",
        labels={"reason": "push_rejected"},
        value=t.this(t.WHOLE) + " rejected in 1h",
        why="In every 10 minutes for half an hour, so one bad batch does not fire.",
    )
