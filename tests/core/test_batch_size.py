"""The batch size of a window: requests in the batch, averaged over the drafts of the
window.
"""

from collections.abc import Sequence

import pytest

from economics.servers import Server, settings_for
from support.builders import counters
from vllm_specdec_exporter.economics.profiles import for_method
from vllm_specdec_exporter.measures.history import (
    Sample,
    SampleHistory,
    Window,
    running_between,
    window_delta,
)


def history_of(polls: Sequence[tuple[float, float | None]]) -> SampleHistory:
    """One poll every 10 s: the drafts so far, and the requests that run."""
    history = SampleHistory()
    for index, (drafts, running) in enumerate(polls):
        sample = Sample(10.0 * index, counters(drafts, [drafts]), running)
        history = history.add(sample, keep=1000)
    return history


def batch_size(
    polls: Sequence[tuple[float, float | None]], seconds: float = 1000
) -> float | None:
    delta = window_delta(history_of(polls), Window(seconds), 0.5)
    return delta.batch_size


class TestMean:
    def test_it_is_weighed_by_drafts(self) -> None:
        """Ninety drafts at 2 and ten at 12 requests: 3, not 7.

        Between two answers the load is halfway.
        """
        polls = [(0, 2), (90, 2), (90, 12), (100, 12)]

        assert batch_size(polls) == pytest.approx(0.9 * 2 + 0.1 * 12)
        assert (
            batch_size([(0, 4), (10, 8)]) == batch_size([(0, 4), (0, 4), (10, 8)]) == 6
        )

    def test_only_the_window_counts(self) -> None:
        """What was before the window's first sample has no weight."""
        polls = [(0, 50), (1000, 50), (1010, 2), (1020, 2), (1030, 2)]

        assert batch_size(polls, 20) == 2

    def test_without_the_gauge_or_a_draft_nothing_is_known(self) -> None:
        assert batch_size([(0, None), (10, None)]) is None
        assert batch_size([(10, 5), (10, 5)]) is None

    def test_running_between(self) -> None:
        """An end at which nothing ran says nothing of the time between; a draft was
        made for a request.
        """
        for first, last, expected in (
            (4, 8, 6),
            (0, 8, 8),
            (8, 0, 8),
            (0, 0, 1),
            (1, 1, 1),
            (None, 8, 8),
            (8, None, 8),
            (None, None, None),
            (None, 0, 1),
        ):
            running = running_between(
                Sample(0, counters(0), first), Sample(1, counters(1), last)
            )
            assert running == expected, (first, last)


class TestRange:
    def test_the_least_and_the_most(self) -> None:
        """What advice was drawn from: the batch sizes that were seen since a time, at
        rest left out.
        """
        history = history_of([(0, 50), (10, 3), (20, 0), (30, 8), (40, 5)])

        assert history.batch_sizes(since=10) == (3, 8)
        assert history.batch_sizes(since=0) == (3, 50)
        assert history.batch_sizes(since=40) == (5, 5)

    def test_without_the_gauge_or_at_rest_there_is_no_range(self) -> None:
        for running in (None, 0.0):
            assert (
                history_of([(0, running), (10, running)]).batch_sizes(since=0) is None
            ), running
        assert SampleHistory().batch_sizes(since=0) is None

    def test_it_goes_with_the_advice(self) -> None:
        """Advice says at which batch sizes it was drawn, of the judged window alone."""
        server = Server(settings_for(for_method("ngram"), "ngram", 3), 3, 200)
        server.poll()
        for minute in range(10):
            server.batch = [200, 200, 200, 6, 4, 4, 9, 4, 0, 4][minute]
            server.add(500, (300, 150, 60))
            server.poll(after=60)

        assert server.latest.advice.batch_sizes == (4, 9)
