"""The texts of alerts: templates of values, of places and of likely causes; rule
modules call this one `t`.
"""

from collections.abc import Mapping

from mixin import CLUSTER

from .rule import Level
from .series import sample, threshold

# --- pieces of text

NAME = "{{ with $labels.model_name }}{{ . }}{{ else }}a model without a name{{ end }}"
#: The pod, or else the address, of what an alert is about.
PLACE = "{{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}"
#: The namespace of what an alert is about, where it has one.
IN = "{{ with $labels.namespace }} in {{ . }}{{ end }}"
_SERVER = "{{ with $labels.target }} (server {{ . }}){{ end }}"

#: Whom an alert of a level is about.
WHO: dict[Level, str] = {
    "model": NAME + IN,
    "instance": f"{NAME} at {PLACE}{IN}{_SERVER}",
    "engine": f"{NAME}, engine {{{{ $labels.engine }}}} at {PLACE}{IN}{_SERVER}",
    "": "",
}

PERCENT = "humanizePercentage"
NUMBER = 'printf "%.2f"'
TIMES = 'printf "%.2fx"'
COUNT = "humanize"
#: Of an increase, which Prometheus extrapolates.
WHOLE = 'printf "%.0f"'

#: Of a model with several methods: which one.
BY_METHOD = "{{ with $labels.method }} with {{ . }}{{ end }}"

#: Where a change belongs, if it is not for all engines of a model.
ON_METHOD = (
    "{{ with $labels.method }} on the engines with {{ . }}, and on no other{{ end }}"
)

#: What is counted for the whole model, in an alert on one of its methods.
OF_ALL = "{{ if $labels.method }} of all methods{{ end }}"

#: Labels that a query about the alert's model, exporter or namespace is limited to, by
#: the slot in the query.
_OF = {
    "MODEL": (CLUSTER, "namespace", "model_name"),
    "METHOD": (CLUSTER, "namespace", "model_name", "method"),
    "TARGET": (CLUSTER, "namespace", "job", "instance"),
    "ENGINE": (
        CLUSTER,
        "namespace",
        "job",
        "instance",
        "target",
        "model_name",
        "engine",
    ),
    "NAMESPACE": (CLUSTER, "namespace"),
}


def this(form: str) -> str:
    """Return the template of the alert's own value."""
    return f"{{{{ $value | {form} }}}}"


def _asked(query: str) -> str:
    """Return the template that prints a query, with matchers of the alert's own labels
    in place of its slots.

    Args:
        query: PromQL, where selectors end in `MODEL}`, `METHOD}`, `TARGET}`, `ENGINE}`
            or `NAMESPACE}`.
    """
    labels: list[str] = []
    for slot, names in _OF.items():
        if f"{slot}}}" in query:
            begin = len(labels) + 1
            matchers = ",".join(
                f"{name}=%[{number}]q" for number, name in enumerate(names, begin)
            )
            query = query.replace(f"{slot}}}", matchers + "}")
            labels += names
    arguments = " ".join(f"$labels.{label}" for label in labels)
    return f"printf `{query}` {arguments}"


def first(query: str, value: str, template: str = "{}") -> str:
    """Return the template of a query's first series, in a template around `{}`; nothing
    where there is none.

    Args:
        query: as of `_asked`.
        value: what is shown of the series: `value` and its form, or a label.
        template: what stands around it.
    """
    shown = template.replace("{}", f"{{{{ . | first | {value} }}}}")
    return f"{{{{ with {_asked(query)} | query }}}}{shown}{{{{ end }}}}"


def value(query: str, form: str, template: str = "{}") -> str:
    """Return the same of the value of a series, or of a query with a slot, about the
    alert's model unless it says.
    """
    if any(f"{slot}}}" in query for slot in _OF):
        asked = query
    else:
        asked = f"{query}{{MODEL}}"
    return first(asked, f"value | {form}", template)


def in_force(name: str, form: str, template: str = "{}") -> str:
    """Return the template of a threshold in force."""
    return value(of_model(threshold(name)), form, template)


def of_model(selector: str) -> str:
    """Return a selector with matchers of the alert's model as well."""
    return selector.replace("}", ",MODEL}")


def drafts(window: str, more: str = "") -> str:
    """Return the template of the number of drafts that a model had in a window."""
    drafted = f"round({sample(window, of='{MODEL}')})"
    return value(drafted, COUNT, f"{{}} drafts in {window}{more}")


def each(query: str, label: str, form: str, prefix: str = "") -> str:
    """Return the template of all values of a query, each after the value of a label.

    Args:
        query: as of `_asked`.
        label: what tells the values apart.
        form: how a value is written.
        prefix: what stands before the first.
    """
    return every(query, {label: form}, prefix)


def every(query: str, forms: Mapping[str, str], prefix: str = "") -> str:
    """Return the same of a query whose series have one of several labels.

    Args:
        query: as of `_asked`.
        forms: how a value is written, by the label that its series has.
        prefix: what stands before the first.
    """
    begin = f"{{{{ else }}}}{prefix}" if prefix else ""
    shown = "".join(
        f'{{{{ with $one | label "{label}" }}}}{{{{ . }}}} '
        f"{{{{ $one | value | {form} }}}}{{{{ end }}}}"
        for label, form in forms.items()
    )
    return (
        f"{{{{ range $index, $one := {_asked(query)} | query }}}}{{{{ if $index }}}}, "
        f"{begin}{{{{ end }}}}{shown}{{{{ end }}}}"
    )
