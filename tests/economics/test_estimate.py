"""The estimated speedup, its bounds, and the return on speculation."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from economics.test_cost import profiles
from vllm_specdec_exporter.economics.cost import CostProfile, DraftCost, TargetCost
from vllm_specdec_exporter.economics.profiles import CostSettings, deployed
from vllm_specdec_exporter.economics.speculative_config import parse_speculation
from vllm_specdec_exporter.economics.speedup import (
    Estimate,
    estimate,
    expected_tokens,
    return_on_speculation,
)

#: A plain step takes 10, each drafted token 1: three cost three tenths more.
SIMPLE = CostProfile(
    "simple", TargetCost(10.0), DraftCost(per_position=1.0), uncertainty=0.1
)


class TestEstimate:
    def test_by_hand(self) -> None:
        """Length over cost; the bounds are those of a step that costs a tenth more, or
        less.
        """
        estimated = estimate(2.6, 3, 4, SIMPLE)

        assert estimated.step_cost == pytest.approx(1.3)
        assert estimated.speedup == pytest.approx(2.0)
        assert estimated.speedup_low == pytest.approx(2.6 / (1.3 * 1.1))
        assert estimated.speedup_high == pytest.approx(2.6 / (1.3 / 1.1))
        assert estimated.break_even_acceptance_length == pytest.approx(1.3)
        assert estimated.break_even_acceptance_ratio == pytest.approx(0.1)
        assert estimated.batch_size == 4

    @pytest.mark.parametrize(
        ("method", "first_pass"), [("eagle3", 1.0), ("ngram", 0.0)]
    )
    def test_steps_of_k_0_beside_a_drafter_are_not_plain(
        self, method: str, first_pass: float
    ) -> None:
        """Of 1,000 tokens, 260 come out of 100 drafts: each other one pays for the
        drafter's first pass.
        """
        spec = (
            f'{{"method": "{method}", "num_speculative_tokens_per_batch_size": [[1, 4, '
            f"3], [5, 64, 0]]}}"
        )
        profile = deployed(CostSettings(SIMPLE), parse_speculation(spec), "m")
        speedup = estimate(2.6, 3, 4, profile).of_all_tokens(0.26)

        # the time of a step with drafts, with the errors of `SIMPLE`
        drafts = (13.0 * 1.1, 13.0 / 1.1)
        # in proportion to what it adds
        passes = (first_pass * 4.3 / 3, first_pass * (13.0 / 1.1 - 10.0) / 3)
        assert speedup.value == pytest.approx(
            10_000 / (100 * 13.0 + 740 * (10.0 + first_pass))
        )
        for end, step, more in zip(speedup.ends, drafts, passes, strict=True):
            assert end == pytest.approx(10_000 / (100 * step + 740 * (10.0 + more))), (
                end,
                step,
                more,
            )

    @given(st.integers(1, 16), st.floats(0, 1), st.floats(1, 1024), profiles)
    def test_bounds(
        self, k: int, ratio: float, batch: float, profile: CostProfile
    ) -> None:
        """The estimate lies between its bounds, and no bound exceeds the mean
        acceptance length.
        """
        length = 1 + k * ratio
        estimated = estimate(length, k, batch, profile)

        bounds = (
            0.0,
            estimated.speedup_low,
            estimated.speedup,
            estimated.speedup_high,
            length,
        )
        assert all(a <= b * (1 + 1e-9) for a, b in pairwise(bounds))
        assert 0 < estimated.speedup_low <= estimated.speedup_high < math.inf

    @given(st.integers(1, 16), st.floats(1, 1024), profiles)
    def test_break_even_is_where_nothing_is_gained(
        self, k: int, batch: float, profile: CostProfile
    ) -> None:
        """At the break-even length the speedup is 1; a little above it gains, a little
        below it loses.
        """
        even = estimate(1.0, k, batch, profile).break_even_acceptance_length

        assert estimate(even, k, batch, profile).speedup == pytest.approx(1)
        assert estimate(even + 0.01, k, batch, profile).speedup > 1
        assert (estimate(even - 0.01, k, batch, profile).speedup or 2) < 1

    def test_what_cannot_be_known(self) -> None:
        """Without one of its three parts there is no estimate.

        Less than one request counts as one.
        """
        for length, drafted, batch in (
            (None, 3, 4),
            (2.0, None, 4),
            (2.0, 0, 4),
            (2.0, 3, None),
        ):
            assert estimate(length, drafted, batch, SIMPLE) == Estimate(), (
                length,
                drafted,
                batch,
            )
        assert estimate(2.0, 3, 0.2, SIMPLE) == estimate(2.0, 3, 1.0, SIMPLE)


@pytest.mark.parametrize(
    ("acceptance", "k"), [(-0.1, 3), (1.1, 3), (math.nan, 3), (0.5, -1)]
)
def test_values_out_of_their_range_are_refused_in_one_line(
    acceptance: float, k: int
) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]* from 0 [^\n]*$"):
        expected_tokens(acceptance, k)


def test_the_return_by_hand() -> None:
    """Benefit, cost and their ratio, as published with each as a share."""
    for length, step_cost, memory_ratio, (benefit, cost, ratio) in (
        (2.5, 1.3, 0.2, (150.0, 0.5, 3.0)),
        # A drafter that takes half the machine and gives a fifth takes more than it
        # gives.
        (1.2, 1.3, 0.2, (20.0, 0.5, 0.4)),
        # What costs nothing has a benefit and no ratio.
        (2.0, 1.0, 0.0, (100.0, 0.0, None)),
    ):
        gained = return_on_speculation(length, step_cost, memory_ratio, 100.0)
        assert gained.return_ratio == (ratio and pytest.approx(ratio)), (
            length,
            step_cost,
            memory_ratio,
        )
        assert (gained.benefit_tokens_per_second, gained.cost_ratio) == pytest.approx(
            (benefit, cost)
        ), (length, step_cost, memory_ratio)
