"""Dashboards for a Prometheus whose names differ: another job, cluster label, tags or scrape interval."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .field import Json

#: What the queries match jobs with.
JOB = r"(.+/)?vllm-specdec-exporter"
#: Keys whose texts are for people.
_WORDS = frozenset({"title", "description", "displayName", "label"})


@dataclass(frozen=True)
class Mixin:
    """What differs; an empty value keeps what is committed.

    Attributes:
        job: regular expression of the exporter's job.
        cluster: the label of the cluster.
        tags: of all dashboards.
        interval: the scrape interval, a duration of Prometheus; no query looks at less than four of it.
    """

    job: str = ""
    cluster: str = ""
    tags: tuple[str, ...] = ()
    interval: str = ""

    def apply(self, document: Json) -> Json:
        """Return a dashboard with these names.

        Raises:
            ValueError: a name that Prometheus or Grafana would not take; the message says which.
        """
        if self.cluster and not re.fullmatch(r"[a-zA-Z_]\w*", self.cluster):
            raise ValueError(f"{self.cluster!r} is no name of a label")
        if self.interval and not re.fullmatch(r"[1-9]\d*(ms|s|m|h)", self.interval):
            raise ValueError(f"{self.interval!r} is no interval, such as 30s")
        try:
            re.compile(self.job)
        except re.error as error:
            raise ValueError(f"{self.job!r} is no regular expression: {error}") from error
        found: Json = self._renamed(document)
        if self.tags:
            found["tags"] = list(self.tags)
            for link in found["links"]:
                if link.get("type") == "dashboards":
                    link["tags"] = list(self.tags)
        if self.interval:
            for outer in found["panels"]:
                for panel in (outer, *outer.get("panels", ())):
                    if panel["type"] != "row":
                        panel["interval"] = self.interval
        return found

    def _renamed(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            renamed = {self._text(name): item for name, item in value.items()}
            return {name: self._renamed(item, name) for name, item in renamed.items()}
        if isinstance(value, list):
            return [self._renamed(item, key) for item in value]
        return self._text(value) if isinstance(value, str) and key not in _WORDS else value

    def _text(self, text: str) -> str:
        if self.cluster:
            text = re.sub(r"\bcluster\b", self.cluster, text)
        if self.job:
            # In a PromQL string, a backslash is written twice.
            text = text.replace(f'"{JOB}"', json.dumps(self.job, ensure_ascii=False))
        return text
