from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import counters, lives, sample
from vllm_specdec_exporter.history import History, Sample, started_anew
from vllm_specdec_exporter.reading import Counters

KEEP = 300.0

BEFORE = Counters(10, 40, 20, (9, 7, 4), 30, created=5.0)


def observe(*samples: Sample, keep: float = KEEP) -> History:
    history = History()
    for item in samples:
        history = history.observe(item, keep)
    return history


TOTALS = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")
PER_POSITION = "accepted_tokens_per_position"


class TestStartedAnew:
    @pytest.mark.parametrize("field", TOTALS)
    @pytest.mark.parametrize("after", [0.0, 1.0])
    def test_any_counter_that_falls(self, field: str, after: float) -> None:
        """One counter that falls is a restart, whatever the others do."""
        assert started_anew(BEFORE, replace(BEFORE, **{field: after}))

    @pytest.mark.parametrize("lost", [*(dict.fromkeys([f]) for f in TOTALS), {PER_POSITION: ()}])
    def test_a_series_that_is_missing(self, lost: dict[str, tuple[()] | None]) -> None:
        """A series that had counted and is missing is no restart, but no window reaches back across it."""
        history = History().observe(Sample(0, BEFORE), 60).observe(Sample(5, replace(BEFORE, **lost)), 60)

        assert not started_anew(BEFORE, replace(BEFORE, **lost))
        assert (history.samples, history.resets) == ((), 0)

    @pytest.mark.parametrize("after", [(8, 7, 4), (9, 6, 4), (9, 7, 3), (9, 7)])
    def test_any_position_that_falls(self, after: tuple[float, ...]) -> None:
        """A position that falls, or vanishes with a value above 0, is a restart."""
        assert started_anew(BEFORE, replace(BEFORE, accepted_tokens_per_position=after))

    def test_one_counter_falls_while_others_rise(self) -> None:
        """A restart shows in one counter although the others have already passed their old values."""
        assert started_anew(BEFORE, Counters(100, 400, 19, (90, 70, 40), 300, created=5.0))

    @pytest.mark.parametrize("created", [4.0, 5.001, 6.0])
    def test_the_creation_time_moves(self, created: float) -> None:
        """A creation time that moves is a restart even where no counter fell."""
        assert started_anew(BEFORE, replace(BEFORE, drafts=11, created=created))

    @pytest.mark.parametrize(("before", "after"), [(None, 5.0), (5.0, None), (None, None), (5.0, 5.0)])
    def test_a_creation_time_that_is_not_always_there(
        self, before: float | None, after: float | None
    ) -> None:
        """A creation time proves something only where both samples have one."""
        assert not started_anew(replace(BEFORE, created=before), replace(BEFORE, created=after))

    @pytest.mark.parametrize(
        "after",
        [
            BEFORE,
            replace(BEFORE, drafts=11),
            replace(BEFORE, accepted_tokens_per_position=(9, 7, 4, 0)),
            replace(BEFORE, accepted_tokens_per_position=(9, 7, 4, 3)),
        ],
    )
    def test_counters_that_stand_or_rise(self, after: Counters) -> None:
        """Standing still, counting on and further positions are all one life."""
        assert not started_anew(BEFORE, after)

    def test_a_position_that_vanishes_at_0(self) -> None:
        """A position that had counted nothing may go."""
        assert not started_anew(counters(10, [5, 0]), counters(10, [5], draft_tokens=20))

    @pytest.mark.parametrize("after", [Counters(), Counters(0, 0, 0, (0, 0), 0), Counters(1, 2, 1, (1,), 1)])
    def test_counters_that_appear(self, after: Counters) -> None:
        """A series that comes later is no restart: the Rust front end creates them at first use."""
        assert not started_anew(Counters(), after)

    @given(lives(3))
    def test_no_life_restarts_within_itself(self, life: list[Counters]) -> None:
        """However an engine counts on, no restart is seen."""
        assert [
            (before, after)
            for i, before in enumerate(life)
            for after in life[i:]
            if started_anew(before, after)
        ] == []


