"""The real rules over stored series, in Prometheus's own engine and in simulated time.

`promtool test rules` is that engine. It compares; what it finds different, it prints: so a query with no
expected samples tells what there is.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from alerts.promtool import alert_names, needed_groups, order_of, run_tests
from replay.scrape import Storage

_FAILED = re.compile(r'expr: "(?P<expr>.*)", time: .*,\s*\n\s*exp:\s?.*\n\s*got:\s?(?P<got>.*)')
_SAMPLE = re.compile(r"(?P<labels>\{[^}]*\}|\w+(?:\{[^}]*\})?) (?P<value>[-+.\dE]+|NaN)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Sample = tuple[dict[str, str], float]


def run(
    folder: Path, storage: Storage, minute: int, queries: Sequence[str], interval: str
) -> dict[str, list[Sample]]:
    """Evaluate all alerts but a tap's from the beginning on; return what each query yields at a minute.

    Raises:
        AssertionError: promtool failed in another way than by finding samples.
    """
    # No pod has a tap, and a rule without series costs as much as others.
    alerts = {name for name in alert_names() if not re.search("Tap|Requests", name)}
    groups, rules = needed_groups(alerts, texts=False), folder / "rules.json"
    rules.write_text(json.dumps({"groups": groups}), encoding="utf-8")
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": interval,
        "group_eval_order": order_of(groups),
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
    text = run_tests(path)
    # It must not be taken for silence: promtool loads no more than 10,000 samples for a query, for one.
    assert "err:" not in text, text[:2000]
    found: dict[str, list[Sample]] = {query: [] for query in queries}
    for match in _FAILED.finditer(text):
        query = match["expr"].replace('\\"', '"').replace("\\\\", "\\")
        assert query in found, text[:2000]
        found[query] = list(_samples(match["got"]))
    if text:
        assert any(found.values()), text[:4000]
    return found


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
