"""What a rule is, and what every rule of the bundle is built from.

An alert is about one of three levels, each with the labels that remain:

    engine    one engine of one exporter: all labels that Prometheus attached
    instance  one exporter: the engines of a server (or pod) together
    model     one model in one namespace of one cluster: `cluster` and `namespace` stay where they exist

Ratios are never averaged: numerators and denominators are summed separately, then divided.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mixin import CLUSTER, JOB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Labels that name a model, whatever its replicas.
MODEL = f"{CLUSTER}, namespace, model_name"
#: Labels that name a scrape target of the exporter.
TARGET = f"{CLUSTER}, namespace, job, instance"

#: Labels that name an engine, whatever else Prometheus attaches.
ENGINE = f"{TARGET}, target, model_name, engine"

#: What selects the exporter's own `up`: its job by name, also as an operator names it (namespace/name).
EXPORTER_JOB = f'job=~"{JOB}"'

#: Of groups whose values hardly change between two evaluations, or cost the most; below Prometheus's look-back of 5m.
LONG_INTERVAL = "3m"

#: How far back a gauge may lie: more than two scrapes, so that a lost one hides nothing.
LOOK_BACK = "3m"

Severity = Literal["critical", "warning", "info", "none"]
Level = Literal["engine", "instance", "model", ""]

#: What an alert is about; the more severe alert of a subject silences the others of the same model.
Subject = Literal[
    "monitoring", "activity", "acceptance", "payoff", "latency", "load", "errors", "decision", "objective"
]


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule: `level:metric:operations`.

    Attributes:
        name: what it is recorded as.
        expr: what it is.
        labels: labels to add.
        why: a comment for the reader of the YAML.
    """

    name: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """What an alert promises, once for all rules of its name. Tests hold it.

    Attributes:
        question: which it answers.
        finds: history in which it fires: a fault of `tests/replay`, or a case of `tests/alerts`.
        silent: history in which it does not fire, likewise; empty for one that always fires.
        false_alarms: how often it may fire in the healthy days of `tests/replay`.
    """

    question: str
    finds: str
    silent: str
    false_alarms: int = 0


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule.

    Attributes:
        name: CamelCase, without the prefix that all share.
        severity: critical pages, warning is a ticket, info is shown and nothing more.
        subject: what it is about.
        level: what its labels name.
        expr: when it is true.
        hold: how long it must be true (`for`).
        keep: how long it stays once it is no longer true (`keep_firing_for`), or "" with a dead band.
        summary: what is wrong, in one sentence that never changes.
        description: what is wrong here, with values; Prometheus's templates.
        action: what to do, in one sentence.
        dashboard: the dashboard that shows it.
        value: the value that decided, for people; Prometheus's templates.
        threshold: what it was compared with, likewise.
        sample: how much it rests on, likewise.
        context: what else a person should know at once, likewise.
        labels: further labels.
        why: a comment for the reader of the YAML.
        promise: what alerts of this name promise; at the first rule of a name.
    """

    name: str
    severity: Severity
    subject: Subject
    level: Level
    expr: str
    hold: str
    summary: str
    description: str
    action: str
    keep: str = ""
    dashboard: str = "overview"
    value: str = ""
    threshold: str = ""
    sample: str = ""
    context: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    why: str = ""
    promise: Promise | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after another, at the server's interval or at their own."""

    name: str
    rules: tuple[Record | Alert, ...]
    interval: str = ""


# --- pieces of PromQL


def threshold(name: str) -> str:
    """Return the threshold in force, by model."""
    return f"model:vllm_specdec_{name}:threshold"


def threshold_of_targets(name: str) -> str:
    """Return a threshold by exporter: what has no model has no threshold of a model."""
    return f'max by ({TARGET}) (last_over_time(vllm_specdec_threshold{{threshold="{name}"}}[{LOOK_BACK}]))'


