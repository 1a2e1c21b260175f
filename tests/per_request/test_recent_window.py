"""The window of recent requests: what it contains, its limits, and its worst requests."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from per_request.exact import record, request, totals
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.per_request.grouping import GroupKey
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.recent_window import (
    MAX_WORST,
    MIN_DRAFTS,
    SLICES,
    RecentWindow,
    Slice,
)
from vllm_specdec_exporter.per_request.summary import outcome_of

KEY = GroupKey("m", "0", "chat")
LENGTH = 1800.0
SLICE = LENGTH / SLICES


def add(window: RecentWindow, observation: Observation, time: float = 0.0, key: GroupKey = KEY) -> None:
    assert observation.record is not None
    outcome = outcome_of(observation.record.acceptance_ratio, Thresholds())
    assert outcome is not None
    window.add(key, observation, outcome, time)


def held(found: Slice) -> int:
    return sum(group.count for group in found.groups.values())


def window_of(*times: float) -> RecentWindow:
    """A window with a request at each of these times."""
    found = RecentWindow(LENGTH)
    for time in times:
        add(found, request(82, record=record([(4, 2)] * 5)), time)
    return found


class TestEdges:
    @given(st.lists(st.tuples(st.floats(0, 3 * LENGTH), st.integers(0, 100), st.sampled_from("ab"))))
    def test_dropped_slices_are_subtracted(self, requests: list[tuple[float, int, str]]) -> None:
        """A window with dropped slices equals one that never had them."""
        requests = sorted(requests)
        now = requests[-1][0] if requests else 0.0
        oldest = now // SLICE - SLICES + 1
        every, left = RecentWindow(LENGTH), RecentWindow(LENGTH)
        for time, accepted, kind in requests:
            for window in (every, left) if time // SLICE >= oldest else (every,):
                steps = [(4, accepted % 5)] * 5 + [(accepted % 7, 0)]
                own = replace(totals(accepted), steps=record(steps).steps)
                add(window, request(0, record=own), time, KEY._replace(request_type=kind))

        assert every.whole(now).groups == left.whole(now).groups
        assert every.whole(now).positions == left.whole(now).positions
        assert every.shape(now) == left.shape(now)
        assert every.whole(now + LENGTH) == Slice()

    def test_requests_without_records(self) -> None:
        """They are counted, and dropped like others."""
        window = window_of()
        for time in (0.0, 0.0, SLICE):
            window.add_unrecorded(time)

        assert [window.whole(time).unrecorded for time in (SLICE, LENGTH, LENGTH + SLICE)] == [3, 1, 0]
        assert held(window.whole(SLICE)) == 0

    @given(st.lists(st.floats(0, 2 * LENGTH), min_size=1))
    @example([0.0, SLICE] * 100)
    def test_a_clock_that_goes_back(self, times: list[float]) -> None:
        """The number of slices stays bounded, and recent requests are kept."""
        window = window_of(*times)
        now = max(times)

        assert len(window._until(now)) <= SLICES
        assert held(window.whole(now)) >= sum(time // SLICE > now // SLICE - SLICES for time in times)
        assert held(window.whole(now + LENGTH)) == 0


class TestWorst:
    def test_fields(self) -> None:
        """Its numbers and the server's identifier; not its tenant."""
        told = {"time": 1000.0, "request_id": "chatcmpl-1", "completion_tokens": 32}
        window = RecentWindow(LENGTH)
        add(window, request(12, **told, tenant="acme", tpot_seconds=0.02))
        (worst,) = window.whole(0.0).worst

        assert {name: getattr(worst, name) for name in told} == told
        assert (worst.temperature, worst.request_type, worst.tpot_seconds) == ("0", "chat", 0.02)
        assert (worst.acceptance_ratio, worst.drafts, worst.draft_tokens) == (0.12, 20, 100)
        assert "acme" not in repr(worst)

    @pytest.mark.parametrize(("drafts", "kept"), [(MIN_DRAFTS - 1, 0), (MIN_DRAFTS, 1)])
    def test_short_requests(self, drafts: int, kept: int) -> None:
        """Requests with few drafts are not listed."""
        window = RecentWindow(LENGTH)
        add(window, request(0, 15, drafts))

        assert len(window.whole(0.0).worst) == kept
        assert held(window.whole(0.0)) == 1

    @given(st.lists(st.tuples(st.integers(0, 20), st.integers(20, 40), st.integers(0, 200)), max_size=60))
    def test_against_sorting_all(self, requests: list[tuple[int, int, int]]) -> None:
        """Over any slices: losing requests with the lowest acceptance, then with most drafted tokens."""
        window = RecentWindow(LENGTH)
        for accepted, drafted, slice_ in sorted(requests, key=lambda each: each[2]):
            add(window, request(accepted, drafted), slice_ * SLICE)
        now = max((slice_ for *_, slice_ in requests), default=0)
        alive = [(a / d, -d) for a, d, slice_ in requests if slice_ > now - SLICES and a / d < 0.5]

        worst = window.whole(now * SLICE).worst
        assert [(one.acceptance_ratio, -one.draft_tokens) for one in worst] == sorted(alive)[:MAX_WORST]
