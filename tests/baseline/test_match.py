"""What a server does now beside what the baseline does at the same load, and how a
baseline is recorded.
"""

import math
from collections.abc import Sequence
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from baseline.recordings import BOUNDS, baseline, bucket, histogram, record, samples
from economics.servers import settings_for
from support.builders import counters, process_reading
from support.builders import requests as recorded_requests
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.baseline import (
    Baseline,
    BaselineError,
    LoadBucket,
    decode,
    encode,
)
from vllm_specdec_exporter.economics.baseline_match import (
    BaselineComparison,
    LatencyRatio,
    Measured,
    measured_speedup,
)
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.engines.reading import (
    Counters,
    EngineKey,
    EngineReading,
    Latencies,
    Load,
    Reading,
    Steps,
)
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.settings import Settings


def finished(*seconds_per_token: float) -> Latencies:
    return Latencies(time_per_output_token=histogram(*seconds_per_token))


NOTHING = finished()


def compared(
    recording: Baseline,
    latest: Latencies,
    load: float = 1.0,
    seconds: float = 1.0,
    minimum: int = 1,
) -> Measured:
    """What is told of a server that did this at one load since the window began."""
    match = BaselineComparison().add(
        NOTHING, latest, load=load, seconds=seconds, baseline=recording
    )
    return measured_speedup([NO_REQUESTS, match], minimum)


NO_REQUESTS = BaselineComparison()


def plus(
    sums: BaselineComparison,
    start: Latencies | None,
    end: Latencies | None,
    recording: Baseline,
    **interval: float,
) -> BaselineComparison:
    """The sums with what finished between two samples: in a second, one at a time."""
    interval = {"load": 1.0, "seconds": 1.0} | interval
    return sums.add(start, end, baseline=recording, **interval)