def thresholds_of_models(names: Iterable[str], models: str, why: str) -> Iterator[Record]:
    """Yield the records of thresholds by model.

    Args:
        names: of the thresholds.
        models: what has a series with the value 1 for every model of an exporter.
        why: the comment, which the first one has.
    """
    for name in names:
        yield Record(
            threshold(name),
            f"min by ({MODEL}) (\n"
            f"  {threshold_of_targets(name)}\n"
            f"  * on ({TARGET}) group_right ()\n"
            f"  {models}\n"
            ")",
            why=why,
        )
        why = ""


def compare(level: Level, left: str, operator: str, name: str) -> str:
    """Return a comparison of a level's series with a threshold."""
    match = "" if level == "model" else f" on ({MODEL}) group_left ()"
    return f"{left} {operator}{match} {threshold(name)}"


#: Windows of recorded rates, in seconds.
SECONDS = {"5m": 300, "30m": 1800, "1h": 3600, "6h": 21600, "1d": 86400}


def sample(level: Level, window: str, offset: str = "") -> str:
    """Return the number of drafts in a window."""
    back = f" offset {offset}" if offset else ""
    return f"{SECONDS[window]} * {level}:vllm_specdec_drafts:rate{window}{back}"


def enough(level: Level, window: str, name: str = "advice_minimum_drafts", offset: str = "") -> str:
    """Return the condition that a window holds enough drafts."""
    return compare(level, sample(level, window, offset), ">=", name)


def labelled(name: str, **series: str) -> str:
    """Return several series as one that tells them apart by a label.

    Args:
        name: of the label.
        series: what each value of the label stands for; `_` is written as a blank.
    """
    return "\nor ".join(
        f'label_replace({expr}, "{name}", "{value.replace("_", " ")}", "", "")'
        for value, expr in series.items()
    )


#: Whether enough drafts were made to judge a model by, in five minutes, half an hour and an hour.
ENOUGH_5M, ENOUGH_30M, ENOUGH_1H = (
    f"model:vllm_specdec_has_enough_drafts:bool{window}" for window in ("5m", "30m", "1h")
)
#: What says whether speculation should be off, by the label `measure`: values, and their limits.
DECISIVE, DECISIVE_LIMIT = (f"model:vllm_specdec_decisive:{what}" for what in ("value", "threshold"))
#: The smallest of those values over their limits: of the published rule, and of all. Below 1 it should be off.
PUBLISHED_RULE, DISABLE_RULE = (
    f"model:vllm_specdec_{which}_rule:ratio" for which in ("published", "disable")
)
#: It pays by more than a guess; by no more than a guess it may pay.
KNOWN_TO_PAY, UNDECIDED = (f"model:vllm_specdec_is_{which}:bool" for which in ("known_to_pay", "undecided"))
#: The published rule and a guess contradict each other.
TO_BE_MEASURED = "model:vllm_specdec_is_to_be_measured:bool"
#: The method of an engine, where a model has several.
METHOD = "engine:vllm_specdec_method:info"
#: What is known of a model, by the label `verdict`.
VERDICT = "model:vllm_specdec_verdict:info"
#: The speedup of a model now, where it is known.
SPEEDUP = "model:vllm_specdec_speedup:ratio_rate5m"
#: The same where there are enough drafts to judge by.
CERTAIN_SPEEDUP = "model:vllm_specdec_certain_speedup:ratio_rate5m"
#: The same of each method of a model that has several, as in an A/B test.
METHOD_SPEEDUP = "method:vllm_specdec_certain_speedup:ratio_rate5m"
#: The same where it is measured or calibrated, and its interval excludes 1, on every engine.
PROVEN_SPEEDUP = "model:vllm_specdec_proven_speedup:ratio_rate5m"
#: Engines of a model that were started within two hours; absent if none was.
RESTARTS = "model:vllm_specdec_restarts:count2h"
#: Now or, where traffic is too thin for that, within the last hour, or else over the last day.
KNOWN_SPEEDUP = "model:vllm_specdec_known_speedup:last1d"
#: The exception for speculation that is beneficial, whatever the acceptance.
UNLESS_IT_PAYS = f"unless {KNOWN_SPEEDUP} >= {threshold('beneficial_speedup')}"


# --- pieces of text

