"""The K schedule: the best K at every batch size, and a configured one as vLLM reads
it.
"""

import json
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from economics.servers import survival_of
from economics.test_cost import profiles
from support.builders import refusal
from vllm_specdec_exporter.economics.cost import CostProfile, DraftCost, TargetCost
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.economics.speculative_config import (
    MAX_BATCH,
    ScheduleRow,
    Speculation,
    make_schedule,
    parse_schedule,
    parse_speculation,
)

OFF = (ScheduleRow(1, MAX_BATCH, 0),)
#: Mean acceptance lengths for K = 1, 2, ... of any acceptance.
lengths = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(
    lambda conditional: tuple(accumulate(survival_of(conditional), initial=1.0))[1:]
)


def assert_that_vllm_takes(rows: tuple[ScheduleRow, ...], k: int) -> None:
    """What vLLM asks for: from 1 on, no overlap and here no gap, whole K from 0 up to
    the configured one.
    """
    assert rows[0].first == 1
    assert rows[-1].last == MAX_BATCH
    assert all(row.first <= row.last for row in rows)
    assert all(row.last + 1 == following.first for row, following in pairwise(rows))
    assert all(0 <= row.num_speculative_tokens <= k for row in rows)
    assert all(
        row.num_speculative_tokens != following.num_speculative_tokens
        for row, following in pairwise(rows)
    )


@given(lengths, profiles, st.sampled_from(["ngram", "eagle3"]))
def test_every_batch_has_the_best_k(
    values: tuple[float, ...], profile: CostProfile, method: str
) -> None:
    """No K is faster than the scheduled one, at any batch size from 1 to the largest.

    K=0 costs a plain step for n-gram lookup only: a drafter with a model still makes
    its first pass.
    """
    rows = make_schedule(values, profile, method=method)

    assert_that_vllm_takes(rows, len(values))
    for row in rows:
        # Within a row the gain of every K is a ratio of lines, but all of them are
        # looked at.
        for batch in range(
            row.first, row.last + 1, max(1, (row.last - row.first) // 40)
        ):
            idle = 1.0 if method == "ngram" else 1 / profile.idle_cost(batch)
            speedups = [
                idle,
                *(
                    length / profile.step_cost(k, batch)
                    for k, length in enumerate(values, 1)
                ),
            ]
            scheduled = speedups[row.num_speculative_tokens]
            assert scheduled >= max(speedups) * (1 - 1e-9), (row, batch)


def test_the_preferred_k_stays_unless_another_gains_enough() -> None:
    """Here K=2 runs a tenth faster at any batch.

    However little the others gain, a K that loses goes.
    """
    free = CostProfile("free", TargetCost(1.0))
    gains = {0.0: [2], 0.099: [2], 0.101: [1]}
    schedules = {
        gain: make_schedule((1.5, 1.65), free, prefer=1, minimum_gain=gain)
        for gain in gains
    }
    assert {
        gain: [row.num_speculative_tokens for row in rows]
        for gain, rows in schedules.items()
    } == gains

    dear = CostProfile("dear", TargetCost(1.0), DraftCost(fixed=1.0))
    assert (
        make_schedule((1.5, 1.9), dear, prefer=2, minimum_gain=1.0, method="ngram")
        == OFF
    )


def test_no_drafts_of_a_model_cost_its_first_pass() -> None:
    """As published: 93.8 ms a token at K=0 of a schedule, 77.2 ms without speculation.

    So a K that loses to no speculation is still scheduled where K=0 would lose more.
    """
    profile = CostProfile(
        "gemma",
        TargetCost(70.0, per_token=0.04),
        DraftCost(per_position=16.66),
        context_tokens=0.0,
    )
    assert profile.idle_cost(180) == pytest.approx(93.86 / 77.2)
    assert replace(profile, correction=2.0).idle_cost(180) == pytest.approx(
        1 + 2 * 16.66 / 77.2
    )
    rows = {
        method: make_schedule((1.25,), profile, method=method)
        for method in ("ngram", "eagle3")
    }
    assert rows == {
        "ngram": (ScheduleRow(1, 28, 1), ScheduleRow(29, MAX_BATCH, 0)),
        "eagle3": (ScheduleRow(1, 722, 1), ScheduleRow(723, MAX_BATCH, 0)),
    }


def test_nothing_accepted_or_no_k_at_all_is_one_row_that_switches_speculation_off() -> (
    None
):
    assert make_schedule((1.0, 1.0), BUILTIN["eagle"]) == OFF
    assert make_schedule((), BUILTIN["eagle"]) == OFF


ROWS = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]


