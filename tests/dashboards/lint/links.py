"""Links: every one leads to a dashboard of the bundle, with variables that it has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from .queries import FORMATS, VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .document import Dashboard, Panel

#: Variables of data links, by their beginning.
_DATA = ("__data.fields", "__field.name", "__field.labels", "__series.name", "__value.", "__url_time_range",
         "__all_variables", "__from", "__to")  # fmt: skip
_PATH = re.compile(r"/d/(?P<uid>[\w-]+)(/[\w-]+)?\Z")


def data_links(panel: Panel) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the links of a panel: where it stands, and the link."""
    yield from (("the panel", link) for link in panel.body.get("links", ()))
    for name, properties in panel.fields:
        yield from ((name or "all fields", link) for link in properties.get("links", ()))


def link_complaints(
    url: str, dashboard: Dashboard, bundle: Sequence[Dashboard], *, columns: Sequence[str] = ()
) -> list[str]:
    """Return what is wrong with a link from a dashboard.

    Args:
        url: the link.
        dashboard: where it stands.
        bundle: all dashboards.
        columns: the names of the fields that it can take values from.
    """
    found = [words for match in VARIABLE.finditer(url) for words in _syntax(match, dashboard, columns)]
    if url.count("${") != len(re.findall(r"\$\{[^{}]+\}", url)):
        found.append("a brace is not closed")
    parts = urlsplit(url)
    if parts.scheme == "https":
        return found
    path = _PATH.fullmatch(parts.path)
    if path is None:
        return [*found, f"{parts.path} is no dashboard"]
    target = next((one for one in bundle if one.uid == path["uid"]), None)
    if target is None:
        return [*found, f"no dashboard {path['uid']}"]
    return [*found, *_query_complaints(parts.query, dashboard, target)]


def _syntax(match: re.Match[str], dashboard: Dashboard, columns: Sequence[str]) -> Iterator[str]:
    name = match["plain"] or match["braced"] or match["old"]
    if match["format"] and match["format"] not in FORMATS | {"percentencode"}:
        yield f"unknown format {match['format']}"
    if name.startswith("__data.fields"):
        field = name.removeprefix("__data.fields.")
        if columns and field not in columns:
            yield f"no field {field}"
    elif name.startswith("__"):
        if not name.startswith(_DATA):
            yield f"unknown variable {name}"
    elif name not in dashboard.names:
        yield f"no variable {name}"


def _query_complaints(query: str, dashboard: Dashboard, target: Dashboard) -> Iterator[str]:
    """Say what is wrong with what a link hands over: time, variables, or variables that are not there."""
    given = [key for key, _ in parse_qsl(query, keep_blank_values=True)]
    whole = query.split("&")
    if "${__url_time_range}" not in whole and not {"from", "to"} & set(given):
        yield "does not keep the time"
    handed = [key.removeprefix("var-") for key in given if key.startswith("var-")]
    handed += [match["braced"] for match in VARIABLE.finditer(query) if match["format"] == "queryparam"]
    yield from (f"{target.uid} has no variable {name}" for name in handed if name not in target.names)
    yield from (f"{name} is handed over twice" for name in sorted(set(handed)) if handed.count(name) > 1)
    if "${__all_variables}" not in whole:
        shared = {"datasource", "job"} & set(dashboard.names) & set(target.names)
        yield from (f"does not keep {name}" for name in sorted(shared - set(handed)))


def top_link_complaints(link: Mapping[str, Any], bundle: Sequence[Dashboard]) -> list[str]:
    """Return what is wrong with a link at the top of a dashboard."""
    found = [f"{key} is not kept" for key in ("keepTime", "includeVars") if link.get(key) is not True]
    if link.get("type") == "dashboards":
        tags = set(link.get("tags", ()))
        if not tags or not any(tags <= set(one.body.get("tags", ())) for one in bundle):
            found.append(f"no dashboard has the tags {sorted(tags)}")
        if link.get("url"):
            found.append("an address besides tags")
    elif not (path := _PATH.fullmatch(str(link.get("url", "")))):
        found.append(f"{link.get('url')} is no dashboard")
    elif path["uid"] not in {one.uid for one in bundle}:
        found.append(f"no dashboard {path['uid']}")
    return found


_ACTION = re.compile(r"\{\{.*?\}\}")


def alert_complaints(url: str, bundle: Sequence[Dashboard]) -> list[str]:
    """Return what is wrong with the link of an alert, in which every template may be empty."""
    parts = urlsplit(_ACTION.sub("", url))
    path = _PATH.fullmatch(parts.path)
    target = next((one for one in bundle if path and one.uid == path["uid"]), None)
    if target is None:
        return [f"{parts.path} is no dashboard of the bundle"]
    given = [key for key, _ in parse_qsl(parts.query, keep_blank_values=True)]
    found = [] if "from" in given else ["does not say from when"]
    known = {"from", "to", *(f"var-{name}" for name in target.names)}
    return found + [f"{target.uid} has no {key}" for key in given if key not in known]
