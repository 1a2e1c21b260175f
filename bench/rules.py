"""What the rules cost: a real Prometheus with hours of a thousand engines evaluates all of them.

Samples every 15 s, a tenth of the pods replaced every hour, quiet and in a collapse of the whole fleet. They
are backfilled with `promtool tsdb create-blocks-from` and go on a little into the future; nothing is scraped,
so what is measured is the rules alone: processor seconds of Prometheus, not time on the clock.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bystanders import cpu_seconds
from page import table
from prometheus_process import ask, prometheus
from section import Goal, Section, beside
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict
from vllm_specdec_exporter.observe.result import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RULES = Path(__file__).parent.parent / "alerts" / "rules"
#: Seconds between two scrapes, of the longest window of a rule over what is scraped, of the windows over most
#: gauges, and into the future.
STEP, HISTORY, HOUR, RECENT, AHEAD = 15, 2 * 3600, 3600, 360, 1200
#: A pod of so many is replaced in an hour.
CHURN = 10
#: Seconds since which a fleet collapses.
COLLAPSED = 1800
#: Seconds of a block, as Prometheus cuts them.
BLOCK = 2 * 3600
#: Engines of one model, and of the fleet for which is promised what share of one core the rules take.
REPLICAS, PROMISED = 50, 1_000
_SHARE = 0.04
#: Seconds between two evaluations, here and in production: quicker, for a short wait; each costs the same.
EVERY, USUAL = 20, 60.0
#: Evaluations before it is measured, which read files, and those that count.
WARM, EVALUATIONS = 3, 6
K = 3
_DRAFTS = 600.0
_POSITIONS = {"quiet": (540.0, 420.0, 300.0), "collapse": (12.0, 2.0, 0.5)}


@dataclass(frozen=True)
class Group:
    """A group of rules.

    Attributes:
        name: its own.
        rules: how many.
        interval: seconds between two evaluations in production.
        quiet: share of one core while the fleet is healthy.
        collapse: the same while speculation has collapsed everywhere.
    """

    name: str
    rules: int
    interval: float
    quiet: float
    collapse: float


def section(engines: int) -> Section:
    """Measure the rules over a fleet; their time is judged from `PROMISED` engines on."""
    (quiet, sizes, read, written), (collapse, *_) = (measure(engines, name) for name in _POSITIONS)
    groups = [
        Group(name, sizes[name], _INTERVALS.get(name, USUAL), share, collapse[name])
        for name, share in quiet.items()
    ]
    return found(engines, groups, read, written)


def found(engines: int, groups: Sequence[Group], read: float, written: float) -> Section:
    """Return what was measured, as a section.

    Args:
        engines: of the fleet.
        groups: of rules.
        read: series that the fleet has.
        written: series that the rules add, alerts included.
    """
    quiet, collapse = (sum(getattr(group, name) for group in groups) for name in _POSITIONS)
    enough = engines >= PROMISED
    rows = [
        (
            group.name.removeprefix("vllm-specdec."),
            str(group.rules),
            f"{group.interval:.0f} s",
            f"{group.quiet:.2%}",
            f"{group.collapse:.2%}",
        )
        for group in groups
    ]
    total = str(sum(group.rules for group in groups))
    rows.append(("**all**", total, "", f"**{quiet:.2%}**", f"**{collapse:.2%}**"))
    lines = (
        (
            f"A real Prometheus with {engines:,} engines ({REPLICAS} a model, an exporter each, a sample "
            f"every {STEP} s, a pod of {CHURN} replaced every hour), which scrapes nothing. What counts is "
            "processor seconds of its process for an evaluation of all rules, over the interval at which it "
            "comes in production; they are split among the groups by the time that Prometheus reports. In "
            "the collapse hardly anything is accepted anywhere, and all alerts fire at once, without their "
            f"`for`. From {read:,.0f} series the rules make {written:,.0f}."
        ),
        "",
        *table(("rule group", "rules", "every", "quiet, of one core", "collapse, of one core"), rows),
    )
    goals = tuple(
        Goal(
            f"evaluating all rules, for {engines:,} engines, {when}",
            f"at most {_SHARE:.0%} of one core",
            f"{beside(share * 100, _SHARE * 100)}%",
            share <= _SHARE if enough else None,
        )
        for when, share in (("quiet", quiet), ("during a collapse of all", collapse))
    )
    ratios = {"rules.core": quiet if enough else None, "rules.series": written / read}
    return Section(f"All alert rules in Prometheus, for {engines:,} engines", lines, ratios, goals)


def measure(engines: int, state: str) -> tuple[dict[str, float], dict[str, int], float, float]:
    """Return each group's share of one core and number of rules, and the series that are read and written.

    Args:
        engines: of the fleet.
        state: `quiet` or `collapse`.
    """
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as name:
        folder = Path(name)
        _backfill(folder, engines, state)
        _configure(folder)
        with prometheus(folder) as (url, pid):
            groups = _after(url, WARM)
            used, begun = cpu_seconds(pid), _evaluations(url)
            spent: dict[str, float] = defaultdict(float)
            for number in range(1, EVALUATIONS + 1):
                groups = _after(url, begun + number)
                for group in groups:
                    spent[group["name"]] += group["evaluationTime"] * EVERY / group["interval"]
            each = (cpu_seconds(pid) - used) / (_evaluations(url) - begun)
            written = _count(url, _WRITTEN)
            read = _count(url, '{__name__=~".+"}') - written
    for group in groups:
        bad = [(r["name"], r["health"], r.get("lastError")) for r in group["rules"] if r["health"] != "ok"]
        assert not bad, f"{group['name']}: {bad}"
    whole = sum(spent.values())
    shares = {name: each / USUAL * seconds / whole for name, seconds in spent.items()}
    return shares, {group["name"]: len(group["rules"]) for group in groups}, read, written


def _after(url: str, evaluations: float) -> list[dict[str, Any]]:
    """Return the groups of rules once those of the usual interval were evaluated so often."""
    while _evaluations(url) < evaluations:
        time.sleep(5)
    groups: list[dict[str, Any]] = ask(url, "rules")["groups"]
    return groups


def _evaluations(url: str) -> float:
    """Return how often the last group was evaluated; a long evaluation makes Prometheus leave out others."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    counts = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("prometheus_rule_evaluations_total{") and "vllm-specdec.harm" in line
    ]
    return sum(counts) / _HARM


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