class TestHistory:
    def test_at_first(self) -> None:
        """A history begins with nothing."""
        assert (History().newest, History().resets) == (None, 0)

    def test_samples_of_one_life(self) -> None:
        """Samples of one life are kept in order."""
        first, second = sample(0, 10, [5]), sample(5, 20, [9])

        assert History((first, second)) == observe(first, second)
        assert second == observe(first, second).newest

    def test_a_restart(self) -> None:
        """A restart leaves the new sample alone, and is counted."""
        second = sample(10, 3, [1])

        assert History((second,), resets=1) == observe(sample(0, 10, [5]), sample(5, 20, [9]), second)

    def test_counters_that_fall_one_at_a_time(self) -> None:
        """A restart seen torn over two answers starts twice: no window holds old and new values."""
        history = observe(
            sample(0, 10, [5], generation=100),
            sample(5, 2, [5], generation=100),
            sample(10, 2, [1], generation=4),
        )

        assert History((sample(10, 2, [1], generation=4),), resets=2) == history

    def test_resets_add_up(self) -> None:
        """Resets are counted over all lives."""
        assert observe(*(sample(5 * i, 10 - i, [5 - i]) for i in range(4))).resets == 3

    def test_samples_older_than_needed_are_dropped(self) -> None:
        """A history holds what the longest window needs, to the very second, and no more."""
        history = observe(*(sample(5 * i, 10 * i, [5 * i]) for i in range(101)), keep=32.5)

        assert [s.time for s in history.samples] == [470, 475, 480, 485, 490, 495, 500]

    def test_a_sample_just_old_enough_is_kept(self) -> None:
        """The edge belongs to the window."""
        assert len(observe(sample(0, 1, [1]), sample(300, 2, [2])).samples) == 2

    def test_after_a_long_silence(self) -> None:
        """When all samples are too old the new one stands alone, but it is no reset."""
        assert History((sample(301, 2, [2]),)) == observe(sample(0, 1, [1]), sample(301, 2, [2]))

    @pytest.mark.parametrize("time", [5.0, 4.9, -100.0])
    def test_a_clock_that_does_not_advance(self, time: float) -> None:
        """No rate can be formed over no time, so the history starts anew; the counters did not."""
        assert History((sample(time, 30, [9]),)) == observe(
            sample(0, 10, [5]), sample(5, 20, [9]), sample(time, 30, [9])
        )

    def test_a_clock_that_does_not_advance_over_a_restart(self) -> None:
        """A restart is counted even where the clock stands."""
        assert observe(sample(5, 20, [9]), sample(5, 3, [1])).resets == 1


class TestInterruption:
    def test_a_restart_that_has_counted_past_its_old_values(self) -> None:
        """After the server stopped listening no window reaches back, although no counter fell."""
        history = observe(sample(0, 10, [5])).interrupt().observe(sample(60, 50, [25]), KEEP)

        assert History((sample(60, 50, [25]),)) == history

    def test_a_restart_that_shows(self) -> None:
        """Counters that fell over an interruption are a reset."""
        history = observe(sample(0, 10, [5])).interrupt().observe(sample(60, 5, [2]), KEEP)

        assert History((sample(60, 5, [2]),), resets=1) == history

    def test_it_ends_with_the_next_sample(self) -> None:
        """After an interruption, history grows again."""
        history = observe(sample(0, 10, [5])).interrupt()
        for time in (60, 65):
            history = history.observe(sample(time, time, [25]), KEEP)

        assert [s.time for s in history.samples] == [60, 65]

    def test_before_anything_was_seen(self) -> None:
        """A server that has not started yet interrupts nothing."""
        assert History() == History().interrupt()

    @given(st.integers(1, 5))
    def test_many_in_a_row(self, times: int) -> None:
        """A port that stays closed for many polls is one interruption."""
        history = observe(sample(0, 10, [5]))
        for _ in range(times):
            history = history.interrupt()

        assert observe(sample(0, 10, [5])).interrupt() == history
