"""The core against three other truths: vLLM's counters, its record of each request, and
its log.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import UTC, datetime
from functools import cache

import pytest

from support.builders import final_answer, processed, requests, series, vllm_log
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.measures.measures import recover
from vllm_specdec_exporter.observe.pipeline import Settings
from vllm_specdec_exporter.observe.result import EngineResult

SETTINGS = Settings(
    windows=(Window(10), Window(30)),
    judged=Window(10),
    slack=0.5,  # the captures were polled every second
    thresholds=Thresholds(minimum_drafts=20),
)


@cache
def results(scenario: str) -> tuple[tuple[float, tuple[EngineResult, ...]], ...]:
    """The results of every answer of a scenario, with its time."""
    readings = [(time, read(text)) for time, text in series(scenario)]
    return tuple(
        zip((time for time, _ in readings), processed(readings, SETTINGS), strict=True)
    )


def final_counters(scenario: str) -> list[Counters]:
    """The counters of each engine when the scenario had ended."""
    return [engine.counters for engine in read(final_answer(scenario)).engines]


@pytest.mark.parametrize("scenario", ["ngram-phases", "dp2"])
def test_counters_are_the_sums_over_vllms_own_record_of_each_request(
    scenario: str,
) -> None:
    """All engines' together; the recovered distribution is the requests' own
    histograms, draft for draft.
    """
    counters = final_counters(scenario)
    of_requests = [request["spec"] for request in requests(scenario)]
    recovered: Counter[int] = Counter()
    for values in counters:
        buckets = recover(values).buckets
        recovered.update(
            {
                j: b - a
                for j, (a, b) in enumerate(zip((0, *buckets), buckets, strict=False))
            }
        )
    counted: Counter[int] = Counter()
    for spec in of_requests:
        counted.update(dict(enumerate(spec["acceptance_histogram"])))

    assert counted == recovered
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    fields = ("drafts", "draft_tokens", "accepted_tokens")
    assert [sum(spec[name] for spec in of_requests) for name in names] == [
        sum(getattr(values, field) for values in counters) for field in fields
    ]
    tokens = sum(
        request["usage"]["completion_tokens"] for request in requests(scenario)
    )
    assert tokens == sum(c.generation_tokens for c in counters)


def test_a_server_without_speculation_counts_its_tokens_and_is_off_all_the_time() -> (
    None
):
    """No request tells of drafts."""
    (counters,) = final_counters("nospec")
    found = [engine for _, (engine,) in results("nospec")]

    assert {None} == {request["spec"] for request in requests("nospec")}
    tokens = sum(
        request["usage"]["completion_tokens"] for request in requests("nospec")
    )
    assert (counters.drafts, counters.generation_tokens) == (None, tokens)
    assert {(ActivityState.OFF, None)} == {
        (engine.activity.state, engine.quality.level) for engine in found
    }
    assert found[-2].window("10s").generation_tokens_per_second > 100


_LOGGED = re.compile(r"INFO (\S+ \S+) .*Accepted: (\d+) tokens, Drafted: (\d+) tokens")


def test_what_vllm_logged_up_to_a_line_lies_between_the_counters_around_it() -> None:
    """No tolerance is needed: counters only rise, and the line was written somewhere
    within its second.
    """
    times = [time for time, _ in results("ngram-phases")]
    year = datetime.fromtimestamp(times[0], UTC).year
    found = [
        match for line in vllm_log("ngram-phases") if (match := _LOGGED.search(line))
    ]
    accepted = drafted = 0
    for match in found:
        at = datetime.strptime(
            f"{year}-{match[1]}+0000", "%Y-%m-%d %H:%M:%S%z"
        ).timestamp()
        accepted = accepted + int(match[2])
        drafted = drafted + int(match[3])
        before = bisect_right(times, at) - 1
        after = bisect_left(times, at + 1)
        (lower,), (upper,) = (results("ngram-phases")[i][1] for i in (before, after))
        assert (
            lower.counters.accepted_tokens <= accepted <= upper.counters.accepted_tokens
        )
        assert lower.counters.draft_tokens <= drafted <= upper.counters.draft_tokens
    assert len(found) == 9


def test_the_course_of_the_phases() -> None:
    """30 s of repetitive answers, 30 s at a temperature at which nothing is accepted,
    20 s of nothing.
    """
    course = [
        (engine.activity.state, engine.quality.level)
        for _, (engine,) in results("ngram-phases")
    ]
    changes = [
        now
        for before, now in zip([None, *course], course, strict=False)
        if now != before
    ]

    active = ActivityState.ACTIVE
    idle = ActivityState.IDLE
    starting = ActivityState.WARMING_UP
    assert [
        (starting, None),
        (idle, None),
        (active, QualityLevel.FAIR),
        (active, QualityLevel.POOR),
        (starting, None),
        (idle, None),
        (active, QualityLevel.FAIR),
    ] == changes
    last = [engine for _, engines in results("ngram-phases")[-1:] for engine in engines]
    assert [(e.engine_resets_total, e.num_speculative_tokens) for e in last] == [(0, 4)]
