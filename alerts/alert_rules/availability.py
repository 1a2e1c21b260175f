"""Does monitoring of speculation work? It pages if a namespace has none left."""

from __future__ import annotations

from dataclasses import fields

from vllm_specdec_exporter.config.thresholds import Thresholds

from .rule import EXPORTER_JOB, IN, LOOK_BACK, PLACE, TARGET, Alert, Group

_UP = f"up{{{EXPORTER_JOB}}}"
_NAMESPACE = "cluster, namespace"


def group() -> Group:
    """Return the group of availability alerts."""
    return Group(
        "vllm-specdec.availability",
        (*_exporter(), *_upstream(), *_deployment(), *_configuration(), _watchdog()),
    )


def _exporter() -> tuple[Alert, ...]:
    restart = "Look at the exporter's container or unit and its log; restore the scrape target."
    gone = "Restore the exporter's scrape job (PodMonitor, ServiceMonitor or static target), or remove these rules."
    return (
        Alert(
            name="ExporterDown",
            severity="critical",
            subject="monitoring",
            level="",
            expr=f"sum by ({_NAMESPACE}) ({_UP}) == 0",
            hold="5m",
            keep="5m",
            summary="No exporter of a namespace answers.",
            description=(
                "None of the exporters"
                + IN
                + " has answered Prometheus for 5 minutes: harm by speculation is not detected there."
            ),
            action=restart,
            dashboard="exporter",
            why="All exporters of a namespace: its monitoring is lost, so this pages.",
        ),
        Alert(
            name="ExporterDown",
            severity="warning",
            subject="monitoring",
            level="instance",
            expr=f"{_UP} == 0 and on ({_NAMESPACE}) (sum by ({_NAMESPACE}) ({_UP}) > 0)",
            hold="10m",
            keep="5m",
            summary="An exporter does not answer.",
            description=(
                "The exporter at " + PLACE + IN + " has not answered Prometheus for 10 minutes; "
                "others in its namespace do."
            ),
            action=restart,
            dashboard="exporter",
            why="One of several: a ticket.",
        ),
        Alert(
            name="ExporterAbsent",
            severity="critical",
            subject="monitoring",
            level="",
            expr=(
                f"count by (cluster, namespace) (vllm:spec_decode_num_accepted_tokens_per_pos_total)\n"
                f"unless on (cluster, namespace) {_UP}\n"
                f"and on (cluster, namespace) count by (cluster, namespace) (count_over_time({_UP}[7d]))"
            ),
            hold="10m",
            keep="5m",
            summary="The exporters of a namespace are gone, but its vLLM still speculates.",
            description=(
                "{{ $value | humanize }} speculative series of vLLM are scraped{{ with $labels.namespace }} in "
                "{{ . }}{{ end }}, but the exporters of the last week are no longer "
                "scrape targets."
            ),
            action=gone,
            dashboard="exporter",
            why=("vLLM itself is still scraped, so the service was not scaled to zero: monitoring is lost."),
        ),
        Alert(
            name="ExporterAbsent",
            severity="warning",
            subject="monitoring",
            level="",
            expr=f"absent({_UP})",
            hold="1h",
            keep="5m",
            summary="Prometheus scrapes no exporter.",
            description=(
                "There has been no scrape target with the job vllm-specdec-exporter for an hour. Either every "
                "server was scaled to zero, or the scrape job was removed or has another name."
            ),
            action=gone,
            dashboard="exporter",
            why="Without vLLM's own series the reason is unknown: a ticket.",
        ),
    )


def _upstream() -> tuple[Alert, ...]:
    up = f"last_over_time(vllm_specdec_up[{LOOK_BACK}])"
    failing = 'sum without (reason) (increase(vllm_specdec_poll_errors_total{reason!~"refused|unreachable"}[5m])) > 0'
    look = (
        "Read vllm_specdec_poll_errors_total by reason and the exporter's log; check the address, TLS, "
        "credentials and that vLLM answers /metrics."
    )
    return (
        Alert(
            name="UpstreamUnreachable",
            severity="critical",
            subject="monitoring",
            level="",
            expr=(
                f"max by ({_NAMESPACE}) ({up}) == 0\n"
                f"and on ({_NAMESPACE}) (\n"
                f"  count by ({_NAMESPACE}) ({failing}) >= on ({_NAMESPACE}) count by ({_NAMESPACE}) ({up})\n"
                ")"
            ),
            hold="10m",
            keep="5m",
            summary="No exporter of a namespace can read its vLLM.",
            description=(
                "Every exporter"
                + IN
                + " has failed to read its vLLM for 10 minutes, and not only because connections were refused: harm by "
                "speculation is not detected there."
            ),
            action=look,
            dashboard="exporter",
            why="A refused port may be a loading model, and a name without an address a service scaled to zero; other failures of every server of a namespace page.",
        ),
        Alert(
            name="UpstreamUnreachable",
            severity="warning",
            subject="monitoring",
            level="instance",
            expr=f"{up} == 0",
            hold="30m",
            keep="5m",
            summary="An exporter cannot read its vLLM.",
            description=(
                "The exporter at " + PLACE + IN + " has failed to read "
                "{{ with $labels.target }}{{ . }}{{ else }}its vLLM{{ end }} for 30 minutes."
            ),
            action=look,
            dashboard="exporter",
            why="Half an hour, so that a large model can load.",
        ),
        Alert(
            name="DataStale",
            severity="warning",
            subject="monitoring",
            level="instance",
            expr=(
                f"time() - last_over_time(vllm_specdec_last_success_timestamp_seconds[{LOOK_BACK}]) > 300\n"
                f"unless {up} == 0"
            ),
            hold="5m",
            keep="5m",
            summary="An exporter serves old data.",
            description=(
                "The last successful poll of the exporter at " + PLACE + IN + " was "
                "{{ $value | humanizeDuration }} ago, though it reports its vLLM as up."
            ),
            action="Compare the clocks of exporter and Prometheus; look for a cache in between; restart the exporter.",
            dashboard="exporter",
            value="{{ $value | humanizeDuration }} old",
            threshold="5 minutes",
        ),
        Alert(
            name="DialectUnknown",
            severity="warning",
            subject="monitoring",
            level="instance",
            expr='increase(vllm_specdec_poll_errors_total{reason="unrecognized"}[5m]) > 0',
            hold="10m",
            keep="10m",
            summary="A server's metrics are in no supported dialect.",
            description=(
                "The exporter at " + PLACE + IN + " gets metrics from "
                "{{ with $labels.target }}{{ . }}{{ else }}its server{{ end }}, but in no supported dialect."
            ),
            action=(
                "Check that the address is vLLM's and that it runs without --disable-log-stats; after an upgrade of "
                "vLLM, upgrade the exporter."
            ),
            dashboard="exporter",
        ),
    )


