"""The choice of K: exact up to the present one, cautious beyond, and sure of what it is sure of."""

import math
import statistics
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from economics.servers import survival_of
from support.builders import requests
from vllm_specdec_exporter.economics import BUILTIN
from vllm_specdec_exporter.economics.choice import choose
from vllm_specdec_exporter.economics.statistics import CLUSTERING, AcceptanceSample

conditionals = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def eagle(k: int) -> float:
    return BUILTIN["eagle"].step_cost(k, 8)


def spread(survival: tuple[float, ...], one: tuple[int, float], other: tuple[int, float]) -> float:
    """The standard deviation of the difference of two speedups over drafts: from their distribution."""
    edges = (1.0, *survival, 0.0)
    chances = [here - there for here, there in pairwise(edges)]  # of exactly 0, 1, ... accepted tokens

    def gain(accepted: int) -> float:
        return (1 + min(accepted, one[0])) / one[1] - (1 + min(accepted, other[0])) / other[1]

    mean = math.fsum(chance * gain(a) for a, chance in enumerate(chances))
    return math.sqrt(math.fsum(chance * (gain(a) - mean) ** 2 for a, chance in enumerate(chances)))


class TestOptions:
    @given(conditionals, st.integers(1, 100_000))
    def test_up_to_the_present_k_nothing_is_assumed(self, conditional: list[float], drafts: int) -> None:
        """A smaller K has the length of 1 + the first position ratios, and that over its cost as speedup."""
        survival = survival_of(conditional)
        choice = choose(survival, drafts, eagle)
        lengths = list(accumulate((1.0, *survival)))

        for k, length in enumerate(lengths):
            option = choice.options[k]
            assert option.num_speculative_tokens == k
            assert option.mean_acceptance_length == pytest.approx(length)
            assert option.speedup == pytest.approx(length / eagle(k))
            assert not option.extrapolated
        assert choice.drafted == len(survival)

    @given(conditionals, st.integers(1, 100_000))
    def test_beyond_it_acceptance_never_recovers(self, conditional: list[float], drafts: int) -> None:
        """Each further position keeps no more of the one before than the least of the last ones did."""
        survival = survival_of(conditional)
        choice = choose(survival, drafts, eagle)
        beyond = choice.options[len(survival) :]
        added = [b.mean_acceptance_length - a.mean_acceptance_length for a, b in pairwise(beyond)]
        last = [b / a for a, b in pairwise((1.0, *survival)[-3:]) if a > 0]

        assert all(option.extrapolated for option in beyond[1:])
        assert len(choice.options) - 1 == 2 * len(survival)
        for step, more in enumerate(added, 1):
            assert more <= survival[-1] * min(last, default=0.0) ** step + 1e-9

    @given(conditionals, st.integers(1, 100_000))
    def test_intervals(self, conditional: list[float], drafts: int) -> None:
        """Every length lies within its interval, and the interval within what is possible."""
        for option in choose(survival_of(conditional), drafts, eagle).options:
            assert 1 <= option.length_low <= option.mean_acceptance_length + 1e-9
            assert option.mean_acceptance_length <= option.length_high + 1e-9
            assert option.length_high <= 1 + option.num_speculative_tokens
            assert option.speedup_low <= option.speedup + 1e-9
            assert option.speedup <= option.speedup_high + 1e-9

    def test_what_a_further_position_adds_and_how_unsure_that_is_by_hand(self) -> None:
        """The lesser conditional ratio keeps falling; its error recurs, that of the fall adds up."""
        choice = choose((0.8, 0.5, 0.3), 1_000, lambda k: 1 + k / 5)
        first, fall = 0.3 / 0.5, (0.3 / 0.5) / (0.5 / 0.8)
        fourth = 0.3 * first * fall
        fifth = fourth * first * fall**2
        error = math.sqrt(CLUSTERING * first * (1 - first) / (1_000 * 0.5)) / first
        unsure = fourth * error * (1 + 1.5 * 1), fifth * error * (2 + 1.5 * (1 + 2))

        assert choice.option(4).mean_acceptance_length == pytest.approx(2.6 + fourth)
        assert choice.option(5).mean_acceptance_length == pytest.approx(2.6 + fourth + fifth)
        assert choice.option(4).extrapolation_error == pytest.approx(unsure[0])
        assert choice.option(5).extrapolation_error == pytest.approx(sum(unsure))

    def test_the_error_of_a_further_position_counts_in_plain_steps(self) -> None:
        """K=4 gains one percent, which is sure enough over its step of 2.11 plain steps."""
        survival, drafts = (0.95, 0.9, 0.85), 20_000
        choice = choose(survival, drafts, lambda k: 2.11 if k == 4 else 1 + 0.25 * k, reach=4)
        least = choice.option(4)
        margin = choice.sureness * least.extrapolation_error
        gain = least.speedup - choice.option(3).speedup
        assert margin / 2.11 < gain < margin * 2.11, (margin, gain)
        assert choice.best is least

    def test_reach(self) -> None:
        """How far to look can be told; what lies beyond is the farthest that was looked at."""
        choice = choose((0.8, 0.6), 1_000, eagle, reach=5)

        assert [option.num_speculative_tokens for option in choice.options] == [0, 1, 2, 3, 4, 5]
        assert choice.option(99) is choice.options[5]

    def test_of_equals_the_smallest(self) -> None:
        """Where a further token neither gains nor loses, it is not drafted."""
        choice = choose((1.0, 0.0, 0.0), 1_000, lambda _: 1.0)

        assert choice.best.num_speculative_tokens == 1
        assert choose((0.0,), 1_000, lambda _: 1.0).best.num_speculative_tokens == 0
        assert choose((0.0,), 1_000, lambda _: 1.0).best_drafting.num_speculative_tokens == 1