class TestCompare:
    def test_by_hand(self) -> None:
        """Four requests at a mean of 0.1 s a token against a baseline of 0.3 s: three
        times as fast.
        """
        recording = baseline(bucket(2.0, 0.1, 0.3, 0.3, 0.5, rate=50.0))
        outcome = compared(
            recording,
            finished(0.05, 0.05, 0.15, 0.15),
            load=2.0,
            seconds=5.0,
            minimum=4,
        )

        assert outcome.speedup == pytest.approx(3.0)
        assert outcome.requests == 4
        assert outcome.baseline_tokens_per_second == pytest.approx(50.0)
        # Now: the end of (0, 0.1]; then: the middle of (0.2, 0.4].
        assert outcome.latency_ratios[0] == LatencyRatio(
            "time_per_output_token", 0.5, pytest.approx(0.1 / 0.3)
        )
        assert [ratio.quantile for ratio in outcome.latency_ratios] == [0.5, 0.95, 0.99]
        assert outcome.speedup_low < 3.0 < outcome.speedup_high

    def test_a_load_that_moves(self) -> None:
        """Each interval is compared at its own load: 3 requests at 0.1 and 1 at 0.3,
        all twice as fast.
        """
        recording = baseline(bucket(1.0, 0.1, rate=20.0), bucket(4.0, 0.3, rate=60.0))
        match = plus(
            NO_REQUESTS, NOTHING, finished(0.05, 0.05, 0.05), recording, seconds=10.0
        )
        match = plus(
            match,
            finished(0.05, 0.05, 0.05),
            finished(0.05, 0.05, 0.05, 0.15),
            recording,
            load=4.0,
            seconds=30.0,
        )
        outcome = measured_speedup([NO_REQUESTS, match], 1)

        assert outcome.speedup == pytest.approx((3 * 0.1 + 0.3) / (3 * 0.05 + 0.15))
        assert outcome.baseline_tokens_per_second == pytest.approx(
            (20 * 10 + 60 * 30) / 40
        )

    def test_too_few_requests(self) -> None:
        """Below the minimum nothing is told, not even a quantile."""
        recording = baseline(bucket(1.0, 0.3))
        too_few = compared(recording, finished(*[0.1] * 19), minimum=20)
        enough = compared(recording, finished(*[0.1] * 20), minimum=20)
        assert too_few == Measured()
        assert enough != Measured()

    def test_a_load_that_the_baseline_never_saw(self) -> None:
        """What finished at an unknown load is left out, on both sides."""
        recording = baseline(bucket(1.0, 0.3))
        match = plus(
            NO_REQUESTS, NOTHING, finished(0.1), recording, load=50.0, seconds=10.0
        )

        assert match == BaselineComparison(baseline=recording)
        assert measured_speedup([NO_REQUESTS, match], 1) == Measured()

    def test_a_quantile_in_a_bucket_that_holds_most_is_not_compared(self) -> None:
        """Within a wide bucket a quantile is a guess: three of four requests in one
        give no median.
        """
        recording = baseline(bucket(2.0, 0.1, 0.3, 0.3, 0.5))
        outcome = compared(recording, finished(0.05, 0.05, 0.05, 0.15), 2.0)

        assert [ratio.quantile for ratio in outcome.latency_ratios] == [0.95, 0.99]

    def test_another_baseline_begins_anew(self) -> None:
        """Sums against one baseline are never gone on with against another, nor
        compared with it.
        """
        of_first = baseline(bucket(1.0, 0.3))
        of_second = baseline(bucket(1.0, 0.6))
        first = plus(NO_REQUESTS, NOTHING, finished(0.1), of_first)
        last = plus(first, finished(0.1), finished(0.1, 0.1), of_second)

        assert measured_speedup([first, last], 1) == Measured()
        assert measured_speedup([NO_REQUESTS, last], 1).speedup == pytest.approx(6.0)

    def test_other_buckets_after_a_restart_begin_anew(self) -> None:
        """A server that comes back with other histogram buckets is compared from there
        on.
        """
        recording = baseline(bucket(1.0, 0.3))
        first = plus(NO_REQUESTS, NOTHING, finished(0.1), recording)
        empty = Latencies(time_per_output_token=Histogram((0.15,), (0.0,), 0.0, 0.0))
        full = Latencies(time_per_output_token=Histogram((0.15,), (10.0,), 10.0, 1.0))
        last = plus(first, empty, full, recording)

        assert measured_speedup([NO_REQUESTS, last], 1).speedup == pytest.approx(3.0)

    def test_a_restart_between_two_samples(self) -> None:
        """Histograms that fell are of two lives, and add nothing."""
        recording = baseline(bucket(1.0, 0.3))
        start = plus(NO_REQUESTS, NOTHING, finished(0.1, 0.1), recording)

        assert plus(start, finished(0.1, 0.1), finished(0.1), recording) == start
        assert plus(start, None, finished(0.1), recording) == start
        assert plus(start, finished(0.1), None, recording) == start

    @pytest.mark.parametrize("missing", [None, histogram()])
    def test_a_bucket_without_weight_needs_nothing(
        self, missing: Histogram | None
    ) -> None:
        """At just the load of one bucket, its neighbour is not asked, and may lack a
        latency.
        """
        neighbour = LoadBucket(
            3.0,
            seconds=10.0,
            generation_tokens=500.0,
            requests=2.0,
            latencies=Latencies(time_per_output_token=missing),
        )
        recording = baseline(bucket(1.0, 0.3), neighbour)
        assert compared(recording, finished(0.1)).speedup == pytest.approx(3.0)

    def test_all_kinds_of_latency(self) -> None:
        """Every latency that both have is compared; the speedup is that per output
        token.
        """
        slow = Latencies(
            histogram(0.15, 0.4), histogram(0.15, 0.45), histogram(0.4, 0.8)
        )
        fast = Latencies(
            histogram(0.05, 0.2), histogram(0.05, 0.15), histogram(0.4, 0.8)
        )
        recording = baseline(
            LoadBucket(
                1.0, seconds=1.0, generation_tokens=10.0, requests=2.0, latencies=slow
            )
        )
        match = plus(
            NO_REQUESTS,
            Latencies(histogram(), histogram(), histogram()),
            fast,
            recording,
        )
        outcome = measured_speedup([NO_REQUESTS, match], 1)

        assert outcome.speedup == pytest.approx(3.0)
        medians = {
            ratio.latency: ratio.ratio
            for ratio in outcome.latency_ratios
            if ratio.quantile == 0.5
        }
        assert medians == pytest.approx(
            {
                "time_to_first_token": 0.1 / 0.2,
                "time_per_output_token": 0.1 / 0.2,
                "end_to_end": 1.0,
            }
        )

    @given(
        st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20),
        st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20),
        st.floats(1, 4),
    )
    def test_a_server_is_as_fast_as_its_own_baseline(
        self, low: list[float], high: list[float], load: float
    ) -> None:
        """A server that does what the baseline does is as fast, at any load between its
        buckets.
        """
        recording = baseline(bucket(1.0, *low), bucket(4.0, *high))
        total = Histogram()
        for weight, part in recording.at(load):
            outcome = part.latencies.time_per_output_token
            total = total.plus(outcome, weight / outcome.count)
        end = Latencies(time_per_output_token=Histogram().plus(total, 100.0))
        is_measured = compared(recording, end, load)

        assert is_measured.speedup == pytest.approx(1.0)
        assert all(
            ratio.ratio == pytest.approx(1.0) for ratio in is_measured.latency_ratios
        )
        assert 0 <= is_measured.speedup_low <= 1.0 + 1e-9

    def test_another_load_widens_the_interval_to_one_side(self) -> None:
        """A step grows at most with its batch, and never shrinks: at a fifth more
        requests the server may be up to a fifth faster than it looks, and not slower.
        """
        recording = baseline(bucket(12.0, *[0.3] * 1000))
        latest = finished(*[0.3] * 1000)
        same = compared(recording, latest, 12.0)
        busier = compared(recording, latest, 12.0 * 1.2)
        idler = compared(recording, latest, 12.0 / 1.2)

        assert busier.speedup == idler.speedup == pytest.approx(1.0)
        assert busier.speedup_high == pytest.approx(same.speedup_high * 1.2, rel=0.02)
        assert busier.speedup_low == pytest.approx(same.speedup_low, rel=0.02)
        assert idler.speedup_low == pytest.approx(same.speedup_low / 1.2, rel=0.02)
        assert idler.speedup_high == pytest.approx(same.speedup_high, rel=0.02)


