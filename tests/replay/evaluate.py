"""The real rules over stored series, in Prometheus's own engine and in simulated time.

`promtool test rules` is that engine. It compares; what it finds different, it prints: so a query with no
expected samples tells what there is.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from typing import TYPE_CHECKING

import yaml

from prometheus_server import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from replay.scrape import Storage

_FAILED = re.compile(r'expr: "(?P<expr>.*)", time: .*,\s*\n\s*exp:\s?.*\n\s*got:\s?(?P<got>.*)')
_SAMPLE = re.compile(r"(?P<labels>\{[^}]*\}|\w+(?:\{[^}]*\})?) (?P<value>[-+.\dE]+|NaN)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Sample = tuple[dict[str, str], float]


def run(
    folder: Path, rules: Iterable[Path], storage: Storage, minute: int, queries: Sequence[str], interval: str
) -> dict[str, list[Sample]]:
    """Evaluate all rules from the beginning on, and return what each query yields at a minute.

    Raises:
        AssertionError: promtool failed in another way than by finding samples.
    """
    files = list(_needed(folder, rules))
    document = {
        "rule_files": [str(path) for path in files],
        "evaluation_interval": interval,
        # Records before the alerts that need them; promtool's own order is another one each time.
        "group_eval_order": list(_order(files)),
        "tests": [
            {
                "interval": f"{storage.step}m",
                "input_series": [
                    {"series": _name(name, labels), "values": " ".join(_values(samples))}
                    for (name, labels), samples in storage.series.items()
                ],
                "promql_expr_test": [
                    {"expr": query, "eval_time": f"{minute}m", "exp_samples": []} for query in queries
                ],
            }
        ],
    }
    path = folder / "test.json"
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML, and quickly written
    program = find_program("promtool", "prometheus")
    done = subprocess.run([program, "test", "rules", str(path)], capture_output=True, text=True)
    text = done.stdout + done.stderr
    # It must not be taken for silence: promtool loads no more than 10,000 samples for a query, for one.
    assert "err:" not in text, text[:2000]
    found: dict[str, list[Sample]] = {query: [] for query in queries}
    for match in _FAILED.finditer(text):
        query = match["expr"].replace('\\"', '"').replace("\\\\", "\\")
        assert query in found, text[:2000]
        found[query] = list(_samples(match["got"]))
    if done.returncode != 0:
        assert any(found.values()), text[:4000]
    return found


def _needed(folder: Path, rules: Iterable[Path]) -> Iterator[Path]:
    """Copy the rules without those records that no alert needs, which are for dashboards and take time."""
    documents = {path: yaml.safe_load(path.read_text("utf-8")) for path in rules}
    every = [
        rule for document in documents.values() for group in document["groups"] for rule in group["rules"]
    ]
    text = " ".join(
        [rule["expr"] for rule in every if "alert" in rule]
        + [value for rule in every for value in rule.get("annotations", {}).values()]
    )
    records = {rule["record"]: rule["expr"] for rule in every if "record" in rule}
    used: set[str] = set()
    while more := {name for name in records if name in text} - used:
        used |= more
        text = " ".join(records[name] for name in more)
    for path, document in documents.items():
        for group in document["groups"]:
            group["rules"] = [r for r in group["rules"] if r.get("record", "") in used or "alert" in r]
        copy = folder / path.name
        copy.write_text(json.dumps(document), encoding="utf-8")
        yield copy


def _order(files: Iterable[Path]) -> Iterator[str]:
    """Yield the names of the groups, those with alerts last."""
    groups = [group for path in files for group in json.loads(path.read_text("utf-8"))["groups"]]
    for group in sorted(groups, key=lambda group: any("alert" in rule for rule in group["rules"])):
        yield group["name"]


def _samples(text: str) -> Iterator[Sample]:
    for match in _SAMPLE.finditer(text):
        yield dict(_LABEL.findall(match["labels"])), float(match["value"])


def _name(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    return name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels) + "}"


def _values(samples: list[float]) -> Iterator[str]:
    """Yield promtool's notation; runs of the same value are shortened."""
    at, end = 0, len(samples)
    while at < end:
        value, run = samples[at], 1
        missing = math.isnan(value)
        while at + run < end and (math.isnan(samples[at + run]) if missing else samples[at + run] == value):
            run += 1
        text = "_" if missing else f"{value:.10g}"
        if missing and run > 1:
            yield f"_x{run}"
        elif run > 1:
            yield f"{text}+0x{run - 1}"
        else:
            yield text
        at += run
