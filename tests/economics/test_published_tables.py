"""Published numbers, as tests: theory, benchmarks and rules that somebody else measured
or wrote down.
"""

from itertools import pairwise, product
from typing import Any

import pytest

from economics.servers import expected, judged, settings_for
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import CostProfile, DraftCost, TargetCost
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.economics.speedup import estimate, expected_tokens
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.published_rules import Rule, apply_rules
from vllm_specdec_exporter.measures.measures import Measures


@pytest.mark.parametrize(
    ("a", "cost", "k"), list(product((0.3, 0.6, 0.9), (0.0, 0.1, 0.5), (1, 3, 8)))
)
def test_leviathan_theorem_3_8(a: float, cost: float, k: int) -> None:
    """A drafting step that takes a part of a plain one: (1 - a^(k+1)) / ((1 - a) (k c +
    1)) times as fast.
    """
    profile = CostProfile("by theory", TargetCost(1.0), DraftCost(per_position=cost))
    speedup = estimate(expected_tokens(a, k), k, 1, profile).speedup
    assert speedup == pytest.approx((1 - a ** (k + 1)) / ((1 - a) * (k * cost + 1))), (
        a,
        cost,
        k,
    )


#: vLLM issue 20780: Llama-3.1-8B-Instruct, one request. Time per output token in ms
#: without speculation.
PLAIN_MS = 7.07
#: By K: mean acceptance length and time per output token in ms of EAGLE-1, then of
#: EAGLE-3.
ISSUE_20780 = {
    2: (2.10, 4.37, 2.36, 4.32),
    3: (2.29, 4.29, 2.79, 4.09),
    4: (2.39, 4.48, 3.08, 4.05),
    5: (2.43, 4.71, 3.32, 4.13),
    6: (2.45, 4.94, 3.46, 4.20),
    7: (2.47, 5.20, 3.54, 4.29),
}
#: By cost profile: the method, and where its two columns begin.
DRAFTERS = {"llama-3.1-8b-eagle": ("eagle", 0), "llama-3.1-8b-eagle3": ("eagle3", 2)}


class TestIssue20780:
    @pytest.mark.parametrize("profile", DRAFTERS)
    def test_the_estimate_is_the_measured_speedup(self, profile: str) -> None:
        """For every K within 4 %; the same comes out of counters that went through the
        whole pipeline.
        """
        method, column = DRAFTERS[profile]
        for k, row in ISSUE_20780.items():
            length, milliseconds = row[column:][:2]
            estimated = estimate(length, k, 1.0, BUILTIN[profile])
            assert estimated.speedup == pytest.approx(
                PLAIN_MS / milliseconds, rel=0.04
            ), k
            assert (
                estimated.speedup_low < PLAIN_MS / milliseconds < estimated.speedup_high
            ), k
            each = (length - 1) / k  # the total counts, not how it is spread
            result = judged(
                settings_for(BUILTIN[profile], method, k), (1e5 * each,) * k, 1e5
            )
            assert result.payoff.speedup == pytest.approx(
                PLAIN_MS / milliseconds, rel=0.04
            ), k

    @pytest.mark.parametrize(
        ("profile", "best"), [("llama-3.1-8b-eagle", 3), ("llama-3.1-8b-eagle3", 4)]
    )
    def test_the_counters_at_k_7_tell_the_best_k(self, profile: str, best: int) -> None:
        """Advice from K=7 alone is the K that was fastest of all that were measured.

        How the first two positions share what K=2 accepts is not published, so several
        splits are tried.
        """
        method, column = DRAFTERS[profile]
        assert best == min(ISSUE_20780, key=lambda k: ISSUE_20780[k][column + 1])
        lengths = [row[column] for row in ISSUE_20780.values()]
        for first_share, drafts in product((0.52, 0.55, 0.6, 0.64), (2_000, 100_000)):
            first = first_share * (lengths[0] - 1)
            survival = (
                first,
                lengths[0] - 1 - first,
                *(b - a for a, b in pairwise(lengths)),
            )
            assert survival == tuple(sorted(survival, reverse=True)), (
                first_share,
                drafts,
            )
            advice = judged(
                settings_for(BUILTIN[profile], method, 7),
                expected(survival, drafts),
                drafts,
            )
            assert (advice.advice.action, advice.advice.num_speculative_tokens) == (
                Action.DECREASE_K,
                best,
            ), (first_share, drafts)
            assert (
                f'"num_speculative_tokens": {best}' in advice.advice.speculative_config
            ), (first_share, drafts)


#: Mean acceptance length at break-even by batch size, with 1,000 tokens of context: the
#: step times that the authors of SpecDecode-Bench measured on one H100. EAGLE at K = 1,
#: 2, 3, 5, 7; n-gram lookup at 1, 3, 5.
BREAK_EVEN = {
    1: ((1.30, 1.31, 1.31, 1.31, 1.32), (1.01, 1.01, 1.02)),
    8: ((1.31, 1.33, 1.35, 1.40, 1.44), (1.03, 1.07, 1.12)),
    32: ((1.32, 1.39, 1.47, 1.62, 1.77), (1.08, 1.23, 1.38)),
    64: ((1.33, 1.45, 1.58, 1.82, 2.07), (1.13, 1.38, 1.62)),
    128: ((1.35, 1.53, 1.71, 2.07, 2.44), (1.19, 1.55, 1.92)),
    256: ((1.36, 1.60, 1.84, 2.32, 2.79), (1.25, 1.73, 2.21)),
    512: ((1.37, 1.66, 1.94, 2.51, 3.07), (1.29, 1.86, 2.43)),
}
BREAK_EVEN_COLUMNS = {
    "llama-3.1-8b-h100-eagle": (0, (1, 2, 3, 5, 7)),
    "llama-3.1-8b-h100-ngram": (1, (1, 3, 5)),
}


