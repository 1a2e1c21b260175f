"""The names that rules, Alertmanager's routes and dashboards are built with:
`mixin.yml` has yours.

Expressions and texts have a slot such as «cluster» where a name belongs. `Mixin.fill`
puts all names in at once, before anything is rendered, so that a name that was put in
is never replaced by another.
"""

import json
import re
from dataclasses import dataclass, field, fields
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

from vllm_specdec_exporter.engines.tables import DIALECT_NAMED

#: How the names of an engine's own series may begin, by its slot: every spelling that
#: the exporter reads.
_DIALECTS = {"vllm": DIALECT_NAMED["vllm-v1"], "sglang": DIALECT_NAMED["sglang"]}
SPELLINGS = {engine: dialect.prefixes for engine, dialect in _DIALECTS.items()}
#: Slots: of the label of the cluster, of the regular expression of the exporter's job,
#: and of addresses.
CLUSTER = "«cluster»"
JOB = "«job»"
RUNBOOKS = "«runbooks»"
GRAFANA = "«grafana»"
#: A selector of an engine's series, such as «vllm»num_requests_running{}, or a function
#: of its range.
_OF_ENGINE = re.compile(
    r"((?:rate|increase|min_over_time|max_over_time)\()?"
    rf"«({'|'.join(SPELLINGS)})»"
    r'(\w+\{(?:[^"}]|"[^"]*")*\}(?(1)\[[^]]*\]\)))'
)
#: Slots of the values of the label `severity`; "none" has no other name.
CRITICAL = "«critical»"
WARNING = "«warning»"
INFO = "«info»"

#: What the committed files have.
COMMITTED_RUNBOOKS = (
    "https://github.com/OWNER/vllm-specdec-exporter/blob/main/alerts/runbooks"
)
COMMITTED_GRAFANA = "https://grafana.example.com"

_SLOT = re.compile(r"«(\w+)»")
_SEVERITIES = ("critical", "warning", "info")
_DURATION = re.compile(r"([1-9]\d*(ms|s|m|h))?")
_MATCHER = re.compile(r'severity(?P<kind>=~|!~|!=|=)"(?P<values>[\w|-]+)"')


