"""The exporter against a real vLLM: what is published equals the per-request records in
its answers.
"""

import contextlib
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from support.exporter import Metrics, RunningExporter
from support.programs import eventually
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.measures.delivered import delivered
from vllm_specdec_exporter.measures.history import Sample, delta

from .conftest import (
    COUNTERS,
    LABELLED,
    MEASURES,
    POLL_INTERVAL,
    RATES,
    RECENT,
    WHOLE,
    WINDOWS,
    Observation,
    Servers,
    by,
    exporter,
    is_up,
    ngram,
    observe,
    scrape_when,
    total,
    wait_until_up,
    watched,
)
from .server import LOG_INTERVAL, MODEL_NAME, Told, Truth, VllmServer, drive, truth

# A story is one fixture and takes up to a minute and a half, in the first test that
# needs it.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

# What may not be published while the server cannot be read.
DERIVED = {
    *COUNTERS,
    *RATES,
    *MEASURES,
    *LABELLED,
    "accepted_tokens_per_position_total",
    "accepted_tokens_per_draft_bucket",
    "window_span_seconds",
    "num_speculative_tokens",
    "estimated_speedup",
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
}
NOTHING = Metrics("")


def is_down(scrape: Metrics) -> bool:
    return scrape.value("up") == 0


# --- an n-gram server: loading, greedy requests, requests at a temperature, a restart
# with K=2 ---


@dataclass(frozen=True)
class NgramStory:
    """What was seen of a server from its start to the life after a restart."""

    loading: list[Metrics]  # while vLLM was loading
    unwell: list[int]  # status of `/-/healthy` and `/-/ready` then
    version: str
    first_up: Metrics
    unused: Metrics  # as soon as there is a window, before the first request
    greedy: Observation
    #: Accepted and drafted tokens of the greedy requests in vLLM's own log.
    logged: tuple[int, int]
    hot: Metrics  # after more than the recent window at temperature 1, still under load
    both: Observation  # the greedy and the hot requests together
    #: The hot requests, in an exporter that was started after the greedy ones.
    late_hot: Observation
    gone: Metrics  # while the server was away
    #: From before it went away until after the requests to its successor.
    restarting: list[Metrics]
    restarted: Observation  # only the requests to its successor
    late_restarted: Observation  # likewise in the exporter that came late


#: The published levels, for n-gram's own are so low that a mean over both temperatures
#: stays above them.
RUBRIC = (
    "--threshold=poor_acceptance_ratio=0.4",
    "--threshold=healthy_acceptance_ratio=0.6",
    "--threshold=optimal_acceptance_ratio=0.7",
)


@pytest.fixture(scope="module")
def ngram_story(servers: Servers) -> NgramStory:
    server = servers.new("target", ngram(4))
    try:
        with exporter(server, *RUBRIC) as first:
            server.start()
            with watched(first) as start:
                unwell = [first.get("/-/healthy").status, first.get("/-/ready").status]
                server.wait_until_ready()
            metrics_before = wait_until_up(first)
            unused = scrape_when(
                first, lambda scrape: scrape.values("window_drafts", window=RECENT)
            )
            version = server.version()

            greedy_told = drive(server, 18)
            greedy_told += drive(server, 6, api="chat")
            greedy = observe(first, greedy_told, metrics_before)
            logged = wait_for_log(server, greedy.truth)

            # For the first exporter all counters began at 0, and so they do after a
            # restart: it would find the right differences even if it took them across.
            # The second would not.
            with exporter(server) as late_exporter:
                late_before = wait_until_up(late_exporter)
                hot, hot_told = drive_until_poor(server, first)
                both = observe(first, greedy_told + hot_told, metrics_before)
                late_hot = observe(late_exporter, hot_told, late_before)
                with watched(first) as restart, watched(late_exporter) as late_restart:
                    server.restart(ngram(2))
                    gone = scrape_when(first, is_down)
                    scrape_when(late_exporter, is_down)
                    server.wait_until_ready()
                    wait_until_up(first)
                    wait_until_up(late_exporter)
                    answers = drive(server, 18)
                    restarted = observe(first, answers, NOTHING)
                    late_restarted = observe(late_exporter, answers, NOTHING)
    finally:
        server.stop()
    return NgramStory(
        loading=[scrape for scrape in start if not is_up(scrape)],
        unwell=unwell,
        version=version,
        first_up=greedy.earlier,
        unused=unused,
        greedy=greedy,
        logged=logged,
        hot=hot,
        both=both,
        late_hot=late_hot,
        gone=gone,
        restarting=restart + late_restart,
        restarted=restarted,
        late_restarted=late_restarted,
    )


