"""How long events are under way through each way to the server, and what is promised of it."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bystanders import Moment, comes_first
from section import FOR_A_PERCENTILE, Goal, beside
from tap_ways import ASKING, DIRECT, HAPROXY, NGINX, TAP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tap_ways import Way

#: Streams at a time, and whether their events come all at once, as those of an engine's step do.
LOADS = ((1, False), (32, False), (256, False), (32, True), (256, True))
#: Events of a stream, and how many come in a second.
EVENTS, RATE = 100, 50
#: What is promised: streams at a time, and what the tap adds to an event and to the first one, in
#: milliseconds, at the median and at the 99th percentile.
PROMISED_STREAMS, MEDIAN_MS, P99_MS = 32, 1.0, 5.0
#: Differences below this are noise, in milliseconds: no ratio is made of them.
_NOISE = 0.005
#: Share of the machine that others may take in a turn.
QUIET = 0.05


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        rounds: how often each way has its turn.
        seconds: of a turn.
        settle: seconds at its beginning in which clients connect, and nothing is counted.
        attempts: turns that are taken until one is hardly disturbed; else the least disturbed one counts.
        requests: after which memory is compared with that after a tenth of them.
    """

    rounds: int = 5
    seconds: float = 5.0
    settle: float = 1.0
    attempts: int = 6
    requests: int = 50_000


QUICK = Size(rounds=2, seconds=2.0, settle=0.5, attempts=1, requests=2_000)


@dataclass(frozen=True)
class Passing:
    """How streams pass one way.

    Attributes:
        streams: at a time.
        step: whether their events come all at once.
        way: its name.
        event_ms: what it adds to an event, at the median and at the 99th percentile; all of it for the direct
            way.
        first_ms: likewise, from a request to the first event of its answer.
        cpu_seconds: processor time of the process in between, an event.
        others: the largest share of the machine that others took in a turn, 0 to 1.
        undisturbed: whether others took little in most turns, or only what the benchmark left them. Else
            times are those of a busy machine, and nothing is judged by them.
        events: how many were timed.
        firsts: how many first events were.
    """

    streams: int
    step: bool
    way: str
    event_ms: tuple[float, float]
    first_ms: tuple[float, float]
    cpu_seconds: float
    others: float
    undisturbed: bool
    events: int
    firsts: int


HEAD = (
    "streams",
    "through",
    "an event, median",
    "99th percentile",
    "the first event, median",
    "99th percentile",
    "processor time an event",
    "added, of nginx's",
    "of HAProxy's",
    "others took",
)


def times(ways: tuple[Way, ...], size: Size) -> Iterator[Passing]:
    """Yield how streams pass, load by load and way by way."""
    for clients, step in LOADS:
        script = {"events": EVENTS, "rate": RATE, "step": step}
        told = {"clients": clients, "seconds": size.seconds, "settle": size.settle, "script": script}
        found: dict[str, list[dict[str, Any]]] = {way.name: [] for way in ways}
        for _ in range(size.rounds):
            for way in ways:
                found[way.name].append(least_disturbed(way, ways, size.attempts, told))
        for name, reports in found.items():
            event, first = (_added(reports, found[DIRECT], key) for key in ("event_ms", "answer_ms"))
            cpu = statistics.median(report["cpu_seconds"] / report["events"] for report in reports)
            others = [report["others"] for report in reports]
            fit = undisturbed(others)
            counts = (sum(report[key] for report in reports) for key in ("timed_events", "timed_answers"))
            yield Passing(clients, step, name, event, first, cpu, max(others), fit, *counts)


def undisturbed(others: Iterable[float]) -> bool:
    """Tell whether turns count in which others took these shares of the machine: by their median."""
    return comes_first() or statistics.median(others) <= QUIET


def least_disturbed(way: Way, ways: Iterable[Way], attempts: int, told: dict[str, Any]) -> dict[str, Any]:
    """Load a way as told, again while others take much of the machine; gives the least disturbed report."""
    reports: list[dict[str, Any]] = []
    pids = [each.pid for each in ways]
    while len(reports) < attempts:
        before, used = Moment.now(pids), way.cpu_seconds
        report = way.load(ask=way.name != ASKING, **told)
        report["cpu_seconds"] = way.cpu_seconds - used
        report["others"] = Moment.now(pids).others_since(before)
        reports.append(report)
        if report["others"] <= QUIET:
            break
    return min(reports, key=lambda report: float(report["others"]))


