"""Does the tap work: can clients connect, does it reach vLLM, and can it read requests?

A failing tap is an outage that vLLM's own metrics do not show, so refused clients page.
"""

from collections.abc import Iterator

from . import series as s
from . import text as t
from .rule import Alert, Record

#: Connections that the tap did not get, each of which a client was told by a 502.
_NOT_CONNECTED = "vllm_specdec_tap_upstream_errors_total"
_UNOBSERVED = "vllm_specdec_tap_unobserved_total"
#: Requests that nobody could have observed: the client left, or vLLM answered with an
#: error.
_NOTHING_TO_SEE = "aborted|refused"
#: Requests for text that had an answer to look at: those that could not be looked at,
#: and all.
_LOST = s.plain(
    f'increase({_UNOBSERVED}{{reason!~"{_NOTHING_TO_SEE}"}}[30m])', without="reason"
)
_ALL = "instance:vllm_specdec_tap_text_requests:increase30m"


_TAP, _TAPS = (
    f"instance:vllm_specdec_tap:{operation}" for operation in ("info", "last6h")
)
#: The share of its requests that a tap could not connect for, where it is too high.
_UNCONNECTED = "instance:vllm_specdec_tap_unconnected:ratio_rate5m"
#: From this share of failing taps on, it pages.
_PAGED_SHARE = 0.5
_LIMIT = "failed_request_ratio"
#: The threshold of the share of requests that the tap may fail to read.
UNRECORDED = "unrecorded_requests_ratio"
_WHY = {
    "down": (
        "The share of the replicas that clients are sent to: one of many is a ticket, "
        "and a removed target is none of them."
    ),
    "not_listening": (
        "With --startup.on-error=wait the exporter continues without the port and "
        "retries; otherwise it exits. A terminating tap does not listen either; that "
        "takes longer than this only with a longer --tap.drain-timeout."
    ),
    "upstream": (
        "While a model loads, its metrics fail as well. Silent until they have "
        "answered for 5 minutes, so that earlier refusals have left the window. An "
        "exporter of several servers must read them all, because the tap's is not "
        "known."
    ),
}


def exporters() -> Record:
    """Return the record of taps, which come and go with exporters."""
    return Record(
        _TAP,
        f"group by ({s.TARGET}, model_name) "
        f"(last_over_time(vllm_specdec_info[{s.LOOK_BACK}]))\n"
        f"and on ({s.TARGET}) "
        f"last_over_time(vllm_specdec_tap_listening[{s.LOOK_BACK}])",
        why="Which exporters have a tap, and for which model.",
    )


def records() -> Iterator[Record]:
    """Yield the records of the alerts."""
    yield Record(
        _TAPS,
        f"last_over_time({_TAP}[6h])\n"
        f"* on ({s.TARGET}) group_left () max by ({s.TARGET}) ({s.UP})",
        why=(
            "1 while the tap's exporter answers Prometheus, 0 while it does not. Also "
            "of a tap that has failed since; a removed target has no up."
        ),
    )
    yield Record(
        _UNCONNECTED,
        _unconnected(),
        why="The share of requests without a connection, where it is too high.",
    )
    observed = s.plain(
        'increase(vllm_specdec_request_observations_total{source="tap"}[30m])',
        without="source, record",
    )
    yield Record(
        _ALL,
        f"{_LOST}\n+ {observed}",
        why=(
            "Text requests through a tap that had an answer. Requests that the client "
            "aborted or vLLM refused have none, so they do not count."
        ),
    )


def alerts() -> tuple[Alert, ...]:
    """Return the alerts on the tap."""
    deaf = "max_over_time(vllm_specdec_tap_listening[2m]) == 0"
    return (
        _page(
            "down",
            f"{_TAPS} == 0",
            hold="3m",
            keep="2m",
            symptom="do not answer Prometheus",
        ),
        _page("not_listening", deaf, hold="5m", keep="5m", symptom="do not listen"),
        _page(
            "upstream",
            _UNCONNECTED,
            hold="5m",
            keep="10m",
            symptom="often fail to connect to a vLLM that is up",
        ),
        _ticket(
            "not_listening",
            deaf,
            "The tap of the exporter at "
            + t.PLACE
            + t.IN
            + " does not listen: its clients are refused.",
            "Free the tap's port, or give --tap.listen-address another one.",
            value="not listening",
        ),
        _ticket(
            "upstream",
            s.rounded(_UNCONNECTED),
            (
                f"The tap of the exporter at {t.PLACE}{t.IN} has failed to connect to "
                f"vLLM for {t.this(t.PERCENT)} of its requests over 5 minutes, and "
                "answered them with an error of its own. vLLM itself is up: the "
                "exporter reads its metrics."
            ),
            "Compare --tap.upstream with the address that vLLM listens on.",
            value=t.this(t.PERCENT) + " of the requests",
            threshold=t.value(
                f'vllm_specdec_threshold{{threshold="{_LIMIT}",TARGET}}', t.PERCENT
            ),
            sample=t.value(
                f"sum(increase({_NOT_CONNECTED}{{TARGET}}[5m]))",
                t.WHOLE,
                "{} failed to connect in 5m",
            ),
        ),
    )


