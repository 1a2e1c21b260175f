"""The exporter against a real vLLM.

Each story starts a server, speculates for real, and keeps what the exporter published at the
moments that matter; the tests then compare that with the per-request records in the server's own
answers. Unless a test says otherwise the comparison is exact: the same integers, and the same
quotients of them up to the rounding of a float.
"""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import POLL_INTERVAL, WINDOWS, Exporter, Scrape, Watch
from .server import (
    LOG_INTERVAL,
    MODEL_NAME,
    REPETITIVE_PROMPTS,
    Truth,
    VllmServer,
    drive,
    truth,
)

if TYPE_CHECKING:
    from pathlib import Path

    from .server import RequestRecord

# A story is one fixture and takes up to a minute and a half, in the first test that needs it.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

# The window that holds every request of a story, and the one that holds only its last seconds.
WHOLE, RECENT = "5m", "10s"

COUNTERS = (
    "drafts_total",
    "draft_tokens_total",
    "accepted_tokens_total",
    "generation_tokens_total",
)
# What may not be published while the server cannot be read.
DERIVED = (
    *COUNTERS,
    "accepted_tokens_per_position_total",
    "accepted_tokens_per_draft_bucket",
    "acceptance_ratio",
    "mean_acceptance_length",
    "position_acceptance_ratio",
    "position_conditional_acceptance_ratio",
    "expected_tokens_per_step",
    "mean_acceptance_length_at",
    "mean_draft_length",
    "coverage_ratio",
    "drafts_per_second",
    "draft_tokens_per_second",
    "accepted_tokens_per_second",
    "generation_tokens_per_second",
    "window_drafts",
    "window_span_seconds",
    "position_decay_ratio",
    "num_speculative_tokens",
    "estimated_speedup",
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
)


def ngram(tokens: int) -> dict[str, object]:
    return {
        "method": "ngram",
        "num_speculative_tokens": tokens,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 1,
    }


@dataclass(frozen=True)
class Observation:
    """What the exporter published after some requests, and what these add up to."""

    scrape: Scrape
    snapshot: Any
    truth: Truth
    seconds: float
    """Since the exporter first showed this server."""


def wait_until_up(exporter: Exporter) -> float:
    """Let the exporter find the server, so that its windows begin before the requests do."""
    exporter.wait_for(is_up)
    return time.monotonic()


def observe(exporter: Exporter, records: list[RequestRecord], since: float) -> Observation:
    """Let the exporter see the end of the requests and keep what it then publishes."""
    sums = truth(records)

    def complete(scrape: Scrape) -> bool:
        return (
            scrape.sum("generation_tokens_total") == sums.completion_tokens
            and (scrape.sum("drafts_total") or 0) == sums.drafts
        )

    scrape = exporter.wait_for(complete)
    return Observation(scrape, exporter.snapshot(), sums, time.monotonic() - since)


def observe_window(exporter: Exporter, records: list[RequestRecord], since: float) -> Observation:
    """Do the same for an exporter whose counters hold more than these requests."""
    sums = truth(records)

    def complete(scrape: Scrape) -> bool:
        """Tell whether the last token is in, which may come after the last draft where drafts are rare."""
        span = scrape.value("window_span_seconds", window=WHOLE) or 0
        tokens = (scrape.value("generation_tokens_per_second", window=WHOLE) or 0) * span
        drafts = scrape.value("window_drafts", window=WHOLE)
        return (drafts, round(tokens)) == (sums.drafts, sums.completion_tokens)

    scrape = exporter.wait_for(complete)
    return Observation(scrape, exporter.snapshot(), sums, time.monotonic() - since)


def is_up(scrape: Scrape) -> bool:
    return scrape.value("up") == 1


def is_down(scrape: Scrape) -> bool:
    return scrape.value("up") == 0