#: How many times as long a token takes without speculation, in the made-up servers
#: below.
FASTER = 2.5
SLOWER = 0.6


def results(speedup: float, *, polls: int = 30) -> list[EngineResult]:
    """A server at load 4 that was recorded at 0.2 s a token, and now takes that over
    `speedup`.
    """
    recording = baseline(bucket(4.0, *[0.2] * 50, rate=200.0))
    settings = settings_for(BUILTIN["eagle"], "eagle", 3, baseline=recording)
    life = [
        (100.0 * poll, 5.0 * poll, 5.0 * poll * 0.2 / speedup) for poll in range(polls)
    ]
    return served(settings, life, running=4)


def served(
    settings: Settings,
    life: list[tuple[float, float, float]],
    running: float,
    hit_ratio: float | None = None,
) -> list[EngineResult]:
    """The results, every half minute, after so many drafts, and requests with their
    times in all, of which each had 20,000 tokens of prompt.
    """
    states = {}
    outcome = []
    for poll, (drafts, requests, seconds) in enumerate(life):
        counts = tuple(requests * (seconds <= requests * bound) for bound in BOUNDS)
        per_token = Histogram(BOUNDS, counts, requests, seconds)
        engine = EngineReading(
            EngineKey("m", "0"),
            counters(drafts, [drafts * 0.8 ** (i + 1) for i in range(3)]),
            Load(running, 0, 0.1),
            latencies=Latencies(time_per_output_token=per_token),
            steps=with_cache(20_000.0 * requests, hit_ratio),
        )
        reading = Reading("vllm-v1", (engine,))
        states, (result,) = process_reading(
            states, reading, 30.0 * poll, settings, upstream_version="0.32.0"
        )
        outcome.append(result)
    return outcome


