"""Rule tests by the real `promtool test rules`, over all files of the bundle together."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from prometheus_server import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .world import World

RULES = Path(__file__).parents[2] / "alerts" / "rules"


@dataclass(frozen=True)
class Expected:
    """An alert that must fire, with exactly these labels and annotations (`alertname` apart)."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """At a minute, an alert fires exactly like this; nothing expected is silence."""

    minute: int
    alert: str
    expected: tuple[Expected, ...] = ()


@dataclass(frozen=True)
class Query:
    """At a minute, an expression yields exactly these samples, by series as promtool writes them."""

    minute: int
    expr: str
    samples: Mapping[str, float]


def verify(
    folder: Path,
    world: World,
    checks: Iterable[Check] = (),
    queries: Iterable[Query] = (),
    *,
    interval: str = "1m",
) -> str:
    """Run promtool over a world; return an empty string, or what it has to complain of."""
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in world.series().items()],
        "alert_rule_test": [
            {
                "eval_time": f"{check.minute}m",
                "alertname": check.alert,
                "exp_alerts": [
                    {"exp_labels": dict(one.labels), "exp_annotations": dict(one.annotations)}
                    for one in check.expected
                ],
            }
            for check in checks
        ],
        "promql_expr_test": [
            {
                "expr": query.expr,
                "eval_time": f"{query.minute}m",
                "exp_samples": [{"labels": name, "value": value} for name, value in query.samples.items()],
            }
            for query in queries
        ],
    }
    document = {
        "rule_files": [str(path) for path in sorted(RULES.glob("*.yml"))],
        "evaluation_interval": interval,
        "tests": [test],
    }
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(document, sort_keys=False, width=1_000_000), encoding="utf-8")
    program = find_program("promtool", "prometheus")
    done = subprocess.run([program, "test", "rules", str(path)], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr
