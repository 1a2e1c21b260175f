"""Does the tap work: can clients connect, does it reach vLLM, and can it read requests?

A failing tap is an outage that vLLM's own metrics do not show, so refused clients page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .rule import (
    COUNT,
    EXPORTER_JOB,
    IN,
    PERCENT,
    PLACE,
    TARGET,
    Alert,
    Record,
    of_target,
    this,
    threshold_of_targets,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Connections that the tap did not get, each of which a client was told by a 502.
_NOT_CONNECTED = "vllm_specdec_tap_upstream_errors_total"
_UNOBSERVED = "vllm_specdec_tap_unobserved_total"
#: Requests that nobody could have observed: the client left, or vLLM answered with an error.
_NOTHING_TO_SEE = "aborted|refused"
#: Requests for text that had an answer to look at: those that could not be looked at, and all.
_LOST = "instance:vllm_specdec_tap_unobserved:increase30m"
_ALL = "instance:vllm_specdec_tap_text_requests:increase30m"


def records() -> Iterator[Record]:
    """Yield the records of the alerts."""
    yield Record(
        _LOST,
        f'sum without (reason) (increase({_UNOBSERVED}{{reason!~"{_NOTHING_TO_SEE}"}}[30m]))',
        why="Text requests through a tap that had an answer. Requests that the client aborted or vLLM refused have "
        "none, so they do not count.",
    )
    yield Record(
        _ALL,
        f"{_LOST}\n+ sum without (source, record) "
        '(increase(vllm_specdec_request_observations_total{source="tap"}[30m]))',
    )


def alerts() -> tuple[Alert, ...]:
    """Return the alerts on the tap."""
    return (_deaf(), _down(), _failing(), _blind(), _defect())


def _deaf() -> Alert:
    return Alert(
        name="TapFailing",
        severity="critical",
        subject="errors",
        level="instance",
        expr="max_over_time(vllm_specdec_tap_listening[2m]) == 0",
        hold="5m",
        keep="5m",
        summary="The tap does not listen: its clients are refused.",
        description=(
            "Clients could not connect to the tap of the exporter at "
            + PLACE
            + IN
            + " for 5 minutes. Their requests do not reach vLLM, which may be healthy and its pod ready."
        ),
        action=(
            "Send the traffic to vLLM's own port; then free the tap's port, or give --tap.listen-address another one."
        ),
        labels={"reason": "not_listening"},
        dashboard="requests",
        value="not listening",
        why=(
            "With --startup.on-error=wait the exporter continues without the port and retries; otherwise it exits. A terminating tap "
            "does not listen either; that takes longer than this only with a longer --tap.drain-timeout."
        ),
    )


def _down() -> Alert:
    return Alert(
        name="TapFailing",
        severity="critical",
        subject="errors",
        level="instance",
        expr=f"up{{{EXPORTER_JOB}}} == 0\nand on ({TARGET}) last_over_time(vllm_specdec_tap_listening[6h])",
        hold="3m",
        keep="5m",
        summary="An exporter with a tap does not answer: its clients are refused.",
        description=(
            "The exporter at "
            + PLACE
            + IN
            + " has not answered Prometheus for 3 minutes, and it has a tap. Unless only Prometheus cannot reach it, requests "
            "through the tap do not reach vLLM, which may be healthy."
        ),
        action="Send the traffic to vLLM's own port; then look at the exporter's container or unit and its log, and restart it.",
        labels={"reason": "down"},
        dashboard="requests",
        value="no answer",
        why=(
            "As not_listening, for an exporter that does not answer. It has a tap if it reported one within six hours; after that "
            "only ExporterDown fires. A removed target, as after a rollout, has no up."
        ),
    )


def _failing() -> Alert:
    failed = f"sum without (reason) (increase({_NOT_CONNECTED}[5m]))"
    limit = "failed_request_ratio"
    return Alert(
        name="TapFailing",
        severity="critical",
        subject="errors",
        level="instance",
        expr=(
            f"({failed} / (({failed} + increase(vllm_specdec_tap_requests_total[5m])) > 0))\n"
            f"> on ({TARGET}) group_left () {threshold_of_targets(limit)}\n"
            f"and on ({TARGET}) (min by ({TARGET}) (min_over_time(vllm_specdec_up[5m])) == 1)"
        ),
        hold="5m",
        keep="10m",
        summary="The tap cannot connect to a vLLM that is up: users get errors.",
        description=(
            "The tap of the exporter at "
            + PLACE
            + IN
            + f" has failed to connect to vLLM for {this(PERCENT)} of its requests over 5 minutes, and answered them "
            "with status 502. vLLM itself is up: the exporter reads its metrics."
        ),
        action="Send the traffic to vLLM's own port; then compare --tap.upstream with the address that vLLM listens on.",
        labels={"reason": "upstream"},
        dashboard="requests",
        value=this(PERCENT) + " of the requests",
        threshold=of_target(f'vllm_specdec_threshold{{name="{limit}",TARGET}}', PERCENT),
        sample=of_target(
            f"sum(increase({_NOT_CONNECTED}{{TARGET}}[5m]))", COUNT, "{} failed to connect in 5m"
        ),
        why=(
            "While a model loads, its metrics fail as well. Silent until they have answered for 5 minutes, so that earlier refusals "
            "have left the window. An exporter of several servers must read them all, because the tap's is not known."
        ),
    )


def _blind() -> Alert:
    limit = "unrecorded_requests_ratio"
    return Alert(
        name="RequestsUnobserved",
        severity="warning",
        subject="monitoring",
        level="instance",
        expr=(
            f"{_LOST} / ({_ALL} > 0)\n"
            f">= on ({TARGET}) group_left () {threshold_of_targets(limit)}\n"
            f"and ({_ALL} >= on ({TARGET}) group_left () {threshold_of_targets('minimum_requests')})"
        ),
        hold="30m",
        keep="1h",
        summary="The tap cannot read many of the requests that it relays.",
        description=(
            "The tap of the exporter at "
            + PLACE
            + IN
            + f" could not read {this(PERCENT)} of the text requests over 30 minutes. They reached vLLM and were "
            "answered, but they are missing from the data on single requests."
        ),
        action="Follow the runbook for the label reason; most causes are client settings or proxies.",
        labels={"reason": "not_read"},
        dashboard="requests",
        value=this(PERCENT) + " of the requests",
        threshold=of_target(f'vllm_specdec_threshold{{name="{limit}",TARGET}}', PERCENT),
        sample=of_target(f"{_ALL}{{TARGET}}", COUNT, "{} requests for text in 30m"),
        why="The reason no_record does not cover this: it counts only observed requests.",
    )


def _defect() -> Alert:
    return Alert(
        name="RequestsUnobserved",
        severity="warning",
        subject="monitoring",
        level="instance",
        expr=f'sum without (reason) (increase({_UNOBSERVED}{{reason="internal"}}[1h])) > 0',
        hold="5m",
        keep="1h",
        summary="A bug in the tap prevents it from reading some requests.",
        description=(
            "The tap of the exporter at "
            + PLACE
            + IN
            + " could not read some requests because of a bug. They were relayed, but are missing from the data; within an hour: "
            f"{this(COUNT)}."
        ),
        action='Report the line "a request could not be observed" of the exporter\'s log.',
        labels={"reason": "defect"},
        dashboard="requests",
        value=this(COUNT) + " in 1h",
        why="One is enough: this should never happen, whatever clients and servers send.",
    )
