"""The texts of alerts: templates of values, of places and of likely causes; rule modules call this one `t`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixin import CLUSTER

from .series import sample, threshold

if TYPE_CHECKING:
    from .rule import Level

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


def each(query: str, label: str, form: str, before: str = "") -> str:
    """Return the template of all values of a query about the alert's model, each after the value of a label.

    Args:
        query: PromQL, with `MODEL` where the matchers of the model belong.
        label: what tells the values apart.
        form: how a value is written.
        before: what stands before the first.
    """
    matchers = f"{CLUSTER}=%[1]q,namespace=%[2]q,model_name=%[3]q"
    asked = f"printf `{query.replace('MODEL}', matchers + '}')}` {_MODEL_LABELS}"
    first = f"{{{{ else }}}}{before}" if before else ""
    one = f'{{{{ $one | label "{label}" }}}} {{{{ $one | value | {form} }}}}'
    return f"{{{{ range $index, $one := {asked} | query }}}}{{{{ if $index }}}}, {first}{{{{ end }}}}{one}{{{{ end }}}}"
