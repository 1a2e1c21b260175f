"""Variables as Grafana's Prometheus data source knows them: their options, and what takes their place.

After `interpolateQueryExpr` (escaping.ts), metric_find_query.ts and the handling of a variable's `regex` and
`sort` in Grafana.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from dashboards.grafana_timing import DashboardError, Json, Timing, Value, Viewing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from support.prometheus import PrometheusServer

ALL = "$__all"

_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::(\w+))?\}")
_LEFT_OVER = re.compile(r"\$\{|\[\[\w+")
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)\s*")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)\s*")


@dataclass(frozen=True)
class Variable:
    """A variable with what there is to choose and what is chosen.

    Attributes:
        name: its name.
        options: values to choose from, without All.
        value: what is chosen; `$__all` for All.
        multi: whether several can be chosen, or All, so that values are regular expressions.
        all_value: what All stands for; empty for all options.
    """

    name: str
    options: tuple[str, ...]
    value: Value
    multi: bool
    all_value: str = ""

    @property
    def is_all(self) -> bool:
        """Whether All is chosen."""
        return self.value in (ALL, (ALL,))

    def text(self, format_: str = "") -> str:
        """Return what Grafana puts in the place of the variable.

        Raises:
            DashboardError: it knows no such format.
        """
        if format_ not in ("", "queryparam"):
            msg = f"${{{self.name}:{format_}}}: unknown format"
            raise DashboardError(msg)
        if format_:
            values = (self.value,) if isinstance(self.value, str) else self.value
            return "&".join(
                f"var-{self.name}={ALL if self.is_all else quote(one, safe='')}" for one in values
            )
        if self.is_all and self.all_value:
            return self.all_value
        value = self.options if self.is_all else self.value
        if not self.multi:
            one = value if isinstance(value, str) else "".join(value)
            return one.replace("\\", "\\\\").replace('"', '\\"')
        escaped = [_escaped(one) for one in ((value,) if isinstance(value, str) else value)]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _escaped(value: str) -> str:
    """Escape for a regular expression within a string of PromQL."""
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def interpolate(text: str, variables: Mapping[str, Variable], own: Mapping[str, str] | None = None) -> str:
    """Put values in the place of variables; `own` are Grafana's own, such as `__range`.

    Raises:
        DashboardError: a variable is not known.
    """
    own = own or {}

    def value(match: re.Match[str]) -> str:
        name, format_ = match[1] or match[2], match[3] or ""
        if name in own and not format_:
            return own[name]
        if name.isdigit():
            return match[0]  # a group of label_replace: what Grafana does not know it leaves alone
        if name not in variables:
            msg = f"{text}: no variable {name}"
            raise DashboardError(msg)
        return variables[name].text(format_)

    if _LEFT_OVER.search(_VARIABLE.sub("", text)):
        msg = f"{text}: not a variable as Grafana writes it"
        raise DashboardError(msg)
    return _VARIABLE.sub(value, text)


def resolve(
    prometheus: PrometheusServer, dashboard: Json, viewing: Viewing, *, single: bool = False
) -> dict[str, Variable]:
    """Return the variables of a dashboard with their options, each asked for with those before it chosen.

    Args:
        prometheus: whom to ask.
        dashboard: whose variables.
        viewing: who looks, and what they choose.
        single: whether they choose the first value, if there is any, of each variable not in `viewing`.
    """
    found: dict[str, Variable] = {}
    definitions = dashboard.get("templating", {}).get("list", [])
    unknown = set(viewing.values) - {definition["name"] for definition in definitions}
    if unknown:
        msg = f"{dashboard.get('uid')} has no variable {', '.join(sorted(unknown))}"
        raise DashboardError(msg)
    for definition in definitions:
        name, includes_all = definition["name"], bool(definition.get("includeAll"))
        several = bool(definition.get("multi"))
        options = _options(prometheus, definition, viewing, found)
        value = viewing.values.get(name)
        if value is None and single and options and name != "window":
            value = (options[0],) if several else options[0]
        if value is None:
            value = _current(definition, options)
        if not several and isinstance(value, tuple):
            msg = f"{name} takes a single value, not {value}"
            raise DashboardError(msg)
        if value in (ALL, (ALL,)) and not includes_all:
            msg = f"{name} has no All"
            raise DashboardError(msg)
        found[name] = Variable(
            name, options, value, several or includes_all, definition.get("allValue") or ""
        )
    return found


def _current(definition: Json, options: Sequence[str]) -> Value:
    """Return the value a dashboard opens with: a stored one that does not exist gives way to the first."""
    value = definition.get("current", {}).get("value", "")
    if definition["type"] == "datasource":
        return str(value or definition.get("query", ""))
    values = [value] if isinstance(value, str) else list(value)
    if values == [ALL]:
        return ALL
    known = tuple(one for one in values if one in options)
    if not known:
        return ALL if definition.get("includeAll") else next(iter(options), "")
    return known if definition.get("multi") else known[0]


def _options(
    prometheus: PrometheusServer, definition: Json, viewing: Viewing, known: Mapping[str, Variable]
) -> tuple[str, ...]:
    kind, query = definition["type"], definition.get("query", "")
    if kind == "datasource":
        return ()
    if kind == "custom":
        return tuple(one.rpartition(" : ")[2].strip() for one in query.split(",") if one.strip())
    if kind != "query":
        msg = f"{definition['name']}: variables of type {kind} are not known here"
        raise DashboardError(msg)
    asked = query if isinstance(query, str) else query["query"]
    own = Timing(0, 0, round((viewing.end - viewing.start) * 1000)).values()
    text = interpolate(asked, known, {name: own[name] for name in own if name.startswith("__range")})
    found = _filtered(_answers(prometheus, text, viewing), definition.get("regex") or "")
    return tuple(_sorted(dict.fromkeys(found), definition.get("sort") or 0))


def _answers(prometheus: PrometheusServer, text: str, viewing: Viewing) -> Iterator[str]:
    if match := _LABEL_VALUES.fullmatch(text):
        within = {"start": f"{viewing.start:.3f}", "end": f"{viewing.end:.3f}"}
        if match[1]:
            within["match[]"] = match[1]
        yield from prometheus.api(f"label/{match[2]}/values", **within)
    elif match := _QUERY_RESULT.fullmatch(text):
        data = prometheus.api("query", query=match[1], time=f"{viewing.end:.3f}")
        for item in data["result"]:
            labels = dict(item["metric"])
            name = labels.pop("__name__", "")
            inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
            yield f"{name}{{{inner}}} {item['value'][1]} {round(item['value'][0] * 1000)}"
    else:
        msg = f"not a query of a variable: {text!r}"
        raise DashboardError(msg)


def _filtered(values: Iterable[str], regex: str) -> Iterator[str]:
    if not regex:
        yield from values
        return
    # `/pattern/`, or the pattern alone; the value is the group of that name, `text`, or else the first one.
    pattern = regex.strip("/") if regex.startswith("/") else f"^{regex}$"
    compiled = re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", pattern))
    for value in values:
        match = compiled.search(value)
        if match is None:
            continue
        named = match.groupdict()
        yield named.get("value") or named.get("text") or (match[1] if compiled.groups else value)


def _sorted(values: Mapping[str, None], sort: int) -> list[str]:
    if sort == 3:
        return sorted(
            values, key=lambda value: float(number[0]) if (number := re.search(r"\d+", value)) else -1.0
        )
    return sorted(values) if sort == 1 else list(values)
