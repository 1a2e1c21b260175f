"""What the rules cost: a real Prometheus with hours of a thousand engines evaluates all
of them.

Samples every 15 s, a tenth of the pods replaced every hour, quiet and in a collapse of
the whole fleet. They are backfilled with `promtool tsdb create-blocks-from` and go on a
little into the future; nothing is scraped, so what is measured is the rules alone:
processor seconds of Prometheus, not time on the clock.
"""

import itertools
import json
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from processes import Usage
from processes import prometheus as _prometheus
from section import Goal, Section
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict
from vllm_specdec_exporter.judgement.state import StateCode
from vllm_specdec_exporter.observe.result import REASONS

RULES = Path(__file__).parent.parent / "alerts" / "rules"
#: Seconds between two scrapes, of the longest window of a rule over what is scraped, of
#: the windows over most gauges, and into the future.
STEP = 15
HISTORY = 2 * 3600
HOUR = 3600
RECENT = 360
AHEAD = 1200
#: A pod of so many is replaced in an hour.
CHURN = 10
#: Seconds since which a fleet collapses.
COLLAPSED = 1800
#: Seconds of a block, as Prometheus cuts them.
BLOCK = 2 * 3600
#: Engines of one model, and of the fleet for which is promised what share of one core
#: the rules take.
REPLICAS = 50
PROMISED = 1_000
_SHARE = 0.03
#: Seconds between two evaluations of most groups, here and in production: quicker, for
#: a short wait; each costs the same. The intervals of all groups are shortened alike.
EVERY = 12
USUAL = 60.0
_SECONDS = {"s": 1, "m": 60}
#: Evaluations before it is measured, which read files.
WARM = 3
#: Those that count: groups that are evaluated every third or every fourth time are in
#: as often as they should be.
EVALUATIONS = 12
K = 3
_DRAFTS = 600.0
_POSITIONS = {"quiet": (540.0, 420.0, 300.0), "collapse": (12.0, 2.0, 0.5)}
#: The group by which evaluations are counted, of the usual interval.
_COUNTED = "vllm-specdec.rates.5m"


@dataclass(frozen=True)
class Cost:
    """What all rules cost a Prometheus in a state of the fleet."""

    core: float  # share of one core
    read: float  # series that the fleet has
    written: float  # series that the rules add, alerts included


def section(engines: int) -> Section:
    """Measure the rules over a fleet; their time is judged from `PROMISED` engines
    on.
    """
    # One after the other: two servers at once take each other's caches.
    return judged(engines, measure(engines, "quiet"), measure(engines, "collapse"))


def judged(engines: int, quiet: Cost, collapse: Cost) -> Section:
    """Return what was measured, as a section."""
    enough = engines >= PROMISED
    lines = (
        (
            f"A real Prometheus with {engines:,} engines ({REPLICAS} a model, an "
            "exporter each, a sample "
            f"every {STEP} s, a pod of {CHURN} replaced every hour) evaluates all "
            "rules and scrapes nothing. "
            "Each group has its interval, as shipped: 15 s for what pages a loss, 1, 3 "
            "or 4 minutes for the rest; the server's own interval changes nothing. "
            "What counts is processor seconds of its process. In the "
            "collapse hardly anything is accepted anywhere, and all alerts fire at "
            "once, without their "
            f"`for`. From {quiet.read:,.0f} series the rules make {quiet.written:,.0f}."
        ),
    )
    goals = tuple(
        Goal(
            f"evaluating all rules at their intervals, for {engines:,} engines, {when}",
            f"at most {_SHARE:.0%} of one core",
            f"{cost.core:.2%}",
            cost.core <= _SHARE if enough else None,
        )
        for when, cost in (("quiet", quiet), ("during a collapse of all", collapse))
    )
    ratios = {
        "rules.core": quiet.core if enough else None,
        "rules.series": quiet.written / quiet.read,
    }
    return Section(
        f"All alert rules in Prometheus, for {engines:,} engines", lines, ratios, goals
    )


def measure(engines: int, state: str, rules: Path = RULES) -> Cost:
    """Evaluate a folder of rules over a fleet that is `quiet` or in a `collapse`."""
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as name:
        folder = Path(name)
        _backfill(folder, engines, state)
        _configure(folder, rules)
        with _prometheus(folder) as running:
            url = running.address
            pid = running.pid
            _wait_for(url, WARM)
            used = Usage.of(pid).cpu_seconds
            begun = _evaluations(url)
            _wait_for(url, begun + EVALUATIONS)
            each = (Usage.of(pid).cpu_seconds - used) / (_evaluations(url) - begun)
            written = _count(url, _WRITTEN)
            read = _count(url, '{__name__=~".+"}') - written
            groups = _ask(url, "rules")["groups"]
    bad = [
        (group["name"], rule["name"], rule["health"], rule.get("lastError"))
        for group in groups
        for rule in group["rules"]
        if rule["health"] != "ok"
    ]
    assert not bad, bad
    return Cost(each / USUAL, read, written)