def with_cache(prompt_tokens: float, hit_ratio: float | None) -> Steps:
    """The totals of a prefix cache, ``None`` for a server that does not count them."""
    if hit_ratio is None:
        return Steps()
    return Steps(
        prefix_cache_queries=prompt_tokens, prefix_cache_hits=hit_ratio * prompt_tokens
    )


class TestInThePipeline:
    @pytest.mark.parametrize(
        ("recorded", "present", "comparable"),
        [
            (0.97, 0.0, False),  # vLLM issue 50722: DFlash without hits "loses"
            (0.0, 0.97, False),
            (0.97, 0.94, True),
            (None, 0.0, True),
            (0.97, None, True),
        ],
    )
    def test_another_share_of_cached_prompts_is_another_load(
        self, recorded: float | None, present: float | None, comparable: bool
    ) -> None:
        """Prompts that are computed lengthen the steps of other requests, so a loss
        against a baseline that found them in its cache proves nothing.
        """
        of_baseline = bucket(4.0, *[0.2] * 50, rate=200.0)
        if recorded is not None:
            of_baseline = replace(
                of_baseline, prefix_cache_queries=1e6, prefix_cache_hits=recorded * 1e6
            )
        settings = settings_for(
            BUILTIN["eagle"], "eagle", 3, baseline=baseline(of_baseline)
        )
        life = [(100.0 * n, 5.0 * n, 5.0 * n * 0.2 / SLOWER) for n in range(30)]
        result = served(settings, life, running=4, hit_ratio=present)[-1]

        assert (result.payoff.basis is Basis.MEASURED) is comparable
        assert result.window("5m").prefix_cache_hit_ratio == pytest.approx(present)
        hints = [f.text for f in result.findings if "prefix cache" in f.text]
        reasons = [r for r in result.payoff.reasons if "prefix cache" in r]
        assert len(hints) == len(reasons) == int(not comparable)
        assert all(f"{recorded:.0%}" in text for text in (*hints, *reasons))

    def test_what_is_measured_decides(self) -> None:
        """With enough finished requests payoff goes by the measured speedup, and says
        by how many.
        """
        result = results(FASTER)[-1]
        window = result.window("5m")

        assert window.measured.speedup == pytest.approx(FASTER)
        assert window.measured.requests == 50
        assert window.measured.baseline_tokens_per_second == pytest.approx(200.0)
        assert result.payoff.verdict == PayoffVerdict.BENEFICIAL
        assert result.payoff.basis == Basis.MEASURED
        assert result.payoff.speedup == pytest.approx(FASTER)
        assert "measured 2.50 times as fast" in result.payoff.reasons[0]
        assert "50 requests" in result.payoff.reasons[0]

    def test_advice_is_corrected_by_what_is_measured(self) -> None:
        """A profile that is too cheap is scaled until the present K has the measured
        speedup.
        """
        result = results(SLOWER, polls=60)[-1]
        present = result.advice.options[3]

        assert present.num_speculative_tokens == 3
        assert present.speedup == pytest.approx(SLOWER, rel=1e-6)
        assert result.advice.action in (Action.DISABLE, Action.DECREASE_K)

    def test_a_baseline_of_another_model(self) -> None:
        """It is not compared with, and a hint says why; payoff is estimated instead."""
        recording = baseline(bucket(4.0, *[0.2] * 50, rate=200.0), model="other")
        settings = settings_for(BUILTIN["eagle"], "eagle", 3, baseline=recording)
        result = served(
            settings, [(100.0 * n, 5.0 * n, 0.4 * n) for n in range(30)], running=4
        )[-1]
        window = result.window("5m")

        assert (window.measured, result.payoff.basis) == (Measured(), Basis.CALIBRATED)
        assert [
            f.action for f in result.findings if "is of model 'other'" in f.text
        ] == ["Until then, speedup is estimated instead of measured."]

    def test_a_restart_is_not_measured_across(self) -> None:
        """Behind a restart the requests of the old life count in no window."""
        recording = baseline(bucket(1.0, *[0.2] * 50))
        settings = replace(
            settings_for(BUILTIN["eagle"], "eagle", 3, baseline=recording),
            thresholds=Thresholds(measurement_minimum_requests=1),
        )
        # Before: 100 requests at 0.4 s; the new process: 10 more at 0.1 s.
        life = [
            (500.0, 100.0, 40.0),
            (900.0, 200.0, 80.0),
            (10.0, 5.0, 0.5),
            (400.0, 15.0, 1.5),
        ]
        result = served(settings, life, running=1)[-1]
        window = result.window("5m")

        assert result.engine_resets_total == 1
        assert window.measured.requests == 10
        assert window.measured.speedup == pytest.approx(0.2 / 0.1)

    def test_nobody_is_told_to_measure_what_is_measured(self) -> None:
        """Where harm was measured against a baseline, no finding asks for one to be
        recorded.
        """
        measured = [
            result.findings
            for result in (*results(SLOWER, polls=60), *results(0.5, polls=60))
            if result.payoff.basis is Basis.MEASURED
        ]
        actions = " ".join({finding.action for finding in chain(*measured)})
        assert actions
        assert "record a server" not in actions
        assert "compare with a server without" not in actions


