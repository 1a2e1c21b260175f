"""Windows: how far they reach, and what increased within them."""

import pytest

from support.builders import counters, sample
from support.copies import replace
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.measures.history import (
    Delta,
    Sample,
    SampleHistory,
    Window,
    delta,
    window_delta,
)

SLACK = 2.5


@pytest.mark.parametrize(
    ("times", "span"),
    [
        ((0, 5, 10, 15, 20, 25, 30, 35, 40), 30.0),  # polls on time
        # polls a little off time
        ((0, 4.9, 9.8, 14.8, 20.1, 25, 30, 34.9, 40.1), 30.3),
        ((0, 5, 10.2, 40), 29.8),  # polls missed
        ((0, 7.4, 40), None),  # missed, and just too old
        ((0, 7.5, 40), 32.5),  # missed, and just young enough
        ((35, 40), 5.0),  # not full yet
        ((0, 40), None),  # one sample within
        ((40,), None),  # one sample at all
        ((), None),  # none
    ],
)
def test_how_far(times: tuple[float, ...], span: float | None) -> None:
    """A window reaches to its oldest sample within half a poll interval, and needs two
    samples.
    """
    samples = tuple(sample(time, 2 * time, [time]) for time in times)
    increase = window_delta(SampleHistory(samples), Window(30), SLACK)

    assert span == (increase and pytest.approx(increase.span))


class TestDelta:
    @pytest.mark.parametrize(
        ("previous", "current", "expected"),
        [
            (
                Counters(
                    10,
                    40,
                    accepted_tokens=20,
                    accepted_tokens_per_position=(9, 7, 4),
                    generation_tokens=30,
                    created=1.0,
                ),
                Counters(
                    15,
                    59,
                    accepted_tokens=32,
                    accepted_tokens_per_position=(13, 11, 8),
                    generation_tokens=50,
                    created=1.0,
                ),
                Delta(
                    7.5,
                    5,
                    draft_tokens=19,
                    accepted_tokens=12,
                    accepted_tokens_per_position=(4, 4, 4),
                    generation_tokens=20,
                ),
            ),
            # The same counters at a later time are increases of zero.
            (
                counters(10, [5, 3]),
                counters(10, [5, 3]),
                Delta(
                    7.5,
                    0,
                    draft_tokens=0,
                    accepted_tokens=0,
                    accepted_tokens_per_position=(0, 0),
                    generation_tokens=0,
                ),
            ),
            # A counter that the engine does not have has no increase, which is not an
            # increase of 0.
            (
                Counters(generation_tokens=3),
                Counters(generation_tokens=10),
                Delta(
                    7.5,
                    None,
                    draft_tokens=None,
                    accepted_tokens=None,
                    accepted_tokens_per_position=(),
                    generation_tokens=7,
                ),
            ),
            # What was not there before the first draft had counted nothing: the Rust
            # front end's way.
            (
                Counters(
                    0,
                    0,
                    accepted_tokens=0,
                    accepted_tokens_per_position=(),
                    generation_tokens=None,
                ),
                Counters(
                    4,
                    12,
                    accepted_tokens=6,
                    accepted_tokens_per_position=(3, 2, 1),
                    generation_tokens=10,
                ),
                Delta(
                    7.5,
                    4,
                    draft_tokens=12,
                    accepted_tokens=6,
                    accepted_tokens_per_position=(3, 2, 1),
                    generation_tokens=10,
                ),
            ),
            # An answer without any of the series says nothing of what had been counted
            # until then.
            (
                Counters(),
                Counters(
                    4,
                    12,
                    accepted_tokens=6,
                    accepted_tokens_per_position=(3, 2, 1),
                    generation_tokens=10,
                ),
                Delta(
                    7.5,
                    None,
                    draft_tokens=None,
                    accepted_tokens=None,
                    accepted_tokens_per_position=(),
                    generation_tokens=None,
                ),
            ),
            # Tokens were generated and drafts not shown, so of what they counted
            # nothing is known.
            (
                Counters(generation_tokens=100),
                Counters(
                    100,
                    200,
                    accepted_tokens=140,
                    accepted_tokens_per_position=(80, 60),
                    generation_tokens=500,
                ),
                Delta(
                    7.5,
                    None,
                    draft_tokens=None,
                    accepted_tokens=None,
                    accepted_tokens_per_position=(),
                    generation_tokens=400,
                ),
            ),
            # Drafts shown as 0 had not begun, so what appears with the first of them
            # counts from 0.
            (
                Counters(drafts=0, generation_tokens=100),
                Counters(
                    100,
                    200,
                    accepted_tokens=140,
                    accepted_tokens_per_position=(80, 60),
                    generation_tokens=500,
                ),
                Delta(
                    7.5,
                    100,
                    draft_tokens=200,
                    accepted_tokens=140,
                    accepted_tokens_per_position=(80, 60),
                    generation_tokens=400,
                ),
            ),
        ],
    )
    def test_each_counters_increase(
        self, previous: Counters, current: Counters, expected: Delta
    ) -> None:
        """Over the real time between the samples."""
        assert delta(Sample(5, previous), Sample(12.5, current)) == expected

    def test_a_series_that_an_engine_at_work_did_not_show(self) -> None:
        """A series missing from the first answer had counted already: its increase is
        not known.
        """
        first = Counters(
            1000,
            2000,
            accepted_tokens=1400,
            accepted_tokens_per_position=(800, 600),
            generation_tokens=2400,
        )
        last = Counters(
            1100,
            2200,
            accepted_tokens=1540,
            accepted_tokens_per_position=(880, 660),
            generation_tokens=2640,
        )
        complete = Delta(
            5,
            100,
            draft_tokens=200,
            accepted_tokens=140,
            accepted_tokens_per_position=(80, 60),
            generation_tokens=240,
        )
        totals = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")
        for gap in (
            {"accepted_tokens_per_position": ()},
            *(dict.fromkeys([name]) for name in totals),
        ):
            increase = delta(Sample(0, replace(first, **gap)), Sample(5, last))
            assert increase == replace(complete, **gap), gap
