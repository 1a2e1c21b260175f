"""Rule tests by the real `promtool test rules`, over the rules of all files together.

Where only some rules are asked for, only they and what they are made of are evaluated:
the outcome is the same, several times sooner.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import yaml

from support.programs import find_program
from support.repository import ROOT

from .lint import RULES as RULES
from .lint import read_bundle
from .world import MISSING, World

#: That of Prometheus 3, where Debian's newest suite is unpacked: its windows are open
#: to the left, those of Prometheus 2 are not.
NEWER = ROOT / "build" / "newer" / "usr" / "bin" / "promtool"


@dataclass(frozen=True)
class Query:
    """At a minute, an expression yields exactly these samples, by series as promtool
    writes them.
    """

    minute: int
    expr: str
    samples: Mapping[str, float]


@dataclass(frozen=True)
class History:
    """What Prometheus has scraped, and what it must make of that."""

    name: str  # what promtool calls it when it complains
    world: World  # what Prometheus has scraped
    queries: Iterable[Query] = ()  # what queries must give
    #: What fires under a name at a minute, with all labels and annotations, as promtool
    #: has it.
    texts: Iterable[Mapping[str, Any]] = ()
    #: Whether it has the thresholds that no rule compares with as well.
    has_all_thresholds: bool = False

    def test(self, rules: str) -> dict[str, Any]:
        """Return it as promtool has it, with the series that rules or queries name."""
        asked = rules + "".join(query.expr for query in self.queries)
        names = series_names(asked)
        # Most series are thresholds. Those that no rule compares with only cost time,
        # but where RulesBlind counts them.
        compared = set(re.findall(r'"(\w+)"', asked))
        has_all = self.has_all_thresholds or "vllm_specdec_lack:info" in asked

        def is_read(series: str) -> bool:
            threshold = re.search(r'\bthreshold="(\w+)"', series)
            if threshold and not (has_all or threshold[1] in compared):
                return False
            return series.partition("{")[0] in names

        return {
            "name": self.name,
            "interval": "30s",
            "input_series": [
                {"series": name, "values": off_grid(samples)}
                for name, samples in self.world.samples().items()
                if is_read(name)
            ],
            "alert_rule_test": list(self.texts),
            "promql_expr_test": [
                {
                    # Of a query that fails promtool shows the expression, and no name.
                    "expr": f"# {self.name}\n{query.expr}",
                    "eval_time": f"{query.minute}m",
                    "exp_samples": [
                        {"labels": name, "value": value}
                        for name, value in query.samples.items()
                    ],
                }
                for query in self.queries
            ],
        }


def off_grid(samples: Iterable[str]) -> str:
    """Return samples, one a minute, in promtool's notation of half minutes: each stands
    half a minute before its own.

    No server evaluates rules in the very millisecond of a scrape. Where promtool does,
    a window of Prometheus 2 holds one sample more than any in production, and one of
    Prometheus 3 does not. The first sample would stand before the beginning of time.
    """
    written = []
    for missing, run in groupby(islice(samples, 1, None), MISSING.__eq__):
        if missing:
            written.append(f"{MISSING}x{2 * len(list(run))}")
        else:
            written += [f"{MISSING} {sample}" for sample in run]
    return " ".join(written)


def series_names(text: str) -> set[str]:
    """Return the names of series that a text may have, every spelling of each."""
    spelled = re.findall(r'__name__=~"\(([\w:|]+)\)(\w+)"', text)
    several = {
        prefix + name for prefixes, name in spelled for prefix in prefixes.split("|")
    }
    return several | set(re.findall(r"[\w:]+", text))


def verify(
    folder: Path,
    *histories: History,
    rules: Iterable[str],
    interval: str = "1m",
    texts: bool = True,
) -> str:
    """Run promtool over histories with these rules and what they are made of, that of
    Prometheus 3 as well where it is; return their complaints.
    """
    path = write_tests(folder, *histories, rules=rules, interval=interval, texts=texts)
    complaints = run_tests(path)
    if NEWER.exists():
        complaints += run_tests(path, str(NEWER))
    return complaints


def write_tests(
    folder: Path,
    *histories: History,
    rules: Iterable[str],
    interval: str = "1m",
    texts: bool = True,
) -> Path:
    """Write the same for promtool into a folder; return the file of tests."""
    groups = needed_groups(rules, texts=texts)
    _write(folder / "rules.yml", {"groups": groups})
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": interval,
        "group_eval_order": order_of(groups),
        "tests": [history.test(str(groups)) for history in histories],
    }
    _write(folder / "test.yml", document)
    return folder / "test.yml"


def _write(path: Path, document: Mapping[str, Any]) -> None:
    # JSON is YAML, and quickly written
    path.write_text(json.dumps(document), encoding="utf-8")


def run_tests(path: Path, program: str = "") -> str:
    """Run promtool over a file of tests, the installed one unless another is given;
    return an empty string, or what it has to complain of.
    """
    if not program:
        program = find_program("promtool", "prometheus")
    # With its defaults Go spends a third of the time on collecting garbage: the heap is
    # small.
    environment = {**os.environ, "GOGC": "800", "GOMEMLIMIT": "1GiB"}
    done = subprocess.run(
        [program, "test", "rules", str(path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode == 0:
        return ""
    return done.stdout + done.stderr


@cache
def _all_groups() -> tuple[dict[str, Any], ...]:
    paths = sorted(
        RULES.glob("*.yml"), key=lambda path: (path.stem != "recording", path.stem)
    )
    texts = (path.read_text("utf-8") for path in paths)
    return tuple(group for text in texts for group in yaml.safe_load(text)["groups"])


def order_of(groups: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of groups, what alerts are made of first; promtool's own order
    is one of chance.
    """
    ordered = sorted(
        groups, key=lambda group: any("alert" in rule for rule in group["rules"])
    )
    return [group["name"] for group in ordered]


def alert_names() -> frozenset[str]:
    """Return the names of all alerts."""
    return frozenset(rule.name for rule in read_bundle().alerts)


def _name(rule: Mapping[str, Any]) -> str:
    return str(rule.get("record") or rule["alert"])


def needed_groups(
    wanted_rules: Iterable[str], *, texts: bool = True
) -> list[dict[str, Any]]:
    """Return the groups with these rules, and all that they are made of or that their
    texts query.
    """
    groups = deepcopy(_all_groups())
    rules = [rule for group in groups for rule in group["rules"]]
    if not texts:
        for rule in rules:
            rule.pop("annotations", None)
    names = {_name(rule) for rule in rules}
    wanted = set(wanted_rules)
    while True:
        source = "".join(str(rule) for rule in rules if _name(rule) in wanted)
        more = {name for name in names if name in source} - wanted
        if not more:
            break
        wanted |= more
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if _name(rule) in wanted]
    return [group for group in groups if group["rules"]]