@pytest.mark.parametrize("profile", BREAK_EVEN_COLUMNS)
def test_break_even_by_batch_size(profile: str) -> None:
    """The break-even length at every batch size and K lies within 2 % of the measured
    one.
    """
    column, ks = BREAK_EVEN_COLUMNS[profile]
    assert BUILTIN[profile].context_tokens == 1000
    for batch, row in BREAK_EVEN.items():
        costs = [BUILTIN[profile].step_cost(k, batch) for k in ks]
        assert costs == pytest.approx(row[column], rel=0.02), batch


class TestChen:
    """Chen et al. 2023 (arXiv 2302.01318): Chinchilla 70B with a 4B draft, K=4."""

    PROFILE = BUILTIN["chinchilla-70b-draft-4b"]
    PLAIN_MS = 14.1
    DRAFT_MS = 1.8
    LOOP_MS = PLAIN_MS + 4 * DRAFT_MS

    def test_the_time_of_a_loop(self) -> None:
        """Four drafting steps and one of the target take 21.3 ms, against 14.1 ms of a
        plain step.
        """
        assert pytest.approx(21.3) == self.LOOP_MS
        assert self.PROFILE.step_cost(4, 1) == pytest.approx(21.3 / 14.1, rel=1e-12)

    @pytest.mark.parametrize(
        ("length", "ms_per_token", "published"),
        [
            # XSum; 14.1 / 7.52 is 1.875, so the published ratio has another base
            (2.83, 7.52, 1.92),
            (3.72, 5.73, 2.46),  # HumanEval
        ],
    )
    def test_speedups(
        self, length: float, ms_per_token: float, published: float
    ) -> None:
        """The speedup is that of the published times, and within 3 % of the published
        ratio.
        """
        assert pytest.approx(length, abs=0.005) == self.LOOP_MS / ms_per_token
        speedup = estimate(length, 4, 1.0, self.PROFILE).speedup

        assert speedup == pytest.approx(self.PLAIN_MS / ms_per_token, rel=0.002)
        assert speedup == pytest.approx(published, rel=0.03)


def rules_for(
    profile: CostProfile = BUILTIN["unknown"], **measured: Any
) -> dict[str, Rule]:
    """What the published rules say of a window, by their names."""
    rules = apply_rules(Measures(window="5m", **measured), profile, Thresholds())
    return {rule.name: rule for rule in rules}


@pytest.mark.parametrize(
    ("k", "length", "last", "says"),
    [
        (3, 1.8, 0.35, "raise_k"),  # "try 4"
        (4, 2.1, 0.28, ""),  # "good"
        # "Too far" because it is slower than K=4, which the rule on the last position
        # cannot see: it asks to lower K below 0.10 only.
        (5, 2.0, 0.15, ""),
    ],
)
def test_the_published_tuning_table(
    k: int, length: float, last: float, says: str
) -> None:
    """What the published rule on the last position says of the published example of
    tuning K.
    """
    rules = rules_for(
        mean_acceptance_length=length,
        position_acceptance_ratio=(0.6,) * (k - 1) + (last,),
        mean_draft_length=float(k),
    )
    assert rules["last_position"].says == says
    assert rules["mean_acceptance_length"].says == ""
    assert f"{last:.0%}" in rules["last_position"].text


def test_the_published_rules_on_the_acceptance_ratio_and_length() -> None:
    """Below 0.50 disable; from 0.50 to 0.65 measure first; below a mean acceptance
    length of 1.2, disable.
    """
    for ratio, says in (
        (0.499, "disable"),
        (0.50, "measure"),
        (0.65, "measure"),
        (0.651, ""),
    ):
        rules = rules_for(acceptance_ratio=ratio)
        assert {name: rule.says for name, rule in rules.items()} == {
            "acceptance_ratio": says
        }, (ratio, says)
    for length, says in ((1.19, "disable"), (1.2, ""), (1.5, "")):
        rules = rules_for(mean_acceptance_length=length)
        assert {name: rule.says for name, rule in rules.items()} == {
            "mean_acceptance_length": says
        }, (length, says)


#: What a fourth token costs, in plain steps: by hand, from the profiles' numbers and
#: context 1,000.
TOKENS = {
    ("eagle", 1): (0.1017 + 0.00033 + 0.0029373) / 1.0,
    ("eagle", 256): (0.1017 + 256 * (0.00033 + 0.0029373)) / 3.1488,
    ("unknown", 64): (0.1626 + 64 * (0.00093 + 0.0029373)) / 1.5309,
    ("ngram", 1): 1.005875 * 0.0029373,
    ("ngram", 256): 256 * 1.005875 * 0.0029373 / 3.1488,
}


def test_the_published_rule_on_marginal_benefit() -> None:
    """Raise K while acceptance(K) times cost of a verification over cost of a drafted
    token exceeds 1.
    """
    for ((name, batch), cost), last in product(TOKENS.items(), (0.05, 0.2, 0.4)):
        rules = rules_for(
            BUILTIN[name],
            position_acceptance_ratio=(0.8, 0.6, 0.5, last),
            mean_draft_length=4.0,
            estimate=estimate(2.9, 4, batch, BUILTIN[name]),
        )
        assert rules["marginal_benefit"].says == ("raise_k" if last > cost else ""), (
            name,
            batch,
            last,
        )