def wait_for_log(server: VllmServer, sums: Truth) -> tuple[int, int]:
    """Return what vLLM's log adds up to, once it is complete or overdue."""
    with contextlib.suppress(AssertionError):
        eventually(
            lambda: server.logged() == (sums.accepted_tokens, sums.draft_tokens),
            4 * LOG_INTERVAL,
        )
    return server.logged()


def drive_until_poor(
    server: VllmServer, running: RunningExporter
) -> tuple[Metrics, list[Told]]:
    """Send requests at temperature 1 until the exporter calls it poor, and then no
    more.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(drive, server, 10_000, temperature=1.0, stop=stop)
        try:
            hot = scrape_when(
                running,
                lambda scrape: (
                    (scrape.value("acceptance_ratio", window=RECENT) or 0.0) < 0.02
                    and "poor" in scrape.one_hot("quality")
                ),
            )
        finally:
            stop.set()
        return hot, load.result(timeout=60)


def all_series(scrape: Metrics) -> list[tuple[str, dict[str, str], float]]:
    listed = []
    for name, series in scrape.samples.items():
        listed += [(name, dict(labels), value) for labels, value in series.items()]
    return listed


def test_a_loading_server_is_down_and_nothing_is_derived(
    ngram_story: NgramStory,
) -> None:
    assert ngram_story.loading
    for number, scrape in enumerate(ngram_story.loading):
        assert is_down(scrape), number
        assert not set(scrape.samples) & DERIVED, number
        for name, labels, _ in all_series(scrape):
            assert "window" not in labels, (number, name)
    assert ngram_story.unwell == [200, 200]
    assert ngram_story.loading[-1].errors()["refused"] > 0


def test_a_loaded_server_is_up_and_knows_what_it_watches(
    ngram_story: NgramStory,
) -> None:
    first = ngram_story.first_up
    assert first.value("num_speculative_tokens") == 4
    assert [first.value(name) for name in COUNTERS] == [0, 0, 0, 0]
    assert first.one_hot("quality") == []
    (info,) = ngram_story.greedy.scrape.labels("info")
    expected = {
        "method": "ngram",
        "dialect": "vllm-v1",
        "upstream_version": ngram_story.version,
    }
    assert info.items() >= {**expected, "model_name": MODEL_NAME, "engine": "0"}.items()


def test_an_unused_server_is_idle(ngram_story: NgramStory) -> None:
    unused = ngram_story.unused
    assert unused.one_hot("activity") == ["idle"]
    assert unused.one_hot("quality") == []
    # A ratio over nothing is not 0 and not NaN: it is not there.
    assert unused.value("window_drafts", window=RECENT) == 0
    assert not {"acceptance_ratio", "mean_acceptance_length"} & set(unused.samples)


def test_speculation_under_load_is_active_and_agrees_with_the_log_of_vllm(
    ngram_story: NgramStory,
) -> None:
    scrape = ngram_story.greedy.scrape
    assert scrape.one_hot("activity") == ["active"]
    assert len(scrape.one_hot("quality")) == 1
    assert ngram_story.logged == (
        scrape.value("accepted_tokens_total"),
        scrape.value("draft_tokens_total"),
    )


def test_acceptance_collapses_with_the_temperature_and_is_poor(
    ngram_story: NgramStory,
) -> None:
    """Nothing of a random text is guessed, bar a token now and then."""
    greedy_ratio = ngram_story.greedy.scrape.value("acceptance_ratio", window=WHOLE)
    hot_ratio = ngram_story.hot.value("acceptance_ratio", window=RECENT)
    drafts = ngram_story.hot.value("window_drafts", window=RECENT)
    assert greedy_ratio > 0.4
    assert hot_ratio < 0.02
    assert drafts > 0
    assert ngram_story.hot.one_hot("quality") == ["poor"]
    assert ngram_story.hot.one_hot("activity") == ["active"]


def test_a_restarting_server_is_down_and_nothing_is_derived(
    ngram_story: NgramStory,
) -> None:
    down = [
        scrape
        for scrape in (ngram_story.gone, *ngram_story.restarting)
        if is_down(scrape)
    ]
    assert len(down) > 1
    assert set().union(*(scrape.samples for scrape in down)) & DERIVED == set()


def test_the_restart_counts_as_one_reset(ngram_story: NgramStory) -> None:
    assert (total(ngram_story.both.scrape, "engine_resets_total") or 0) == 0
    restarted = ngram_story.restarted.scrape
    assert restarted.value("engine_resets_total", engine="0") == 1
    late_restarted = ngram_story.late_restarted.scrape
    assert late_restarted.value("engine_resets_total", engine="0") == 1


def test_a_smaller_k_is_followed_over_a_restart(ngram_story: NgramStory) -> None:
    scrape = ngram_story.restarted.scrape
    assert ngram_story.both.scrape.value("num_speculative_tokens") == 4
    assert scrape.value("num_speculative_tokens") == 2
    for name, labels, _ in all_series(scrape):
        assert labels.get("position", "0") in {"0", "1"}, name
    bounds = {float(le) for le in by(scrape, "le", "accepted_tokens_per_draft_bucket")}
    assert bounds == {0, 1, 2, math.inf}


def test_nothing_is_negative_or_absurd_over_a_restart(ngram_story: NgramStory) -> None:
    """No window reaches over it, either."""
    # Of all tokens that the server ever generated, over the shortest time between two
    # polls.
    highest = ngram_story.both.truth.completion_tokens / POLL_INTERVAL
    of_successor = 0
    for number, scrape in enumerate(ngram_story.restarting):
        for name, labels, value in all_series(scrape):
            row = (number, name, labels)
            assert 0 <= value < math.inf, row
            if name.endswith("_per_second"):
                assert value <= highest, row
            # Of the speedup with the advised K over the present one.
            above_1 = name.startswith(("break_even", "advised_speedup"))
            if name.endswith("_ratio") and not above_1:
                assert value <= 1, row
        if not is_up(scrape) or scrape.value("num_speculative_tokens") != 2:
            continue
        of_successor += 1
        for window in WINDOWS:
            drafts = scrape.value("window_drafts", window=window) or 0
            assert drafts <= (scrape.value("drafts_total") or 0), (number, window)
    assert of_successor


# --- a draft model ---


@pytest.fixture(scope="module")
def drafting(server: VllmServer) -> Observation:
    with exporter(server) as running:
        metrics_before = wait_until_up(running)
        return observe(running, drive(server, 18), metrics_before)


def test_a_good_draft_model_is_known_and_accepted(drafting: Observation) -> None:
    (info,) = drafting.scrape.labels("info")
    assert info["method"] == "draft_model"
    assert info["draft_model"].endswith("draft-0.02")
    assert (drafting.scrape.value("acceptance_ratio", window=WHOLE) or 0) > 0.35


@pytest.mark.parametrize("tokens", [2, 8])
def test_of_short_answers_only_what_they_received_counts(
    server: VllmServer, tokens: int
) -> None:
    """Of an answer of 2 tokens a draft gives the second one, whatever was accepted: it
    can never gain.
    """
    with exporter(server) as running:
        metrics_before = wait_until_up(running)
        answers = drive(server, 120, concurrency=2, max_tokens=tokens)
        observed = observe(running, answers, metrics_before)
    scrape = observed.scrape
    sums = observed.truth
    delivered = sums.completion_tokens - sums.requests
    length = scrape.value("mean_acceptance_length", window=WHOLE)
    assert length == pytest.approx(delivered / sums.drafts)
    coverage = scrape.value("coverage_ratio", window=WHOLE)
    assert coverage == pytest.approx((tokens - 1) / tokens)
    counted = 1 + sums.accepted_tokens / sums.drafts
    assert length < counted
    if tokens == 2:
        assert length == 1.0
        assert counted > 2
        assert scrape.value("speedup_interval", bound="high") <= 1.0
        assert scrape.one_hot("payoff") != ["beneficial"]


def test_what_lies_behind_stop_strings_is_bounded(server: VllmServer) -> None:
    """They are found behind the engine, which counts tokens that no answer has."""

    def sample(time: float) -> Sample:
        (engine,) = read(server.metrics().encode()).engines
        return Sample(time, engine.counters, steps=engine.steps)

    start = sample(0.0)
    answers = drive(server, 120, concurrency=2, stop_strings=("e", "a"))
    received = truth(answers).completion_tokens - len(answers)

    def ended() -> bool:
        """Tell whether the last requests are counted, a moment after their answers."""
        increase = delta(start, sample(1.0))
        stopped = increase.stopped_requests or 0.0
        return increase.first_tokens == len(answers) and stopped > 0

    eventually(ended)
    counted = delta(start, sample(1.0))
    gained = delivered(counted)
    assert 0 < gained.tokens - received <= gained.behind_stops
    assert gained.least_length < received / gained.drafts < gained.length


# --- the counts and measures of every story with one engine ---


@pytest.fixture(
    params=[
        "ngram_story.greedy",
        "ngram_story.both",
        "ngram_story.restarted",
        "ngram_story.late_hot",
        "ngram_story.late_restarted",
        "drafting",
    ]
)
def observation(request: pytest.FixtureRequest) -> Observation:
    story, _, moment = request.param.partition(".")
    observation = request.getfixturevalue(story)
    if moment:
        observation = getattr(observation, moment)
    assert isinstance(observation, Observation)
    return observation


def test_counters_equal_the_records(observation: Observation) -> None:
    """Each by itself, by position, and as the histogram of accepted tokens."""
    sums = observation.truth
    increases = [observation.increase("engine", name) for name in COUNTERS]
    assert increases == [{"0": value} for value in sums.counters]
    positions = observation.increase("position", "accepted_tokens_per_position_total")
    assert positions == {
        str(n): accepted for n, accepted in enumerate(sums.accepted_per_position)
    }
    histogram = "accepted_tokens_per_draft"
    buckets = {
        float(le): drafts
        for le, drafts in observation.increase("le", f"{histogram}_bucket").items()
    }
    cumulative = {
        float(n): sum(sums.accepted_per_draft[: n + 1])
        for n in range(len(sums.accepted_per_draft))
    }
    assert buckets == {**cumulative, math.inf: sums.drafts}
    assert observation.increase("engine", f"{histogram}_count") == {"0": sums.drafts}
    assert observation.increase("engine", f"{histogram}_sum") == {
        "0": sums.accepted_tokens
    }
    assert (total(observation.scrape, "inconsistent_samples_total") or 0) == 0


def test_measures_of_the_whole_window_equal_the_records(
    observation: Observation,
) -> None:
    published = {}
    for name in MEASURES:
        value = observation.scrape.value(name, window=WHOLE)
        if value is not None:
            published[name] = value
    for name, label in LABELLED.items():
        values = by(observation.scrape, label, name, window=WHOLE)
        published |= {f"{name} {key}": value for key, value in values.items()}
    sums = observation.truth
    length = published["mean_acceptance_length"]
    # The end of an answer cuts off a draft's tokens at most; the records count them.
    counted = 1 + sums.accepted_tokens / sums.drafts
    cut_off = len(sums.accepted_per_position) * sums.requests / sums.drafts
    assert counted - cut_off <= length <= counted + 1e-9
    expected = expected_measures(sums, length)
    # Left open: whether the K in force is listed among the values that K could have.
    all_tokens = f"mean_acceptance_length_at {len(sums.accepted_per_position)}"
    if all_tokens in published:
        expected[all_tokens] = expected["mean_acceptance_length"]
    assert published == pytest.approx(expected, rel=1e-9)


def test_a_draft_model_delivers_what_is_no_first_token(drafting: Observation) -> None:
    """It drafts in every step, so its drafts gave all other tokens."""
    sums = drafting.truth
    delivered = sums.completion_tokens - sums.requests
    published = {
        name: drafting.scrape.value(name, window=WHOLE)
        for name in ("mean_acceptance_length", "coverage_ratio", "undelivered_ratio")
    }
    assert published == pytest.approx(
        {
            "mean_acceptance_length": delivered / sums.drafts,
            "coverage_ratio": delivered / sums.completion_tokens,
            "undelivered_ratio": 1 - delivered / (sums.accepted_tokens + sums.drafts),
        }
    )


def expected_measures(sums: Truth, length: float) -> dict[str, float]:
    """Return the measures of a window that holds exactly these requests, from their
    definitions; `length` are the tokens that a draft delivered.
    """
    drafts = sums.drafts
    positions = sums.accepted_per_position
    measures = {
        "window_drafts": float(drafts),
        "acceptance_ratio": sums.acceptance,
        "mean_acceptance_length": length,
        "expected_tokens_per_step": 1 + sum(positions) / drafts,
        "mean_draft_length": sums.draft_tokens / drafts,
        "coverage_ratio": length * drafts / sums.completion_tokens,
    }
    reached = drafts
    for position, accepted in enumerate(positions):
        measures[f"position_acceptance_ratio {position}"] = accepted / drafts
        if reached:
            conditional = f"position_conditional_acceptance_ratio {position}"
            measures[conditional] = accepted / reached
        # What was accepted here is what reaches the next position.
        reached = accepted
    for tokens in range(1, len(positions)):
        up_to = 1 + sum(positions[:tokens]) / drafts
        measures[f"mean_acceptance_length_at {tokens}"] = min(up_to, length)
    if len(positions) > 1 and positions[0]:
        decay = (positions[-1] / positions[0]) ** (1 / (len(positions) - 1))
        measures["position_decay_ratio"] = decay
    return measures


def test_rates_are_over_the_span_of_the_window(observation: Observation) -> None:
    sums = observation.truth
    scrape = observation.scrape
    span = scrape.value("window_span_seconds", window=WHOLE) or 0
    rates = [(scrape.value(name, window=WHOLE) or 0) * span for name in RATES]
    assert rates == pytest.approx(sums.counters, rel=1e-9)