def _with_sums(engine: str, prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the prefixes under which histograms have true sums; the usual one
    if there is none, so that a query is valid and finds nothing.
    """
    dialect = _DIALECTS[engine]
    true = [prefix for prefix in prefixes if dialect.has(prefix, "_sum")]
    return tuple(true) or dialect.prefixes[:1]


@dataclass(frozen=True)
class Mixin:
    """The names; defaults are those of the committed files.

    Attributes:
        job: regular expression of the exporter's job.
        cluster: label of the cluster.
        interval: of groups of rules without one of their own, a duration of
            Prometheus.
        severities: other values of the label `severity` for critical, warning and info.
        runbooks: where the runbooks are served.
        grafana: address of Grafana.
        tags: of all dashboards.
        scrape_interval: no query of a dashboard looks at less than four of it; empty
            for the data source's.
        prefixes: of vLLM's own series; empty for every spelling that the exporter
            reads.
    """

    job: str = "(.+/)?vllm-specdec-exporter"
    cluster: str = "cluster"
    interval: str = "1m"
    severities: dict[str, str] = field(default_factory=dict)
    runbooks: str = COMMITTED_RUNBOOKS
    grafana: str = COMMITTED_GRAFANA
    tags: tuple[str, ...] = ()
    scrape_interval: str = ""
    prefixes: tuple[str, ...] = ()

    def fill(self, value: Any) -> Any:
        """Return a text, or what is made of texts, with the names in place of the
        slots.
        """
        if isinstance(value, dict):
            return {self.fill(key): self.fill(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(inner) for inner in value]
        if not isinstance(value, str):
            return value
        value = _OF_ENGINE.sub(self._of_engine, value)
        return _SLOT.sub(lambda slot: self._named(slot[1]), value)

    def _of_engine(self, match: re.Match[str]) -> str:
        """Return a selector of the series, or a function of its range, in any
        spelling.
        """
        function, engine, selector = match.groups()
        prefixes = SPELLINGS[engine]
        if engine == "vllm" and self.prefixes:
            prefixes = self.prefixes
        name, _, matchers = selector.partition("{")
        # A mean needs both, of the same servers.
        if name.endswith(("_sum", "_count")):
            prefixes = _with_sums(engine, prefixes)
        if function is None and len(prefixes) > 1:
            named = f'__name__=~"({"|".join(prefixes)}){name}"'
            return f"{{{named},{matchers}".replace(",}", "}")
        # Of a range no name is left that keeps two spellings of one target apart.
        series = [f"{function or ''}{prefix}{selector}" for prefix in prefixes]
        if len(series) == 1:
            return series[0]
        return f"({' or '.join(series)})"

    def _named(self, slot: str) -> str:
        if slot in _SEVERITIES:
            return self.severities.get(slot, slot)
        if slot == "job":
            # It stands in a PromQL string, where a backslash is written twice.
            return json.dumps(self.job, ensure_ascii=False)[1:-1]
        return {
            "cluster": self.cluster,
            "runbooks": self.runbooks,
            "grafana": self.grafana,
        }[slot]

    def alertmanager(self, text: str) -> str:
        """Return an Alertmanager configuration such as `alertmanager.yml` with these
        names; comments stay.
        """
        loader = YAML()
        loader.preserve_quotes = True
        loader.width = 2**16
        loader.indent(mapping=2, sequence=4, offset=2)
        document = loader.load(text)
        self._rename_route(document["route"])
        renamed: set[int] = set()
        for rule in document["inhibit_rules"]:
            for key in ("equal", "source_matchers", "target_matchers"):
                # Rules share lists by anchors; names may trade places, so each list is
                # renamed once.
                if id(rule[key]) not in renamed:
                    renamed.add(id(rule[key]))
                    rename = self._label if key == "equal" else self._matcher
                    self._rename_each(rule[key], rename)
        written = StringIO()
        loader.dump(document, written)
        return written.getvalue()

    def _rename_route(self, route: dict[str, Any]) -> None:
        self._rename_each(route.get("group_by", []), self._label)
        self._rename_each(route.get("matchers", []), self._matcher)
        for child in route.get("routes", ()):
            self._rename_route(child)

    @staticmethod
    def _rename_each(texts: list[str], rename: Any) -> None:
        for index, text in enumerate(texts):
            texts[index] = rename(text)

    def _label(self, name: str) -> str:
        if name == "cluster":
            return self.cluster
        return name

    def _matcher(self, matcher: str) -> str:
        match = _MATCHER.fullmatch(matcher)
        if match is None:
            return matcher
        values = "|".join(
            self.severities.get(value, value) for value in match["values"].split("|")
        )
        return f'severity{match["kind"]}"{values}"'


def read(path: Path) -> Mixin:
    """Read a file such as `mixin.yml`.

    Raises:
        ValueError: an unknown key, or a value that nothing would take; the message says
            which.
        OSError: the file cannot be read.
    """
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    keys = {each.name for each in fields(Mixin)}
    if not isinstance(document, dict) or not document.keys() <= keys:
        if isinstance(document, dict):
            unknown = str(sorted(document.keys() - keys))
        else:
            unknown = "no map"
        raise ValueError(f"{path}: {unknown}; the keys are {', '.join(sorted(keys))}")
    for name in ("tags", "prefixes"):
        if isinstance(document.get(name), list):
            document[name] = tuple(map(str, document[name]))
    severities = document.get("severities", {})
    if not isinstance(severities, dict) or not severities.keys() <= set(_SEVERITIES):
        raise ValueError(f"{path}: severities has critical, warning and info")
    for name in keys - {"severities", "tags", "prefixes"}:
        if not isinstance(document.get(name, ""), str):
            raise ValueError(f"{path}: {name} is no text: put it in quotes")
    mixin = Mixin(**{name: value for name, value in document.items() if value})
    _check(path, mixin)
    return mixin


def _check(path: Path, mixin: Mixin) -> None:
    severities = mixin.severities
    for severity in severities.values():
        if not re.fullmatch(r"[\w-]+", str(severity)):
            raise ValueError(
                f"{path}: severity {severity!r} is not made of letters, digits, _ and -"
            )
    if len({severities.get(name, name) for name in _SEVERITIES}) < len(_SEVERITIES):
        raise ValueError(f"{path}: two severities have one name")
    if not re.fullmatch(r"[a-zA-Z_]\w*", mixin.cluster):
        raise ValueError(f"{path}: cluster {mixin.cluster!r} is no name of a label")
    if not all(re.fullmatch(r"[a-zA-Z_][\w:]*", prefix) for prefix in mixin.prefixes):
        raise ValueError(
            f"{path}: prefixes has prefixes of the names of series, such as "
            f"{SPELLINGS['vllm'][0]!r}"
        )
    for interval in (mixin.interval, mixin.scrape_interval):
        if not _DURATION.fullmatch(interval):
            raise ValueError(f"{path}: {interval!r} is no interval, such as 30s")
    try:
        re.compile(mixin.job)
    except re.error as error:
        raise ValueError(
            f"{path}: job {mixin.job!r} is no regular expression: {error}"
        ) from error
