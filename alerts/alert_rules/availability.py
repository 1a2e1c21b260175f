"""Does monitoring of speculation work? It pages if a namespace has none left."""

from __future__ import annotations

from mixin import CLUSTER

from . import requests, tap
from .recording import THRESHOLDS
from .rule import (
    COUNT,
    EXPORTER_JOB,
    IN,
    LONG_INTERVAL,
    LOOK_BACK,
    MODEL,
    PLACE,
    TARGET,
    Alert,
    Group,
    Promise,
    Severity,
    of_target,
    threshold,
)

_UP = f"up{{{EXPORTER_JOB}}}"
_NAMESPACE = f"{CLUSTER}, namespace"
_POD = f"{_NAMESPACE}, pod"
#: Whether an exporter reads its vLLM.
_READS = f"last_over_time(vllm_specdec_up[{LOOK_BACK}])"
#: Zero if an exporter has not read it for five minutes, whatever its clock. Not changes(): VictoriaMetrics counts otherwise.
#: One sample alone says nothing.
_POLLED = (
    "(stddev_over_time(vllm_specdec_last_success_timestamp_seconds[5m]) "
    "and count_over_time(vllm_specdec_last_success_timestamp_seconds[5m]) > 1)"
)
_RESTART = "Look at the exporter's container or unit and its log; restore the scrape target."
#: vLLM's own series of an engine that speculates, one of each.
_SPECULATIVE = '«vllm»spec_decode_num_accepted_tokens_per_pos_total{position="0"}'
_NAMED = _SPECULATIVE.replace("}", ',model_name!=""}')
#: Thresholds that the rules read by exporter.
_OF_TARGETS = (*requests.THRESHOLDS, tap.UNRECORDED)
#: Series whose own label Prometheus renamed, because the scrape target has one of that name.
_OWN = ("threshold threshold", "window_drafts window", "payoff verdict", "info method", "up target")
_RENAMED = " or ".join(
    f'last_over_time(vllm_specdec_{each.replace(" ", "{exported_")}!="",TARGET}}[{LOOK_BACK}])'
    for each in (*_OWN, "activity state", "activity model_name", "activity engine")
)
#: How many exporters a namespace had when last scraped, within a day.
_HAD = "last_over_time(namespace:vllm_specdec_exporters:count[1d])"

_WATCHED = Promise("Is any exporter of a namespace left?", "exporters-die", "one-exporter-down-does-not-page")


def groups() -> tuple[Group, ...]:
    """Return the groups of availability alerts."""
    return (
        Group(
            "vllm-specdec.availability",
            (*_lost(), _watchdog()),
        ),
        Group(
            "vllm-specdec.configuration",
            (_down(), _sidecar_missing(), _unreachable(), _rules_blind(), _reload_failed()),
            LONG_INTERVAL,
        ),
    )


def _lost_because(
    reason: str,
    expr: str,
    hold: str,
    summary: str,
    description: str,
    action: str,
    why: str,
    severity: Severity = "critical",
) -> Alert:
    return Alert(
        name="MonitoringLost",
        severity=severity,
        subject="monitoring",
        level="",
        expr=expr,
        hold=hold,
        keep="5m",
        summary=summary,
        description=description,
        action=action,
        dashboard="exporter",
        labels={"reason": reason},
        why=why,
        promise=_WATCHED if reason == "down" else None,
    )


