"""Links between dashboards; they keep the time range, the data source and what is
chosen.
"""

from collections.abc import Sequence

from .field import Json
from .variables import LABELS

#: What the Deep dive is called in links.
DEEP_DIVE = "vllm-specdec-deep-dive"
#: Tag of the dashboards that vLLM brings.
VLLM = "vllm"


def to_all(tags: Sequence[str], docs: str) -> list[Json]:
    """Return the links at the top: to the dashboards with these tags, to vLLM's own,
    and to the documents.
    """
    kept = {
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }
    menu = [
        {
            **kept,
            "asDropdown": False,
            "tags": list(tags),
            "title": "Speculative decoding",
            "type": "dashboards",
        },
        {
            **kept,
            "asDropdown": True,
            "tags": [VLLM],
            "title": "vLLM",
            "type": "dashboards",
        },
    ]
    if docs:
        menu.append(
            {
                **kept,
                "includeVars": False,
                "tags": [],
                "title": "Documents",
                "type": "link",
                "url": docs,
            }
        )
    return menu


def to_model(title: str) -> Json:
    """Return a data link from a table row to the Deep dive of its model.

    The columns that `named_or_any` adds choose the variables; they are there in every
    row.
    """
    chosen = (
        f"var-{label}=${{__data.fields.{_chosen(label)}:percentencode}}"
        for label in LABELS
    )
    every = ("var-pod=%24__all", "var-engine=%24__all")
    return _link(
        DEEP_DIVE,
        title,
        "${datasource:queryparam}",
        "${window:queryparam}",
        *chosen,
        *every,
    )


def only(
    uid: str, title: str, label: str, column: str, variables: tuple[str, ...]
) -> Json:
    """Return a data link to the same dashboard with an ad hoc filter: a label has the
    value of a column.

    Args:
        uid: of the dashboard.
        title: of the link.
        label: that the filter matches.
        column: heading of the label's column.
        variables: that keep their values.
    """
    kept = (f"${{{name}:queryparam}}" for name in variables)
    return _link(
        uid,
        title,
        *kept,
        f"var-filters={label}%7C%3D%7C${{__data.fields.{column}:percentencode}}",
    )


def _link(uid: str, title: str, *parts: str) -> Json:
    url = f"/d/{uid}?{'&'.join(('${__url_time_range}', *parts))}"
    return {"targetBlank": False, "title": title, "url": url}


def _chosen(label: str) -> str:
    return f"chosen_{label}"


#: Labels that `named_or_any` adds.
CHOSEN = tuple(_chosen(label) for label in LABELS)


def named_or_any(expr: str) -> str:
    """Return an expression with a further label for each variable: the value of its
    label, or `.*` without one.

    A model without a name has none: its variable is no regular expression.
    """
    for label in LABELS:
        expr = f'label_replace({expr}, "{_chosen(label)}", "$1", "{label}", "(.+)")'
        if label != "model_name":
            expr = (
                f'label_replace({expr}, "{_chosen(label)}", ".*", "{_chosen(label)}", '
                '"")'
            )
    return expr
