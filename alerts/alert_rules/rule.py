"""What a rule is, and what every rule of the bundle is built from.

An alert is about one of three levels, each with the labels that remain:

    engine    one engine of one exporter: all labels that Prometheus attached
    instance  one exporter: the engines of a server (or pod) together
    model     one model in one namespace of one cluster: `cluster` and `namespace` stay
        where they exist

Ratios are never averaged: numerators and denominators are summed separately, then
divided.
"""

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info", "none"]
Level = Literal["engine", "instance", "model", ""]

#: What an alert is about; the more severe alert of a subject silences the others of the
#: same model.
Subject = Literal[
    "monitoring",
    "activity",
    "acceptance",
    "payoff",
    "errors",
    "decision",
    "objective",
]


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule: `level:metric:operations`.

    Attributes:
        name: what it is recorded as.
        expr: what it is.
        labels: labels to add.
        why: a comment for the reader of the YAML; a line that begins with "- " is an
            item of a list.
    """

    name: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)
    why: str = ""


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
        keep: how long it stays once it is no longer true (`keep_firing_for`), or ""
            with a dead band.
        summary: what is wrong, in one sentence that never changes.
        description: what is wrong here, with values; Prometheus's templates.
        action: what to do, in one sentence.
        dashboard: the dashboard that shows it, where it is another than its subject's.
        value: the value that decided, for people; Prometheus's templates.
        threshold: what it was compared with, likewise.
        sample: how much it rests on, likewise.
        context: what else a person should know at once, likewise.
        labels: further labels.
        why: a comment for the reader of the YAML.
    """

    name: str
    subject: Subject
    expr: str
    hold: str
    summary: str
    description: str
    action: str
    severity: Severity = "warning"
    level: Level = "model"
    keep: str = ""
    dashboard: str = ""
    value: str = ""
    threshold: str = ""
    sample: str = ""
    context: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after another, at the interval of `mixin.yml` or at
    their own.
    """

    name: str
    rules: tuple[Record | Alert, ...]
    interval: str = ""
