"""Recording a baseline: what finished without drafts belongs to the load at which it finished."""

import math
from itertools import pairwise

import pytest

from baseline.recordings import bucket, histogram, record, samples
from support.builders import counters, requests
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.economics.baseline import BaselineError
from vllm_specdec_exporter.engines.reading import Counters, Latencies
from vllm_specdec_exporter.measures.history import Sample


def sample(
    time: float, running: float | None, tokens: float, *seconds_per_token: float, drafts: float | None = None
) -> Sample:
    """A server that generated so many tokens, and finished requests with these times per output token."""
    found = (
        Counters(generation_tokens=tokens)
        if drafts is None
        else counters(drafts, [drafts], generation=tokens)
    )
    return Sample(
        time, found, running, latencies=Latencies(time_per_output_token=histogram(*seconds_per_token))
    )


def test_a_server_without_speculation() -> None:
    """All requests, tokens and seconds at work are recorded, each once."""
    found = samples("nospec")
    recorder = record(found)
    buckets = recorder.buckets()
    busy = [
        (before, now)
        for before, now in pairwise(found)
        if (now.counters.generation_tokens or 0) > (before.counters.generation_tokens or 0)
    ]

    assert recorder.requests == len(requests("nospec")) == 127
    assert sum(b.requests for b in buckets) == 127
    assert sum(b.generation_tokens for b in buckets) == found[-1].counters.generation_tokens
    assert sum(b.seconds for b in buckets) == pytest.approx(sum(now.time - b.time for b, now in busy))
    assert recorder.speculating_seconds == 0
    assert recorder.idle_seconds == pytest.approx(
        found[-1].time - found[0].time - sum(b.seconds for b in buckets)
    )
    total = math.fsum(
        b.latencies.time_per_output_token.sum for b in buckets if b.latencies.time_per_output_token
    )
    assert found[-1].latencies is not None
    assert found[-1].latencies.time_per_output_token is not None
    assert total == pytest.approx(found[-1].latencies.time_per_output_token.sum)


class TestPhases:
    def test_a_phase_without_drafts(self) -> None:
        """Of a server with a K schedule only the time well behind the last draft counts."""
        found = [sample(0, 4, 0, drafts=0), sample(10, 4, 100, 0.1, drafts=50)]
        found += [sample(10 * n, 4, 100 * n, *[0.1] * n, drafts=50) for n in range(2, 12)]
        recorder = record(found, settle=30)
        (recorded,) = recorder.buckets()

        assert recorder.speculating_seconds == 40  # the drafts themselves, and what was begun meanwhile
        assert recorded.seconds == 70
        assert recorded.requests == 7
        assert recorded.generation_tokens == 700
        assert recorded.generation_tokens_per_second == 10

    def test_loads_are_kept_apart(self) -> None:
        """One request and sixty-four at a time have a bucket each, with their own times."""
        found = [
            sample(0, 1, 0),
            sample(10, 1, 100, 0.1),
            sample(20, 64, 100, 0.1),
            sample(30, 64, 900, 0.1, 0.4),
        ]
        buckets = record(found).buckets()

        assert [(b.requests_running, b.seconds, b.generation_tokens, b.requests) for b in buckets] == [
            (1, 10, 100, 1),
            (64, 10, 800, 1),
        ]
        assert [b.latencies.time_per_output_token for b in buckets] == [
            histogram(0.1),
            histogram(0.1, 0.4).since(histogram(0.1)),
        ]

    def test_nothing_to_record(self) -> None:
        """Where answers were too long to end, or without traffic, or with one sample, the message says so."""
        unfinished = r"^no request finished: record for longer$"
        idle = r"^nothing was generated: send it the usual traffic meanwhile$"
        for found, message in (
            ([sample(0, 1, 0), sample(10, 1, 100)], unfinished),
            ([], idle),
            ([sample(0, 1, 5, 0.1)], idle),
            ([sample(0, 0, 5), sample(10, 0, 5)], idle),
        ):
            with pytest.raises(BaselineError, match=message):
                record(found).buckets()


class TestDisturbances:
    def test_a_restart(self) -> None:
        """What lies between two lives is left out, and recording goes on in the new one."""
        found = [
            sample(0, 1, 0),
            sample(10, 1, 100, 0.1),
            sample(20, 1, 30, 0.4),  # counters fell
            sample(30, 1, 90, 0.4, 0.2),
        ]
        (recorded,) = record(found).buckets()

        assert (recorded.seconds, recorded.generation_tokens, recorded.requests) == (20, 160, 2)
        assert recorded.latencies.time_per_output_token is not None
        assert recorded.latencies.time_per_output_token.sum == pytest.approx(0.3)

    def test_samples_without_a_rate_or_a_load(self) -> None:
        """A clock that does not advance gives no rate, and without the gauge nothing belongs anywhere."""
        for time in (10.0, 5.0):
            recorder = record([sample(0, 1, 0), sample(10, 1, 100, 0.1), sample(time, 1, 200, 0.1, 0.1)])
            assert recorder.requests == 1
        assert record([sample(0, None, 0), sample(10, None, 100, 0.1)]).requests == 0

    def test_buckets_of_another_recording(self) -> None:
        """What was recorded elsewhere adds up at its load."""
        recorder = record([sample(0, 4, 0), sample(10, 4, 100, 0.1)])
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
        recorder.observe(sample(10, 1, 100, 0.1))
        recorder.observe(sample(20, 1, 200, 0.1, 0.1))

        assert recorder.requests == 1