# --- recording a baseline


def test_a_baseline_holds_what_the_prefix_cache_found() -> None:
    """Of the times that it records."""
    recorder = Recorder()
    for second in range(5):
        taken = sample(10.0 * second, 4.0, 1000.0 * second, [0.2] * 10 * second)
        recorder.observe(replace(taken, steps=with_cache(5000.0 * second, 0.97)))
    recording = baseline(*recorder.buckets())

    assert recording.prefix_cache_hit_ratio == pytest.approx(0.97)
    assert decode(encode(recording)) == recording
    assert baseline(bucket(4.0, 0.2)).prefix_cache_hit_ratio is None


def sample(
    time: float,
    running: float | None,
    tokens: float,
    seconds_per_token: Sequence[float] = (),
    *,
    drafts: float | None = None,
) -> Sample:
    """A server that generated so many tokens, and finished requests with these times
    per output token.
    """
    if drafts is None:
        outcome = Counters(generation_tokens=tokens)
    else:
        outcome = counters(drafts, [drafts], generation=tokens)
    return Sample(
        time,
        outcome,
        running,
        latencies=Latencies(time_per_output_token=histogram(*seconds_per_token)),
    )


def test_a_server_without_speculation() -> None:
    """All requests, tokens and seconds at work are recorded, each once."""
    outcome = samples("nospec")
    recorder = record(outcome)
    buckets = recorder.buckets()
    busy = [
        (start, latest)
        for start, latest in pairwise(outcome)
        if (latest.counters.generation_tokens or 0)
        > (start.counters.generation_tokens or 0)
    ]

    assert recorder.requests == len(recorded_requests("nospec")) == 127
    assert sum(b.requests for b in buckets) == 127
    assert (
        sum(b.generation_tokens for b in buckets)
        == outcome[-1].counters.generation_tokens
    )
    assert sum(b.seconds for b in buckets) == pytest.approx(
        sum(latest.time - b.time for b, latest in busy)
    )
    assert recorder.speculating_seconds == 0
    assert recorder.idle_seconds == pytest.approx(
        outcome[-1].time - outcome[0].time - sum(b.seconds for b in buckets)
    )
    total = math.fsum(
        b.latencies.time_per_output_token.sum
        for b in buckets
        if b.latencies.time_per_output_token
    )
    assert total == pytest.approx(outcome[-1].latencies.time_per_output_token.sum)


NO_TRAFFIC = r"^nothing was generated: send it the usual traffic meanwhile$"


