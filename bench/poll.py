"""What one poll costs, from the answer's bytes to the published result.

Processor time is compared, not time: others on the machine take turns, not cycles.
"""

import statistics
import time
from collections.abc import Callable
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
    cheaper: dict[str, float] = {}
    scraped: dict[str, float] = {}
    rows = []
    for (name, path), key in zip(
        BODIES.items(), ("one_engine", "eight_engines"), strict=True
    ):
        size, poll, parse, scrape = _cost(path, rounds)
        cheaper[key], scraped[key] = parse / poll, scrape / parse
        rows.append(
            (
                name,
                f"{size / 1000:.0f} kB",
                f"{poll * 1000:.2f} ms",
                f"{parse * 1000:.1f} ms",
                f"**{parse / poll:.1f} x**",
                f"{scrape * 1000:.1f} ms",
            )
        )
    head = (
        "answer",
        "size",
        "one poll",
        "prometheus_client, parse only",
        "cheaper by",
        "one scrape of ours",
    )
    lines = (
        (
            "Against prometheus_client's parser reading the same answer, without "
            f"deriving anything from it. Processor time, the median of {rounds} turns "
            "each."
        ),
        "",
        *table(head, rows),
    )
    goals = tuple(
        Goal(
            f"one poll, {name}",
            f"{_CHEAPER:.0f} times cheaper than prometheus_client's parser",
            f"{times:.1f} times",
            times >= _CHEAPER,
        )
        for name, times in zip(BODIES, cheaper.values(), strict=True)
    )
    ratios = {f"poll.{key}": 1 / times for key, times in cheaper.items()}
    ratios |= {f"poll.scrape_{key}": share for key, share in scraped.items()}
    return Section(
        "One poll, from the answer's bytes to the published result",
        lines,
        ratios,
        goals,
    )


def _cost(path: Path, rounds: int) -> tuple[int, float, float, float]:
    """Return the size of an answer, and seconds of a poll, of the other parser, and of
    a scrape of ours.
    """
    settings = Settings()
    answers = growing(body(path), _WARM + _MEASURED)

    def poll_all(states: States, first: int, last: int) -> States:
        for n in range(first, last):
            states, _ = pipeline.process_reading(
                states, dialects.read(answers[n]), n * 5.0, settings
            )
        return states

    full = poll_all({}, 0, _WARM)  # the windows are full from here on
    _, engines = pipeline.process_reading(
        full, dialects.read(answers[-1]), _WARM * 5.0, settings
    )
    result = ExporterResult("0", 0.0, (TargetResult("t", up=True, engines=engines),))
    ours = []
    theirs = []
    scrapes = []
    for _ in range(rounds):
        theirs.append(
            _timed(lambda: list(text_string_to_metric_families(answers[-1].decode())))
        )
        ours.append(
            _timed(lambda: poll_all(full, _WARM, _WARM + _MEASURED)) / _MEASURED
        )
        scrapes.append(
            _timed(lambda: [block.encode() for block in metrics_text(result)])
        )
    return (
        len(answers[0]),
        statistics.median(ours),
        statistics.median(theirs),
        statistics.median(scrapes),
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
