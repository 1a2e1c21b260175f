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
    found = window_delta(SampleHistory(samples), Window(30), SLACK)

    assert span == (found and pytest.approx(found.span))


class TestDelta:
    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            (
                Counters(10, 40, 20, (9, 7, 4), 30, created=1.0),
                Counters(15, 59, 32, (13, 11, 8), 50, created=1.0),
                Delta(7.5, 5, 19, 12, (4, 4, 4), 20),
            ),
            # The same counters at a later time are increases of zero.
            (
                counters(10, [5, 3]),
                counters(10, [5, 3]),
                Delta(7.5, 0, 0, 0, (0, 0), 0),
            ),
            # A counter that the engine does not have has no increase, which is not an
            # increase of 0.
            (
                Counters(generation_tokens=3),
                Counters(generation_tokens=10),
                Delta(7.5, None, None, None, (), 7),
            ),
            # What was not there before the first draft had counted nothing: the Rust
            # front end's way.
            (
                Counters(0, 0, 0, (), None),
                Counters(4, 12, 6, (3, 2, 1), 10),
                Delta(7.5, 4, 12, 6, (3, 2, 1), 10),
            ),
            # An answer without any of the series says nothing of what had been counted
            # until then.
            (
                Counters(),
                Counters(4, 12, 6, (3, 2, 1), 10),
                Delta(7.5, None, None, None, (), None),
            ),
            # Tokens were generated and drafts not shown, so of what they counted
            # nothing is known.
            (
                Counters(generation_tokens=100),
                Counters(100, 200, 140, (80, 60), 500),
                Delta(7.5, None, None, None, (), 400),
            ),
            # Drafts shown as 0 had not begun, so what appears with the first of them
            # counts from 0.
            (
                Counters(drafts=0, generation_tokens=100),
                Counters(100, 200, 140, (80, 60), 500),
                Delta(7.5, 100, 200, 140, (80, 60), 400),
            ),
        ],
    )
    def test_each_counters_increase(
        self, before: Counters, after: Counters, expected: Delta
    ) -> None:
        """Over the real time between the samples."""
        assert delta(Sample(5, before), Sample(12.5, after)) == expected

    def test_a_series_that_an_engine_at_work_did_not_show(self) -> None:
        """A series missing from the first answer had counted already: its increase is
        not known.
        """
        first = Counters(1000, 2000, 1400, (800, 600), 2400)
        last = Counters(1100, 2200, 1540, (880, 660), 2640)
        whole = Delta(5, 100, 200, 140, (80, 60), 240)
        totals = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")
        for gap in (
            {"accepted_tokens_per_position": ()},
            *(dict.fromkeys([name]) for name in totals),
        ):
            found = delta(Sample(0, replace(first, **gap)), Sample(5, last))
            assert found == replace(whole, **gap)
