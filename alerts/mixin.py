"""Rules and dashboards for other names: `mixin.yml` has those of a Prometheus and a Grafana."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

JOB = r"(.+/)?vllm-specdec-exporter"
CLUSTER = "cluster"
#: Keys of dashboards whose texts are for people.
_WORDS = frozenset({"title", "description", "displayName", "label"})
_DURATION = re.compile(r"([1-9]\d*(ms|s|m|h))?")


@dataclass(frozen=True)
class Mixin:
    """The names; defaults are those of the committed files.

    Attributes:
        job: regular expression of the exporter's job.
        cluster: label of the cluster.
        interval: of groups of rules, a duration of Prometheus; empty for the server's.
        severities: other values of the label `severity` for critical, warning and info.
        runbooks: where the runbooks are served; empty for the committed address.
        grafana: address of Grafana, likewise.
        tags: of all dashboards.
        scrape_interval: no query of a dashboard looks at less than four of it; empty for the data source's.
    """

    job: str = JOB
    cluster: str = CLUSTER
    interval: str = ""
    severities: dict[str, str] = field(default_factory=dict)
    runbooks: str = ""
    grafana: str = ""
    tags: tuple[str, ...] = ()
    scrape_interval: str = ""

    def rules(self, text: str) -> str:
        """Return a rule file with these names."""
        lines, in_expr = [], False
        for line in text.splitlines():
            key = line.strip()
            in_expr = key == "expr: |-" or (in_expr and line.startswith(" " * 10))
            named = self._rename(line) if in_expr else line
            for severity, own in self.severities.items():
                named = named.replace(f'severity="{severity}"', f"severity={json.dumps(own)}")
                if key == f"severity: {severity}":
                    named = line.replace(severity, json.dumps(own) if own != severity else own)
            lines.append(named)
            if self.interval and line.startswith("  - name: "):
                lines.append(f"    interval: {self.interval}")
        # A group keeps the interval that it has.
        text = re.sub(r"(\n    interval: )\S+\n    interval: ", r"\1", "\n".join(lines) + "\n")
        text = re.sub(r"\{\{.*?\}\}", lambda found: self._rename(found[0]), text, flags=re.DOTALL)
        return text.replace(f"var-{CLUSTER}=", f"var-{self.cluster}=")

    def dashboard(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a dashboard with these names."""
        found: dict[str, Any] = self._renamed(document)
        if self.tags:
            found["tags"] = list(self.tags)
            for link in found["links"]:
                if link.get("type") == "dashboards":
                    link["tags"] = list(self.tags)
        if self.scrape_interval:
            for outer in found["panels"]:
                for panel in (outer, *outer.get("panels", ())):
                    if panel["type"] != "row":
                        panel["interval"] = self.scrape_interval
        return found

    def _renamed(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            renamed = {self._rename(name): item for name, item in value.items()}
            return {name: self._renamed(item, name) for name, item in renamed.items()}
        if isinstance(value, list):
            return [self._renamed(item, key) for item in value]
        return self._rename(value) if isinstance(value, str) and key not in _WORDS else value

    def _rename(self, text: str) -> str:
        # In a PromQL string, a backslash is written twice.
        text = text.replace(f'"{JOB}"', json.dumps(self.job, ensure_ascii=False))
        return re.sub(rf"\b{CLUSTER}\b", self.cluster, text)


def read(path: Path) -> Mixin:
    """Read a file such as `mixin.yml`.

    Raises:
        ValueError: an unknown key, or a value that nothing would take; the message says which.
        OSError: the file cannot be read.
    """
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    known = {each.name for each in fields(Mixin)}
    if not isinstance(document, dict) or not document.keys() <= known:
        unknown = sorted(document.keys() - known) if isinstance(document, dict) else "no map"
        raise ValueError(f"{path}: {unknown}; the keys are {', '.join(sorted(known))}")
    if isinstance(document.get("tags"), list):
        document["tags"] = tuple(map(str, document["tags"]))
    severities = document.get("severities", {})
    if not isinstance(severities, dict) or not severities.keys() <= {"critical", "warning", "info"}:
        raise ValueError(f"{path}: severities has critical, warning and info")
    for name in known - {"severities", "tags"}:
        if not isinstance(document.get(name, ""), str):
            raise ValueError(f"{path}: {name} is no text: put it in quotes")
    mixin = Mixin(**document)
    if not re.fullmatch(r"[a-zA-Z_]\w*", mixin.cluster):
        raise ValueError(f"{path}: cluster {mixin.cluster!r} is no name of a label")
    for interval in (mixin.interval, mixin.scrape_interval):
        if not _DURATION.fullmatch(interval):
            raise ValueError(f"{path}: {interval!r} is no interval, such as 30s")
    try:
        re.compile(mixin.job)
    except re.error as error:
        raise ValueError(f"{path}: job {mixin.job!r} is no regular expression: {error}") from error
    return mixin