def _deployment() -> tuple[Alert, ...]:
    return (
        Alert(
            name="SidecarMissing",
            severity="warning",
            subject="monitoring",
            level="",
            expr=(
                "count by (cluster, namespace, pod, model_name) (vllm:spec_decode_num_accepted_tokens_per_pos_total)\n"
                f"unless on (cluster, namespace, pod) {_UP}\n"
                f"and on (cluster, namespace) (\n"
                f"  vllm:spec_decode_num_accepted_tokens_per_pos_total and on (cluster, namespace, pod) {_UP}\n"
                ")"
            ),
            hold="15m",
            keep="5m",
            summary="A vLLM with speculation has no exporter.",
            description=(
                "vLLM{{ with $labels.pod }} in pod {{ . }}{{ end }}"
                + IN
                + " serves {{ $labels.model_name }} with "
                "speculation, but no exporter is scraped there, though other pods have one."
            ),
            action="Add the sidecar to the pod template, or its port to the scrape job.",
            dashboard="exporter",
            why=(
                "Only if vLLM itself is scraped, series have the label pod, and another pod has both: one exporter for "
                "several servers is not a sidecar. Without any exporter, ExporterAbsent fires."
            ),
        ),
    )


def _configuration() -> tuple[Alert, ...]:
    return (
        Alert(
            name="RulesBlind",
            severity="warning",
            subject="monitoring",
            level="instance",
            expr=(
                f"max by ({TARGET}) ({_UP}) == 1\n"
                f"unless on ({TARGET}) (count by ({TARGET}) (last_over_time(vllm_specdec_threshold[{LOOK_BACK}])) "
                f">= {len(fields(Thresholds))})\n"
                "or\n"
                f"max by ({TARGET}) (last_over_time(vllm_specdec_activity[{LOOK_BACK}]))\n"
                f"unless on ({TARGET}) last_over_time(vllm_specdec_info[{LOOK_BACK}])"
            ),
            hold="15m",
            keep="5m",
            summary="The rules lack the exporter's thresholds.",
            description=(
                "The exporter at {{ $labels.instance }}" + IN + " is scraped, but Prometheus lacks some "
                "of its vllm_specdec_threshold series, or vllm_specdec_info. Alerts that need them cannot fire."
            ),
            action="Let both series through metric relabelling, or bring exporter and rules to the same version.",
            dashboard="exporter",
            why="Thresholds come from the exporter; without them no other rule can fire.",
        ),
        Alert(
            name="ConfigReloadFailed",
            severity="warning",
            subject="monitoring",
            level="instance",
            expr=f"last_over_time(vllm_specdec_config_last_reload_successful[{LOOK_BACK}]) == 0",
            hold="10m",
            keep="5m",
            summary="An exporter cannot use its newest configuration.",
            description=(
                "The exporter at "
                + PLACE
                + IN
                + " could not load its newest configuration and continues with the "
                "previous one; a sidecar without a previous one polls nothing."
            ),
            action="Fix the error in the exporter's log, and reload; flags need a new pod.",
            dashboard="exporter",
        ),
    )


def _watchdog() -> Alert:
    return Alert(
        name="Watchdog",
        severity="none",
        subject="monitoring",
        level="",
        expr="vector(1)",
        hold="",
        summary="Rules are evaluated and notifications arrive.",
        description=(
            "This alert always fires. Have the receiver of the watchdog raise an alarm when it stops: then "
            "Prometheus, Alertmanager or the connection to the receiver is broken."
        ),
        action="Nothing while it fires. When it stops, look at Prometheus and Alertmanager.",
        dashboard="exporter",
        why="A dead man's switch: alert on its absence.",
    )
