"""Does monitoring of speculation work? It pages if a namespace has none left."""

from collections.abc import Iterator
from functools import partial

from mixin import CLUSTER

from . import configuration
from . import series as s
from . import text as t
from .rule import Alert, Group, Record

#: Whether its connections are refused, as while a model loads.
_REFUSED = "instance:vllm_specdec_is_refused:bool"
#: Models that vLLM serves: Prometheus scrapes it `here` or, of exporters in a namespace
#: of their own, `elsewhere`.
_KNOWN_TO_SERVE = "model:vllm_specdec_vllm_serves:bool"
_SERVES = f'{_KNOWN_TO_SERVE}{{where!="watched"}}'
#: Models that exporters of a namespace watched.
_WATCHED = f"last_over_time({s.PROFILES}[7d])"
#: The label that names where exporters read a model.
_OF_VLLM = "namespace_of_vllm"
#: The namespace in the name of a Service, such as vllm.chat.svc:8000.
_IN_NAME = r"(?:.*://)?[^.:]+[.]([^.:]*[a-z][^.:]*)(?:[.:].*)?"
#: VLLM that speculates, its namespace by that label.
_VLLM = f'label_replace({s.SPECULATIVE}, "{_OF_VLLM}", "$1", "namespace", "(.*)")'
_RESTART = (
    "Look at the exporter's container or unit and its log; restore the scrape target."
)


def _flaps(up: str, times: int) -> str:
    """Return that something was down so often within half an hour, and for a quarter of
    it at least.
    """
    return f"(resets({up}[30m]) >= {times} and avg_over_time({up}[30m]) < 0.75)"


#: How many exporters of a namespace answer; absent if none is a scrape target.
_ANSWERING = "namespace:vllm_specdec_exporters_up:count"
#: That a namespace had exporters, within a time.
_HAD = f"last_over_time({_ANSWERING}"


def groups() -> tuple[Group, ...]:
    """Return the groups of availability alerts."""
    unreachable = tuple(_unreachable())
    return (
        Group("vllm-specdec.serving", (_serves(), _refused()), s.LONG_INTERVAL),
        Group(
            "vllm-specdec.availability",
            (*_records(), *_lost(), unreachable[0], _watchdog()),
        ),
        Group(
            "vllm-specdec.configuration",
            (_down(), *unreachable[1:], *configuration.rules()),
            s.LONG_INTERVAL,
        ),
    )


def _records() -> Iterator[Record]:
    success = "vllm_specdec_last_success_timestamp_seconds[5m]"
    up = s.plain(f"last_over_time(vllm_specdec_up[{s.LOOK_BACK}])")
    yield Record(
        s.READS,
        f"{s.plain(f'delta({success})')} == 0\nor {up}",
        why=(
            "Whether an exporter reads its vLLM: 1, or 0, also if its polls hang, so "
            "that the time of the last successful one has not changed for five "
            "minutes."
        ),
    )
    yield Record(
        _ANSWERING,
        f"sum by ({s.NAMESPACE}) ({s.UP})",
        why="Exporters that answer Prometheus; absent where none is a scrape target.",
    )


def _serves() -> Record:
    info = f'last_over_time(vllm_specdec_info{{target!=""}}[{s.LOOK_BACK}])'
    # Two exporters may read the same server: one series for both.
    read = f"group by ({s.MODEL}, target) ({info})"
    by_name = f"""label_replace({read}, "{_OF_VLLM}", "$1", "target", "{_IN_NAME}")"""
    by_address = f'label_replace({read}, "instance", "$1", "target", "(.+)")'
    scraped = (
        f"topk by ({CLUSTER}, model_name, instance) (1, "
        f"group by ({CLUSTER}, model_name, instance, {_OF_VLLM}) ({_VLLM}))"
    )
    watched = (
        f"group by ({s.MODEL}, {_OF_VLLM}) (\n"
        f"  {by_name}\n"
        f"  or ({by_address}\n"
        f"    * on ({CLUSTER}, model_name, instance) group_left ({_OF_VLLM})\n"
        f"    {scraped})\n)"
    )
    here = f'last_over_time({_KNOWN_TO_SERVE}{{where="here"}}[7d])'
    elsewhere = (
        f"group by ({s.MODEL}) (\n"
        f'  last_over_time({_KNOWN_TO_SERVE}{{where="watched",{_OF_VLLM}!=""}}[7d])\n'
        f"  and on ({CLUSTER}, model_name, {_OF_VLLM}) {_VLLM}\n"
        f"  unless on ({s.NAMESPACE}) {here}\n)"
    )
    return Record(
        _KNOWN_TO_SERVE,
        s.labelled(
            "where",
            here=f"group by ({s.MODEL}) ({s.SPECULATIVE})",
            elsewhere=elsewhere,
            watched=watched,
        ),
        why=(
            "Models that a vLLM with speculation serves, so that lost exporters "
            "matter; by the label where.\n"
            "- here: Prometheus scrapes a vLLM that has drafted in this namespace.\n"
            "- elsewhere, if there was none here for a week: it scrapes one in another "
            "namespace, where the exporters read it, or did within a week. Another "
            "vLLM with the same name of a model is none of theirs.\n"
            "- watched: no vLLM, but where the exporters read one, for elsewhere: by "
            "the label target of exporters of several servers, which is a name such as "
            "service.namespace or an address that Prometheus scrapes too."
        ),
    )