def test_an_idle_engine_is_at_the_first_row_and_the_last_goes_on_beyond_its_end() -> (
    None
):
    """Without a schedule or a load there is no scheduled K."""
    rows = parse_schedule(ROWS)
    assert rows == (
        ScheduleRow(1, 64, 3),
        ScheduleRow(65, 128, 1),
        ScheduleRow(129, 512, 0),
    )
    ks = {0: 3, 0.4: 3, 1: 3, 64: 3, 65: 1, 128: 1, 129: 0, 512: 0, 9999: 0}
    assert {
        requests: Speculation(schedule=rows).scheduled_k(requests) for requests in ks
    } == ks
    assert Speculation(schedule=rows).scheduled_k(None) is None
    assert Speculation().scheduled_k(8) is None
    assert parse_schedule(None) == ()


@pytest.mark.parametrize(
    ("rows", "k", "scheduled"),
    [
        # As vLLM 0.32.0 answered: the row before a gap goes on through it.
        ([[1, 2, 5], [5, 8, 2]], 5, {1: 5, 3: 5, 4: 5, 5: 2, 9: 2, 16: 2}),
        ([[1, 1, 5], [5, 8, 1]], 5, {1: 5, 4: 5, 5: 1}),
        # No K is larger than num_speculative_tokens, which vLLM does not refuse.
        ([[1, 2, 5], [5, 8, 2]], 3, {1: 3, 4: 3, 5: 2}),
        # Rows are sorted.
        ([[5, 8, 2], [1, 2, 5]], 5, {1: 5, 2: 5, 4: 5, 5: 2}),
        # Without num_speculative_tokens, the rows alone are known.
        ([[1, 2, 5], [5, 8, 2]], None, {1: 5, 5: 2}),
    ],
)
def test_gaps_order_and_the_largest_k_are_as_vllm_has_them(
    rows: list[list[int]], k: int | None, scheduled: dict[int, int]
) -> None:
    """A real server with [[1, 1, 5], [5, 8, 1]] drafted 5 tokens for four requests."""
    document = {"method": "ngram", "num_speculative_tokens_per_batch_size": rows}
    if k is not None:
        document["num_speculative_tokens"] = k
    speculation = parse_speculation(json.dumps(document))
    assert {
        requests: speculation.scheduled_k(requests) for requests in scheduled
    } == scheduled
    # Of a window within the gap as well.
    assert speculation.scheduled_k_of(3, 4) == scheduled.get(4, scheduled[1])


def test_numbers_are_read_as_vllm_reads_them() -> None:
    """Its configuration takes "64" and 64.0 for 64."""
    assert parse_schedule([[1.0, "64", 3], [65, 512.0, "0"]]) == parse_schedule(
        [[1, 64, 3], [65, 512, 0]]
    )


def test_what_vllm_could_not_take_either_is_refused_and_the_key_is_named() -> None:
    from_to = "rows go from a first to a last batch size"
    for rows, message in (
        (3, "is a list of rows [first batch size, last batch size, K]"),
        ([], "is a list of rows"),
        ([[1, 64]], "is a list of rows"),
        ([[1, 64, 3, 65, 512]], "is a list of rows"),
        ([[1, 2**40, 3]], "is a list of rows"),
        ([[1, 64, 3.5]], "is a list of rows"),
        ([[1, 64, True]], "is a list of rows"),
        ([[0, 64, 3]], f"{from_to}, from 1 up"),
        ([[64, 1, 3]], from_to),
        ([[1, 64, -1]], from_to),
        ([[1, 64, 3], [64, 128, 1]], "do not overlap"),
        ([[2, 4, 5]], "starts at a batch size of 1, not at 2"),
    ):
        said = refusal(ValueError, parse_schedule, rows)
        assert message in said, rows
        assert "num_speculative_tokens_per_batch_size" in said, (rows, message)
