"""The core against three other truths: vLLM's counters, its record of each request, and
its log.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, pairwise

import pytest

from support.builders import final_answer, processed, requests, series, vllm_log
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.measures.measures import recover
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.settings import Settings

SETTINGS = Settings(
    windows=(Window(10), Window(30)),
    judged=Window(10),
    slack=0.5,  # the captures were polled every second
    thresholds=Thresholds(minimum_drafts=20),
)


@cache
def results(scenario: str) -> tuple[tuple[EngineResult, ...], ...]:
    """Return the result of every answer of a scenario."""
    readings = [(time, read(text)) for time, text in series(scenario)]
    return tuple(processed(readings, SETTINGS))


#: The counter of each count in vLLM's record of a request.
SUMS = {
    "num_spec_steps": "drafts",
    "num_draft_tokens": "draft_tokens",
    "num_accepted_draft_tokens": "accepted_tokens",
}


def completion_tokens(scenario: str) -> int:
    """Return the tokens of all answers, as the clients got them."""
    return sum(request["usage"]["completion_tokens"] for request in requests(scenario))


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
    records = [request["spec"] for request in requests(scenario)]
    total = dict.fromkeys(SUMS, 0.0)
    recovered = Counter()
    for counters in final_counters(scenario):
        for name, field in SUMS.items():
            total[name] += getattr(counters, field)
        buckets = recover(counters).buckets
        for accepted, (below, up_to) in enumerate(pairwise((0, *buckets))):
            recovered[accepted] += up_to - below
    counted = Counter()
    for record in records:
        counted.update(dict(enumerate(record["acceptance_histogram"])))

    assert counted == recovered
    for name, counted_tokens in total.items():
        assert counted_tokens == sum(record[name] for record in records), name
    generated = sum(counters.generation_tokens for counters in final_counters(scenario))
    assert completion_tokens(scenario) == generated


def test_a_server_without_speculation_counts_its_tokens_and_is_off_all_the_time() -> (
    None
):
    """No request tells of drafts."""
    (counters,) = final_counters("nospec")
    engines = [engine for (engine,) in results("nospec")]

    assert {request["spec"] for request in requests("nospec")} == {None}
    assert counters.drafts is None
    assert counters.generation_tokens == completion_tokens("nospec")
    states = {(engine.activity.state, engine.quality.level) for engine in engines}
    assert states == {(ActivityState.OFF, None)}
    assert engines[-2].window("10s").generation_tokens_per_second > 100


_LOGGED = re.compile(r"INFO (\S+ \S+) .*Accepted: (\d+) tokens, Drafted: (\d+) tokens")


def test_what_vllm_logged_up_to_a_line_lies_between_the_counters_around_it() -> None:
    """No tolerance is needed: counters only rise, and the line was written somewhere
    within its second.
    """
    times = [time for time, _ in series("ngram-phases")]
    year = datetime.fromtimestamp(times[0], UTC).year
    matches = list(filter(None, map(_LOGGED.search, vllm_log("ngram-phases"))))
    accepted = drafted = 0
    for match in matches:
        written = datetime.strptime(f"{year}-{match[1]}+0000", "%Y-%m-%d %H:%M:%S%z")
        accepted += int(match[2])
        drafted += int(match[3])
        time = written.timestamp()
        (lower,) = results("ngram-phases")[bisect_right(times, time) - 1]
        (upper,) = results("ngram-phases")[bisect_left(times, time + 1)]
        low, high = lower.counters, upper.counters
        assert low.accepted_tokens <= accepted <= high.accepted_tokens, match[0]
        assert low.draft_tokens <= drafted <= high.draft_tokens, match[0]
    assert len(matches) == 9


def test_the_course_of_the_phases() -> None:
    """30 s of repetitive answers, 30 s at a temperature at which nothing is accepted,
    20 s of nothing.
    """
    engines = [engine for (engine,) in results("ngram-phases")]
    states = [(engine.activity.state, engine.quality.level) for engine in engines]
    active = ActivityState.ACTIVE
    assert [state for state, _ in groupby(states)] == [
        (ActivityState.WARMING_UP, None),
        (ActivityState.IDLE, None),
        (active, QualityLevel.FAIR),
        (active, QualityLevel.POOR),
        (ActivityState.WARMING_UP, None),
        (ActivityState.IDLE, None),
        (active, QualityLevel.FAIR),
    ]
    assert engines[-1].engine_resets_total == 0
    assert engines[-1].num_speculative_tokens == 4
