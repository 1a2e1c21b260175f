"""Does the tap do its work: can clients connect, does it reach vLLM, and does it see what passes?

Who is in front of vLLM can be an outage that vLLM knows nothing of, so clients who are refused page.
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
    """Yield what the alerts need."""
    yield Record(
        _LOST,
        f'sum without (reason) (increase({_UNOBSERVED}{{reason!~"{_NOTHING_TO_SEE}"}}[30m]))',
        why="Requests for text through a tap that had an answer to look at. Those that the client left or vLLM refused have "
        "none, and say nothing of what the tap can see.",
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
        name="TapNotListening",
        severity="critical",
        subject="errors",
        level="instance",
        expr="max_over_time(vllm_specdec_tap_listening[2m]) == 0",
        hold="5m",
        keep="5m",
        summary="The tap does not listen: clients that are sent to it are refused.",
        description=(
            "Nobody has been able to connect to the tap of the exporter at "
            + PLACE
            + IN
            + " for 5 minutes. Requests that are sent there do not reach vLLM, which may be well and its pod ready."
        ),
        action=(
            "Send the traffic to vLLM's own port; then free the tap's port, or give --tap.listen-address another one."
        ),
        dashboard="requests",
        value="not listening",
        why=(
            "With --startup.on-error=wait the exporter goes on without its port, and tries again; otherwise it ends. A tap that "
            "waits for its last requests does not listen either: longer than this only with a longer --tap.drain-timeout."
        ),
    )


def _down() -> Alert:
    return Alert(
        name="TapDown",
        severity="critical",
        subject="errors",
        level="instance",
        expr=f"up{{{EXPORTER_JOB}}} == 0\nand on ({TARGET}) last_over_time(vllm_specdec_tap_listening[6h])",
        hold="3m",
        keep="5m",
        summary="An exporter with a tap does not answer: clients that are sent to its tap are refused.",
        description=(
            "The exporter at "
            + PLACE
            + IN
            + " has not answered Prometheus for 3 minutes, and it has a tap. Unless only Prometheus cannot reach it, requests "
            "that are sent there do not reach vLLM, which may be well."
        ),
        action="Send the traffic to vLLM's own port; then look at the exporter's container or unit and its log, and restart it.",
        dashboard="requests",
        value="no answer",
        why=(
            "As TapNotListening where nobody is left to say so. It had a tap if it told of one within six hours; by then somebody "
            "knows, and ExporterDown goes on. A target that is gone, as after a rollout, has no up."
        ),
    )


def _failing() -> Alert:
    failed = f"sum without (reason) (increase({_NOT_CONNECTED}[5m]))"
    limit = "failed_request_ratio"
    return Alert(
        name="TapUpstreamFailing",
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
            + f" has failed to connect to vLLM for {this(PERCENT)} of its requests over 5 minutes, and answers them "
            "with 502. vLLM itself is up: the exporter reads its metrics."
        ),
        action="Send the traffic to vLLM's own port; then compare --tap.upstream with the address that vLLM listens on.",
        dashboard="requests",
        value=this(PERCENT) + " of the requests",
        threshold=of_target(f'vllm_specdec_threshold{{name="{limit}",TARGET}}', PERCENT),
        sample=of_target(
            f"sum(increase({_NOT_CONNECTED}{{TARGET}}[5m]))", COUNT, "{} failed to connect in 5m"
        ),
        why=(
            "While a model loads, its metrics do not answer either: quiet until they have for 5 minutes, by when what was refused "
            "before has left the window. An exporter that watches several must read them all: it is not known which is the tap's."
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
        summary="Much of what passes through the tap cannot be observed.",
        description=(
            "The tap of the exporter at "
            + PLACE
            + IN
            + f" could not look at {this(PERCENT)} of the requests for text over 30 minutes. They reached vLLM and were "
            "answered; what is said of single requests is of the others."
        ),
        action="Look up in the runbook what the reason asks for: most are in how clients ask, or in what stands in between.",
        dashboard="requests",
        value=this(PERCENT) + " of the requests",
        threshold=of_target(f'vllm_specdec_threshold{{name="{limit}",TARGET}}', PERCENT),
        sample=of_target(f"{_ALL}{{TARGET}}", COUNT, "{} requests for text in 30m"),
        why="Where none is observed RequestsUnrecorded is silent, for it rests on those that are.",
    )


def _defect() -> Alert:
    return Alert(
        name="TapDefect",
        severity="warning",
        subject="monitoring",
        level="instance",
        expr=f'sum without (reason) (increase({_UNOBSERVED}{{reason="internal"}}[1h])) > 0',
        hold="5m",
        keep="1h",
        summary="The tap has a defect, by which it cannot observe some requests.",
        description=(
            "The tap of the exporter at "
            + PLACE
            + IN
            + " could not look at what passed, because of a defect of its own. Requests within an hour of which nothing is known, "
            f"though they passed: {this(COUNT)}."
        ),
        action='Take "a request could not be observed" from the exporter\'s log, which says where, and report it.',
        dashboard="requests",
        value=this(COUNT) + " in 1h",
        why="A single one: there should be none, whatever clients and servers send.",
    )
