"""Does monitoring of speculation work? It pages if a namespace has none left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixin import CLUSTER

from . import requests, tap
from .recording import THRESHOLDS
from .rule import (
    COUNT,
    EXPORTER_JOB,
    IN,
    LONG_INTERVAL,
    LOOK_BACK,
    PLACE,
    TARGET,
    Alert,
    Group,
    Promise,
    Record,
    Severity,
    labelled,
    of_target,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    f'last_over_time(vllm_specdec_{each.replace(" ", "{exported_")}!=""}}[{LOOK_BACK}])'
    for each in (*_OWN, "activity state", "activity model_name", "activity engine")
)
#: What Prometheus lacks of an exporter, by the label `lack`.
_LACK = "instance:vllm_specdec_lack:info"


def _flaps(up: str, times: int) -> str:
    """Return that something was down so often within half an hour, and for a quarter of it at least."""
    return f"(resets({up}[30m]) >= {times} and avg_over_time({up}[30m]) < 0.75)"


def _which(query: str) -> str:
    """Return the template of the address of one exporter of the alert's namespace, of which a query says the rest."""
    asked = query.replace("NAMESPACE", f"{CLUSTER}=%[1]q,namespace=%[2]q")
    labels = f"$labels.{CLUSTER} $labels.namespace"
    return f'{{{{ with printf `{asked}` {labels} | query }}}}for example {{{{ . | first | label "instance" }}}}{{{{ end }}}}'


#: How many exporters a namespace had when last scraped, within a day.
_HAD = "last_over_time(namespace:vllm_specdec_exporters:count[1d])"

_WATCHED = Promise("Is any exporter of a namespace left?", "exporters-die", "one-exporter-down-does-not-page")


