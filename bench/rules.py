"""What the rules cost: a real Prometheus with a day of a thousand engines evaluates all of them.

The day is backfilled with `promtool tsdb create-blocks-from`, one sample a minute, and goes on a little into
the future; nothing is scraped, so what is measured is the rules alone.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from page import table
from prometheus_process import ask, prometheus
from section import Goal, Section, beside
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.advice import Action

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RULES = Path(__file__).parent.parent / "alerts" / "rules"
HOURS, AHEAD_MINUTES = 24, 15
#: Hours of a block, as Prometheus cuts them.
BLOCK = 2
#: Engines of one model, and of the fleet for which is promised what share of one core the rules take.
REPLICAS, PROMISED = 50, 1_000
_SHARE = 0.1
#: Seconds between two evaluations: quicker than in production, for a short wait; each costs the same.
EVERY = 20
#: Seconds in which each rule is evaluated for the first time, which reads files; and how many evaluations
#: then count, by their median.
WARM_SECONDS, EVALUATIONS = 35, 3
K = 3
_HISTOGRAMS = ("time_to_first_token_seconds", "request_time_per_output_token_seconds")
_COUNTERS = {
    "drafts": 600.0,
    "draft_tokens": 1800.0,
    "accepted_tokens": 1260.0,
    "generation_tokens": 1860.0,
    "engine_resets": 0.0,
}
_BOUNDS = ("0.05", "0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "10.0", "+Inf")
#: vLLM's own series, by the labels that they have beside the engine's.
_SERVER = (
    *((f"{name}_bucket", tuple(f',le="{bound}"' for bound in _BOUNDS)) for name in _HISTOGRAMS),
    *((f"{name}_count", ("",)) for name in _HISTOGRAMS),
    ("request_success_total", tuple(f',finished_reason="{r}"' for r in ("stop", "length", "abort", "error"))),
    ("num_preemptions_total", ("",)),
)
_POSITIONS = (540.0, 420.0, 300.0)


@dataclass(frozen=True)
class Group:
    """A group of rules.

    Attributes:
        name: its own.
        rules: how many.
        interval: seconds between two evaluations in production.
        seconds: of one evaluation, the median of some.
    """

    name: str
    rules: int
    interval: float
    seconds: float

    @property
    def share(self) -> float:
        """Of one core."""
        return self.seconds / self.interval


def section(engines: int) -> Section:
    """Measure the rules over a fleet; their time is judged from `PROMISED` engines on."""
    groups, read, written = measure(engines)
    return found(engines, groups, read, written)


def found(engines: int, groups: Sequence[Group], read: float, written: float) -> Section:
    """Return what was measured, as a section.

    Args:
        engines: of the fleet.
        groups: of rules.
        read: series that the fleet has.
        written: series that the rules add, alerts included.
    """
    share, enough = sum(group.share for group in groups), engines >= PROMISED
    rows = [
        (
            group.name.removeprefix("vllm-specdec."),
            str(group.rules),
            f"{group.interval:.0f} s",
            f"{group.seconds:.2f} s",
            f"{group.share:.1%}",
        )
        for group in groups
    ]
    rows.append(("**all**", str(sum(group.rules for group in groups)), "", "", f"**{share:.1%}**"))
    lines = (
        (
            f"A real Prometheus with a day of {engines:,} engines ({REPLICAS} a model, an exporter each, a "
            "sample a minute), which scrapes nothing. The share of one core is the time of an evaluation "
            f"over the interval at which it comes in production. From {read:,.0f} series the rules make "
            f"{written:,.0f}."
        ),
        "",
        *table(("rule group", "rules", "every", "one evaluation", "of one core"), rows),
    )
    goal = Goal(
        f"evaluating all rules, for {engines:,} engines",
        f"below {_SHARE:.0%} of one core",
        f"{beside(share * 100, _SHARE * 100)}%",
        share < _SHARE if enough else None,
    )
    ratios = {"rules.core": share if enough else None, "rules.series": written / read}
    return Section(f"All alert rules in Prometheus, for {engines:,} engines", lines, ratios, (goal,))


def measure(engines: int) -> tuple[list[Group], float, float]:
    """Return the groups of rules, and how many series they read and write."""
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as name:
        folder = Path(name)
        _backfill(folder, engines)
        _configure(folder)
        with prometheus(folder) as (url, _):
            time.sleep(WARM_SECONDS)
            seconds: dict[str, list[float]] = defaultdict(list)
            for _ in range(EVALUATIONS):
                time.sleep(EVERY)
                groups = ask(url, "rules")["groups"]
                for group in groups:
                    seconds[group["name"]].append(group["evaluationTime"])
            written = _count(url, _WRITTEN)
            read = _count(url, '{__name__=~".+"}') - written
    found = []
    for group in groups:
        bad = [(r["name"], r["health"], r.get("lastError")) for r in group["rules"] if r["health"] != "ok"]
        assert not bad, f"{group['name']}: {bad}"
        interval = _INTERVALS.get(group["name"], 60.0)
        took = statistics.median(seconds[group["name"]])
        found.append(Group(group["name"], len(group["rules"]), interval, took))
    return found, read, written


#: Series of rules: the names of recorded ones have a colon within, vLLM's own have one as well.
_WRITTEN = '{__name__=~"[^:]+:.+|ALERTS|ALERTS_FOR_STATE",__name__!~"vllm:.+"}'


def _count(url: str, selector: str) -> float:
    """Return how many series there are at the moment."""
    result = ask(url, "query", query=f"count({selector})")["result"]
    return float(result[0]["value"][1])


_INTERVALS: dict[str, float] = {
    group["name"]: 60.0 * float(group["interval"].removesuffix("m"))
    for path in RULES.glob("*.yml")
    for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
    if "interval" in group
}


def _backfill(folder: Path, engines: int) -> None:
    """Write the day, block by block: promtool reads the whole file for each block."""
    now = int(time.time()) // 60 * 60
    first = now - HOURS * 3600
    last = now + AHEAD_MINUTES * 60
    for start in range(first, last, BLOCK * 3600):
        end = min(start + BLOCK * 3600, last)
        gauges = end > now - 3600
        text = folder / "day.txt"
        with text.open("w", encoding="utf-8") as file:
            for line in _exposition(engines, range(start, end, 60), first, gauges=gauges):
                file.write(line)
            file.write("# EOF\n")
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(folder / "data")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        text.unlink()


def _exposition(engines: int, times: range, first: int, *, gauges: bool) -> Iterator[str]:
    """Yield OpenMetrics lines of all engines; gauges only where a rule looks at them."""
    targets = []
    for n in range(engines):
        target = f'job="vllm-specdec-exporter",namespace="chat",instance="pod-{n}:9850",pod="pod-{n}"'
        targets.append((n, target, f'{target},model_name="model-{n // REPLICAS}",engine="0"'))

    def family(name: str, kind: str, rows: list[tuple[str, float, float]]) -> Iterator[str]:
        """Rows are labels, start and growth per minute."""
        yield f"# TYPE {name} {kind}\n"
        sample = f"{name}_total" if kind == "counter" else name
        for labels, start, growth in rows:
            head = f"{sample}{{{labels}}} "
            for at in times:
                yield (
                    f"{head}{start + growth * ((at - first) // 60):.0f} {at}\n"
                    if growth
                    else (f"{head}{start} {at}\n")
                )

    for name, growth in _COUNTERS.items():
        yield from family(
            f"vllm_specdec_{name}",
            "counter",
            [(own, 0.0, growth * (1 + n % 7 / 10)) for n, _, own in targets],
        )
    yield from family(
        "vllm_specdec_accepted_tokens_per_position",
        "counter",
        [
            (f'{own},position="{i}"', 0.0, growth * (1 + n % 7 / 10))
            for n, _, own in targets
            for i, growth in enumerate(_POSITIONS)
        ],
    )
    if not gauges:
        return
    for name, labels in _SERVER:
        yield from family(
            f"vllm:{name}",
            "unknown",
            [(f"{own}{label}", 0.0, 60.0) for _, _, own in targets for label in labels],
        )
    yield from family("up", "gauge", [(target, 1.0, 0.0) for _, target, _ in targets])
    for name, value in {"up": 1.0, "config_last_reload_successful": 1.0}.items():
        yield from family(f"vllm_specdec_{name}", "gauge", [(t, value, 0.0) for _, t, _ in targets])
    yield from family(
        "vllm_specdec_last_success_timestamp_seconds",
        "gauge",
        [(target, float(times[-1]), 0.0) for _, target, _ in targets],
    )
    thresholds = list(Thresholds().items())
    yield from family(
        "vllm_specdec_threshold",
        "gauge",
        [(f'{target},name="{name}"', value, 0.0) for _, target, _ in targets for name, value in thresholds],
    )
    plain = {"info": 1.0, "num_speculative_tokens": K, "recommended_num_speculative_tokens": K}
    plain |= {"requests_running": 8.0, "requests_waiting": 0.0, "kv_cache_usage_ratio": 0.4}
    for name, value in plain.items():
        yield from family(f"vllm_specdec_{name}", "gauge", [(own, value, 0.0) for _, _, own in targets])
    one_hot = {
        "activity": ("state", tuple(ActivityState), "active"),
        "recommendation": ("action", tuple(Action), "keep"),
    }
    for name, (label, values, present) in one_hot.items():
        yield from family(
            f"vllm_specdec_{name}",
            "gauge",
            [(f'{own},{label}="{v}"', float(v == present), 0.0) for _, _, own in targets for v in values],
        )
    yield from family(
        "vllm_specdec_speedup",
        "gauge",
        [(f'{own},basis="estimated"', 1.5 + n % 7 / 50, 0.0) for n, _, own in targets],
    )


def _configure(folder: Path) -> None:
    """Write the configuration with all rules."""
    for path in RULES.glob("*.yml"):
        document = yaml.safe_load(path.read_text("utf-8"))
        for group in document["groups"]:
            group.pop("interval", None)
        (folder / path.name).write_text(yaml.safe_dump(document), encoding="utf-8")
    config = {
        "global": {"evaluation_interval": f"{EVERY}s"},
        # What the rules write lies before the end of the day that was backfilled.
        "storage": {"tsdb": {"out_of_order_time_window": "1h"}},
        "rule_files": [path.name for path in RULES.glob("*.yml")],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
