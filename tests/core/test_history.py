"""History: what is one life of an engine, and which samples of it are kept."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from support.builders import counters, sample
from support.copies import replace
from vllm_specdec_exporter.economics.baseline_match import BaselineComparison
from vllm_specdec_exporter.engines.limits import MAX_VALUE
from vllm_specdec_exporter.engines.reading import Counters, Latencies, Steps
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.measures.history import (
    PackedSample,
    Sample,
    SampleHistory,
    counters_reset,
)

KEEP = 300.0

BEFORE = counters(10, [9, 7, 4], created=5.0)


def observe(*samples: Sample, keep: float = KEEP) -> SampleHistory:
    history = SampleHistory()
    for item in samples:
        history = history.add(item, keep)
    return history


TOTALS = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")
PER_POSITION = "accepted_tokens_per_position"


class TestStartedAnew:
    @pytest.mark.parametrize(
        "current",
        [
            # One counter that falls, whatever the others do.
            *(replace(BEFORE, **{field: 0.0}) for field in TOTALS),
            replace(BEFORE, drafts=9.0),
            counters(100, [90, 70, 40], accepted=19, created=5.0),
            # A position that falls, or vanishes with a value above 0.
            replace(BEFORE, accepted_tokens_per_position=(8, 7, 4)),
            replace(BEFORE, accepted_tokens_per_position=(9, 7, 3)),
            replace(BEFORE, accepted_tokens_per_position=(9, 7)),
            # A creation time that moves, even where no counter fell.
            replace(BEFORE, drafts=11, created=4.0),
            replace(BEFORE, drafts=11, created=5.001),
        ],
    )
    def test_a_restart(self, current: Counters) -> None:
        assert counters_reset(BEFORE, current)

    @pytest.mark.parametrize(
        ("previous", "current"),
        [
            # Standing still, counting on and further positions.
            (BEFORE, BEFORE),
            (BEFORE, replace(BEFORE, drafts=11)),
            (BEFORE, replace(BEFORE, accepted_tokens_per_position=(9, 7, 4, 0))),
            (BEFORE, replace(BEFORE, accepted_tokens_per_position=(9, 7, 4, 3))),
            # A position that had counted nothing may go.
            (counters(10, [5, 0]), counters(10, [5], draft_tokens=20)),
            # A creation time proves something only where both samples have one.
            (BEFORE, replace(BEFORE, created=None)),
            (replace(BEFORE, created=None), BEFORE),
            # A series that comes later: the Rust front end creates them at first use.
            (Counters(), Counters()),
            (Counters(), counters(0, [0, 0])),
            (Counters(), counters(1, [1])),
        ],
    )
    def test_one_life(self, previous: Counters, current: Counters) -> None:
        assert not counters_reset(previous, current)

    @pytest.mark.parametrize(
        "lost", [*(dict.fromkeys([f]) for f in TOTALS), {PER_POSITION: ()}]
    )
    def test_a_series_that_is_missing(self, lost: dict[str, tuple[()] | None]) -> None:
        """A series that had counted and is missing is no restart, but no window reaches
        back across it.
        """
        without = replace(BEFORE, **lost)
        history = observe(Sample(0, BEFORE), Sample(5, without))

        assert not counters_reset(BEFORE, without)
        assert history == SampleHistory()


FIRST = sample(0, 10, [5])
SECOND = sample(5, 20, [9])


class TestHistory:
    @pytest.mark.parametrize(
        ("samples", "kept", "resets"),
        [
            pytest.param([FIRST, SECOND], 2, 0, id="samples of one life"),
            pytest.param(
                [FIRST, SECOND, sample(10, 3, [1])], 1, 1, id="a restart is counted"
            ),
            # No window holds old and new values.
            pytest.param(
                [
                    sample(0, 10, [5], generation=100),
                    sample(5, 2, [5], generation=100),
                    sample(10, 2, [1], generation=4),
                ],
                1,
                2,
                id="a restart seen torn over two answers starts twice",
            ),
            pytest.param(
                [sample(5 * i, 10 - i, [5 - i]) for i in range(4)],
                1,
                3,
                id="resets are counted over all lives",
            ),
            pytest.param([FIRST, sample(300, 20, [9])], 2, 0, id="just young enough"),
            pytest.param([FIRST, sample(301, 20, [9])], 1, 0, id="a long silence"),
            # No rate can be formed over no time, so it starts anew; the counters did
            # not.
            pytest.param([FIRST, SECOND, sample(5.0, 30, [9])], 1, 0, id="same time"),
            pytest.param([FIRST, SECOND, sample(4.9, 30, [9])], 1, 0, id="time back"),
            pytest.param(
                [SECOND, sample(5, 3, [1])],
                1,
                1,
                id="a restart is counted even where the clock stands",
            ),
        ],
    )
    def test_samples(self, samples: list[Sample], kept: int, resets: int) -> None:
        """The newest samples of one life, in order."""
        history = observe(*samples)

        assert [each.unpack() for each in history.samples] == samples[-kept:]
        assert history.newest == samples[-1]
        assert history.resets == resets

    def test_samples_older_than_needed_are_dropped(self) -> None:
        """A history holds what the longest window needs, to the very second, and no
        more.
        """
        history = observe(
            *(sample(5 * i, 10 * i, [5 * i]) for i in range(101)), keep=32.5
        )

        assert [s.time for s in history.samples] == [470, 475, 480, 485, 490, 495, 500]


def each_field(struct: type[Struct], values: st.SearchStrategy[Any]) -> dict[str, Any]:
    return dict.fromkeys(struct.__struct_fields__, values)


NUMBERS = st.floats(0, MAX_VALUE)
TOTALS_OR_NONE = st.none() | NUMBERS
POSITIONS = st.lists(NUMBERS, max_size=3).map(tuple)
ANY_COUNTERS = each_field(Counters, TOTALS_OR_NONE) | {
    "accepted_tokens_per_position": POSITIONS,
    "drafted_tokens_per_position": POSITIONS,
    "resolution": NUMBERS,
}
#: Of each field a strategy, so that none is left out.
ANY_SAMPLE = each_field(Sample, TOTALS_OR_NONE) | {
    "time": NUMBERS,
    "counters": st.builds(Counters, **ANY_COUNTERS),
    "draft_load": NUMBERS,
    "latencies": st.none() | st.builds(Latencies, st.builds(Histogram, sum=NUMBERS)),
    "match": st.none() | st.just(BaselineComparison(seconds=5.0)),
    "steps": st.builds(Steps, **each_field(Steps, TOTALS_OR_NONE)),
}


@given(st.builds(Sample, **ANY_SAMPLE))
def test_a_packed_sample(original: Sample) -> None:
    """A window that begins at a packed sample is judged by what was read: to the last
    bit, and a missing series stays missing.
    """
    assert PackedSample.of(original).unpack() == original
