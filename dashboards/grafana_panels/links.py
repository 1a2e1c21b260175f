"""Links between dashboards; they keep the time range, the data source and what is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dashboard import TAG

if TYPE_CHECKING:
    from .field import Json

#: Kept as they are by a link from a table row, whose own labels replace the others.
_KEPT = "${datasource:queryparam}&${job:queryparam}&${window:queryparam}"


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
    """Return a data link from a table row to a dashboard.

    Args:
        title: what the link says.
        uid: of the dashboard.
        labels: columns that choose the variable of their name. Such a column must be there in every row;
            `named_or_all` sees to that for labels that may be absent.
    """
    chosen = "".join(f"&var-{label}=${{__data.fields.{_field(label)}}}" for label in labels)
    return {"targetBlank": False, "title": title, "url": f"/d/{uid}?${{__url_time_range}}&{_KEPT}{chosen}"}


def to_here(title: str, uid: str) -> Json:
    """Return a data link from a tile to a dashboard with everything as it is."""
    return {
        "targetBlank": False,
        "title": title,
        "url": f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}",
    }


def _field(label: str) -> str:
    return f"chosen_{label}"


def chosen(label: str) -> str:
    """Return the name of the column that a link takes a label's value from."""
    return _field(label)


def named_or_all(expr: str, *labels: str) -> str:
    """Return an expression with a further label for each label: its value, or All where it is absent."""
    for label in labels:
        expr = f'label_replace({expr}, "{_field(label)}", "$1", "{label}", "(.+)")'
        expr = f'label_replace({expr}, "{_field(label)}", "All", "{_field(label)}", "")'
    return expr
