"""The choice of K: a lower bound below the present one, cautious beyond, and sure of
what it is sure of.
"""

import math
import random
import statistics
from itertools import accumulate, chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from economics.servers import survival_of
from support.builders import requests
from vllm_specdec_exporter.economics.choice import choose
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.economics.statistics import CLUSTERING, AcceptanceSample

conditionals = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def eagle(k: int) -> float:
    return BUILTIN["eagle"].step_cost(k, 8)


def spread(
    survival: tuple[float, ...], one: tuple[int, float], other: tuple[int, float]
) -> float:
    """The standard deviation of the difference of two speedups over drafts: from their
    distribution.
    """
    edges = (1.0, *survival, 0.0)
    # of exactly 0, 1, ... accepted tokens
    chances = [here - there for here, there in pairwise(edges)]

    def gain(accepted: int) -> float:
        return (1 + min(accepted, one[0])) / one[1] - (
            1 + min(accepted, other[0])
        ) / other[1]

    mean = math.fsum(chance * gain(a) for a, chance in enumerate(chances))
    return math.sqrt(
        math.fsum(chance * (gain(a) - mean) ** 2 for a, chance in enumerate(chances))
    )


class TestOptions:
    @given(conditionals, st.integers(1, 100_000))
    def test_up_to_the_present_k_no_acceptance_is_assumed(
        self, conditional: list[float], drafts: int
    ) -> None:
        """A smaller K has the length of 1 + the first position ratios, and that over
        its cost as speedup.
        """
        survival = survival_of(conditional)
        choice = choose(survival, drafts, eagle)
        lengths = list(accumulate((1.0, *survival)))

        for k, length in enumerate(lengths):
            option = choice.options[k]
            assert option.num_speculative_tokens == k, (k, length)
            assert option.mean_acceptance_length == pytest.approx(length), (k, length)
            assert option.speedup == pytest.approx(length / eagle(k)), (k, length)
            assert not option.extrapolated, (k, length)
        assert choice.drafted == len(survival)

    @given(conditionals, st.integers(1, 100_000))
    def test_beyond_it_acceptance_never_recovers(
        self, conditional: list[float], drafts: int
    ) -> None:
        """Each further position keeps no more of the one before than the least of the
        last ones did.
        """
        survival = survival_of(conditional)
        choice = choose(survival, drafts, eagle)
        beyond = choice.options[len(survival) :]
        added = [
            b.mean_acceptance_length - a.mean_acceptance_length
            for a, b in pairwise(beyond)
        ]
        last = [b / a for a, b in pairwise((1.0, *survival)[-3:]) if a > 0]

        assert all(option.extrapolated for option in beyond[1:])
        assert len(choice.options) - 1 == 2 * len(survival)
        for step, more in enumerate(added, 1):
            assert more <= survival[-1] * min(last, default=0.0) ** step + 1e-9, (
                step,
                more,
            )

    @given(conditionals, st.integers(1, 100_000))
    def test_intervals(self, conditional: list[float], drafts: int) -> None:
        """Every length lies within its interval, and the interval within what is
        possible.
        """
        for option in choose(survival_of(conditional), drafts, eagle).options:
            assert 1 <= option.length_low <= option.mean_acceptance_length + 1e-9, (
                option
            )
            assert option.mean_acceptance_length <= option.length_high + 1e-9, option
            assert option.length_high <= 1 + option.num_speculative_tokens, option
            assert option.speedup_low <= option.speedup + 1e-9, option
            assert option.speedup <= option.speedup_high + 1e-9, option

    def test_a_smaller_k_read_from_a_larger_one_is_a_lower_bound(self) -> None:
        """Its interval holds what the same prompts gave with that K: 1.84, where K=8
        reads 1.76 (vLLM 48892).

        Between smaller and present K the present one gets the more tokens out of a
        draft, so its length limits that of the smaller one.
        """
        survival = (0.756, 0.601, 0.497, 0.411, 0.353, 0.298, 0.26, 0.222)
        choice = choose(survival, 1e9, lambda k: 1 + k / 10)
        smaller = choice.option(1)
        present = choice.option(8)

        assert smaller.mean_acceptance_length == pytest.approx(1.756)
        assert smaller.length_low == pytest.approx(1.756, abs=1e-3)
        assert 1.84 < smaller.length_high < 1.95
        assert smaller.speedup_high == pytest.approx(smaller.length_high / 1.1)
        assert present.length_high == pytest.approx(present.length_low, abs=1e-3)
        missing = [
            option.length_high / option.mean_acceptance_length
            for option in choice.options[1:8]
        ]
        assert min(missing) > 1.005
        assert choose((0.4, 0.001), 1e9, eagle).option(1).length_high == pytest.approx(
            1.401, abs=1e-3
        )

    @pytest.mark.parametrize(
        ("easy", "hard", "stay"),
        [(0.95, 0.7, 0.98), (0.95, 0.6, 0.95), (0.9, 0.6, 0.9)],
    )
    def test_the_interval_holds_the_smaller_k_of_a_text_with_easy_and_hard_parts(
        self, easy: float, hard: float, stay: float
    ) -> None:
        """The same text, drafted with each K: whether a place would be accepted does
        not depend on K.
        """
        chance = random.Random(1)
        at_easy = True
        accepted = []
        for _ in range(200_000):
            at_easy = at_easy if chance.random() < stay else not at_easy
            accepted.append(chance.random() < (easy if at_easy else hard))

        def drafted(k: int) -> tuple[float, ...]:
            counts = [0] * k
            drafts = 0
            start = 0
            while start < len(accepted) - k:
                length = next((i for i in range(k) if not accepted[start + i]), k)
                for position in range(length):
                    counts[position] += 1
                drafts = drafts + 1
                start = start + length + 1
            return tuple(count / drafts for count in counts)

        lengths = {k: 1 + sum(drafted(k)) for k in range(1, 8)}
        for present in (2, 4, 8):
            choice = choose(drafted(present), 100_000, eagle)
            for k in range(1, present):
                option = choice.option(k)
                assert (
                    option.mean_acceptance_length < lengths[k] < option.length_high
                ), (present, k)

    def test_what_a_further_position_adds_and_how_unsure_that_is_by_hand(self) -> None:
        """The lesser conditional ratio keeps falling; its error recurs, that of the
        fall adds up.
        """
        choice = choose((0.8, 0.5, 0.3), 1_000, lambda k: 1 + k / 5)
        first = 0.3 / 0.5
        fall = (0.3 / 0.5) / (0.5 / 0.8)
        fourth = 0.3 * first * fall
        fifth = fourth * first * fall**2
        error = math.sqrt(CLUSTERING * first * (1 - first) / (1_000 * 0.5)) / first
        unsure = fourth * error * (1 + 1.5 * 1), fifth * error * (2 + 1.5 * (1 + 2))

        assert choice.option(4).mean_acceptance_length == pytest.approx(2.6 + fourth)
        assert choice.option(5).mean_acceptance_length == pytest.approx(
            2.6 + fourth + fifth
        )
        assert choice.option(4).extrapolation_error == pytest.approx(unsure[0])
        assert choice.option(5).extrapolation_error == pytest.approx(sum(unsure))

    def test_the_error_of_a_further_position_counts_in_plain_steps(self) -> None:
        """K=4 gains one percent, which is sure enough over its step of 2.11 plain
        steps.
        """
        survival = (0.95, 0.9, 0.85)
        drafts = 20_000
        choice = choose(
            survival, drafts, lambda k: 2.11 if k == 4 else 1 + 0.25 * k, reach=4
        )
        further = choice.option(4)
        margin = choice.sureness * further.extrapolation_error
        gain = further.speedup - choice.option(3).speedup
        assert margin / 2.11 < gain < margin * 2.11, (margin, gain)
        assert choice.best is further

    def test_the_largest_k_that_is_considered(self) -> None:
        """How far to look can be told; what lies beyond is the farthest that was looked
        at.
        """
        choice = choose((0.8, 0.6), 1_000, eagle, reach=5)

        assert [option.num_speculative_tokens for option in choice.options] == [
            0,
            1,
            2,
            3,
            4,
            5,
        ]
        assert choice.option(99) is choice.options[5]

    def test_of_equal_options_the_smallest_k_is_chosen(self) -> None:
        """Where a further token neither gains nor loses, it is not drafted."""
        choice = choose((1.0, 0.0, 0.0), 1_000, lambda _: 1.0)

        assert choice.best.num_speculative_tokens == 1
        assert choose((0.0,), 1_000, lambda _: 1.0).best.num_speculative_tokens == 0
        assert (
            choose((0.0,), 1_000, lambda _: 1.0).best_drafting.num_speculative_tokens
            == 1
        )


