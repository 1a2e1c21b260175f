"""Is speculation being watched at all? Lost monitoring pages where nothing of a namespace is left."""

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
                + " has answered Prometheus for 5 minutes: nobody watches whether speculation hurts users there."
            ),
            action=restart,
            dashboard="exporter",
            why="All exporters of a namespace: nothing is left to watch it, so this pages.",
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
                "others there do."
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
            summary="The exporters of a namespace have vanished while vLLM speculates on.",
            description=(
                "{{ $value | humanize }} speculative series of vLLM are scraped{{ with $labels.namespace }} in "
                "{{ . }}{{ end }}, but the exporters that were there within the last week are no longer even "
                "scrape targets."
            ),
            action=gone,
            dashboard="exporter",
            why=(
                "Where vLLM itself is scraped too, exporters that were there and are gone are lost monitoring, "
                "and not a service that was scaled to nothing."
            ),
        ),
        Alert(
            name="ExporterAbsent",
            severity="warning",
            subject="monitoring",
            level="",
            expr=f"absent({_UP})",
            hold="1h",
            keep="5m",
            summary="Prometheus knows no exporter at all.",
            description=(
                "No scrape target whose job is called vllm-specdec-exporter has been there for an hour. Either every "
                "server was scaled to nothing, or the scrape job is gone or has another name."
            ),
            action=gone,
            dashboard="exporter",
            why="Without vLLM's own series nothing tells why: a ticket.",
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
                + " has failed to read its vLLM for 10 minutes, and not only because there is nothing to connect to: nobody watches "
                "whether speculation hurts users there."
            ),
            action=look,
            dashboard="exporter",
            why="A refused port is a model that loads, and a name without an address one scaled to nothing; other failures of every server of a namespace page.",
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
                "{{ $value | humanizeDuration }} ago, though it says that its vLLM is up."
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
            summary="A server's metrics are of no dialect that the exporter knows.",
            description=(
                "The exporter at " + PLACE + IN + " gets metrics from "
                "{{ with $labels.target }}{{ . }}{{ else }}its server{{ end }}, but of no server that it knows."
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
            summary="A vLLM speculates without an exporter beside it.",
            description=(
                "vLLM{{ with $labels.pod }} in pod {{ . }}{{ end }}"
                + IN
                + " serves {{ $labels.model_name }} with "
                "speculation, but no exporter is scraped there, though its neighbours have one."
            ),
            action="Add the sidecar to the pod template, or its port to the scrape job.",
            dashboard="exporter",
            why=(
                "Only where vLLM itself is scraped, pods have a label, and another pod has both: one exporter for "
                "several servers is no sidecar. Where no exporter is left, ExporterAbsent speaks."
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
            summary="The rules lack thresholds to compare with.",
            description=(
                "The exporter at {{ $labels.instance }}" + IN + " is scraped, but Prometheus lacks some "
                "of its vllm_specdec_threshold series, or vllm_specdec_info. Alerts that need them cannot fire."
            ),
            action="Let both series through metric relabelling, or bring exporter and rules to the same version.",
            dashboard="exporter",
            why="Thresholds come from the exporter; without them every comparison is silent, and this says so.",
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
                + " could not read its newest configuration and goes on with the "
                "one before; a sidecar that has none before it watches nothing."
            ),
            action="Mend what the exporter's log names, and reload; flags need a new pod.",
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
            "This alert always fires. Have the receiver of the watchdog raise an alarm when it stops coming: then "
            "Prometheus, Alertmanager or the way to the receiver is broken."
        ),
        action="Nothing while it fires. When it stops, look at Prometheus and Alertmanager.",
        dashboard="exporter",
        why="A dead man's switch: its absence is the alarm.",
    )