class TestSample:
    @given(
        conditionals,
        st.integers(0, 8),
        st.integers(0, 8),
        st.floats(1, 4),
        st.floats(1, 4),
        st.integers(1, 10_000),
    )
    def test_the_error_is_that_of_the_distribution(
        self, conditional: list[float], k: int, m: int, cost: float, other_cost: float, drafts: int
    ) -> None:
        """The sums over positions give what every single number of accepted tokens gives."""
        survival = survival_of(conditional)
        k, m = min(k, len(survival)), min(m, len(survival))
        found = AcceptanceSample(survival, drafts).error_of_difference((k, cost), (m, other_cost))
        expected = math.sqrt(CLUSTERING / drafts) * spread(survival, (k, cost), (m, other_cost))

        assert found == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize(("drafts", "sure"), [(200, False), (20_000, True)])
    def test_surely_better(self, drafts: int, sure: bool) -> None:
        """The same difference is noise in few drafts, and none in many."""
        choice = choose((0.8, 0.6, 0.15), drafts, eagle)

        assert choice.option(2).speedup > choice.option(3).speedup
        assert choice.surely_better(2, 3) is sure
        assert not choice.surely_better(3, 2)
        assert not choice.surely_better(2, 2)


def test_the_clustering_is_what_the_records_of_a_real_server_show() -> None:
    """The variance of mean accepted tokens, request by request, over that of independent drafts."""
    effects = []
    for folder in ("ngram-phases", "dp2"):
        accepted = [
            steps
            for request in requests(folder)
            if request["temperature"] == 0 and (steps := (request["spec"] or {}).get("per_step_accepted"))
        ]
        drafts = [n for steps in accepted for n in steps]
        mean = statistics.fmean(drafts)
        by_request = sum((sum(steps) - mean * len(steps)) ** 2 for steps in accepted) / len(drafts) ** 2
        effects.append(by_request / (statistics.pvariance(drafts) / len(drafts)))

    assert statistics.fmean(effects) == pytest.approx(CLUSTERING, rel=0.05)