def _added(reports: list[dict[str, Any]], direct: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """Return what a way adds to the direct one in the same round; of the direct one itself all of it."""
    base = [[0.0, 0.0] if reports is direct else report[key] for report in direct]
    median, p99 = (
        float(statistics.median(report[key][n] - less[n] for report, less in zip(reports, base, strict=True)))
        for n in (0, 1)
    )
    return median, p99


def rows(found: Iterable[Passing]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the table."""
    every = list(found)
    for one in every:
        sign = "" if one.way == DIRECT else "+"
        ours = one.way in (TAP, ASKING)
        ratios = [_over(one, _find(every, one.streams, other, step=one.step)) for other in (NGINX, HAPROXY)]
        yield (
            f"{one.streams}{', in step' if one.step else ''}",
            one.way,
            *(f"{value:{sign}.2f} ms" for value in (*one.event_ms, *one.first_ms)),
            f"{one.cpu_seconds * 1e6:.0f} µs",
            *((f"**{ratio:.1f} x**" if math.isfinite(ratio) else "–") if ours else "" for ratio in ratios),
            f"{one.others:.0%}",
        )


def _find(found: Iterable[Passing], streams: int, way: str, *, step: bool) -> Passing:
    return next(one for one in found if (one.streams, one.step, one.way) == (streams, step, way))


def _over(ours: Passing, theirs: Passing) -> float:
    """Return what we add to an event at the median, over what they add; not a number where that is noise."""
    return ours.event_ms[0] / theirs.event_ms[0] if theirs.event_ms[0] > _NOISE else math.nan


def goals(found: Iterable[Passing]) -> Iterator[Goal]:
    """Yield what is promised at `PROMISED_STREAMS`; the worse of asking for usage and not asking counts."""
    every = list(found)
    for step in (False, True):
        direct, *ours = (_find(every, PROMISED_STREAMS, way, step=step) for way in (DIRECT, TAP, ASKING))
        fit = all(one.undisturbed for one in (direct, *ours))
        for what, values, counts in (
            ("an event", [one.event_ms for one in ours], [one.events for one in (direct, *ours)]),
            (
                "the first event of an answer",
                [one.first_ms for one in ours],
                [one.firsts for one in (direct, *ours)],
            ),
        ):
            median, p99 = (max(value[n] for value in values) for n in (0, 1))
            told = f"{beside(median, MEDIAN_MS, 2)} ms, {beside(p99, P99_MS, 2)} ms"
            yield Goal(
                f"what the tap adds to {what}, {PROMISED_STREAMS} streams{', in step' if step else ''}",
                f"below {MEDIAN_MS:.0f} ms at the median, {P99_MS:.0f} ms at the 99th percentile",
                told if min(counts) else "nothing",
                median < MEDIAN_MS and p99 < P99_MS if fit and min(counts) >= FOR_A_PERCENTILE else None,
            )


def ratios(
    found: Iterable[Passing], requests: Mapping[str, float | None], memory: Mapping[str, tuple[float, float]]
) -> dict[str, float | None]:
    """Return the tap beside nginx, in the same run.

    Args:
        found: how streams pass.
        requests: processor seconds of a small request, by way; ``None`` where others disturbed it.
        memory: bytes a stream, and memory after all requests over that after a tenth of them, by way.
    """
    every = list(found)
    ours, theirs, in_step, theirs_in_step = (
        _find(every, PROMISED_STREAMS, way, step=step) for step in (False, True) for way in (TAP, NGINX)
    )
    fit = all(one.undisturbed for one in every if one.streams == PROMISED_STREAMS)
    small, theirs_small = requests[TAP], requests[NGINX]
    return {
        "tap.event": _over(ours, theirs) if fit else None,
        "tap.event_in_step": _over(in_step, theirs_in_step) if fit else None,
        "tap.cpu_event": ours.cpu_seconds / theirs.cpu_seconds if fit else None,
        "tap.cpu_request": small / theirs_small if small and theirs_small else None,
        "tap.memory_stream": memory[TAP][0] / memory[NGINX][0],
        "tap.memory_growth": memory[TAP][1],
    }