def _refused() -> Record:
    return Record(
        _REFUSED,
        (
            f"group without (reason, {s.METADATA}) (\n"
            "  increase(\n"
            "    vllm_specdec_poll_errors_total"
            '{reason=~"refused|unreachable"}[5m]\n'
            "  ) > 0\n"
            ")"
        ),
        why=(
            "Polls within five minutes whose connection was refused, or whose name "
            "has no address."
        ),
    )


#: Of each rule that says that nobody watches: a page, unless it says otherwise.
_monitoring_lost = partial(
    Alert,
    name="MonitoringLost",
    subject="monitoring",
    severity="critical",
    level="",
    keep="5m",
)


def _lost() -> tuple[Alert, ...]:
    restore = (
        "Restore the exporter's scrape job (PodMonitor, ServiceMonitor or static "
        "target), or remove these rules."
    )
    return (
        _monitoring_lost(
            labels={"reason": "down"},
            expr=(
                f"({_ANSWERING} == 0\n"
                f"  or ({_ANSWERING} and resets({_ANSWERING}[30m]) > 1\n"
                f"    unless on ({s.NAMESPACE}) (\n"
                f"      (min_over_time({s.UP}[5m]) == 1\n"
                f"        or avg_over_time({s.UP}[30m]) >= 0.5)\n"
                f"      and {s.UP}\n"
                "    )))\n"
                f"and on ({s.NAMESPACE}) {_SERVES}"
            ),
            hold="5m",
            summary="No exporter of a namespace answers, though its vLLM serves.",
            description=(
                f"No exporter{t.IN} has answered Prometheus for 5 minutes, or each was "
                "down for most of the last half hour. Prometheus still scrapes vLLM "
                "there, or where they read a model in another namespace, so it "
                "serves, and harm by speculation goes unnoticed."
            ),
            action=_RESTART,
            why=(
                "Page, reason=down: all are down; or the number of those that answer "
                "fell more than once in half an hour, as in a crash loop, and none was "
                "up for all of five minutes or for half of the half hour. Only while "
                "vLLM's own series are scraped: a host that is off, or a namespace "
                "that is scaled to zero, harms nobody. Without them, ExporterDown is "
                "a ticket."
            ),
            context=t.first(
                f"min_over_time(up{{{s.EXPORTER_JOB},NAMESPACE}}[5m]) == 0",
                'label "instance"',
                "for example the exporter {}",
            ),
        ),
        _monitoring_lost(
            labels={"reason": "cluster"},
            expr=(
                f"count by ({CLUSTER}) ({_ANSWERING}) > 1\n"
                f"and on ({CLUSTER}) (sum by ({CLUSTER}) ({_ANSWERING}) == 0)\n"
                f"and on ({CLUSTER}) {_SERVES}"
            ),
            hold="5m",
            summary="No exporter of a whole cluster answers.",
            description=(
                f"No exporter{{{{ with $labels.{CLUSTER} }}}} in "
                "{{ . }}{{ end }} has answered Prometheus for 5 minutes, in "
                "any of {{ $value | humanize }} namespaces. vLLM serves in at "
                "least one of them, and harm by speculation goes unnoticed."
            ),
            action=(
                "Look at what they have in common: the scrape job, a network policy, "
                "the exporter's image."
            ),
            why=(
                "Page, reason=cluster: one failure is one page, and Alertmanager hides "
                "those of the namespaces."
            ),
        ),
        _monitoring_lost(
            labels={"reason": "absent"},
            expr=(
                f"group by ({s.NAMESPACE}) ({_SERVES})\n"
                f"unless on ({s.NAMESPACE}) {_ANSWERING}\n"
                f"and on ({s.NAMESPACE}) {_HAD}[7d])"
            ),
            hold="10m",
            summary=(
                "The exporters of a namespace are gone, but its vLLM still speculates."
            ),
            description=(
                f"Prometheus no longer scrapes an exporter{t.IN}, and still scrapes a "
                "vLLM with speculation in this namespace, or where they read a model "
                "in another. There were exporters within the last week."
            ),
            action=restore,
            why=(
                "Page, reason=absent: vLLM itself is still scraped, so the service was "
                "not scaled to zero. It ends by itself after a week."
            ),
        ),
        _monitoring_lost(
            labels={"reason": "absent"},
            expr=(
                f"{_HAD}[1d])\n"
                f"unless on ({s.NAMESPACE}) {_ANSWERING}\n"
                f"unless on ({s.NAMESPACE}) {_SERVES}"
            ),
            hold="1h",
            summary="The exporters of a namespace are no longer scraped.",
            description=(
                "Prometheus has scraped no exporter{{ with $labels.namespace }} in "
                "{{ . }}{{ end }} for an hour, but did so within the last day. Either "
                "every server was scaled to zero, or the scrape job was removed or "
                "renamed."
            ),
            action=restore,
            why=(
                "Ticket, reason=absent: without vLLM's own series it is unknown why. "
                "It ends by itself after a day."
            ),
            severity="warning",
        ),
        _monitoring_lost(
            labels={"reason": "unreachable"},
            expr=(
                f"max by ({s.NAMESPACE}) ({s.READS}) == 0\n"
                f"and on ({s.NAMESPACE}) (\n"
                f"  ({s.READS} unless {_REFUSED})\n"
                f"  or ({_SERVES} and on ({s.MODEL}) {_WATCHED})\n)"
            ),
            hold="10m",
            summary="No exporter of a namespace can read its vLLM.",
            description=(
                f"For 10 minutes no exporter{t.IN} has read its vLLM: polls fail or "
                "hang. It is not just starting: Prometheus scrapes vLLM itself, or a "
                "poll fails otherwise than by a connection refused or not reached. "
                "Harm by speculation goes unnoticed."
            ),
            action=_LOOK,
            why=(
                "Page, reason=unreachable: exporters answer, and none of them reads "
                "its vLLM. A refused port may be a loading model, and a name without "
                "an address a service scaled to zero: if all servers of a namespace "
                "fail so, there may be nothing to watch, unless Prometheus scrapes a "
                "vLLM with a model that these exporters read within a week."
            ),
            context=t.first(
                f"{s.READS}{{NAMESPACE}} == 0",
                'label "instance"',
                "for example the exporter {}",
            ),
        ),
    )