_HARM = next(
    len(group["rules"]) for group in yaml.safe_load((RULES / "harm.yml").read_text("utf-8"))["groups"]
)


def _backfill(folder: Path, engines: int, state: str) -> None:
    """Write the samples, block by block: promtool reads the whole file for each block."""
    now = int(time.time()) // STEP * STEP
    first, last = now - HISTORY, now + AHEAD
    edges = [first, *range(first // BLOCK * BLOCK + BLOCK, last, BLOCK), last]
    for start, end in itertools.pairwise(edges):
        text = folder / "fleet.txt"
        with text.open("w", encoding="utf-8") as file:
            file.writelines(_exposition(engines, range(first, last, STEP), now, range(start, end), state))
            file.write("# EOF\n")
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(folder / "data")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        text.unlink()


@dataclass(frozen=True)
class _Pod:
    """A pod and what it has for labels: of the exporter, and of the engine; and when it lives."""

    target: str
    engine: str
    life: range


#: Labels, whose they are, and the text of value and time for each moment.
_Row = tuple[str, _Pod, "Sequence[str]"]


def _pods(engines: int, times: range) -> Iterator[_Pod]:
    for n in range(engines):
        # A tenth of them ends in each hour, at times that are spread over it.
        end = times.start + n % CHURN * 3600 + n // CHURN * 37 % 3600
        for name, life in ((f"{n}-a", range(times.start, end)), (f"{n}-b", range(end, times.stop))):
            target = (
                f'job="vllm-specdec-exporter",namespace="chat",instance="pod-{name}:9850",pod="pod-{name}"'
            )
            yield _Pod(target, f'{target},model_name="model-{n // REPLICAS}",engine="0"', life)


def _exposition(engines: int, times: range, now: int, block: range, state: str) -> Iterator[str]:
    """Yield OpenMetrics lines of all engines within a block; gauges only where a rule looks at them."""
    pods = list(_pods(engines, times))
    since = now - COLLAPSED if state == "collapse" else times.stop

    def family(name: str, rows: Iterable[_Row], kind: str = "gauge") -> Iterator[str]:
        """Rows are labels, pod and the text of value and time, for each of `times`."""
        yield f"# TYPE {name} {kind}\n"
        sample = f"{name}_total" if kind == "counter" else name
        for labels, pod, samples in rows:
            start, end = max(pod.life.start, block.start), min(pod.life.stop, block.stop)
            begin, stop = (max(0, -(-(edge - times.start) // STEP)) for edge in (start, end))
            head = f"{sample}{{{labels}}} "
            if own := [one for one in samples[begin:stop] if one]:
                yield head + f"\n{head}".join(own) + "\n"

    def counter(quiet: float, collapse: float | None = None) -> list[str]:
        """Return samples of growth per minute."""
        value, found = 0.0, []
        for at in times:
            value += (quiet if collapse is None or at < since else collapse) * STEP / 60
            found.append(f"{value:.2f} {at}")
        return found

    def gauge(quiet: float | None, collapse: float | None = None, window: int = RECENT) -> list[str]:
        """Return samples of a value; of the time itself without one."""
        return [
            f"{at if quiet is None else quiet if collapse is None or at < since else collapse} {at}"
            if at >= now - window
            else ""
            for at in times
        ]

    def of_engines(samples: Sequence[str], labels: str = "") -> list[_Row]:
        return [(f"{pod.engine}{labels}", pod, samples) for pod in pods]

    def of_targets(samples: Sequence[str], labels: str = "") -> list[_Row]:
        return [(f"{pod.target}{labels}", pod, samples) for pod in pods]

    for name, quiet in {"drafts": _DRAFTS, "draft_tokens": K * _DRAFTS}.items():
        yield from family(f"vllm_specdec_{name}", of_engines(counter(quiet)), "counter")
    accepted = {name: sum(positions) for name, positions in _POSITIONS.items()}
    for name, plain in {"accepted_tokens": 0.0, "generation_tokens": _DRAFTS}.items():
        samples = counter(plain + accepted["quiet"], plain + accepted["collapse"])
        yield from family(f"vllm_specdec_{name}", of_engines(samples), "counter")
    at_positions = [counter(*pair) for pair in zip(*_POSITIONS.values(), strict=True)]
    rows = (
        row
        for index, samples in enumerate(at_positions)
        for row in of_engines(samples, f',position="{index}"')
    )
    yield from family("vllm_specdec_accepted_tokens_per_position", rows, "counter")
    errors = (row for reason in REASONS for row in of_targets(counter(0), f',reason="{reason}"'))
    yield from family("vllm_specdec_poll_errors", errors, "counter")
    yield from _gauges(family, of_engines, of_targets, gauge)


def _gauges(family: Any, of_engines: Any, of_targets: Any, gauge: Any) -> Iterator[str]:
    """Yield the gauges of exporters and engines; see `_exposition` for what makes them."""
    yield from family("up", of_targets(gauge(1, window=HOUR)))
    for name, value in {
        "up": 1,
        "config_last_reload_successful": 1,
        "last_success_timestamp_seconds": None,
    }.items():
        yield from family(f"vllm_specdec_{name}", of_targets(gauge(value)))
    thresholds = dict(Thresholds().items())
    rows = (row for name, v in thresholds.items() for row in of_targets(gauge(v), f',name="{name}"'))
    yield from family("vllm_specdec_threshold", rows)
    for name, quiet, collapse, window in (
        ("info", 1, 1, RECENT),
        ("num_speculative_tokens", K, K, RECENT),
        ("recommended_num_speculative_tokens", K, 0, RECENT),
        ("requests_running", 8, 8, HOUR),
        ("requests_waiting", 0, 0, HOUR),
        ("kv_cache_usage_ratio", 0.4, 0.4, HOUR),
    ):
        labels = ',method="eagle3",cost_profile="eagle"' if name == "info" else ""
        yield from family(f"vllm_specdec_{name}", of_engines(gauge(quiet, collapse, window), labels))
    for name, label, values, quiet, collapse in (
        ("activity", "state", ActivityState, "active", "active"),
        ("recommendation", "action", Action, "keep", "disable"),
        ("payoff", "verdict", PayoffVerdict, "beneficial", "harmful"),
    ):
        window = HOUR if name == "activity" else RECENT
        rows = (
            row
            for value in values
            for row in of_engines(
                gauge(float(value == quiet), float(value == collapse), window), f',{label}="{value}"'
            )
        )
        yield from family(f"vllm_specdec_{name}", rows)
    yield from family("vllm_specdec_speedup", of_engines(gauge(1.5, 0.6), ',basis="calibrated"'))
    rows = (
        row for k in range(2 * K + 1) for row in of_engines(gauge(1.5, 0.6), f',num_speculative_tokens="{k}"')
    )
    yield from family("vllm_specdec_estimated_speedup_at", rows)
    reasons = ("stop", "length", "abort", "error")
    rows = (row for reason in reasons for row in of_engines(gauge(60), f',finished_reason="{reason}"'))
    yield from family("vllm:request_success_total", rows, "unknown")
    rows = (row for index in range(K) for row in of_engines(gauge(60), f',position="{index}"'))
    yield from family("vllm:spec_decode_num_accepted_tokens_per_pos_total", rows, "unknown")


def _configure(folder: Path) -> None:
    """Write the configuration with all rules, at shorter intervals; alerts fire at once."""
    for path in RULES.glob("*.yml"):
        document = yaml.safe_load(path.read_text("utf-8"))
        for group in document["groups"]:
            group["interval"] = f"{EVERY * _INTERVALS.get(group['name'], USUAL) / USUAL:.0f}s"
            for rule in group["rules"]:
                rule.pop("for", None)
        (folder / path.name).write_text(yaml.safe_dump(document), encoding="utf-8")
    config = {
        "global": {"evaluation_interval": f"{EVERY}s"},
        # What the rules write lies before the end of what was backfilled.
        "storage": {"tsdb": {"out_of_order_time_window": "1h"}},
        "rule_files": [path.name for path in RULES.glob("*.yml")],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