def expected_measures(sums: Truth) -> dict[str, float]:
    """Return the measures of a window that holds exactly these requests, from their definitions."""
    drafts, positions = sums.drafts, sums.accepted_per_position
    measures = {
        "window_drafts": float(drafts),
        "acceptance_ratio": sums.accepted_tokens / sums.draft_tokens,
        "mean_acceptance_length": 1 + sums.accepted_tokens / drafts,
        "expected_tokens_per_step": 1 + sum(positions) / drafts,
        "mean_draft_length": sums.draft_tokens / drafts,
        "coverage_ratio": min(1.0, (sums.accepted_tokens + drafts) / sums.completion_tokens),
    }
    for position, accepted in enumerate(positions):
        measures[f"position_acceptance_ratio {position}"] = accepted / drafts
        before = positions[position - 1] if position else drafts
        if before:
            measures[f"position_conditional_acceptance_ratio {position}"] = accepted / before
    for tokens in range(1, len(positions)):
        measures[f"mean_acceptance_length_at {tokens}"] = 1 + sum(positions[:tokens]) / drafts
    if len(positions) > 1 and positions[0]:
        decay = (positions[-1] / positions[0]) ** (1 / (len(positions) - 1))
        measures["position_decay_ratio"] = decay
    return measures


def published_measures(scrape: Scrape, window: str) -> dict[str, float]:
    """Return the same measures as the exporter publishes them."""
    measures: dict[str, float] = {}
    for name in (
        "window_drafts",
        "acceptance_ratio",
        "mean_acceptance_length",
        "expected_tokens_per_step",
        "mean_draft_length",
        "coverage_ratio",
        "position_decay_ratio",
    ):
        value = scrape.value(name, window=window)
        if value is not None:
            measures[name] = value
    for name, label in (
        ("position_acceptance_ratio", "position"),
        ("position_conditional_acceptance_ratio", "position"),
        ("mean_acceptance_length_at", "num_speculative_tokens"),
    ):
        for place, value in scrape.by(label, name, window=window).items():
            measures[f"{name} {place}"] = value
    return measures


# --- an n-gram server: loading, greedy requests, requests at a temperature, a restart with K=2 ---


@dataclass(frozen=True)
class NgramStory:
    loading: list[Scrape]
    """While vLLM was loading."""
    unwell: list[int]
    """Status of `/-/healthy` and `/-/ready` then."""
    version: str
    first_up: Scrape
    unused: Scrape
    """As soon as there is a window, before the first request."""
    greedy: Observation
    logged: tuple[int, int]
    """Accepted and drafted tokens of the greedy requests in vLLM's own log."""
    hot: Scrape
    """After more than the recent window at temperature 1, still under load."""
    both: Observation
    """The greedy and the hot requests together."""
    gone: Scrape
    """While the server was away."""
    restarting: list[Scrape]
    """From before the server went away until after the requests to its successor."""
    restarted: Observation
    """Only the requests to its successor."""
    late_hot: Observation
    """The hot requests, in an exporter that was started after the greedy ones."""
    late_restarted: Observation
    """The requests to the successor, in that exporter."""
    errors: list[Exception]
    """Failed scrapes of the exporter; there may be none."""


#: The published levels, for n-gram's own are so low that a mean over both temperatures stays above them.
RUBRIC = tuple(
    word
    for level, ratio in (("poor", 0.4), ("healthy", 0.6), ("optimal", 0.7))
    for word in ("--threshold", f"{level}_acceptance_ratio={ratio}")
)