def _lost() -> tuple[Alert, ...]:
    restore = "Restore the exporter's scrape job (PodMonitor, ServiceMonitor or static target), or remove these rules."
    speculative = f"count by ({_NAMESPACE}) ({_SPECULATIVE})"
    return (
        _lost_because(
            "down",
            f"sum by ({_NAMESPACE}) ({_UP}) == 0\n"
            f"or (max by ({_NAMESPACE}) (avg_over_time({_UP}[30m]) and {_UP}) < 0.5)",
            "5m",
            "No exporter of a namespace answers.",
            "None of the exporters"
            + IN
            + " has answered Prometheus for 5 minutes, or each was down most of the last half hour: "
            "harm by speculation is not detected there.",
            _RESTART,
            "All exporters of a namespace: its monitoring is lost, so this pages. Also by share of time, because an "
            "exporter that restarts again and again answers now and then.",
        ),
        _lost_because(
            "absent",
            f"{speculative}\nunless on ({_NAMESPACE}) {_UP}\nand on ({_NAMESPACE}) {_HAD}",
            "10m",
            "The exporters of a namespace are gone, but its vLLM still speculates.",
            "vLLM is scraped and speculates"
            + IN
            + " (engines: {{ $value | humanize }}), but the exporters of the last "
            "day are no longer scrape targets.",
            restore,
            "vLLM itself is still scraped, so the service was not scaled to zero: monitoring is lost.",
        ),
        _lost_because(
            "absent",
            f"{_HAD}\nunless on ({_NAMESPACE}) {_UP}\nunless on ({_NAMESPACE}) {speculative}",
            "1h",
            "The exporters of a namespace are no longer scraped.",
            "Exporters were scraped{{ with $labels.namespace }} in {{ . }}{{ end }} within the "
            "last day, and none for an hour. Either every server was scaled to zero, or the scrape job was removed or "
            "has another name.",
            restore,
            "Without vLLM's own series the reason is unknown: a ticket.",
            "warning",
        ),
        _lost_because(
            "unreachable",
            f"max by ({_NAMESPACE}) ({_READS}) == 0\n"
            f"and on ({_NAMESPACE}) ({_READS} unless sum without (reason) ({_REFUSED}) > 0)\n"
            f"or (max by ({_NAMESPACE}) ({_POLLED}) == 0 and max by ({_NAMESPACE}) ({_READS}) == 1)",
            "10m",
            "No exporter of a namespace can read its vLLM.",
            "Every exporter"
            + IN
            + " has failed to read its vLLM for 10 minutes, and at least one of them for another reason than a "
            "refused connection: harm by speculation is not detected there.",
            _LOOK,
            "A refused port may be a loading model, and a name without an address a service scaled to zero: if all "
            "servers of a namespace fail so, there may be nothing to watch. Other failures page, and polls that hang.",
        ),
    )


def _down() -> Alert:
    return Alert(
        name="ExporterDown",
        promise=Promise(
            "Does each exporter answer?", "one-exporter-dies", "pods-scaled-to-nothing-are-not-down"
        ),
        severity="warning",
        subject="monitoring",
        level="instance",
        expr=f"{_UP} == 0\nor (avg_over_time({_UP}[30m]) < 0.5 and {_UP})",
        hold="10m",
        keep="5m",
        summary="An exporter does not answer.",
        description=(
            "The exporter at "
            + PLACE
            + IN
            + " has not answered Prometheus for 10 minutes, or was down most of the "
            "last half hour."
        ),
        action=_RESTART,
        dashboard="exporter",
        why="One exporter: a ticket. If all of a namespace are down, MonitoringLost pages and silences this.",
    )


_REFUSED = 'increase(vllm_specdec_poll_errors_total{reason=~"refused|unreachable"}[5m])'
_LOOK = (
    "Read vllm_specdec_poll_errors_total by reason and the exporter's log; check the address, TLS, "
    "credentials, that a name is resolved, and that vLLM answers /metrics in a supported dialect."
)


def _unreachable() -> Alert:
    resolved = f'label_replace(last_over_time(vllm_specdec_discovery_up[{LOOK_BACK}]), "target", "$1", "dns_name", "(.+)")'
    return Alert(
        name="UpstreamUnreachable",
        promise=Promise("Does each exporter read its vLLM?", "one-server-refuses", "while-a-model-loads"),
        severity="warning",
        subject="monitoring",
        level="instance",
        expr=f"{_READS} == 0\nor ({_POLLED} == 0)\nor sum without (dns_name) ({resolved}) == 0",
        hold="30m",
        keep="5m",
        summary="An exporter cannot read its vLLM.",
        description=(
            "The exporter at " + PLACE + IN + " has not read "
            "{{ with $labels.target }}{{ . }}{{ else }}its vLLM{{ end }} for 30 minutes."
        ),
        action=_LOOK,
        dashboard="exporter",
        context=of_target(
            'sum(increase(vllm_specdec_poll_errors_total{reason="unrecognized",TARGET}[30m])) > 0',
            COUNT,
            "{} answers in no supported dialect: after an upgrade of vLLM, upgrade the exporter",
        ),
        why=(
            "Half an hour, so that a large model can load. Also if no poll has succeeded for five minutes, whatever up "
            "says, and whatever the exporter's clock. "
            "Servers of a name that is not resolved have no series after five minutes: its own, vllm_specdec_discovery_up, stands "
            "for them."
        ),
    )


