"""Links between dashboards; they keep the time range, the data source and what is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dashboard import TAG
from .variables import ENGINE_LABELS

if TYPE_CHECKING:
    from .field import Json


def to_all() -> list[Json]:
    """Return the links at the top: one to each dashboard of the family."""
    return [
        {
            "asDropdown": False,
            "icon": "external link",
            "includeVars": True,
            "keepTime": True,
            "tags": [TAG],
            "targetBlank": False,
            "title": "Speculative decoding",
            "type": "dashboards",
        }
    ]


def to_row(title: str, uid: str, *labels: str) -> Json:
    """Return a data link from a table row to a dashboard; what the row does not say stays as it is chosen.

    Args:
        title: what the link says.
        uid: of the dashboard.
        labels: columns that choose the variable of their name. Such a column must be there in every row;
            `named_or_all` sees to that for labels that may be absent.
    """
    kept = ("datasource", "window", *(label for label in ENGINE_LABELS if label not in labels))
    parts = (
        "${__url_time_range}",
        *(f"${{{name}:queryparam}}" for name in kept),
        *(f"var-{label}=${{__data.fields.{chosen(label)}:percentencode}}" for label in labels),
    )
    return {"targetBlank": False, "title": title, "url": f"/d/{uid}?{'&'.join(parts)}"}


def to_here(title: str, uid: str) -> Json:
    """Return a data link from a tile to a dashboard with everything as it is."""
    return {
        "targetBlank": False,
        "title": title,
        "url": f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}",
    }


def chosen(label: str) -> str:
    """Return the name of the column that a link takes a label's value from."""
    return f"chosen_{label}"


def named_or_all(expr: str, *labels: str) -> str:
    """Return an expression with a further label for each label: its value, or All where it is absent."""
    for label in labels:
        expr = f'label_replace({expr}, "{chosen(label)}", "$1", "{label}", "(.+)")'
        expr = f'label_replace({expr}, "{chosen(label)}", "All", "{chosen(label)}", "")'
    return expr