@pytest.fixture(scope="module")
def ngram_story(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> NgramStory:
    directory = tmp_path_factory.mktemp("ngram")
    server = VllmServer(vllm_python, models / "target", directory, speculation=ngram(4))
    try:
        with Exporter(server.url, directory, speculation=ngram(4), arguments=RUBRIC) as exporter:
            server.start()
            with Watch(exporter) as start:
                unwell = [exporter.status("/-/healthy"), exporter.status("/-/ready")]
                server.wait_until_ready()
            since = wait_until_up(exporter)
            first_up = exporter.scrape()
            unused = exporter.wait_for(lambda scrape: bool(scrape.select("window_drafts", window=RECENT)))
            version = server.version()

            greedy_records = drive(server, number=40, temperature=0.0)
            greedy_records += drive(server, number=20, temperature=0.0, api="chat")
            greedy = observe(exporter, greedy_records, since)
            logged = wait_for_log(server, greedy.truth)

            # For the first exporter all counters began at 0, and so they do after a restart: it
            # would find the right differences even if it took them across. The second would not.
            with Exporter(server.url, directory / "late", speculation=ngram(4)) as late:
                late_since = wait_until_up(late)
                hot, hot_records = drive_until_poor(server, exporter)
                both = observe(exporter, greedy_records + hot_records, since)
                late_hot = observe_window(late, hot_records, late_since)

                with Watch(exporter) as restart, Watch(late) as late_restart:
                    server.restart(speculation=ngram(2))
                    gone = exporter.wait_for(is_down)
                    late.wait_for(is_down)
                    server.wait_until_ready()
                    since, late_since = wait_until_up(exporter), wait_until_up(late)
                    records = drive(server, number=40, temperature=0.0)
                    restarted = observe(exporter, records, since)
                    late_restarted = observe(late, records, late_since)
    finally:
        server.stop()
    return NgramStory(
        loading=[scrape for scrape in start.scrapes if not is_up(scrape)],
        unwell=unwell,
        version=version,
        first_up=first_up,
        unused=unused,
        greedy=greedy,
        logged=logged,
        hot=hot,
        both=both,
        gone=gone,
        restarting=restart.scrapes + late_restart.scrapes,
        restarted=restarted,
        late_hot=late_hot,
        late_restarted=late_restarted,
        errors=start.errors + restart.errors + late_restart.errors,
    )


def wait_for_log(server: VllmServer, sums: Truth) -> tuple[int, int]:
    """Return what vLLM's log adds up to, once it is complete or overdue."""
    deadline = time.monotonic() + 4 * LOG_INTERVAL
    while server.logged() != (sums.accepted_tokens, sums.draft_tokens):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return server.logged()


def drive_until_poor(server: VllmServer, exporter: Exporter) -> tuple[Scrape, list[RequestRecord]]:
    """Send requests at temperature 1 until the exporter calls it poor, and then no more."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(drive, server, number=10_000, temperature=1.0, stop=stop)
        try:
            hot = exporter.wait_for(
                lambda scrape: (
                    (scrape.value("acceptance_ratio", window=RECENT) or 0.0) < 0.02
                    and "poor" in scrape.states("quality", "level")
                ),
                timeout=45,
            )
        finally:
            stop.set()
        return hot, load.result(timeout=60)


def test_says_that_a_loading_server_is_down(ngram_story: NgramStory) -> None:
    assert ngram_story.loading
    assert all(is_down(scrape) for scrape in ngram_story.loading)
    assert ngram_story.unwell == [200, 200]
    refused = ngram_story.loading[-1].by("reason", "poll_errors_total")
    assert refused.get("refused", 0) > 0


def test_publishes_nothing_derived_while_the_server_loads(ngram_story: NgramStory) -> None:
    for scrape in ngram_story.loading:
        assert not set(scrape.samples) & set(DERIVED)
        assert not any("window" in dict(labels) for _, labels in all_series(scrape))


def test_says_up_when_the_server_has_loaded(ngram_story: NgramStory) -> None:
    assert is_up(ngram_story.first_up)
    assert ngram_story.first_up.value("num_speculative_tokens") == 4
    assert ngram_story.first_up.value("drafts_total") == 0
    assert ngram_story.first_up.states("quality", "level") == set()


def test_calls_an_unused_server_idle(ngram_story: NgramStory) -> None:
    assert ngram_story.unused.states("activity", "state") == {"idle"}
    assert ngram_story.unused.states("quality", "level") == set()
    # A ratio over nothing is not 0 and not NaN: it is not there.
    assert ngram_story.unused.value("window_drafts", window=RECENT) == 0
    assert ngram_story.unused.select("acceptance_ratio") == []
    assert ngram_story.unused.select("mean_acceptance_length") == []


def test_always_answers(ngram_story: NgramStory) -> None:
    assert ngram_story.errors == []


def test_knows_what_it_watches(ngram_story: NgramStory) -> None:
    ((info, value),) = ngram_story.greedy.scrape.select("info")
    assert value == 1
    assert info["method"] == "ngram"
    assert info["dialect"] == "vllm-v1"
    assert info["upstream_version"] == ngram_story.version
    assert info["model_name"] == MODEL_NAME
    assert info["engine"] == "0"


def test_calls_speculation_under_load_active(ngram_story: NgramStory) -> None:
    assert ngram_story.greedy.scrape.states("activity", "state") == {"active"}
    assert len(ngram_story.greedy.scrape.states("quality", "level")) == 1


def test_agrees_with_the_log_of_vllm(ngram_story: NgramStory) -> None:
    accepted, drafted = ngram_story.logged
    assert ngram_story.greedy.scrape.value("accepted_tokens_total") == accepted
    assert ngram_story.greedy.scrape.value("draft_tokens_total") == drafted


def test_shows_acceptance_collapse_with_the_temperature(ngram_story: NgramStory) -> None:
    before = ngram_story.greedy.scrape.value("acceptance_ratio", window=WHOLE)
    assert before is not None
    assert before > 0.4
    # Nothing of a random text is guessed, bar a token now and then.
    now = ngram_story.hot.value("acceptance_ratio", window=RECENT)
    assert now is not None
    assert now < 0.02
    drafts = ngram_story.hot.value("window_drafts", window=RECENT)
    assert drafts is not None
    assert drafts > 0


def test_calls_collapsed_acceptance_poor(ngram_story: NgramStory) -> None:
    assert ngram_story.hot.states("quality", "level") == {"poor"}
    assert ngram_story.hot.states("activity", "state") == {"active"}


def test_says_that_a_restarting_server_is_down(ngram_story: NgramStory) -> None:
    assert is_down(ngram_story.gone)
    down = [scrape for scrape in ngram_story.restarting if is_down(scrape)]
    assert down
    for scrape in down:
        assert not set(scrape.samples) & set(DERIVED)


def test_counts_the_restart_as_one_reset(ngram_story: NgramStory) -> None:
    assert (ngram_story.both.scrape.sum("engine_resets_total") or 0) == 0
    for observation in (ngram_story.restarted, ngram_story.late_restarted):
        assert observation.scrape.value("engine_resets_total", engine="0") == 1


def test_follows_a_smaller_k_over_a_restart(ngram_story: NgramStory) -> None:
    scrape = ngram_story.restarted.scrape
    assert ngram_story.both.scrape.value("num_speculative_tokens") == 4
    assert scrape.value("num_speculative_tokens") == 2
    for name, labels in all_series(scrape):
        assert dict(labels).get("position", "0") in {"0", "1"}, name
    assert {float(le) for le in scrape.by("le", "accepted_tokens_per_draft_bucket")} == {
        0,
        1,
        2,
        math.inf,
    }


def test_no_window_reaches_over_a_restart(ngram_story: NgramStory) -> None:
    successor = [
        scrape
        for scrape in ngram_story.restarting
        if is_up(scrape) and scrape.value("num_speculative_tokens") == 2
    ]
    assert successor
    for scrape in successor:
        for window in WINDOWS:
            drafts = scrape.value("window_drafts", window=window)
            assert drafts is None or drafts <= (scrape.value("drafts_total") or 0)


def test_nothing_is_negative_or_absurd_over_a_restart(ngram_story: NgramStory) -> None:
    # Of all tokens that the server ever generated, over the shortest time between two polls.
    most = ngram_story.both.truth.completion_tokens / POLL_INTERVAL
    for scrape in ngram_story.restarting:
        for name, labels in all_series(scrape):
            value = scrape.samples[name][labels]
            assert value >= 0, f"{name}{dict(labels)} is {value}"
            assert math.isfinite(value), f"{name}{dict(labels)} is {value}"
            if name.endswith("_per_second"):
                assert value <= most, f"{name}{dict(labels)} is {value}"
            if name.endswith("_ratio") and not name.startswith("break_even"):
                assert value <= 1, f"{name}{dict(labels)} is {value}"


def all_series(scrape: Scrape) -> list[tuple[str, frozenset[tuple[str, str]]]]:
    return [(name, labels) for name, series in scrape.samples.items() for labels in series]


# --- a draft model ---


@dataclass(frozen=True)
class DraftStory:
    greedy: Observation
    cut: list[RequestRecord]
    """Requests that end at a stop string, which have no record."""
    after_cut: Scrape


CUT_REQUESTS, CUT_MAX_TOKENS = 10, 80


@pytest.fixture(scope="module")
def draft_story(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> DraftStory:
    directory = tmp_path_factory.mktemp("draft")
    speculation: dict[str, object] = {
        "method": "draft_model",
        "model": str(models / "draft-0.02"),
        "num_speculative_tokens": 4,
    }
    with (
        VllmServer(vllm_python, models / "target", directory, speculation=speculation) as server,
        Exporter(server.url, directory, speculation=speculation) as exporter,
    ):
        since = wait_until_up(exporter)
        records = drive(server, number=60, temperature=0.0)
        greedy = observe(exporter, records, since)
        cut = drive(
            server,
            number=CUT_REQUESTS,
            temperature=0.0,
            max_tokens=CUT_MAX_TOKENS,
            prompts=REPETITIVE_PROMPTS[:1],
            # Somewhere in the middle of what the model answers to that prompt.
            stop_at=records[0].text[40:43],
        )
        seen = greedy.truth.completion_tokens + sum(record.completion_tokens for record in cut)
        after_cut = exporter.wait_for(lambda scrape: (scrape.sum("generation_tokens_total") or 0) >= seen)
    return DraftStory(greedy, cut, after_cut)


def test_knows_the_draft_model(draft_story: DraftStory) -> None:
    ((info, value),) = draft_story.greedy.scrape.select("info")
    assert value == 1
    assert info["method"] == "draft_model"
    assert info["draft_model"].endswith("draft-0.02")


def test_a_good_draft_model_is_accepted(draft_story: DraftStory, ngram_story: NgramStory) -> None:
    drafted = draft_story.greedy.scrape.value("acceptance_ratio", window=WHOLE)
    looked_up = ngram_story.hot.value("acceptance_ratio", window=RECENT)
    assert drafted is not None
    assert looked_up is not None
    assert drafted > looked_up + 0.3


def test_requests_cut_at_a_stop_string_count_without_a_record(draft_story: DraftStory) -> None:
    """A known gap between the records and the counters; the docstring of `truth` has the cause."""
    before, after = draft_story.greedy.truth, draft_story.after_cut
    assert all(record.speculation is None for record in draft_story.cut)
    answered = sum(record.completion_tokens for record in draft_story.cut)
    assert answered < CUT_REQUESTS * CUT_MAX_TOKENS
    generated = (after.value("generation_tokens_total") or 0) - before.completion_tokens
    # Of the step in which the string was found, at most its K accepted tokens are behind it.
    assert answered <= generated <= answered + 4 * CUT_REQUESTS
    drafts = (after.value("drafts_total") or 0) - before.drafts
    # The engine goes on until it hears of the end, at the longest for as long as it was asked to.
    assert 0 < drafts <= CUT_REQUESTS * CUT_MAX_TOKENS


# --- the counts and measures of every story with one engine ---

OBSERVATIONS = {
    "ngram": ("ngram_story", "greedy"),
    "ngram-two-temperatures": ("ngram_story", "both"),
    "ngram-restarted-with-k-2": ("ngram_story", "restarted"),
    "ngram-restarted-late-exporter": ("ngram_story", "late_restarted"),
    "draft-model": ("draft_story", "greedy"),
}
# Here the counters hold more than the windows do.
WINDOW_OBSERVATIONS = {**OBSERVATIONS, "ngram-late-exporter": ("ngram_story", "late_hot")}


def observation_of(request: pytest.FixtureRequest) -> Observation:
    story, moment = WINDOW_OBSERVATIONS[request.param]
    found = getattr(request.getfixturevalue(story), moment)
    assert isinstance(found, Observation)
    return found


@pytest.fixture(params=OBSERVATIONS)
def observation(request: pytest.FixtureRequest) -> Observation:
    return observation_of(request)


@pytest.fixture(params=WINDOW_OBSERVATIONS)
def window_observation(request: pytest.FixtureRequest) -> Observation:
    return observation_of(request)


def test_counters_equal_the_records(observation: Observation) -> None:
    sums = observation.truth
    assert {name: observation.scrape.value(name) for name in COUNTERS} == {
        "drafts_total": sums.drafts,
        "draft_tokens_total": sums.draft_tokens,
        "accepted_tokens_total": sums.accepted_tokens,
        "generation_tokens_total": sums.completion_tokens,
    }


def test_position_counters_equal_the_records(observation: Observation) -> None:
    positions = observation.scrape.by("position", "accepted_tokens_per_position_total")
    assert positions == {
        str(position): accepted for position, accepted in enumerate(observation.truth.accepted_per_position)
    }


def test_histogram_of_accepted_tokens_equals_the_records(observation: Observation) -> None:
    sums, scrape = observation.truth, observation.scrape
    buckets = scrape.by("le", "accepted_tokens_per_draft_bucket")
    expected = {
        float(accepted): sum(sums.accepted_per_draft[: accepted + 1])
        for accepted in range(len(sums.accepted_per_draft))
    }
    expected[math.inf] = sums.drafts
    assert {float(le): drafts for le, drafts in buckets.items()} == expected
    assert scrape.value("accepted_tokens_per_draft_count") == sums.drafts
    assert scrape.value("accepted_tokens_per_draft_sum") == sums.accepted_tokens


def test_measures_of_the_whole_window_equal_the_records(window_observation: Observation) -> None:
    expected = expected_measures(window_observation.truth)
    published = published_measures(window_observation.scrape, WHOLE)
    # Left open: whether the K in force is listed among the values that K could have.
    all_tokens = f"mean_acceptance_length_at {len(window_observation.truth.accepted_per_position)}"
    if all_tokens in published:
        expected[all_tokens] = expected["mean_acceptance_length"]
    assert published == pytest.approx(expected, rel=1e-9)


def test_rates_are_over_the_span_of_the_window(window_observation: Observation) -> None:
    sums, scrape = window_observation.truth, window_observation.scrape
    span = scrape.value("window_span_seconds", window=WHOLE)
    # From the poll before the requests to the one behind them.
    assert span == pytest.approx(window_observation.seconds, abs=3 * POLL_INTERVAL)
    assert span is not None
    assert {
        name: (scrape.value(name, window=WHOLE) or 0) * span
        for name in (
            "drafts_per_second",
            "draft_tokens_per_second",
            "accepted_tokens_per_second",
            "generation_tokens_per_second",
        )
    } == pytest.approx(
        {
            "drafts_per_second": sums.drafts,
            "draft_tokens_per_second": sums.draft_tokens,
            "accepted_tokens_per_second": sums.accepted_tokens,
            "generation_tokens_per_second": sums.completion_tokens,
        },
        rel=1e-9,
    )


def test_snapshot_equals_the_metrics(observation: Observation) -> None:
    """The snapshot was taken just after the scrape, of a server that did nothing any more."""
    ((engine,),) = (target["engines"] for target in observation.snapshot["targets"])
    scrape, counters = observation.scrape, engine["counters"]
    assert {name: counters[name.removesuffix("_total")] for name in COUNTERS} == {
        name: scrape.value(name) for name in COUNTERS
    }
    assert counters["accepted_tokens_per_position"] == list(
        scrape.by("position", "accepted_tokens_per_position_total").values()
    )
    assert engine["num_speculative_tokens"] == scrape.value("num_speculative_tokens")
    (whole,) = (measures for measures in engine["windows"] if measures["window"] == WHOLE)
    for name in ("acceptance_ratio", "mean_acceptance_length", "mean_draft_length"):
        assert whole[name] == scrape.value(name, window=WHOLE), name
    assert whole["drafts"] == scrape.value("window_drafts", window=WHOLE)
    assert whole["position_acceptance_ratio"] == list(
        scrape.by("position", "position_acceptance_ratio", window=WHOLE).values()
    )


def test_scrapes_of_a_quiet_server_are_consistent(observation: Observation) -> None:
    assert (observation.scrape.sum("inconsistent_samples_total") or 0) == 0


# --- two engines ---


@dataclass(frozen=True)
class EnginesStory:
    observation: Observation
    upstream: Scrape
    """What vLLM itself publishes."""


@pytest.fixture(scope="module")
def engines_story(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> EnginesStory:
    directory = tmp_path_factory.mktemp("engines")
    server = VllmServer(
        vllm_python,
        models / "target",
        directory,
        speculation=ngram(3),
        arguments=["--data-parallel-size", "2"],
    )
    with server, Exporter(server.url, directory, speculation=ngram(3)) as exporter:
        since = wait_until_up(exporter)
        observation = observe(exporter, drive(server, number=24, temperature=0.0), since)
        return EnginesStory(observation, Scrape.parse(server.metrics()))


def test_engines_are_apart(engines_story: EnginesStory) -> None:
    scrape = engines_story.observation.scrape
    assert scrape.by("engine", "num_speculative_tokens") == {"0": 3, "1": 3}
    for name, upstream in (
        ("drafts_total", "vllm:spec_decode_num_drafts_total"),
        ("draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
        ("accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
        ("generation_tokens_total", "vllm:generation_tokens_total"),
    ):
        published = scrape.by("engine", name)
        assert published == engines_story.upstream.by("engine", upstream), name
        assert all(value > 0 for value in published.values()), name


def test_engines_add_up_to_the_records(engines_story: EnginesStory) -> None:
    scrape, sums = engines_story.observation.scrape, engines_story.observation.truth
    assert {name: scrape.sum(name) for name in COUNTERS} == {
        "drafts_total": sums.drafts,
        "draft_tokens_total": sums.draft_tokens,
        "accepted_tokens_total": sums.accepted_tokens,
        "generation_tokens_total": sums.completion_tokens,
    }
    assert scrape.by("position", "accepted_tokens_per_position_total") == {
        str(position): accepted for position, accepted in enumerate(sums.accepted_per_position)
    }


@pytest.mark.parametrize("engine", ["0", "1"])
def test_each_engine_has_measures_of_its_own(engines_story: EnginesStory, engine: str) -> None:
    scrape = engines_story.observation.scrape
    drafts, drafted, accepted, _ = (scrape.value(name, engine=engine) for name in COUNTERS)
    assert drafts
    assert drafted
    assert accepted
    ratio = scrape.value("acceptance_ratio", engine=engine, window=WHOLE)
    length = scrape.value("mean_acceptance_length", engine=engine, window=WHOLE)
    assert ratio == pytest.approx(accepted / drafted, rel=1e-9)
    assert length == pytest.approx(1 + accepted / drafts, rel=1e-9)


# --- no speculation ---


@pytest.fixture(scope="module")
def plain_story(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Observation:
    directory = tmp_path_factory.mktemp("plain")
    with (
        VllmServer(vllm_python, models / "target", directory, speculation=None) as server,
        Exporter(server.url, directory, speculation=None) as exporter,
    ):
        since = wait_until_up(exporter)
        return observe(exporter, drive(server, number=20, temperature=0.0), since)


def test_a_server_without_speculation_is_off(plain_story: Observation) -> None:
    scrape = plain_story.scrape
    assert is_up(scrape)
    assert scrape.states("activity", "state") == {"off"}
    assert scrape.states("quality", "level") == set()


def test_a_server_without_speculation_has_no_acceptance(plain_story: Observation) -> None:
    scrape, sums = plain_story.scrape, plain_story.truth
    assert scrape.value("generation_tokens_total") == sums.completion_tokens
    assert (scrape.value("drafts_total") or 0) == 0
    for name in (
        "acceptance_ratio",
        "mean_acceptance_length",
        "position_acceptance_ratio",
        "position_conditional_acceptance_ratio",
        "mean_draft_length",
        "position_decay_ratio",
    ):
        assert scrape.select(name) == [], name
