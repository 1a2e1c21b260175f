"""History: what is one life of an engine, and which samples of it are kept."""

import pytest

from support.builders import counters, sample
from support.copies import replace
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.measures.history import Sample, SampleHistory, counters_reset

KEEP = 300.0

BEFORE = Counters(
    10,
    40,
    accepted_tokens=20,
    accepted_tokens_per_position=(9, 7, 4),
    generation_tokens=30,
    created=5.0,
)


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
            *(replace(BEFORE, **{field: 1.0}) for field in TOTALS),
            Counters(
                100,
                400,
                accepted_tokens=19,
                accepted_tokens_per_position=(90, 70, 40),
                generation_tokens=300,
                created=5.0,
            ),
            # A position that falls, or vanishes with a value above 0.
            *(
                replace(BEFORE, accepted_tokens_per_position=current)
                for current in ((8, 7, 4), (9, 6, 4), (9, 7, 3), (9, 7))
            ),
            # A creation time that moves, even where no counter fell.
            *(
                replace(BEFORE, drafts=11, created=created)
                for created in (4.0, 5.001, 6.0)
            ),
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
            *(
                (replace(BEFORE, created=previous), replace(BEFORE, created=current))
                for previous, current in (
                    (None, 5.0),
                    (5.0, None),
                    (None, None),
                    (5.0, 5.0),
                )
            ),
            # A series that comes later: the Rust front end creates them at first use.
            (Counters(), Counters()),
            (
                Counters(),
                Counters(
                    0,
                    0,
                    accepted_tokens=0,
                    accepted_tokens_per_position=(0, 0),
                    generation_tokens=0,
                ),
            ),
            (
                Counters(),
                Counters(
                    1,
                    2,
                    accepted_tokens=1,
                    accepted_tokens_per_position=(1,),
                    generation_tokens=1,
                ),
            ),
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
        history = (
            SampleHistory()
            .add(Sample(0, BEFORE), 60)
            .add(Sample(5, replace(BEFORE, **lost)), 60)
        )

        assert not counters_reset(BEFORE, replace(BEFORE, **lost))
        assert (history.samples, history.resets) == ((), 0)


#: Samples of one engine, and the history of them.
HISTORIES: dict[str, tuple[tuple[Sample, ...], SampleHistory]] = {
    "samples of one life are kept in order": (
        (sample(0, 10, [5]), sample(5, 20, [9])),
        SampleHistory((sample(0, 10, [5]), sample(5, 20, [9]))),
    ),
    "a restart leaves the new sample alone, and is counted": (
        (sample(0, 10, [5]), sample(5, 20, [9]), sample(10, 3, [1])),
        SampleHistory((sample(10, 3, [1]),), resets=1),
    ),
    (
        "a restart seen torn over two answers starts twice: no window holds old and "
        "new values"
    ): (
        (
            sample(0, 10, [5], generation=100),
            sample(5, 2, [5], generation=100),
            sample(10, 2, [1], generation=4),
        ),
        SampleHistory((sample(10, 2, [1], generation=4),), resets=2),
    ),
    "resets are counted over all lives": (
        tuple(sample(5 * i, 10 - i, [5 - i]) for i in range(4)),
        SampleHistory((sample(15, 7, [2]),), resets=3),
    ),
    "a sample just old enough is kept": (
        (sample(0, 1, [1]), sample(300, 2, [2])),
        SampleHistory((sample(0, 1, [1]), sample(300, 2, [2]))),
    ),
    "after a long silence the new one stands alone, but it is no reset": (
        (sample(0, 1, [1]), sample(301, 2, [2])),
        SampleHistory((sample(301, 2, [2]),)),
    ),
    **{
        (
            f"at {time} no rate can be formed over no time, so it starts anew; the "
            "counters did not"
        ): (
            (sample(0, 10, [5]), sample(5, 20, [9]), sample(time, 30, [9])),
            SampleHistory((sample(time, 30, [9]),)),
        )
        for time in (5.0, 4.9, -100.0)
    },
    "a restart is counted even where the clock stands": (
        (sample(5, 20, [9]), sample(5, 3, [1])),
        SampleHistory((sample(5, 3, [1]),), resets=1),
    ),
}


class TestHistory:
    @pytest.mark.parametrize("case", HISTORIES)
    def test_samples(self, case: str) -> None:
        samples, expected = HISTORIES[case]
        history = observe(*samples)

        assert history == expected
        assert history.newest == samples[-1]

    def test_samples_older_than_needed_are_dropped(self) -> None:
        """A history holds what the longest window needs, to the very second, and no
        more.
        """
        history = observe(
            *(sample(5 * i, 10 * i, [5 * i]) for i in range(101)), keep=32.5
        )

        assert [s.time for s in history.samples] == [470, 475, 480, 485, 490, 495, 500]
