"""Windows: how far they reach, and what increased within them."""

import pytest

from support.builders import counters, increase, sample
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
    history = SampleHistory()
    for time in times:
        history = history.add(sample(time, 2 * time, [time]), keep=40)
    reached = window_delta(history, Window(30), SLACK)

    assert span == (reached and pytest.approx(reached.span))


#: An engine of K=3 that generated tokens with drafts alone, before and after some.
EARLIER = counters(10, [9, 7, 4], created=1.0)
LATER = counters(15, [13, 11, 8], draft_tokens=49, created=1.0)
#: Nothing of what was not known at one of both ends.
UNKNOWN = increase(span=7.5)
FIRST_DRAFTS = counters(4, [3, 2, 1])
AT_WORK = counters(100, [80, 60], generation=500)


class TestDelta:
    @pytest.mark.parametrize(
        ("previous", "current", "expected"),
        [
            pytest.param(
                EARLIER,
                LATER,
                increase(5, [4, 4, 4], draft_tokens=19, span=7.5),
                id="all counters",
            ),
            pytest.param(EARLIER, EARLIER, increase(0, [0] * 3, span=7.5), id="none"),
            pytest.param(
                Counters(generation_tokens=3),
                Counters(generation_tokens=10),
                increase(generation=7, span=7.5),
                id="not an increase of 0 for a counter that the engine does not have",
            ),
            pytest.param(
                replace(counters(0), generation_tokens=None),
                FIRST_DRAFTS,
                increase(4, [3, 2, 1], span=7.5),
                id="from nothing before the first draft: the Rust front end's way",
            ),
            pytest.param(
                Counters(),
                FIRST_DRAFTS,
                UNKNOWN,
                id="not known without any series before",
            ),
            pytest.param(
                Counters(generation_tokens=100),
                AT_WORK,
                replace(UNKNOWN, generation_tokens=400),
                id="not known where tokens were generated and drafts not shown",
            ),
            pytest.param(
                Counters(drafts=0, generation_tokens=100),
                AT_WORK,
                increase(100, [80, 60], generation=400, span=7.5),
                id="from 0 where drafts shown as 0 had not begun",
            ),
        ],
    )
    def test_each_counters_increase(
        self, previous: Counters, current: Counters, expected: Delta
    ) -> None:
        """Over the real time between the samples."""
        assert delta(Sample(5, previous), Sample(12.5, current)) == expected

    @pytest.mark.parametrize(
        "gap",
        [
            {"accepted_tokens_per_position": ()},
            {"drafts": None},
            {"draft_tokens": None},
            {"accepted_tokens": None},
            {"generation_tokens": None},
        ],
        ids=lambda gap: next(iter(gap)),
    )
    def test_a_series_that_an_engine_at_work_did_not_show(
        self, gap: dict[str, tuple[()] | None]
    ) -> None:
        """A series missing from the first answer had counted already: its increase is
        not known.
        """
        first = replace(counters(1000, [800, 600]), **gap)
        last = counters(1100, [880, 660])
        expected = replace(increase(100, [80, 60], span=5.0), **gap)
        assert delta(Sample(0, first), Sample(5, last)) == expected