_NAME = "{{ with $labels.model_name }}{{ . }}{{ else }}a model without a name{{ end }}"
#: The pod, or else the address, of what an alert is about.
PLACE = "{{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}"
#: The namespace of what an alert is about, where it has one.
IN = "{{ with $labels.namespace }} in {{ . }}{{ end }}"
_SERVER = "{{ with $labels.target }} (server {{ . }}){{ end }}"

#: Whom an alert of a level is about.
WHO: dict[Level, str] = {
    "model": _NAME + IN,
    "instance": f"{_NAME} at {PLACE}{_SERVER}",
    "engine": f"{_NAME}, engine {{{{ $labels.engine }}}} at {PLACE}{_SERVER}",
    "": "",
}

PERCENT = "humanizePercentage"
NUMBER = 'printf "%.2f"'
TIMES = 'printf "%.2fx"'
COUNT = "humanize"

#: Of a model with several methods: which one.
BY_METHOD = "{{ with $labels.method }} with {{ . }}{{ end }}"

_MODEL_MATCHERS = f"{CLUSTER}=%q,namespace=%q,model_name=%q"
_MODEL_LABELS = f"$labels.{CLUSTER} $labels.namespace $labels.model_name"


def this(form: str) -> str:
    """Return the template of the alert's own value."""
    return f"{{{{ $value | {form} }}}}"


def _queried(query: str, form: str, words: str) -> str:
    """Return the template of a query, in words around `{}`; nothing without a value.

    Args:
        query: a template that prints PromQL.
        form: how the value is written.
        words: what stands around it.
    """
    value = f"{{{{ . | first | value | {form} }}}}"
    return f"{{{{ with {query} | query }}}}" + words.replace("{}", value) + "{{ end }}"


def of_model(metric: str, form: str, words: str = "{}") -> str:
    """Return the template of a series of the alert's model, in words around `{}`; nothing where it is absent."""
    return _queried(f'printf "{metric}{{{_MODEL_MATCHERS}}}" {_MODEL_LABELS}', form, words)


def of_target(query: str, form: str, words: str = "{}") -> str:
    """Return the template of a query about the alert's exporter, in words around `{}`; nothing where it is absent.

    Args:
        query: PromQL, with `TARGET` where the matchers of the exporter belong.
        form: how the value is written.
        words: what stands around it.
    """
    matchers = f"{CLUSTER}=%[1]q,namespace=%[2]q,job=%[3]q,instance=%[4]q"
    labels = f"$labels.{CLUSTER} $labels.namespace $labels.job $labels.instance"
    return _queried(f"printf `{query.replace('TARGET', matchers)}` {labels}", form, words)


def in_force(name: str, form: str, words: str = "{}") -> str:
    """Return the template of a threshold in force."""
    return of_model(threshold(name), form, words)


def drafts(window: str, more: str = "") -> str:
    """Return the template of the number of drafts that a model had in a window."""
    return of_model(sample("model", window), COUNT, f"{{}} drafts in {window}{more}")


def cause(query: str, form: str, words: str) -> str:
    """Return the template of a likely cause: the words, where a query about the alert's model has a value.

    Args:
        query: PromQL, with `MODEL` where the matchers of the model belong.
        form: how the value is written.
        words: the cause, with the value in place of `{}`.
    """
    matchers = f"{CLUSTER}=%[1]q,namespace=%[2]q,model_name=%[3]q"
    return _queried(f"printf `{query.replace('MODEL', matchers)}` {_MODEL_LABELS}", form, words)


def each(query: str, label: str, form: str) -> str:
    """Return the template of all values of a query about the alert's model, each after the value of a label.

    Args:
        query: PromQL, with `MODEL` where the matchers of the model belong.
        label: what tells the values apart.
        form: how a value is written.
    """
    matchers = f"{CLUSTER}=%[1]q,namespace=%[2]q,model_name=%[3]q"
    asked = f"printf `{query.replace('MODEL}', matchers + '}')}` {_MODEL_LABELS}"
    one = f'{{{{ $one | label "{label}" }}}} {{{{ $one | value | {form} }}}}'
    return (
        f"{{{{ range $index, $one := {asked} | query }}}}{{{{ if $index }}}}, {{{{ end }}}}{one}{{{{ end }}}}"
    )