def groups() -> tuple[Group, ...]:
    """Return the groups of availability alerts."""
    return (
        Group(
            "vllm-specdec.availability",
            (*_lost(), *_unreachable(), _watchdog()),
        ),
        Group(
            "vllm-specdec.configuration",
            (_down(), _sidecar_missing(), _lacks(), _rules_blind(), _reload_failed()),
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
    context: str = "",
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
        context=context,
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
            f"(sum by ({_NAMESPACE}) ({_UP}) == 0\n"
            f"or max by ({_NAMESPACE}) (avg_over_time({_UP}[30m]) and {_UP}) < 0.5)\n"
            f"and on ({_NAMESPACE}) {_SPECULATIVE}",
            "5m",
            "No exporter of a namespace answers, though its vLLM serves.",
            "None of the exporters"
            + IN
            + " has answered Prometheus for 5 minutes, or each was down most of the last half hour, though vLLM serves "
            "there: harm by speculation is not detected.",
            _RESTART,
            "Only while vLLM's own series are scraped: a host that is off, or a namespace that is scaled to zero, harms "
            "nobody. Without them, ExporterDown is a ticket. Also by share of time, because an exporter that restarts again "
            "and again answers now and then.",
            context=_which(f"up{{{EXPORTER_JOB},NAMESPACE}} == 0"),
        ),
        _lost_because(
            "cluster",
            f"count by ({CLUSTER}) (count by ({_NAMESPACE}) ({_UP})) > 1\n"
            f"and on ({CLUSTER}) (sum by ({CLUSTER}) ({_UP}) == 0)\nand on ({CLUSTER}) {_SPECULATIVE}",
            "5m",
            "No exporter of a whole cluster answers.",
            f"None of the exporters{{{{ with $labels.{CLUSTER} }}}} in {{{{ . }}}}{{{{ end }}}} has answered Prometheus for 5 minutes "
            "(namespaces: {{ $value | humanize }}), though vLLM serves there: harm by speculation is not detected.",
            "Look at what they have in common: the scrape job, a network policy, the exporter's image.",
            "One failure is one page: this one silences those of the namespaces.",
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
            context=_which("vllm_specdec_up{NAMESPACE}"),
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
        expr=f"{_UP} == 0\nor {_flaps(_UP, 2)} and {_UP}",
        hold="10m",
        keep="5m",
        summary="An exporter does not answer.",
        description=(
            "The exporter at "
            + PLACE
            + IN
            + " has not answered Prometheus for 10 minutes, or has been down again and again for half an hour."
        ),
        action=_RESTART,
        dashboard="exporter",
        why="A ticket, also for one that is down for two minutes of five. MonitoringLost pages if nobody watches a namespace that serves, "
        "and silences this.",
    )


_REFUSED = 'increase(vllm_specdec_poll_errors_total{reason=~"refused|unreachable"}[5m])'
_LOOK = (
    "Read vllm_specdec_poll_errors_total by reason and the exporter's log; check the address, TLS, "
    "credentials, that a name is resolved, and that vLLM answers /metrics in a supported dialect."
)


def _unreachable() -> Iterator[Alert]:
    found = f"last_over_time(vllm_specdec_discovery_up[{LOOK_BACK}])"
    resolved = f'label_replace({found}, "target", "$1", "dns_name", "(.+)")'
    refused = f"sum without (reason) ({_REFUSED}) > 0"
    cases = (
        (
            "no_answer",
            f"({_READS} == 0 or {_POLLED} == 0)\nunless {refused}",
            "9m",
            "has not read SERVER for 10 minutes, and its connections are not refused",
            "The server is up and gives no answer that can be read, or polls hang: told within ten minutes.",
        ),
        (
            "refused",
            f"({_READS} == 0 and {refused})\nor sum without (dns_name) ({resolved}) == 0",
            "45m",
            "has not read SERVER for 45 minutes: its connections are refused, or its name has no address",
            "Three quarters of an hour, so that a large model can load. A name that is not resolved has a series of its own.",
        ),
        (
            "flapping",
            _flaps("vllm_specdec_up", 3),
            "5m",
            "has lost SERVER again and again for half an hour, as in a crash loop",
            "A server that restarts again and again is up now and then.",
        ),
    )
    for reason, expr, hold, what, why in cases:
        server = "{{ with $labels.target }}{{ . }}{{ else }}its vLLM{{ end }}"
        yield Alert(
            name="UpstreamUnreachable",
            promise=Promise("Does each exporter read its vLLM?", "one-server-refuses", "while-a-model-loads")
            if reason == "no_answer"
            else None,
            severity="warning",
            subject="monitoring",
            level="instance",
            expr=expr,
            hold=hold,
            keep="5m",
            summary="An exporter cannot read its vLLM.",
            description=f"The exporter at {PLACE}{IN} {what.replace('SERVER', server)}.",
            action=_LOOK,
            dashboard="exporter",
            labels={"reason": reason},
            context=of_target(
                'sum(increase(vllm_specdec_poll_errors_total{reason="unrecognized",TARGET}[30m])) > 0',
                COUNT,
                "{} answers in no supported dialect: after an upgrade of vLLM, upgrade the exporter",
            )
            if reason == "no_answer"
            else "",
            why=why,
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


def _lacks() -> Record:
    info, active = (
        f"max by ({TARGET}) (last_over_time(vllm_specdec_{each}[{LOOK_BACK}]))"
        for each in ("info", 'activity{state="active"}')
    )
    names = "|".join((*THRESHOLDS, *_OF_TARGETS))
    there = (
        f'count by ({TARGET}) (last_over_time(vllm_specdec_threshold{{threshold=~"{names}"}}[{LOOK_BACK}]))'
    )
    nameless = (
        active.replace('"active"', '"active",model_name="",pod!=""').replace(f"max by ({TARGET})", "").strip()
    )
    lack = {
        "thresholds": f"({info} unless {there} == {len(THRESHOLDS) + len(_OF_TARGETS)})",
        "vllm_specdec_info": f"({active} unless on ({TARGET}) {info})",
        "the_name_of_the_model": f"max by ({TARGET}) ({nameless} and on ({_POD}) {_NAMED})",
        "labels_that_Prometheus_renamed_to_exported": f"count by ({TARGET}) ({_RENAMED})",
    }
    values = labelled("lack", **lack)
    return Record(
        _LACK,
        f"group by ({TARGET}, lack) (\n{values}\n)",
        why="What alerts need of an exporter that is scraped, and Prometheus has not.",
    )


def _rules_blind() -> Alert:
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
        expr=_LACK,
        hold="5m",
        keep="5m",
        summary="Prometheus lacks series of an exporter that alerts need.",
        description=(
            "The exporter at {{ $labels.instance }}"
            + IN
            + " is scraped, but Prometheus lacks some of its series or labels: "
            "{{ $labels.lack }}. Alerts that need them cannot fire, or name no model."
        ),
        action="Set honor_labels, let them through metric relabelling, or bring exporter and rules to the same version.",
        dashboard="exporter",
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