def _down() -> Alert:
    return Alert(
        name="ExporterDown",
        subject="monitoring",
        level="instance",
        expr=f"{s.UP} == 0\nor ({_flaps(s.UP, 2)} and {s.UP})",
        hold="10m",
        keep="5m",
        summary="An exporter does not answer.",
        description=(
            f"The exporter at {t.PLACE}{t.IN} has not answered Prometheus for 10 "
            "minutes, or has been down again and again for half an hour."
        ),
        action=_RESTART,
        why=(
            "A ticket, also for one that is down for two minutes of five. "
            "MonitoringLost pages if nobody watches a namespace that serves, and "
            "silences this."
        ),
    )


_LOOK = (
    "Read vllm_specdec_poll_errors_total by reason and the exporter's log; check the "
    "address, TLS, credentials, that a name is resolved, and that vLLM answers "
    "/metrics in a supported dialect."
)


def _unreachable() -> Iterator[Alert]:
    discovered = f"last_over_time(vllm_specdec_discovery_up[{s.LOOK_BACK}])"
    resolved = f'label_replace({discovered}, "target", "$1", "dns_name", "(.+)")'
    cases = (
        (
            "no_answer",
            f"{s.READS} == 0\nunless {_REFUSED}",
            "9m",
            (
                "has not read SERVER for 9 minutes or more, and its connections are "
                "not refused"
            ),
            (
                "The server is up and gives no answer that can be read, or polls "
                "hang: told within ten minutes."
            ),
        ),
        (
            "refused",
            (
                f"({s.READS} == 0 and {_REFUSED})\n"
                f"or {s.plain(resolved, without='dns_name')} == 0"
            ),
            "45m",
            (
                "has not read SERVER for 45 minutes: its connections are refused, or "
                "its name has no address"
            ),
            (
                "Three quarters of an hour, so that a large model can load. A name "
                "that is not resolved has a series of its own."
            ),
        ),
        (
            "flapping",
            _flaps("vllm_specdec_up", 3),
            "5m",
            "has lost SERVER again and again for half an hour, as in a crash loop",
            "A server that restarts again and again is up now and then.",
        ),
    )
    for reason, expr, hold, symptom, why in cases:
        server = "{{ with $labels.target }}{{ . }}{{ else }}its vLLM{{ end }}"
        yield Alert(
            name="UpstreamUnreachable",
            subject="monitoring",
            level="instance",
            expr=expr,
            hold=hold,
            keep="5m",
            summary="An exporter cannot read its vLLM.",
            description=(
                f"The exporter at {t.PLACE}{t.IN} {symptom.replace('SERVER', server)}."
            ),
            action=_LOOK,
            labels={"reason": reason},
            context=t.value(
                "sum(increase(vllm_specdec_poll_errors_total"
                '{reason="unrecognized",TARGET}[30m])) > 0',
                t.WHOLE,
                (
                    "{} answers in no supported dialect: after an upgrade of vLLM, "
                    "upgrade the exporter"
                ),
            )
            if reason == "no_answer"
            else "",
            why=why,
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
            "This alert always fires. Have the receiver of the watchdog raise an "
            "alarm when it stops: then Prometheus, Alertmanager or the connection to "
            "the receiver is broken."
        ),
        action=(
            "Nothing while it fires. When it stops, look at Prometheus and "
            "Alertmanager."
        ),
        why="A dead man's switch: alert on its absence.",
    )
