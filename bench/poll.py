"""What one poll costs, from the answer's bytes to the published result.

Processor time is compared, not time: others on the machine take turns, not cycles. What
counts is a poll after other work, as the exporter polls: one among many in a row finds
all that it needs in the processor's caches.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from answers import BODIES, body, growing
from page import table
from section import Goal, Section
from vllm_specdec_exporter import engines as dialects
from vllm_specdec_exporter.engines.reading import EngineKey
from vllm_specdec_exporter.observe import pipeline
from vllm_specdec_exporter.observe.result import ExporterResult, TargetResult
from vllm_specdec_exporter.observe.settings import Settings
from vllm_specdec_exporter.observe.state import EngineState
from vllm_specdec_exporter.publish.metrics_text import metrics_text

States = dict[EngineKey, EngineState]


#: Polls until the longest window is full, and polls that are then timed as one.
_WARM = 100
_MEASURED = 20
_CHEAPER = 20.0


def section(rounds: int) -> Section:
    """Compare a poll with prometheus_client that reads the same answer."""
    costs = {
        key: _cost(path, rounds)
        for path, key in zip(
            BODIES.values(), ("one_engine", "eight_engines"), strict=True
        )
    }
    rows = [
        (
            name,
            f"{cost.size / 1000:.0f} kB",
            f"{cost.cold * 1000:.2f} ms",
            f"{cost.parse * 1000:.1f} ms",
            f"**{cost.parse / cost.cold:.1f} x**",
            f"{cost.poll * 1000:.2f} ms: {cost.parse / cost.poll:.1f} x",
            f"{cost.scrape * 1000:.1f} ms",
        )
        for name, cost in zip(BODIES, costs.values(), strict=True)
    ]
    head = (
        "answer",
        "size",
        "one poll after other work",
        "prometheus_client, parse only",
        "cheaper by",
        f"one of {_MEASURED} polls in a row",
        "one scrape of ours",
    )
    lines = (
        (
            "Against prometheus_client's parser reading the same answer, without "
            f"deriving anything from it. Processor time, the median of {rounds} turns "
            "each. In each turn one poll follows that parser, as a poll follows other "
            "work; polls in a row find all that they need in the processor's caches."
        ),
        "",
        *table(head, rows),
    )
    goals = tuple(
        Goal(
            f"one poll after other work, {name}",
            f"{_CHEAPER:.0f} times cheaper than prometheus_client's parser",
            f"{cost.parse / cost.cold:.1f} times",
            cost.parse / cost.cold >= _CHEAPER,
        )
        for name, cost in zip(BODIES, costs.values(), strict=True)
    )
    ratios = {}
    for key, cost in costs.items():
        ratios[f"poll.cold_{key}"] = cost.cold / cost.parse
        ratios[f"poll.{key}"] = cost.poll / cost.parse
        ratios[f"poll.scrape_{key}"] = cost.scrape / cost.parse
    return Section(
        "One poll, from the answer's bytes to the published result",
        lines,
        ratios,
        goals,
    )


@dataclass(frozen=True)
class _Cost:
    """What an answer costs, in seconds of processor time; its size is in bytes."""

    size: int
    cold: float  # one poll after other work
    poll: float  # one of many polls in a row
    parse: float  # the other parser
    scrape: float  # of ours


def _cost(path: Path, rounds: int) -> _Cost:
    settings = Settings()
    answers = growing(body(path), _WARM + _MEASURED)
    reader = dialects.Reader()

    def poll_all(states: States, first: int, last: int) -> States:
        for n in range(first, last):
            states, _ = pipeline.judge_reading(
                states, reader.read(answers[n]), n * 5.0, settings
            )
        return states

    full = poll_all({}, 0, _WARM)  # the windows are full from here on
    _, judged = pipeline.judge_reading(
        full, reader.read(answers[-1]), _WARM * 5.0, settings
    )
    engines = tuple(each.result for each in judged)
    result = ExporterResult("0", 0.0, (TargetResult("t", up=True, engines=engines),))
    cold = []
    ours = []
    theirs = []
    scrapes = []
    for turn in range(rounds):
        polled = _WARM + turn % _MEASURED
        theirs.append(
            _timed(lambda: list(text_string_to_metric_families(answers[-1].decode())))
        )
        cold.append(_timed(partial(poll_all, full, polled, polled + 1)))
        ours.append(
            _timed(lambda: poll_all(full, _WARM, _WARM + _MEASURED)) / _MEASURED
        )
        scrapes.append(
            _timed(lambda: [block.encode() for block in metrics_text(result)])
        )
    return _Cost(
        size=len(answers[0]),
        cold=statistics.median(cold),
        poll=statistics.median(ours),
        parse=statistics.median(theirs),
        scrape=statistics.median(scrapes),
    )


def parse_seconds(path: Path, rounds: int = 20) -> float:
    """Return the processor time that prometheus_client's parser takes for an answer."""
    text = body(path).decode()
    return statistics.median(
        _timed(lambda: list(text_string_to_metric_families(text)))
        for _ in range(rounds)
    )


def _timed(function: Callable[[], object]) -> float:
    """Return the processor time of one call, in seconds."""
    start = time.thread_time()
    function()
    return time.thread_time() - start