def _ask(url: str, path: str, **parameters: str) -> Any:
    """Return the `data` of an answer of Prometheus's API."""
    with urllib.request.urlopen(
        f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    ) as answer:
        return json.load(answer)["data"]


def _wait_for(url: str, evaluations: float) -> None:
    """Wait until the groups of the usual interval were evaluated so often."""
    while _evaluations(url) < evaluations:
        time.sleep(5)


def _evaluations(url: str) -> float:
    """Return how often the counted group was evaluated; Prometheus leaves out some
    where one takes long.

    By its own metrics alone: to list the rules costs Prometheus about as much as to
    evaluate some, and would be counted as theirs.
    """
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()

    def of_group(name: str) -> float:
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(f"prometheus_rule_{name}{{") and _COUNTED in line
        )

    return of_group("evaluations_total") / of_group("group_rules")


#: Series of rules: the names of recorded ones have a colon within, vLLM's own have one
#: as well.
_WRITTEN = '{__name__=~"[^:]+:.+|ALERTS|ALERTS_FOR_STATE",__name__!~"vllm:.+"}'


def _count(url: str, selector: str) -> float:
    """Return how many series there are at the moment."""
    result = _ask(url, "query", query=f"count({selector})")["result"]
    return float(result[0]["value"][1])


def _backfill(folder: Path, engines: int, state: str) -> None:
    """Write the samples, block by block: promtool reads the whole file for each
    block.
    """
    now = int(time.time()) // STEP * STEP
    first = now - HISTORY
    last = now + AHEAD
    edges = [first, *range(first // BLOCK * BLOCK + BLOCK, last, BLOCK), last]
    for start, end in itertools.pairwise(edges):
        text = folder / "fleet.txt"
        with text.open("w", encoding="utf-8") as file:
            file.writelines(
                _exposition(
                    engines, range(first, last, STEP), now, range(start, end), state
                )
            )
            file.write("# EOF\n")
        subprocess.run(
            [
                "promtool",
                "tsdb",
                "create-blocks-from",
                "openmetrics",
                "-q",
                str(text),
                str(folder / "data"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        text.unlink()


@dataclass(frozen=True)
class _Pod:
    """A pod: the labels of its exporter and of its engine, and when it lives."""

    target: str
    engine: str
    life: range


def _pods(engines: int, times: range) -> Iterator[_Pod]:
    for n in range(engines):
        # A tenth of them ends in each hour, at times that are spread over it.
        end = times.start + n % CHURN * 3600 + n // CHURN * 37 % 3600
        for name, life in (
            (f"{n}-a", range(times.start, end)),
            (f"{n}-b", range(end, times.stop)),
        ):
            target = (
                f'job="vllm-specdec-exporter",namespace="chat",'
                f'instance="pod-{name}:9850",pod="pod-{name}"'
            )
            yield _Pod(
                target, f'{target},model_name="model-{n // REPLICAS}",engine="0"', life
            )


@dataclass(frozen=True)
class _Family:
    """Series of one name."""

    name: str  # without the suffix of counters
    #: While all is quiet and in the collapse, by further labels; of a counter its
    #: growth a minute. The moment itself for None.
    values: Mapping[str, tuple[float | None, float | None]]
    kind: str = "gauge"  # as OpenMetrics calls it
    of_target: bool = False  # whether exporters have it, rather than engines
    #: Seconds for which a gauge has samples; counters always have them.
    window: int = RECENT

    def samples(
        self,
        quiet: float | None,
        collapse: float | None,
        times: range,
        now: int,
        since: int,
    ) -> list[str]:
        """Return value and time for each moment; nothing for those before the
        window.
        """
        total = 0.0
        texts = []
        for at in times:
            value = quiet if at < since else collapse
            if self.kind == "counter":
                total += (value or 0.0) * STEP / 60
                texts.append(f"{total:.2f} {at}")
            else:
                texts.append(
                    f"{at if value is None else value} {at}"
                    if at >= now - self.window
                    else ""
                )
        return texts


def _always(
    label: str, values: Iterable[object], value: float
) -> dict[str, tuple[float, float]]:
    """Return the same value for each of a label's values."""
    return {f',{label}="{one}"': (value, value) for one in values}


def _one_of(
    label: str, values: Iterable[str], quiet: str, collapse: str
) -> dict[str, tuple[float, float]]:
    """Return 1 for the label's value that holds, and 0 for the others."""
    return {
        f',{label}="{one}"': (float(one == quiet), float(one == collapse))
        for one in values
    }


def _counters() -> Iterator[_Family]:
    accepted = {state: sum(positions) for state, positions in _POSITIONS.items()}
    generated = {state: _DRAFTS + tokens for state, tokens in accepted.items()}
    positions = {
        f',position="{index}"': pair
        for index, pair in enumerate(zip(*_POSITIONS.values(), strict=True))
    }
    for name, values in (
        ("drafts", {"": (_DRAFTS, _DRAFTS)}),
        ("draft_tokens", {"": (K * _DRAFTS, K * _DRAFTS)}),
        ("accepted_tokens", {"": (accepted["quiet"], accepted["collapse"])}),
        ("generation_tokens", {"": (generated["quiet"], generated["collapse"])}),
        ("accepted_tokens_per_position", positions),
    ):
        yield _Family(f"vllm_specdec_{name}", values, "counter")
    yield _Family(
        "vllm_specdec_poll_errors",
        _always("reason", REASONS, 0),
        "counter",
        of_target=True,
    )


def _gauges() -> Iterator[_Family]:
    """Yield the gauges, only where a rule looks at them."""
    yield _Family("up", {"": (1, 1)}, of_target=True, window=HOUR)
    thresholds = {
        f',threshold="{name}"': (value, value) for name, value in Thresholds().items()
    }
    for name, of_exporter in (
        ("up", {"": (1, 1)}),
        ("config_last_reload_successful", {"": (1, 1)}),
        ("last_success_timestamp_seconds", {"": (None, None)}),
        ("threshold", thresholds),
    ):
        yield _Family(f"vllm_specdec_{name}", of_exporter, of_target=True)
    for name, of_engine in (
        ("info", {',method="eagle3",cost_profile="eagle"': (1, 1)}),
        ("num_speculative_tokens", {"": (K, K)}),
        ("recommended_num_speculative_tokens", {"": (K, 0)}),
        ("recommendation", _one_of("action", Action, "keep", "disable")),
        ("payoff", _one_of("verdict", PayoffVerdict, "beneficial", "harmful")),
        ("speedup", {',basis="calibrated"': (1.5, 0.6)}),
        ("judged_speedup", {"": (1.5, 0.6)}),
        ("state_code", {"": (StateCode.BENEFICIAL, StateCode.HARMFUL)}),
        ("advised_speedup_ratio", {"": (1, 1 / 0.6)}),
        (
            "estimated_speedup_at",
            {f',num_speculative_tokens="{k}"': (1.5, 0.6) for k in range(2 * K + 1)},
        ),
    ):
        yield _Family(f"vllm_specdec_{name}", of_engine)
    for name, of_engine in (
        ("requests_running", {"": (8, 8)}),
        ("requests_waiting", {"": (0, 0)}),
        ("kv_cache_usage_ratio", {"": (0.4, 0.4)}),
        ("activity", _one_of("state", ActivityState, "active", "active")),
    ):
        yield _Family(f"vllm_specdec_{name}", of_engine, window=HOUR)
    for name, label, values in (
        (
            "request_success_total",
            "finished_reason",
            ("stop", "length", "abort", "error"),
        ),
        ("spec_decode_num_accepted_tokens_per_pos_total", "position", range(K)),
    ):
        yield _Family(f"vllm:{name}", _always(label, values, 60), "unknown")


def _exposition(
    engines: int, times: range, now: int, block: range, state: str
) -> Iterator[str]:
    """Yield OpenMetrics lines of all engines within a block."""
    pods = list(_pods(engines, times))
    since = now - COLLAPSED if state == "collapse" else times.stop
    for family in (*_counters(), *_gauges()):
        yield f"# TYPE {family.name} {family.kind}\n"
        if family.kind == "counter":
            name = f"{family.name}_total"
        else:
            name = family.name
        for labels, values in family.values.items():
            samples = family.samples(*values, times, now, since)
            for pod in pods:
                start = max(pod.life.start, block.start)
                end = min(pod.life.stop, block.stop)
                first, stop = (
                    max(0, -(-(edge - times.start) // STEP)) for edge in (start, end)
                )
                identity = pod.target if family.of_target else pod.engine
                head = f"{name}{{{identity}{labels}}} "
                if own := [sample for sample in samples[first:stop] if sample]:
                    yield head + f"\n{head}".join(own) + "\n"


def _configure(folder: Path, rules: Path) -> None:
    """Write the configuration with all rules, at shorter intervals; alerts fire at
    once.
    """
    for path in rules.glob("*.yml"):
        document = yaml.safe_load(path.read_text("utf-8"))
        for group in document["groups"]:
            number, unit = group["interval"][:-1], group["interval"][-1]
            seconds = int(number) * _SECONDS[unit]
            group["interval"] = f"{EVERY * seconds / USUAL:.0f}s"
            for rule in group["rules"]:
                rule.pop("for", None)
        (folder / path.name).write_text(yaml.safe_dump(document), encoding="utf-8")
    config = {
        "global": {"evaluation_interval": f"{EVERY}s"},
        # What the rules write lies before the end of what was backfilled.
        "storage": {"tsdb": {"out_of_order_time_window": "1h"}},
        "rule_files": [path.name for path in rules.glob("*.yml")],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