class TestPhases:
    def test_a_phase_without_drafts(self) -> None:
        """Of a server with a K schedule only the time well behind the last draft
        counts.
        """
        outcome = [sample(0, 4, 0, drafts=0), sample(10, 4, 100, [0.1], drafts=50)]
        outcome += [
            sample(10 * n, 4, 100 * n, [0.1] * n, drafts=50) for n in range(2, 12)
        ]
        recorder = record(outcome, settle=30)
        (recorded,) = recorder.buckets()

        # the drafts themselves, and what was begun meanwhile
        assert recorder.speculating_seconds == 40
        assert recorded.seconds == 70
        assert recorded.requests == 7
        assert recorded.generation_tokens == 700
        assert recorded.generation_tokens_per_second == 10

    def test_loads_are_kept_apart(self) -> None:
        """One request and sixty-four at a time have a bucket each, with their own
        times.
        """
        outcome = [
            sample(0, 1, 0),
            sample(10, 1, 100, [0.1]),
            sample(20, 64, 100, [0.1]),
            sample(30, 64, 900, [0.1, 0.4]),
        ]
        buckets = record(outcome).buckets()

        assert [
            (b.requests_running, b.seconds, b.generation_tokens, b.requests)
            for b in buckets
        ] == [(1, 10, 100, 1), (64, 10, 800, 1)]
        assert [b.latencies.time_per_output_token for b in buckets] == [
            histogram(0.1),
            histogram(0.1, 0.4).since(histogram(0.1)),
        ]

    @pytest.mark.parametrize(
        ("sampled", "message"),
        [
            ([sample(0, 1, 0), sample(10, 1, 100)], r"^no request finished: record"),
            ([], NO_TRAFFIC),
            ([sample(0, 1, 5, [0.1])], NO_TRAFFIC),
            ([sample(0, 0, 5), sample(10, 0, 5)], NO_TRAFFIC),
        ],
        ids=["too long", "no sample", "one sample", "idle"],
    )
    def test_nothing_to_record(self, sampled: list[Sample], message: str) -> None:
        """Where answers were too long to end, or without traffic, or with one sample,
        the message says so.
        """
        with pytest.raises(BaselineError, match=message):
            record(sampled).buckets()


class TestDisturbances:
    def test_a_restart(self) -> None:
        """What lies between two lives is left out, and recording goes on in the new
        one.
        """
        outcome = [
            sample(0, 1, 0),
            sample(10, 1, 100, [0.1]),
            sample(20, 1, 30, [0.4]),  # counters fell
            sample(30, 1, 90, [0.4, 0.2]),
        ]
        (recorded,) = record(outcome).buckets()

        assert recorded.seconds == 20
        assert recorded.generation_tokens == 160
        assert recorded.requests == 2
        assert recorded.latencies.time_per_output_token.sum == pytest.approx(0.3)

    @pytest.mark.parametrize("time", [10.0, 5.0])
    def test_a_clock_that_does_not_advance_gives_no_rate(self, time: float) -> None:
        course = [sample(0, 1, 0), sample(10, 1, 100, [0.1])]
        assert record([*course, sample(time, 1, 200, [0.1, 0.1])]).requests == 1

    def test_without_the_gauge_nothing_belongs_to_a_load(self) -> None:
        assert record([sample(0, None, 0), sample(10, None, 100, [0.1])]).requests == 0

    def test_buckets_of_another_recording(self) -> None:
        """What was recorded elsewhere adds up at its load."""
        recorder = record([sample(0, 4, 0), sample(10, 4, 100, [0.1])])
        recorder.include([bucket(3.0, 0.3, 0.3), bucket(20.0, 0.2)])
        first, second = recorder.buckets()

        assert (first.requests, first.seconds, first.requests_running) == (3, 20, 3.5)
        assert (second.requests, second.requests_running) == (1, 20)
        assert recorder.requests == 4

    def test_an_interruption(self) -> None:
        """Over a missed sample nothing is recorded."""
        recorder = Recorder()
        recorder.observe(sample(0, 1, 0))
        recorder.interrupt()
        recorder.observe(sample(10, 1, 100, [0.1]))
        recorder.observe(sample(20, 1, 200, [0.1, 0.1]))

        assert recorder.requests == 1