class TestSample:
    @given(
        conditional=conditionals,
        k=st.integers(0, 8),
        m=st.integers(0, 8),
        cost=st.floats(1, 4),
        other_cost=st.floats(1, 4),
        drafts=st.integers(1, 10_000),
    )
    def test_the_error_is_that_of_the_distribution(
        self,
        conditional: list[float],
        k: int,
        m: int,
        cost: float,
        other_cost: float,
        drafts: int,
    ) -> None:
        """The sums over positions give what every single number of accepted tokens
        gives.
        """
        survival = survival_of(conditional)
        k = min(k, len(survival))
        m = min(m, len(survival))
        error = AcceptanceSample(survival, drafts).error_of_difference(
            (k, cost), (m, other_cost)
        )
        expected = math.sqrt(CLUSTERING / drafts) * spread(
            survival, (k, cost), (m, other_cost)
        )

        assert error == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize(("drafts", "sure"), [(200, False), (20_000, True)])
    def test_a_difference_counts_beyond_its_error(
        self, drafts: int, sure: bool
    ) -> None:
        """The same difference is noise in few drafts, and none in many."""
        choice = choose((0.8, 0.6, 0.15), drafts, eagle)

        assert choice.option(2).speedup > choice.option(3).speedup
        assert choice.surely_better(2, 3) is sure
        assert not choice.surely_better(3, 2)
        assert not choice.surely_better(2, 2)

    def test_a_larger_k_must_beat_the_most_that_a_smaller_one_may_have(self) -> None:
        """K=3 reads 1 % faster than K=2, which may be 3 % longer than it reads."""
        choice = choose(
            (0.8, 0.6, 0.5), 1e9, lambda k: (1.0, 1.2, 1.3, 1.56)[k], reach=3
        )

        assert choice.option(3).speedup > 1.005 * choice.option(2).speedup
        assert not choice.surely_better(3, 2)
        cheaper = choose(
            (0.8, 0.6, 0.5), 1e9, lambda k: (1.0, 1.2, 1.3, 1.5)[k], reach=3
        )
        assert cheaper.surely_better(3, 2)


def test_the_clustering_is_what_the_records_of_a_real_server_show() -> None:
    """The variance of mean accepted tokens, request by request, over that of
    independent drafts.
    """
    effects = []
    for folder in ("ngram-phases", "dp2"):
        accepted = [
            steps
            for request in requests(folder)
            if request["temperature"] == 0
            and (steps := (request["spec"] or {}).get("per_step_accepted"))
        ]
        drafts = list(chain(*accepted))
        mean = statistics.fmean(drafts)
        by_request = (
            sum((sum(steps) - mean * len(steps)) ** 2 for steps in accepted)
            / len(drafts) ** 2
        )
        effects.append(by_request / (statistics.pvariance(drafts) / len(drafts)))

    assert statistics.fmean(effects) == pytest.approx(CLUSTERING, rel=0.05)