def _sidecar_missing() -> Alert:
    return Alert(
        name="SidecarMissing",
        promise=Promise(
            "Has each vLLM with speculation an exporter?",
            "one-sidecar-missing",
            "a-namespace-without-exporters",
        ),
        severity="warning",
        subject="monitoring",
        level="",
        expr=(
            f"count by ({_POD}, model_name) ({_SPECULATIVE})\n"
            f"unless on ({_POD}) {_UP}\n"
            f"and on ({_NAMESPACE}) (\n"
            f"  {_SPECULATIVE} and on ({_POD}) {_UP}\n"
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
            "several servers is not a sidecar. Without any exporter, MonitoringLost fires."
        ),
    )


def _rules_blind() -> Alert:
    thresholds = "\n    and ".join(threshold(name) for name in THRESHOLDS)
    return Alert(
        name="RulesBlind",
        promise=Promise(
            "Have the rules what they compare with?",
            "thresholds-lost",
            "an-exporter-that-is-down-has-none",
        ),
        severity="warning",
        subject="monitoring",
        level="instance",
        expr=(
            f"max by ({TARGET}) (\n  last_over_time(vllm_specdec_info[{LOOK_BACK}])\n"
            f"  unless on ({MODEL}) (\n    {thresholds}\n  )\n)\n"
            "or\n"
            f'max by ({TARGET}) (last_over_time(vllm_specdec_activity{{state="active"}}[{LOOK_BACK}]))\n'
            f"unless on ({TARGET}) last_over_time(vllm_specdec_info[{LOOK_BACK}])\n"
            "or\n"
            f"max by ({TARGET}) (last_over_time(vllm_specdec_info[{LOOK_BACK}]))\n"
            f"unless on ({TARGET}) (\n  count by ({TARGET}) ("
            f'last_over_time(vllm_specdec_threshold{{threshold=~"{"|".join(_OF_TARGETS)}"}}[{LOOK_BACK}])) '
            f"== {len(_OF_TARGETS)}\n)\n"
            "or\n"
            f"max by ({TARGET}) (\n"
            f'  last_over_time(vllm_specdec_activity{{state="active",model_name="",pod!=""}}[{LOOK_BACK}])\n'
            f"  and on ({_POD}) {_NAMED}\n"
            ")\n"
            "or\n"
            f"count by ({TARGET}) ({_RENAMED.replace(',TARGET', '')})"
        ),
        hold="5m",
        keep="5m",
        summary="Prometheus lacks series of an exporter that alerts need.",
        description=(
            "The exporter at {{ $labels.instance }}" + IN + " is scraped, but Prometheus lacks some "
            "of its vllm_specdec_threshold series, vllm_specdec_info, or labels that they need. Alerts that need them "
            "cannot fire, or name no model."
        ),
        action="Set honor_labels, let them through metric relabelling, or bring exporter and rules to the same version.",
        dashboard="exporter",
        context=of_target(
            f"count({_RENAMED})",
            COUNT,
            "{} series have a label that Prometheus renamed to exported_: the target has it too",
        ),
        why="Thresholds come from the exporter. Those of single requests are read by exporter, the others by model.",
    )


def _reload_failed() -> Alert:
    return Alert(
        name="ConfigReloadFailed",
        promise=Promise("Is the newest configuration in force?", "bad-configuration", "reloads-succeed"),
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
    )


def _watchdog() -> Alert:
    return Alert(
        name="Watchdog",
        promise=Promise("Do notifications arrive?", "always", ""),
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