def observed() -> tuple[Alert, ...]:
    """Return the alerts on requests that the tap cannot read."""
    return _blind(), _defect()


def _unconnected() -> str:
    """Return what `_UNCONNECTED` is."""
    failed = s.plain(f"increase({_NOT_CONNECTED}[5m])", without="reason")
    requests = s.plain("increase(vllm_specdec_tap_requests_total[5m])")
    return (
        f"({failed} / (({failed} + {requests}) > 0))\n"
        f"> on ({s.TARGET}) group_left () {s.threshold_of_targets(_LIMIT)}\n"
        f"and on ({s.TARGET}) (min by ({s.TARGET}) "
        f"(min_over_time({s.READS}[5m])) == 1)"
    )


def _page(reason: str, failing: str, hold: str, keep: str, symptom: str) -> Alert:
    get = {"down": "probably get", "upstream": "often get"}.get(reason, "get")
    return Alert(
        name="TapFailing",
        severity="critical",
        subject="errors",
        expr=(
            f"round(count by ({s.MODEL}) ({_TAPS} and on ({s.TARGET}) (\n{failing}\n"
            "))\n"
            f"/ count by ({s.MODEL}) ({_TAPS}), 0.01) >= {_PAGED_SHARE}"
        ),
        hold=hold,
        keep=keep,
        summary=f"Half or more of the taps of a model {symptom}: clients {get} errors.",
        description=(
            f"{t.this(t.PERCENT)} of the taps of {t.WHO['model']} {symptom}. Clients "
            f"that are sent to them {get} errors, though vLLM may be healthy and its "
            "pods ready."
        ),
        action=(
            "Send the traffic to vLLM's own port; then look at the exporters' log, "
            "--tap.listen-address and --tap.upstream."
        ),
        labels={"reason": reason},
        value=t.this(t.PERCENT) + " of the taps",
        threshold=f"{_PAGED_SHARE:.0%}",
        sample=t.value(f"count({_TAPS}{{MODEL}})", t.COUNT, "taps: {}"),
        why=_WHY[reason],
    )


def _ticket(
    reason: str,
    expr: str,
    description: str,
    action: str,
    value: str,
    threshold: str = "",
    sample: str = "",
) -> Alert:
    return Alert(
        name="TapFailing",
        subject="errors",
        level="instance",
        expr=expr,
        hold="10m",
        keep="10m",
        summary="A tap fails: its clients get errors.",
        description=description,
        action=(
            "Take the pod out of service, or send its traffic to vLLM's own port. "
            f"{action}"
        ),
        labels={"reason": reason},
        value=value,
        threshold=threshold,
        sample=sample,
        why="One tap of several: a ticket. One that does not answer has ExporterDown.",
    )


def _blind() -> Alert:
    return Alert(
        name="RequestsUnobserved",
        subject="monitoring",
        level="instance",
        expr=(
            f"{s.rounded(f'{_LOST} / {_ALL}')}\n"
            f">= on ({s.TARGET}) group_left () {s.threshold_of_targets(UNRECORDED)}\n"
            f"and {_ALL} >= on ({s.TARGET}) group_left () "
            f"{s.threshold_of_targets('minimum_requests')}"
        ),
        hold="30m",
        keep="1h",
        summary="The tap cannot read many of the requests that it relays.",
        description=(
            f"The tap of the exporter at {t.PLACE}{t.IN} could not read "
            f"{t.this(t.PERCENT)} of the text requests over 30 minutes. They reached "
            "vLLM and were answered, but they are missing from the data on single "
            "requests."
        ),
        action=(
            "Follow the runbook for the label reason; most causes are client settings "
            "or proxies."
        ),
        labels={"reason": "not_read"},
        dashboard="requests",
        value=t.this(t.PERCENT) + " of the requests",
        threshold=t.value(
            f'vllm_specdec_threshold{{threshold="{UNRECORDED}",TARGET}}', t.PERCENT
        ),
        sample=t.value(f"{_ALL}{{TARGET}}", t.WHOLE, "{} requests for text in 30m"),
        why=(
            "The reason no_record does not cover this: it counts only observed "
            "requests."
        ),
    )


def _defect() -> Alert:
    return Alert(
        name="RequestsUnobserved",
        subject="monitoring",
        level="instance",
        expr=s.plain(
            f'increase({_UNOBSERVED}{{reason="internal"}}[1h])', without="reason"
        )
        + " > 0",
        hold="5m",
        keep="1h",
        summary="A bug in the tap prevents it from reading some requests.",
        description=(
            f"Because of a bug, the tap of the exporter at {t.PLACE}{t.IN} could not "
            f'read some requests: {{{{ $value | printf "%.0f" }}}} within an hour. '
            "They were relayed, but are missing from the data on single requests."
        ),
        action=(
            'Report the line "a request could not be observed" of the exporter\'s log.'
        ),
        labels={"reason": "defect"},
        dashboard="requests",
        value='{{ $value | printf "%.0f" }} in 1h',
        why=(
            "One is enough: this should never happen, whatever clients and servers "
            "send."
        ),
    )
