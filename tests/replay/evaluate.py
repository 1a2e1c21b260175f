"""The real rules over stored series, in Prometheus's own engine and in simulated time.

A running Prometheus is asked each rule over the whole history at once, in a fraction of
the time. What depends on how an alert stood at the evaluation before goes one by one,
in `promtool test rules`. It compares; what it finds different, it prints: so a query
with no expected samples tells what there is.
"""

import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from alerts.promtool import (
    alert_names,
    needed_groups,
    order_of,
    run_tests,
    series_names,
)
from dashboards import worlds_pods, worlds_rules, worlds_write
from replay.scrape import Storage
from support.prometheus import PrometheusServer

#: Unix time of minute 0 in the running Prometheus; a day begins then.
_BEGAN = 18_500 * 86_400
#: A block for months, so that it takes samples of any of these days.
_FLAGS = (
    *worlds_write.FLAGS,
    *(f"--storage.tsdb.{end}-block-duration=90d" for end in ("min", "max")),
)

_FAILED = re.compile(
    r'expr: "(?P<expr>.*)", time: .*,\s*\n\s*exp:\s?.*\n\s*got:\s?(?P<got>.*)'
)
_SAMPLE = re.compile(
    r"(?P<labels>\{[^}]*\}|\w+(?:\{[^}]*\})?) (?P<value>[-+.\dE]+|NaN)"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Sample = tuple[dict[str, str], float]


def run(
    storage: Storage, minute: int, queries: Sequence[str], interval: int
) -> dict[str, list[Sample]]:
    """Evaluate all alerts but a tap's from the beginning on; return what each query
    yields at a minute.

    Raises:
        AssertionError: promtool failed in another way than by finding samples.
    """
    groups, stepwise = _rules()
    at_once = set(map(_title, _rules_of(groups))) - stepwise
    recorded = _asked(storage, minute // interval * interval, interval, at_once)
    kept_groups = []
    for group in groups:
        kept = [rule for rule in group["rules"] if _title(rule) in stepwise]
        kept_groups.append({**group, "rules": kept})
    names = series_names(str((kept_groups, queries)))
    series = {
        key: _texts(samples)
        for key, samples in storage.series.items()
        if key[0] in names
    }
    for key, rows in recorded.series.items():
        if key[0] in names:
            series[key] = _texts(rows.tolist(), interval // storage.step)
    input_series = []
    for (name, labels), texts in series.items():
        pairs = ",".join(f"{key}={json.dumps(value)}" for key, value in labels)
        input_series.append(
            {"series": f"{name}{{{pairs}}}", "values": " ".join(_runs(texts))}
        )
    test = {
        "interval": f"{storage.step}m",
        "input_series": input_series,
        "promql_expr_test": [
            {"expr": query, "eval_time": f"{minute}m", "exp_samples": []}
            for query in queries
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.json")
        path = Path(folder, "test.json")
        document = {
            "rule_files": [str(rules)],
            "evaluation_interval": f"{interval}m",
            "group_eval_order": order_of(kept_groups),
            "tests": [test],
        }
        rules.write_text(json.dumps({"groups": kept_groups}), encoding="utf-8")
        # JSON is YAML, and quickly written
        path.write_text(json.dumps(document), encoding="utf-8")
        return _read(run_tests(path), queries)


@cache
def _rules() -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Return the groups that are evaluated, and the rules that depend on how alerts
    stood before.
    """
    # No pod has a tap, and a rule without series costs as much as others.
    groups = needed_groups(
        (name for name in alert_names() if not re.search("Tap|Requests", name)),
        texts=False,
    )
    stepwise = {"ALERTS"}
    while True:
        more = set()
        for rule in _rules_of(groups):
            if stepwise & series_names(rule["expr"]):
                more.add(_title(rule))
                more.update(re.findall('alertname="(.*?)"', rule["expr"]))
        if more <= stepwise:
            return groups, frozenset(stepwise)
        stepwise |= more


def _rules_of(groups: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for group in groups:
        yield from group["rules"]


def _title(rule: dict[str, Any]) -> str:
    return str(rule.get("record") or rule["alert"])


def _asked(
    storage: Storage, minute: int, interval: int, names: set[str]
) -> worlds_pods.Storage:
    """Return what rules of these names give, until a minute."""
    scrapes = minute // storage.step + 1
    times = _BEGAN + 60.0 * storage.step * np.arange(scrapes)
    series = {}
    names_in_rules = series_names(str(_rules()[0]))
    for (name, labels), samples in storage.series.items():
        if name not in names_in_rules:
            continue
        rows = np.full(scrapes, np.nan)
        rows[: len(samples)] = samples[:scrapes]
        if name.endswith("_timestamp_seconds"):
            rows += _BEGAN
        series[name, labels] = rows
    with PrometheusServer(flags=_FLAGS) as prometheus:
        worlds_write.push(prometheus.url, times, series, markers=False)
        return worlds_rules.evaluate(prometheus, times, names, interval // storage.step)


def _read(text: str, queries: Sequence[str]) -> dict[str, list[Sample]]:
    """Read what promtool complains of."""
    # It must not be taken for silence: promtool loads no more than 10,000 samples for a
    # query, for one.
    assert "err:" not in text, text[:2000]
    yielded: dict[str, list[Sample]] = {query: [] for query in queries}
    for match in _FAILED.finditer(text):
        query = match["expr"].replace('\\"', '"').replace("\\\\", "\\")
        assert query in yielded, text[:2000]
        yielded[query] = list(_samples(match["got"]))
    if text:
        assert any(yielded.values()), text[:4000]
    return yielded


def _samples(text: str) -> Iterator[Sample]:
    for match in _SAMPLE.finditer(text):
        yield dict(_LABEL.findall(match["labels"])), float(match["value"])


def _texts(samples: Iterable[float], every: int = 0) -> Iterator[str]:
    """Yield promtool's notation of what is scraped, or of what a rule gives `every` so
    many scrapes.
    """
    previous = "_"
    for value in samples:
        text = repr(value)
        if math.isnan(value):
            text = "_"
        ends = text == "_" != previous
        if every and ends:
            yield "stale"
        else:
            yield text
        yield from ["_"] * (every - 1)
        previous = text


def _runs(texts: Iterable[str]) -> Iterator[str]:
    """Shorten runs of the same."""
    for text, run in groupby(texts):
        more = len(list(run)) - 1
        if text == "_" and more:
            yield f"_x{more + 1}"
        else:
            yield text + (f"+0x{more}" if more else "")
